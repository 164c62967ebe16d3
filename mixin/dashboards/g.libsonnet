// The part of Grafana's JSON that these dashboards need: variables, targets, panels, rows, links, annotations. Nothing here
// knows what is measured. Written for Grafana 10.4 (schema 39). Newer releases migrate it on load.
{
  local g = self,

  datasource:: { type: 'prometheus', uid: '${datasource}' },

  // --- Variables -----------------------------------------------------------------------------------------------------
  datasourceVariable(label): {
    name: 'datasource',
    label: label,
    type: 'datasource',
    query: 'prometheus',
    current: {},
    hide: 0,
    includeAll: false,
    multi: false,
    options: [],
    refresh: 1,
    regex: '',
    skipUrlSync: false,
  },

  // Values of a label. `all`: the user may choose several or all values. All also matches series without the label.
  variable(name, label, query, all): {
    name: name,
    label: label,
    type: 'query',
    datasource: g.datasource,
    definition: query,
    query: { query: query, refId: 'StandardVariableQuery' },
    current: if all then { selected: true, text: ['All'], value: ['$__all'] } else {},
    [if all then 'allValue']: '.*',
    hide: 0,
    includeAll: all,
    multi: all,
    options: [],
    refresh: 2,
    regex: '',
    skipUrlSync: false,
    sort: 1,
  },

  // --- Links and annotations -----------------------------------------------------------------------------------------
  // To another dashboard. The link keeps the time range and the variables in the URL.
  dashboardLink(title, tooltip, url): {
    title: title,
    tooltip: tooltip,
    type: 'link',
    icon: 'dashboard',
    url: url,
    asDropdown: false,
    includeVars: false,
    keepTime: true,
    tags: [],
    targetBlank: false,
  },
  link(title, url, new_tab=true): { title: title, url: url, targetBlank: new_tab },

  annotation(name, expr, color, title, text, enable): {
    name: name,
    datasource: g.datasource,
    enable: enable,
    hide: false,
    iconColor: color,
    target: { expr: expr, refId: 'Anno', interval: '60s' },
    titleFormat: title,
    textFormat: text,
  },
  builtInAnnotation:: {
    name: 'Annotations & Alerts',
    builtIn: 1,
    datasource: { type: 'grafana', uid: '-- Grafana --' },
    enable: true,
    hide: true,
    iconColor: 'rgba(0, 211, 255, 1)',
    type: 'dashboard',
  },

  // --- Targets -------------------------------------------------------------------------------------------------------
  target(expr, legend): { expr: expr, legendFormat: legend, range: true, instant: false, format: 'time_series' },
  // The last values only, one row per series with its labels as columns.
  tableTarget(expr): { expr: expr, legendFormat: '', range: false, instant: true, format: 'table' },
  // The last values only, as series.
  lastTarget(expr, legend): { expr: expr, legendFormat: legend, range: false, instant: true, format: 'time_series' },

  refId(index):: std.char(std.codepoint('A') + index),
  refIds(targets): std.mapWithIndex(function(i, target) target { refId: g.refId(i) }, targets),

  // --- Values --------------------------------------------------------------------------------------------------------
  // `steps`: [[from, color], ...]; the first holds from minus infinity.
  thresholds(steps): {
    mode: 'absolute',
    steps: std.mapWithIndex(function(i, step) { value: if i == 0 then null else step[0], color: step[1] }, steps),
  },
  // `texts`: { value: [text, color] }; a color of null leaves the color alone.
  mappings(texts):
    local values = std.objectFields(texts);
    local mapping(i) =
      local text = texts[values[i]];
      { index: i, text: text[0], [if text[1] != null then 'color']: text[1] };
    [{ type: 'value', options: { [values[i]]: mapping(i) for i in std.range(0, std.length(values) - 1) } }],

  override(matcher, options, properties): {
    matcher: { id: matcher, options: options },
    properties: [{ id: id, value: properties[id] } for id in std.objectFields(properties)],
  },
  // For the series or the column of this name.
  named(name, properties): g.override('byName', name, properties),
  color(name, color): g.named(name, { color: { mode: 'fixed', fixedColor: color } }),
  // For names with a part that says where the values come from.
  local like(pattern, properties) = g.override('byRegexp', '/' + pattern + '/', properties),
  colorLike(pattern, color): like(pattern, { color: { mode: 'fixed', fixedColor: color } }),
  // A limit or a baseline: a dashed line of this color that fills nothing.
  local dashes(color) = {
    color: { mode: 'fixed', fixedColor: color },
    'custom.lineStyle': { fill: 'dash', dash: [8, 6] },
    'custom.fillOpacity': 0,
    'custom.lineWidth': 2,
  },
  dashed(name, color): g.named(name, dashes(color)),
  dashedLike(pattern, color): like(pattern, dashes(color)),

  // --- Panels --------------------------------------------------------------------------------------------------------
  // `spec`: title, description, targets, unit, no_data (the text of an empty panel), w, h, links, and optionally min, max,
  // decimals, thresholds, mappings, overrides, transformations, options, custom, color.
  local panel(type, spec, options={}, custom={}, color={ mode: 'palette-classic' }) = {
    type: type,
    title: spec.title,
    description: spec.description,
    datasource: g.datasource,
    pluginVersion: '10.4.0',
    gridPos: { w: spec.w, h: spec.h, x: 0, y: 0 },
    links: std.get(spec, 'links', []),
    targets: g.refIds(spec.targets),
    transformations: std.get(spec, 'transformations', []),
    options: options + std.get(spec, 'options', {}),
    fieldConfig: {
      defaults: {
        color: std.get(spec, 'color', color),
        custom: custom + std.get(spec, 'custom', {}),
        [if 'decimals' in spec then 'decimals']: spec.decimals,
        mappings: std.get(spec, 'mappings', []),
        [if 'max' in spec then 'max']: spec.max,
        [if 'min' in spec then 'min']: spec.min,
        noValue: spec.no_data,
        thresholds: std.get(spec, 'thresholds', g.thresholds([[null, 'text']])),
        unit: spec.unit,
      },
      overrides: std.get(spec, 'overrides', []),
    },
  },
  local legend = { displayMode: 'list', placement: 'bottom', showLegend: true, calcs: [] },
  local tooltip = { mode: 'multi', sort: 'none' },
  local hidden = { legend: false, tooltip: false, viz: false },
  local lines = {
    drawStyle: 'line',
    lineInterpolation: 'linear',
    lineWidth: 1,
    fillOpacity: 5,
    gradientMode: 'none',
    showPoints: 'never',
    pointSize: 4,
    spanNulls: false,
    stacking: { group: 'A', mode: 'none' },
    axisPlacement: 'auto',
    axisLabel: '',
    scaleDistribution: { type: 'linear' },
    hideFrom: hidden,
    thresholdsStyle: { mode: 'off' },
  },

  timeseries(spec):: panel('timeseries', spec, { legend: legend, tooltip: tooltip }, lines),

  stat(spec)::
    panel('stat', spec, {
      colorMode: 'value',
      graphMode: 'none',
      justifyMode: 'auto',
      orientation: 'auto',
      textMode: 'auto',
      wideLayout: true,
      reduceOptions: { calcs: ['lastNotNull'], fields: '', values: false },
    }, color={ mode: 'thresholds' }),

  // Long cells wrap in releases that can, and on hover in others. no_data is the text of the table, not of a cell.
  table(spec)::
    panel('table', spec { overrides: [g.override('byRegexp', '/.*/', { noValue: '-' })] + super.overrides }, {
      cellHeight: 'sm',
      showHeader: true,
      footer: { countRows: false, enablePagination: true, reducer: ['sum'], show: false },
    }, { align: 'auto', cellOptions: { type: 'auto' }, filterable: true, inspect: false, minWidth: 70 }, { mode: 'thresholds' }),

  // The column under a chart is a field too. Without this it would have the unit and the maximum of the values.
  local over(spec) =
    local plain = { matcher: { id: 'byName', options: spec.x }, properties: [{ id: 'unit', value: 'none' }, { id: 'decimals', value: 0 }, { id: 'max' }] };
    spec { overrides: [plain] + super.overrides },

  // `x`: the column whose values stand under the bars.
  barchart(spec)::
    panel('barchart', over(spec), {
      xField: spec.x,
      orientation: 'vertical',
      barRadius: 0,
      barWidth: 0.9,
      groupWidth: 0.8,
      fullHighlight: false,
      showValue: 'auto',
      stacking: 'none',
      text: {},
      xTickLabelRotation: 0,
      xTickLabelSpacing: 0,
      legend: legend,
      tooltip: tooltip,
    }, {
      axisPlacement: 'auto',
      axisLabel: '',
      fillOpacity: 80,
      gradientMode: 'none',
      lineWidth: 1,
      hideFrom: hidden,
      scaleDistribution: { type: 'linear' },
      thresholdsStyle: { mode: 'off' },
    }),

  stateTimeline(spec)::
    panel('state-timeline', spec, {
      alignValue: 'left',
      legend: legend { showLegend: false },
      mergeValues: true,
      rowHeight: 0.9,
      showValue: 'auto',
      tooltip: tooltip { mode: 'single' },
    }, { fillOpacity: 80, lineWidth: 0, hideFrom: hidden }, { mode: 'thresholds' }),

  // One row per series, from red (`min`) to green (`max`).
  heatmap(spec)::
    panel('heatmap', spec, {
      calculate: false,
      cellGap: 1,
      cellValues: { unit: spec.unit },
      color: {
        mode: 'scheme',
        scheme: 'RdYlGn',
        exponent: 0.5,
        fill: 'dark-orange',
        scale: 'exponential',
        reverse: false,
        steps: 64,
        min: spec.min,
        max: spec.max,
      },
      exemplars: { color: 'rgba(255,0,255,0.7)' },
      filterValues: { le: -1 },  // keep 0: it is the worst rate, not missing data
      legend: { show: true },
      rowsFrame: { layout: 'auto' },
      showValue: 'never',
      tooltip: { mode: 'single', showColorScale: true, yHistogram: false },
      yAxis: { axisPlacement: 'left', reverse: false },
    }, { hideFrom: hidden, scaleDistribution: { type: 'linear' } }),

  // --- Transformations -----------------------------------------------------------------------------------------------
  // Rows with equal values of their common labels become one row.
  merge:: { id: 'merge', options: {} },
  // A field for each row, named by its `name` and with its `value`.
  rowsToFields(name, value):: {
    id: 'rowsToFields',
    options: { mappings: [{ fieldName: name, handlerKey: 'field.name' }, { fieldName: value, handlerKey: 'field.value' }] },
  },
  numbers(field):: { id: 'convertFieldType', options: { conversions: [{ targetField: field, destinationType: 'number' }], fields: {} } },
  sortBy(field, descending=false):: { id: 'sortBy', options: { fields: {}, sort: [{ field: field, desc: descending }] } },
  // `columns`: [[field, title], ...] in order; `without`: fields to leave out.
  columns(columns, without):: {
    id: 'organize',
    options: {
      excludeByName: { [name]: true for name in without },
      indexByName: { [columns[i][0]]: i for i in std.range(0, std.length(columns) - 1) },
      renameByName: { [column[0]]: column[1] for column in columns },
    },
  },

  // --- Layout --------------------------------------------------------------------------------------------------------
  // Null panels are left out. Grafana asks for the panels of a folded row when somebody unfolds it.
  row(title, panels, open=false):: { title: title, panels: std.filter(function(panel) panel != null, panels), open: open },

  // Panels from left to right, in lines of 24 columns. A line is as high as its highest panel.
  local flow(panels, top) =
    std.foldl(
      function(done, panel)
        local wraps = done.x + panel.gridPos.w > 24;
        local x = if wraps then 0 else done.x;
        local y = if wraps then done.y + done.h else done.y;
        done {
          panels+: [panel { gridPos+: { x: x, y: y } }],
          x: x + panel.gridPos.w,
          y: y,
          h: if wraps then panel.gridPos.h else std.max(done.h, panel.gridPos.h),
        },
      panels,
      { panels: [], x: 0, y: top, h: 0 },
    ),
  // Ids count by row, so a new panel leaves those of other rows, and links to them, alone.
  local laidOut(rows) =
    std.foldl(
      function(done, row)
        local id = 100 * done.next;
        local body = flow(row.panels, done.y + 1);
        local panels = std.mapWithIndex(function(i, panel) panel { id: id + i + 1 }, body.panels);
        local header = {
          id: id,
          type: 'row',
          title: row.title,
          collapsed: !row.open,
          panels: if row.open then [] else panels,
          gridPos: { x: 0, y: done.y, w: 24, h: 1 },
        };
        {
          panels: done.panels + [header] + (if row.open then panels else []),
          y: if row.open then body.y + body.h else done.y + 1,
          next: done.next + 1,
        },
      rows,
      { panels: [], y: 0, next: 1 },
    ).panels,

  dashboard(spec):: {
    uid: spec.uid,
    title: spec.title,
    description: spec.description,
    tags: spec.tags,
    schemaVersion: 39,
    version: 1,
    editable: false,
    graphTooltip: 1,
    fiscalYearStartMonth: 0,
    liveNow: false,
    refresh: spec.refresh,
    time: { from: spec.from, to: 'now' },
    timepicker: {},
    timezone: '',
    weekStart: '',
    links: spec.links,
    annotations: { list: [g.builtInAnnotation] + spec.annotations },
    templating: { list: spec.variables },
    panels: laidOut(spec.rows),
  },
}
