// Are many services down or slower at once? One page that names them, in the place of one for each: Alertmanager holds the
// others back. So each stands in the group of what it replaces, before it: both reach Alertmanager together.
local promql = import '../promql.libsonnet';

function(config, signals, alert)
  local service = (import '../sources.libsonnet')(config).service;
  // A driver, a network or a power supply is of a cluster.
  local cluster = [label for label in service if label == 'cluster'];

  // `affected`: the services, by matchers.
  local many(reason, affected, verb, spec) =
    local named = 'topk(12, group by (%(labels)s) (%(affected)s))' % {
      labels: promql.list(service),
      affected: affected(if cluster == [] then '' else 'cluster=%q'),
    };
    {
      alert: 'SpecDecodeManyServices',
      severity: 'critical',
      labels: { reason: reason },
      level: cluster,
      dashboard: config.fleet_dashboard_uid,
      keep_seconds: 5 * config.minute_seconds,
      expr: |||
        %(affected)s
        >= clamp_min(%(share)s * %(all)s, %(min)d)
      ||| % {
        affected: promql.by('count', cluster, promql.by('group', service, affected(''))),
        share: promql.number(config.many_services.share),
        all: promql.by('count', cluster, promql.by('group', service, signals.replica_up.record)),
        min: config.many_services.min,
      },
      description: '%(value)s services %(verb)s{{ with $labels.cluster }} in {{ . }}{{ end }}, among them:' % {
                     value: alert.value(alert.whole),
                     verb: verb,
                   }
                   + '{{ range printf "%(named)s"%(cluster)s | query }} %(place)s{{ .Labels.inference_service }}{{ end }}.' % {
                     named: std.strReplace(named, '"', '\\"'),
                     cluster: if cluster == [] then '' else ' $labels.cluster',
                     place: std.join('', [
                       '{{ with .Labels.%s }}{{ . }}/{{ end }}' % label
                       for label in service
                       if !std.member(['cluster', 'inference_service'], label)
                     ]),
                   },
    } + spec;

  {
    down: many('down', function(matchers) signals.presence.record + promql.braces([matchers]) + ' == 1', 'cannot be read', {
      summary: 'Many services are down at once.',
      impact: 'Users of these services may get errors. One cause is likely: no page follows for each of them.',
      action: 'Look for what they share: nodes, network, storage, a driver, a rollout of all of them, or the scrape itself.',
    }),
    // Theirs wait for five minutes, and pending ones count.
    slower: many(
      'slower',
      function(matchers) 'ALERTS' + promql.braces(['alertname="SpecDecodeP99Regression"', 'severity="critical"', matchers]),
      'became slower than at their baselines',
      {
        for_seconds: 3 * config.minute_seconds,
        summary: 'Many services became slower at once.',
        impact: 'Users of these services wait longer. One cause is likely: no page follows for each of them.',
        action: 'Look for what they share: a driver or a vLLM release that was rolled out, nodes that clock lower, network, storage.',
      }
    ),
  }
