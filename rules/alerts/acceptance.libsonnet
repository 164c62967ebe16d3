// The service drafts, but the target accepts too few of the draft tokens.
local promql = import '../promql.libsonnet';

function(config, signals, alert)
  local number = promql.number;
  local minutes(n) = n * config.minute_seconds;
  local acceptance = signals.acceptance.record;
  local minimum = signals.acceptance_min.record;
  local broken = number(config.policy.acceptance_ratio_broken);
  // Where vLLM verifies only part of each draft: there it tells what the rate would.
  local first = promql.group(signals.first_acceptance.record + ' unless ' + acceptance);
  local surelyBelow = signals.surelyBelow;

  // A measurement beats an estimate: nobody hears of acceptance while speculation makes the service faster.
  local unless(expression) = '\nunless\n' + expression;
  local unless_it_pays = unless(signals.speedup_pays.record);
  // Where break-even is measured, so is the speed-up. Then the alerts about that speak, and this estimate does not.
  local unless_measured = if config.source == 'exporter' then unless(signals.break_even.expr) else '';
  // An exporter that says no watch level knows one break-even for all loads and lengths: a long draft is no ticket there.
  local unless_long = if config.source != 'exporter' then '' else unless(|||
    (
      %(length)s >= %(long)s
      unless on (%(level)s)
      %(levels)s
    )
  ||| % {
    length: signals.acceptance_length.record,
    long: number(1 + 3 * config.acceptance_flag),
    level: promql.list(config.level_labels),
    levels: signals.levels_known.expr,
  });
  local enough = signals.sample.record + ' >= %d' % config.alert_min_drafts;

  local facts = alert.facts { now: alert.number(signals.acceptance_now.record, alert.percent) };
  local rate = 'Acceptance is %(now)s over the last %(short)s and %(acceptance)s over %(long)s on %(where)s.' % facts;
  local fell = alert.ifThereIs(
    signals.acceptance_fallen.record,
    ' In %(source)s it was %(baseline)s.' % {
      source: alert.against(signals.acceptance_baseline.record, 'baseline_source', 'service'),
      baseline: alert.number(signals.acceptance_baseline.record, alert.percent),
    },
    ''
  );
  local sample = 'The sample is %(drafts)s drafts.' % facts;
  local low = {
    alert: 'SpecDecodeAcceptanceLow',
    for_seconds: minutes(5),
    keep_seconds: minutes(10),
    description: alert.ifAccepted(
      rate + fell + ' ' + std.join(' ', [facts.paying, facts.curve, sample, facts.speedup]),
      signals.partly_verified.help
      + (' At position 0, acceptance is %(first)s over %(long)s on %(where)s: draft and target do not fit, or vLLM is too busy '
         + 'to verify anything of most drafts. Mean acceptance length is %(acceptance_length)s. ') % facts {
        first: alert.number(signals.first_acceptance.record, alert.percent),
      }
      + std.join(' ', [sample, facts.speedup]),
    ),
    impact: 'Answers may be slower than without speculation, or than before. Only a measured speed-up tells.',
    action: 'If acceptance fell, find what changed (draft model, target, quantisation, release, prompts), and undo it. '
            + 'Otherwise measure whether drafts pay at this load: compare two results of vllm bench serve, or two recordings, '
            + 'with and without speculation (specdec-exporter compare).',
  };

  [
    // Nobody is woken by a guess at break-even. No method is well where for 20 minutes almost no token is accepted, and not even
    // half a token of each draft. Half an hour of drafts lies behind it: a new service is no news.
    low {
      severity: 'critical',
      summary: 'Almost no draft token is accepted.',
      action: 'If it began with a deployment, roll back. Otherwise check that draft and target belong together (model, '
              + 'tokenizer, quantisation, release): vLLM does not check that.',
      expr: |||
        %(nothing)s
        and
        %(enough)s
        and
        %(lately)s >= %(min_rate)s
        and
        %(drafted)s > 0%(unless_it_pays)s%(unless_measured)s
      ||| % {
        local at_most = promql.range('max_over_time', signals.acceptance_now.record, minutes(15)),
        local all_verified = |||
          %(at_most)s < %(broken)s
          and
          %(effective)s >= 100
          unless
          %(at_most)s * %(draft_tokens)s / (%(drafts)s > 0) >= %(few)s
        ||| % {
          at_most: at_most,
          broken: broken,
          effective: signals.effective_drafts.record,
          few: number(config.policy.accepted_tokens_broken),
          draft_tokens: signals.draft_tokens.record,
          drafts: signals.drafts.record,
        },
        // Where vLLM verifies only part of each draft, the first position tells whether the draft model fits.
        nothing: promql.group(all_verified + 'unless\n' + acceptance + ' >= ' + minimum + '\nor\n' + surelyBelow(first, broken)),
        enough: enough,
        // As many in these minutes as the long window needs.
        lately: promql.range('min_over_time', signals.drafts_now.record, minutes(15)),
        min_rate: number(config.alert_min_drafts / config.long_window_seconds),
        drafted: promql.range('max_over_time', signals.drafts_now.record, minutes(30), minutes(25)),
        unless_it_pays: unless_it_pays,
        unless_measured: unless_measured,
      },
    },
    // A draft model that does not fit is a fault, although a measurement calls the loss small. So is a fall that lasts, also where
    // drafts still pay.
    low {
      severity: 'warning',
      summary: 'Too few draft tokens are accepted for this load (assumed), or fewer than before.',
      expr: |||
        %(low)s
        and
        %(enough)s%(unless_it_pays)s
        or
        %(fallen)s > 0
        and
        last_over_time(%(fallen)s[%(past)s]%(ago)s)
      ||| % {
        local rate_low = promql.strip(|||
          (
            %(surely_below)s%(unless_long)s%(unless_measured)s
            or
            %(surely_broken)s
          )
          and
          %(lately)s < %(minimum)s
        ||| % {
          surely_below: surelyBelow(acceptance, minimum),
          unless_long: promql.indent(promql.strip(unless_long)),
          unless_measured: promql.indent(unless_measured),
          surely_broken: surelyBelow(acceptance, broken),
          lately: signals.acceptance_lately.expr,
          minimum: minimum,
        }),
        low: promql.group(rate_low + '\nor\n' + surelyBelow(first, broken)),
        enough: enough,
        unless_it_pays: unless_it_pays,
        fallen: signals.acceptance_fallen.record,
        past: promql.duration(minutes(11)),
        ago: promql.offset(minutes(20)),
      },
    },
    // The flag of the guides, whatever pays here: on boards and in Prometheus. Alertmanager's fragment sends it to nobody.
    low {
      severity: 'info',
      summary: 'Less than %s of the draft tokens are accepted, which may still pay off.' % alert.percentOf(config.acceptance_flag),
      expr: surelyBelow(acceptance, number(config.acceptance_flag)) + '\nand\n' + enough,
      impact: 'None is known: at light load, services with a lower rate are published that are twice as fast as without speculation.',
      action: 'Nothing. To know whether drafts pay here, measure (specdec-exporter compare).',
    },
  ]
