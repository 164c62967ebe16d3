// The verdict on a service, as the exporter gives it.
local promql = import '../promql.libsonnet';

function(config, source, signals, name)
  local level = config.level_labels;
  local on = 'on (%s)' % promql.list(level);
  local number = promql.number;

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
      local below(limit) = '(' + signals.acceptance.record + ' < ' + limit + ')',
      local broken_limit = number(config.policy.acceptance_ratio_broken),
      local first_broken =
        if signals.first_acceptance.expr == null then null
        else promql.group(promql.group(signals.first_acceptance.expr) + ' < ' + broken_limit),
      local either(condition) =
        if first_broken == null then condition
        else '(%(condition)s or %(on)s %(broken)s)' % { condition: condition, on: on, broken: first_broken },
      // By one look. Alerts judge by the same margins and look for minutes.
      local tpot(record) = record + '{sli="tpot"}',
      local beyond(record, margin, limit) =
        tpot(record) + ' > clamp_min(%(margin)s, %(limit)s)' % { margin: tpot(margin), limit: number(limit) },
      local slowerThan(ratio) = beyond(signals.latency_ratio.record, '1 + ' + signals.mean_margin.record, ratio),
      local longer_tail =
        beyond(signals.tail_shift.record, signals.tail_margin.expr, config.policy.latency.tail_shift_critical),
      local facts = {
        harms: tpot(signals.speedup_harms.record),
        // Where the load is not alike, a gain is worth a verdict only by enough requests.
        pays: '(%(pays)s{sli="tpot", speedup_source="like_load"} or %(pays)s{sli="tpot"} and %(on)s %(requests)s >= %(enough)d)' % {
          pays: signals.speedup_pays.record,
          on: on,
          requests: tpot(signals.requests.record),
          enough: config.min_requests,
        },
        pays_not: tpot(signals.speedup_pays_not.record),
        on: on,
        // The acceptance rate where all is verified. Where only a part is, at least this share of it is accepted.
        counted: '%(accepted)s / (%(drafted)s > 0)' % {
          accepted: signals.accepted_tokens.record,
          drafted: signals.draft_tokens.record,
        },
        drafts: signals.sample.record,
        tokens: signals.generation_tokens_now.record,
        enough: '%(drafts)s >= %(min_drafts)d' % { drafts: facts.drafts, min_drafts: config.policy.min_drafts },
        // A measurement counts its own sample. Acceptance needs drafts of enough requests.
        enough_requests: '%(effective)s >= %(min_effective)s and %(enough)s' % facts {
          effective: signals.effective_drafts.record,
          min_effective: number(config.policy.min_effective_drafts),
        },
        broken: either(below(broken_limit)),
        rejected: below(signals.acceptance_min.record),
        rejected_or_broken: either(facts.rejected),
        watch: promql.group(signals.acceptance_watch.expr),
        much_slower: promql.group(slowerThan(config.policy.latency.harmful_ratio)),
        slower: promql.group(slowerThan(config.policy.latency.slower_ratio) + '\nor\n' + longer_tail),
        measured: signals.speedup_measured,
        like_load: signals.speedup_at_like_load.expr,
        plain: signals.speedup.record + '{sli="tpot", speedup_source!="like_load"}',
      },
      local values = self.values,
      local verdict(code, condition) = '0 * (' + condition % facts + ') + ' + values[code],
      expr: promql.firstOf([
        verdict('harmful', '%(enough)s and %(on)s %(harms)s'),
        verdict(
          'harmful',
          '%(enough)s and %(on)s %(much_slower)s and %(on)s (%(rejected)s or %(on)s %(plain)s) unless %(on)s %(like_load)s'
        ),
        // Drafts are not why: a measurement shows that they pay, or nothing is measured and enough of them are accepted.
        verdict(
          'slower',
          '%(enough)s and %(on)s %(slower)s unless %(on)s ((%(rejected_or_broken)s or %(on)s %(measured)s) unless %(on)s %(pays)s)'
        ),
        verdict('healthy', '%(enough)s and %(on)s %(pays)s'),
        verdict('not_paying', '%(enough)s and %(on)s %(pays_not)s'),
        verdict('broken', '%(broken)s and %(enough_requests)s'),
        // A measurement at like load that does not tell yet is no good news, whatever is accepted.
        verdict('healthy', '%(counted)s >= %(watch)s and %(enough_requests)s unless %(on)s %(like_load)s'),
        verdict('watch', '%(counted)s and %(enough_requests)s'),
        verdict('watch', '%(drafts)s == 0 and %(tokens)s > 0'),
        verdict('idle', '%(drafts)s == 0'),
      ], level),
    },
  }
