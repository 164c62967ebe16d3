// Small pieces of PromQL text. Nothing here knows what is measured.
{
  // 300 -> '5m'. Prometheus' own spelling, so that names of records can end in it.
  duration(seconds):
    if seconds % 86400 == 0 then '%dd' % (seconds / 86400)
    else if seconds % 3600 == 0 then '%dh' % (seconds / 3600)
    else if seconds % 60 == 0 then '%dm' % (seconds / 60)
    else '%ds' % seconds,

  // A number as people write it: 0.65, not the 0.65000000000000002 that jsonnet prints.
  number(x): '%.10g' % x,

  list(labels): std.join(', ', labels),

  // Matchers in braces; empty ones are left out, and so are empty braces.
  braces(matchers):
    local given = std.filter(function(m) m != '', matchers);
    if given == [] then '' else '{' + std.join(', ', given) + '}',

  // A block of PromQL, moved right under what contains it.
  indent(text, width=2): std.strReplace(self.strip(text), '\n', '\n' + std.repeat(' ', width)),

  // Text blocks end in a newline that does not belong to the expression.
  strip(text):
    local end = '\u0000';
    std.strReplace(std.strReplace(text + end, '\n' + end, ''), end, ''),

  contains(text, part): std.length(std.split(text, part)) > 1,

  // In parentheses, on lines of its own when it has several.
  group(text):
    local stripped = self.strip(text);
    if !self.contains(stripped, '\n') then '(' + stripped + ')'
    else '(\n  ' + self.indent(stripped) + '\n)',

  // The first of the expressions that has a value, service by service.
  firstOf(expressions, labels): std.join('\nor on (%s)\n' % self.list(labels), [self.strip(e) for e in expressions]),

  // The same object, computed. jsonnet computes a field anew at every use, which makes layers of text slow.
  computed(object): std.parseJson(std.toString(object)),

  withLabel(expression, name, value): 'label_replace(%s, "%s", "%s", "", "")' % [self.strip(expression), name, value],
}
