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
  local limit = number(config.policy.latency.speedup_min);
  local on_level(list) = 'max without (sli, speedup_source) (\n  %s\n)' % promql.indent(std.join('\nor\n', list));
  // Requests enough to tell, as they are for the exporter's verdict: no alert contradicts it.
  local counted(comparison) = '%(gain)s %(comparison)s and %(on_sli)s %(requests)s >= %(min_requests)d' % {
    gain: gain(not_like_load),
    comparison: comparison,
    on_sli: on_sli,
    requests: signals.requests.record,
    min_requests: config.min_requests,
  };

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
      // Of the time per output token, or of a whole request where the release has no such time.
      local of(record, matchers='') = '(%(record)s{%(all)ssli="tpot"} or on (%(labels)s) %(record)s{%(all)ssli="e2e"})' % {
        record: record,
        all: matchers,
        labels: promql.list(level),
      },
      local against(origin) =
        'max without (baseline_source, epoch) %(baseline)s\n/ (%(mean)s > 0)' % {
          baseline: of(name('latency_seconds', 'mean_baseline'), 'baseline_source="%s", ' % origin),
          mean: signals.latency_mean.record,
        },
      by_source: {
        [if config.source == 'exporter' then 'like_load']:
          promql.withLabel(source.measuredNow('avg', 'speedup_ratio'), 'sli', 'tpot'),
        control: '%s\nunless %s\n%s{%s}' % [against('control'), on, signals.speedup.record, like_load],
        // A pinned baseline with an acceptance rate was recorded with speculation. One with adaptive verification has a length
        // only. At any load, one whose tokens are faster counts: more load makes no service faster.
        pinned: |||
          (
            %(against)s
            or on (%(labels)s)
            label_replace(%(recorded)s, "sli", "tpot", "", "") / %(mean)s >= %(limit)s
          )
          unless on (%(labels)s)
          (%(drafted)s or %(by_steps)s)
          unless on (%(labels)s)
          %(told)s{speedup_source!="pinned"}
        ||| % {
          against: promql.indent(against('pinned')),
          labels: promql.list(level),
          recorded: signals.pinned_mean.by_sli.tpot,
          mean: signals.latency_mean.record,
          limit: limit,
          drafted: source.family('baseline_acceptance_ratio') + ' or ' + source.family('baseline_mean_acceptance_length'),
          by_steps: source.family('speedup_known'),
          told: signals.speedup.record,
        },
      },
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
          margin: signals.mean_margin.of(),
        },
      local of(bound, operator) = promql.firstOf(
        (if config.source == 'exporter'
         then [source.measuredNow('avg', 'speedup_bound_ratio', ['bound="%s"' % bound])]
         else [])
        + [by_requests(operator)],
        level
      ),
      by_bound: { low: of('low', '/'), high: of('high', '*') },
    },

    // Conditions, each recorded once.
    speedup_pays: {
      record: name('speedup', 'gain'),
      unit: 'percentunit',
      help: 'The measured speed-up, where it is worth its cost. Then no estimate by acceptance may alert.',
      // Against any baseline, few requests are enough for a gain that is larger than chance explains.
      expr: on_level([
        '%(gain)s >= %(limit)s unless %(on)s %(low)s <= 1' % { gain: gain(), limit: limit, on: on, low: bound('low') },
        counted('>= ' + limit),
      ]),
    },
    speedup_proven: {
      record: name('speedup', 'proven_gain'),
      unit: 'percentunit',
      help: 'The same, where the load is alike or the requests are enough for a verdict.',
      expr: '%(pays)s and %(on)s (%(gain)s or %(requests)s >= %(min_requests)d)' % {
        pays: signals.speedup_pays.record,
        on: on,
        gain: gain(like_load),
        requests: signals.requests.record + '{sli="tpot"}',
        min_requests: config.min_requests,
      },
    },
    speedup_pays_not: {
      record: name('speedup', 'no_gain'),
      unit: 'percentunit',
      help: 'The measured speed-up, where it is not worth its cost.',
      expr: on_level([
        '%(gain)s < %(limit)s unless %(on)s %(high)s >= %(limit)s'
        % { gain: gain(like_load), limit: limit, on: on, high: bound('high') },
        counted('< ' + limit),
      ]),
    },
    speedup_harms: {
      record: name('speedup', 'harm'),
      unit: 'percentunit',
      help: 'How many times as long decoding takes, where drafts are why: by a measured loss, whatever is accepted; or, where none '
            + 'can tell, because too little is accepted and the service is much slower than at its baseline.',
      // A loss not against a pinned baseline: in a busy hour, a service is slower than that with good drafts, too.
      expr: on_level([
        '1 / (%(gain)s < %(limit)s unless %(on)s %(high)s >= 1)' % {
          gain: gain('speedup_source=~"like_load|control"'),
          limit: number(config.policy.latency.speedup_harmful),
          on: on,
          high: bound('high'),
        },
        promql.strip(signals.much_slower.expr) + '\nand %(on)s %(acceptance)s < %(minimum)s unless %(on)s (%(pays)s or %(at_like_load)s)' % {
          on: on,
          acceptance: signals.acceptance.record,
          minimum: signals.acceptance_min.record,
          pays: signals.speedup_pays.record,
          at_like_load: signals.speedup_at_like_load.expr,
        },
      ]),
    },
    // Not recorded.
    speedup_at_like_load: {
      help: 'Where a baseline has step times: these alone tell the speed-up, or nothing does.',
      expr: '(%(gain)s or %(known)s)' % { gain: gain(like_load), known: source.family('speedup_known') },
    },
  }
