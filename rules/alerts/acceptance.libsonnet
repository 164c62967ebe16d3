// Drafts are made, but too few of their tokens are accepted.
local promql = import '../promql.libsonnet';

function(config, signals, alert)
  local number = promql.number;
  local minutes(n) = n * config.minute_seconds;
  local acceptance = signals.acceptance.record;
  local drafts = signals.sample.record;
  local long = promql.duration(config.long_window_seconds);

  // A share that lies below its limit by more than chance. Drafts are the sample: the tokens of one stand or fall together.
  local surelyBelow(share, limit) =
    '%(share)s < %(limit)s - %(z)s * sqrt(%(share)s * (1 - %(share)s) / %(drafts)s)' % {
      share: share,
      limit: limit,
      z: number(config.alert_z_score),
      drafts: drafts,
    };
  local enough = '%s >= %d' % [drafts, config.alert_min_drafts];

  local rate = 'Acceptance is %s over %s' % [alert.value(alert.percent), long];
  local minimum = alert.number(signals.acceptance_min.record, alert.percent);
  local length = 'mean acceptance length %s (break-even %s)' % [
    alert.number(signals.acceptance_length.record, alert.two),
    alert.number(signals.acceptance_length_min.record, alert.two),
  ];
  local curve = alert.ifThereIs(
    signals.position_acceptance.record,
    'the curve runs from %s at the first position to %s at the last of %s' % [
      alert.aggregated('max', signals.position_acceptance.record, alert.percent),
      alert.aggregated('min', signals.position_acceptance.record, alert.percent),
      alert.aggregated('count', signals.position_acceptance.record, alert.whole),
    ],
    'its curve is unknown',
  );
  local sample = '%s drafts' % alert.number(drafts, alert.whole);

  local low = {
    alert: 'SpecDecodeAcceptanceLow',
    for_seconds: minutes(5),
    keep_seconds: minutes(10),
    summary: 'Draft tokens are accepted too rarely for speculative decoding to pay off.',
    description: rate + ' on %s; the minimum for its method is %s. %s, and %s (%s).' % [
      alert.where,
      minimum,
      'M' + length[1:],
      curve,
      sample,
    ],
    impact: 'Drafting and verifying cost more than the accepted tokens save: answers come slower, and the accelerator '
            + 'serves fewer of them, than without speculation.',
    action: 'Lower num_speculative_tokens to what the curve supports, or switch speculation off. If acceptance fell '
            + 'suddenly, undo the last change of draft model, target, quantisation or release first.',
  };

  [
    low {
      severity: 'critical',
      expr: |||
        %s
        and
        %s < %s * %s
        and
        %s
      ||| % [
        surelyBelow(acceptance, signals.acceptance_min.record),
        signals.acceptance_now.record,
        number(config.acceptance_page_factor),
        signals.acceptance_min.record,
        enough,
      ],
    },
    low {
      severity: 'warning',
      expr: |||
        %s
        and
        %s < %s
        and
        %s
      ||| % [
        surelyBelow(acceptance, signals.acceptance_min.record),
        signals.acceptance_now.record,
        signals.acceptance_min.record,
        enough,
      ],
    },
    {
      alert: 'SpecDecodeAcceptanceCollapsed',
      severity: 'critical',
      for_seconds: minutes(10),
      keep_seconds: minutes(10),
      expr: |||
        %s
        and
        %s < %s
        and
        %s
      ||| % [
        surelyBelow(acceptance, number(config.policy.acceptance_ratio_broken)),
        signals.acceptance_now.record,
        number(config.policy.acceptance_ratio_broken),
        enough,
      ],
      summary: 'Almost no draft token is accepted.',
      description: rate + ' on %s (below %s nothing fits any more); %s; %s (%s).' % [
        alert.where,
        alert.percentOf(config.policy.acceptance_ratio_broken),
        length,
        curve,
        sample,
      ],
      impact: 'Every draft is wasted work. Answers are right, but slower than without speculation.',
      action: 'Switch speculation off now. Then look for a draft model, tokenizer or quantisation that does not belong to '
              + 'the target; vLLM does not notice.',
    },
    {
      alert: 'SpecDecodeAcceptanceDropped',
      severity: 'warning',
      for_seconds: minutes(30),
      keep_seconds: minutes(10),
      expr: |||
        %(below_ratio)s
        and
        %(acceptance)s < %(baseline)s - %(drop)s
        and
        %(enough)s
      ||| % {
        local baseline = 'max without (baseline_source) (%s)' % signals.acceptance_baseline.record,
        below_ratio: surelyBelow(acceptance, '%s * %s' % [number(config.acceptance_drop_ratio), baseline]),
        acceptance: acceptance,
        baseline: baseline,
        drop: number(config.acceptance_drop_min),
        enough: enough,
      },
      summary: 'Acceptance fell well below the baseline of the service.',
      description: rate + ' on %s; its baseline (%s) is %s. %s, and %s (%s).' % [
        alert.where,
        alert.label(signals.acceptance_baseline.record, 'baseline_source', 'service'),
        alert.number(signals.acceptance_baseline.record, alert.percent),
        'M' + length[1:],
        curve,
        sample,
      ],
      impact: 'Speculation still works, but gives less than it used to; latency follows.',
      action: 'Compare with the time of the drop: a deployment, a quantised target, other prompts or sampling parameters, '
              + 'or a slow decay since the last restart. If it decays with uptime, save the metrics and restart one replica.',
    },
    {
      alert: 'SpecDecodeHeadRejected',
      severity: 'warning',
      for_seconds: minutes(15),
      keep_seconds: minutes(10),
      expr: |||
        %s
        and
        %s
      ||| % [
        surelyBelow('(%s)' % signals.head_acceptance.expr, number(config.head_acceptance_min)),
        enough,
      ],
      summary: 'Most drafts are rejected at their first token.',
      description: 'Only %s of the drafts of %s keep their first token (expected at least %s); %s; %s (%s).' % [
        alert.value(alert.percent),
        alert.where,
        alert.percentOf(config.head_acceptance_min),
        length,
        curve,
        sample,
      ],
      impact: 'A draft that fails at its first token saves nothing, however long it is.',
      action: 'Lowering num_speculative_tokens will not help. Check that the draft head was trained for this target, this '
              + 'chat template and this quantisation.',
    },
    {
      alert: 'SpecDecodeTailCollapsed',
      severity: 'info',
      for_seconds: minutes(60),
      expr: |||
        %(tail)s
        and
        (%(positions)s > 1)
        and
        (%(head)s >= %(head_min)s)
        and
        (%(draft_length)s >= %(full)s * (%(positions)s))
        and
        %(enough)s
      ||| % {
        tail: surelyBelow('(%s)' % signals.tail_acceptance.expr, number(config.tail_acceptance_min)),
        positions: signals.positions.expr,
        head: signals.head_acceptance.expr,
        head_min: number(config.head_acceptance_min),
        draft_length: signals.draft_length.expr,
        // Where drafts are short, the tail reads low although nothing was rejected there.
        full: number(1 - config.policy.short_draft_tolerance),
        enough: enough,
      },
      summary: 'The last draft positions are almost never accepted.',
      description: 'Only %s of the drafts of %s are accepted to the last position; %s; %s (%s).' % [
        alert.value(alert.percent),
        alert.where,
        curve,
        length,
        sample,
      ],
      impact: 'The last positions cost as much as the first and give nothing.',
      action: 'Lower num_speculative_tokens to the last position that is accepted in a good part of the drafts.',
    },
    {
      alert: 'SpecDecodeReplicaOutlier',
      severity: 'warning',
      level: config.level_labels + config.replica_labels,
      for_seconds: minutes(30),
      keep_seconds: minutes(10),
      expr: |||
        %(replica)s
        < on (%(labels)s) group_left ()
        (
          quantile by (%(labels)s) (0.5, %(replica)s and %(drafts)s >= %(min_drafts)d) - %(gap)s
          and
          count by (%(labels)s) (%(drafts)s >= %(min_drafts)d) >= %(replicas)d
        )
        and
        %(drafts)s >= %(min_drafts)d
      ||| % {
        labels: promql.list(config.level_labels),
        replica: signals.replica_acceptance.record,
        drafts: signals.replica_drafts.record,
        min_drafts: config.min_replica_drafts,
        gap: number(config.replica_acceptance_gap),
        replicas: config.min_replicas,
      },
      summary: 'One replica accepts far fewer draft tokens than its siblings.',
      description: 'Acceptance is %s on replica {{ with $labels.pod }}{{ . }}{{ else }}{{ $labels.instance }}{{ end }} '
                   % alert.value(alert.percent)
                   + '(engine {{ $labels.engine }}) of %s, and %s on the service as a whole.' % [
                     alert.where,
                     alert.number(acceptance, alert.percent),
                   ],
      impact: 'Requests on this replica are slower than the same requests elsewhere.',
      action: 'Compare its arguments, image and model files with a sibling; a wrong draft head on one pod looks like this. '
              + 'Save its metrics, then restart it.',
    },
    {
      alert: 'SpecDecodeAcceptanceSuspicious',
      severity: 'info',
      for_seconds: minutes(60),
      expr: |||
        %s > %s
        and
        (%s >= %d)
        and
        %s
      ||| % [
        acceptance,
        number(config.suspicious_acceptance),
        signals.positions.expr,
        config.suspicious_positions,
        enough,
      ],
      summary: 'Nearly every draft token is accepted, which usually means repetitive text.',
      description: rate + ' on %s; %s; %s (%s).' % [alert.where, length, curve, sample],
      impact: 'None by itself. Models that repeat themselves are easy to draft for, so their answers may be worthless.',
      action: 'Read some answers. If they loop, look at sampling parameters, chat template and stop tokens; load tests '
              + 'with one prompt look the same and are harmless.',
    },
  ]
