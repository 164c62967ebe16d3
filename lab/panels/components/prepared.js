// From a panel's JSON and the answers of a data source to the frames that a panel draws: Grafana's own transformations, field
// configuration, names, texts and colours. What only Grafana's application has, and not its packages, is here: the registry of
// options, one transformation, one migration.
import {
  applyFieldOverrides,
  applyNullInsertThreshold,
  cacheFieldDisplayNames,
  createTheme,
  FieldConfigOptionsRegistry,
  FieldType,
  locationUtil,
  standardTransformers,
  standardTransformersRegistry,
  toDataFrame,
  transformDataFrame,
} from '@grafana/data';
import { firstValueFrom, map } from 'rxjs';

export const theme = createTheme({ colors: { mode: globalThis.picture?.dark ? 'dark' : 'light' } });
export const replaceVariables = (text) => text; // done before

const OF_NUMBERS = ['min', 'max', 'decimals'];
const OF_ALL = ['unit', 'displayName', 'color', 'noValue', 'thresholds', 'mappings', 'links'];

// A field for each row.
const rowsToFields = {
  id: 'rowsToFields',
  name: 'Rows to fields',
  operator: (options) => (source) => source.pipe(map((frames) => frames.map((frame) => asFields(frame, options.mappings)))),
};

function asFields(frame, mappings) {
  const column = (handler) => frame.fields.find((f) => f.name === mappings.find((m) => m.handlerKey === handler).fieldName);
  const [names, values] = [column('field.name'), column('field.value')];
  const fields = names.values.map((name, row) => ({ ...values, name: String(name), values: [values.values[row]], state: {} }));
  return { ...frame, fields, length: 1 };
}

const { convertFieldTypeTransformer, mergeTransformer, organizeFieldsTransformer, sortByTransformer } = standardTransformers;
const transformations = [convertFieldTypeTransformer, mergeTransformer, organizeFieldsTransformer, sortByTransformer, rowsToFields];
standardTransformersRegistry.setInit(() =>
  transformations.map((transformation) => ({ id: transformation.id, name: transformation.name, transformation: () => transformation }))
);
locationUtil.initialize({ config: { appSubUrl: '' }, getVariablesUrlParams: () => ({}), getTimeRangeForUrl: () => ({}) });

// Wrapping belonged to the type of a cell before 12.1; the application moves it when it loads an older table.
function migrated({ defaults, overrides }) {
  const moved = ({ id, value }) =>
    id === 'custom.cellOptions' && value.wrapText ? [{ id, value }, { id: 'custom.wrapText', value: true }] : [{ id, value }];
  return { defaults, overrides: overrides.map((rule) => ({ ...rule, properties: rule.properties.flatMap(moved) })) };
}

// What a panel's field configuration may say: the standard options, and those of its type, as they occur in it.
function registry({ defaults, overrides }) {
  const set = overrides.flatMap((rule) => rule.properties.map((property) => property.id));
  const custom = [...Object.keys(defaults.custom ?? {}), ...set.filter((id) => id.startsWith('custom.')).map((id) => id.slice(7))];
  const unknown = set.filter((id) => !id.startsWith('custom.') && ![...OF_NUMBERS, ...OF_ALL].includes(id));
  if (unknown.length) {
    throw new Error(`the options ${unknown} are not in the registry`);
  }
  const option = (path, isCustom, shouldApply) => ({
    id: isCustom ? `custom.${path}` : path,
    name: path,
    path,
    isCustom,
    settings: {},
    process: (value) => value,
    shouldApply,
  });
  return new FieldConfigOptionsRegistry(() => [
    ...OF_NUMBERS.map((path) => option(path, false, (field) => field.type === FieldType.number)),
    ...OF_ALL.map((path) => option(path, false, () => true)),
    ...[...new Set(custom)].map((path) => option(path, true, () => true)),
  ]);
}

export async function prepared({ panel, frames }) {
  const unknown = (panel.transformations ?? []).filter(({ id }) => !standardTransformersRegistry.getIfExists(id));
  if (unknown.length) {
    throw new Error(`the transformations ${unknown.map(({ id }) => id)} are not in the registry`);
  }
  const transformed = await firstValueFrom(transformDataFrame(panel.transformations ?? [], frames.map((f) => toDataFrame(f))));
  const fieldConfig = migrated(panel.fieldConfig);
  const found = applyFieldOverrides({
    data: transformed,
    fieldConfig,
    fieldConfigRegistry: registry(fieldConfig),
    replaceVariables,
    theme,
    timeZone: 'utc',
  });
  cacheFieldDisplayNames(found);
  const hasGaps = ['timeseries', 'state-timeline'].includes(panel.type);
  return hasGaps ? found.map((frame) => applyNullInsertThreshold({ frame })) : found;
}
