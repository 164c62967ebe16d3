// Which signals are recorded, in which group and how often. Rules of a group run in order, so a rule stands below the rules
// that it reads. Values from other groups may be one interval old. In layers, the records of a service are the shards'.
function(config, signals)
  local rule(signal) = { record: signal.record, expr: signal.expr };
  // One rule for each value of a label: by_sli, by_bound and so on.
  local by(label, signal, field='by_' + label, values=std.objectFields(signal[field])) =
    [{ record: signal.record, labels: { [label]: value }, expr: signal[field][value] } for value in values];
  local bySli(signal, slis=std.objectFields(signal.by_sli)) = by('sli', signal, values=slis);
  local group(name, interval_seconds, rules) = {
    name: 'specdec-' + name,
    interval_seconds:: interval_seconds,
    rules: rules,
  };
  local now = config.evaluation_interval_seconds;
  // For latencies: a bad rollout is told within 25 minutes.
  local middle = 2 * now;
  // For records that people read, or that are read over many samples. Shorter than the look-back, so alerts evaluated every
  // minute find them. When an evaluation is lost, these alerts wait for the next one and begin their `for` again.
  local slow = config.slow_interval_seconds;

  // The global layer only adds up what the shards have recorded.
  if config.layer == 'global' then [
    group('fleet', now, [rule(signals[s]) for s in ['fleet_verdicts', 'fleet_replicas_up', 'fleet_alerts']]),
  ] else std.filter(function(group) group.rules != [], [
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
        'drafted_length',
        'acceptance_min',
        'acceptance_length_min',
        'warming',
        'replica_up',
        'never_up',
        'presence',
        'replica_resets',
        'replica_idle',
      ]
    ]),
    group('curve', slow, [rule(signals[s]) for s in ['first_acceptance', 'acceptance_broken', 'acceptance_good']]),
    group('replicas', slow, [rule(signals[s]) for s in ['replica_drafts', 'replica_acceptance', 'replica_shorter']]),
    group('latency', middle, bySli(signals.requests) + bySli(signals.latency_mean)),
    group('epoch', slow, [rule(signals.epoch), rule(signals.lasting)]),
    group(
      'history',
      config.history_interval_seconds,
      [rule(signals.acceptance_hour)]
      + bySli(signals.latency_mean_hour)
      + [rule(signals.wander)]
      + bySli(signals.latency_cdf_hour, config.history_tail_slis)
      + [rule(signals.mean_usual), rule(signals.cdf_usual)]
    ),
    group(
      'baselines',
      slow,
      [rule(signals[s]) for s in ['busier', 'control_lighter']]
      + bySli(signals.latency_baseline)
      + bySli(signals.cdf_control)
      + [rule(signals[s]) for s in ['acceptance_baseline', 'acceptance_fallen', 'acceptance_fell_from']]
    ),
    group(
      'regression',
      middle,
      [rule(signals.latency_ratio)]
      + bySli(signals.latency_ratio_now)
      + bySli(signals.sampling)
      + bySli(signals.wander_now)
      + [rule(signals[s]) for s in ['unsettled', 'slower']]
    ),
    group('load', slow, [rule(signals[s]) for s in ['running_lately', 'waiting_lately', 'kv_cache_lately', 'queue_grows', 'kv_cache_squeezed']]),
    group('tails', slow, bySli(signals.buckets_mixed) + bySli(signals.tail_shift) + bySli(signals.tail_longer) + [rule(signals.tail_lasting)]),
    // Each of these reads the one before it: a ruler that writes late is an interval late for each.
    group(
      'verdict',
      middle,
      by('speedup_source', signals.speedup, 'by_source')
      + by('bound', signals.speedup_bound)
      + [rule(signals[s]) for s in ['speedup_pays', 'speedup_proven', 'speedup_pays_not', 'speedup_harms', 'other_cause', 'verdict']]
    ),
  ])
