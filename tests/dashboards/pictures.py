"""Pictures of the dashboards as docs/dashboard-<name>.png: a renderer of our own, fed with Prometheus' answers.

    make pictures

Nothing here is Grafana's; every picture says so. It shows what a dashboard tells and whether it can be read.
"""

from __future__ import annotations

import dataclasses
import io
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path

TESTS = Path(__file__).parents[1]
sys.path.insert(0, str(TESTS))

from PIL import Image

from dashboards import at_once, over_time
from dashboards.cast import REPLICAS, SHOWN_SECONDS, VIEWS
from dashboards.database import NOW, database, fill
from dashboards.fields import color
from dashboards.frames import View, frames
from dashboards.grafana import ALL, COLUMNS, Panel, interpolate, load, window
from dashboards.page import BORDER, INK, MUTED, Box, Page, Shown, cut

DOCS = TESTS.parent / "docs"
LABEL = "Preview drawn from the dashboard's JSON and simulated data, not by Grafana"
WIDTH, MARGIN, GAP = 1200, 12, 6
UNIT_PIXELS = 27  # of the grid's height; Grafana's 38 at the scale of 1704 pixels
HEAD_PIXELS, TITLE_PIXELS, PADDING = 62, 24, 8
COLORS = 255
DRAW: Mapping[str, Callable[[Page, Box, Shown], None]] = {
    "barchart": at_once.barchart,
    "heatmap": over_time.heatmap,
    "stat": at_once.stat,
    "state-timeline": over_time.state_timeline,
    "table": at_once.table,
    "timeseries": over_time.timeseries,
    "trend": at_once.trend,
}


def picture(view: View) -> bytes:
    """What somebody sees who unfolded all rows, as PNG."""
    grid = view.dashboard.unfolded
    below = max(each["gridPos"]["y"] + each["gridPos"]["h"] for each in grid)
    page = Page(WIDTH, HEAD_PIXELS + int(below * UNIT_PIXELS) + MARGIN)
    _head(page, view)
    for row in (each for each in grid if each["type"] == "row"):
        place = _place(row)
        page.text(place.x + 2, place.y + place.h / 2, f"⌄ {row['title']}", fontsize=9)
    marks = list(_marks(view))
    unfolded = [each for each in grid if each["type"] != "row"]
    for panel, placed in zip(view.dashboard.panels, unfolded, strict=True):
        _panel(page, _shown(view, dataclasses.replace(panel, json=placed), marks))
    raw = io.BytesIO()
    page.figure.savefig(raw, format="png", metadata={"Software": None})
    packed = io.BytesIO()
    Image.open(raw).convert("RGB").quantize(COLORS, dither=Image.Dither.NONE).save(packed, "PNG", optimize=True)
    return packed.getvalue()


def _place(panel: Mapping[str, Mapping[str, int]]) -> Box:
    grid, column = panel["gridPos"], (WIDTH - 2 * MARGIN) / COLUMNS
    x, y = MARGIN + grid["x"] * column, HEAD_PIXELS + grid["y"] * UNIT_PIXELS
    return Box(x, y, grid["w"] * column - GAP, grid["h"] * UNIT_PIXELS - GAP)


def _head(page: Page, view: View) -> None:
    page.text(MARGIN, 16, str(view.dashboard.json["title"]), fontsize=13)
    page.text(WIDTH - MARGIN, 16, LABEL, ha="right", color="#c4162a", fontsize=8.5)
    x = float(MARGIN)
    for variable in view.variables.values():
        if variable.json["type"] == "datasource" or variable.json.get("hide") == 2:
            continue
        value = "All" if variable.value == ALL else variable.value
        words = f"{variable.json.get('label') or variable.json['name']}: {value}"
        page.rectangle(Box(x, 32, 16 + 6.3 * len(words), 20), "#ffffff", BORDER, round_by=3)
        page.text(x + 8, 42, words)
        x += 24 + 6.3 * len(words)
    since, until = (
        datetime.fromtimestamp(at, UTC).strftime("%H:%M") for at in (view.end - view.range_seconds, view.end)
    )
    page.text(WIDTH - MARGIN, 42, f"{since} to {until} UTC", ha="right", color=MUTED)


def _shown(view: View, panel: Panel, marks: Sequence[tuple[float, str]]) -> Shown:
    answers = view.ask(panel)
    shown = answers[0].window if answers else window(panel, {}, view.end, view.range_seconds)
    title = interpolate(panel.title, view.variables, shown.macros, "raw")
    panel = dataclasses.replace(panel, json={**panel.json, "title": title})
    return Shown(panel, frames(panel, answers), shown.start, shown.end, shown.step, marks)


def _panel(page: Page, what: Shown) -> None:
    """Frame, title, and what the panel's type draws; its words for "no data" where there is none."""
    panel = what.panel
    box = _place(panel.json)
    page.rectangle(box, "#ffffff", BORDER, round_by=3)
    page.text(box.x + PADDING, box.y + 13, cut(panel.title, box.w / 1.15 - PADDING), fontsize=8.2, color=INK)
    inner = box.inset(PADDING, TITLE_PIXELS, PADDING, PADDING)
    if not any(len(frame) for frame in what.frames):
        page.words(inner, str(panel.defaults.get("noValue") or "No data"), color=MUTED, centered=True)
    else:
        DRAW[panel.type](page, inner, what)


def _marks(view: View) -> Iterator[tuple[float, str]]:
    """Where annotations begin, with their colour."""
    for annotation in view.dashboard.annotations:
        if not annotation["enable"]:
            continue
        answer = view.annotate(annotation)
        for series in answer.series:
            times = [float(at) for at, value in series["values"] if float(value)]
            yield from ((at, color(annotation["iconColor"])) for at in _beginnings(times, answer.window.step))


def _beginnings(times: Iterable[float], step: float) -> Iterator[float]:
    before = float("-inf")
    for at in times:
        if at - before > 1.5 * step:
            yield at
        before = at


def main() -> int:
    """Draw all dashboards, of the service that collapsed where they are about one."""
    picks = {"inference_service": VIEWS["collapse"], "compare_with": f"{VIEWS['healthy']}-control"}
    with (
        tempfile.TemporaryDirectory(prefix="specdec-pictures-") as folder,
        database(fill(Path(folder), REPLICAS)) as source,
    ):
        for dashboard in load():
            names = {variable["name"] for variable in dashboard.variables if not variable.get("multi")}
            chosen = {name: value for name, value in picks.items() if name in names}
            view = dataclasses.replace(View.of(dashboard, chosen, source, NOW), range_seconds=SHOWN_SECONDS)
            path = DOCS / f"dashboard-{dashboard.name.removeprefix('specdec-')}.png"
            path.write_bytes(picture(view))
            sys.stdout.write(f"{path.relative_to(TESTS.parent)}: {path.stat().st_size / 1024:.0f} KiB\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
