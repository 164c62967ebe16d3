"""Panels whose x is no time: bars."""

from __future__ import annotations

from matplotlib.axes import Axes

from dashboards.fields import shown
from dashboards.frames import Field
from dashboards.page import AXIS_PIXELS, LINE_PIXELS, SIZE, Entry, Page, Shown, thresholds, value_axis


def barchart(page: Page, what: Shown) -> None:
    """Groups of bars, one group for each row; stacked, a group is one bar."""
    labels, entries, axes = _over(page, what)
    stacked = what.panel.options.get("stacking", "none") != "none"
    places = 1 if stacked else max(1, len(entries))
    width = what.panel.options.get("groupWidth", 0.7) / places
    tops = [0.0] * len(labels.values)
    for number, entry in enumerate(entries):
        for row, value in enumerate(entry.field.values):
            if not isinstance(value, (int, float)):
                continue
            place = row + (0 if stacked else number - (places - 1) / 2) * width
            bottom = tops[row] if stacked else 0.0
            tops[row] = bottom + value
            axes.bar(place, value, width * 0.92, bottom, color=entry.color, alpha=0.85, zorder=2)
            if what.panel.options.get("showValue", "auto") != "never":
                text = shown(entry.config, value)
                axes.text(place, tops[row], text, fontsize=SIZE - 1.5, ha="center", va="bottom", color=page.ink)
    names = [f"{value:g}" if isinstance(value, (int, float)) else str(value) for value in labels.values]
    axes.set_xticks(range(len(names)), names)
    axes.margins(y=0.15)
    value_axis(axes, entries[0].config)
    thresholds(axes, what)


def _over(page: Page, what: Shown) -> tuple[Field, list[Entry], Axes]:
    """The field that stands under a chart, those that it shows, and its axes; draws the legend."""
    (frame, *_) = what.frames
    name = what.panel.options.get("xField")
    x = next((field for field in frame.fields if name in (field.title, field.name)), frame.value_fields[0])
    entries = [entry for entry in what.entries() if entry.field is not x and entry.field.numbers]
    page.legend(entries)
    return x, entries, page.axes(page.box.inset(52, 6, 6, AXIS_PIXELS + LINE_PIXELS))
