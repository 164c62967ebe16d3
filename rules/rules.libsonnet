// The groups of a mixin, from its _config.
{
  local promql = import 'promql.libsonnet',
  local config = promql.computed($._config),
  local signals = promql.computed((import 'signals.libsonnet')(config)),

  local finished(group) = {
    name: group.name,
    interval: promql.duration(group.interval_seconds),
    rules: [rule { expr: promql.strip(super.expr) } for rule in group.rules],
  },

  // Each quantity once, for whoever builds on the pack.
  _signals:: signals,

  prometheusRules+:: {
    groups+: [finished(group) for group in (import 'recording/groups.libsonnet')(config, signals)],
  },
  prometheusAlerts+:: {
    groups+: [finished(group) for group in (import 'alerts/groups.libsonnet')(config, signals)],
  },
  grafanaDashboards+:: {},
}
