// All services: which need attention?
local g = import 'g.libsonnet';

function(config, common)
  local q = common.fleet;
  local service = ['cluster', 'namespace', 'inference_service'];
  local level = service + ['model_name'];
  local mean = { sli: 'tpot', stat: 'mean' };
  local narrow = { 'custom.width': 80 };
  local exporter = config.source == 'exporter';

  local no_metrics = q.record('up') { help: 'No metrics: services of which no replica can be read.', expr: 'max by (%s) (%s) == 0' % [config.service, super.expr] };
  local counted = q.verdict {
    expr: 'count by (verdict) (%s)\nor label_replace(count(%s), "verdict", "no_metrics", "", "")' % [super.expr, no_metrics.expr],
  };
  local tiles = [['no_metrics', 'No metrics', 'dark-purple']] + common.words;
  local worst = {
    unit: 'short',
    help: 'The most severe alert that fires for the service.',
    expr: '3 * %s\nor 2 * %s' % [q.firing(['severity="critical"']), q.firing(['severity="warning"'])],
  };

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
          targets: [common.column(counted, ['verdict']) { help: q.verdict.help + ' ' + no_metrics.help }],
          transformations: [
            g.columns([], ['Time']),
            g.rowsToFields('verdict', 'Value'),
            g.columns([[tile[0], tile[1]] for tile in tiles], []),
          ],
          overrides: [g.color(tile[1], tile[2]) for tile in tiles],
          options: { orientation: 'vertical', justifyMode: 'center', textMode: 'value_and_name' },
          no_data: common.nothing.exporter,
          w: 24,
          h: 4,
        })),
        common.alertTable(q, false, { w: 24, h: 8 }),
      ], open=true),
      g.row('Services', [
        common.table(
          (if exporter then [[null, q.verdict, {}, level + ['verdict']]] else []) + [
            ['Alerts', worst, narrow { mappings: g.mappings([['3', 'critical', 'red'], ['2', 'warning', 'orange']]), 'custom.cellOptions': { type: 'color-text' } }, service],
            ['Speed-up', q.record('speedup'), narrow { unit: 'suffix:x', decimals: 2 } + common.colored([[0, 'red'], [1, 'orange'], [config.speedup.wanted, 'green']])],
            ['Length', q.record('length'), narrow { decimals: 2 }],
            ['Acceptance', q.record('acceptance'), { decimals: 0, 'custom.width': 98 }],
            ['Break-even', q.record('acceptance_min'), { decimals: 0, 'custom.width': 94 }],
            ['TPOT', q.record('latency', mean), narrow],
            ['Of baseline', q.record('ratio', mean), { decimals: 0, 'custom.width': 94 } + common.colored([[config.slower_ratio, 'red']])],
            [null, q.record('ratio', mean), {}, level + ['source']],
            ['Tokens', q.record('tokens'), narrow { decimals: 0 }],
            ['Readable', q.record('up'), narrow { mappings: common.yesNo('yes', 'no'), 'custom.cellOptions': { type: 'color-text' } }, service],
          ],
          {
            title: 'Services',
            about: 'Services with alerts come first. The name links to the dashboard of the service. TPOT: mean time per output token.'
                   + ' Where no baseline stands, no alert fires when latency gets worse.',
            sort: [g.sortBy('Alerts', descending=true)],
            overrides: [
              g.named('Verdict', { mappings: common.verdicts(), 'custom.cellOptions': { type: 'color-background' }, 'custom.width': 120 }),
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
