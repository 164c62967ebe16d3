// Are many services down or slower at once? One page that names them, in the place of one for each: Alertmanager holds the
// others back. Each stands in the group of what it replaces, before it, so both reach Alertmanager together. And it counts the
// services that will page in some minutes, since the first page of many must not come before this one.
local promql = import '../promql.libsonnet';

function(config, signals, alert)
  local service = (import '../sources.libsonnet')(config).service;
  local number = promql.number;
  local level = config.level_labels;
  local on = 'on (%s)' % promql.list(level);
  local on_sli = 'on (%s, sli)' % promql.list(level);
  local minutes(n) = n * config.minute_seconds;
  // A driver, a network or a power supply is of a cluster.
  local cluster = [label for label in service if label == 'cluster'];

  // `affected`: by matchers, the services that will page. `paging`: services that page, or do so at the next evaluations.
  // `theirs`: how long their pages go on after the cause has ended. Those must not speak when this one ends.
  local many(reason, affected, paging, theirs, said) =
    // In one line, for the text.
    local named = std.join(' ', [
      std.stripChars(line, ' ')
      for line in std.split(promql.strip(affected(if cluster == [] then '' else 'cluster=%[1]q')), '\n')
    ]);
    {
      alert: 'SpecDecodeManyServices',
      severity: 'critical',
      labels: { reason: reason },
      level: cluster,
      summary: said.summary,
      dashboard: config.fleet_dashboard_uid,
      keep_seconds: theirs + minutes(10),
      expr: |||
        count by (%(cluster)s) (
          %(affected)s
        )
        >= clamp_min(%(share)s * count by (%(cluster)s) (group by (%(service)s) (%(replicas)s)), %(min)d)
        and on (%(cluster)s)
        count by (%(cluster)s) (%(paging)s)
      ||| % {
        cluster: promql.list(cluster),
        service: promql.list(service),
        affected: promql.indent(affected('')),
        share: number(config.many_services.share),
        replicas: signals.replica_up.record,
        min: config.many_services.min,
        paging: paging,
      },
      description: '%(value)s services %(verb)s{{ with $labels.cluster }} in {{ . }}{{ end }}:' % {
                     value: alert.value(alert.whole),
                     verb: said.verb,
                   }
                   + '{{ range $i, $one := printf `%(named)s` %(cluster)s | query | sortByLabel "inference_service" }}' % {
                     named: named,
                     cluster: if cluster == [] then '' else '$labels.cluster',
                   }
                   + '{{ if lt $i 12 }} %(place)s{{ $one.Labels.inference_service }}{{ end }}{{ end }}' % {
                     place: std.join('', [
                       '{{ with $one.Labels.%s }}{{ . }}/{{ end }}' % label
                       for label in service
                       if !std.member(['cluster', 'inference_service'], label)
                     ]),
                   }
                   + '{{ if gt $value 12.0 }} and others{{ end }}.',
      impact: 'Users of these services %s. One cause is likely: no page follows for each of them.' % said.users,
      action: 'Look for what they share: ' + said.shared,
    };

  local presence = signals.presence.record;
  // Down, or unreadable for nearly so long: within three minutes, scrapes and evaluations have seen all that fell together.
  local down(matchers) = |||
    %(presence)s%(of)s == 1
    or
    max by (%(service)s) (max_over_time(%(up)s%(of)s[%(lately)s])) == 0
    and on (%(service)s)
    last_over_time(%(presence)s[%(before)s]) == 0
  ||| % {
    presence: presence,
    of: promql.braces([matchers]),
    service: promql.list(service),
    up: signals.replica_up.record,
    lately: promql.duration(minutes(3)),
    before: promql.duration(minutes(8)),
  };

  // Slow now, by the limits of the page, which looks at a quarter of an hour.
  local slower(matchers) = |||
    max by (%(service)s) (
      (
        (%(ratio)s > %(limit)s unless %(on)s %(ratio_tokens)s < %(limit)s)
        and %(on_sli)s
        %(slower)s
        unless %(on)s
        (%(warming)s >= 0.5)
      )
      or
      %(longer)s > %(critical)s
      unless %(on)s
      %(unsettled)s
    )
  ||| % {
    local paged(signal) = signal.record + promql.braces(['sli=~"e2e|tpot"', matchers]),
    ratio_tokens: signals.latency_ratio_now.record + promql.braces(['sli="tpot"', matchers]),
    service: promql.list(service),
    ratio: paged(signals.latency_ratio_now),
    limit: number(config.policy.latency.harmful_ratio),
    slower: signals.slower.record,
    on: on,
    on_sli: on_sli,
    warming: signals.warming.record,
    longer: paged(signals.tail_lasting),
    critical: number(config.policy.latency.tail_shift_critical),
    unsettled: signals.unsettled.record,
  };

  {
    down: many('down', down, presence + ' == 1', minutes(5), {
      summary: 'Many services are down at once.',
      verb: 'cannot be read',
      users: 'may get errors',
      shared: 'nodes, network, storage, a driver, a rollout of all of them, or the scrape itself.',
    }),
    // Their own alert is pending for three evaluations before it fires, so a ruler that writes late is in time.
    slower: many(
      'slower',
      slower,
      'ALERTS{alertname="SpecDecodeP99Regression", severity="critical"}',
      config.long_window_seconds,
      {
        summary: 'Many services became slower at once.',
        verb: 'are much slower than at their baselines',
        users: 'wait longer',
        shared: 'a driver or a vLLM release that was rolled out, nodes that clock lower, network, storage.',
      }
    ),
  }
