// Two services, or a service and its baseline, side by side. How much do they differ? Is it more than chance?
local g = import 'g.libsonnet';

function(config, common)
  local a = common.service;
  local b = common.other;
  local nothing = common.nothing;
  local panel = common.panel;
  local slis = ['tpot', 'ttft', 'e2e'];
  local A = 'A: $inference_service';
  local B = 'B: $compare_with';
  local capital(text) = std.asciiUpper(text[0]) + text[1:];

  // By the order of the targets: their names contain variables.
  local color(letter, color) = g.override('byFrameRefID', letter, { color: { mode: 'fixed', fixedColor: color } });
  local dashed(letter, color) = g.override('byFrameRefID', letter, {
    color: { mode: 'fixed', fixedColor: color },
    'custom.lineStyle': { fill: 'dash', dash: [8, 6] },
    'custom.fillOpacity': 0,
  });
  local lines = [color('A', 'blue'), color('B', 'orange'), dashed('C', 'blue')];
  local numbers = [color('A', 'blue'), color('B', 'orange'), color('C', 'text')];

  // A signal of both services, and of A's baseline if there is one.
  local both(kind, name, labels={}, baseline=null) =
    [common[kind](a, name, A, labels), common[kind](b, name, B, labels)]
    + (if baseline == null then [] else [common[kind](a, baseline, 'baseline of A', labels)]);
  local stat(title, name, spec={}, labels={}, baseline=null) = panel('stat', {
    title: title,
    targets: both('last', name, labels, baseline),
    overrides: numbers,
    options: { textMode: 'value_and_name' },
    no_data: nothing.drafts,
    w: 6,
    h: 4,
  } + spec);
  local graph(title, name, spec={}, labels={}, baseline=null) = panel('timeseries', {
    title: title,
    targets: both('series', name, labels, baseline),
    overrides: lines,
    min: 0,
    no_data: nothing.drafts,
    w: 8,
    h: 8,
  } + spec);

  local effect(sli, w) = panel('timeseries', {
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
    w: w,
    h: 8,
  });

  common.dashboard('ab', {
    title: 'Speculative decoding / A/B',
    description: 'Two services side by side. To compare a service with its baseline, choose it twice.',
    variables: common.variables(one=true, more=[common.otherServiceVariable]),
    annotations: common.annotations(a, true),
    rows: [
      g.row('Result', [
        stat('Measured speed-up', 'speedup', { w: 8, unit: 'suffix:x', decimals: 2, no_data: nothing.speedup, runbook: 'SpecDecodeNotPayingOff' }),
        stat('Mean time per output token', 'latency_mean', {
          w: 8,
          no_data: nothing.traffic,
          runbook: 'SpecDecodeNotPayingOff',
        }, { sli: 'tpot' }, 'latency_baseline'),
        stat('Acceptance rate', 'acceptance', { w: 8, decimals: 1, no_data: nothing.acceptance, runbook: 'SpecDecodeAcceptanceLow' }, {}, 'acceptance_baseline'),
      ] + [effect(sli, 12) for sli in ['tpot', 'e2e']], open=true),
      g.row('Is the sample large enough, and is the comparison fair?', [
        stat('Requests: time per output token', 'requests', {
          no_data: nothing.traffic,
          runbook: 'SpecDecodeBaselineMissing',
          w: 5,
        }, { sli: 'tpot' }, 'requests_baseline'),
        stat('Requests: end to end', 'requests', {
          no_data: nothing.traffic,
          runbook: 'SpecDecodeBaselineMissing',
          w: 5,
        }, { sli: 'e2e' }, 'requests_baseline'),
        stat('Drafts', 'drafts', { runbook: 'SpecDecodeNotDrafting', w: 4 }),
        stat('k', 'positions_configured', { decimals: 0, w: 3 }),
        common.withExporter(panel('table', {
          title: 'Release and method',
          about: 'The two services should differ only in the thing under test.',
          local labels = ['inference_service', 'vllm_version', 'method', 'draft_model'],
          targets: [common.column(a, 'method', labels), common.column(b, 'method', labels)],
          transformations: [
            g.merge,
            g.columns(
              [['inference_service', 'Service'], ['vllm_version', 'vLLM'], ['method', 'Method'], ['draft_model', 'Draft model']],
              ['Time', 'Value #A', 'Value #B']
            ),
          ],
          options: { footer: { show: false, enablePagination: false } },  // two rows
          overrides: [],
          no_data: 'Not known: no predictor could be read yet, and the exporter reads no log.',
          w: 7,
          h: 4,
        })),
        graph('Requests', 'requests', { no_data: nothing.traffic }, { sli: 'e2e' }),
        graph('Prompt length', 'prompt_length', { no_data: nothing.traffic, runbook: 'SpecDecodeP99Regression' }),
        graph('Answer length', 'answer_length', { no_data: nothing.traffic, runbook: 'SpecDecodeP99Regression' }),
        graph('Requests running per engine', 'requests_running_per_engine', {
          about: 'Latency depends on the batch size: compare at the same load.',
          no_data: nothing.predictor,
          runbook: 'SpecDecodeLoadTooHigh',
          w: 12,
        }),
        graph('KV cache in use', 'kv_cache_usage', { w: 12, max: 1, no_data: nothing.predictor, runbook: 'SpecDecodeLoadTooHigh' }),
      ]),
      g.row('Acceptance', [
        graph('Acceptance rate', 'acceptance', { max: 1, no_data: nothing.acceptance, runbook: 'SpecDecodeAcceptanceLow' }, {}, 'acceptance_baseline'),
        graph('Mean acceptance length', 'acceptance_length', { decimals: 2 }),
        graph('Tokens per step', 'tokens_per_step', { decimals: 2, no_data: nothing.traffic }),
      ]),
      g.row('Latency', [effect('ttft', 24)] + [
        graph(capital(config.slis[sli].title) + ', mean', 'latency_mean', {
          no_data: nothing.traffic,
          runbook: 'SpecDecodeP99Regression',
        }, { sli: sli }, 'latency_baseline')
        for sli in slis
      ] + [
        graph(capital(config.slis[sli].title) + ', P99', 'latency_quantile', {
          about: 'Interpolated within a bucket, so only for people.',
          targets: both('series', 'latency_quantile', { sli: sli, quantile: '0.99' })
                   + [common.series(a, 'p99_baseline', 'baseline of A', { sli: sli })],
          no_data: nothing.traffic,
          runbook: 'SpecDecodeP99Regression',
        })
        for sli in slis
      ]),
    ],
  })
