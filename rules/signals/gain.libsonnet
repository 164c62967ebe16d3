// Does speculation pay? Measured, never guessed.
local promql = import '../promql.libsonnet';

function(config, source, signals, name)
  local long = config.long_window_seconds;
  local level = config.level_labels;
  local on = 'on (%s)' % promql.list(level);
  local on_sli = 'on (%s, sli)' % promql.list(level);
  local number = promql.number;

  // The measured speed-up and what chance leaves of it.
  local gain(matchers='') = signals.speedup.record + promql.braces([matchers]);
  local bound(which) = signals.speedup_bound.record + '{bound="%s"}' % which;
  local like_load = 'speedup_source="like_load"';
  local not_like_load = 'speedup_source!="like_load"';
  // A baseline has step times: then these alone tell the speed-up, or nothing does.
  local by_steps =
    if config.source == 'exporter' then promql.by('group', level, source.family('speedup_known')) else null;
  local orBySteps(gains) = if by_steps == null then gains else promql.group(gains + ' or ' + by_steps);
  local unlessBySteps = if by_steps == null then '' else '\nunless ' + on + '\n' + by_steps;

  // Speed-ups that their bounds decide. Without a like load, min_requests are enough, too, as they are for the exporter's
  // verdict: no alert contradicts it.
  local decided(certain, comparison, uncertain) = |||
    %(certain)s %(comparison)s unless %(on)s %(uncertain)s
    or
    %(counted)s %(comparison)s and %(on_sli)s %(requests)s >= %(min_requests)d
  ||| % {
    certain: certain,
    comparison: comparison,
    on: on,
    uncertain: uncertain,
    counted: gain(not_like_load),
    on_sli: on_sli,
    requests: signals.requests.record,
    min_requests: config.min_requests,
  };
  local limit = number(config.policy.latency.speedup_min);

  {
    // From the first of these that there is, by speedup_source:
    //   like_load: the exporter compares decoding steps with those of its baseline without speculation, at like load. Only
    //     with source 'exporter'.
    //   control: time per output token of the live control / of the service. They share load and time.
    //   pinned: the same against a baseline file without speculation, unless more load explains why the service is slower.
    // Releases before 0.11.0 have no time per output token. There control and pinned compare end-to-end latency (sli="e2e").
    speedup: {
      record: name('speedup', 'ratio', long),
      unit: 'percentunit',
      help: 'Measured speed-up: decoding speed with speculation / without it. By speedup_source: like_load (by the exporter, '
            + 'at like load), control (against the live control), pinned (against a baseline file).',
      local from(origin, expression) = 'label_replace(\n  %(expression)s,\n  "speedup_source", "%(origin)s", "", ""\n)' % {
        expression: promql.indent(expression),
        origin: origin,
      },
      local against(origin, sli) =
        |||
          max without (baseline_source, epoch) (%(baseline)s{baseline_source="%(origin)s", sli="%(sli)s"})
          / (%(mean)s{sli="%(sli)s"} > 0)
        ||| % {
          baseline: name('latency_seconds', 'mean_baseline'),
          origin: origin,
          sli: sli,
          mean: signals.latency_mean.record,
        },
      // A pinned baseline with an acceptance rate was recorded with speculation. One with adaptive verification has a length only.
      local drafted = source.family('baseline_acceptance_ratio') + '\nor ' + source.family('baseline_mean_acceptance_length'),
      local plain = 'unless %(on)s\n%(with)s' % { on: on, with: promql.by('group', level, drafted) } + unlessBySteps,
      // At any load: more load makes no service faster.
      local faster_than_file(sli) = '%(file)s{sli="%(sli)s"} / %(mean)s >= %(limit)s\n' % {
        file: signals.pinned_mean.record,
        sli: sli,
        mean: signals.latency_mean.record,
        limit: limit,
      },
      local of(sli) = [
        from('control', against('control', sli)),
        from('pinned', against('pinned', sli) + plain),
        from('pinned', faster_than_file(sli) + plain),
      ],
      local by_exporter = from('like_load', promql.withLabel(source.measured('avg', 'speedup_ratio'), 'sli', 'tpot')),
      expr: promql.firstOf((if config.source == 'exporter' then [by_exporter] else []) + of('tpot') + of('e2e'), level),
    },

    // A speed-up without bounds counts as certain.
    speedup_bound: {
      record: name('speedup', 'bound', long),
      unit: 'percentunit',
      help: 'How far chance alone may move the measured speed-up, by bound: low and high. At like load it is the interval of '
            + 'the exporter. Otherwise it is the speed-up divided and multiplied by 1 + the margin of the mean.',
      local by_requests(operator) =
        'max without (sli, speedup_source) (\n  %(speedup)s\n  %(operator)s %(on_sli)s group_left ()\n  (1 + %(margin)s)\n)' % {
          speedup: gain(not_like_load),
          operator: operator,
          on_sli: on_sli,
          margin: signals.mean_margin.record,
        },
      local of(bound, operator) = promql.firstOf(
        (if config.source == 'exporter'
         then [source.measured('avg', 'speedup_bound_ratio', ['bound="%s"' % bound])]
         else [])
        + [by_requests(operator)],
        level
      ),
      by_bound: { low: of('low', '/'), high: of('high', '*') },
    },

    // Conditions, each recorded once. They are absent nearly always.
    speedup_pays: {
      record: name('speedup', 'gain'),
      unit: 'percentunit',
      help: 'The measured speed-up, where it is worth its cost. Then no estimate by acceptance may alert.',
      // Against any baseline, few requests are enough for a gain that is larger than chance explains.
      expr: decided(gain(), '>= ' + limit, bound('low') + ' <= 1'),
    },
    speedup_pays_not: {
      record: name('speedup', 'no_gain'),
      unit: 'percentunit',
      help: 'The measured speed-up, where it is not worth its cost.',
      expr: decided(gain(like_load), '< ' + limit, bound('high') + ' >= ' + limit),
    },
    speedup_harms: {
      record: name('speedup', 'loss'),
      unit: 'percentunit',
      help: 'The measured speed-up, where speculation slows the service down at the load that it has, by more than chance. '
            + 'Acceptance does not matter.',
      // Not against a pinned baseline: in a busy hour, a service is slower than that with good drafts, too.
      expr: '%(gain)s < %(limit)s\nunless %(on)s %(high)s >= 1' % {
        gain: gain('speedup_source=~"like_load|control"'),
        limit: number(config.policy.latency.speedup_harmful),
        on: on,
        high: bound('high'),
      },
    },
    // Not recorded.
    speedup_at_like_load: {
      help: 'Where the exporter measures the speed-up at like load, or cannot tell it yet.',
      expr: orBySteps(gain(like_load)),
    },
    speedup_measured:: orBySteps(gain('sli="tpot"')),
  }
