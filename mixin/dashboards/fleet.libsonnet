// All services. Which services need attention? Where is speculation missing, and where can nobody judge it?
local g = import 'g.libsonnet';

function(config, common)
  local query = common.fleet;
  local nothing = common.nothing;
  local level = config.level_labels;
  local service = std.filter(function(label) label != 'model_name', level);
  local colored(steps) = { 'custom.cellOptions': { type: 'color-text' }, thresholds: g.thresholds(steps) };
  local narrow(properties={}) = { 'custom.width': 70 } + properties;
  local tpot = { sli: 'tpot' };

  local services = common.servicesTable(
    query,
    [
      [
        'Status',
        'status',
        { mappings: common.states, 'custom.cellOptions': { type: 'color-background' }, 'custom.width': 120 },
        {},
        service,  // a service that cannot be read has no model
      ],
      ['Alerts', 'alerts_by_service', narrow({ decimals: 0, 'custom.width': 58 } + colored([[null, 'text'], [1, 'red']])), {}, service],
      [
        'Speed-up',
        'speedup',
        narrow({ unit: 'suffix:x', decimals: 2, 'custom.width': 80 } + colored([[null, 'text'], [0, 'red'], [1, 'orange'], [config.policy.latency.speedup_min, 'green']])),
      ],
      ['Acceptance', 'acceptance', narrow({ decimals: 0, 'custom.width': 98 })],
      ['Break-even', 'acceptance_min', narrow({ decimals: 0, 'custom.width': 94 })],
      ['TPOT', 'latency_mean', narrow(), tpot],
      [
        'Of base',
        'latency_ratio',
        narrow({ decimals: 0 } + colored([[null, 'text'], [0, 'green'], [1, 'text'], [config.policy.latency.slower_ratio, 'red']])),
        tpot,
      ],
      ['Running', 'running_lately', narrow({ decimals: 1 })],
      ['Waiting', 'waiting_lately', narrow({ decimals: 1 })],
      [null, 'what_runs', {}, {}, level + ['k', 'method']],
    ],
    {
      title: 'Services',
      about: 'What hurts comes first: services with a critical alert, then those with a warning, and among these the worst '
             + 'status: no metrics, broken, harmful, not paying off, slower. The name links to the dashboard of the service. '
             + 'Speed-up: measured. TPOT: mean time per output token, and its ratio to the baseline. Running: per engine.',
      no_data: nothing.exporter,
      w: 24,
      h: 12,
    },
    more=[['method', 'Method'], ['k', 'k']],
    ahead=1,
    first=['urgency', service],
  );

  common.dashboard('fleet', {
    title: 'Speculative decoding / Fleet',
    description: 'Every service with speculative decoding, and what is wrong with it.',
    variables: common.variables(one=false),
    annotations: common.annotations(query, false),
    rows: [
      g.row('What is wrong', [
        common.statusCounts(query, { title: 'Services by status', no_data: nothing.exporter, w: 24, h: 4 }),
        common.alertTable(query, false, { w: 24, h: 9 }),
      ], open=true),
      g.row('Services', [services], open=true),
      g.row('What is missing', [
        common.servicesTable(query, [
          ['Requests without a baseline', 'without_baseline', { unit: 'none', decimals: 0 }],
          ['Hours of history', 'history_hours', { decimals: 0 }],
          ['Tokens without speculation', 'speculation_unused', { decimals: 0 }],
          ['Running per engine', 'unused_batch', { decimals: 1 }],
        ], {
          title: 'Services without a baseline, and services without speculation',
          about: 'No alert fires when the latency of a service without a baseline gets worse. Speculation gains most on a service '
                 + 'that generates many tokens in small batches.',
          no_data: 'Every service that generates tokens also drafts, or is a live control, and has a baseline.',
          w: 24,
          h: 8,
        }),
      ]),
    ],
  })
