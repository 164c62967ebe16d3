// The verdict on a service, as the exporter gives it.
local promql = import '../promql.libsonnet';

function(config, source, signals, name)
  local level = config.level_labels;
  local on = 'on (%s)' % promql.list(level);
  local number = promql.number;
  local long = config.long_window_seconds;

  {
    // The exporter judges by the same policy in the same order: what is measured, and only without a measurement acceptance,
    // which never says that speculation does not pay.
    verdict: {
      record: name('verdict', 'enum'),
      unit: 'short',
      values: { idle: 0, healthy: 1, watch: 2, not_paying: 3, harmful: 4, broken: 5, slower: 6 },
      help: '0 idle, 1 healthy, 2 watch (may or may not pay, or nothing is drafted), 3 does not pay off (measured), '
            + '4 does harm (certainly slower than baseline), 5 broken (almost nothing is accepted), '
            + '6 slower (than baseline, but not because of drafts: better than 3 to 5). Absent without speculation, and while drafts are too few to tell.',
      local facts = {
        on: on,
        harms: signals.speedup_harms.record,
        pays: signals.speedup_proven.record,
        pays_not: signals.speedup_pays_not.record,
        other_cause: signals.other_cause.record,
        broken: signals.acceptance_broken.record,
        good: signals.acceptance_good.record,
        counted: signals.accepted_tokens.record + ' / (' + signals.draft_tokens.record + ' > 0)',
        // Against a baseline without speculation, whatever is accepted.
        plain: |||
          max without (sli, speedup_source) (
            1 / %(speedup)s{speedup_source!="like_load"} > %(limit)s
            and %(on)s
            %(high)s{bound="high"} < 1
          )
        ||| % {
          speedup: signals.speedup.record,
          limit: number(config.policy.latency.harmful_ratio),
          on: on,
          high: signals.speedup_bound.record,
        },
        at_like_load: signals.speedup_at_like_load.expr,
        drafts: signals.sample.record,
        min_drafts: config.policy.min_drafts,
        effective: signals.effective_drafts.record,
        min_effective: number(config.policy.min_effective_drafts),
        tokens: signals.generation_tokens_now.record,
      },
      local values = self.values,
      local verdict(code, condition) = (if values[code] == 0 then '' else '%d + ' % values[code]) + '0 * (' + promql.strip(condition % facts) + ')',
      local first(verdicts) = promql.group(std.join('\nor\n', verdicts)),
      // All conditions have the labels of the service alone, so `or` takes the first of them.
      expr: |||
        %(drafting)s and %(drafts)s >= %(min_drafts)d
        or
        %(nothing_drafted)s
        or
        %(idle)s
      ||| % facts {
        drafting: first([
          verdict('harmful', '%(harms)s'),
          verdict('harmful', '%(plain)s unless %(on)s %(at_like_load)s'),
          // Drafts are not why: a measurement shows that they pay, or nothing is measured and enough of them are accepted.
          verdict('slower', '%(other_cause)s'),
          verdict('healthy', '%(pays)s'),
          verdict('not_paying', '%(pays_not)s'),
          first([
            verdict('broken', '%(broken)s'),
            // A measurement at like load that does not tell yet is no good news, whatever is accepted.
            verdict('healthy', '%(good)s unless %(on)s %(at_like_load)s'),
            verdict('watch', '%(counted)s'),
            // Acceptance needs drafts of enough requests. A measurement counts its own sample.
          ]) + ' and %(effective)s >= %(min_effective)s' % facts,
        ]),
        nothing_drafted: verdict('watch', '%(drafts)s == 0 and %(tokens)s > 0'),
        idle: verdict('idle', '%(drafts)s == 0'),
      },
    },

    other_cause: {
      record: name('latency', 'other_cause', long),
      unit: 'percentunit',
      help: 'How much slower decoding is, or how much longer its tail, where drafts are not why: they are shown to pay, or nothing '
            + 'is measured and enough are accepted.',
      expr: |||
        max without (sli) (
          %(slower)s
          or
          %(longer_tail)s
        )
        unless %(on)s
        (
          (
            %(acceptance)s < %(minimum)s
            or
            %(broken)s
            or %(on)s
            (%(speedup)s{sli="tpot"} or %(at_like_load)s)
          )
          unless %(on)s
          %(pays)s
        )
      ||| % {
        on: on,
        slower: signals.latency_ratio.record + '{sli="tpot"} > ' + signals.mean_limit.by_sli.tpot,
        longer_tail: promql.indent(signals.tail_shift.beyond('tpot', config.policy.latency.tail_shift_critical)),
        acceptance: signals.acceptance.record,
        minimum: signals.acceptance_min.record,
        broken: signals.acceptance_broken.record,
        speedup: signals.speedup.record,
        at_like_load: signals.speedup_at_like_load.expr,
        pays: signals.speedup_proven.record,
      },
    },
  }
