// Are many services down or slower at once? One page that names them, in the place of one for each: Alertmanager holds the
// others back.
local promql = import '../promql.libsonnet';

function(config, signals, alert)
  local service = (import '../sources.libsonnet')(config).service;
  local place = [label for label in service if label != 'inference_service'];
  // A driver, a network or a power supply is of a cluster.
  local cluster = [label for label in service if label == 'cluster'];
  // Pending ones count: this alert must be there before theirs are.
  local ofCluster(name) = 'ALERTS{alertname="%s", severity="critical"}' % name;
  local many(what, name, verb, spec) = {
    alert: 'SpecDecodeManyServices',
    severity: 'critical',
    labels: { what: what },
    level: cluster,
    dashboard: config.fleet_dashboard_uid,
    // Theirs wait for five minutes.
    for_seconds: 3 * config.minute_seconds,
    keep_seconds: 5 * config.minute_seconds,
    expr: |||
      %(affected)s
      >= clamp_min(%(share)s * %(all)s, %(min)d)
    ||| % {
      affected: promql.by('count', cluster, promql.by('group', service, ofCluster(name))),
      share: promql.number(config.many_services.share),
      all: promql.by('count', cluster, promql.by('group', service, signals.replica_up.record)),
      min: config.many_services.min,
    },
    description: (
      '%(value)s services %(verb)s{{ with $labels.cluster }} in {{ . }}{{ end }}, among them: {{ range printf "topk(12, group by (%(labels)s) '
      + '(ALERTS{alertname=\\"%(name)s\\", severity=\\"critical\\"%(matcher)s}))"%(cluster)s | query }}%(one)s {{ end }}.'
    ) % {
      value: alert.value(alert.whole),
      verb: verb,
      labels: promql.list(service),
      name: name,
      matcher: if cluster == [] then '' else ', cluster=%q',
      cluster: if cluster == [] then '' else ' $labels.cluster',
      one: std.join('', ['{{ with .Labels.%s }}{{ . }}/{{ end }}' % label for label in place if label != 'cluster'])
           + '{{ .Labels.inference_service }}',
    },
  } + spec;

  [
    many('down', 'SpecDecodeTargetDown', 'cannot be read', {
      summary: 'Many services are down at once.',
      impact: 'Users of these services may get errors. One cause is likely: no page follows for each of them.',
      action: 'Look for what they share: nodes, network, storage, a driver, a rollout of all of them, or the scrape itself.',
    }),
    many('slower', 'SpecDecodeP99Regression', 'became slower than at their baselines', {
      summary: 'Many services became slower at once.',
      impact: 'Users of these services wait longer. One cause is likely: no page follows for each of them.',
      action: 'Look for what they share: a driver or a vLLM release that was rolled out, nodes that clock lower, network, storage.',
    }),
  ]
