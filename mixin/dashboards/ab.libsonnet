// Two services, or a service and its baseline, side by side. How much do they differ? Is it more than chance, and is the
// comparison fair?
local g = import 'g.libsonnet';

function(config, common)
  local a = common.service;
  local b = common.other;
  local both = common.both;
  local nothing = common.nothing;
  local narrow = { 'custom.width': 84 };
  local level = ['cluster', 'namespace', 'inference_service', 'model_name'];
  local exporter = config.source == 'exporter';
  // By the order of the targets: their names contain variables.
  local nth(letter, properties) = g.override('byFrameRefID', letter, properties);
  local color(letter, color) = nth(letter, g.colored(color));

  // `of`: from quantities of a service to one of them. `baseline`: that of A.
  local stat(title, of, spec, baseline=null) = common.panel('stat', {
    title: title,
    targets: [common.last(a.current(of(a)), 'A: $inference_service'), common.last(b.current(of(b)), 'B: $compare_with')]
             + (if baseline == null then [] else [common.last(baseline, 'baseline of A')]),
    overrides: [color('A', 'blue'), color('B', 'orange'), color('C', 'text')],
    options: { textMode: 'value_and_name' },
    w: 8,
    h: 4,
  } + spec);

  // `spread`: how far chance moves the mean of one request, as a share of it. Of whole requests no baseline is kept: they take as
  // long as their answers.
  local effect(sli, title, spread, with_baseline=false) =
    local mean = { sli: sli, stat: 'mean' };
    local chance(sign) = {
      unit: 'suffix:x',
      help: 'Chance: 2.58 standard errors of the difference, from the number of requests.',
      expr: '1 %s %g * sqrt(\n  1 / (%s > 0)\n  + ignoring (inference_service) 1 / (%s > 0)\n)' % [sign, spread, a.record('requests').expr, b.record('requests').expr],
    };
    common.graph('A / B: mean ' + title, [
      common.series(a.record('latency', mean) { expr+: '\n/ ignoring (inference_service)\n' + b.record('latency', mean).expr }, 'A / B'),
      common.series(chance('+'), 'chance, up to'),
      common.series(chance('-'), 'chance, down to'),
    ] + (if with_baseline then [common.series(a.record('ratio', mean), 'A / its baseline')] else []), 'SpecDecodeNotPayingOff', 'Nothing to compare: one service has no requests, or they differ in cluster, namespace or model.', {
      about: 'Below 1, A is faster. Inside the band around 1, the difference may be chance. Both services must have the same cluster, '
             + 'namespace and model.',
      unit: 'suffix:x',
      decimals: 2,
      overrides: [
        color('A', 'blue'),
        nth('B', g.upper('yellow', 'chance, down to')),
        nth('C', g.lower('purple')),
        nth('D', g.dashes('text')),
      ],
      w: 12,
    });

  common.dashboard('ab', {
    title: 'Speculative decoding / A/B',
    description: 'Two services side by side. To compare a service with its baseline, choose it twice.',
    variables: common.variables(one=true, more=[common.otherServiceVariable]),
    annotations: common.annotations(a, true),
    rows: [
      g.row('Result', [
        stat('Measured speed-up', function(q) q.record('speedup'), { unit: 'suffix:x', decimals: 2, no_data: nothing.speedup, runbook: 'SpecDecodeNotPayingOff' }),
        stat(
          'Mean time per output token',
          function(q) q.record('latency', { sli: 'tpot', stat: 'mean' }),
          { no_data: nothing.traffic, runbook: 'SpecDecodeNotPayingOff' },
          a.record('baseline', { sli: 'tpot', stat: 'mean' })
        ),
        stat(
          'Acceptance rate',
          function(q) q.record('acceptance'),
          { decimals: 1, no_data: nothing.acceptance, runbook: 'SpecDecodeAcceptanceLow' },
          a.record('acceptance_usual', { what: 'ratio' })
        ),
        // Times per output token differ by half their mean, as the policy has it; whole requests by 1.25 times.
        effect('tpot', 'time per output token', 2.58 * 0.5, with_baseline=true),
        effect('e2e', 'end-to-end latency', 2.58 * 1.25),
      ], open=true),
      g.row('Is the comparison fair?', [
        common.table([
          ['Requests', both.current(both.record('requests')), narrow],
          ['Drafts', both.current(both.record('drafts')), narrow],
          ['Prompt', both.current(both.prompt_length), narrow],
          ['Answer', both.current(both.answer_length), narrow],
          ['Running', both.running_per_engine, narrow],
          ['KV cache', both.kv_cache, narrow { decimals: 0 }],
        ] + (if exporter then [[null, both.runs, {}, level + ['inference_engine', 'vllm_version', 'method', 'draft_model']]] else []), {
          title: 'Is the sample large enough, and is the comparison fair?',
          about: 'The two services should differ only in the thing under test: compare at the same load, with the same requests. '
                 + 'Prompt and Answer: mean length in tokens. Running: requests per engine.',
          options: { footer: { show: false, enablePagination: false } },  // two rows
          runbook: 'SpecDecodeNotPayingOff',
          no_data: nothing.traffic,
          w: 24,
          h: 5,
        }, labels=if exporter then [['inference_engine', 'Server'], ['vllm_version', 'vLLM'], ['method', 'Method'], ['draft_model', 'Draft model']] else []),
      ], open=true),
    ],
  })
