// Every quantity that the pack records, defined once: record, labels, unit (none: a count, shown as a whole number), meaning,
// expression. Alerts and dashboards read them from here. One level lies over raw counters; what is usual for a service is read
// from the hours of its last week.
local promql = import 'promql.libsonnet';

{
  local config = $._config,
  local series = (import 'series.libsonnet')(config),
  local level = config.level,
  local w(n) = config.minutes(n),
  local number = promql.number,
  local vllm = config.source == 'vllm',

  local record(name) = 'inference_service:specdec_' + name,
  local of(signal, matchers=[]) = signal.record + promql.braces(matchers),

  // Counts of drafts mean nothing where vLLM verifies only a part of each draft.
  local whole(expression) =
    local partly = if vllm then $._signals.drafts.record + '{%s}' % config.vllm_adaptive_selector
    else 'last_over_time(%s[%s])' % [series.family('specdec_predictor_info', ['verification="adaptive"']), w(30)];
    if vllm && config.vllm_adaptive_selector == '' then expression
    else expression + '\nunless on (%s) %s' % [level, partly],

  local acceptance(operation, minutes, over=0) = whole('%s\n/ (%s > %s)' % [
    series.sum(operation, 'accepted_tokens', minutes),
    series.sum(operation, 'draft_tokens', minutes),
    number(over),
  ]),

  // The most of three: three of four hours of the week; yesterday, and a week ago, around this hour. The last hour is left
  // out: it may be the incident.
  local usual(hour, most, quantile) = |||
    %(most)s without (of) (
      label_replace(quantile_over_time(%(quantile)s, %(hour)s[%(week)s] offset %(last)s), "of", "week", "", "")
      or label_replace(%(most)s_over_time(%(hour)s[%(around)s] offset %(yesterday)s), "of", "yesterday", "", "")
      or label_replace(%(most)s_over_time(%(hour)s[%(around)s] offset %(week_ago)s), "of", "week ago", "", "")
    )
    and count_over_time(%(hour)s[%(week)s] offset %(last)s) >= %(hours)d
  ||| % {
    most: most,
    quantile: quantile,
    hour: hour,
    week: w(7 * 1440),
    last: w(60),
    around: w(5 * 60),
    yesterday: w(20 * 60),
    week_ago: w((6 * 24 + 20) * 60),
    hours: config.history.hours,
  },
  local lately(signal, matchers=[]) = 'last_over_time(%s[%s])' % [of(signal, matchers), w(120)],

  _signals+:: {
    local s = self,

    // --- Drafts and what is accepted of them ---------------------------------------------------------------------------
    drafts: {
      record: record('drafts:increase30m'),
      unit: 'none',
      help: 'Drafts within half an hour. A draft is one speculation of one request in one engine step.',
      expr: series.sum('increase', 'drafts', 30),
    },
    tokens: {
      record: record('generation_tokens:rate5m'),
      unit: 'suffix:/s',
      help: 'Tokens generated per second.',
      expr: series.sum('rate', 'generation_tokens', 5),
    },
    acceptance: {
      record: record('acceptance:ratio30m'),
      unit: 'percentunit',
      help: 'Acceptance rate of half an hour: accepted draft tokens / draft tokens. Absent with adaptive verification: vLLM does not '
            + 'count verified tokens then.',
      expr: acceptance('increase', 30),
    },
    acceptance_now: {
      record: record('acceptance:ratio5m'),
      unit: 'percentunit',
      help: 'Acceptance rate of five minutes. Absent with fewer than %s draft tokens a second.' % number(config.min_drafts / 2000),
      expr: acceptance('rate', 5, config.min_drafts / 2000),
    },
    length: {
      record: record('acceptance:length30m'),
      unit: 'short',
      help: 'Mean acceptance length: 1 + accepted tokens / drafts. The 1 is the bonus token.',
      expr: '1 + %s\n/ (%s > 0)' % [series.sum('increase', 'accepted_tokens', 30), of(s.drafts)],
    },
    acceptance_min: {
      record: record('acceptance:min'),
      unit: 'percentunit',
      help: 'Acceptance rate that breaks even, the first of: measured here; assumed by the exporter for method, k and load; the general '
            + 'level. Without the exporter, mean draft length and load decide.',
      expr:
        if !vllm then |||
          avg by (%(level)s) (avg_over_time(%(measured)s[%(w)s]))
          or on (%(level)s)
          avg by (%(level)s) (avg_over_time(%(assumed)s[%(w)s]))
          or on (%(level)s)
          0 * %(drafts)s + %(flag)s
        ||| % {
          level: level,
          drafts: of(s.drafts),
          flag: number(config.acceptance.flag),
          w: w(30),
          measured: series.family('specdec_break_even_acceptance_ratio', ['basis="measured"']),
          assumed: series.family('specdec_policy_acceptance_ratio_min'),
        }
        else
          local a = config.assumed;
          local rows = a.light;
          // Below the level of a large batch, the more so the longer drafts are and the smaller the batch is.
          local below = std.join(' - ', [number(a.heavy - rows[std.length(rows) - 1][1])] + [
            '%s * (%s < bool %s)' % [number(rows[i][1] - rows[i + 1][1]), '(%s - 1) / %s' % [of(s.length), of(s.acceptance)], number(rows[i][0] + 0.5)]
            for i in std.range(0, std.length(rows) - 2)
          ]);
          '%s - (%s)\n* (1 - clamp(ln(%s / %d) / %s, 0, 1) or %s * 0 + 1)' % [
            number(a.heavy),
            below,
            series.by('avg', level, promql.range('rate', series.of('step', '_sum'), w(30))),
            a.light_requests,
            number(std.log(a.heavy_requests / a.light_requests)),
            of(s.drafts),
          ],
    },
    acceptance_usual: {
      record: record('acceptance:usual'),
      unit: 'short',
      help: 'Usual acceptance rate (what="ratio") and length (what="length"): of the baseline file, else of the last week.',
      local file(what, family) =
        promql.withLabel(promql.by('avg', level, series.family(family)), 'what', what),
      expr: std.join('\nor on (%s, what)\n' % level, (
        if vllm then [] else [
          file('ratio', 'specdec_baseline_acceptance_ratio'),
          file('length', 'specdec_baseline_mean_acceptance_length'),
        ]
      ) + [lately(s.acceptance_usual_hour)]),
    },

    // --- Is it there? --------------------------------------------------------------------------------------------------
    up: {
      record: record('up:max'),
      unit: 'short',
      help: 'Whether the metrics of at least one replica can be read, by role where serving is disaggregated.',
      expr:
        if vllm then series.by('max', config.role, series.up)
        else 'max by (%(role)s) (%(own)s)\nor on (%(role)s)\nmax by (%(role)s) (%(target)s == 0)' % {
          role: config.role,
          own: series.own_up,
          target: series.up,
        },
    },
    busy: {
      record: record('busy_requests:min10m'),
      unit: 'none',
      help: 'Requests that ran in the busiest engine throughout ten minutes. Engines that generate nothing do not count.',
      // 0 and not absent where there is none: not every ruler ends a record at once.
      expr: series.by('max', level, '%s\n* (%s > bool 0)' % [
        promql.range('min_over_time', series.of('running'), w(10)),
        promql.range('increase', series.of('generation_tokens'), w(10)),
      ]),
    },
    engines: {
      record: record('engines:count'),
      unit: 'none',
      help: 'Engines whose metrics are there.',
      expr: series.by('count', level, series.of('generation_tokens')),
    },
    settled: {
      record: record('engines:settled'),
      unit: 'percentunit',
      help: 'Share of the engines that have run for 20 minutes. The first requests after a start are slow.',
      local tokens = series.of('generation_tokens'),
      expr: '%s\n/ %s' % [
        series.by('count', level, '%(t)s and %(t)s offset %(w)s unless resets(%(t)s[%(w)s]) > 0' % { t: tokens, w: w(20) }),
        of(s.engines),
      ],
    },

    // --- Latency, by `sli` and `stat` ----------------------------------------------------------------------------------
    requests: {
      record: record('requests:increase30m'),
      unit: 'none',
      help: 'Requests within half an hour that have a time per output token. In releases without that time: all requests.',
      expr: '%s\nor on (%s)\n%s' % [series.sum('increase', 'tpot', 30, '_count'), level, series.sum('increase', 'e2e', 30, '_count')],
    },
    latency: {
      record: record('latency:seconds30m'),
      unit: 's',
      help: 'Latency of half an hour: time per output token (sli="tpot"), time to first token (ttft), whole requests (e2e). The mean; '
            + 'for tpot also the P99, interpolated within a bucket.',
      by:
        [{ labels: { sli: sli, stat: 'mean' }, expr: series.mean(sli, 30) } for sli in ['tpot', 'ttft', 'e2e']]
        + [{ labels: { sli: 'tpot', stat: 'p99' }, expr: 'histogram_quantile(0.99, %s) > 0' % series.sum('rate', 'tpot', 30, '_bucket', ', le') }],
    },
    latency_now: {
      record: record('latency:seconds5m'),
      unit: 's',
      help: 'Mean time per output token of five minutes.',
      labels: { sli: 'tpot', stat: 'mean' },
      expr: series.mean('tpot', 5),
    },
    beyond: {
      record: record('latency:beyond30m'),
      unit: 'percentunit',
      help: 'Share of the requests whose time per output token is above each of some boundaries of its buckets.',
      // No service with readers has a limit beyond a fifth of a second. Only shares that may be a tail.
      labels: { sli: 'tpot', stat: 'beyond' },
      expr: '1 - %s\n/ ignoring (le) group_left %s\n< .5' % [
        series.sum('increase', 'tpot', 30, '_bucket', ', le', ['le=~"0.(0.*|[12]0*)"']),
        series.sum('increase', 'tpot', 30, '_count'),
      ],
    },
    buckets_differ: {
      record: record('buckets:differ'),
      unit: 'short',
      help: 'Replicas have different bucket boundaries, or had within half an hour. Shares beyond a boundary are unknown then.',
      expr: 'stddev by (%s) (%s) > 0' % [
        level,
        series.by('count', level + ', le', promql.range('last_over_time', series.of('tpot', '_bucket'), w(30))),
      ],
    },
    baseline: {
      record: record('latency:baseline'),
      unit: 's',
      help: 'Latency at baseline. Its source is the first of: a live control without speculation; the baseline file, unless its load was '
            + 'lower; the last week. Whole requests have no baseline: they take as long as their answers. Also the share beyond each '
            + 'boundary (stat="beyond").',
      local unless_other(sources) = '\nunless on (%s, sli, stat) %s' % [level, of(s.baseline, ['source%s"%s"' % [if std.member(sources, '|') then '=~' else '=', sources]])],
      local of_file(expr, more={}) = {
        labels: { source: 'file' } + more,
        expr: '%s\nunless on (%s) avg by (%s) (%s) > %s%s' % [
          expr,
          level,
          level,
          series.family('specdec_baseline_load_ratio'),
          number(config.baseline_load_max),
          if more == {} then unless_other('control') else '',
        ],
      },
      by: [
        {
          labels: { source: 'control' },
          expr: |||
            label_replace(
              %(latency)s
              and on (%(level)s) %(requests)s >= %(min_requests)d
              unless on (%(level)s) %(drafts)s > 0,
              "inference_service", "$1", "inference_service", "%(name)s"
            )
          ||| % {
            latency: of(s.latency, ['sli!="e2e"', 'inference_service=~"%s"' % config.control_service_regex]),
            level: level,
            requests: of(s.requests),
            min_requests: config.min_requests,
            drafts: of(s.drafts),
            name: config.control_service_regex,
          },
        },
      ] + (if vllm then [] else [
             of_file('avg by (%s, sli, stat) (%s)\nand on (%s, sli, stat) %s' % [
               level,
               series.family('specdec_baseline_latency_seconds'),
               level,
               of(s.latency, ['sli!="e2e"']),
             ]),
             of_file('1 - avg by (%s, le) (%s / ignoring (le) group_left () %s)\nand on (%s, le) %s' % [
               level,
               series.family('specdec_baseline_time_per_output_token_seconds_bucket'),
               series.family('specdec_baseline_time_per_output_token_seconds_count'),
               level,
               of(s.beyond),
             ], { sli: 'tpot', stat: 'beyond' }),
           ]) + [{
        labels: { source: 'history' },
        expr: lately(s.latency_usual, ['stat!="beyond"']) + unless_other(if vllm then 'control' else 'control|file'),
      }],
    },
    ratio: {
      record: record('latency:ratio30m'),
      unit: 'percentunit',
      help: 'Mean latency as % of the mean at baseline.',
      expr: '%s\n/ on (%s, sli) group_left (source) %s' % [of(s.latency, ['stat="mean"']), level, of(s.baseline, ['stat="mean"'])],
    },
    ratio_now: {
      record: record('latency:ratio5m'),
      unit: 'percentunit',
      help: 'Mean time per output token of five minutes / that at baseline.',
      expr: '%s\n/ on (%s, sli, stat) group_left (source) %s' % [of(s.latency_now), level, of(s.baseline, ['stat!="beyond"'])],
    },
    tail: {
      record: record('latency:tail30m'),
      unit: 'percentunit',
      help: ('Share of requests beyond a boundary that kept %d %% of the requests at baseline, minus the expected share. The boundary with '
             + 'the largest difference counts. Expected: %s times the share at baseline, more where the whole service is slower. '
             + 'Histograms hold shares exactly; a P99 is interpolated.') % [100 * config.tail.held, number(config.tail.growth)],
      // When all latencies of a lognormal distribution grow by a factor, a share grows to about its root of that factor.
      expr: |||
        max without (le, sli, stat) (
          %(now)s
          - on (%(level)s, le) group_left ()
          (%(growth)s * (%(baseline)s <= %(limit)s)) ^ on (%(level)s) group_left () (1 / clamp_min(%(ratio)s, 1))
        )
        unless on (%(level)s) %(differ)s
      ||| % {
        now: of(s.beyond),
        level: level,
        growth: number(config.tail.growth),
        baseline: if vllm then history else '(%s or on (%s) %s)' % [of(s.baseline, ['stat="beyond"']), level, history],
        local history = lately(s.latency_usual, ['stat="beyond"']),
        limit: number(1 - config.tail.held),
        ratio: of(s.ratio, ['sli="tpot"', 'stat="mean"']),
        differ: of(s.buckets_differ),
      },
    },
    speedup: {
      record: record('speedup:ratio30m'),
      unit: 'percentunit',
      help: 'Measured speed-up: time per output token without speculation / with speculation. The exporter compares with its baseline '
            + 'file; without a file, the live control is compared.',
      local control = '%s / on (%s, sli, stat) %s' % [
        of(s.baseline, ['source="control"', 'sli="tpot"', 'stat="mean"']),
        level,
        of(s.latency, ['sli="tpot"', 'stat="mean"']),
      ],
      // Of the replicas that measure now, so a rollout is told at once.
      expr:
        (if vllm then '' else '%s\nor on (%s)\n' % [s.measured('specdec_speedup_ratio'), level])
        + 'sum by (%s) (%s)' % [level, control],
    },
    measured(family, matchers=[])::
      local measured = series.family(family, ['basis="measured"'] + matchers);
      'avg by (%s) (avg_over_time(%s[%s]) and %s)' % [level, measured, w(30), measured],

    // Only the exporter judges. Not recorded without it.
    verdict: {
      record: record('verdict:tokens'),
      unit: 'suffix:/s',
      help: 'Tokens generated per second, by the verdict of the replica. Each replica adds a thousandth, so that replicas '
            + 'without tokens count too.',
      expr: |||
        sum by (%(level)s, verdict) (
          (
            label_replace(%(guessed)s and on (%(level)s) %(speedup)s > 1, "verdict", "healthy", "", "")
            or ignoring (verdict) %(judged)s
          )
          * on (%(level)s, pod, instance) group_left ()
          (0.001 + sum by (%(level)s, pod, instance) (rate(%(tokens)s[%(w)s])))
        )
      ||| % {
        level: level,
        // A live control measures what the exporter of one replica cannot.
        guessed: series.family('specdec_verdict', ['verdict="not_measured"']),
        judged: series.family('specdec_verdict', ['verdict!="no_metrics"']),  // `up` tells of whole services
        speedup: of(s.speedup),
        tokens: series.of('generation_tokens'),
        w: w(5),
      },
    },

    // --- History, hour by hour -------------------------------------------------------------------------------------------
    latency_hour: {
      record: record('latency:hour'),
      unit: 'short',
      help: 'An hour with enough requests: mean seconds, or the share beyond a boundary. Not of whole requests: they take as long as their '
            + 'answers.',
      // A boundary that nobody exceeds tells nothing more where few exceed a lower one.
      expr: |||
        (avg_over_time(%(latency)s[%(hour)s]) or %(beyond)s > 0 or %(beyond)s unless on (%(level)s) (%(beyond)s > 0 < 0.05))
        and on (%(level)s) %(requests)s >= %(least)d
      ||| % {
        latency: of(s.latency, ['stat="mean"', 'sli!="e2e"']),
        hour: w(60),
        beyond: 'avg_over_time(%s[%s])' % [of(s.beyond), w(60)],
        level: level,
        requests: of(s.requests),
        least: config.history.requests,
      },
    },
    latency_usual: {
      record: record('latency:usual'),
      unit: 'short',
      help: 'A slow but usual hour of the last week, once there are %d hours.' % config.history.hours,
      expr: usual(s.latency_hour.record, 'max', number(config.history.quantile)),
    },
    acceptance_hour: {
      record: record('acceptance:hour'),
      unit: 'short',
      help: 'Acceptance rate and length of an hour with enough drafts.',
      local hour(signal) = 'avg_over_time(%s[%s]) and %s >= %d' % [of(signal), w(60), of(s.drafts), config.history.drafts],
      by: [{ labels: { what: 'ratio' }, expr: hour(s.acceptance) }, { labels: { what: 'length' }, expr: hour(s.length) }],
    },
    acceptance_usual_hour: {
      record: record('acceptance:usual1h'),
      unit: 'short',
      help: 'A low but usual hour of the last week.',
      expr: usual(s.acceptance_hour.record, 'min', '0.5'),
    },
  },
}
