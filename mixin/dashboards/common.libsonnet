// Shared by all dashboards: variables, annotations, links, words for states, and panels that explain themselves.
local promql = import '../rules/promql.libsonnet';
local g = import 'g.libsonnet';
local queries = import 'queries.libsonnet';

// `alerts`: summary and action of each alert of the pack, by `name/severity/reason/container`.
function(config, alerts)
  local queriesOf = queries(config);
  local uids = {
    fleet: config.fleet_dashboard_uid,
    service: config.dashboard_uid,
    ab: config.comparison_dashboard_uid,
    pack: config.pack_dashboard_uid,
  };
  local kept(names) = std.join('&', ['${%s:queryparam}' % name for name in names]);
  local runbook(name) = config.runbook_url_prefix + name + '.md';

  {
    local common = self,

    // Queries about one service, about the service to compare with, and about all selected services.
    service:: queriesOf('="$inference_service"'),
    other:: queriesOf('="$compare_with"'),
    fleet:: queriesOf('=~"$inference_service"'),

    short:: promql.duration(config.short_window_seconds),
    long:: promql.duration(config.long_window_seconds),

    // --- Variables: each offers only values within the choices before it --------------------------------------------------
    local values(query, label) = 'label_values(' + query + ', ' + label + ')',
    local chain(labels) = std.join(', ', ['%(label)s=~"$%(label)s"' % { label: label } for label in labels]),
    // A series that every scraped service has, also while its predictor cannot be read.
    local services =
      if config.source == 'exporter' then 'specdec_up' else common.fleet.record('generation_tokens_now'),
    local serviceVariable(name, label, all) =
      g.variable(name, label, values(services + '{' + chain(['cluster', 'namespace']) + '}', 'inference_service'), all),
    // `one`: the dashboard is about one service. `more`: variables between service and model.
    variables(one, more=[]):: [
      g.datasourceVariable('Data source'),
      g.variable('cluster', 'Cluster', values(services, 'cluster'), true) + (if config.show_multi_cluster then {} else { hide: 2 }),
      g.variable('namespace', 'Namespace', values(services + '{' + chain(['cluster']) + '}', 'namespace'), true),
      serviceVariable('inference_service', 'Service', !one),
    ] + more + [
      g.variable(
        'model_name',
        'Model',
        values(
          '%(record)s{%(matchers)s, inference_service%(operator)s"$inference_service"}' % {
            record: common.fleet.record('generation_tokens_now'),
            matchers: chain(['cluster', 'namespace']),
            operator: if one then '=' else '=~',
          },
          'model_name'
        ),
        true
      ),
    ],
    otherServiceVariable:: serviceVariable('compare_with', 'Compare with', false),

    // --- Annotations -------------------------------------------------------------------------------------------------
    annotations(query, enable):: [
      g.annotation('Alerts', query.expr('alerts'), 'red', '{{alertname}} ({{severity}})', '{{inference_service}} {{sli}}', enable),
      g.annotation('Starts', query.expr('restarts'), 'purple', 'A replica started', '{{inference_service}}', enable),
    ] + (
      if config.source != 'exporter' then [] else [
        g.annotation(
          'Deployments',
          query.expr('changes'),
          'blue',
          'Release, method or draft model changed',
          '{{inference_service}}: vLLM {{vllm_version}}, {{method}} {{draft_model}}',
          enable
        ),
      ]
    ),

    // --- Links -------------------------------------------------------------------------------------------------------
    // From a dashboard to the others. A link to a dashboard about one service keeps the selected service.
    links(from)::
      local one = std.member(['service', 'ab'], from);
      local place = ['datasource', 'cluster', 'namespace'];
      [
        g.dashboardLink(
          target.title,
          target.tooltip,
          '/d/' + uids[target.name] + '?'
          + kept(place + (if one && target.name != 'fleet' then ['inference_service', 'model_name'] else []))
        )
        for target in [
          { name: 'fleet', title: 'Fleet', tooltip: 'All services' },
          { name: 'service', title: 'Service', tooltip: 'One service in depth' },
          { name: 'ab', title: 'A/B', tooltip: 'Two services, or a service and its baseline' },
          { name: 'pack', title: 'Pack health', tooltip: 'Can the figures be believed?' },
        ]
        if target.name != from
      ] + [g.dashboardLink('Runbooks', 'What to do, by alert', runbook('README')) { icon: 'doc', keepTime: false, targetBlank: true }],

    // For a table row whose columns are the labels. A missing column gives an empty value, which selects series without that
    // label.
    toService:: g.link(
      'Open the service',
      '/d/%(uid)s?${datasource:queryparam}&%(variables)s&${__url_time_range}' % {
        uid: uids.service,
        variables: std.join('&', [
          'var-%(label)s=${__data.fields.%(label)s:percentencode}' % { label: label }
          for label in config.level_labels
        ]),
      },
      false
    ),
    toRunbook:: g.link('Open the runbook', config.runbook_url_prefix + '${__data.fields.alertname}.md'),

    // --- Words -------------------------------------------------------------------------------------------------------
    // Worst first. Without a measurement, 10 is added to what acceptance alone says: nothing of that is green.
    local states = [
      [9, 'No metrics', 'dark-purple'],
      [5, 'Broken', 'dark-red'],
      [15, 'Broken', 'dark-red'],
      [4, 'Harmful', 'red'],
      [14, 'Harmful', 'red'],
      [3, 'Not paying off', 'orange'],
      [6, 'Slower', 'dark-yellow'],
      [7, 'Not drafting', 'purple'],
      [2, 'Watch', 'yellow'],
      [-1, 'No verdict', 'text'],
      [11, 'Not measured', 'text'],
      [1, 'Healthy', 'green'],
      [0, 'Idle', 'blue'],
      [-2, 'Speculation off', 'text'],
    ],
    local advice = {
      '9': 'Look at the pods: are they starting, crashed or out of memory?',
      '7': 'Look for sampling parameters, a batch size limit, or prompts without text to copy.',
      '6': 'Roll back if it began with a deployment. Otherwise look at load and prompts: drafts are not why.',
      '5': 'Check whether the draft model fits the target, or switch speculation off: no gain is measured.',
      '4': 'Roll back or remove --speculative-config now: slower than without it. Investigate afterwards.',
      '3': 'Compare recordings of several k: use the one that pays, or switch speculation off.',
      '2': 'Compare with a baseline (dashboard A/B): whether it pays is not known.',
      '1': 'Do nothing: speculation pays off.',
      '0': 'Wait for traffic: there are too few drafts to judge.',
      '-1': 'Wait for two scrapes. Then start vLLM without --disable-log-stats, or correct the port.',
      '-2': 'Do nothing, or start vLLM with --speculative-config to use speculation.',
      '15': 'Check whether the draft model fits the target, and record a baseline without speculation.',
      '14': 'Roll back the last change: slower than before, and little is accepted. Then record a baseline.',
      '11': 'Acceptance is good. Whether it pays is not measured: record a baseline without speculation.',
    },
    // One query counts the services of every status: a tile for each, the worst first.
    statusCounts(query, spec)::
      // Only the page of one service tells the others.
      local counted = [state for state in states if !std.member([7, 14, 15, -2], state[0])];
      common.panel('stat', {
        targets: [common.column(query, 'services_by_status', ['status'])],
        transformations: [
          g.columns([], ['Time']),
          g.rowsToFields('status', 'Value'),
          g.columns([['%d' % state[0], state[1]] for state in counted], []),
        ],
        overrides: [g.color(state[1], state[2]) for state in counted],
        options: { orientation: 'vertical', justifyMode: 'center', textMode: 'value_and_name' },
      } + spec),
    states:: g.mappings({ ['%d' % state[0]]: state[1:] for state in states }),
    // A table of one cell, because a cell wraps its text: that of a stat is one line, which a phone cuts.
    whatToDo(query, spec):: common.panel('table', {
      title: 'What to do',
      about: 'The next step for this status. The alerts below say more.',
      targets: [common.column(query, 'state', ['model_name'])],
      unit: 'short',
      options: { cellHeight: 'lg', showHeader: false, footer: { show: false, enablePagination: false } },
      transformations: [g.columns([['Value', 'What to do']], ['Time', 'model_name'])],
      overrides: [
        g.named('What to do', {
          mappings: g.mappings({ ['%d' % state[0]]: [advice['%d' % state[0]], state[2]] for state in states }),
          'custom.align': 'left',
          'custom.cellOptions': { type: 'color-background', mode: 'basic', wrapText: true },
        }),
      ],
      no_data: 'Check that the exporter runs beside the predictor, and that Prometheus scrapes it.',
    } + spec),
    yesNo(yes, no):: g.mappings({ '0': [no, 'red'], '1': [yes, 'green'] }),
    // Alerts by name and severity, replaced by their summary, or by the first sentence of their action: a cell has two lines.
    ofAlerts(text):: g.mappings({
      [key]: [std.rstripChars(std.splitLimit(alerts[key][text], '. ', 1)[0], '.') + '.', null]
      for key in std.objectFields(alerts)
    }),
    severities:: g.mappings({ '4': ['critical', 'red'], '3': ['critical', 'red'], '2': ['warning', 'orange'], '1': ['info', 'blue'] }),

    // Texts of empty panels: why there is no data.
    local verified = common.service.signal('partly_verified').help,
    nothing:: {
      drafts: 'No drafts: speculation is off, nothing is generated, or the predictor cannot be read. The status says which.',
      acceptance: 'No drafts, or adaptive verification: %s The status and the start arguments say which.' % verified,
      traffic: 'No finished requests: nothing is generated, or the predictor cannot be read. The status says which.',
      predictor: 'No series: the predictor cannot be read, or nothing scrapes it. The status says which.',
      baseline: 'No baseline: there is no live control, no baseline file, and not enough history yet.',
      speedup: 'Not measured: this needs requests, and a live control or a baseline file without speculation.',
      cost: 'Not measured: this needs a baseline without speculation (specdec-exporter baseline record) at a like load.',
      log: 'The exporter reads no log, or the log says nothing about this.',
      alerts: 'No alert fires.',
      exporter: 'No exporter is scraped in this time range.',
    },

    // --- Panels ------------------------------------------------------------------------------------------------------
    // A signal in a panel. The panel's description lists the definitions of its signals.
    local described(signal, target) = target { help:: signal.help, unit:: std.get(signal, 'unit', 'short') },
    // `over`: an aggregation that keeps the number of lines small, for example 'max by (collector)'.
    local aggregated(query, name, labels, over) =
      if over == null then query.expr(name, labels) else over + ' (' + query.expr(name, labels) + ')',
    series(query, name, legend, labels={}, over=null)::
      described(query.signal(name), g.target(aggregated(query, name, labels, over), legend)),
    last(query, name, legend, labels={}, over=null)::
      described(query.signal(name), g.lastTarget(aggregated(query, name, labels, over), legend)),
    // Columns of a table. Only the labels `keep` stay, so Grafana can merge the rows of several signals.
    column(query, name, keep, labels={})::
      described(query.signal(name), g.tableTarget(aggregated(query, name, labels, 'max by (%s)' % promql.list(keep)))),
    // One service's latency over another's, both of the same cluster, namespace and model. `chance`: how far chance alone may
    // move this ratio from 1 (`from`: '1 +' or '1 -').
    versus(query, other, name, legend, labels)::
      described(
        query.signal(name),
        g.target(query.expr(name, labels) + '\n/ ignoring (inference_service)\n' + other.expr(name, labels), legend)
      ),
    chance(query, other, legend, sli, from)::
      described(query.signal('mean_error'), g.target(promql.strip(|||
        %(from)s %(z_score)g * sqrt(
          (%(own_error)s) ^ 2
          + ignoring (inference_service)
          (%(other_error)s) ^ 2
        )
      ||| % {
        from: from,
        z_score: config.alert_z_score,
        own_error: query.expr('mean_error', { sli: sli }),
        other_error: other.expr('mean_error', { sli: sli }),
      }), legend)),

    // `spec` is that of g without description, unit and links. Instead: `about` (the purpose of the panel) and `runbook` (the
    // name of an alert).
    panel(kind, spec)::
      local targets = spec.targets;  // jsonnet computes a field again at every use, and a local once
      local helps = [target.help for target in targets];
      local definitions = [helps[i] for i in std.range(0, std.length(helps) - 1) if std.find(helps[i], helps)[0] == i];
      g[kind]({ unit: targets[0].unit } + spec + {
        targets: targets,
        description: std.join('\n', (if 'about' in spec then [spec.about, ''] else []) + ['- ' + help for help in definitions]),
        links: [g.link('Runbook', runbook(std.get(spec, 'runbook', 'README')))],
      }),
    // For panels whose series only the exporter has.
    withExporter(panel):: if config.source == 'exporter' then panel,

    // A table with a row per service (or per `rows`) and a column per signal: [title, signal, properties, labels, other
    // rows]. A column with the title null shows only its labels.
    // `more`: labels that become columns too, as [label, title]. They stand after the first `ahead` signals.
    // `first`: a signal that sorts the rows, the highest first, and is no column. `also`: the query of more rows.
    local level_columns = [
      ['inference_service', 'Service'],
      ['namespace', 'Namespace'],
      ['cluster', 'Cluster'],
      ['model_name', 'Model'],
    ],
    servicesTable(query, columns, spec, more=[], ahead=0, rows=config.level_labels, first=null, also=null)::
      local sorting = std.length(columns);  // the place of its query
      local at(column, i, default) = if std.length(column) > i then column[i] else default;
      local value(i) = if std.length(columns) == 1 && first == null then 'Value' else 'Value #' + g.refId(i);
      local indices = std.range(0, std.length(columns) - 1);
      local values = [[value(i), columns[i][0]] for i in indices if columns[i][0] != null];
      local untitled = [value(i) for i in indices if columns[i][0] == null] + (if first == null then [] else [value(sorting)]);
      common.panel('table', {
        targets: [
                   local own = common.column(query, c[1], at(c, 4, rows), at(c, 3, {}));
                   if also == null then own else own { expr+: '\nor\n' + common.column(also, c[1], at(c, 4, rows), at(c, 3, {})).expr }
                   for c in columns
                 ]
                 + (if first == null then [] else [common.column(query, first[0], first[1])]),
        unit: 'short',
        transformations: [
          g.merge,
        ] + (if first == null then [] else [g.sortBy(value(sorting), descending=true)]) + [
          g.columns(
            level_columns[:1] + values[:ahead] + more + values[ahead:]
            + [column for column in level_columns[1:] if std.member(rows, column[0])],
            ['Time'] + untitled
          ),
        ] + std.get(spec, 'sort', []),
        overrides: [
          g.named('Service', { links: [common.toService], 'custom.width': 130 }),
          g.named('Namespace', { 'custom.width': 92 }),
          g.named('Cluster', { 'custom.width': 70 }),
          g.named('Model', { 'custom.width': 120 }),
          g.named('Method', { 'custom.width': 80 }),
          g.named('k', { 'custom.width': 40 }),
          g.named('Latency', { 'custom.width': 64 }),
          g.named('Source', { 'custom.width': 76 }),
        ] + [
          g.named(c[0], { unit: query.signal(c[1]).unit } + at(c, 2, {}))
          for c in columns
          if c[0] != null
        ],
      } + spec),

    // `one`: the table is about one service, so it has no columns for the service, and room for what its alerts mean.
    alertTable(query, one, spec)::
      local texts = (if one then ['meaning'] else []) + ['action'];
      // A label that joins others: what tells alerts of one name apart, and the keys of the texts.
      local joined(expression, label, separator, labels) =
        'label_join(' + expression + ', ' + std.join(', ', ['"%s"' % each for each in [label, separator] + labels]) + ')';
      local column(name, texts=[]) =
        local target = common.series(query, name, '');
        local which = 'label_replace(%s, "which", "", "which", " *")'
                      % joined('(\n  %s\n)' % promql.indent(target.expr), 'which', ' ', ['sli', 'reason', 'container']);
        target + g.tableTarget(std.foldl(
          function(expression, text) joined(expression, text, '/', ['alertname', 'severity', 'reason', 'container']), texts, which
        ));
      local place = [['inference_service', 'Service'], ['namespace', 'Namespace'], ['cluster', 'Cluster']];
      local wrapped = { 'custom.cellOptions': { type: 'auto', wrapText: true } };
      common.panel('table', {
        title: 'Firing alerts: since when, and what to do first',
        about: 'The name of an alert links to its runbook, which says what to do next'
               + (if one then '.' else '; the service links to its dashboard.'),
        targets: [column('alerts_foremost', texts), column('alerts_since')],
        unit: 'short',
        no_data: common.nothing.alerts,
        // Grafana makes no room for wrapped texts that a mapping gives: two lines, if rows are high.
        options: { cellHeight: 'lg' },
        transformations: [
          g.merge,
          g.columns(
            [['Value #A', 'Severity'], ['Value #B', 'Since'], ['alertname', 'Alert']]
            + (if one then [] else place[:1])
            + [['which', 'Which']]
            + (if one then [['meaning', 'What it means']] else [])
            + [['action', 'What to do first']]
            + (if one then [] else place[1:]),
            ['Time', 'severity', 'sli', 'reason', 'container', 'model_name'] + (if one then [column[0] for column in place] else [])
          ),
          g.sortBy('Severity', descending=true),
        ],
        overrides: [
          g.named('Severity', { mappings: common.severities, 'custom.cellOptions': { type: 'color-text' }, 'custom.width': 72, 'custom.align': 'left' }),
          g.named('Alert', { links: [common.toRunbook], 'custom.width': 200 }),
          g.named('Which', { 'custom.width': 140 }),
          g.named('Since', { unit: 'dateTimeFromNow', 'custom.width': 120 }),
          g.named('What to do first', { mappings: common.ofAlerts('action') } + wrapped),
        ] + (
          if one then [g.named('What it means', { mappings: common.ofAlerts('summary'), 'custom.width': 320 } + wrapped)] else [
            g.named('Service', { links: [common.toService], 'custom.width': 140 }),
            g.named('Namespace', { 'custom.width': 100 }),
            g.named('Cluster', { 'custom.width': 80 }),
          ]
        ),
      } + spec),

    dashboard(name, spec)::
      g.dashboard({
        uid: uids[name],
        tags: config.dashboard_tags,
        refresh: '1m',
        from: 'now-6h',
        links: common.links(name),
      } + spec),
  }
