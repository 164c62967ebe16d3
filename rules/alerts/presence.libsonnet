// Is there a service to watch, and does it draft?
local promql = import '../promql.libsonnet';

function(config, signals, alert)
  local source = (import '../sources.libsonnet')(config);
  local number = promql.number;
  local minutes(n) = n * config.minute_seconds;
  local on = 'on (%s)' % promql.list(config.level_labels);
  local up = source.up;
  local whereUp = alert.whereOf(up.labels);
  local replicas(operator) = '%(operator)s by (%(labels)s) (%(up)s) == 0' % {
    operator: operator,
    labels: promql.list(up.labels),
    up: up.expr,
  };
  local hasDrafted = 'last_over_time(%s[1d])' % signals.acceptance_hour.record;
  local generating = '%(tokens)s >= %(min_tokens)s' % {
    tokens: signals.generation_tokens_now.record,
    min_tokens: number(config.min_generation_tokens_per_second),
  };
  local facts = alert.facts { tokens: alert.value(alert.whole) };

  [
    {
      alert: 'SpecDecodeTargetDown',
      severity: 'critical',
      level: up.labels,
      for_seconds: minutes(5),
      keep_seconds: minutes(5),
      expr: replicas('max'),
      summary: 'No replica of the predictor answers.',
      description: 'No replica of %s has answered a scrape for 5 minutes.' % whereUp,
      impact: 'Users probably get errors. Nothing is known about speculation.',
      action: 'Look at the pods: are they starting, crashed or out of memory? A cold start takes minutes.',
    },
    {
      alert: 'SpecDecodeTargetDown',
      severity: 'warning',
      level: up.labels,
      for_seconds: minutes(15),
      keep_seconds: minutes(5),
      expr: replicas('min'),
      summary: 'A replica of the predictor does not answer.',
      description: 'At least one replica of %s has not answered a scrape for 15 minutes.' % whereUp,
      impact: 'The other replicas carry its load. The figures of the service leave it out.',
      action: 'Find the pod whose specdec_up (or up) is 0, and read its log.',
    },
    {
      alert: 'SpecDecodeTargetAbsent',
      severity: 'warning',
      level: up.labels,
      for_seconds: minutes(15),
      expr: 'group by (%(labels)s) (%(before)s) unless group by (%(labels)s) (%(now)s)' % {
        labels: promql.list(up.labels),
        before: up.seen(' offset 1h'),
        now: up.seen(''),
      },
      summary: 'A service was scraped an hour ago and is not scraped any more.',
      description: '%s had series an hour ago and has none now.' % whereUp,
      impact: 'Nothing is known about the service, and no other alert about it can fire.',
      action: 'If somebody removed it on purpose, this alert ends within the hour. If not, check its pods and the scrape '
              + 'configuration: labels, ports, network policy.',
    },
    {
      alert: 'SpecDecodeNotDrafting',
      severity: 'warning',
      for_seconds: minutes(15),
      keep_seconds: minutes(5),
      expr: |||
        %(generating)s
        and
        %(drafts)s == 0
        unless %(on)s
        (%(warming)s > 0.5)
      ||| % {
        generating: generating,
        drafts: signals.drafts_now.record,
        on: on,
        warming: signals.warming.record,
      },
      summary: 'Speculation is configured, but nothing is drafted.',
      description: '%(where)s generates %(tokens)s tokens/s but drafts nothing now. Over %(long)s it made %(drafts)s drafts.'
                   % facts { drafts: alert.number(signals.drafts.record, alert.whole) },
      impact: 'The service is only as fast as without speculation, and the draft model takes memory for nothing.',
      action: 'Look for sampling parameters that switch speculation off, or for a batch size limit (dynamic k may be 0 under '
              + 'load). With n-gram lookup, check that the prompts contain text to copy.',
    },
    {
      alert: 'SpecDecodeMetricsMissing',
      severity: 'info',
      for_seconds: minutes(30),
      expr: |||
        %(generating)s
        and
        %(has_drafted)s
        unless
        %(draft_tokens)s
      ||| % {
        generating: generating,
        has_drafted: hasDrafted,
        draft_tokens: signals.draft_tokens.record,
      },
      summary: 'A service drafted within the last day, but its draft counters are gone.',
      description: '%(where)s generates %(tokens)s tokens/s. It drafted within the last day and has no draft counters now.'
                   % facts,
      impact: 'Speculation was switched off, or its metrics have new names. In the second case no alert about it can fire.',
      action: 'If somebody switched speculation off on purpose, this alert ends within a day. If not, compare arguments and '
              + 'release with yesterday.',
    },
    {
      alert: 'SpecDecodeWarmingUp',
      severity: 'info',
      expr: '%s > 0.5' % signals.warming.record,
      summary: 'Most replicas of the service started a short while ago.',
      description: '%(share)s of the replicas of %(where)s started within %(warm_up)s.' % facts {
        share: alert.value(alert.percent),
        warm_up: promql.duration(config.warm_up_seconds),
      },
      impact: 'The first requests after a start are slow: caches are cold and kernels are compiled.',
      action: 'Do nothing: this alert only keeps latency alerts quiet. If it comes back again and again, look for restarts.',
    },
  ]
