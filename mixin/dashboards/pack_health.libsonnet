// Can the other dashboards and the alerts be believed? Scraping, reading, rules, baselines.
local g = import 'g.libsonnet';

function(config, common)
  local query = common.fleet;
  local nothing = common.nothing;
  local panel = common.panel;
  local series(name, legend, labels={}, over=null) = common.series(query, name, legend, labels, over);
  local last(name, legend, labels={}, over=null) = common.last(query, name, legend, labels, over);
  local graph(title, targets, spec) = panel('timeseries', { title: title, targets: targets, min: 0, w: 12, h: 7 } + spec);
  local with_exporter = config.source == 'exporter';
  local level = config.level_labels;
  local service = std.filter(function(label) label != 'model_name', level);
  local colored(steps) = { 'custom.cellOptions': { type: 'color-text' }, thresholds: g.thresholds(steps) };
  // A column about scrapes or the log. Their series have no model.
  local ofTarget(title, name, properties={}, labels={}) = [title, name, properties, labels, service];
  local read = [
    ofTarget('Reads ' + collector, 'collector_' + collector, {
      'custom.width': 108,
      mappings: common.yesNo('yes', 'no'),
      'custom.cellOptions': { type: 'color-text' },
    })
    for collector in ['metrics', 'log']
  ];

  common.dashboard('pack', {
    title: 'Speculative decoding / Pack health',
    description: 'Can the other dashboards and the alerts be believed?',
    variables: common.variables(one=false),
    annotations: common.annotations(query, false),
    rows: [
      g.row('What is wrong', [
        panel('stat', {
          title: 'Alerts about the pack itself',
          targets: [last('pack_alerts', '{{alertname}}')],
          overrides: [],
          thresholds: g.thresholds([[null, 'text'], [1, 'orange']]),
          no_data: nothing.alerts,
          w: if with_exporter then 12 else 24,
          h: 4,
        }),
        common.withExporter(panel('stat', {
          title: 'Exporters by version, and those that refused their configuration',
          about: 'An exporter refuses a wrong file and keeps the old one. This panel shows all services.',
          targets: [last('exporter_version', '{{version}}'), last('reloads_failed', 'refused')],
          overrides: [
            g.named('refused', { color: { mode: 'thresholds' }, thresholds: g.thresholds([[null, 'text'], [1, 'red']]) }),
          ],
          no_data: nothing.exporter,
          w: 12,
          h: 4,
        })),
        graph('Replicas that can be read', [series('replicas_read', 'read'), series('replicas_unread', 'not read')], {
          overrides: [g.color('read', 'green'), g.color('not read', 'red')],
          runbook: 'SpecDecodeTargetDown',
          no_data: nothing.exporter,
          w: if with_exporter then 12 else 24,
        }),
        // Of now only: the counters of all exporters at each step would take seconds.
        common.withExporter(panel('stat', {
          title: 'Failed reads within %s, by reason' % common.long,
          targets: [last('fetch_failures', '{{reason}}', {}, 'sum by (reason)')],
          overrides: [],
          decimals: 0,
          options: { textMode: 'value_and_name' },  // a lone value would stand without its reason
          thresholds: g.thresholds([[null, 'orange']]),
          runbook: 'SpecDecodeTargetDown',
          no_data: 'No read failed, or no exporter is scraped.',
          w: 12,
          h: 7,
        })),
        common.servicesTable(query, [
          ofTarget('Readable', 'up_share', { decimals: 0 } + colored([[null, 'text'], [0, 'red'], [1, 'green']])),
        ] + (
          if with_exporter then read + [
            ofTarget('Duration', 'collector_seconds'),
            ofTarget('Processes', 'processes', { decimals: 0 } + colored([[null, 'text'], [2, 'orange']])),
            ofTarget('Log lines', 'log_lines_now', { decimals: 1 }),
            ofTarget('Log errors', 'log_errors_now', { decimals: 2 } + colored([[null, 'text'], [0.0001, 'red']])),
            ofTarget('Not read yet', 'log_bytes_behind'),
            ofTarget('Last line', 'log_age'),
          ] else []
        ), {
          title: 'Services',
          about: 'Services with the fewest readable replicas come first.',
          sort: [g.sortBy('Readable')],
          runbook: 'SpecDecodeTargetDown',
          no_data: nothing.exporter,
          w: 24,
          h: 9,
        }, rows=service),
      ], open=true),
      g.row('Rules and baselines', [
        graph('Rules: duration / interval, and missed evaluations', [
          series('rules_busy', 'duration / interval of the slowest group', {}, 'max'),
          series('rules_missed', 'missed evaluations of all groups', {}, 'sum'),
        ], {
          about: 'This panel shows all services.',
          overrides: [
            g.override('byRegexp', '/^missed/', { unit: 'short', 'custom.axisPlacement': 'right', 'custom.drawStyle': 'bars' }),
          ],
          thresholds: g.thresholds([[null, 'transparent'], [query.signal('rules_busy').most, 'red']]),
          custom: { thresholdsStyle: { mode: 'dashed' }, axisSoftMax: 2 * query.signal('rules_busy').most },
          runbook: 'SpecDecodeRulesLagging',
          no_data: 'The ruler does not publish its own metrics here: scrape it.',
          w: 24,
        }),
        common.servicesTable(query, [
          ['Mean', 'latency_baseline', { 'custom.width': 72 }, {}, level + ['sli', 'baseline_source']],
          ['Requests', 'requests_baseline', { unit: 'none', decimals: 0, 'custom.width': 84 }],
        ] + (if with_exporter then [['Age', 'baseline_age', { 'custom.width': 72 }, {}, level]] else []), {
          title: 'Baselines',
          about: 'The baseline of each service and its number of requests. A baseline from history has no number: it is always '
                 + 'large enough. Record a file again after a change of model, hardware or release.',
          no_data: nothing.baseline,
          w: 24,
          h: 8,
        }, more=[['sli', 'Latency'], ['baseline_source', 'Source']], rows=level + ['sli']),
      ]),
    ],
  })
