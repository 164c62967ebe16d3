// How much of the drafts is accepted, by position as well, and the thresholds of that.
local promql = import '../promql.libsonnet';

function(config, source, signals, name)
  local policy = config.policy;
  local short = config.short_window_seconds;
  local long = config.long_window_seconds;
  local level = config.level_labels;
  local on = 'on (%s)' % promql.list(level);
  local number = promql.number;
  local ratio(above, below) = '%(above)s / (%(below)s > 0)' % { above: above, below: below };

  // Each service that drafts has it, also where a release counts no drafts.
  local drafted = signals.draft_tokens.record;

  // The levels that are assumed for a method, k and load: the exporter says them. Without the sidecar they come from the mean
  // draft length and the load, as in policy.py, and the method is that of a selector, or not known.
  local assumed(key) =
    local row(rows) =
      // Levels fall with k.
      local sum(side) = std.join(' + ', [number(rows[std.length(rows) - 1][side][key])] + [
        '%s * (%s < bool %s)' % [
          number(rows[i][side][key] - rows[i + 1][side][key]),
          '(%s or 0 * %s)' % [signals.drafted_length.record, drafted],
          number(rows[i].k_max + 0.5),
        ]
        for i in std.range(0, std.length(rows) - 2)
        if rows[i][side][key] != rows[i + 1][side][key]
      ]);
      local busy = 'clamp(ln(%s / %s) / %s, 0, 1)' % [
        promql.group(source.concurrency(long)),
        number(policy.assumed.light_requests),
        number(std.log(policy.assumed.heavy_requests / policy.assumed.light_requests)),
      ];
      // Where the load is not known, no service is low that may not be, and none is good.
      '%(light)s + ((%(heavy)s) - (%(light)s)) * (%(busy)s or %(on)s 0 * %(drafted)s + %(unknown)d)' % {
        unknown: if key == 'watch' then 1 else 0,
        light: sum('light'),
        heavy: sum('heavy'),
        on: on,
        busy: busy,
        drafted: drafted,
      };
    local of(method) =
      local rows = policy.assumed.rows;
      local own = [each for each in rows if 'methods' in each && std.member(each.methods, method)];
      local found = if own != [] then own else [each for each in rows if !('methods' in each)];
      local safe = if key == 'watch' && !std.member(policy.assumed.published, method) then policy.assumed.unpublished_watch else 0;
      'clamp_min(0 * %(drafted)s + %(levels)s, %(safe)s)' % { drafted: drafted, levels: row(found), safe: number(safe) };
    if config.source == 'exporter' then
      // Replicas differ by their load, and during a rollout by their method. All must be good for the service to be. An
      // exporter that says no levels gets the general ones.
      promql.firstOf([
        promql.by(
          if key == 'watch' then 'max' else 'avg',
          level,
          promql.range('avg_over_time', source.family('policy_acceptance_ratio_' + key), long)
        ),
        '0 * %s + %s' % [drafted, number(if key == 'watch' then policy.assumed.unpublished_watch else policy.acceptance_ratio_flag)],
      ], level)
    else
      promql.firstOf([
        '(%s)\nand\n%s' % [of(method), drafted + promql.braces([config.vllm_method_selectors[method]])]
        for method in std.objectFields(config.vllm_method_selectors)
      ] + [of('')], level);

  local partly = signals.partly_verified;
  local by_position = 'accepted_tokens_per_position';
  // 1 *: without its name, as the other positions. Else a panel shows position 0 twice, where one follows the other.
  local atFirst(rate) = promql.withLabel('1 * ' + rate, 'position', '0');

  {
    // Not recorded. Null where nothing can tell. With enable_adaptive_verification (for dspark since 0.28.0, for EAGLE, MTP,
    // DFlash and draft models since 0.30.0) vLLM trims drafts in busy batches, and counts all of each as drafted. So the rate,
    // the curve after position 0 and the draft length are not known. The acceptance length is.
    partly_verified: {
      help: 'vLLM verifies only part of each draft; it does not count which.',
      expr: signals.partlyVerified(long),
    },
    // Any replica counts: in a rollout, the rate would be of a mixture.
    partlyVerified(seconds)::
      local told =
        if config.source == 'exporter' then source.family('predictor_info', ['verification="adaptive"'])
        else signals.drafts.record + promql.braces([config.vllm_adaptive_verification_selector]);
      if config.source == 'vllm' && config.vllm_adaptive_verification_selector == '' then null
      else promql.by('group', level, promql.range('last_over_time', told, seconds)),
    whollyVerified(expression, seconds=long)::
      local services = signals.partlyVerified(seconds);
      if services == null then expression
      else '%(expression)s\nunless %(on)s\n%(services)s' % { expression: promql.strip(expression), on: on, services: services },

    // --- Acceptance: no drafts, no ratio -----------------------------------------------------------------------------
    acceptance: {
      record: name('acceptance', 'ratio_rate', long),
      unit: 'percentunit',
      help: 'Acceptance rate: accepted draft tokens / draft tokens. Absent with adaptive verification: ' + partly.help,
      expr: signals.whollyVerified(ratio(signals.accepted_tokens.record, signals.draft_tokens.record)),
    },
    acceptance_now: {
      record: name('acceptance', 'ratio_rate', short),
      unit: 'percentunit',
      help: 'Acceptance rate of the last minutes. Absent with adaptive verification: ' + partly.help,
      expr: signals.whollyVerified('%(accepted)s\n/\n(%(drafted)s > 0)' % {
        accepted: promql.group(source.counter('rate', 'accepted_tokens', short)),
        drafted: promql.group(source.counter('rate', 'draft_tokens', short)),
      }),
    },
    // Not recorded.
    acceptance_lately: {
      unit: 'percentunit',
      help: 'For half of the last %s, the acceptance rate of the last minutes was at most this: an incident of minutes that '
            % promql.duration(long) + 'moves the mean is none.',
      expr: promql.range('quantile_over_time', '0.5, ' + signals.acceptance_now.record, long),
    },
    // A share below its limit by more than chance explains: below Wilson's interval around the limit, as for the verdict. The
    // sample is effective drafts. The tokens of one draft are accepted or rejected together, and the drafts of one request are
    // alike.
    surelyBelow(share, limit):: '%(share)s < %(limit)s - %(z)s * sqrt(%(limit)s * (1 - %(limit)s) / %(drafts)s)' % {
      share: share,
      limit: limit,
      z: number(config.alert_z_score),
      drafts: signals.effective_drafts.record,
    },
    // Absent nearly always, so it costs no series.
    acceptance_fallen: {
      record: name('acceptance', 'below_baseline', long),
      unit: 'percentunit',
      help: 'Acceptance rate, where it is surely below the baseline of the service.',
      local baseline = 'min without (baseline_source, epoch) (%s)' % signals.acceptance_baseline.record,
      local far = '0.85 * ' + baseline,
      local near = '(%s - 0.05)' % baseline,
      // Where the target is quantised and the baseline's was not, the smaller limit alone is enough.
      expr: |||
        (
          %(below_far)s
          and
          %(acceptance)s < %(near)s
          or
          %(below_near)s
          and %(on)s
          (
            %(quantised)s
          )
        )
        and
        %(drafts)s >= %(min_drafts)d
      ||| % {
        below_far: signals.surelyBelow(signals.acceptance.record, far),
        acceptance: signals.acceptance.record,
        near: near,
        below_near: signals.surelyBelow(signals.acceptance.record, near),
        on: on,
        quantised: promql.indent(signals.newly_quantised.expr, 4),
        drafts: signals.sample.record,
        min_drafts: config.alert_min_drafts,
      },
    },
    acceptance_length: {
      record: name('acceptance_length', 'mean', long),
      unit: 'short',
      help: 'Mean acceptance length: 1 + accepted tokens / drafts, the bonus token included.',
      expr: '1 + ' + ratio(signals.accepted_tokens.record, signals.drafts.record),
    },
    drafted_length: {
      record: name('draft_length', 'mean', long),
      unit: 'short',
      help: 'Draft tokens / drafts, as counted.',
      expr: ratio(signals.draft_tokens.record, signals.drafts.record),
    },
    // Not recorded.
    draft_length: {
      unit: 'short',
      help: 'Mean draft length: draft tokens / drafts. Below k, some drafts are short and the end of the curve reads low. '
            + 'Absent with adaptive verification.',
      expr: signals.whollyVerified(signals.drafted_length.record),
    },
    // Not recorded: panels ask for one service.
    tokens_per_step: {
      unit: 'short',
      help: 'Tokens per step: (generated tokens - requests) / request-steps, including steps without a draft. It is the '
            + 'ceiling of the speed-up.',
      // Requests are counted by their first token: prefill makes it, whether the request finishes or not.
      expr: |||
        (
            %(tokens)s
          - %(requests)s
        )
        /
        (%(steps)s > 0)
        unless %(on)s
        %(v0)s
      ||| % {
        tokens: source.counter('increase', 'generation_tokens', long),
        requests: source.histogram('increase', 'ttft', 'count', long),
        steps: source.steps('increase', long),
        on: on,
        v0: source.v0,
      },
    },
    // Not recorded. For V0 engines without a log: they have no counters to take windows from.
    acceptance_lifetime: {
      unit: 'percentunit',
      help: 'Acceptance rate since the start. Only V0 engines (up to 0.9.2) have it: they count lifetimes. No alert uses it.',
      expr:
        if config.source == 'exporter' then
          '%(ratio)s and %(on)s %(v0)s' % {
            ratio: promql.by('avg', level, source.family('acceptance_ratio')),
            on: on,
            v0: source.v0,
          }
        else
          source.onV0('avg'),
    },

    // --- The curve, for any k ----------------------------------------------------------------------------------------
    first_acceptance: {
      record: name('first_position_acceptance', 'ratio_rate', long),
      unit: 'percentunit',
      help: 'Per-position rate of position 0: accepted first draft tokens / drafts. Low: draft and target do not fit. With adaptive '
            + 'verification it is the last that goes unverified: only a very busy batch verifies nothing of a draft.',
      // Not the record of the drafts: that is evaluated at another moment.
      expr: '%(accepted)s\n/\n(%(drafts)s > 0)' % {
        accepted: promql.group(source.counter('increase', by_position, long, matchers=['position="0"'])),
        drafts: promql.group(source.counter('increase', 'drafts', long)),
      },
    },
    // Not recorded: panels ask for one service.
    position_acceptance: {
      unit: 'percentunit',
      help: 'Per-position rate: accepted at the position / drafts. Positions start at 0. Only position 0 with adaptive '
            + 'verification: ' + partly.help,
      expr: signals.curve(long, first=signals.first_acceptance.record),
    },
    // The rates by position over so many seconds, up to a time ago; `first`: that of position 0 where there is no other.
    curve(seconds, ago=0, first)::
      signals.whollyVerified('%(accepted)s\n/ %(on)s group_left ()\n(%(drafts)s > 0)' % {
        accepted: promql.group(source.counter('increase', by_position, seconds, ['position'], ago)),
        on: on,
        drafts: promql.group(source.counter('increase', 'drafts', seconds, ago=ago)),
      }) + '\nor\n' + atFirst(first),
    // Absent nearly always, so it costs no series.
    acceptance_broken: {
      record: name('acceptance', 'broken', long),
      unit: 'percentunit',
      help: 'Acceptance rate, or that of position 0 with adaptive verification, where almost nothing is accepted.',
      // Of a long draft, a smaller share is enough.
      expr: '(%(acceptance)s < %(minimum)s unless %(length)s >= %(few)s or (%(first)s unless %(acceptance)s)) < %(broken)s' % {
        length: signals.acceptance_length.record,
        few: number(1 + policy.accepted_tokens_broken),
        acceptance: signals.acceptance.record,
        minimum: signals.acceptance_min.record,
        first: signals.first_acceptance.record,
        broken: number(policy.acceptance_ratio_broken),
      },
    },
    // Not recorded: panels ask for one service.
    conditional_acceptance: {
      unit: 'percentunit',
      help: 'Conditional rate: accepted at the position / accepted at the position before. Exact only without short drafts.',
      local accepted = source.counter('increase', by_position, long, ['position']),
      // Each position but the first is divided by its predecessor. PromQL cannot compute with labels. So a histogram gets one
      // observation per position, in the bucket le="<position>": its quantile is the position as a number. count_values
      // turns that number plus one into a label again. The name of this label must sort last: in range queries, Prometheus
      // 2.42 loses all labels that sort behind it.
      local position = |||
        histogram_quantile(
          1,
          label_replace(0 * %(accepted)s + 1, "le", "$1", "position", "(.+)")
          or
          label_replace(0 * %(accepted)s + 1, "le", "+Inf", "", "")
        )
      ||| % { accepted: promql.group(accepted) },
      expr: signals.whollyVerified(|||
        %(accepted)s
        / on (%(labels)s, position)
        (
          sum by (%(labels)s, position) (
            label_replace(
              %(accepted)s
              * on (%(labels)s, position) group_left (position_after)
              count_values by (%(labels)s, position) (
                "position_after",
                1 + %(next)s
              ),
              "position", "$1", "position_after", "(.+)"
            )
          ) > 0
        )
      ||| % {
        accepted: promql.group(accepted),
        labels: promql.list(level),
        next: promql.indent(position, 8),
      }) + '\nor\n' + atFirst(signals.first_acceptance.record),
    },
    // --- Thresholds --------------------------------------------------------------------------------------------------
    // Not recorded; only with source 'exporter'. min: replicas differ by their load.
    break_even: {
      unit: 'percentunit',
      help: 'Measured break-even: the acceptance rate at which drafts cost here what they save.',
      expr: source.measured('min', 'break_even_acceptance_ratio'),
    },
    // Not recorded; only with source 'exporter'.
    levels_known: {
      help: 'Services whose exporters say levels by method, k and load.',
      expr: promql.by('group', level, source.family('policy_acceptance_ratio_watch')),
    },
    acceptance_min: {
      record: name('acceptance_min', 'threshold'),
      unit: 'percentunit',
      help: 'Acceptance rate that breaks even: measured here, or where it is not, assumed for method, k and load.',
      expr: promql.firstOf((if config.source == 'exporter' then [signals.break_even.expr] else []) + [assumed('min')], level),
    },
    acceptance_length_min: {
      record: name('acceptance_length_min', 'threshold'),
      unit: 'short',
      help: 'Mean acceptance length that breaks even: measured, or 1 + mean draft length * minimum of the acceptance rate.',
      expr: promql.group(promql.firstOf(
        (if config.source == 'exporter' then [source.measured('min', 'break_even_acceptance_length')] else [])
        + [
          '1 + %(minimum)s * (%(length)s)' % {
            minimum: signals.acceptance_min.record,
            length: signals.draft_length.expr,
          },
        ] + (
          if config.source == 'exporter'
          then [signals.whollyVerified(promql.by('min', level, source.family('policy_mean_acceptance_length_min')))]
          else []
        ), level
      )),
    },
    // As counted: where only a part is verified, at least this share of it is accepted.
    acceptance_good: {
      record: name('acceptance', 'good', long),
      unit: 'percentunit',
      help: 'Accepted tokens / draft tokens, where published services with this method, k and load all gain.',
      expr: '%(counted)s >= (\n  %(watch)s\n)' % {
        counted: ratio(signals.accepted_tokens.record, signals.draft_tokens.record),
        watch: promql.indent(assumed('watch')),
      },
    },
  }
