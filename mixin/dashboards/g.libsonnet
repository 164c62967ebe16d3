// The part of Grafana's JSON that these dashboards need: variables, targets, panels, rows, links, annotations. Nothing here
// knows what is measured. Written for Grafana 10.4 (schema 39). Newer releases migrate it on load.
{
  local g = self,

  datasource:: { type: 'prometheus', uid: '${datasource}' },

  // --- Variables -----------------------------------------------------------------------------------------------------
  datasourceVariable(label): { name: 'datasource', label: label, type: 'datasource', query: 'prometheus', current: {}, refresh: 1 },

  // Values of a label. `all`: the user may choose several or all values. All also matches series without the label.
  variable(name, label, query, all): {
    name: name,
    label: label,
    type: 'query',
    datasource: g.datasource,
    definition: query,
    query: { query: query, refId: 'StandardVariableQuery' },
    includeAll: all,
    multi: all,
    refresh: 2,
    sort: 1,
  } + (if all then { allValue: '.*', current: { selected: true, text: ['All'], value: ['$__all'] } } else {}),

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
  // A menu of all dashboards with this tag.
  taggedLink(title, tooltip, tag): {
    title: title,
    tooltip: tooltip,
    type: 'dashboards',
    icon: 'external link',
    url: '',
    asDropdown: true,
    includeVars: false,
    keepTime: true,
    tags: [tag],
    targetBlank: false,
  },
  link(title, url, new_tab=true): { title: title, url: url, targetBlank: new_tab },

  annotation(name, expr, color, title, text, enable): {
    name: name,
    datasource: g.datasource,
    enable: enable,
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

  // --- Values --------------------------------------------------------------------------------------------------------
  // `steps`: [[from, color], ...]; the first holds from minus infinity.
  thresholds(steps): {
    mode: 'absolute',
    steps: std.mapWithIndex(function(i, step) { value: if i == 0 then null else step[0], color: step[1] }, steps),
  },
  // `texts`: [value, text, color].
  mappings(texts): [{
    type: 'value',
    options: { [texts[i][0]]: { index: i, text: texts[i][1], color: texts[i][2] } for i in std.range(0, std.length(texts) - 1) },
  }],
  // `texts`: [regular expression, text]; the first that fits counts.
  patterns(texts): std.mapWithIndex(function(i, text) {
    type: 'regex',
    options: { pattern: '/%s/' % std.strReplace(text[0], '/', '\\/'), result: { index: i, text: text[1] } },
  }, texts),

  override(matcher, options, properties): {
    matcher: { id: matcher, options: options },
    properties: [{ id: id, value: properties[id] } for id in std.objectFields(properties)],
  },
  // For the series or the column of this name, or for names like this.
  named(name, properties): g.override('byName', name, properties),
  like(pattern, properties): g.override('byRegexp', '/%s/' % pattern, properties),
  colored(color): { color: { mode: 'fixed', fixedColor: color } },
  color(name, color): g.named(name, g.colored(color)),
  // A limit or a baseline: a dashed line that fills nothing. An end of a band: a thin line.
  dashes(color): g.colored(color) { 'custom.lineStyle': { fill: 'dash', dash: [8, 6] }, 'custom.fillOpacity': 0, 'custom.lineWidth': 2 },
  dashed(name, color): g.named(name, g.dashes(color)),
  lower(color): g.colored(color) { 'custom.lineWidth': 1, 'custom.fillOpacity': 0 },
  upper(color, lower): g.lower(color) { 'custom.fillBelowTo': lower, 'custom.fillOpacity': 15 },

  // --- Panels --------------------------------------------------------------------------------------------------------
  // `spec`: title, description, targets, unit, no_data (the text of an empty panel), w, h, links, and optionally min, max,
  // decimals, thresholds, mappings, overrides, transformations, options, custom.
  local panel(type, spec, options={}, custom={}, color='thresholds') = {
    type: type,
    title: spec.title,
    description: spec.description,
    datasource: g.datasource,
    pluginVersion: '10.4.0',
    gridPos: { w: spec.w, h: spec.h, x: 0, y: 0 },
    links: spec.links,
    targets: std.mapWithIndex(function(i, target) target { refId: g.refId(i) }, spec.targets),
    transformations: std.get(spec, 'transformations', []),
    options: options + std.get(spec, 'options', {}),
    fieldConfig: {
      defaults: { [key]: spec[key] for key in ['decimals', 'max', 'min', 'unit'] if key in spec } + {
        mappings: std.get(spec, 'mappings', []),
        color: { mode: color },
        custom: custom + std.get(spec, 'custom', {}),
        noValue: spec.no_data,
        thresholds: std.get(spec, 'thresholds', g.thresholds([[null, 'text']])),
      },
      overrides: std.get(spec, 'overrides', []),
    },
  },

  timeseries(spec):: panel('timeseries', spec, {
    legend: { displayMode: 'list', placement: 'bottom', showLegend: true, calcs: [] },
    tooltip: { mode: 'multi', sort: 'none' },
  }, { drawStyle: 'line', lineWidth: 1, fillOpacity: 5, showPoints: 'never', spanNulls: false }, 'palette-classic'),

  stat(spec)::
    panel('stat', spec, {
      colorMode: 'value',
      graphMode: 'none',
      justifyMode: 'auto',
      orientation: 'auto',
      textMode: 'auto',
      wideLayout: true,
      reduceOptions: { calcs: ['lastNotNull'], fields: '', values: false },
    }),

  // Long cells wrap in releases that can, and on hover in others. no_data is the text of the table, not of a cell.
  table(spec)::
    panel('table', spec { overrides: [g.like('.*', { noValue: '-' })] + super.overrides }, {
      cellHeight: 'sm',
      showHeader: true,
      footer: { countRows: false, enablePagination: true, reducer: ['sum'], show: false },
    }, { align: 'auto', cellOptions: { type: 'auto' }, filterable: true, inspect: false, minWidth: 70 }),

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

  // Panels from left to right, in lines of 24 columns. A line is as high as its highest panel. Ids count by row, so a new panel
  // leaves those of other rows, and links to them, alone.
  local place(done, panel) =
    local wraps = done.x + panel.gridPos.w > 24;
    local at = if wraps then { x: 0, y: done.y + done.h, h: 0 } else { x: done.x, y: done.y, h: done.h };
    {
      panels: done.panels + [panel { id: done.id + 1, gridPos+: { x: at.x, y: at.y } }],
      id: done.id + 1,
      x: at.x + panel.gridPos.w,
      y: at.y,
      h: std.max(at.h, panel.gridPos.h),
    },
  local addRow(done, row) =
    local id = 100 * done.next;
    local body = std.foldl(place, row.panels, { panels: [], id: id, x: 0, y: done.y + 1, h: 0 });
    local header = {
      id: id,
      type: 'row',
      title: row.title,
      collapsed: !row.open,
      panels: if row.open then [] else body.panels,
      gridPos: { x: 0, y: done.y, w: 24, h: 1 },
    };
    {
      panels: done.panels + [header] + (if row.open then body.panels else []),
      y: if row.open then body.y + body.h else done.y + 1,
      next: done.next + 1,
    },

  dashboard(spec):: {
    uid: spec.uid,
    title: spec.title,
    description: spec.description,
    tags: spec.tags,
    schemaVersion: 39,
    version: 1,
    editable: false,
    graphTooltip: 1,
    refresh: spec.refresh,
    time: { from: spec.from, to: 'now' },
    links: spec.links,
    annotations: { list: [g.builtInAnnotation] + spec.annotations },
    templating: { list: spec.variables },
    panels: std.foldl(addRow, spec.rows, { panels: [], y: 0, next: 1 }).panels,
  },
}
