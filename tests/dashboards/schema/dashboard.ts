// A dashboard as Grafana's types have it, closed where they are open: options and field configuration by type of panel,
// properties of overrides by their id, Prometheus' queries. What is misspelt, misplaced or of another type does not compile.
import type * as raw from '@grafana/schema/dist/esm/raw/dashboard/x/dashboard_types.gen';
import type { PrometheusDataQuery } from '@grafana/schema/dist/esm/raw/composable/prometheus/dataquery/x/PrometheusDataQuery_types.gen';
import type * as stat from '@grafana/schema/dist/esm/raw/composable/stat/panelcfg/x/StatPanelCfg_types.gen';
import type * as table from '@grafana/schema/dist/esm/raw/composable/table/panelcfg/x/TablePanelCfg_types.gen';
import type * as timeseries from '@grafana/schema/dist/esm/raw/composable/timeseries/panelcfg/x/TimeSeriesPanelCfg_types.gen';

// JSON has the values of enums, not their names; string literals are no members of a string enum.
type Json<T> = 0 extends 1 & T
  ? T
  : T extends string
    ? `${T}`
    : T extends Array<infer Item>
      ? Array<Json<Item>>
      : T extends object
        ? { [Key in keyof T]: Json<T[Key]> }
        : T;

// Grafana fills in what panels leave out.
type Some<T> = 0 extends 1 & T
  ? T
  : T extends Array<infer Item>
    ? Array<Item>
    : T extends object
      ? { [Key in keyof T]?: Some<T[Key]> }
      : T;

type Link = { title: string; url: string; targetBlank?: boolean };

type Defaults<Custom> = Json<Omit<raw.FieldConfig, 'custom' | 'links'>> & {
  custom?: Some<Json<Custom>>;
  links?: Link[];
};

// One kind of property for each field, { id: 'unit', value: string } or { id: 'custom.width', value: number }.
type Property<Fields, Prefix extends string = ''> = {
  [Key in keyof Fields & string]-?: { id: `${Prefix}${Key}`; value?: Fields[Key] };
}[keyof Fields & string];

type Override<Custom> = {
  matcher: { id: 'byName' | 'byRegexp' | 'byType' | 'byFrameRefID' | 'byNames' | 'byValue'; options?: unknown };
  properties: Array<Property<Omit<Defaults<Custom>, 'custom'>> | Property<Some<Json<Custom>>, 'custom.'>>;
};

type Target = Json<Omit<PrometheusDataQuery, 'datasource'>> & { datasource?: raw.DataSourceRef; interval?: string };

type Of<Type extends string, Options, Custom = {}> = Json<
  Omit<raw.Panel, 'type' | 'options' | 'fieldConfig' | 'targets' | 'links' | 'transformations'>
> & {
  type: Type;
  options?: Some<Json<Options>>;
  fieldConfig?: { defaults: Defaults<Custom>; overrides: Override<Custom>[] };
  targets?: Target[];
  links?: Link[];
  transformations?: Array<{ id: string; options?: unknown; disabled?: boolean }>; // without options: all by default
};

type Panel =
  | Of<'stat', stat.Options>
  | Of<'table', table.Options, TableField>
  | Of<'timeseries', timeseries.Options, timeseries.FieldConfig>;

// Cells that wrap came with 11.2; before, the option is ignored.
type Wrapping = ({ type: 'auto' } | { type: 'color-background'; mode?: 'basic' }) & { wrapText?: boolean };
type TableField = Omit<table.FieldConfig, 'cellOptions'> & { cellOptions?: table.FieldConfig['cellOptions'] | Wrapping };

type Row = Omit<Json<raw.RowPanel>, 'panels'> & { panels: Panel[] };

// What Grafana's Prometheus data source reads of an annotation.
type Annotation = Json<Omit<raw.AnnotationQuery, 'target'>> & {
  expr?: string;
  step?: string;
  tagKeys?: string;
  textFormat?: string;
  titleFormat?: string;
  useValueForTime?: boolean;
  target?: Partial<Json<raw.AnnotationTarget>> & Partial<Target>;
};

// The types lack what Grafana itself saves: the text of the query once more, and nothing where nothing was chosen yet.
type Variable = Omit<Json<raw.VariableModel>, 'query' | 'current'> & {
  query?: string | { query: string; refId: string; qryType?: number };
  definition?: string;
  current?: Partial<raw.VariableOption>;
};

export type Dashboard = Omit<Json<raw.Dashboard>, 'panels' | 'annotations' | 'templating' | 'links'> & {
  panels: Array<Panel | Row>;
  annotations?: { list?: Annotation[] };
  templating?: { list?: Variable[] };
  links?: Json<raw.DashboardLink>[];
};
