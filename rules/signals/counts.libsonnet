// How much is drafted and generated: the counts, and the samples that guards need.
local promql = import '../promql.libsonnet';

function(config, source, signals, name)
  local policy = config.policy;
  local short = config.short_window_seconds;
  local long = config.long_window_seconds;
  local level = config.level_labels;
  local on = 'on (%s)' % promql.list(level);
  local number = promql.number;
  // Releases 0.8.3 and 0.8.4 count no drafts. There so many draft tokens count as one: more than the usual k, so the sample is
  // estimated too small rather than too large.
  local assumed_draft_tokens = 8;

  {
    drafts: {
      record: name('drafts', 'increase', long),
      unit: 'short',
      help: 'Drafts: speculations of one request in one engine step with at least one draft token.',
      expr: source.counter('increase', 'drafts', long),
    },
    // The size of the sample, for guards.
    sample: {
      record: name('drafts', 'at_least', long),
      unit: 'short',
      help: 'Drafts. Releases 0.8.3 and 0.8.4 do not count them; there it is their draft tokens / %d.'
            % assumed_draft_tokens,
      expr: promql.firstOf(
        [
          signals.drafts.record,
          // > 0: without speculation these releases serve the counters at 0.
          '%(draft_tokens)s / %(assumed)d > 0' % {
            draft_tokens: signals.draft_tokens.record,
            assumed: assumed_draft_tokens,
          },
        ],
        level
      ),
    },
    // Drafts of one request resemble each other, so they tell less than drafts of as many requests. Every latency counts the
    // requests; the first token counts unfinished ones as well. An answer longer than the window is a request, too.
    effective_drafts: {
      record: name('drafts', 'effective', long),
      unit: 'short',
      help: 'How many independent drafts tell as much: drafts / (1 + %s * (drafts per request - 1)). Requests that are not '
            % number(policy.draft_correlation)
            + 'counted are assumed to have %d drafts each.' % policy.assumed_drafts_per_request,
      expr: |||
        %(drafts)s
        /
        (
          1 + %(correlation)s * clamp_min(
            %(drafts)s
            / %(on)s
            (
              clamp_min(max without (sli) (%(requests)s), 1)
              or %(on)s
              clamp_min(%(drafts)s / %(assumed)d, 1)
            ) - 1,
            0
          )
        )
      ||| % {
        drafts: signals.sample.record,
        requests: signals.requests.record,
        correlation: number(policy.draft_correlation),
        assumed: policy.assumed_drafts_per_request,
        on: on,
      },
    },
    draft_tokens: {
      record: name('draft_tokens', 'increase', long),
      unit: 'short',
      help: 'Draft tokens proposed.',
      expr: source.counter('increase', 'draft_tokens', long),
    },
    accepted_tokens: {
      record: name('accepted_tokens', 'increase', long),
      unit: 'short',
      help: 'Draft tokens that the target accepted.',
      expr: source.counter('increase', 'accepted_tokens', long),
    },
    drafts_now: {
      record: name('drafts', 'rate', short),
      unit: 'suffix:/s',
      help: 'Drafts per second.',
      expr: source.counter('rate', 'drafts', short),
    },
    generation_tokens_now: {
      least:: 1,  // a service that generates less is idle, for alerts
      record: name('generation_tokens', 'rate', short),
      unit: 'suffix:/s',
      help: 'Tokens generated per second.',
      expr: source.counter('rate', 'generation_tokens', short),
    },
    alternating: {
      help: 'Drafting stopped, began and stopped again within a few hours, as where dynamic k is 0 in every peak.',
      expr: 'changes((%(drafts)s > bool 0)[%(window)s:%(step)s]) >= 3' % {
        drafts: signals.drafts_now.record,
        window: promql.duration((3 * 3600)),
        step: promql.duration(short),
      },
    },
  }
