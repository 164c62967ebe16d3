// Two services, or a service and its baseline, side by side. How much do they differ? Is it more than chance, and is the
// comparison fair?
local g = import 'g.libsonnet';

function(config, common)
  local a = common.service;
  local b = common.other;
  local nothing = common.nothing;
  local panel = common.panel;
  local A = 'A: $inference_service';
  local B = 'B: $compare_with';

  // By the order of the targets: their names contain variables.
  local color(letter, color) = g.override('byFrameRefID', letter, { color: { mode: 'fixed', fixedColor: color } });
  local dashed(letter, color) = g.override('byFrameRefID', letter, {
    color: { mode: 'fixed', fixedColor: color },
    'custom.lineStyle': { fill: 'dash', dash: [8, 6] },
    'custom.fillOpacity': 0,
  });

  // A signal of both services, and of A's baseline if there is one.
  local both(kind, name, labels={}, baseline=null) =
    [common[kind](a, name, A, labels), common[kind](b, name, B, labels)]
    + (if baseline == null then [] else [common[kind](a, baseline, 'baseline of A', labels)]);
  local stat(title, name, spec={}, labels={}, baseline=null) = panel('stat', {
    title: title,
    targets: both('last', name, labels, baseline),
    overrides: [color('A', 'blue'), color('B', 'orange'), color('C', 'text')],
    options: { textMode: 'value_and_name' },
    w: 8,
    h: 4,
  } + spec);
  local graph(title, name, spec={}, labels={}, baseline=null) = panel('timeseries', {
    title: title,
    targets: both('series', name, labels, baseline),
    overrides: [color('A', 'blue'), color('B', 'orange'), dashed('C', 'blue')],
    min: 0,
    w: 12,
    h: 8,
  } + spec);

  local effect(sli) = panel('timeseries', {
    title: 'A / B: mean ' + config.slis[sli].title,
    about: 'Below 1, A is faster. Inside the band around 1, the difference may be chance. Both services must have the same '
           + 'cluster, namespace and model.',
    targets: [
      common.versus(a, b, 'latency_mean', 'A / B', { sli: sli }),
      common.series(a, 'latency_ratio', 'A / its baseline', { sli: sli }),
      common.chance(a, b, 'chance, up to', sli, '1 +'),
      common.chance(a, b, 'chance, down to', sli, '1 -'),
    ],
    unit: 'suffix:x',
    decimals: 2,
    overrides: [
      color('A', 'blue'),
      dashed('B', 'text'),
      g.override('byFrameRefID', 'C', {
        color: { mode: 'fixed', fixedColor: 'yellow' },
        'custom.lineWidth': 0,
        'custom.fillOpacity': 15,
        'custom.fillBelowTo': 'chance, down to',
      }),
      g.override('byFrameRefID', 'D', { color: { mode: 'fixed', fixedColor: 'yellow' }, 'custom.lineWidth': 0, 'custom.fillOpacity': 0 }),
    ],
    runbook: 'SpecDecodeNotPayingOff',
    no_data: 'Nothing to compare: one service has no requests, or they differ in cluster, namespace or model.',
    w: 12,
    h: 8,
  });

  common.dashboard('ab', {
    title: 'Speculative decoding / A/B',
    description: 'Two services side by side. To compare a service with its baseline, choose it twice.',
    variables: common.variables(one=true, more=[common.otherServiceVariable]),
    annotations: common.annotations(a, true),
    rows: [
      g.row('Result', [
        stat('Measured speed-up', 'speedup', { unit: 'suffix:x', decimals: 2, no_data: nothing.speedup, runbook: 'SpecDecodeNotPayingOff' }),
        stat(
          'Mean time per output token',
          'latency_mean',
          { no_data: nothing.traffic, runbook: 'SpecDecodeNotPayingOff' },
          { sli: 'tpot' },
          'latency_baseline'
        ),
        stat('Acceptance rate', 'acceptance', { decimals: 1, no_data: nothing.acceptance, runbook: 'SpecDecodeAcceptanceLow' }, {}, 'acceptance_baseline'),
        effect('tpot'),
        effect('e2e'),
      ], open=true),
      g.row('Is the comparison fair?', [
        common.servicesTable(a, [
          ['Requests', 'requests', { decimals: 0 }, { sli: 'e2e' }],
          ['Drafts', 'drafts', { decimals: 0 }],
          ['Prompt length', 'prompt_length', { decimals: 0 }],
          ['Answer length', 'answer_length', { decimals: 0 }],
          ['Running per engine', 'requests_running_per_engine', { decimals: 1 }],
          ['KV cache', 'kv_cache_usage', { decimals: 0 }],
          ['k', 'positions_configured', { decimals: 0 }],
        ] + (
          if config.source == 'exporter' then [[null, 'method', {}, {}, config.level_labels + ['vllm_version', 'method', 'draft_model']]] else []
        ), {
          title: 'Is the sample large enough, and is the comparison fair?',
          about: 'The two services should differ only in the thing under test: compare at the same load, with the same requests. '
                 + 'Without requests there is nothing to compare.',
          options: { footer: { show: false, enablePagination: false } },  // two rows
          runbook: 'SpecDecodeNotPayingOff',
          no_data: nothing.traffic,
          w: 24,
          h: 5,
        }, more=if config.source == 'exporter' then [['vllm_version', 'vLLM'], ['method', 'Method'], ['draft_model', 'Draft model']] else [], also=b),
        graph('Acceptance rate', 'acceptance', { max: 1, no_data: nothing.acceptance, runbook: 'SpecDecodeAcceptanceLow' }, {}, 'acceptance_baseline'),
        graph('Requests running per engine', 'requests_running_per_engine', {
          about: 'Latency depends on the batch size: compare at the same load.',
          no_data: nothing.predictor,
          runbook: 'SpecDecodeLoadTooHigh',
        }),
      ]),
    ],
  })
