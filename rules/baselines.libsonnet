// What is normal, from the best of three sources, and how far from it things are now. Part of the signals.
//   control: a twin of the service without speculation, now. It shares load, time of day and mix of prompts.
//   pinned: a baseline that the exporter was given as a file.
//   history: the service's own last days, hour by hour.
local promql = import 'promql.libsonnet';

function(config, source, signals, name)
  local long = config.long_window_seconds;
  local level = config.level_labels;
  local on = 'on (%s)' % promql.list(level);
  local on_sli = 'on (%s, sli)' % promql.list(level);
  local number = promql.number;
  local slis = std.objectFields(config.slis);

  // Without the last hour, which may be the incident.
  local history(record) =
    '%s[%dd] offset %s' % [record, config.history_days, promql.duration(config.history_interval_seconds)];
  local enough_history(record) = 'count_over_time(%s) >= %d' % [history(record), config.min_history_hours];

  local is_control = 'inference_service=~"%s"' % config.control_service_regex;
  local is_raw_control = [source.serviceMatches(config.control_service_regex)];
  // The control's series under the name of the service it is the control of; none while it drafts.
  local asControlled(expression) =
    'label_replace(\n  %s\n  unless %s (%s > 0),\n  "inference_service", "$1", "inference_service", "%s"\n)' % [
      promql.indent(expression),
      on,
      signals.draft_tokens.record,
      config.control_service_regex,
    ];
  local enough_requests = '%s >= %d' % [signals.requests.record, config.min_requests];

  local pinned(sli, suffix, extra=[]) =
    // max: every replica serves the same file.
    'max by (%s) (%s)' % [
      promql.list(level + extra),
      source.family('baseline_%s_seconds_%s' % [config.slis[sli].family, suffix]),
    ];
  // One expression for every SLI.
  local anySli(expressions) =
    std.join('\nor\n', [promql.withLabel(expressions[sli], 'sli', sli) for sli in slis]);

  local fromSource(origin, expression) =
    'label_replace(\n  %s,\n  "baseline_source", "%s", "", ""\n)' % [promql.indent(expression), origin];

  // Whatever its source: one that has just made way for another may still be there for some minutes.
  local normal(matchers='') =
    'max without (baseline_source) (%s%s)' % [name('latency_seconds', 'mean_baseline'), matchers];
  local slowdown(matchers='') = '%s%s / %s %s' % [signals.latency_mean.record, matchers, on_sli, normal(matchers)];

  // 1 / n + 1 / n at baseline: what sampling errors are made of.
  local sampling(sli) = |||
    1 / %(requests)s{sli="%(sli)s"}
    + (1 / %(baseline)s{sli="%(sli)s"} or 0 * %(requests)s{sli="%(sli)s"})
  ||| % { sli: sli, requests: signals.requests.record, baseline: name('latency_requests', 'count_baseline') };

  local margin(sli, z_score) = '%s * sqrt(\n  %s\n)' % [
    number(z_score * config.slis[sli].cv),
    promql.indent(sampling(sli)),
  ];

  // Share of requests slower than each boundary, at baseline, by the SLI's sources.
  local slower_at_baseline(sli) =
    local with_history = std.member(config.history_tail_slis, sli);
    local cdf = '%s{sli="%s"}' % [signals.latency_cdf_hour.record, sli];
    promql.firstOf(
      [
        '1 - ' + asControlled(
          |||
            %s
            / %s group_left ()
            (%s >= %d)
          ||| % [
            source.histogram('increase', sli, 'bucket', long, ['le'], is_raw_control),
            on,
            source.histogram('increase', sli, 'count', long, [], is_raw_control),
            config.min_requests,
          ]
        ),
        '1 - %s / %s group_left () (%s > 0)' % [pinned(sli, 'bucket', ['le']), on, pinned(sli, 'count')],
      ] + (
        if with_history then [
          // The share within a boundary, so the slow hours are the low ones.
          '1 - (\n  sum by (%s, le) (quantile_over_time(%s, %s))\n  and %s\n  (%s)\n)' % [
            promql.list(level),
            number(1 - config.latency_history_quantile),
            history(cdf),
            on,
            enough_history('%s{sli="%s"}' % [signals.latency_mean_hour.record, sli]),
          ],
        ] else []
      ), level
    );

  {
    latency_baseline: {
      record: name('latency_seconds', 'mean_baseline'),
      unit: 's',
      help: 'Mean latency at baseline, by baseline_source.',
      expr: promql.firstOf([
        fromSource('control', asControlled('%s{%s}\nand\n%s' % [
          signals.latency_mean.record,
          is_control,
          enough_requests,
        ])),
        fromSource('pinned', anySli({
          [sli]: '%s / (%s > 0)' % [pinned(sli, 'sum'), pinned(sli, 'count')]
          for sli in slis
        })),
        fromSource('history', 'quantile_over_time(%s, %s)\nand\n%s' % [
          number(config.latency_history_quantile),
          history(signals.latency_mean_hour.record),
          enough_history(signals.latency_mean_hour.record),
        ]),
      ], level + ['sli']),
    },

    // Absent for history, which has so many that their number does not matter.
    requests_baseline: {
      record: name('latency_requests', 'count_baseline'),
      unit: 'short',
      help: 'Requests in the baseline, for its sampling error.',
      expr: promql.firstOf([
        asControlled('%s{%s} >= %d' % [signals.requests.record, is_control, config.min_requests]),
        anySli({ [sli]: '%s > 0' % pinned(sli, 'count') for sli in slis }),
      ], level + ['sli']),
    },

    acceptance_baseline: {
      record: name('acceptance', 'ratio_baseline'),
      unit: 'percentunit',
      help: 'Acceptance rate at baseline, by baseline_source.',
      expr: promql.firstOf([
        fromSource('pinned', 'max by (%s) (%s)' % [
          promql.list(level),
          source.family('baseline_acceptance_ratio'),
        ]),
        fromSource('history', 'quantile_over_time(%s, %s)\nand\n%s' % [
          number(config.acceptance_history_quantile),
          history(signals.acceptance_hour.record),
          enough_history(signals.acceptance_hour.record),
        ]),
      ], level),
    },

    p99_baseline: {
      record: name('latency_seconds', 'p99_baseline'),
      unit: 's',
      help: 'P99 at baseline, for people: interpolated within a bucket. Absent where only the mean has a baseline.',
      by_sli: {
        [sli]: 'histogram_quantile(\n  0.99,\n  1 - (\n    %s\n  )\n) >= 0' % promql.indent(slower_at_baseline(sli), 4)
        for sli in slis
      },
    },

    tail_shift: {
      record: name('latency', 'tail_shift', long),
      unit: 'percentunit',
      help: 'Share of requests slower than a limit that held %g %% of them at baseline, beyond %g times the share that '
            % [100 * config.tail_limit_share, config.tail_growth]
            + 'was slower then; of the limits, the one that shows most. 0: the tail is as it was. No interpolation.',
      by_sli: {
        [sli]: |||
          clamp_min(
            max by (%(labels)s) (
              (
                1 - %(now)s
                / %(on)s group_left () (%(requests)s > 0)
              )
              - on (%(labels)s, le)
              %(growth)s * (
                %(baseline)s
                <= %(share)s
              )
            ),
            0
          )
        ||| % {
          labels: promql.list(level),
          on: on,
          sli: sli,
          // +Inf holds everybody, so it would say that the tail is as it was where no other boundary is common to both.
          now: source.histogram('increase', sli, 'bucket', long, ['le'], ['le!="+Inf"']),
          requests: source.histogram('increase', sli, 'count', long),
          growth: number(config.tail_growth),
          baseline: promql.indent(promql.group(slower_at_baseline(sli)), 6),
          share: number(1 - config.tail_limit_share),
        }
        for sli in slis
      },
    },

    // Not recorded: quotients of records.
    latency_ratio: {
      unit: 'percentunit',
      help: 'Mean latency / mean latency at baseline.',
      expr: slowdown(),
      by_sli: { [sli]: slowdown('{sli="%s"}' % sli) for sli in slis },
    },

    // Mean time per output token against baselines without speculation; end-to-end latency where there is none (before
    // 0.11.0). A pinned baseline with an acceptance rate was recorded with speculation.
    speedup: {
      record: name('speedup', 'ratio', long),
      unit: 'percentunit',
      help: 'Realised speed-up: mean time per output token without speculation / with it.',
      local ratio(sli) = |||
        (
          max without (baseline_source) (%(baseline)s{baseline_source="control", sli="%(sli)s"})
          or
          max without (baseline_source) (%(baseline)s{baseline_source="pinned", sli="%(sli)s"}) unless %(on)s %(with)s
        )
        / (%(mean)s{sli="%(sli)s"} > 0)
      ||| % {
        sli: sli,
        baseline: name('latency_seconds', 'mean_baseline'),
        on: on,
        mean: signals.latency_mean.record,
        with: 'group by (%s) (%s)' % [promql.list(level), source.family('baseline_acceptance_ratio')],
      },
      expr: promql.firstOf([ratio('tpot'), ratio('e2e')], level),
    },

    mean_margin: {
      help: 'By how much the mean ratio may lie above 1 by chance: z * cv * sqrt(1 / n + 1 / n at baseline).',
      by_sli: { [sli]: margin(sli, config.alert_z_score) for sli in slis },
    },

    // The tail shift is s - g * b, with s slower now and b at baseline. The square root of a share has the same sampling
    // error whatever the share is, sqrt(1 / n) / 2, so by chance s exceeds b by less than z * sqrt(b * v) + z^2 * v / 4 with
    // v = 1 / n + 1 / n at baseline. What b * (g - 1) does not cover of it is at most z^2 * v * g / (4 * (g - 1)), whatever b is.
    tail_margin: {
      help: 'By how much the tail may shift by chance.',
      by_sli: {
        [sli]: '%s * (\n  %s\n)' % [
          number(std.pow(config.alert_z_score, 2) * config.tail_growth / (4 * (config.tail_growth - 1))),
          promql.indent(sampling(sli)),
        ]
        for sli in slis
      },
    },

    // Not recorded: only alerts need it.
    unsettled: {
      help: 'Most replicas started so recently that their slow first requests are still seen in the long window.',
      expr: 'max_over_time(%s[%s]) > 0.5' % [signals.warming.record, promql.duration(config.settling_seconds)],
    },

    // --- Verdict -----------------------------------------------------------------------------------------------------
    // The exporter judges by the same thresholds (its policy), in the same order: the worst that is proved holds.
    verdict: {
      record: name('verdict', 'enum'),
      unit: 'short',
      help: '0 idle, 1 healthy, 2 watch (may or may not pay, or nothing is drafted), 3 does not pay off, 4 does harm (slower '
            + 'than baseline beyond doubt), 5 broken (almost nothing is accepted). Absent without speculation, and while '
            + 'drafts are too few to tell.',
      local enough = '%s >= %d' % [signals.sample.record, config.policy.min_drafts],
      local below(limit) = '(%s < %s)' % [signals.acceptance.record, limit],
      local verdict(value, condition) = '0 * (%s) + %d' % [condition, value],
      local decoding = 'sli="tpot"',
      // Also slower by more than chance explains. The page and the record judge by one look each, at the same z-score.
      local harmful = '(\n  %s\n  > clamp_min(\n    1 + %s,\n    %s\n  )\n)' % [
        slowdown('{%s}' % decoding),
        promql.indent(margin('tpot', config.policy.latency.z_score), 4),
        number(config.harmful_ratio),
      ],
      local gain = '%s{%s}' % [name('speedup', 'ratio', long), decoding],
      local measured(comparison) = '(%s %s %s and %s{%s} >= %d)' % [
        gain,
        comparison,
        number(config.speedup_min),
        signals.requests.record,
        decoding,
        config.min_requests,
      ],
      local watch = promql.group(signals.acceptance_watch.expr),
      expr: promql.firstOf([
        verdict(5, '%s and %s' % [below(number(config.policy.acceptance_ratio_broken)), enough]),
        verdict(4, '%s and %s %s and %s (%s or %s %s)' % [
          enough,
          on,
          harmful,
          on,
          below(signals.acceptance_min.record),
          on,
          gain,
        ]),
        verdict(3, '%s and %s %s' % [enough, on, measured('<')]),
        verdict(3, '%s and %s unless %s %s' % [below(signals.acceptance_min.record), enough, on, measured('>=')]),
        verdict(2, '%s and %s' % [below(signals.acceptance_min.record), enough]),
        verdict(2, '%s < %s and %s unless %s %s' % [signals.acceptance.record, watch, enough, on, measured('>=')]),
        verdict(1, '%s and %s' % [signals.acceptance.record, enough]),
        verdict(2, '%s == 0 and %s > 0' % [signals.sample.record, signals.generation_tokens_now.record]),
        verdict(0, '%s == 0' % signals.sample.record),
      ], level),
    },

    // --- Error budget: numerator and denominator, so that any window can be had from them ------------------------------
    slo_requests: {
      record: name('slo_requests', 'rate', config.short_window_seconds),
      unit: 'reqps',
      help: 'Requests per second that an objective counts.',
      by_slo: {
        [slo]: source.histogram('rate', config.slos[slo].sli, 'count', config.short_window_seconds)
        for slo in std.objectFields(config.slos)
      },
    },
    slo_slow_requests: {
      record: name('slo_slow_requests', 'rate', config.short_window_seconds),
      unit: 'reqps',
      help: 'Requests per second beyond the bound of the objective; absent where the bound is no bucket boundary.',
      by_slo: {
        [slo]: '%s{slo="%s"}\n- %s\n%s' % [
          name('slo_requests', 'rate', config.short_window_seconds),
          slo,
          on,
          source.histogram(
            'rate',
            config.slos[slo].sli,
            'bucket',
            config.short_window_seconds,
            [],
            [source.bound(config.slos[slo].le)]
          ),
        ]
        for slo in std.objectFields(config.slos)
      },
    },
  }
