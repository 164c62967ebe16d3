"""Panels whose x is time and that are no lines: states and heat."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from matplotlib.colors import LinearSegmentedColormap
from matplotlib.patches import Rectangle
from matplotlib.ticker import FuncFormatter, MaxNLocator

from dashboards.fields import PALETTE, option, shown, value_color, with_unit
from dashboards.page import AXIS_PIXELS, CHARACTER_PIXELS, SIZE, Box, Page, Shown, cut, spans, time_axis

# From low to high.
SCHEMES: Mapping[str, Sequence[str]] = {"RdYlGn": ("#d73027", "#fee08b", "#1a9850")}


def state_timeline(page: Page, what: Shown) -> None:
    """Spans of equal value, one row for each series."""
    entries, box = what.entries(), page.box
    left = min(box.w * 0.4, 12 + CHARACTER_PIXELS * max(len(entry.text) for entry in entries))
    plot = box.inset(left, 0, 14, AXIS_PIXELS)
    axes = page.axes(plot)
    time_axis(axes, what)
    axes.set(ylim=(len(entries), 0), yticks=[])
    pixels_per_second = plot.w / (what.end - what.start)
    for row, entry in enumerate(entries):
        page.text(box.x, plot.y + plot.h * (row + 0.5) / len(entries), cut(entry.text, left - 8))
        for since, until, value in spans(entry.frame.fields[0].values, entry.field.values, what.step):
            face = value_color(entry.config, value) or PALETTE[row % len(PALETTE)]
            axes.add_patch(Rectangle((since, row + 0.05), until - since, 0.9, fc=face, ec="none", alpha=0.8))
            words = shown(entry.config, value)
            if 8 + len(words) * CHARACTER_PIXELS < (until - since) * pixels_per_second:
                at = since + 4 / pixels_per_second  # Grafana's alignValue: left
                axes.text(at, row + 0.5, words, fontsize=SIZE, ha="left", va="center", clip_on=True)


def heatmap(page: Page, what: Shown) -> None:
    """Time from left to right, series from bottom to top, values as colour."""
    entries, options, box = what.entries(), what.panel.options, page.box
    numbers = [value for entry in entries for value in entry.field.numbers]
    low, high = option(options, "color.min", min(numbers)), option(options, "color.max", max(numbers))
    colors = LinearSegmentedColormap.from_list("scheme", SCHEMES[options["color"]["scheme"]])
    axes = page.axes(box.inset(32, 6, 84, AXIS_PIXELS))
    time_axis(axes, what)
    axes.set(ylim=(len(entries), 0) if option(options, "yAxis.reverse") else (0, len(entries)))
    axes.set_yticks([row + 0.5 for row in range(len(entries))], [entry.text for entry in entries])
    for row, entry in enumerate(entries):
        for at, value in entry.points():
            share = (value - low) / ((high - low) or 1)
            axes.add_patch(Rectangle((at - what.step, row), what.step, 0.97, fc=colors(share), ec="none"))
    scale = page.axes(Box(box.w - 72, 12, 10, box.h - 52))
    ramp = [[1 - step / 63] for step in range(64)]
    scale.imshow(ramp, cmap=colors, aspect="auto", extent=(0, 1, low, high), vmin=0, vmax=1)
    scale.set(xticks=[])
    scale.yaxis.tick_right()
    unit = option(options, "cellValues.unit") or what.panel.defaults.get("unit", "short")
    scale.yaxis.set_major_formatter(FuncFormatter(lambda value, _: with_unit(value, unit, None)))
    scale.yaxis.set_major_locator(MaxNLocator(4))
