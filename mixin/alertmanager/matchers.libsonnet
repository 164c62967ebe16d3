// Matchers of alerts, in the form of the operator's object. `text` turns one into Alertmanager's own form.
{
  local matcher(type) = function(name, value) { name: name, matchType: type, value: value },

  equal: matcher('='),
  not: matcher('!='),
  oneOf(name, values): matcher(if std.length(values) == 1 then '=' else '=~')(name, std.join('|', values)),

  text(m): m.name + m.matchType + '"' + m.value + '"',
}
