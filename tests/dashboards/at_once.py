"""Panels of one moment, and those whose x is no time: values, tables, bars, curves, text."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from dashboards import fields
from dashboards.fields import option, shown, value_color
from dashboards.frames import Cell, Field, rank, reduced
from dashboards.grafana import Json
from dashboards.page import (
    INK,
    LINK,
    MUTED,
    SMALL,
    Box,
    Entry,
    Page,
    Shown,
    cut,
    dashes,
    thresholds,
    value_axis,
)

ROW_PIXELS = 17
SCALE = 1200 / 1704  # of these pictures, against what widths of columns are meant for
MIN_COLUMN_PIXELS = 150 * SCALE


def stat(page: Page, box: Box, what: Shown) -> None:
    """Large values side by side, coloured."""
    options = what.panel.options
    cells = list(_cells(what))
    mode = options.get("textMode", "auto")
    longest = max(len(shown(e.config, value)) for e, _, value in cells)
    for number, (entry, text, value) in enumerate(cells):
        part = Box(box.x + box.w * number / len(cells), box.y, box.w / len(cells), box.h)
        ink = value_color(entry.config, value) or INK
        if str(options.get("colorMode", "value")).startswith("background"):
            page.rectangle(part.inset(1, 0, 1, 0), ink, round_by=3)
            ink = "#ffffff"
        elif options.get("graphMode", "area") == "area" and len(points := entry.points()) > 1:
            spark = page.axes(part.inset(0, part.h * 0.62, 0, 0))
            spark.axis("off")
            values = [v for _, v in points]
            spark.fill_between([at for at, _ in points], values, min(values), color=ink, alpha=0.2)
        named = mode == "value_and_name" or (mode == "auto" and len(cells) > 1)
        words = shown(entry.config, value)
        largest = min(part.h * (0.3 if named else 0.42), 1.05 * part.w / max(4, longest), 26)
        middle = part.y + part.h * (0.62 if named else 0.5)
        page.text(part.x + part.w / 2, middle, words, fontsize=largest, color=ink, ha="center")
        if named:
            page.text(
                part.x + part.w / 2,
                part.y + part.h * 0.2,
                cut(text, part.w - 6),
                fontsize=SMALL,
                ha="center",
                color=ink,
            )


def _cells(what: Shown) -> Iterator[tuple[Entry, str, Cell]]:
    """Name and value of each field."""
    how = (option(what.panel.options, "reduceOptions.calcs") or ["lastNotNull"])[0]
    for entry in what.entries():
        if entry.field.numbers or len(entry.frame.value_fields) == 1:
            yield entry, entry.text, reduced(entry.field, how)


def barchart(page: Page, box: Box, what: Shown) -> None:
    """Groups of bars, one group for each row; stacked, a group is one bar."""
    labels, entries, axes = _over(page, box, what, right=4, below=30)
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
                axes.text(place, tops[row], text, fontsize=SMALL, ha="center", va="bottom", color=MUTED)
    names = [f"{value:g}" if isinstance(value, (int, float)) else str(value) for value in labels.values]
    axes.set_xticks(range(len(names)), names)
    axes.margins(y=0.15)
    value_axis(axes, entries[0].config)
    thresholds(axes, what)


def trend(page: Page, box: Box, what: Shown) -> None:
    """Lines over a column of rising numbers."""
    x, entries, axes = _over(page, box, what, right=8, below=30)
    for entry in entries:
        points = entry.points(x)
        at, values = [at for at, _ in points], [value for _, value in points]
        axes.plot(at, values, color=entry.color, marker="o", ms=3.5, lw=1.6, ls=dashes(entry.config))
    axes.xaxis.set_major_locator(MaxNLocator(8, integer=True))
    value_axis(axes, entries[0].config)
    thresholds(axes, what)


def _over(page: Page, box: Box, what: Shown, *, right: float, below: float) -> tuple[Field, list[Entry], Axes]:
    """The field that stands under a chart, those that it shows, and its axes; draws the legend."""
    (frame, *_) = what.frames
    name = what.panel.options.get("xField")
    x = next((field for field in frame.fields if name in (field.title, field.name)), frame.value_fields[0])
    entries = [entry for entry in what.entries() if entry.field is not x and entry.field.numbers]
    page.legend(Box(box.x, box.y + box.h - 13, box.w, 13), entries)
    return x, entries, page.axes(box.inset(44, 3, right, below))


def table(page: Page, box: Box, what: Shown) -> None:
    """Rows of text, with coloured cells where the configuration says so."""
    (frame, *_) = what.frames
    columns = [Entry(frame, field, fields.configuration(what.panel, frame, field), 0) for field in frame.fields]
    columns = [column for column in columns if not column.config.get("custom.hidden")]
    rows = list(range(len(frame)))
    for by in reversed(what.panel.options.get("sortBy", [])):
        values = next((column.field.values for column in columns if column.text == by["displayName"]), None)
        if values is not None:
            rows.sort(key=[rank(value) for value in values].__getitem__, reverse=bool(by.get("desc")))
    texts = [[shown(column.config, column.field.values[row]) for row in rows] for column in columns]
    fixed = [column.config.get("custom.width", 0) * SCALE for column in columns]
    share = max(MIN_COLUMN_PIXELS, (box.w - sum(fixed)) / max(1, fixed.count(0)))
    x = box.x
    for column, text, width in zip(columns, texts, [width or share for width in fixed], strict=True):
        if x + width > box.x + box.w + 1:  # Grafana scrolls
            return
        _column(page, Box(x, box.y, width, box.h), column, [column.field.values[row] for row in rows], text)
        x += width


def _column(page: Page, box: Box, column: Entry, values: Sequence[Cell], texts: Sequence[str]) -> None:
    right = bool(column.field.numbers) and not column.config.get("mappings")
    right = right and column.config.get("custom.align", "auto") in ("auto", "right")
    at, align = (box.x + box.w - 8, "right") if right else (box.x + 4, "left")
    room = box.w - 6
    page.text(at, box.y + 8, cut(column.text, room), color=LINK, fontsize=SMALL, ha=align)
    for number, (value, text) in enumerate(zip(values, texts, strict=True)):
        y = box.y + 18 + ROW_PIXELS * number
        if y + ROW_PIXELS > box.y + box.h + 4:
            return
        ink = _ink(page, Box(box.x, y + 1, box.w - 2, ROW_PIXELS - 2), column.config, value, text)
        page.text(at, y + ROW_PIXELS / 2, cut(text, room), fontsize=SMALL, color=ink, ha=align)


def _ink(page: Page, box: Box, config: Json, value: Cell, text: str) -> str:
    """The colour of a cell's text; its background is painted."""
    face, kind = value_color(config, value), option(config.get("custom.cellOptions", {}), "type", "auto")
    if kind == "color-background" and face and text:
        page.rectangle(box, face)
        return "#ffffff"
    if kind == "color-text" and face:
        return face
    return LINK if config.get("links") else INK
