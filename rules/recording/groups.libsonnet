// Which signals are recorded, in which group and how often. Rules of a group run in order, so a rule stands below the rules
// that it reads. Values from other groups may be one interval old.
function(config, signals)
  local rule(signal) = { record: signal.record, expr: signal.expr };
  local bySli(signal, slis=std.objectFields(signal.by_sli)) =
    [{ record: signal.record, labels: { sli: sli }, expr: signal.by_sli[sli] } for sli in slis];
  local byBound(signal) = [
    { record: signal.record, labels: { bound: bound }, expr: signal.by_bound[bound] }
    for bound in std.objectFields(signal.by_bound)
  ];
  local bySlo(signal) =
    [{ record: signal.record, labels: { slo: slo }, expr: signal.by_slo[slo] } for slo in std.objectFields(signal.by_slo)];
  local byQuantile(signal) = [
    { record: signal.record, labels: { sli: sli, quantile: quantile }, expr: signal.by_sli[sli][quantile] }
    for sli in std.objectFields(signal.by_sli)
    for quantile in std.objectFields(signal.by_sli[sli])
  ];

  local group(name, interval_seconds, rules) = {
    name: 'specdec-' + name,
    interval_seconds:: interval_seconds,
    rules: rules,
  };
  local now = config.evaluation_interval_seconds;
  // For records that people read, or that are read over many samples. Shorter than the look-back, so alerts evaluated every
  // minute find them. When an evaluation is lost, these alerts wait for the next one and begin their `for` again.
  local slow = config.slow_interval_seconds;

  [
    group('speculation', now, [
      rule(signals[s])
      for s in [
        'drafts',
        'draft_tokens',
        'sample',
        'effective_drafts',
        'accepted_tokens',
        'drafts_now',
        'generation_tokens_now',
        'acceptance',
        'acceptance_now',
        'acceptance_length',
        'tokens_per_step',
        'acceptance_lifetime',
        'acceptance_min',
        'acceptance_length_min',
        'warming',
        'replica_up',
      ]
    ]),
    group('curve', slow, [rule(signals[s]) for s in ['position_acceptance', 'conditional_acceptance']]),
    group('replicas', slow, [rule(signals[s]) for s in ['replica_drafts', 'replica_acceptance']]),
    group('latency', now, bySli(signals.requests) + bySli(signals.latency_mean)),
    group('quantiles', slow, byQuantile(signals.latency_quantile)),
    group(
      'history',
      config.history_interval_seconds,
      [rule(signals.acceptance_hour)]
      + bySli(signals.latency_mean_hour)
      + [rule(signals.wander)]
      + bySli(signals.latency_cdf_hour, config.history_tail_slis)
      + [rule(signals.mean_peak)]
      + bySli(signals.cdf_peak)
    ),
    group('mixture', config.history_interval_seconds, [rule(signals.acceptance_uneven)]),
    group(
      'baselines',
      slow,
      [rule(signals[s]) for s in ['latency_baseline', 'requests_baseline', 'acceptance_baseline', 'acceptance_fell_from']]
      + bySli(signals.p99_baseline)
    ),
    group('tails', slow, bySli(signals.buckets_mixed) + bySli(signals.tail_shift)),
    group('error-budgets', slow, bySlo(signals.slo_requests) + bySlo(signals.slo_slow_requests)),
    group('verdict', slow, [rule(signals.speedup)] + byBound(signals.speedup_bound) + [rule(signals.verdict)]),
  ]
