// Is there anything to watch, and does it draft?
local promql = import '../promql.libsonnet';

function(config, signals, alert)
  local source = (import '../sources.libsonnet')(config);
  local number = promql.number;
  local minutes(n) = n * config.minute_seconds;
  local long = promql.duration(config.long_window_seconds);
  local warm_up = promql.duration(config.warm_up_seconds);
  local on = 'on (%s)' % promql.list(config.level_labels);
  local up = source.up;
  local replicas(operator, comparison) =
    '%s by (%s) (%s) %s' % [operator, promql.list(up.labels), up.expr, comparison];
  local hasDrafted = 'last_over_time(%s[1d])' % signals.acceptance_hour.record;
  local generating = '%s >= %s' % [
    signals.generation_tokens_now.record,
    number(config.min_generation_tokens_per_second),
  ];

  [
    {
      alert: 'SpecDecodeTargetDown',
      severity: 'critical',
      level: up.labels,
      for_seconds: minutes(5),
      keep_seconds: minutes(5),
      expr: replicas('max', '== 0'),
      summary: 'No replica of the predictor answers.',
      description: 'None of the replicas of %s has answered a scrape for 5 minutes.' % alert.whereOf(up.labels),
      impact: 'Users probably get errors. Nothing is known about speculation.',
      action: 'Look at the pods: starting, crashed, or out of memory? A cold start takes minutes.',
    },
    {
      alert: 'SpecDecodeTargetDown',
      severity: 'warning',
      level: up.labels,
      for_seconds: minutes(15),
      keep_seconds: minutes(5),
      expr: replicas('min', '== 0'),
      summary: 'A replica of the predictor does not answer.',
      description: 'At least one replica of %s has not answered a scrape for 15 minutes.' % alert.whereOf(up.labels),
      impact: 'The other replicas carry its load. Figures of the service leave it out.',
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
      summary: 'A service that was scraped an hour ago is not scraped any more.',
      description: '%s had series an hour ago and has none now.' % alert.whereOf(up.labels),
      impact: 'Nothing is known about the service, and no other alert about it can fire.',
      action: 'If it was removed on purpose, this ends within the hour. If not, look at its pods, and at the scrape '
              + 'configuration: labels, ports, network policy.',
    },
    {
      alert: 'SpecDecodeNotDrafting',
      severity: 'warning',
      for_seconds: minutes(15),
      keep_seconds: minutes(5),
      expr: |||
        %s
        and
        %s == 0
        unless %s
        (%s > 0.5)
      ||| % [
        generating,
        signals.drafts_now.record,
        on,
        signals.warming.record,
      ],
      summary: 'Speculation is configured, but nothing is drafted.',
      description: '%s generates %s tokens/s without a single draft; it made %s drafts over %s.' % [
        alert.where,
        alert.value(alert.whole),
        alert.number(signals.drafts.record, alert.whole),
        long,
      ],
      impact: 'The service runs at the speed it has without speculation, and the draft model takes memory for nothing.',
      action: 'Look for sampling parameters that switch speculation off, a batch size limit (dynamic k may be 0 under load), '
              + 'or, with n-gram lookup, prompts that hold nothing to copy.',
    },
    {
      alert: 'SpecDecodeMetricsMissing',
      severity: 'info',
      for_seconds: minutes(30),
      expr: |||
        %s
        and
        %s
        unless
        %s
      ||| % [generating, hasDrafted, signals.draft_tokens.record],
      summary: 'A service that drafted within the last day shows no draft counters any more.',
      description: '%s generates %s tokens/s; it drafted within the last day, and now has no draft counters at all.' % [
        alert.where,
        alert.value(alert.whole),
      ],
      impact: 'Speculation was switched off, or its metrics changed their names: then no alert about it can fire.',
      action: 'If speculation was switched off on purpose, this ends within a day. If not, compare arguments and release '
              + 'with yesterday.',
    },
    {
      alert: 'SpecDecodeWarmingUp',
      severity: 'info',
      expr: '%s > 0.5' % signals.warming.record,
      summary: 'Most replicas of the service started a short while ago.',
      description: '%s of the replicas of %s started within %s.' % [alert.value(alert.percent), alert.where, warm_up],
      impact: 'The first requests after a start are slow: caches are cold and kernels are compiled.',
      action: 'None. It keeps latency alerts quiet for as long; if it comes back again and again, look for restarts.',
    },
  ]
