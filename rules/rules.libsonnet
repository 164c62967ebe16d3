// The groups of a mixin, from its _config.
{
  local promql = import 'promql.libsonnet',
  local config = $._config,
  local signals = (import 'signals.libsonnet')(config),

  local finished(group) = {
    name: group.name,
    interval: promql.duration(group.interval_seconds),
  } + config.group_fields + {
    rules: [rule { expr: promql.strip(super.expr) } for rule in group.rules],
  },

  // Every quantity of the pack, for other mixins to build on.
  _signals:: signals,

  prometheusRules+:: {
    groups+: [finished(group) for group in (import 'recording/groups.libsonnet')(config, signals)],
  },
  prometheusAlerts+:: {
    groups+: [finished(group) for group in (import 'alerts/groups.libsonnet')(config, signals)],
  },
  grafanaDashboards+:: {},
}
