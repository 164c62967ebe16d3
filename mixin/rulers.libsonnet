// The rules for rulers that are not Prometheus, and as objects of Kubernetes: the rendered groups with less in them.
// docs/load-the-pack.md says how to load each.
local text = import 'text.libsonnet';

{
  local config = $._config,
  local groups = $.prometheusRules.groups + $.prometheusAlerts.groups,
  local each(change) = [group { rules: [change(rule) for rule in group.rules] } for group in groups],
  local contains(whole, part) = std.length(std.findSubstr(part, whole)) > 0,

  local object(apiVersion, kind, groups) = {
    apiVersion: apiVersion,
    kind: kind,
    metadata: config.prometheus_rule,
    spec: { groups: groups },
  },

  // Google's evaluator knows no keep_firing_for, and selects a metric by its exact name only.
  local google(kind) = object('monitoring.googleapis.com/v1', kind, each(
    function(rule)
      assert !contains(rule.expr, '__name__=~') :
             "Google's evaluator cannot select names by a regular expression: set vllm_prefix to a plain prefix";
      { [key]: rule[key] for key in std.objectFields(rule) if key != 'keep_firing_for' }
  )),

  // The templates of Grafana's own rules cannot query: the service alone is told.
  local withoutQueries(rule) =
    local short(annotation) = if contains(annotation, '| query') then text.service + '.' else annotation;
    if 'alert' in rule
    then rule { annotations+: { summary: short(super.summary), description: short(super.description) } }
    else rule,

  specdecRules+:: {
    prometheusRule: object('monitoring.coreos.com/v1', 'PrometheusRule', groups),
    // Of a whole cluster, or of the namespace that it is in.
    clusterRules: google('ClusterRules'),
    rules: google('Rules'),
    grafana: { groups: each(withoutQueries) },
  },
}
