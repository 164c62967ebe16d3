// The row about the curve: acceptance by position, now and as usual, and what another k would give.
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
    runbook: 'SpecDecodeTailCollapsed',
    no_data: nothing.drafts,
  };

  local byK = query.parts('length_with');
  g.row('Curve', [
    panel('barchart', curve(['position_acceptance', 'position_acceptance_usual'], ['now', 'usual']) + {
      title: 'Acceptance by position, now and as usual',
      about: 'Healthy curves fall gently. Low at the first position: the draft model does not fit. A cliff: k is too large.',
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
        about: 'The conditional rate says how good each position is once it is reached. It falls where the drafter runs out.',
        overrides: [g.color('now', 'blue'), g.dashed('usual', 'text'), g.color('conditional', 'orange')],
        w: 8,
        h: 8,
      }
    ),
    panel('heatmap', {
      title: 'Acceptance by position over time',
      about: 'A collapse shows as green that turns red, from the last position (top) or from all at once.',
      targets: [series('position_acceptance', '{{position}}')],
      min: 0,
      max: 1,
      runbook: 'SpecDecodeTailCollapsed',
      no_data: nothing.drafts,
      w: 8,
      h: 8,
    }),
    common.withExporter(panel('stat', {
      title: 'k now and supported',
      about: 'The number of speculative tokens that runs, and the one that the curve supports.',
      targets: [last('positions_configured', 'now'), last('positions_recommended', 'recommended')],
      overrides: [g.color('now', 'text'), g.color('recommended', 'blue')],
      decimals: 0,
      runbook: 'SpecDecodeTailCollapsed',
      no_data: 'Not known: too few drafts, short drafts, or the predictor cannot be reached.',
      w: 4,
      h: 7,
    })),
    panel('stat', {
      title: 'Fullness of drafts',
      about: 'Short drafts (n-gram, suffix, dynamic k) bend the curve down at its end.',
      targets: [last('draft_fullness', 'mean draft length / k')],
      decimals: 0,
      thresholds: g.thresholds([[null, 'orange'], [1 - config.policy.short_draft_tolerance, 'green']]),
      no_data: nothing.drafts,
      w: 4,
      h: 7,
    }),
    panel('barchart', {
      title: 'What another k would give',
      about: 'From the measured curve, so only for k up to the one that runs.',
      x: 'k',
      w: 16,
      h: 7,
      no_data: nothing.drafts,
      // Two columns: what a draft yields, and what is left after its cost.
      local all(name) = g.tableTarget(std.join('\nor\n', [
        'label_replace(%s, "k", "%s", "", "")' % ['max by (model_name) (%s)' % query.expr(name, { k: k }), k]
        for k in byK
      ])) { help:: query.signal(name).help, unit:: 'short' },
      targets: [all('length_with'), all('speedup_with')],
      transformations: [
        g.merge,
        g.columns(
          [['k', 'k'], ['Value #A', 'mean acceptance length'], ['Value #B', 'expected speed-up']],
          ['Time', 'model_name']
        ),
        g.sortBy('k'),
      ],
      decimals: 2,
      min: 0,
      overrides: [g.color('mean acceptance length', 'text'), g.color('expected speed-up', 'blue')],
      runbook: 'SpecDecodeTailCollapsed',
    }),
  ])
