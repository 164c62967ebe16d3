// Small pieces of PromQL text. Nothing here knows what is measured.
{
  local promql = self,

  // 300 -> '5m'. This is Prometheus' own spelling, so the names of records can end in it.
  duration(seconds):
    if seconds % 86400 == 0 then '%dd' % (seconds / 86400)
    else if seconds % 3600 == 0 then '%dh' % (seconds / 3600)
    else if seconds % 60 == 0 then '%dm' % (seconds / 60)
    else '%ds' % seconds,

  // A number as people write it: 0.65, not the 0.65000000000000002 that jsonnet prints.
  number(x): '%.10g' % x,

  list(labels): std.join(', ', labels),

  // Matchers in braces. Empty matchers and empty braces are left out.
  braces(matchers):
    local given = std.filter(function(m) m != '', matchers);
    if given == [] then '' else '{' + std.join(', ', given) + '}',

  // A block of PromQL, indented to stand inside another expression.
  indent(text, width=2): std.strReplace(promql.strip(text), '\n', '\n' + std.repeat(' ', width)),

  // Text blocks end in a newline that does not belong to the expression.
  strip(text): if std.endsWith(text, '\n') then std.substr(text, 0, std.length(text) - 1) else text,

  contains(text, part): std.length(std.split(text, part)) > 1,

  // In parentheses. An expression of several lines gets lines of its own.
  group(text):
    local stripped = promql.strip(text);
    if !promql.contains(stripped, '\n') then '(' + stripped + ')'
    else '(\n  ' + promql.indent(stripped) + '\n)',

  // For each service, the first of the expressions that has a value.
  firstOf(expressions, labels): std.join('\nor on (%s)\n' % promql.list(labels), [promql.strip(e) for e in expressions]),

  // 'max by (<labels>) (<expression>)'.
  by(operator, labels, expression): '%(operator)s by (%(labels)s) (%(expression)s)' % {
    operator: operator,
    labels: promql.list(labels),
    expression: expression,
  },

  // 'rate(<series>[5m])', or that of so many seconds ago.
  range(operation, series, seconds, ago=0): '%(operation)s(%(series)s[%(window)s]%(offset)s)' % {
    operation: operation,
    series: series,
    window: promql.duration(seconds),
    offset: promql.offset(ago),
  },

  // ' offset 2h'; nothing for 0.
  offset(seconds): if seconds == 0 then '' else ' offset ' + promql.duration(seconds),

  // The bucket series of a histogram -> one of its quantiles; none where nothing was observed.
  quantile(quantile, buckets): 'histogram_quantile(%(quantile)s, %(buckets)s) >= 0' % {
    quantile: promql.number(quantile),
    buckets: buckets,
  },

  // A label of series with the value 1, as a number: as a histogram with one observation, in the bucket of that bound.
  numberOf(label, series): |||
    histogram_quantile(
      1,
      label_replace(%(series)s, "le", "$1", "%(label)s", "([0-9]+)")
      or
      label_replace(%(series)s, "le", "+Inf", "", "")
    )
  ||| % { series: series, label: label },

  withLabel(expression, name, value): 'label_replace(%(expression)s, "%(name)s", "%(value)s", "", "")' % {
    expression: promql.strip(expression),
    name: name,
    value: value,
  },
}
