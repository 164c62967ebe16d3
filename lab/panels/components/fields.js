// Reads { now, panels } from its input, panels as prepared.js takes them. Writes for each field of each panel its name, type, what
// its type of panel has configured, its values, and how Grafana shows typical ones: no value, its thresholds from both sides, what
// it maps, what its unit is for.
import { readFileSync } from 'node:fs';
import { formattedValueToString, getFieldDisplayName } from '@grafana/data';
import { prepared, theme } from './prepared.js';

const { now, panels } = JSON.parse(readFileSync(0, 'utf8'));
Date.now = () => now;
// Grafana's code asks for what a browser has.
globalThis.window = globalThis;
globalThis.navigator ??= { language: 'en-US', languages: ['en-US'] };

const OF_UNIT = {
  bytes: [0, 41943040],
  dateTimeFromNow: [now - 26 * 60e3],
  none: [0, 7, 4812],
  percentunit: [0, 0.004, 0.614, 1],
  s: [0.0132, 0.25, 42, 5400],
  short: [0, 7, 0.25, 4812],
};
const OF_SUFFIX = [0, 0.814, 2.083, 1530];
const MAPPED = 3; // of texts, so many are enough

const names = new Map(
  theme.visualization.hues.flatMap(({ shades }) => shades.map(({ name, color }) => [color.toLowerCase(), name]))
);
['#24292e', 'rgba(36, 41, 46, 1)'].forEach((color) => names.set(color, 'text'));

function typical(field) {
  const { mappings = [], thresholds, unit } = field.config;
  const keys = mappings.flatMap(({ type, options }) => (type === 'value' ? Object.keys(options) : []));
  if (field.type !== 'number') {
    return field.type === 'time' ? [] : [null, ...(keys.length ? keys : [...new Set(field.values)]).slice(0, MAPPED)];
  }
  const mapped = keys.map(Number).sort((a, b) => a - b);
  const edges = (thresholds?.steps ?? []).slice(1).flatMap(({ value }) => [value - 0.01 * (Math.abs(value) || 1), value]);
  const samples = mapped.length ? mapped : (OF_UNIT[unit] ?? (unit?.startsWith('suffix:') ? OF_SUFFIX : undefined));
  if (!samples) {
    throw new Error(`no typical values of the unit ${unit} are known`);
  }
  return [null, ...[...new Set([...samples, ...edges])].sort((a, b) => a - b)];
}

async function fields(given) {
  const frames = await prepared(given);
  return frames.flatMap((frame) =>
    frame.fields.map((field) => ({
      name: getFieldDisplayName(field, frame, frames),
      type: field.type,
      custom: field.config.custom ?? {},
      values: field.values,
      typical: typical(field).map((value) => {
        const shown = field.display(value);
        const color = shown.color?.toLowerCase();
        return { value, text: formattedValueToString(shown), color: names.get(color) ?? color };
      }),
    }))
  );
}

process.stdout.write(JSON.stringify(await Promise.all(panels.map(fields))));
