// Draws window.picture: { title, about, chosen, range, width, height, now, rows, panels, marks, dark }, places in pixels, times in
// milliseconds. A panel has what prepared.js takes. Says `drawn` in the console when all is there, and `failed` for each panel
// that is not.
import '@fontsource/inter/latin-400.css';
import '@fontsource/inter/latin-500.css';
import {
  dateTime,
  dateTimeFormat,
  EventBusSrv,
  getDisplayValueAlignmentFactors,
  getFieldDisplayName,
  getFieldDisplayValues,
} from '@grafana/data';
import {
  BigValue,
  GlobalStyles,
  measureText,
  PanelChrome,
  PanelContextProvider,
  ThemeContext,
  TimeSeries,
  VizRepeater,
} from '@grafana/ui';
import { TableNG } from '@grafana/ui/unstable';
import { Component } from 'react';
import { createRoot } from 'react-dom/client';
import { prepared, replaceVariables, theme } from './prepared.js';

const { picture } = window;
Date.now = () => picture.now; // of which "26 minutes ago" is told
const timeRange = (from, to) => ({ from: dateTime(from), to: dateTime(to), raw: { from: dateTime(from), to: dateTime(to) } });

// Annotations are drawn by the application: a dashed line where each begins.
function mark(u) {
  for (const { at, color } of picture.marks) {
    const x = Math.round(u.valToPos(at, 'x', true));
    if (x < u.bbox.left || x > u.bbox.left + u.bbox.width) {
      continue;
    }
    u.ctx.save();
    u.ctx.strokeStyle = theme.visualization.getColorByName(color);
    u.ctx.lineWidth = 1;
    u.ctx.setLineDash([4, 4]);
    u.ctx.beginPath();
    u.ctx.moveTo(x, u.bbox.top);
    u.ctx.lineTo(x, u.bbox.top + u.bbox.height);
    u.ctx.stroke();
    u.ctx.restore();
  }
}

const marked = new WeakSet();
function withMarks(config) {
  if (!marked.has(config)) {
    marked.add(config);
    config.addHook('draw', mark);
  }
  return null;
}

function Lines({ panel, frames, width, height, start, end }) {
  return (
    <TimeSeries
      frames={frames}
      structureRev={1}
      timeRange={timeRange(start, end)}
      timeZone="utc"
      width={width}
      height={height}
      legend={panel.options.legend}
      options={panel.options}
    >
      {withMarks}
    </TimeSeries>
  );
}

function Values({ panel, frames, width, height }) {
  const { options, fieldConfig } = panel;
  const values = () =>
    getFieldDisplayValues({
      fieldConfig,
      reduceOptions: options.reduceOptions,
      replaceVariables,
      theme,
      data: frames,
      sparkline: options.graphMode !== 'none',
      timeZone: 'utc',
    });
  return (
    <VizRepeater
      getValues={values}
      getAlignmentFactors={getDisplayValueAlignmentFactors}
      renderValue={({ value, alignmentFactors, width, height, count }) => (
        <BigValue
          value={value.display}
          count={count}
          colorMode={options.colorMode}
          graphMode={options.graphMode}
          justifyMode={options.justifyMode}
          textMode={options.textMode}
          wideLayout={options.wideLayout}
          text={options.text}
          alignmentFactors={alignmentFactors}
          width={width}
          height={height}
          theme={theme}
        />
      )}
      width={width}
      height={height}
      source={frames}
      itemSpacing={3}
      renderCounter={1}
      autoGrid
      orientation={options.orientation}
    />
  );
}

function Table({ panel, frames, width, height, start, end }) {
  const { options, fieldConfig } = panel;
  return (
    <TableNG
      data={frames[0]}
      width={width}
      height={height}
      noHeader={!options.showHeader}
      cellHeight={options.cellHeight}
      sortBy={options.sortBy}
      enablePagination={options.footer.enablePagination}
      fieldConfig={fieldConfig}
      timeRange={timeRange(start, end)}
      structureRev={1}
      noValue={fieldConfig.defaults.noValue}
      resizable
    />
  );
}

// Grafana's application has the component of states, its packages have none. So this one is of our own, and says so.
const BY_US = 'state-timeline';
const HALF_HOUR = 30 * 60e3;
const BELOW = 20; // the times
const BESIDE = 16; // half of the last one

function States({ frames, width, height, start, end }) {
  const rows = frames.map((frame) => ({ spans: spans(frame, end), name: getFieldDisplayName(frame.fields[1], frame, frames) }));
  const left = 8 + Math.max(...rows.map(({ name }) => measureText(name, 12).width));
  const x = (at) => left + ((Math.max(at, start) - start) / (end - start)) * (width - left - BESIDE);
  const high = (height - BELOW) / rows.length;
  const ticks = [];
  for (let at = Math.ceil(start / HALF_HOUR) * HALF_HOUR; at <= end; at += HALF_HOUR) {
    ticks.push(at);
  }
  return (
    <svg width={width} height={height} fontSize={12} fill={theme.colors.text.primary}>
      {ticks.map((at) => (
        <text key={at} x={x(at)} y={height - 4} textAnchor="middle">
          {dateTimeFormat(at, { format: 'HH:mm', timeZone: 'utc' })}
        </text>
      ))}
      {rows.map(({ name, spans }, row) => (
        <g key={name} transform={`translate(0, ${row * high})`} dominantBaseline="central">
          <text y={high / 2}>{name}</text>
          {spans.map(({ since, until, shown }) => (
            <g key={since}>
              <rect x={x(since)} y={1} width={x(until) - x(since)} height={high - 2} fill={shown.color} fillOpacity={0.8} />
              <text x={x(since) + 4} y={high / 2}>
                {measureText(shown.text, 12).width + 8 < x(until) - x(since) && shown.text}
              </text>
            </g>
          ))}
        </g>
      ))}
    </svg>
  );
}

// From when until when a series had a value.
function spans({ fields: [time, field] }, end) {
  const begun = field.values.flatMap((value, row) => (row && value === field.values[row - 1] ? [] : [row]));
  return begun
    .map((row, number) => ({ row, since: time.values[row], until: time.values[begun[number + 1]] ?? end }))
    .filter(({ row }) => field.values[row] !== null)
    .map(({ row, ...span }) => ({ ...span, shown: field.display(field.values[row]) }));
}

const DRAWN = { stat: Values, table: Table, timeseries: Lines, [BY_US]: States };

class Shown extends Component {
  state = { failed: false };
  static getDerivedStateFromError() {
    return { failed: true };
  }
  componentDidCatch(error) {
    console.error(`failed: ${this.props.title}: ${error.stack}`);
  }
  render() {
    return this.state.failed ? null : this.props.children;
  }
}

function Panel({ panel, frames, place, start, end }) {
  const Drawn = DRAWN[panel.type];
  const centered = { display: 'flex', alignItems: 'center', justifyContent: 'center', textAlign: 'center' };
  return (
    <div style={{ position: 'absolute', left: place.x, top: place.y }}>
      <PanelChrome
        title={panel.title}
        width={place.w}
        height={place.h}
        padding={panel.type === 'table' ? 'none' : 'md'}
        actions={panel.type === BY_US && <span style={{ color: theme.colors.text.secondary, fontSize: 11 }}>drawn by us</span>}
      >
        {(width, height) =>
          frames.some((frame) => frame.length) ? (
            <Drawn panel={panel} frames={frames} width={width} height={height} start={start} end={end} />
          ) : (
            <div style={{ ...centered, height }}>{panel.fieldConfig.defaults.noValue}</div>
          )
        }
      </PanelChrome>
    </div>
  );
}

const words = { position: 'absolute', whiteSpace: 'pre' };

function Page({ panels }) {
  return (
    <ThemeContext.Provider value={theme}>
      <PanelContextProvider value={{ eventsScope: 'picture', eventBus: new EventBusSrv() }}>
        <GlobalStyles />
        <div style={{ ...words, left: 16, top: 12, fontSize: 20 }}>{picture.title}</div>
        <div style={{ ...words, right: 16, top: 16, color: theme.colors.text.secondary }}>{picture.about}</div>
        <div style={{ ...words, left: 16, top: 48 }}>{picture.chosen}</div>
        <div style={{ ...words, right: 16, top: 48 }}>{picture.range}</div>
        {picture.rows.map(({ title, open, x, y }) => (
          <div key={title} style={{ ...words, left: x, top: y, fontSize: 16 }}>{`${open ? '⌄' : '›'} ${title}`}</div>
        ))}
        {panels.map((each) => (
          <Shown key={each.panel.id} title={each.panel.title}>
            <Panel {...each} />
          </Shown>
        ))}
      </PanelContextProvider>
    </ThemeContext.Provider>
  );
}

async function main() {
  document.body.style.cssText = `margin: 0; width: ${picture.width}px; height: ${picture.height}px; position: relative;
    background: ${theme.colors.background.canvas}; color: ${theme.colors.text.primary};
    font: ${theme.typography.fontSize}px ${theme.typography.fontFamily}`;
  const panels = await Promise.all(picture.panels.map(async (each) => ({ ...each, frames: await prepared(each) })));
  await Promise.all(['400 12px Inter', '500 12px Inter'].map((font) => document.fonts.load(font))); // canvases measure it
  const root = document.body.appendChild(document.createElement('div'));
  createRoot(root).render(<Page panels={panels} />);
  requestAnimationFrame(() => requestAnimationFrame(() => console.log(`drawn: ${panels.length}`)));
}

addEventListener('error', (event) => console.error(`failed: ${event.message}`));
main().catch((error) => console.error(`failed: ${error.stack}`));
