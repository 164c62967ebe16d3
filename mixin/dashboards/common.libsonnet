// Shared by all dashboards: variables, annotations, links, words of the verdict, and panels that explain themselves.
local promql = import '../promql.libsonnet';
local seriesOf = import '../series.libsonnet';
local g = import 'g.libsonnet';
local queries = import 'queries.libsonnet';

// `rules`: the alerts of the pack.
function(config, signals, rules)
  local vllm = config.source == 'vllm';
  local kept(names) = std.join('&', ['${%s:queryparam}' % name for name in names]);
  local runbook(name) = config.runbook_url_prefix + name + '.md';
  local service = promql.names(config.service);
  local level = promql.names(config.level);

  {
    local common = self,

    // Quantities of one service, of its chosen instances and engines, of the service to compare with, of both, and of all
    // selected services.
    service:: queries(config, signals, '="$inference_service"'),
    chosen:: queries(config, signals, '="$inference_service"', ['instance=~"$instance"', 'engine=~"$engine"']),
    other:: queries(config, signals, '="$compare_with"'),
    both:: queries(config, signals, '=~"$inference_service|$compare_with"'),
    fleet:: queries(config, signals, '=~"$inference_service"'),

    // --- Variables: each offers only values within the choices before it ---------------------------------------------
    local values(metric, within, label) =
      'label_values(%s{%s}, %s)' % [metric, std.join(', ', ['%s=~"$%s"' % [each, each] for each in within]), label],
    // A series that every scraped service has, also while its predictor cannot be read.
    local services = if vllm then signals.tokens.record else 'specdec_up',
    local oneOf(name, title, all) = g.variable(name, title, values(services, ['cluster', 'namespace'], 'inference_service'), all),
    // `one`: the dashboard is about one service. `more`: variables between service and model.
    variables(one, more=[]):: [
      g.datasourceVariable('Data source'),
      g.variable('cluster', 'Cluster', values(services, [], 'cluster'), true) + (if config.show_multi_cluster then {} else { hide: 2 }),
      g.variable('namespace', 'Namespace', values(services, ['cluster'], 'namespace'), true),
      oneOf('inference_service', 'Service', !one),
    ] + more + [g.variable('model_name', 'Model', values(signals.tokens.record, service, 'model_name'), true)],
    otherServiceVariable:: oneOf('compare_with', 'Compare with', false),
    partVariables::
      local label = if vllm then config.vllm_service_label else 'inference_service';
      local own = ['cluster=~"$cluster"', 'namespace=~"$namespace"', label + '="$inference_service"'];
      local of(name, title, matchers) =
        g.variable(name, title, 'label_values(%s, %s)' % [seriesOf(config).of('generation_tokens', matchers=matchers), name], true);
      [of('instance', 'Instance', own), of('engine', 'Engine', own + ['instance=~"$instance"'])],

    // --- Annotations and links ---------------------------------------------------------------------------------------
    annotations(q, enable):: [
      g.annotation('Alerts', q.firing(), 'red', '{{alertname}} ({{severity}})', '{{inference_service}} {{reason}}', enable),
      g.annotation('Starts', q.starts.expr, 'purple', 'A replica started', '{{inference_service}}', enable),
    ] + (if vllm then [] else [
           g.annotation(
             'Deployments',
             q.changes.expr,
             'blue',
             'Release, method or draft model changed',
             '{{inference_service}}: {{inference_engine}} {{vllm_version}}, {{method}} {{draft_model}}',
             enable
           ),
         ]),
    // From a dashboard to the others. A link to a dashboard about one service keeps the selected service.
    local links(from) = [
      g.dashboardLink(
        to[1],
        to[2],
        '/d/specdec-%s?%s' % [to[0], kept(
          ['datasource', 'cluster', 'namespace']
          + (if to[0] != 'fleet' && std.member(['service', 'ab'], from) then ['inference_service', 'model_name'] else [])
        )]
      )
      for to in [
        ['fleet', 'Fleet', 'All services'],
        ['service', 'Service', 'One service in depth'],
        ['ab', 'A/B', 'Two services, or a service and its baseline'],
        ['pack', 'Pack health', 'Can the figures be believed?'],
      ]
      if to[0] != from
    ] + [
      g.taggedLink('vLLM dashboards', 'Dashboards with the tag vllm, as vLLM ships them', 'vllm'),
      g.dashboardLink('Runbooks', 'What to do, by alert', runbook('README')) { icon: 'doc', keepTime: false, targetBlank: true },
    ],
    // For a table row whose columns are the labels. A missing column gives an empty value, which selects series without that
    // label. The model is not passed on: a service without metrics has none.
    local toService = g.link('Open the service', '/d/specdec-service?${datasource:queryparam}&%s&${__url_time_range}' % std.join(
      '&', ['var-%s=${__data.fields.%s:percentencode}' % [label, label] for label in service]
    ), false),

    // --- Words -------------------------------------------------------------------------------------------------------
    // Verdict, title, color, next step; the worst first. Titles and colors are those of the exporter's page, in shades that
    // differ where replicas are stacked.
    words:: [
      ['no_metrics', 'No metrics', 'dark-red', 'Look at the pods: are they starting, crashed or out of memory? If they answer, start vLLM without --disable-log-stats.'],
      ['broken', 'Broken', 'semi-dark-red', 'Almost nothing is accepted: check whether the draft model fits the target, or switch speculation off.'],
      ['harmful', 'Harmful', 'red', 'Roll back or remove --speculative-config now: slower than without it. Investigate afterwards.'],
      ['not_paying', 'Not paying off', 'light-red', 'Switch speculation off at this load, or use a k that recordings show to pay.'],
      ['slower', 'Slower', 'dark-yellow', 'Roll back if it began with a deployment. Otherwise look at acceptance, load and prompts.'],
      ['watch', 'Watch', 'yellow', 'Whether it pays is not known: record a baseline without speculation, and compare.'],
      ['unknown', 'Unknown', 'light-yellow', 'Wait for traffic: there are too few drafts for a verdict.'],
      ['not_measured', 'Not measured', '#8e8e8e', 'Acceptance is good. That it pays is a guess: record a baseline without speculation.'],
      ['healthy', 'Healthy', 'green', 'Do nothing: speculation pays off.'],
      ['idle', 'Idle', '#b5b5b5', 'Wait for traffic.'],
      ['off', 'Off', '#636363', 'Do nothing, or start vLLM with --speculative-config to use speculation.'],
    ],
    // For values of a column: title and color, or next step and color.
    verdicts(text=1):: g.mappings([[word[0], word[text], word[2]] for word in common.words]),
    // For series of these names.
    named_verdicts:: [g.named(word[0], { displayName: word[1], color: g.colored(word[2]).color }) for word in common.words],
    severity:: {
      mappings: g.mappings([['3', 'critical', 'red'], ['2', 'warning', 'orange'], ['0', '-', 'text']]),
      'custom.cellOptions': { type: 'color-text' },
    },
    yesNo(yes, no):: g.mappings([['0', no, 'red'], ['1', yes, 'green']]),

    // Why a panel is empty.
    nothing:: {
      verdict: 'No verdict: the exporter cannot read the predictor, or nothing scrapes the exporter.',
      drafts: 'No drafts: speculation is off, nothing is generated, or the predictor cannot be read.',
      acceptance: 'No drafts, or adaptive verification: vLLM does not count verified tokens then.',
      tokens: 'No tokens: nothing is generated, or the predictor cannot be read.',
      traffic: 'No finished requests: nothing is generated, or the predictor cannot be read.',
      predictor: 'No series: the predictor cannot be read, or nothing scrapes it.',
      baseline: 'No baseline: there is no live control, no baseline file, and not enough history yet.',
      speedup: 'Not measured: this needs requests, and a live control or a baseline file without speculation.',
      alerts: 'No alert fires.',
      exporter: 'No exporter is scraped in this time range.',
    },

    // --- Panels ------------------------------------------------------------------------------------------------------
    series(quantity, legend):: g.target(quantity.expr, legend) { help:: quantity.help, unit:: quantity.unit },
    last(quantity, legend):: g.lastTarget(quantity.expr, legend) { help:: quantity.help, unit:: quantity.unit },
    // A column of a table. Only the labels `keep` stay, so that Grafana can merge the rows of several.
    column(quantity, keep)::
      g.tableTarget('max by (%s) (%s)' % [std.join(', ', keep), quantity.expr]) { help:: quantity.help, unit:: quantity.unit },

    // A count has no decimals, wherever it stands.
    local whole(unit) = if unit == 'none' then { decimals: 0 } else {},
    // `spec` is that of g without description, unit and links. Instead: `about` (the purpose of the panel) and `runbook` (the
    // name of an alert).
    panel(kind, spec)::
      local helps = [target.help for target in spec.targets];
      local definitions = [helps[i] for i in std.range(0, std.length(helps) - 1) if std.find(helps[i], helps)[0] == i];
      local unit = std.get(spec, 'unit', spec.targets[0].unit);
      g[kind]({ unit: unit } + whole(unit) + spec + {
        description: std.join('\n', (if 'about' in spec then [spec.about, ''] else []) + ['- ' + help for help in definitions]),
        links: [g.link('Runbook', runbook(std.get(spec, 'runbook', 'README')))],
      }),
    graph(title, targets, alert, no_data, spec={})::
      common.panel('timeseries', { title: title, targets: targets, runbook: alert, no_data: no_data, min: 0, w: 8, h: 8 } + spec),
    withExporter(panel):: if vllm then null else panel,
    limit(value):: {
      thresholds: g.thresholds([[null, 'transparent'], [value, 'red']]),
      custom: { thresholdsStyle: { mode: 'dashed' }, axisSoftMax: 2 * value },  // so that the limit is in sight
    },

    // A table of values by labels. `columns`: [title, quantity, properties, labels of its series]; the title null: only the labels
    // count. `rows`: labels that tell rows apart. `labels`: [label, title], columns after the first `ahead`.
    local titles = { inference_service: 'Service', namespace: 'Namespace', cluster: 'Cluster', model_name: 'Model' },
    local widths = { Service: 130, Namespace: 92, Cluster: 70, Model: 110 },
    colored(steps):: { 'custom.cellOptions': { type: 'color-text' }, thresholds: g.thresholds([[null, 'text']] + steps) },
    table(columns, spec, rows=level, labels=[], ahead=0)::
      local at(column, i, default) = if std.length(column) > i then column[i] else default;
      local value(i) = if std.length(columns) == 1 then 'Value' else 'Value #' + g.refId(i);
      local values = [[value(i), columns[i][0]] for i in std.range(0, std.length(columns) - 1) if columns[i][0] != null];
      local untitled = [value(i) for i in std.range(0, std.length(columns) - 1) if columns[i][0] == null];
      local places = [[label, titles[label]] for label in ['inference_service', 'namespace', 'cluster', 'model_name'] if std.member(rows, label)];
      common.panel('table', {
        unit: 'short',
        targets: [common.column(c[1], at(c, 3, rows)) for c in columns],
      } + spec + {
        transformations: [
          g.merge,
          g.columns(places[:1] + labels[:ahead] + values + labels[ahead:] + places[1:], ['Time'] + untitled),
        ] + std.get(spec, 'sort', []),
        overrides: [g.named(title, { 'custom.width': widths[title] }) for title in std.objectFields(widths)]
                   + [g.named('Service', { links: [toService] })]
                   + [g.named(c[0], { unit: c[1].unit } + whole(c[1].unit) + at(c, 2, {})) for c in columns if c[0] != null]
                   + std.get(spec, 'overrides', []),
      }),

    // Alerts with their action: its first sentence where there are columns for the service. A row has room for two lines.
    // `one`: of one service, which needs no columns.
    local actions(one) = g.patterns(std.reverse(std.set([
      local action = rule.annotations.action;
      [
        '^%s/%s/%s$' % [rule.alert, rule.labels.severity, std.get(rule.labels, 'reason', '.*')],
        if one then action else std.substr(action, 0, std.findSubstr('. ', action + ' ')[0]) + '.',
      ]
      for rule in rules
    ]))),  // those with a reason before those with any
    alertTable(q, one, spec)::
      local labels = std.join(', ', ['alertname', 'severity', 'reason', 'pod'] + service);
      local column(quantity) =
        local which = 'label_replace(label_join(%s, "which", " ", "reason", "pod"), "which", "", "which", " *")' % quantity.expr;
        g.tableTarget('label_join(%s, "action", "/", "alertname", "severity", "reason")' % which) { help:: quantity.help, unit:: quantity.unit };
      local places = [[label, titles[label]] for label in ['inference_service', 'namespace', 'cluster']];
      common.panel('table', {
        title: 'Firing alerts: since when, and what to do first',
        about: 'The name of an alert links to its runbook.',
        targets: [column(q.severity { expr: 'max by (%s) (%s)' % [labels, super.expr] }), column(q.since(labels))],
        unit: 'short',
        no_data: common.nothing.alerts,
        options: { cellHeight: 'lg' },
        transformations: [
          g.merge,
          g.columns(
            [['Value #A', 'Severity'], ['Value #B', 'Since'], ['alertname', 'Alert']] + (if one then [] else places[:1])
            + [['which', 'Which'], ['action', 'What to do first']] + (if one then [] else places[1:]),
            ['Time', 'severity', 'reason', 'pod'] + (if one then service else [])
          ),
          g.sortBy('Severity', descending=true),
        ],
        overrides: [
          g.named('Severity', common.severity { 'custom.width': 72, 'custom.align': 'left' }),
          g.named('Since', { unit: 'dateTimeFromNow', 'custom.width': 120 }),
          g.named('Alert', { links: [g.link('Open the runbook', runbook('${__data.fields.alertname}'))], 'custom.width': 210 }),
          g.named('Which', { 'custom.width': 190 }),
          g.named('What to do first', { mappings: actions(one), 'custom.cellOptions': { type: 'auto', wrapText: true } }),
          g.named('Service', { links: [toService] }),
        ] + [g.named(title, { 'custom.width': widths[title] }) for title in ['Service', 'Namespace', 'Cluster'] if !one],
      } + spec),

    dashboard(name, spec)::
      g.dashboard({ uid: 'specdec-' + name, tags: ['specdec', 'vllm'], refresh: '1m', from: 'now-6h', links: links(name) } + spec),
  }
