// Small pieces of PromQL text. Nothing here knows what is measured.
{
  local promql = self,

  // 300 -> '5m', as Prometheus itself writes it.
  duration(seconds):
    if seconds % 86400 == 0 then '%dd' % (seconds / 86400)
    else if seconds % 3600 == 0 then '%dh' % (seconds / 3600)
    else if seconds % 60 == 0 then '%dm' % (seconds / 60)
    else '%ds' % seconds,

  // A number as people write it: 0.65, not the 0.65000000000000002 that jsonnet prints. Before go-jsonnet 0.21, %g knows no 0.
  number(x): if x == 0 then '0' else '%.10g' % x,

  // 'cluster, namespace' -> ['cluster', 'namespace']. Debian's jsonnet splits at one character only.
  names(labels): std.split(std.strReplace(labels, ' ', ''), ','),

  // Matchers in braces. Empty matchers and empty braces are left out.
  braces(matchers):
    local given = std.filter(function(m) m != '', matchers);
    if given == [] then '' else '{' + std.join(', ', given) + '}',

  // Text blocks end in a newline that does not belong to the expression.
  strip(text): std.rstripChars(text, '\n'),

  indent(text, width=2): std.strReplace(promql.strip(text), '\n', '\n' + std.repeat(' ', width)),

  by(operator, labels, expression):
    local lines = if std.member(expression, '\n') then '\n  ' + promql.indent(expression) + '\n' else expression;
    '%s by (%s) (%s)' % [operator, labels, lines],

  // `window`: a duration as text.
  range(operation, series, window): '%s(%s[%s])' % [operation, series, window],

  withLabel(expression, name, value): 'label_replace(%s, "%s", "%s", "", "")' % [promql.strip(expression), name, value],
}
