// Draws window.picture: { title, about, chosen, range, width, height, now, rows, panels, marks, dark }, places in pixels, times in
// milliseconds. A panel has what prepared.js takes. Says `drawn` in the console when all is there, and `failed` for each panel
// that is not.
import '@fontsource/inter/latin-400.css';
import '@fontsource/inter/latin-500.css';
import {
  dateTime,
  EventBusSrv,
  getDisplayValueAlignmentFactors,
  getFieldDisplayValues,
} from '@grafana/data';
import {
  BigValue,
  GlobalStyles,
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

const DRAWN = { stat: Values, table: Table, timeseries: Lines };

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
