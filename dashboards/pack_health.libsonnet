// Can the other dashboards and the alerts be believed? Scraping, reading, rules, baselines, buckets.
local g = import 'g.libsonnet';

function(config, common)
  local query = common.fleet;
  local nothing = common.nothing;
  local panel = common.panel;
  local slis = ['tpot', 'ttft', 'e2e'];
  local series(name, legend, labels={}, over=null) = common.series(query, name, legend, labels, over);
  local last(name, legend, labels={}) = common.last(query, name, legend, labels);
  local graph(title, targets, spec) = panel('timeseries', { title: title, targets: targets, min: 0, w: 8, h: 7 } + spec);
  local limit(value) = {
    thresholds: g.thresholds([[null, 'transparent'], [value, 'red']]),
    custom: { thresholdsStyle: { mode: 'dashed' }, axisSoftMax: 2 * value },
  };
  local quarter = if config.source == 'exporter' then 6 else 12;  // without the exporter, two panels are left
  local level = config.level_labels;
  local service = std.filter(function(label) label != 'model_name', level);
  local colored(steps) = { 'custom.cellOptions': { type: 'color-text' }, thresholds: g.thresholds(steps) };
  // A column about scrapes or the log. Their series have no model.
  local ofTarget(title, name, properties={}, labels={}) = [title, name, properties, labels, service];
  local read = [
    ofTarget('Reads ' + collector, 'collector_' + collector, {
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
      g.row('Scraping', [
        panel('stat', {
          title: 'Replicas that can be read',
          targets: [last('replicas_read', 'read'), last('replicas_unread', 'not read')],
          overrides: [
            g.color('read', 'green'),
            g.named('not read', { color: { mode: 'thresholds' }, thresholds: g.thresholds([[null, 'text'], [1, 'red']]) }),
          ],
          runbook: 'SpecDecodeTargetDown',
          no_data: nothing.exporter,
          w: 6,
          h: 4,
        }),
        common.withExporter(panel('stat', {
          title: 'Configurations refused',
          about: 'An exporter refuses a wrong file and keeps the old one. This panel shows all services.',
          targets: [last('reloads_failed', 'exporters')],
          thresholds: g.thresholds([[null, 'green'], [1, 'red']]),
          no_data: nothing.exporter,
          w: 6,
          h: 4,
        })),
        common.withExporter(panel('stat', {
          title: 'Exporters by version',
          about: 'This panel shows all services.',
          targets: [last('exporter_version', '{{version}}')],
          no_data: nothing.exporter,
          w: 6,
          h: 4,
        })),
        panel('stat', {
          title: 'Alerts about the pack itself',
          targets: [last('pack_alerts', '{{alertname}}')],
          overrides: [],
          thresholds: g.thresholds([[null, 'text'], [1, 'orange']]),
          no_data: nothing.alerts,
          w: 6,
          h: 4,
        }),
        graph('Replicas that can be read, over time', [series('replicas_read', 'read'), series('replicas_unread', 'not read')], {
          overrides: [g.color('read', 'green'), g.color('not read', 'red')],
          runbook: 'SpecDecodeTargetDown',
          no_data: nothing.exporter,
          w: quarter,
        }),
        common.withExporter(graph('Failed reads by reason', [series('fetch_failures', '{{reason}}', {}, 'sum by (reason)')], {
          runbook: 'SpecDecodeTargetDown',
          no_data: 'No read failed, or no exporter is scraped.',
          w: quarter,
        })),
        graph('Age of the data', [series('data_age', 'oldest', {}, 'max')], {
          runbook: 'SpecDecodeTargetDown',
          no_data: 'No predictor could be read for an hour.',
          w: quarter,
        } + limit(config.short_window_seconds)),
        common.withExporter(graph('Duration of reading', [series('collector_seconds', '{{collector}}', {}, 'max by (collector)')], {
          about: 'The slowest replica. A scrape is lost when it takes longer than its timeout.',
          runbook: 'SpecDecodeTargetDown',
          no_data: nothing.exporter,
          w: quarter,
        })),
        common.servicesTable(query, [
          ofTarget('Readable', 'up_share', { decimals: 0 } + colored([[null, 'text'], [0, 'red'], [1, 'green']])),
          ofTarget('Data age', 'data_age', colored([[null, 'text'], [config.short_window_seconds, 'red']])),
        ] + (
          if config.source == 'exporter' then read + [
            ofTarget('Duration', 'collector_seconds'),
            ofTarget('Processes', 'processes', { decimals: 0 } + colored([[null, 'text'], [2, 'orange']])),
            ofTarget('Log lines', 'log_lines_now', { decimals: 1 }),
            ofTarget('Of interest', 'log_matched_lines_now', { decimals: 2 }),
            ofTarget('Log errors', 'log_errors_all_now', { decimals: 2 } + colored([[null, 'text'], [0.0001, 'red']])),
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
    ] + (
      if config.source != 'exporter' then [] else [
        g.row('Log reader', [
          graph('Lines read', [series('log_lines_now', 'all', {}, 'sum'), series('log_matched_lines_now', 'of interest', {}, 'sum')], {
            no_data: nothing.log,
            w: 6,
          }),
          graph('Errors', [
            series('log_errors_now', kind, { 'error': kind }, 'sum')
            for kind in query.parts('log_errors_now')
          ], { no_data: nothing.log, w: 6 }),
          graph('Not read yet', [series('log_bytes_behind', 'most', {}, 'max')], { no_data: nothing.log, w: 6 }),
          graph('Age of the last line', [series('log_age', 'oldest', {}, 'max')], { no_data: nothing.log, w: 6 }),
        ]),
      ]
    ) + [
      g.row('Rules', [
        graph('Duration / interval', [series('rules_busy', '{{rule_group}}')], {
          about: 'This panel shows all services.',
          runbook: 'SpecDecodeRulesLagging',
          no_data: 'The ruler does not publish its own metrics here: scrape it.',
          w: 12,
        } + limit(query.signal('rules_busy').most)),
        graph('Missed evaluations', [series('rules_missed', '{{rule_group}}')], {
          about: 'This panel shows all services.',
          runbook: 'SpecDecodeRulesLagging',
          no_data: 'The ruler does not publish its own metrics here: scrape it.',
          w: 12,
        }),
      ]),
      g.row('Baselines', [
        graph('Services by source of the baseline', [series('baseline_sources', '{{sli}} {{baseline_source}}')], {
          about: 'A live control is best, a file comes next. History is used where there is neither.',
          no_data: nothing.baseline,
          w: 6,
        }),
        common.withExporter(graph('Age of baselines from files', [series('baseline_age', 'oldest', {}, 'max')], {
          about: 'Record a new baseline after a change of model, hardware or release.',
          no_data: 'No exporter has a baseline file.',
          w: 6,
        })),
        common.servicesTable(query, [
          ['Requests in ' + common.long, 'without_baseline', { unit: 'none', decimals: 0 }],
          ['Hours of history', 'history_hours', { decimals: 0 }],
        ], {
          title: 'Services without a baseline',
          no_data: 'Every service that drafts has a baseline.',
          w: 12,
          h: 7,
        }, more=[['sli', 'Latency']], rows=level + ['sli']),
        common.servicesTable(query, [
          ['Mean', 'latency_baseline', {}, {}, level + ['sli', 'baseline_source']],
          ['Requests', 'requests_baseline', { unit: 'none', decimals: 0 }],
        ], {
          title: 'Baselines',
          about: 'The baseline of each service and its number of requests. A baseline from history has no number: it is always large enough.',
          no_data: nothing.baseline,
          w: 24,
          h: 8,
        }, more=[['sli', 'Latency'], ['baseline_source', 'Source']], rows=level + ['sli']),
      ]),
      g.row('Buckets and counters', [
        common.servicesTable(query, [[sli, 'bounds', { decimals: 0 }, { sli: sli }] for sli in slis], {
          title: 'Bucket sets: boundaries by latency',
          about: 'Quantiles of services with different bucket sets are not comparable.',
          runbook: 'SpecDecodeDataUntrusted',
          no_data: nothing.predictor,
          w: 12,
          h: 8,
        }),
        common.servicesTable(query, [['Unevenness', 'buckets_mixed', { decimals: 1 }]], {
          title: 'Mixed buckets',
          runbook: 'SpecDecodeDataUntrusted',
          no_data: 'All replicas of each service have the same buckets.',
          w: 12,
          h: 8,
        }, more=[['sli', 'Latency']], rows=level + ['sli']),
        graph('Positions against totals', [series('inconsistency', '{{inference_service}} {{model_name}}')], {
          custom: { axisSoftMax: 0.01 },
          w: 24,
          runbook: 'SpecDecodeDataUntrusted',
          no_data: 'The positions add up to the total on every service.',
        }),
      ]),
    ],
  })
