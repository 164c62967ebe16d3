// The rules for rulers that are not Prometheus, and as objects of Kubernetes: the rendered groups with less in them.
// docs/load-the-pack.md says how to load each.
local promql = import 'promql.libsonnet';

{
  local config = $._config,
  local groups = $.prometheusRules.groups + $.prometheusAlerts.groups,
  local each(change) = [group { rules: [change(rule) for rule in group.rules] } for group in groups],

  local object(apiVersion, kind, groups) = {
    apiVersion: apiVersion,
    kind: kind,
    metadata: config.prometheus_rule,
    spec: { groups: groups },
  },

  // Google's evaluator knows no keep_firing_for, and selects a metric by its exact name only.
  local google(kind) = object('monitoring.googleapis.com/v1', kind, each(
    function(rule)
      assert !promql.contains(rule.expr, '__name__=~') :
             "Google's evaluator cannot select names by a regular expression: set vllm_prefix to a plain prefix";
      { [key]: rule[key] for key in std.objectFields(rule) if key != 'keep_firing_for' }
  )),

  // The templates of Grafana's own rules cannot query. What queries there is told by the summary.
  local place = (import 'alerts/alert.libsonnet')(config, $._signals).whereOf(config.level_labels),
  local withoutQueries(rule) =
    if 'alert' in rule && promql.contains(rule.annotations.description, '| query')
    then rule { annotations+: { description: place + ': ' + rule.annotations.summary } }
    else rule,

  specdecRules+:: {
    prometheusRule: object('monitoring.coreos.com/v1', 'PrometheusRule', groups),
    // Of a whole cluster, or of the namespace that it is in.
    clusterRules: google('ClusterRules'),
    rules: google('Rules'),
    grafana: { groups: each(withoutQueries) },
  },
}
