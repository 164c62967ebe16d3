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

  local minimum = signals.acceptance_min.record;
  local broken = number(config.policy.acceptance_ratio_broken);
  local first = signals.first_acceptance.expr;
  local unknown_method = ' Its method is unknown, and some methods pay with less.';

  local low = {
    alert: 'SpecDecodeAcceptanceLow',
    for_seconds: minutes(5),
    keep_seconds: minutes(10),
    summary: 'Fewer draft tokens are accepted than usually pays off.',
    description: alert.ifAccepted(
      rate + ', below %(acceptance_min)s, the break-even that is %(basis)s.' % facts
      + (if config.source == 'exporter'
         then alert.ifThereIs('specdec_predictor_info', '', unknown_method, 'known')
         else if signals.method_known.expr == null then unknown_method
         else '')
      + '{{ if lt $value %(broken)s }} Below %(percent)s the draft model probably does not fit its target.{{ end }} ' % {
        broken: broken,
        percent: alert.percentOf(config.policy.acceptance_ratio_broken),
      }
      + details,
      signals.partly_verified.help
      + (' At position 0, acceptance is %(value)s over %(long)s on %(where)s: draft and target do not fit, or vLLM is too busy '
         + 'to verify anything of most drafts. Mean acceptance length is %(acceptance_length)s. ') % facts
      + std.join(' ', [sample, facts.speedup]),
    ),
    impact: 'Drafting and verifying may cost more time than the accepted tokens save. Only a measurement tells.',
    action: 'Find what changed when acceptance fell (draft model, target, quantisation, release, prompts), and undo it. If '
            + 'almost nothing is accepted, draft and target do not fit: vLLM does not check that. If nothing changed, measure: '
            + 'record a baseline without speculation (specdec-exporter baseline record), and compare (specdec-exporter '
            + 'compare). It tells whether drafts pay here.',
  };
  // Where break-even is measured, so is the speed-up. Then the alerts about that speak, and this estimate does not.
  local unless_measured =
    if config.source == 'exporter' then '\nunless %(on)s\n%(break_even)s' % { on: on, break_even: signals.break_even.expr }
    else '';

  [
    // Nobody is woken because n-gram lookup does what it always does. So where the method is unknown, its limit counts once the
    // service has kept it. No method is well with almost no token accepted.
    low {
      severity: 'critical',
      expr: |||
        %(surely_below)s
        and
        %(at_worst)s < clamp_min(%(factor)s * %(minimum)s, %(broken)s)
        and
        %(lately)s < %(minimum)s
        and
        %(enough)s
        and %(on)s
        (
          %(method)s%(best)s
          >= %(on)s %(minimum)s
          or %(on)s
          %(acceptance)s < %(broken)s
        )
        %(unless_it_pays)s%(unless_measured)s
      ||| % {
        surely_below: surelyBelow(acceptance, minimum),
        at_worst: signals.acceptance_at_worst.expr,
        lately: signals.acceptance_lately.expr,
        factor: number(config.acceptance_page_factor),
        minimum: minimum,
        broken: broken,
        enough: enough,
        on: on,
        method: if signals.method_known.expr == null then '' else signals.method_known.expr + '\n  or %s\n  ' % on,
        best: promql.indent(signals.acceptance_best.expr),
        acceptance: acceptance,
        unless_it_pays: unless_it_pays,
        unless_measured: unless_measured,
      },
    },
    // A draft model that does not fit is a fault, although a measurement calls the loss small.
    low {
      severity: 'warning',
      expr: |||
        %(surely_low)s
        and
        %(enough)s
        %(unless_it_pays)s
      ||| % {
        local rate_low = promql.strip(|||
          (
            %(surely_below)s%(unless_measured)s
            or
            %(surely_broken)s
          )
          and
          %(lately)s < %(minimum)s
        ||| % {
          surely_below: surelyBelow(acceptance, minimum),
          unless_measured: promql.indent(unless_measured),
          surely_broken: surelyBelow(acceptance, broken),
          lately: signals.acceptance_lately.expr,
          minimum: minimum,
        }),
        // Where vLLM verifies only part of each draft, the first position tells whether the draft model fits.
        surely_low:
          if first == null then rate_low
          else promql.group(rate_low + '\nor\n' + surelyBelow(promql.group(first), broken)),
        enough: enough,
        unless_it_pays: unless_it_pays,
      },
    },
    {
      alert: 'SpecDecodeAcceptanceDropped',
      severity: 'warning',
      for_seconds: minutes(30),
      keep_seconds: minutes(10),
      // Where the target is quantised and the baseline's was not, the smaller limit alone is enough.
      expr: |||
        (
          %(below_ratio)s
          and
          %(acceptance)s < %(baseline)s - %(drop)s
          or
          %(below_unquantised)s
          and %(on)s
          (
            %(quantised)s
          )
        )
        and
        %(enough)s
      ||| % {
        below_ratio: surelyBelow(acceptance, number(config.acceptance_drop_ratio) + ' * ' + self.baseline),
        acceptance: acceptance,
        baseline: 'min without (baseline_source, epoch) (%s)' % signals.acceptance_baseline.record,
        drop: number(config.acceptance_drop_min),
        below_unquantised: surelyBelow(acceptance, '(' + self.baseline + ' - ' + self.drop + ')'),
        on: on,
        quantised: promql.indent(signals.newly_quantised.expr, 4),
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
    {
      alert: 'SpecDecodeAcceptanceUneven',
      severity: 'warning',
      for_seconds: minutes(30),
      // Twice the hour after which a record comes.
      // A gain that is measured outweighs a break-even that is not.
      expr: signals.whollyVerified(|||
        last_over_time(%(uneven)s[%(reach)s])
        unless %(on)s
        (
          %(pays)s%(unless_measured)s
        )
      ||| % {
        uneven: signals.acceptance_uneven.record,
        reach: promql.duration(2 * config.history_interval_seconds),
        on: on,
        pays: promql.indent(promql.group(signals.speedup_pays.expr)),
        unless_measured: promql.indent(unless_measured),
      }, config.uneven_window_seconds),
      summary: 'Drafts are good on average, and a share of the traffic loses by them.',
      description: ('Over %(hours)s, %(share)s of the short windows of %(where)s accepted at most %(value)s of their draft tokens. '
                    + 'That is below break-even, %(acceptance_min)s (%(basis)s). '
                    + 'On the whole, acceptance is %(acceptance)s. %(speedup)s') % facts {
        hours: promql.duration(config.uneven_window_seconds),
        share: alert.percentOf(config.uneven_share),
      },
      impact: 'Requests of one kind wait longer than without speculation, although the service as a whole gains.',
      action: 'Find the kind: by adapter, temperature, structured output or tenant (specdec-exporter analyze --responses). '
              + 'Give it a service of its own with a smaller k or without speculation, or a draft model that fits.',
    },
  ]
