"""The plot of one panel in pixels from the top left, and what plots have in common: axes, legends, names, colours."""

from __future__ import annotations

import dataclasses
import io
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from matplotlib.ticker import FuncFormatter, MaxNLocator

from dashboards import fields
from dashboards.fields import PALETTE, configuration, option, threshold_color, with_unit
from dashboards.frames import Field, Frame, reduced
from dashboards.grafana import Json, Panel

INK, LIGHT_INK = "#24292e", "#ccccdc"
FAINT = "#8888883a"  # on either background
SIZE = 8.64  # points: 12 pixels, as in Grafana's axes and legends
CHARACTER_PIXELS = 6.6  # of this size, on average
LINE_PIXELS = 18
AXIS_PIXELS = 22  # below a plot
TICKS = (300, 600, 900, 1800, 3600, 7200, 14400, 43200, 86400)


@dataclasses.dataclass(frozen=True, slots=True)
class Box:
    """A place on the picture."""

    x: float
    y: float
    w: float
    h: float

    def inset(self, left: float, top: float, right: float, bottom: float) -> Box:
        """Smaller by so much on each side."""
        return Box(self.x + left, self.y + top, max(1.0, self.w - left - right), max(1.0, self.h - top - bottom))


@dataclasses.dataclass(frozen=True, slots=True)
class Shown:
    """A panel with what there is to draw. Times are Unix seconds."""

    panel: Panel
    frames: Sequence[Frame]
    start: float
    end: float
    step: float

    def entries(self) -> list[Entry]:
        """All fields but time, each with its configuration and its place."""
        pairs = [(frame, field) for frame in self.frames for field in frame.value_fields]
        return [
            Entry(frame, field, configuration(self.panel, frame, field), number)
            for number, (frame, field) in enumerate(pairs)
        ]


@dataclasses.dataclass(frozen=True, slots=True)
class Entry:
    """One field of a panel; ``number`` is its place, which gives it a colour."""

    frame: Frame
    field: Field
    config: Json
    number: int

    @property
    def text(self) -> str:
        """Its name."""
        return fields.name(self.config, self.field)

    @property
    def color(self) -> str:
        """Of its line or bar."""
        mode = self.config.get("color", {})
        if mode.get("mode") == "fixed":
            return fields.color(mode["fixedColor"])
        if mode.get("mode") == "thresholds":
            return threshold_color(self.config, reduced(self.field, "lastNotNull")) or INK
        return PALETTE[self.number % len(PALETTE)]

    def points(self, x: Field | None = None) -> list[tuple[float, float]]:
        """Where both it and ``x`` (time, if not given) have numbers."""
        places = (x or self.frame.fields[0]).values
        return [
            (float(at), float(value))
            for at, value in zip(places, self.field.values, strict=True)
            if isinstance(at, (int, float)) and isinstance(value, (int, float))
        ]


class Page:
    """A picture of ``width`` by ``height`` pixels, on whatever stands behind it."""

    def __init__(self, width: int, height: int, *, dark: bool = False) -> None:
        self.ink = LIGHT_INK if dark else INK
        self.box = Box(0, 0, width, height)
        self.figure = Figure(figsize=(width / 100, height / 100), dpi=100, facecolor="none")
        self._all = self.figure.add_axes((0, 0, 1, 1), frameon=False)
        self._all.set(xlim=(0, width), ylim=(height, 0), xticks=[], yticks=[])

    def png(self) -> bytes:
        """The picture."""
        raw = io.BytesIO()
        self.figure.savefig(raw, format="png", metadata={"Software": None})
        return raw.getvalue()

    def axes(self, box: Box) -> Axes:
        """Axes that fill the box."""
        whole = self.box
        place = (box.x / whole.w, 1 - (box.y + box.h) / whole.h, box.w / whole.w, box.h / whole.h)
        axes = self.figure.add_axes(place, facecolor="none")
        axes.tick_params(labelsize=SIZE, colors=self.ink, length=0, pad=4)
        for spine in axes.spines.values():
            spine.set_visible(False)
        return axes

    def text(self, x: float, y: float, words: str) -> None:
        """Words whose left end and middle are there."""
        self._all.text(x, y, words.replace("$", r"\$"), fontsize=SIZE, color=self.ink, va="center", ha="left")

    def legend(self, entries: Sequence[Entry]) -> None:
        """Names and colours in a line at the bottom."""
        x, y = 4.0, self.box.h - LINE_PIXELS / 2
        for entry in entries:
            self._all.add_patch(Rectangle((x, y - 2), 14, 4, fc=entry.color, ec="none"))
            self.text(x + 20, y, cut(entry.text, self.box.w - x - 20))
            x += 34 + CHARACTER_PIXELS * len(entry.text)


def cut(text: str, pixels: float) -> str:
    """What fits, with an ellipsis."""
    room = max(1, int(pixels / CHARACTER_PIXELS))
    return text if len(text) <= room else text[: max(1, room - 1)] + "…"


def time_axis(axes: Axes, what: Shown) -> None:
    """Round times in UTC, about six."""
    axes.set_xlim(what.start, what.end)
    every = next((e for e in TICKS if (what.end - what.start) / e <= 7), 2 * TICKS[-1])
    ticks = [at for at in range(int(what.start - what.start % every), int(what.end) + 1, every) if at >= what.start]
    form = "%H:%M" if every < 43200 else "%m-%d"
    axes.set_xticks(ticks, [datetime.fromtimestamp(at, UTC).strftime(form) for at in ticks])
    axes.grid(axis="both", color=FAINT, lw=0.7)
    axes.set_axisbelow(True)


def value_axis(axes: Axes, config: Json) -> None:
    """Ticks in the unit of a field; limits as configured."""
    unit, decimals = config.get("unit", "short"), config.get("decimals")
    axes.yaxis.set_major_locator(MaxNLocator(5))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: with_unit(value, unit, decimals)))
    axes.grid(axis="y", color=FAINT, lw=0.7)
    low, high = axes.get_ylim()
    axes.set_ylim(config.get("min", low), config.get("max", high))


def thresholds(axes: Axes, what: Shown) -> None:
    """Lines, where the panel shows them."""
    if option(what.panel.defaults, "custom.thresholdsStyle.mode", "off") == "off":
        return
    limits = axes.get_ylim()
    for step in what.panel.defaults["thresholds"]["steps"]:
        if step.get("value") is not None:
            axes.axhline(step["value"], color=fields.color(step["color"]), lw=1.2, ls="--")
    axes.set_ylim(limits)


def dashes(config: Json) -> Any:
    """Matplotlib's style for Grafana's."""
    style = config.get("custom.lineStyle", {})
    return (0, tuple(pixels / 2 for pixels in style.get("dash", (10, 10)))) if style.get("fill") == "dash" else "-"


def spans(times: Sequence[object], values: Sequence[object], step: float) -> Iterator[tuple[float, float, Any]]:
    """From when until when a series had a value; a missing sample ends a span."""
    since, last, current = None, 0.0, None
    for at, value in zip(times, values, strict=True):
        assert isinstance(at, float)
        if since is not None and (value != current or at - last > 1.5 * step):
            yield since, min(at, last + step), current
            since = None
        if since is None and value is not None:
            since, current = at, value
        last = at
    if since is not None:
        yield since, last + step, current
