// One service: is speculation worth it here, why not, and what to do. The open row fits one screen and answers; the folded
// rows below say why.
local g = import 'g.libsonnet';

function(config, common)
  local query = common.service;
  local nothing = common.nothing;
  local series(name, legend, labels={}) = common.series(query, name, legend, labels);
  local last(name, legend, labels={}) = common.last(query, name, legend, labels);
  local panel = common.panel;
  local graph(title, targets, spec) = panel('timeseries', { title: title, targets: targets, min: 0, w: 8, h: 8 } + spec);
  local slis = ['tpot', 'ttft', 'e2e'];
  local title(sli) = config.slis[sli].title;
  local capital(text) = std.asciiUpper(text[0]) + text[1:];
  local bySli(name) = [series(name, title(sli), { sli: sli }) for sli in slis];
  local limit(value) = {
    thresholds: g.thresholds([[null, 'transparent'], [value, 'red']]),
    custom: { thresholdsStyle: { mode: 'dashed' }, axisSoftMax: 2 * value },  // so that the limit is in sight
  };
  local bars = { 'custom.drawStyle': 'bars', 'custom.fillOpacity': 60 };

  local verdict = g.row('Verdict', [
    panel('stat', {
      title: 'Status',
      about: 'The verdict on speculation for this service. Only a measured speed-up is green.',
      targets: [last('state', 'Status')],
      mappings: common.states,
      options: { colorMode: 'background' },
      no_data: 'This service has no series: it was never scraped, or another data source has them.',
      w: 5,
      h: 3,
    }),
    common.whatToDo(query, { w: 19, h: 3 }),
    panel('stateTimeline', {
      title: 'Status over time',
      about: 'When the status changed. Every panel marks alerts, deployments and starts: compare them.',
      targets: [series('state', '{{model_name}}')],
      mappings: common.states,
      no_data: nothing.predictor,
      w: 24,
      h: 3,
    }),
    common.alertTable(query, true, { w: 24, h: 5 }),
    graph('Measured speed-up', [
      series('speedup', 'measured ({{speedup_source}})'),
      series('speedup_band', '{{bound}}'),
      series('tokens_per_step', 'ceiling'),
    ], {
      about: 'With the interval that chance leaves. like_load: at the same load as in the baseline. control: against the live '
             + 'control. pinned: against a baseline file.',
      unit: 'suffix:x',
      decimals: 2,
      overrides: [
        g.colorLike('^measured', 'blue'),
        g.named('at most', {
          color: { mode: 'fixed', fixedColor: 'light-blue' },
          'custom.fillBelowTo': 'at least',
          'custom.fillOpacity': 15,
          'custom.lineWidth': 0,
        }),
        g.named('at least', { color: { mode: 'fixed', fixedColor: 'light-blue' }, 'custom.lineWidth': 0, 'custom.fillOpacity': 0 }),
        g.dashed('ceiling', 'text'),
      ],
      runbook: 'SpecDecodeNotPayingOff',
      no_data: nothing.speedup,
    } + limit(1)),
    graph('Acceptance rate against baseline', [
      series('acceptance_now', 'now'),
      series('break_even_acceptance', '{{basis}} break-even'),
      series('acceptance_baseline', 'baseline ({{baseline_source}})'),
      series('acceptance_lifetime', 'since the start (V0 engine)'),
    ], {
      max: 1,
      overrides: [g.dashedLike('break-even$', 'red'), g.dashedLike('^baseline', 'blue')],
      runbook: 'SpecDecodeAcceptanceLow',
      no_data: nothing.acceptance,
    }),
    graph('Mean / mean at baseline', [series('latency_ratio', '{{sli}}')] + [
      series('mean_limit', 'limit of {{sli}}', { sli: sli })
      for sli in slis
    ], {
      custom: { axisSoftMax: 1.5 },
      about: 'The alert fires above the limit. The limit rises where requests are few, and where latency wanders by itself.',
      overrides: [g.dashedLike('^limit', 'red')],
      runbook: 'SpecDecodeP99Regression',
      no_data: nothing.baseline,
    }),
  ], open=true);

  // A group of bars for each value of the label `x`, and in it a bar for each of `columns`: [signal, labels, title].
  local barsBy(x, columns) = {
    targets: [common.column(query, column[0], [x], column[1]) for column in columns],
    transformations: [
      g.merge,
      g.columns([[x, x]] + [['Value #' + g.refId(i), columns[i][2]] for i in std.range(0, std.length(columns) - 1)], ['Time']),
      g.numbers(x),
      g.sortBy(x),
    ],
    x: x,
    min: 0,
    w: 8,
    h: 8,
  };
  local pays = g.row('Does it pay?', [
    common.withExporter(panel('barchart', barsBy('concurrency', [
      ['speedup_by_load', { place: 'here' }, 'the load now'],
      ['speedup_by_load', { place: 'elsewhere' }, 'other loads'],
    ]) + limit(1) + {
      title: 'Speed-up over load, and where the service is now',
      about: 'Over the time that the dashboard shows. Below 1, speculation slows the service down at this load. The number under '
             + 'a bar is the upper bound of its concurrency: requests in decode at a time, per engine.',
      overrides: [g.color('the load now', 'orange'), g.color('other loads', 'blue')],
      options: { stacking: 'normal' },  // a load has one of the two
      decimals: 2,
      runbook: 'SpecDecodeLoadTooHigh',
      no_data: nothing.cost,
    })),
    graph('Mean acceptance length', [
      series('acceptance_length', 'mean acceptance length'),
      series('tokens_per_step', 'tokens per step'),
      series('draft_length', 'mean draft length'),
      series('break_even_length', '{{basis}} break-even'),
    ], {
      decimals: 2,
      overrides: [g.dashedLike('break-even$', 'red')],
      runbook: 'SpecDecodeAcceptanceLow',
      no_data: nothing.drafts,
    }),
    graph('Draft tokens', [
      series('draft_tokens_now', 'drafted'),
      series('accepted_tokens_now', 'accepted'),
      series('wasted_tokens_now', 'wasted'),
      series('generation_tokens_now', 'generated, drafts or not'),
    ], {
      unit: 'suffix:/s',
      overrides: [
        g.color('drafted', 'blue'),
        g.color('accepted', 'green'),
        g.color('wasted', 'orange'),
        g.dashed('generated, drafts or not', 'text'),
      ],
      runbook: 'SpecDecodeNotDrafting',
      no_data: nothing.drafts,
    }),
  ]);

  local acceptance = g.row('Why is acceptance as it is?', [
    panel('barchart', barsBy('position', [
      ['position_acceptance', {}, 'now'],
      ['position_acceptance_usual', {}, 'usual'],
      ['conditional_acceptance', {}, 'now, if the position before was accepted'],
    ]) + {
      title: 'Acceptance by position, now and usually',
      about: 'A healthy curve falls gently. The part of it that is near 0 costs and gives nothing.',
      max: 1,
      overrides: [
        g.color('now', 'blue'),
        g.color('usual', 'text'),
        g.color('now, if the position before was accepted', 'light-blue'),
      ],
      runbook: 'SpecDecodeAcceptanceLow',
      no_data: nothing.acceptance,
    }),
    panel('heatmap', {
      title: 'Acceptance by position over time',
      about: 'In a collapse, green turns red: either from the last position (top) down, or at all positions at once.',
      targets: [series('position_acceptance', '{{position}}')],
      min: 0,
      max: 1,
      runbook: 'SpecDecodeAcceptanceLow',
      no_data: nothing.acceptance,
      w: 8,
      h: 8,
    }),
    common.withExporter(graph('Acceptance of short windows: P10, P50, P90', [
      series('acceptance_quantile', 'P' + std.round(100 * std.parseJson(quantile)), { quantile: quantile })
      for quantile in query.parts('acceptance_quantile')
    ], {
      about: 'A spread of windows, not of requests: the more requests share a window, the narrower it is.',
      max: 1,
      overrides: [
        g.named('P90', { color: { mode: 'fixed', fixedColor: 'light-blue' }, 'custom.fillBelowTo': 'P10', 'custom.fillOpacity': 15 }),
        g.color('P50', 'blue'),
        g.color('P10', 'light-blue'),
      ],
      runbook: 'SpecDecodeAcceptanceLow',
      no_data: nothing.acceptance,
    })),
  ]);

  local latency = g.row('Latency against baseline', [
    graph(capital(title(sli)), [
      series('latency_mean', 'mean', { sli: sli }),
      series('latency_quantile', 'P50', { sli: sli, quantile: '0.5' }),
      series('latency_quantile', 'P95', { sli: sli, quantile: '0.95' }),
      series('latency_quantile', 'P99', { sli: sli, quantile: '0.99' }),
      series('latency_baseline', 'mean at baseline ({{baseline_source}})', { sli: sli }),
      series('p99_baseline', 'P99 at baseline', { sli: sli }),
    ], {
      about: 'Quantiles are interpolated within a bucket, so they are only for people. Alerts use the mean and the tail shift.',
      overrides: [
        g.color('mean', 'blue'),
        g.color('P50', 'green'),
        g.color('P95', 'yellow'),
        g.color('P99', 'orange'),
        g.dashed('P99 at baseline', 'orange'),
        g.dashedLike('^mean at baseline', 'blue'),
      ],
      runbook: 'SpecDecodeP99Regression',
      no_data: nothing.traffic + (if sli == 'tpot' then ' vLLM has it since 0.11.0.' else ''),
    })
    for sli in slis
  ] + [
    graph('Tail shift', bySli('tail_shift_shown'), {
      about: 'The regression alert compares this. It is exact; a P99 is not.',
      runbook: 'SpecDecodeP99Regression',
      no_data: nothing.baseline,
    } + limit(config.policy.latency.tail_shift_min)),
    graph('Length of prompts and answers', [series('prompt_length', 'prompt'), series('answer_length', 'answer')], {
      about: 'When these grow with the latency, the requests changed, not the service.',
      runbook: 'SpecDecodeP99Regression',
      no_data: nothing.traffic,
    }),
  ]);

  local load = g.row('Load and memory', [
    graph('Requests running, waiting, preempted', [
      series('requests_running', 'running'),
      series('requests_waiting', 'waiting'),
      series('concurrency', 'in decode, per engine'),
      series('preemptions', 'preempted in ' + common.long),
    ], {
      about: 'In full batches, verifying drafts competes with other requests.',
      overrides: [
        g.color('running', 'blue'),
        g.color('waiting', 'orange'),
        g.dashed('in decode, per engine', 'text'),
        g.colorLike('^preempted', 'red'),
      ],
      runbook: 'SpecDecodeLoadTooHigh',
      no_data: nothing.predictor,
      w: 12,
    }),
    graph('KV cache', [
      series('kv_cache_usage', 'in use, fullest engine'),
      series('prefix_cache_hits', 'prefix cache hits'),
      series('kv_cache_capacity', 'capacity in tokens, smallest engine'),
    ], {
      about: 'If the capacity falls with a deployment, a draft model or its KV cache took the memory. Fewer prefix cache hits '
             + 'mean more prefill and a later first token, whatever speculation does.',
      custom: { axisSoftMax: 1 },
      overrides: [
        g.named('capacity in tokens, smallest engine', {
          unit: 'short',
          min: 0,
          'custom.axisPlacement': 'right',
          color: { mode: 'fixed', fixedColor: 'text' },
        }),
      ],
      runbook: 'SpecDecodeLoadTooHigh',
      no_data: nothing.predictor,
      w: 12,
    }),
  ]);

  local replica = std.join(' ', ['{{%s}}' % label for label in config.replica_labels]);
  local replicas = g.row('Replicas and events', [
    graph('Time per output token by replica', [
      series('replica_latency', replica, { sli: 'tpot' }),
      series('latency_baseline', 'baseline', { sli: 'tpot' }),
    ], {
      about: 'A replica slower than the others has a slower machine, other requests, or drafts that do not fit.',
      overrides: [g.dashed('baseline', 'text')],
      runbook: 'SpecDecodeP99Regression',
      no_data: nothing.traffic,
    }),
    graph('Acceptance rate by replica', [series('replica_acceptance', replica)], {
      about: 'A replica far from the others has another draft model, release or kind of requests.',
      max: 1,
      runbook: 'SpecDecodeReplicaOutlier',
      no_data: nothing.acceptance,
    }),
    panel('stateTimeline', {
      title: 'Replicas that can be read',
      targets: [series('up', '{{pod}} {{instance}}')],
      mappings: common.yesNo('read', 'cannot be read'),
      runbook: 'SpecDecodeTargetDown',
      no_data: nothing.exporter,
      w: 8,
      h: 8,
    }),
    graph('Starts' + (if config.source == 'exporter' then ', and warnings in the log' else ''), [
      series('restarts', 'replicas started'),
    ] + (if config.source == 'exporter' then [series('warnings', '{{warning}}')] else []), {
      overrides: [g.override('byRegexp', '/.*/', bars)],
      runbook: 'SpecDecodeRestartLoop',
      no_data: 'No replica started, and no warning about speculation was logged.',
      w: 12,
      h: 7,
    }),
    common.withExporter(panel('stateTimeline', {
      title: 'Release, method, draft model',
      about: 'One line per combination. Two lines at a time are a rollout.',
      targets: [series('method', 'vLLM {{vllm_version}} {{method}} {{draft_model}}')],
      mappings: g.mappings({ '1': ['runs', 'blue'] }),
      no_data: 'Not known: no predictor could be read yet, and the exporter reads no log.',
      w: 12,
      h: 7,
    })),
  ]);

  common.dashboard('service', {
    title: 'Speculative decoding / Service',
    description: 'Does speculative decoding pay off on this service? If not: why, and what to do?',
    variables: common.variables(one=true),
    annotations: common.annotations(query, true),
    rows: [verdict, pays, acceptance, latency, load, replicas],
  })
