// All services: which need attention?
local g = import 'g.libsonnet';

function(config, common)
  local q = common.fleet;
  local service = ['cluster', 'namespace', 'inference_service'];
  local level = service + ['model_name'];
  local mean = { sli: 'tpot', stat: 'mean' };
  local narrow = { 'custom.width': 78 };
  local exporter = config.source == 'exporter';

  local figure(name, labels={}) = q.current(q.record(name, labels));
  local counted = q.verdict {
    unit: 'none',
    help+: ' ' + q.no_metrics.help,
    expr: 'count by (verdict) (%s\nor %s)' % [super.expr, q.no_metrics.expr],
  };
  local severity = q.severity { expr+: ' or 0 * ' + q.record('up').expr };  // or nothing would sort services without alerts

  common.dashboard('fleet', {
    title: 'Speculative decoding / Fleet',
    description: 'Every service with speculative decoding, and what is wrong with it.'
                 + (if exporter then '' else ' Services are not judged without the exporter.'),
    variables: common.variables(one=false),
    annotations: common.annotations(q, false),
    rows: [
      g.row('What is wrong', [
        common.withExporter(common.panel('stat', {
          title: 'Services by verdict',
          targets: [common.column(counted, ['verdict'])],
          transformations: [
            g.columns([], ['Time']),
            g.rowsToFields('verdict', 'Value'),
            g.columns([[word[0], word[1]] for word in common.words], []),
          ],
          overrides: [g.color(word[1], word[2]) for word in common.words],
          options: { orientation: 'vertical', justifyMode: 'center', textMode: 'value_and_name' },
          no_data: common.nothing.exporter,
          w: 24,
          h: 4,
        })),
        common.alertTable(q, false, { w: 24, h: 9 }),
      ], open=true),
      g.row('Services', [
        common.table(
          (if exporter then [[null, q.verdict, {}, level + ['verdict']], [null, q.no_metrics, {}, service + ['verdict']]] else []) + [
            ['Alerts', severity, narrow + common.severity, service],
            ['Speed-up', figure('speedup'), { unit: 'suffix:x', decimals: 2, 'custom.width': 86 } + common.colored([[0, 'red'], [1, 'orange'], [config.speedup.wanted, 'green']])],
            ['Length', figure('length'), narrow { decimals: 2 }],
            ['Acceptance', figure('acceptance'), { decimals: 0, 'custom.width': 98 }],
            ['Break-even', figure('acceptance_min'), { decimals: 0, 'custom.width': 94 }],
            ['TPOT', figure('latency', mean), narrow],
            ['Of baseline', figure('ratio', mean), { decimals: 0, 'custom.width': 94 } + common.colored([[config.slower.ratio, 'red']])],
            [null, figure('ratio', mean), {}, level + ['source']],
            ['Tokens', figure('tokens'), narrow { decimals: 0 }],
            ['Readable', q.record('up'), narrow { mappings: common.yesNo('yes', 'no'), 'custom.cellOptions': { type: 'color-text' } }, service],
          ],
          {
            title: 'Services',
            about: 'Services with alerts come first. Without metrics a service has no figures. The name links to the dashboard of the service. TPOT: mean time per output token.'
                   + ' Without a baseline, no alert fires when latency gets worse.',
            sort: [g.sortBy('Alerts', descending=true)],
            overrides: [
              g.named('Verdict', { mappings: common.verdicts(), 'custom.cellOptions': { type: 'color-background' }, 'custom.width': 116 }),
              g.named('Baseline', { 'custom.width': 80 }),
            ],
            no_data: common.nothing.exporter,
            w: 24,
            h: 12,
          },
          labels=(if exporter then [['verdict', 'Verdict']] else []) + [['source', 'Baseline']],
          ahead=if exporter then 1 else 0
        ),
      ], open=true),
    ],
  })
