// The service drafts, but the target accepts too few of the draft tokens.
local promql = import '../promql.libsonnet';

function(config, signals, alert)
  local number = promql.number;
  local minutes(n) = n * config.minute_seconds;
  local on = 'on (%s)' % promql.list(config.level_labels);
  local acceptance = signals.acceptance.record;
  local drafts = signals.sample.record;

  // A share below its limit by more than chance explains: below Wilson's interval around the limit, as for the verdict. The
  // sample is effective drafts. The tokens of one draft are accepted or rejected together, and the drafts of one request are
  // alike.
  local surelyBelow(share, limit) =
    '%(share)s < %(limit)s - %(z)s * sqrt(%(limit)s * (1 - %(limit)s) / %(drafts)s)' % {
      share: share,
      limit: limit,
      z: number(config.alert_z_score),
      drafts: signals.effective_drafts.record,
    };
  // A measurement beats an estimate: nobody hears of acceptance while speculation makes the service faster.
  local unless_it_pays = promql.strip(|||
    unless %(on)s
    %(pays)s
  ||| % { on: on, pays: promql.group(signals.speedup_pays.expr) });
  local enough = '%(drafts)s >= %(min_drafts)d' % { drafts: drafts, min_drafts: config.alert_min_drafts };

  local facts = alert.facts { value: alert.value(alert.percent) };
  local rate = 'Acceptance is %(value)s over %(long)s on %(where)s' % facts;
  local length = 'Mean acceptance length is %(acceptance_length)s; break-even is %(acceptance_length_min)s (%(basis)s).' % facts;
  local sample = 'The sample is %(drafts)s drafts, worth %(effective)s independent ones.' % facts;
  local details = std.join(' ', [length, facts.curve, sample, facts.speedup]);

  local low = {
    alert: 'SpecDecodeAcceptanceLow',
    for_seconds: minutes(5),
    keep_seconds: minutes(10),
    summary: 'Fewer draft tokens are accepted than usually pays off.',
    description: rate + ', below %s, the break-even that is assumed for its method. ' % facts.acceptance_min + details,
    impact: 'Drafting and verifying may cost more time than the accepted tokens save. Only a measurement tells.',
    action: 'Find what changed when acceptance fell (draft model, target, quantisation, release, prompts), and undo it. If '
            + 'nothing changed, measure: record a baseline without speculation (specdec-exporter baseline record), then run '
            + 'specdec-exporter tune. It tells whether drafts pay here, and which number of them.',
  };
  local low_facts = {
    surely_below: surelyBelow(acceptance, self.minimum),
    now: signals.acceptance_now.record,
    minimum: signals.acceptance_min.record,
    enough: enough,
    // Where break-even is measured, so is the speed-up. Then the alerts about that speak, and this estimate does not.
    unless_measured: unless_it_pays + (
      if config.source == 'exporter'
      then '\nunless %(on)s\n%(break_even)s' % { on: on, break_even: signals.break_even.expr }
      else ''
    ),
  };

  [
    low {
      severity: 'critical',
      expr: |||
        %(surely_below)s
        and
        %(now)s < %(factor)s * %(minimum)s
        and
        %(enough)s
        %(unless_measured)s
      ||| % low_facts {
        factor: number(config.acceptance_page_factor),
      },
    },
    low {
      severity: 'warning',
      expr: |||
        %(surely_below)s
        and
        %(now)s < %(minimum)s
        and
        %(enough)s
        %(unless_measured)s
      ||| % low_facts,
    },
    {
      alert: 'SpecDecodeAcceptanceCollapsed',
      severity: 'critical',
      for_seconds: minutes(10),
      keep_seconds: minutes(10),
      expr: |||
        %(surely_below)s
        and
        %(now)s < %(broken)s
        and
        %(enough)s
        %(unless_it_pays)s
      ||| % {
        surely_below: surelyBelow(acceptance, self.broken),
        now: signals.acceptance_now.record,
        broken: number(config.policy.acceptance_ratio_broken),
        enough: enough,
        unless_it_pays: unless_it_pays,
      },
      summary: 'Almost no draft token is accepted.',
      description: rate + '. Below %s the draft model probably does not fit its target. '
                          % alert.percentOf(config.policy.acceptance_ratio_broken) + details,
      impact: 'Nearly every draft is wasted work. How much time that costs depends on the load.',
      action: 'Look for a draft model, tokenizer or quantisation that does not match the target. vLLM does not check this. If '
              + 'latency rose as well, roll back the last change.',
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
        below_ratio: surelyBelow(acceptance, number(config.acceptance_drop_ratio) + ' * ' + self.baseline),
        acceptance: acceptance,
        baseline: 'max without (baseline_source) (%s)' % signals.acceptance_baseline.record,
        drop: number(config.acceptance_drop_min),
        enough: enough,
      },
      summary: 'Acceptance fell well below the baseline of the service.',
      description: rate + '; its baseline (%(source)s) is %(baseline)s. ' % {
        source: alert.label(signals.acceptance_baseline.record, 'baseline_source', 'service'),
        baseline: alert.number(signals.acceptance_baseline.record, alert.percent),
      } + details,
      impact: 'Speculation saves less time than before, so answers may come more slowly. It may still pay.',
      action: 'Find what changed when acceptance fell: a deployment, a quantised target, the prompts or the sampling '
              + 'parameters. If acceptance decays slowly after each restart, save the metrics and restart one replica.',
    },
    {
      alert: 'SpecDecodeHeadRejected',
      severity: 'warning',
      for_seconds: minutes(15),
      keep_seconds: minutes(10),
      expr: |||
        %(surely_below)s
        and
        %(enough)s
        %(unless_it_pays)s
      ||| % {
        surely_below: surelyBelow('(%s)' % signals.head_acceptance.expr, number(config.head_acceptance_min)),
        enough: enough,
        unless_it_pays: unless_it_pays,
      },
      summary: 'Most drafts are rejected at their first token.',
      description: 'Only %(value)s of the drafts of %(where)s keep their first token; at least %(expected)s is expected. '
                   % facts { expected: alert.percentOf(config.head_acceptance_min) } + details,
      impact: 'A draft whose first token is rejected saves nothing, however long it is.',
      action: 'Check that the draft head was trained for this target, this chat template and this quantisation. Another '
              + 'num_speculative_tokens does not help the first token.',
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
        // Short drafts never reach the last positions, so their tail is low although nothing was rejected there.
        full: number(1 - config.policy.short_draft_tolerance),
        enough: enough,
      },
      summary: 'The last draft position is almost never accepted.',
      description: 'Only %(value)s of the drafts of %(where)s are accepted to the last position. ' % facts + details,
      impact: 'The last positions give almost nothing. What they cost is not known before another k is measured.',
      action: 'Record the service with another num_speculative_tokens, one that most drafts reach, and compare the recordings '
              + 'with specdec-exporter tune.',
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
          quantile by (%(labels)s) (0.5, %(replica)s and %(enough)s) - %(gap)s
          and
          count by (%(labels)s) (%(enough)s) >= %(replicas)d
        )
        and
        %(enough)s
      ||| % {
        labels: promql.list(config.level_labels),
        replica: signals.replica_acceptance.record,
        enough: '(%(drafts)s >= %(min_drafts)d)' % {
          drafts: signals.replica_effective_drafts.expr,
          min_drafts: config.min_replica_effective_drafts,
        },
        gap: number(config.replica_acceptance_gap),
        replicas: config.min_replicas,
      },
      summary: 'One replica accepts far fewer draft tokens than the others.',
      description: ('Acceptance is %(value)s on replica {{ with $labels.pod }}{{ . }}{{ else }}{{ $labels.instance }}{{ end }} '
                    + '(engine {{ $labels.engine }}) of %(where)s, and %(acceptance)s on the whole service.') % facts,
      impact: 'Requests to this replica are slower than the same requests to the others.',
      action: 'Compare its arguments, image and model files with those of another replica. A wrong draft head on one pod '
              + 'looks like this. Save its metrics, then restart it.',
    },
    {
      alert: 'SpecDecodeAcceptanceSuspicious',
      severity: 'info',
      for_seconds: minutes(60),
      expr: |||
        %(acceptance)s > %(suspicious)s
        and
        (%(positions)s >= %(suspicious_positions)d)
        and
        %(enough)s
      ||| % {
        acceptance: acceptance,
        suspicious: number(config.suspicious_acceptance),
        positions: signals.positions.expr,
        suspicious_positions: config.suspicious_positions,
        enough: enough,
      },
      summary: 'Nearly every draft token is accepted, which usually means repetitive text.',
      description: rate + '. ' + details,
      impact: 'High acceptance does no harm. But text that repeats itself is easy to draft, so the answers may be worthless.',
      action: 'Read some answers. If they repeat themselves, check sampling parameters, chat template and stop tokens. A '
              + 'load test with a single prompt looks the same and is harmless.',
    },
  ]
