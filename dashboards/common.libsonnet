// What the dashboards have in common: variables, annotations, links, words for states, and panels that explain themselves.
local promql = import '../rules/promql.libsonnet';
local g = import 'g.libsonnet';
local queries = import 'queries.libsonnet';

// `alerts`: summary and action of the pack's alerts, by `name/severity`.
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

    // One service, the one that it is compared with, and all that are selected.
    service:: queriesOf('="$inference_service"'),
    other:: queriesOf('="$compare_with"'),
    fleet:: queriesOf('=~"$inference_service"'),

    short:: promql.duration(config.short_window_seconds),
    long:: promql.duration(config.long_window_seconds),

    // --- Variables: each is asked for within what those before it select -------------------------------------------------
    local values(query, label) = 'label_values(%s, %s)' % [query, label],
    local chain(labels) = std.join(', ', ['%s=~"$%s"' % [label, label] for label in labels]),
    // Services are found by what is there even while nothing can be read.
    local services =
      if config.source == 'exporter' then 'specdec_up' else common.fleet.record('generation_tokens_now'),
    local serviceVariable(name, label, all) =
      g.variable(name, label, values('%s{%s}' % [services, chain(['cluster', 'namespace'])], 'inference_service'), all),
    // `one`: a dashboard about one service. `more`: variables between service and model.
    variables(one, more=[]):: [
      g.datasourceVariable('Data source'),
      g.variable('cluster', 'Cluster', values(services, 'cluster'), true),
      g.variable('namespace', 'Namespace', values('%s{%s}' % [services, chain(['cluster'])], 'namespace'), true),
      serviceVariable('inference_service', 'Service', !one),
    ] + more + [
      g.variable(
        'model_name',
        'Model',
        values(
          '%s{%s, inference_service%s"$inference_service"}' % [
            common.fleet.record('generation_tokens_now'),
            chain(['cluster', 'namespace']),
            if one then '=' else '=~',
          ],
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
    // From a dashboard to the others. A single service goes along to where one is looked at, never to the fleet.
    links(from)::
      local one = std.member(['service', 'ab'], from);
      local place = ['datasource', 'cluster', 'namespace'];
      [
        g.dashboardLink(target.title, target.tooltip, '/d/%s?%s' % [
          uids[target.name],
          kept(place + (if one && target.name != 'fleet' then ['inference_service', 'model_name'] else [])),
        ])
        for target in [
          { name: 'fleet', title: 'Fleet', tooltip: 'All services' },
          { name: 'service', title: 'Service', tooltip: 'One service in depth' },
          { name: 'ab', title: 'A/B', tooltip: 'Two services, or a service and its baseline' },
          { name: 'pack', title: 'Pack health', tooltip: 'Can the figures be believed?' },
        ]
        if target.name != from
      ] + [g.dashboardLink('Runbooks', 'What to do, by alert', runbook('README')) { icon: 'doc', keepTime: false, targetBlank: true }],

    // Of a row of a table that has the labels as columns. A column that does not exist is an empty value, which selects
    // series without that label.
    toService:: g.link(
      'Open the service',
      '/d/%s?${datasource:queryparam}&%s&${__url_time_range}' % [
        uids.service,
        std.join('&', ['var-%s=${__data.fields.%s:percentencode}' % [label, label] for label in config.level_labels]),
      ],
      false
    ),
    toRunbook:: g.link('Open the runbook', config.runbook_url_prefix + '${__data.fields.alertname}.md'),

    // --- Words -------------------------------------------------------------------------------------------------------
    // From the most urgent to the least.
    local states = [
      [8, 'Unreachable', 'dark-purple', 'Look at the pods: starting, crashed, out of memory?'],
      [7, 'Statistics off', 'semi-dark-purple', 'Start vLLM without --disable-log-stats, or correct the port.'],
      [6, 'Not drafting', 'purple', 'Look for what keeps drafts away: sampling parameters, batch limit, nothing to copy.'],
      [5, 'Broken', 'dark-red', 'Switch speculation off now. Then look for a draft model that does not fit the target.'],
      [4, 'Harmful', 'red', 'Roll back or remove --speculative-config now; investigate afterwards.'],
      [3, 'Not paying off', 'orange', 'Lower num_speculative_tokens to what Curve supports, or switch speculation off.'],
      [2, 'Watch', 'yellow', 'Measure: compare with a baseline (A/B), and see whether another k suits better (Curve).'],
      [1, 'Healthy', 'green', 'Nothing: speculation pays off.'],
      [0, 'Idle', 'blue', 'Nothing: too few drafts to judge. Wait for traffic.'],
      [-1, 'Speculation off', 'text', 'Nothing is wrong. To use it, start vLLM with --speculative-config.'],
    ],
    local ofState(column) = g.mappings({ ['%d' % state[0]]: [state[column], state[2]] for state in states }),
    statusCounts(query):: [common.last(query, 'services_by_status', state[1], { status: '%d' % state[0] }) for state in states],
    stateColors:: [g.color(state[1], state[2]) for state in states],
    states:: ofState(1),
    actions:: ofState(3),
    yesNo(yes, no):: g.mappings({ '0': [no, 'red'], '1': [yes, 'green'] }),
    // Alerts by name and severity, replaced by their summary or action.
    ofAlerts(text):: g.mappings({ [key]: [alerts[key][text], null] for key in std.objectFields(alerts) }),
    severities:: g.mappings({ '3': ['critical', 'red'], '2': ['warning', 'orange'], '1': ['info', 'blue'] }),

    // Why there is nothing, where there is nothing.
    nothing:: {
      drafts: 'No drafts: speculation is off, nothing is generated, or the predictor cannot be reached. Status says which.',
      traffic: 'No finished requests: nothing is generated, or the predictor cannot be reached. Status says which.',
      predictor: 'No series: the predictor cannot be reached, or nothing scrapes it. Status says which.',
      baseline: 'Nothing to compare with: no live control, no baseline file, and not enough history yet.',
      speedup: 'Not known: needs a live control or a baseline file without speculation, and requests.',
      log: 'No log is read, or it says nothing about this.',
      alerts: 'No alert fires.',
      exporter: 'No exporter is scraped in this time range.',
    },

    // --- Panels ------------------------------------------------------------------------------------------------------
    // A signal in a panel; the panel is described by the definitions of its signals.
    local described(signal, target) = target { help:: signal.help, unit:: std.get(signal, 'unit', 'short') },
    // `over`: an aggregation in front of it, for what would be too many lines, for example 'max by (collector)'.
    local aggregated(query, name, labels, over) =
      if over == null then query.expr(name, labels) else '%s (%s)' % [over, query.expr(name, labels)],
    series(query, name, legend, labels={}, over=null)::
      described(query.signal(name), g.target(aggregated(query, name, labels, over), legend)),
    last(query, name, legend, labels={}, over=null)::
      described(query.signal(name), g.lastTarget(aggregated(query, name, labels, over), legend)),
    // Columns of a table: only `keep` of the labels, so that rows of several signals are merged.
    column(query, name, keep, labels={})::
      described(query.signal(name), g.tableTarget(aggregated(query, name, labels, 'max by (%s)' % promql.list(keep)))),
    // A signal, in one of two colors by whether it keeps its limit: two series, of which one is there.
    judged(query, name, limit, legend)::
      local value = query.expr(name);
      local missed = '%s\n< %s' % [value, query.expr(limit)];
      [
        described(query.signal(name), g.lastTarget('%s\nunless\n%s' % [value, missed], legend)),
        described(query.signal(limit), g.lastTarget(missed, legend + ' (too low)')),
      ],
    judgedColors(legend):: [g.color(legend, 'green'), g.color(legend + ' (too low)', 'red')],

    // How one service's latency compares with another's of the same cluster, namespace and model, and how far chance may
    // take it from 1 (`from`: up or down).
    versus(query, other, name, legend, labels)::
      described(query.signal(name), g.target('%s\n/ ignoring (inference_service)\n%s' % [
        query.expr(name, labels),
        other.expr(name, labels),
      ], legend)),
    chance(query, other, legend, sli, from)::
      described(query.signal('mean_error'), g.target(
        '%s %g * sqrt(\n  (%s) ^ 2\n  + ignoring (inference_service)\n  (%s) ^ 2\n)' % [
          from,
          config.alert_z_score,
          query.expr('mean_error', { sli: sli }),
          other.expr('mean_error', { sli: sli }),
        ], legend
      )),

    // `spec` as for g, without description, unit and links: `about` (what the panel is for), `runbook` (an alert's name).
    panel(kind, spec)::
      local targets = spec.targets;  // a field is computed anew at every use
      local helps = [target.help for target in targets];
      local definitions = [helps[i] for i in std.range(0, std.length(helps) - 1) if std.find(helps[i], helps)[0] == i];
      g[kind]({ unit: targets[0].unit } + spec + {
        targets: targets,
        description: std.join('\n', (if 'about' in spec then [spec.about, ''] else []) + ['- ' + help for help in definitions]),
        links: [g.link('Runbook', runbook(std.get(spec, 'runbook', 'README')))],
      }),
    // For series that this source does not have.
    withExporter(panel):: if config.source == 'exporter' then panel,

    // A row per service (or per `rows`), a column per signal: [title, signal, properties, labels, rows if they
    // are others]; with a title of null only its labels are shown.
    // `more`: labels that are columns, too, as [label, title], after the first `ahead` of the signals.
    local level_columns = [
      ['inference_service', 'Service'],
      ['namespace', 'Namespace'],
      ['cluster', 'Cluster'],
      ['model_name', 'Model'],
    ],
    servicesTable(query, columns, spec, more=[], ahead=0, rows=config.level_labels)::
      local at(column, i, default) = if std.length(column) > i then column[i] else default;
      local value(i) = if std.length(columns) == 1 then 'Value' else 'Value #' + g.refId(i);
      local indices = std.range(0, std.length(columns) - 1);
      local values = [[value(i), columns[i][0]] for i in indices if columns[i][0] != null];
      local untitled = [value(i) for i in indices if columns[i][0] == null];
      common.panel('table', {
        targets: [common.column(query, c[1], at(c, 4, rows), at(c, 3, {})) for c in columns],
        unit: 'short',
        transformations: [
          g.merge,
          g.columns(
            level_columns[:1] + values[:ahead] + more + values[ahead:]
            + [column for column in level_columns[1:] if std.member(rows, column[0])],
            ['Time'] + untitled
          ),
        ] + std.get(spec, 'sort', []),
        overrides: [g.named('Service', { links: [common.toService], 'custom.width': 150 })] + [
          g.named(c[0], { unit: query.signal(c[1]).unit } + at(c, 2, {}))
          for c in columns
          if c[0] != null
        ],
      } + spec),

    // `one`: of one service, which then needs no columns.
    alertTable(query, one, spec)::
      local texts = ['meaning', 'action'];
      local target = common.series(query, 'alerts_foremost', '');
      local place = [['inference_service', 'Service'], ['namespace', 'Namespace'], ['cluster', 'Cluster']];
      local wrapped = { 'custom.cellOptions': { type: 'auto', wrapText: true } };
      common.panel('table', {
        title: 'What fires, what it means, what to do',
        about: 'The name of an alert leads to its runbook' + (if one then '.' else ', the service to its dashboard.'),
        targets: [
          target + g.tableTarget(std.foldl(
            function(expression, text) 'label_join(%s, "%s", "/", "alertname", "severity")' % [expression, text],
            texts,
            '(\n  %s\n)' % promql.indent(target.expr)
          )),
        ],
        no_data: common.nothing.alerts,
        transformations: [
          g.columns(
            [['Value', 'Severity'], ['alertname', 'Alert'], ['sli', 'Latency']]
            + (if one then [] else place[:1])
            + [['meaning', 'What it means'], ['action', 'What to do']]
            + (if one then [] else place[1:]),
            ['Time', 'severity', 'model_name'] + (if one then [column[0] for column in place] else [])
          ),
          g.sortBy('Severity', descending=true),
        ],
        overrides: [
          g.named('Severity', { mappings: common.severities, 'custom.cellOptions': { type: 'color-text' }, 'custom.width': 80, 'custom.align': 'left' }),
          g.named('Alert', { links: [common.toRunbook], 'custom.width': 240 }),
          g.named('Latency', { 'custom.width': 70 }),
          g.named('What it means', { mappings: common.ofAlerts('summary'), 'custom.width': if one then 480 else 360 } + wrapped),
          g.named('What to do', { mappings: common.ofAlerts('action') } + wrapped),
        ] + (
          if one then [] else [
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
        refresh: config.dashboard_refresh,
        from: config.dashboard_from,
        links: common.links(name),
      } + spec),
  }
