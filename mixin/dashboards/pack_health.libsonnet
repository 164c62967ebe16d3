// Can the other dashboards and the alerts be believed? Data, scraping, logs, baselines.
local g = import 'g.libsonnet';

function(config, common)
  local q = common.fleet;
  local nothing = common.nothing;
  local exporter = config.source == 'exporter';
  local service = ['cluster', 'namespace', 'inference_service'];
  local level = service + ['model_name'];
  local yes_no = { mappings: common.yesNo('yes', 'no'), 'custom.cellOptions': { type: 'color-text' }, 'custom.width': 110 };
  // What the runbook of SpecDecodeDataUntrusted tells at length.
  local reasons = [
    ['positions_differ', 'Accepted tokens by position do not add up.'],
    ['several_processes', 'Several processes answer in turn at its URL.'],
    ['engine_left', 'An engine left the metrics of its predictor.'],
    ['baseline_old', 'The baseline file is old: record it anew.'],
    ['baseline_other_release', 'The baseline file is of another release of vLLM.'],
    ['baseline_other_method', 'The baseline file is of another method.'],
    ['baselines_differ', 'Replicas have different baseline files.'],
    ['prompts_longer', 'Prompts are longer than in the baseline file.'],
    ['histograms_missing', 'No latency histograms arrive.'],
  ];

  common.dashboard('pack', {
    title: 'Speculative decoding / Pack health',
    description: 'Can the other dashboards and the alerts be believed?',
    variables: common.variables(one=false),
    annotations: common.annotations(q, false),
    rows: [
      g.row('What is wrong', [
        common.table([[null, q.problems, {}, service + ['reason']]], {
          title: 'Figures that cannot be trusted',
          overrides: [g.named('Why', { mappings: g.mappings([[reason[0], reason[1], 'text'] for reason in reasons]) })],
          runbook: 'SpecDecodeDataUntrusted',
          no_data: 'No known problem.',
          w: 12,
          h: 7,
        }, rows=service, labels=[['reason', 'Why']], ahead=1),
        common.graph('Replicas that can be read', [common.series(q.read, 'read'), common.series(q.unread, 'not read')], 'SpecDecodeTargetDown', nothing.exporter, {
          overrides: [g.color('read', 'green'), g.color('not read', 'red')],
          w: 12,
          h: 7,
        }),
        // Of now only: the counters of all exporters at each step would take seconds.
        common.withExporter(common.panel('stat', {
          title: 'Failed reads in half an hour, by reason',
          targets: [common.last(q.fetch_failures, '{{reason}}')],
          options: { textMode: 'value_and_name' },  // a lone value would stand without its reason
          thresholds: g.thresholds([[null, 'orange']]),
          runbook: 'SpecDecodeTargetDown',
          no_data: 'No read failed, or no exporter is scraped.',
          w: 12,
          h: 4,
        })),
        common.withExporter(common.panel('stat', {
          title: 'Exporters by version, and those that refused their configuration',
          about: 'This panel shows all services.',
          targets: [common.last(q.exporters, '{{version}}'), common.last(q.refused, 'refused')],
          overrides: [g.named('refused', { color: { mode: 'thresholds' }, thresholds: g.thresholds([[null, 'text'], [1, 'red']]) })],
          no_data: nothing.exporter,
          w: 12,
          h: 4,
        })),
      ], open=true),
      g.row('Scrapes, logs, baselines', [
        common.table([
          ['Readable', q.readable, { decimals: 0 } + common.colored([[0, 'red'], [1, 'green']])],
        ] + (if exporter then [
               ['Reads metrics', q.collector('metrics'), yes_no],
               ['Reads log', q.collector('log'), yes_no],
               ['Processes', q.processes, common.colored([[2, 'orange']])],
               ['Log errors', q.log_errors, { decimals: 2 } + common.colored([[0.0001, 'red']])],
               ['Last line', q.log_age],
             ] else []), {
          title: 'Services',
          about: 'Services with the fewest readable replicas come first.',
          sort: [g.sortBy('Readable')],
          runbook: 'SpecDecodeTargetDown',
          no_data: nothing.exporter,
          w: 24,
          h: 9,
        }, rows=service),
        common.table([
          ['Requests', q.current(q.record('requests'))],
          ['TPOT', q.record('baseline', { sli: 'tpot', stat: 'mean' }), {}, level + ['source']],
        ] + (if exporter then [
               ['Load now / then', q.load_ratio, { decimals: 0 } + common.colored([[config.baseline_load_max, 'orange']])],
               ['Age of the file', q.baseline_age],
             ] else []), {
          title: 'Baselines',
          about: 'A dash means no baseline. TPOT: mean time per output token at baseline. Record a file again after a '
                 + 'change of model, hardware or release.',
          no_data: nothing.baseline,
          w: 24,
          h: 8,
        }, labels=[['source', 'Baseline']], ahead=1),
      ], open=true),
    ],
  })
