// The dashboards of a mixin, by file name.
{
  local config = $._config,
  local texts = [
    { key: std.join('/', [rule.alert, rule.labels.severity, std.get(rule.labels, 'reason', ''), std.get(rule.labels, 'container', '')]), summary: rule.annotations.summary, action: rule.annotations.action }
    for group in $.prometheusAlerts.groups
    for rule in group.rules
    if 'alert' in rule
  ],
  // One alert may have several rules.
  local alerts = { [text.key]: text for text in std.set(texts, function(text) text.key) },
  local common = (import 'common.libsonnet')(config, alerts),

  grafanaDashboards+:: {
    'specdec-fleet.json': (import 'fleet.libsonnet')(config, common),
    'specdec-service.json': (import 'service.libsonnet')(config, common),
    'specdec-ab.json': (import 'ab.libsonnet')(config, common),
    'specdec-pack.json': (import 'pack_health.libsonnet')(config, common),
  },
}
