// One service: is speculation worth it here, and what to do; then load, errors, tokens and latency, on the first screen with
// the answer; then why. Only what compares drafts with each other is folded.
local g = import 'g.libsonnet';

function(config, common)
  local q = common.chosen;
  local nothing = common.nothing;
  local series = common.series;
  local panel = common.panel;
  local graph = common.graph;
  local exporter = config.source == 'exporter';
  local exporters(list) = if exporter then list else [];
  local small = { w: 6, h: 6 };
  local quarter = if exporter then 6 else 8;  // without the exporter a panel is missing
  local gauge = g.colored('blue') { 'custom.cellOptions': { type: 'gauge', mode: 'basic', valueDisplayMode: 'text' }, min: 0, decimals: 0 };

  local answer = g.row('Answer', [
    common.withExporter(panel('stat', {
      title: 'Verdict',
      about: 'Is speculation worth it here? Only a measured speed-up is green.',
      targets: [common.last(q.verdict_of_service, '{{verdict}}')],
      overrides: common.named_verdicts,
      options: { colorMode: 'background', textMode: 'name' },
      no_data: nothing.verdict,
      w: 4,
      h: 3,
    })),
    // A table, because a cell wraps its text: that of a stat is one line, which a phone cuts.
    common.withExporter(panel('table', {
      title: 'What to do',
      about: 'The next step for this verdict. The alerts below say more.',
      targets: [common.column(q.verdict_of_service, ['verdict'])],
      unit: 'short',
      options: { cellHeight: 'lg', showHeader: false, footer: { show: false, enablePagination: false } },
      transformations: [g.columns([['verdict', 'What to do']], ['Time', 'Value'])],
      overrides: [g.named('What to do', {
        mappings: common.verdicts(3),
        'custom.cellOptions': { type: 'color-background', mode: 'basic', wrapText: true },
      })],
      no_data: 'Check that the exporter runs beside the predictor, and that Prometheus scrapes it.',
      w: 12,
      h: 3,
    })),
    common.withExporter(panel('table', {
      title: 'Replicas with another verdict',
      targets: [common.column(q.otherwise, ['pod', 'revision', 'verdict'])],
      unit: 'short',
      options: { showHeader: false, footer: { show: false, enablePagination: false } },
      transformations: [g.columns([['pod', 'Pod'], ['revision', 'Revision'], ['verdict', 'Verdict']], ['Time', 'Value'])],
      overrides: [g.named('Verdict', { mappings: common.verdicts() })],
      no_data: 'None.',
      w: 8,
      h: 3,
    })),
    common.alertTable(q, true, { w: 24, h: 6 }),
  ], open=true);

  local latency(sli, title, baselines=[]) =
    graph(title, [series(q.mean(sli), 'mean'), series(q.p99(sli), 'P99')] + [
      series(q.record('baseline', { sli: sli, stat: std.asciiLower(stat) }), stat + ' at baseline ({{source}})')
      for stat in baselines
    ], 'SpecDecodeP99Regression', nothing.traffic, small {
      about: 'The P99 is for reading only: alerts use the mean and the share of slow requests.',
      overrides: [
        g.color('mean', 'blue'),
        g.color('P99', 'orange'),
        g.like('^mean at baseline', g.dashes('purple')),
        g.like('^P99 at baseline', g.dashes('yellow')),
      ],
    });

  local load = g.row('Load and latency of chosen instances', [
    graph('Requests finished per second', [series(q.finished, 'finished')], 'SpecDecodeLoadTooHigh', nothing.traffic, small {
      overrides: [g.color('finished', 'blue')],
    }),
    graph('Aborted or failed, share of requests', [series(q.failed, '{{finished_reason}}')], 'README', nothing.traffic, small {
      custom: { axisSoftMax: 0.05 },
      overrides: [g.named('abort', g.colored('orange') { displayName: 'aborted' }), g.named('error', g.colored('red') { displayName: 'failed' })],
    }),
    graph('Requests running and waiting', [
      series(q.running, 'running'),
      series(q.waiting, 'waiting'),
      series(q.preemptions, 'preempted in half an hour'),
    ], 'SpecDecodeLoadTooHigh', nothing.predictor, small {
      about: 'In full batches, verifying drafts competes with other requests.',
      overrides: [g.color('running', 'blue'), g.color('waiting', 'orange'), g.color('preempted in half an hour', 'red')],
    }),
    graph('KV cache', [series(q.kv_cache, 'in use')] + exporters([series(q.kv_capacity, 'capacity in tokens')]), 'SpecDecodeLoadTooHigh', nothing.predictor, small {
      about: 'If the capacity falls with a deployment, a draft model or its KV cache took the memory.',
      custom: { axisSoftMax: 1 },
      overrides: [
        g.color('in use', 'blue'),
        g.named('capacity in tokens', g.colored('text') { unit: 'short', min: 0, 'custom.axisPlacement': 'right' }),
      ],
    }),
    graph('Tokens per second', [
      series(q.generated, 'generated'),
      series(q.per_second('draft_tokens', 'Draft tokens proposed per second.'), 'drafted'),
      series(q.per_second('accepted_tokens', 'Draft tokens accepted per second. Rejected draft tokens are wasted.'), 'accepted'),
    ], 'SpecDecodeNotDrafting', nothing.tokens, small {
      overrides: [g.color('generated', 'blue'), g.color('drafted', 'purple'), g.color('accepted', 'green')],
    }),
    // Of whole requests no baseline is kept: they take as long as their answers.
    latency('tpot', 'Time per output token', ['mean', 'P99']),
    latency('ttft', 'Time to first token', ['mean']),
    latency('e2e', 'End-to-end latency'),
  ], open=true);

  local why = g.row('Why?', [
    graph('Measured speed-up', [series(q.record('speedup'), 'speed-up')] + exporters([
      series(q.speedup_bound('high'), 'at most'),
      series(q.speedup_bound('low'), 'at least'),
    ]), 'SpecDecodeNotPayingOff', nothing.speedup, {
      about: 'The band is the 95 % interval.',
      unit: 'suffix:x',
      decimals: 2,
      overrides: [
        g.color('speed-up', 'blue'),
        g.named('at most', g.upper('green', 'at least')),
        g.named('at least', g.lower('orange')),
      ],
      w: quarter,
    } + common.limit(1)),
    graph('Acceptance rate, and output from drafts', [
      series(q.record('acceptance_now'), 'now'),
      series(q.record('acceptance_usual', { what: 'ratio' }), 'usual'),
      series(q.from_drafts, 'output from drafts'),
    ] + (if exporter then [
           series(q.break_even(true), 'break-even'),
           series(q.break_even(false), 'assumed break-even'),
         ] else [series(q.record('acceptance_min'), 'assumed break-even')]), 'SpecDecodeAcceptanceLow', nothing.acceptance, {
      about: 'An assumed break-even is a guess.',
      max: 1,
      overrides: [
        g.color('now', 'blue'),
        g.dashed('usual', 'purple'),
        g.color('output from drafts', 'green'),
        g.dashed('break-even', 'red'),
        g.dashed('assumed break-even', 'orange'),
      ],
      w: quarter,
    }),
    graph('Latency as % of baseline', [series(q.record('ratio'), '{{sli}}')], 'SpecDecodeP99Regression', nothing.baseline, {
      about: 'An alert fires while a mean stays above the line.',
      overrides: [g.named(sli[0], { displayName: sli[1] }) for sli in [['tpot', 'time per output token'], ['ttft', 'time to first token']]],
      w: quarter,
    } + common.limit(config.slower.ratio)),
    common.withExporter(graph('Verdict over time, by share of tokens', [series(q.record('verdict') { expr: 'sum by (verdict) (%s)' % super.expr }, '{{verdict}}')], 'README', nothing.verdict, {
      about: 'Two colors at a time: replicas have different verdicts, as in a rollout.',
      custom: { stacking: { group: 'A', mode: 'percent' }, fillOpacity: 60, lineWidth: 0 },
      overrides: common.named_verdicts,
      w: quarter,
    })),
    graph('Requests in the tail', [series(q.record('tail'), 'more than at baseline')], 'SpecDecodeP99Regression', 'Unknown without a baseline file or history.', {
      about: 'An alert fires above the line.',
      w: 12,
      h: 6,
    } + common.limit(config.tail.ticket)),
    graph('Length of prompts and answers', [series(q.prompt_length, 'prompt'), series(q.answer_length, 'answer')], 'SpecDecodeP99Regression', nothing.traffic, {
      about: 'When these grow with the latency, the requests changed, not the service.',
      w: 12,
      h: 6,
    }),
  ], open=true);

  local drafts = g.row('Which drafts pay?', [
    common.withExporter(common.table([
      ['Speed-up', q.speedup_by_load, { unit: 'suffix:x', decimals: 2 } + common.colored([[0, 'red'], [1, 'green']])],
      ['Request-steps', q.steps_by_load, gauge],
    ], {
      title: 'Speed-up by load',
      about: 'Covers the time that the dashboard shows. Below 1, speculation slows the service down at this load.',
      sort: [g.numbers('In decode'), g.sortBy('In decode')],
      overrides: [g.named('In decode', { 'custom.width': 90 })],
      options: { footer: { show: false, enablePagination: false } },
      runbook: 'SpecDecodeLoadTooHigh',
      no_data: nothing.speedup,
      w: quarter,
      h: 8,
    }, rows=['concurrency'], labels=[['concurrency', 'In decode']], ahead=1)),
    graph('Mean acceptance length', [
      series(q.record('length'), 'mean acceptance length'),
      series(q.draft_length, 'mean draft length'),
      series(q.break_even_length, 'break-even'),
    ], 'SpecDecodeAcceptanceLow', nothing.drafts, {
      decimals: 2,
      overrides: [g.dashed('break-even', 'red')],
      w: quarter,
    }),
    common.table([['Now', q.positions(), gauge { max: 1 }], ['Yesterday', q.positions('1h', ' offset 1d'), gauge { max: 1 }]], {
      title: 'Acceptance by position',
      sort: [g.numbers('Position'), g.sortBy('Position')],
      overrides: [g.named('Position', { 'custom.width': 90 })],
      about: 'A healthy curve falls gently. Positions near 0 cost time and give nothing.',
      options: { footer: { show: false, enablePagination: false } },
      runbook: 'SpecDecodeAcceptanceLow',
      no_data: nothing.acceptance,
      w: quarter,
      h: 8,
    }, rows=['position'], labels=[['position', 'Position']], ahead=1),
    graph('Acceptance by position over time', [series(q.positions(), 'position {{position}}')], 'SpecDecodeAcceptanceLow', nothing.acceptance, {
      about: 'In a collapse, lines fall either from the last position on, or at all positions at once.',
      max: 1,
      w: quarter,
    }),
  ]);

  local replica = '{{pod}} {{instance}} {{engine}}';
  local replicas = g.row('Replicas and events', [
    graph('Time per output token by replica', [
      series(q.replica_latency, replica),
      series(q.record('baseline', { sli: 'tpot', stat: 'mean' }), 'baseline'),
    ], 'SpecDecodeReplicaOutlier', nothing.traffic, {
      about: 'A replica slower than the others has a slower machine, other requests, or drafts that do not fit.',
      overrides: [g.dashed('baseline', 'text')],
    }),
    graph('Acceptance rate by replica', [series(q.replica_acceptance, replica)], 'SpecDecodeReplicaOutlier', nothing.acceptance, {
      about: 'A replica far from the others has another draft model, release or kind of requests.',
      max: 1,
    }),
    graph('Events', [
      series(q.unread, 'replicas that cannot be read'),
      series(q.starts, 'engines that started'),
    ] + exporters([series(q.warnings, 'warning: {{warning}}')]), 'SpecDecodeRestartLoop', 'No replica started, and no warning about speculation was logged.', {
      custom: { drawStyle: 'bars', fillOpacity: 60, axisSoftMax: 2 },
      // Warnings have the colors of the palette, which lacks these two.
      overrides: [g.color('replicas that cannot be read', 'semi-dark-red'), g.color('engines that started', 'semi-dark-purple')],
    }),
    common.withExporter(common.table([
      [null, q.replica_verdict, {}, ['pod', 'instance', 'revision', 'verdict']],
      [null, q.runs, {}, ['pod', 'instance', 'inference_engine', 'vllm_version', 'method', 'draft_model']],
    ], {
      title: 'Replicas: verdict, release, method, draft model',
      overrides: [g.named('Verdict', { mappings: common.verdicts(), 'custom.cellOptions': { type: 'color-text' }, 'custom.width': 140 })],
      no_data: nothing.predictor,
      w: 24,
      h: 7,
    }, rows=['pod', 'instance'], labels=[
      ['pod', 'Pod'],
      ['instance', 'Instance'],
      ['revision', 'Revision'],
      ['verdict', 'Verdict'],
      ['inference_engine', 'Server'],
      ['vllm_version', 'vLLM'],
      ['method', 'Method'],
      ['draft_model', 'Draft model'],
    ])),
  ], open=true);

  common.dashboard('service', {
    title: 'Speculative decoding / Service',
    description: 'Does speculative decoding pay off on this service? If not: why, and what to do?'
                 + (if exporter then '' else ' The service is not judged without the exporter.'),
    variables: common.variables(one=true, more=common.partVariables),
    annotations: common.annotations(q, true),
    rows: [answer, load, why, replicas, drafts],
  })
