"""Panels whose x is time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.patches import Rectangle
from matplotlib.ticker import FuncFormatter, MaxNLocator

from dashboards.fields import PALETTE, option, shown, value_color, with_unit
from dashboards.page import (
    CHARACTER_PIXELS,
    SMALL,
    Box,
    Entry,
    Page,
    Shown,
    cut,
    dashes,
    legend_height,
    spans,
    thresholds,
    time_axis,
    value_axis,
)

# From low to high.
SCHEMES: Mapping[str, Sequence[str]] = {"RdYlGn": ("#d73027", "#fee08b", "#1a9850")}


def timeseries(page: Page, box: Box, what: Shown) -> None:
    """Lines or bars over time, thresholds, annotations and a legend."""
    entries = what.entries()
    height = 0.0
    if option(what.panel.options, "legend.showLegend", default=True):
        height = legend_height(box, entries)
        page.legend(Box(box.x, box.y + box.h - height + 2, box.w, height), entries)
    axes = page.axes(box.inset(44, 3, 14, 14 + height))
    time_axis(axes, what)
    base: dict[float, float] = {}
    for entry in entries:
        _draw(axes, entry, what, base)
    _bands(axes, entries)
    value_axis(axes, entries[0].config)
    thresholds(axes, what)
    for at, color in what.marks:
        axes.axvline(at, color=color, lw=0.7, ls=(0, (3, 2)), alpha=0.6, zorder=1)


def _draw(axes: Axes, entry: Entry, what: Shown, base: dict[float, float]) -> None:
    """One series; ``base`` is what those that are stacked reach before it."""
    config, points = entry.config, entry.points()
    if not points:
        return
    lower = dict.fromkeys((at for at, _ in points), 0.0)
    if option(config.get("custom.stacking", {}), "mode", "none") != "none":
        lower = {at: base.get(at, 0.0) for at in lower}
        points = [(at, lower[at] + value) for at, value in points]
        base |= dict(points)
    if config.get("custom.drawStyle") == "bars":
        axes.bar([at for at, _ in points], [v for _, v in points], what.step * 0.8, color=entry.color, alpha=0.7)
        return
    opacity = 0.0 if config.get("custom.fillBelowTo") else config.get("custom.fillOpacity", 0) / 100
    style: dict[str, Any] = {"color": entry.color, "lw": config.get("custom.lineWidth", 1) * 0.9, "ls": dashes(config)}
    for piece in _pieces(points, 1.5 * what.step):
        times, values = [at for at, _ in piece], [value for _, value in piece]
        lonely: dict[str, Any] = {"marker": "o", "ms": 2} if len(piece) == 1 else {}
        axes.plot(times, values, **style, **lonely)
        if opacity:
            floor = [lower[at] for at in times]
            axes.fill_between(times, floor, values, color=entry.color, alpha=opacity * 0.6, lw=0)


def _pieces(points: Sequence[tuple[float, float]], gap: float) -> list[list[tuple[float, float]]]:
    """Broken where a sample is missing."""
    found = [[points[0]]]
    for before, point in pairwise(points):
        if point[0] - before[0] > gap:
            found.append([])
        found[-1].append(point)
    return found


def _bands(axes: Axes, entries: Sequence[Entry]) -> None:
    """From a series down to the one that it names."""
    by_name = {entry.text: entry for entry in entries}
    for entry in entries:
        if (below := by_name.get(str(entry.config.get("custom.fillBelowTo")))) is not None:
            lower, upper = dict(below.points()), dict(entry.points())
            times = [at for at in upper if at in lower]
            edges = [lower[at] for at in times], [upper[at] for at in times]
            axes.fill_between(times, *edges, color=entry.color, alpha=0.15, lw=0)


def state_timeline(page: Page, box: Box, what: Shown) -> None:
    """Spans of equal value, one row for each series."""
    entries = what.entries()
    left = min(box.w * 0.3, 12 + CHARACTER_PIXELS * max(len(entry.text) for entry in entries))
    plot = box.inset(left, 0, 14, 14)
    axes = page.axes(plot)
    time_axis(axes, what)
    axes.set(ylim=(len(entries), 0), yticks=[])
    pixels_per_second = plot.w / (what.end - what.start)
    for row, entry in enumerate(entries):
        page.text(box.x, plot.y + plot.h * (row + 0.5) / len(entries), cut(entry.text, left), fontsize=SMALL)
        for since, until, value in spans(entry.frame.fields[0].values, entry.field.values, what.step):
            face = value_color(entry.config, value) or PALETTE[row % len(PALETTE)]
            axes.add_patch(Rectangle((since, row + 0.1), until - since, 0.8, fc=face, ec="none", alpha=0.8))
            words = shown(entry.config, value)
            if len(words) * CHARACTER_PIXELS < (until - since) * pixels_per_second:
                axes.text((since + until) / 2, row + 0.5, words, fontsize=SMALL, ha="center", va="center", clip_on=True)


def heatmap(page: Page, box: Box, what: Shown) -> None:
    """Time from left to right, series from bottom to top, values as colour."""
    entries, options = what.entries(), what.panel.options
    numbers = [value for entry in entries for value in entry.field.numbers]
    low, high = option(options, "color.min", min(numbers)), option(options, "color.max", max(numbers))
    colors = LinearSegmentedColormap.from_list("scheme", SCHEMES[options["color"]["scheme"]])
    axes = page.axes(box.inset(44, 3, 64, 14))
    time_axis(axes, what)
    axes.set(ylim=(len(entries), 0) if option(options, "yAxis.reverse") else (0, len(entries)))
    axes.set_yticks([row + 0.5 for row in range(len(entries))], [entry.text for entry in entries])
    for row, entry in enumerate(entries):
        for at, value in entry.points():
            share = (value - low) / ((high - low) or 1)
            axes.add_patch(Rectangle((at - what.step, row), what.step, 0.97, fc=colors(share), ec="none"))
    scale = page.axes(Box(box.x + box.w - 54, box.y + 10, 8, box.h - 34))
    ramp = [[1 - step / 63] for step in range(64)]
    scale.imshow(ramp, cmap=colors, aspect="auto", extent=(0, 1, low, high), vmin=0, vmax=1)
    scale.set(xticks=[])
    scale.yaxis.tick_right()
    unit = option(options, "cellValues.unit") or what.panel.defaults.get("unit", "short")
    scale.yaxis.set_major_formatter(FuncFormatter(lambda value, _: with_unit(value, unit, None)))
    scale.yaxis.set_major_locator(MaxNLocator(4))
