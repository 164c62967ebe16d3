// Does speculation help? Measured against a service without it where there is one, and by what gets in its way.
local promql = import '../promql.libsonnet';

function(config, signals, alert)
  local source = (import '../sources.libsonnet')(config);
  local number = promql.number;
  local minutes(n) = n * config.minute_seconds;
  local long = promql.duration(config.long_window_seconds);
  local on = 'on (%s)' % promql.list(config.level_labels);
  local on_sli = 'on (%s, sli)' % promql.list(config.level_labels);
  local drafting = '%s >= %d' % [signals.sample.record, config.alert_min_drafts];

  // Decoding speed: time per output token, or end-to-end latency of releases that do not have it (before 0.11.0).
  local perToken(expression) = |||
    %(expression)s{sli="tpot"}
    or
    %(expression)s{sli="e2e"} unless %(on)s %(expression)s{sli="tpot"}
  ||| % { expression: expression, on: on };
  local guards = |||
    %s >= %d
    and %s
    (%s)
    unless %s
    (%s)
  ||| % [signals.requests.record, config.min_requests, on, drafting, on, signals.unsettled.expr];

  local mean = 'mean %s, %s at baseline (%s)' % [
    alert.number(signals.latency_mean.record, alert.seconds, 'sli'),
    alert.number(signals.latency_baseline.record, alert.seconds, 'sli'),
    alert.label(signals.latency_baseline.record, 'baseline_source', 'sli'),
  ];
  local acceptance = 'acceptance %s (minimum %s), mean acceptance length %s, tokens per step %s' % [
    alert.number(signals.acceptance.record, alert.percent),
    alert.number(signals.acceptance_min.record, alert.percent),
    alert.number(signals.acceptance_length.record, alert.two),
    alert.number(signals.tokens_per_step.record, alert.two),
  ];
  local drafts = '%s drafts over %s' % [alert.number(signals.sample.record, alert.whole), long];

  [
    {
      alert: 'SpecDecodeHarmful',
      severity: 'critical',
      level: config.level_labels + ['sli'],
      for_seconds: minutes(15),
      keep_seconds: minutes(15),
      expr: |||
        (
          %(mean)s
        )
        / %(on_sli)s
        %(baseline)s
        > %(ratio)s
        and
        %(guards)s
        and %(on)s
        (%(acceptance)s < %(minimum)s)
      ||| % {
        mean: promql.indent(perToken(signals.latency_mean.record)),
        on: on,
        on_sli: on_sli,
        // Whatever its source.
        baseline: 'max without (baseline_source) (%s)' % signals.latency_baseline.record,
        ratio: number(config.harmful_ratio),
        guards: promql.strip(guards),
        acceptance: signals.acceptance.record,
        minimum: signals.acceptance_min.record,
      },
      summary: 'Speculative decoding makes the service slower.',
      description: 'Decoding on %s takes %s times as long as at baseline, with acceptance below break-even: %s; %s; %s.' % [
        alert.where,
        alert.value(alert.two),
        mean,
        acceptance,
        drafts,
      ],
      impact: 'Every user waits longer than without speculation, and the accelerator does wasted work.',
      action: 'Roll back to the last good --speculative-config, or remove it, now; investigate afterwards.',
    },
    {
      alert: 'SpecDecodeNotPayingOff',
      severity: 'warning',
      level: config.level_labels + ['sli'],
      for_seconds: minutes(60),
      keep_seconds: minutes(15),
      expr: |||
        (
          %s
        )
        < %s
        and
        %s
      ||| % [
        promql.indent(signals.speedup.expr),
        number(config.speedup_min),
        promql.strip(guards),
      ],
      summary: 'Speculative decoding gives no speed-up over the baseline without it.',
      description: 'The realised speed-up of %s is %s (at least %s is wanted): %s; %s; %s.' % [
        alert.where,
        alert.value(alert.two),
        number(config.speedup_min),
        mean,
        acceptance,
        drafts,
      ],
      impact: 'The draft model costs memory, start-up time and risk for nothing.',
      action: 'If tokens per step is near 1, drafts are rare or rejected: lower k, or switch speculation off for this '
              + 'traffic. If it is well above 1, steps became dearer: look at batch size and the cost of the draft model.',
    },
    {
      alert: 'SpecDecodeSlowerThanControl',
      severity: 'warning',
      level: config.level_labels + ['sli'],
      for_seconds: minutes(30),
      keep_seconds: minutes(15),
      expr: |||
        %(mean)s{sli="%(sli)s"}
        / %(on_sli)s
        max without (baseline_source) (%(baseline)s{baseline_source="control"})
        > clamp_min(
          1 + %(margin)s,
          %(ratio)s
        )
        and
        %(guards)s
      ||| % {
        sli: 'tpot',
        mean: signals.latency_mean.record,
        on_sli: on_sli,
        baseline: signals.latency_baseline.record,
        margin: promql.indent(signals.mean_margin.by_sli.tpot),
        ratio: number(config.control_ratio),
        guards: promql.strip(guards),
      },
      summary: 'The service is slower than its live control without speculation.',
      description: 'Mean time per output token on %s is %s times that of its control: %s; %s; %s.' % [
        alert.where,
        alert.value(alert.two),
        mean,
        acceptance,
        drafts,
      ],
      impact: 'Users of this service wait longer than those of the control, at the same load.',
      action: 'Check that both have the same hardware, release and traffic. If they do, switch speculation off or lower k.',
    },
    {
      alert: 'SpecDecodeSaturated',
      severity: 'warning',
      for_seconds: minutes(15),
      keep_seconds: minutes(10),
      expr: |||
        %(running)s > %(max_running)d
        and
        %(waiting)s > %(max_waiting)d
        and
        %(acceptance)s < %(watch)s
        and
        %(drafting)s
      ||| % {
        running: source.gauge('avg', 'requests_running'),
        max_running: config.saturated_requests_running,
        waiting: source.gauge('sum', 'requests_waiting'),
        max_waiting: config.saturated_requests_waiting,
        acceptance: signals.acceptance.record,
        watch: promql.group(signals.acceptance_watch.expr),
        drafting: drafting,
      },
      summary: 'Speculation runs in batches that are too big for its acceptance.',
      description: '%s runs %s requests per engine, and others wait; %s; %s.' % [
        alert.where,
        alert.value(alert.whole),
        acceptance,
        drafts,
      ],
      impact: 'In big batches verifying drafts competes with other requests, so throughput falls when it is needed most.',
      action: 'Add replicas, or switch speculation off above a batch size (num_speculative_tokens_per_batch_size since '
              + '0.24.0, disable_by_batch_size up to 0.16.0).',
    },
    {
      alert: 'SpecDecodeKVCacheSqueeze',
      severity: 'warning',
      for_seconds: minutes(15),
      keep_seconds: minutes(10),
      expr: |||
        %s > %s
        and
        %s > 0
        and
        %s
      ||| % [
        source.gauge('max', 'kv_cache_usage'),
        number(config.kv_cache_usage_max),
        source.counter('increase', 'preemptions', config.long_window_seconds),
        drafting,
      ],
      summary: 'The KV cache is full and requests are preempted while speculation runs.',
      description: 'KV cache of %s is %s full and requests were preempted within %s; %s; %s.' % [
        alert.where,
        alert.value(alert.percent),
        long,
        acceptance,
        drafts,
      ],
      impact: 'Preempted requests start again; their latency multiplies.',
      action: 'The draft model and its cache take memory from the target. Lower k or the number of sequences, use a '
              + 'smaller draft head, or add memory.',
    },
  ]
