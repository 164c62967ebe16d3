// The row about the curve: acceptance by position, now and usually, and the effect of another k.
local g = import 'g.libsonnet';

function(config, common)
  local query = common.service;
  local nothing = common.nothing;
  local panel = common.panel;
  local series(name, legend, labels={}) = common.series(query, name, legend, labels);
  local last(name, legend, labels={}) = common.last(query, name, legend, labels);

  // One row per position, with the signals as columns.
  local byPosition(names) = {
    targets: [common.column(query, name, ['position']) for name in names],
    transformations: [g.merge],
  };
  local letters = ['A', 'B', 'C'];
  local curve(names, legends) = byPosition(names) + {
    transformations+: [
      g.columns(
        [['position', 'position']] + [
          [if std.length(names) == 1 then 'Value' else 'Value #' + letters[i], legends[i]]
          for i in std.range(0, std.length(names) - 1)
        ],
        ['Time']
      ),
      g.numbers('position'),
      g.sortBy('position'),
    ],
    x: 'position',
    min: 0,
    max: 1,
    runbook: 'SpecDecodeAcceptanceLow',
    no_data: nothing.acceptance,
  };

  // The yield of a draft, and the speed-up after its cost, which only the exporter measures.
  local bars = [['length_with', 'mean acceptance length']] + (
    if config.source == 'exporter'
    then [['speedup_at_least', 'speed-up, at least'], ['speedup_at_most', 'speed-up, at most']]
    else []
  );
  g.row('Curve', [
    panel('barchart', curve(['position_acceptance', 'position_acceptance_usual'], ['now', 'usual']) + {
      title: 'Acceptance by position, now and usually',
      about: 'A healthy curve falls gently. If it starts low, the draft model does not fit. If it drops suddenly, k is too large.',
      overrides: [g.color('now', 'blue'), g.color('usual', 'text')],
      w: 8,
      h: 8,
    }),
    panel(
      'trend',
      curve(
        ['position_acceptance', 'position_acceptance_usual', 'conditional_acceptance'], ['now', 'usual', 'conditional']
      ) + {
        title: 'Curve, and conditional rate',
        about: 'The conditional rate shows the acceptance of a position once it is reached. It falls where the draft model loses track.',
        overrides: [g.color('now', 'blue'), g.dashed('usual', 'text'), g.color('conditional', 'orange')],
        w: 8,
        h: 8,
      }
    ),
    panel('heatmap', {
      title: 'Acceptance by position over time',
      about: 'In a collapse, green turns red: either from the last position (top) down, or at all positions at once.',
      targets: [series('position_acceptance', '{{position}}')],
      min: 0,
      max: 1,
      runbook: 'SpecDecodeAcceptanceLow',
      no_data: nothing.acceptance,
      w: 8,
      h: 8,
    }),
    common.withExporter(panel('stat', {
      title: 'k now',
      about: 'The number of speculative tokens in use. Which k pays best, only recordings of several k tell.',
      targets: [last('positions_configured', 'now')],
      overrides: [g.color('now', 'text')],
      decimals: 0,
      runbook: 'SpecDecodeAcceptanceLow',
      no_data: 'Not known: the predictor cannot be reached, or it does not speculate.',
      w: 4,
      h: 7,
    })),
    panel('stat', {
      title: 'Fullness of drafts',
      about: 'Short drafts (n-gram, suffix, dynamic k) lower the end of the curve.',
      targets: [last('draft_fullness', 'mean draft length / k')],
      decimals: 0,
      thresholds: g.thresholds([[null, 'orange'], [1 - config.policy.short_draft_tolerance, 'green']]),
      no_data: nothing.acceptance,
      w: 4,
      h: 7,
    }),
    panel('barchart', {
      title: 'Effect of another k',
      about: 'Computed from the measured curve, so k goes up to the k in use. The speed-up lies between the two bars: one k does '
             + 'not tell how the cost depends on k. Without a measured cost there are none.',
      x: 'k',
      w: 16,
      h: 7,
      no_data: nothing.acceptance,
      targets: [common.column(query, bar[0], ['k']) for bar in bars],
      transformations: [
        g.merge,
        g.columns(
          [['k', 'k']] + [
            [if std.length(bars) == 1 then 'Value' else 'Value #' + letters[i], bars[i][1]]
            for i in std.range(0, std.length(bars) - 1)
          ],
          ['Time']
        ),
        g.sortBy('k'),
      ],
      decimals: 2,
      min: 0,
      overrides: [g.color('mean acceptance length', 'text'), g.color('speed-up, at least', 'blue'), g.color('speed-up, at most', 'light-blue')],
      runbook: 'SpecDecodeAcceptanceLow',
    }),
  ])
