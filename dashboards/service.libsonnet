// One service: is speculation worth it here, why not, and what to do. From the verdict at the top to its reasons below.
local g = import 'g.libsonnet';

function(config, common)
  local query = common.service;
  local nothing = common.nothing;
  local series(name, legend, labels={}) = common.series(query, name, legend, labels);
  local last(name, legend, labels={}) = common.last(query, name, legend, labels);
  local panel = common.panel;
  local slis = ['tpot', 'ttft', 'e2e'];
  local title(sli) = config.slis[sli].title;
  local capital(text) = std.asciiUpper(text[0]) + text[1:];
  local bySli(name) = [series(name, title(sli), { sli: sli }) for sli in slis];
  local limit(value, color) = {
    thresholds: g.thresholds([[null, 'transparent'], [value, color]]),
    custom: { thresholdsStyle: { mode: 'dashed' }, axisSoftMax: 2 * value },  // so that the limit is in sight
  };

  local paying = g.thresholds([[null, 'red'], [1, 'orange'], [config.policy.latency.speedup_min, 'green']]);
  // One group of bars per concurrency: a column for each of the targets, [signal, labels, title].
  local overLoad(columns) = {
    local value(i) = if std.length(columns) == 1 then 'Value' else 'Value #' + g.refId(i),
    targets: [common.column(query, column[0], ['concurrency'], column[1]) for column in columns],
    transformations: [
      g.merge,
      g.columns(
        [['concurrency', 'concurrency']] + [[value(i), columns[i][2]] for i in std.range(0, std.length(columns) - 1)],
        ['Time']
      ),
      g.numbers('concurrency'),
      g.sortBy('concurrency'),
    ],
    x: 'concurrency',
    min: 0,
    decimals: 2,
    h: 8,
  };

  local verdict = g.row('Verdict', [
    panel('stat', {
      title: 'Status',
      about: 'The verdict on speculation for this service: by its measured speed-up, otherwise by its acceptance.',
      targets: [last('state', 'Status')],
      mappings: common.states,
      options: { colorMode: 'background' },
      no_data: 'This service has no series: it was never scraped, or another data source has them.',
      w: 3,
      h: 4,
    }),
    panel('stat', {
      title: 'Acceptance rate',
      targets: [
        common.judged(query, 'acceptance', 'acceptance_min'),
        last('break_even_acceptance', '{{basis}} break-even'),
      ],
      overrides: common.judgedColors + [g.colorLike('break-even$', 'text')],
      decimals: 0,
      runbook: 'SpecDecodeAcceptanceLow',
      no_data: nothing.acceptance,
      w: 6,
      h: 4,
    }),
    panel('stat', {
      title: 'Mean acceptance length',
      about: 'Tokens per draft, and the tokens per draft that break even.',
      targets: [
        common.judged(query, 'acceptance_length', 'acceptance_length_min'),
        last('break_even_length', '{{basis}} break-even'),
      ],
      overrides: common.judgedColors + [g.colorLike('break-even$', 'text')],
      decimals: 2,
      runbook: 'SpecDecodeAcceptanceLow',
      no_data: nothing.drafts,
      w: 6,
      h: 4,
    }),
    panel('stat', {
      title: 'Measured speed-up',
      about: 'The speed-up by speculation with the interval that chance leaves, and its ceiling: the speed-up if drafts were free.',
      targets: [
        last('speedup', 'measured'),
        last('speedup_band', '{{bound}}'),
        last('tokens_per_step', 'ceiling'),
      ],
      unit: 'suffix:x',
      thresholds: paying,
      overrides: [g.color('ceiling', 'text')],
      decimals: 2,
      runbook: 'SpecDecodeNotPayingOff',
      no_data: nothing.speedup,
      w: 9,
      h: 4,
    }),
    panel('stat', {
      title: 'What to do',
      about: 'The next step for this status. The alerts below say more.',
      targets: [last('advice', 'What to do')],
      mappings: common.actions,
      options: { colorMode: 'background', justifyMode: 'center', text: { valueSize: 20 } },
      no_data: 'Check that the exporter runs beside the predictor, and that Prometheus scrapes it.',
      w: 24,
      h: 3,
    }),
    common.alertTable(query, true, { w: 24, h: 5 }),
    panel('stateTimeline', {
      title: 'Status over time',
      about: 'When the status changed. Every panel marks deployments and starts: compare them.',
      targets: [series('state', '{{inference_service}} {{model_name}}')],
      mappings: common.states,
      no_data: nothing.predictor,
      w: 24,
      h: 3,
    }),
    panel('timeseries', {
      title: 'Acceptance rate of the last minutes',
      targets: [series('acceptance_now', 'now'), series('break_even_acceptance', '{{basis}} break-even')],
      min: 0,
      max: 1,
      overrides: [g.dashedLike('break-even$', 'red')],
      runbook: 'SpecDecodeAcceptanceLow',
      no_data: nothing.acceptance,
      w: 12,
      h: 7,
    }),
    panel('timeseries', {
      title: 'Mean / mean at baseline',
      about: 'The alert fires above the limit. The limit rises where requests are few, and where latency wanders by itself.',
      targets: [series('latency_ratio', '{{sli}}')] + [series('mean_limit', 'limit of {{sli}}', { sli: sli }) for sli in slis],
      overrides: [g.dashedLike('^limit', 'red')],
      runbook: 'SpecDecodeP99Regression',
      no_data: nothing.baseline,
      w: 12,
      h: 7,
    }),
  ], open=true);

  local speedup = g.row('Speed-up', [
    common.withExporter(panel('barchart', overLoad([
      ['speedup_by_load', { place: 'here' }, 'the load now'],
      ['speedup_by_load', { place: 'elsewhere' }, 'other loads'],
    ]) + limit(1, 'red') + {
      title: 'Speed-up over load, and where the service is now',
      about: 'Over the time that the dashboard shows. Below 1, speculation slows the service down at this load. The number under '
             + 'a bar is the upper bound of its concurrency: requests in decode at a time, per engine.',
      overrides: [g.color('the load now', 'orange'), g.color('other loads', 'blue')],
      options: { stacking: 'normal' },  // a load has one of the two
      runbook: 'SpecDecodeLoadTooHigh',
      no_data: nothing.cost,
      w: 7,
    })),
    common.withExporter(panel('barchart', overLoad([
      ['step_time_by_load', { speculation: 'with' }, 'with speculation'],
      ['step_time_by_load', { speculation: 'without' }, 'without'],
    ]) + {
      title: 'Time per step over load',
      about: 'What drafts cost: they pay while a step gives more tokens than it takes longer.',
      overrides: [g.color('with speculation', 'blue'), g.color('without', 'text')],
      decimals: 0,
      options: { showValue: 'never' },
      runbook: 'SpecDecodeLoadTooHigh',
      no_data: 'Not known: too few request-steps, or the predictor cannot be read.',
      w: 6,
    })),
    common.withExporter(panel('stat', {
      title: 'Draft cost',
      about: 'The cost of one more draft token. It depends on the load.',
      targets: [last('draft_cost', '{{basis}}')],
      overrides: [g.color('measured', 'blue'), g.color('assumed', 'text')],
      decimals: 0,
      runbook: 'SpecDecodeNotPayingOff',
      no_data: nothing.cost,
      w: 4,
      h: 8,
    })),
    panel('timeseries', {
      title: 'Measured speed-up',
      about: 'With the interval that chance leaves. like_load: at the same load as in the baseline. control: against the live '
             + 'control. pinned: against a baseline file.',
      targets: [
        series('speedup', 'measured ({{speedup_source}})'),
        series('speedup_band', '{{bound}}'),
        series('tokens_per_step', 'ceiling'),
      ],
      unit: 'suffix:x',
      decimals: 2,
      min: 0,
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
      w: 7,
      h: 8,
    } + limit(1, 'red')),
  ]);

  local acceptance = g.row('Acceptance', [
    panel('timeseries', {
      title: 'Acceptance rate against baseline',
      targets: [
        series('acceptance', common.long),
        series('acceptance_baseline', 'baseline ({{baseline_source}})'),
        series('acceptance_lifetime', 'since the start (V0 engine)'),
      ],
      min: 0,
      max: 1,
      overrides: [g.dashedLike('^baseline', 'blue')],
      runbook: 'SpecDecodeAcceptanceLow',
      no_data: nothing.acceptance,
      w: 8,
      h: 8,
    }),
    common.withExporter(panel('timeseries', {
      title: 'Acceptance of short windows: P10, P50, P90',
      about: 'A spread of windows, not of requests: the more requests share a window, the narrower it is. Where P50 by draft '
             + 'is lower than P50, busy times accept less than quiet ones.',
      targets: [
        series('acceptance_quantile', 'P' + std.round(100 * std.parseJson(quantile)), { quantile: quantile })
        for quantile in query.parts('acceptance_quantile')
      ] + [series('acceptance_median_by_draft', 'P50 by draft')],
      min: 0,
      max: 1,
      overrides: [
        g.named('P90', { color: { mode: 'fixed', fixedColor: 'light-blue' }, 'custom.fillBelowTo': 'P10', 'custom.fillOpacity': 15 }),
        g.color('P50', 'blue'),
        g.color('P10', 'light-blue'),
        g.color('P50 by draft', 'orange'),
      ],
      runbook: 'SpecDecodeAcceptanceLow',
      no_data: nothing.acceptance,
      w: 8,
      h: 8,
    })),
    panel('timeseries', {
      title: 'Draft tokens',
      about: 'Drafted, accepted and wasted draft tokens, and all generated tokens.',
      targets: [
        series('draft_tokens_now', 'drafted'),
        series('accepted_tokens_now', 'accepted'),
        series('wasted_tokens_now', 'wasted'),
        series('generation_tokens_now', 'generated, drafts or not'),
      ],
      unit: 'suffix:/s',
      min: 0,
      overrides: [
        g.color('drafted', 'blue'),
        g.color('accepted', 'green'),
        g.color('wasted', 'orange'),
        g.dashed('generated, drafts or not', 'text'),
      ],
      runbook: 'SpecDecodeNotDrafting',
      no_data: nothing.drafts,
      w: 8,
      h: 8,
    }),
    panel('timeseries', {
      title: 'Mean acceptance length',
      targets: [
        series('acceptance_length', 'mean acceptance length'),
        series('tokens_per_step', 'tokens per step'),
        series('draft_length', 'mean draft length'),
        series('break_even_length', '{{basis}} break-even'),
      ],
      decimals: 2,
      min: 0,
      overrides: [g.dashedLike('break-even$', 'red')],
      runbook: 'SpecDecodeAcceptanceLow',
      no_data: nothing.drafts,
      w: 12,
      h: 7,
    }),
    panel('timeseries', {
      title: 'Drafts',
      about: 'The sample of every ratio. With fewer than %(min_drafts)d drafts in %(long)s, acceptance alerts are silent.' % {
        min_drafts: config.alert_min_drafts,
        long: common.long,
      },
      targets: [series('drafts', 'in ' + common.long)],
      min: 0,
      runbook: 'SpecDecodeNotDrafting',
      no_data: nothing.drafts,
      w: 12,
      h: 7,
    }),
  ]);

  local latency = g.row('Latency against baseline', [
    panel('timeseries', {
      title: capital(title(sli)),
      about: 'Quantiles are interpolated within a bucket, so they are only for people. Alerts use the mean and the tail shift.',
      targets: [
        series('latency_mean', 'mean', { sli: sli }),
        series('latency_quantile', 'P50', { sli: sli, quantile: '0.5' }),
        series('latency_quantile', 'P95', { sli: sli, quantile: '0.95' }),
        series('latency_quantile', 'P99', { sli: sli, quantile: '0.99' }),
        series('latency_baseline', 'mean at baseline ({{baseline_source}})', { sli: sli }),
        series('p99_baseline', 'P99 at baseline', { sli: sli }),
      ],
      min: 0,
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
      w: 8,
      h: 8,
    })
    for sli in slis
  ] + [
    panel('timeseries', {
      title: capital(length) + ' length',
      about: 'When this grows with the latency, the requests changed, not the service.',
      targets: [series(length + '_length', 'mean')],
      min: 0,
      runbook: 'SpecDecodeP99Regression',
      no_data: nothing.traffic,
      w: 8,
      h: 7,
    })
    for length in ['prompt', 'answer']
  ] + [
    panel('timeseries', {
      title: 'Requests slower than their objective',
      targets: [series('slow_requests', slo, { slo: slo }) for slo in query.parts('slow_requests')],
      min: 0,
      custom: { axisSoftMax: 0.01 },
      runbook: 'SpecDecodeErrorBudgetBurn',
      no_data: nothing.traffic + ' Or the bound of the objective is not a bucket boundary.',
      w: 8,
      h: 7,
    }),
    panel('timeseries', {
      title: 'Tail shift',
      about: 'The regression alert compares this. It is exact; a P99 is not.',
      targets: bySli('tail_shift'),
      min: 0,
      runbook: 'SpecDecodeP99Regression',
      no_data: nothing.baseline,
      w: 12,
      h: 7,
    } + limit(config.policy.latency.tail_shift_min, 'red')),
    panel('timeseries', {
      title: 'Spread: P99 / P50',
      targets: bySli('latency_spread'),
      decimals: 1,
      runbook: 'SpecDecodeP99Regression',
      no_data: nothing.traffic,
      w: 12,
      h: 7,
    }),
  ]);

  local load = g.row('Load', [
    panel('timeseries', {
      title: 'Requests running and waiting',
      about: 'In full batches, verifying drafts competes with other requests.',
      targets: [
        series('requests_running', 'running'),
        series('requests_waiting', 'waiting'),
        series('concurrency', 'in decode, per engine'),
      ],
      min: 0,
      overrides: [g.color('running', 'blue'), g.color('waiting', 'orange'), g.dashed('in decode, per engine', 'text')],
      runbook: 'SpecDecodeLoadTooHigh',
      no_data: nothing.predictor,
      w: 12,
      h: 8,
    }),
    panel('timeseries', {
      title: 'Requests observed',
      about: 'The sample of every latency. With fewer than %(min_requests)d requests in %(long)s, latency alerts are silent.' % {
        min_requests: config.min_requests,
        long: common.long,
      },
      targets: bySli('requests'),
      min: 0,
      runbook: 'SpecDecodeBaselineMissing',
      no_data: nothing.traffic,
      w: 12,
      h: 8,
    }),
  ]);

  local memory = g.row('Memory', [
    panel('timeseries', {
      title: 'KV cache in use',
      about: 'The draft model and the drafts use part of it.',
      targets: [series('kv_cache_usage', 'fullest engine')],
      min: 0,
      max: 1,
      runbook: 'SpecDecodeLoadTooHigh',
      no_data: nothing.predictor,
      w: 12,
      h: 7,
    } + limit(0.9, 'red')),
    panel('timeseries', {
      title: 'KV cache capacity',
      about: 'If this falls with a deployment, a draft model or its KV cache took the memory.',
      targets: [series('kv_cache_capacity', 'tokens, smallest engine')],
      min: 0,
      runbook: 'SpecDecodeLoadTooHigh',
      no_data: 'Not known: the predictor cannot be reached, or its release tells no capacity.',
      w: 12,
      h: 7,
    }),
    panel('timeseries', {
      title: 'Preemptions',
      targets: [series('preemptions', 'in ' + common.long)],
      min: 0,
      runbook: 'SpecDecodeLoadTooHigh',
      no_data: nothing.predictor,
      w: 12,
      h: 7,
    }),
    panel('timeseries', {
      title: 'Prefix cache hits',
      about: 'Fewer hits mean more prefill and a later first token, whatever speculation does. Prompts changed, or the cache is too small.',
      targets: [series('prefix_cache_hits', 'in ' + common.long)],
      min: 0,
      max: 1,
      runbook: 'SpecDecodeLoadTooHigh',
      no_data: 'No lookups: nothing is generated, prefix caching is off, or the predictor has a V0 engine.',
      w: 12,
      h: 7,
    }),
  ]);

  local replica = std.join(' ', ['{{%s}}' % label for label in config.replica_labels]);
  local byReplica(title, name, spec={}) = panel('timeseries', {
    title: title,
    targets: [series(name, replica)],
    min: 0,
    no_data: nothing.traffic,
    w: 8,
    h: 8,
  } + spec);
  local replicas = g.row('Replicas', [
    byReplica('Time per output token by replica', 'replica_latency', {
      about: 'A replica slower than the others has a slower machine, other requests, or drafts that do not fit.',
      targets: [series('replica_latency', replica, { sli: 'tpot' }), series('latency_baseline', 'baseline', { sli: 'tpot' })],
      overrides: [g.dashed('baseline', 'text')],
      runbook: 'SpecDecodeP99Regression',
    }),
    byReplica('End-to-end latency by replica', 'replica_latency', {
      targets: [series('replica_latency', replica, { sli: 'e2e' }), series('latency_baseline', 'baseline', { sli: 'e2e' })],
      overrides: [g.dashed('baseline', 'text')],
      runbook: 'SpecDecodeP99Regression',
    }),
    byReplica('Speed-up by replica', 'replica_speedup', {
      about: 'Below 1, speculation slows this replica down.',
      targets: [series('replica_speedup', '{{pod}} {{instance}}')],
      decimals: 2,
      runbook: 'SpecDecodeNotPayingOff',
      no_data: nothing.speedup,
    } + limit(1, 'red')),
    byReplica('Acceptance rate by replica', 'replica_acceptance', {
      about: 'A replica far from the others has another draft model, release or kind of requests.',
      max: 1,
      runbook: 'SpecDecodeReplicaOutlier',
      no_data: nothing.acceptance,
    }),
    byReplica('Drafts by replica', 'replica_drafts', { runbook: 'SpecDecodeReplicaOutlier', no_data: nothing.drafts }),
    panel('stateTimeline', {
      title: 'Replicas that can be read',
      targets: [series('up', '{{pod}} {{instance}}')],
      mappings: common.yesNo('read', 'cannot be read'),
      runbook: 'SpecDecodeTargetDown',
      no_data: nothing.exporter,
      w: 8,
      h: 8,
    }),
  ]);

  local events = g.row('Events', [
    panel('timeseries', {
      title: 'Starts',
      targets: [series('restarts', 'replicas started'), series('warming', 'share of replicas that warm up')],
      min: 0,
      overrides: [
        g.named('replicas started', { 'custom.drawStyle': 'bars', 'custom.fillOpacity': 60 }),
        g.named('share of replicas that warm up', { unit: 'percentunit', 'custom.axisPlacement': 'right', max: 1 }),
      ],
      runbook: 'SpecDecodeRestartLoop',
      no_data: 'No replica started in this time range.',
      w: 8,
      h: 7,
    }),
    common.withExporter(panel('stateTimeline', {
      title: 'Release, method, draft model',
      about: 'One line per combination. Two lines at a time are a rollout.',
      targets: [series('method', 'vLLM {{vllm_version}} {{method}} {{draft_model}}')],
      mappings: g.mappings({ '1': ['runs', 'blue'] }),
      no_data: 'Not known: no predictor could be read yet, and the exporter reads no log.',
      w: 8,
      h: 7,
    })),
    common.withExporter(panel('timeseries', {
      title: 'Warnings in the log',
      targets: [series('warnings', '{{warning}}')],
      min: 0,
      custom: { drawStyle: 'bars', fillOpacity: 60, stacking: { group: 'A', mode: 'normal' } },
      no_data: 'No warning about speculation, or the exporter reads no log.',
      w: 8,
      h: 7,
    })),
    panel('stateTimeline', {
      title: 'Alerts over time',
      targets: [
        common.series(query, 'alerts', '{{alertname}} {{sli}} {{severity}}', {}, 'max by (alertname, sli, severity)'),
      ],
      mappings: g.mappings({ '1': ['fires', 'red'] }),
      no_data: nothing.alerts,
      w: 24,
      h: 7,
    }),
  ]);

  common.dashboard('service', {
    title: 'Speculative decoding / Service',
    description: 'Does speculative decoding pay off on this service? If not: why, and what to do?',
    variables: common.variables(one=true),
    annotations: common.annotations(query, true),
    rows: [verdict, speedup, acceptance, (import 'curve.libsonnet')(config, common), latency, load, memory, replicas, events],
  })
