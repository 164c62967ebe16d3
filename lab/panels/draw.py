"""Pictures of the dashboards as docs/dashboard-<name>.png, drawn by Grafana's own components from Prometheus' answers.

`make pictures` runs it.
"""

from __future__ import annotations

import dataclasses
import io
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path

from PIL import Image

from dashboards.grafana import ALL, COLUMNS, SCREEN_PIXELS, Json, Panel, load
from panels import components
from panels.cast import REPLICAS, SHOWN_SECONDS, VIEWS
from panels.database import NOW, database, fill
from panels.frames import View
from support.fieldtools import ROOT

DOCS = ROOT / "docs"
LABEL = f"Preview of simulated data, drawn by Grafana's components {components.RELEASE}."
MARGIN, GAP = 16, 8
WIDTH = SCREEN_PIXELS + 2 * MARGIN
NARROW = 769  # up to which Grafana stacks panels
HEIGHT = 900  # at most: what one screen shows without scrolling
PHONE = (390, 844)
UNIT_PIXELS = 38  # of the grid's height
HEAD_PIXELS = 84
COLORS = 255


def picture(view: View, width: int = WIDTH, height: int = HEIGHT, *, dark: bool = False) -> bytes:
    """What somebody sees who opens the dashboard in a window of so many pixels, as PNG."""
    placed = list(_places(view.dashboard.json["panels"], width))
    placed = [(each, place) for each, place in placed if place["y"] < height]
    shown = {each["id"]: place for each, place in placed if each["type"] != "row"}
    panels = [(panel, shown[panel.json["id"]]) for panel in view.dashboard.panels if panel.json["id"] in shown]
    since, until = (
        datetime.fromtimestamp(at, UTC).strftime("%H:%M") for at in (view.end - view.range_seconds, view.end)
    )
    drawn = {
        "title": view.dashboard.json["title"],
        "about": LABEL if width > NARROW else "",
        "chosen": "    ".join(_chosen(view)) if width > NARROW else "",
        "range": f"{since} to {until} UTC",
        "width": width,
        "height": min(height, max(place["y"] + place["h"] for _, place in placed) + MARGIN),
        "dark": dark,
        "now": 1000 * view.end,
        "rows": [
            {"title": each["title"], "open": not each["collapsed"], **place}
            for each, place in placed
            if each["type"] == "row"
        ],
        "panels": [_panel(view, panel, place) for panel, place in panels],
        "marks": [{"at": 1000 * at, "color": color} for at, color in _marks(view)],
    }
    with tempfile.TemporaryDirectory(prefix="specdec-picture-") as folder:
        raw = components.screenshot(drawn, Path(folder))
    packed = io.BytesIO()
    whole = Image.open(io.BytesIO(raw)).convert("RGB")
    whole.quantize(COLORS, dither=Image.Dither.NONE).save(packed, "PNG", optimize=True)
    return packed.getvalue()


def _places(panels: Iterable[Json], width: int) -> Iterator[tuple[Json, dict[str, int]]]:
    """Rows and panels with their pixels; on a narrow screen one stands below the other."""
    y = 0
    for panel in panels:
        grid = panel["gridPos"]
        yield panel, _place(grid if width > NARROW else {"x": 0, "y": y, "w": COLUMNS, "h": grid["h"]}, width)
        y += grid["h"]


def _place(grid: Mapping[str, int], width: int) -> dict[str, int]:
    column = (width - 2 * MARGIN + GAP) / COLUMNS
    x, right = (MARGIN + round(at * column) for at in (grid["x"], grid["x"] + grid["w"]))
    y = HEAD_PIXELS + grid["y"] * UNIT_PIXELS
    return {"x": x, "y": y, "w": right - x - GAP, "h": grid["h"] * UNIT_PIXELS - GAP}


def _chosen(view: View) -> Iterator[str]:
    for variable in view.variables.values():
        if variable.json["type"] != "datasource" and variable.json.get("hide") != 2:
            value = "All" if variable.value == ALL else variable.value
            yield f"{variable.json.get('label') or variable.json['name']}: {value}"


def _panel(view: View, panel: Panel, place: Mapping[str, int]) -> Json:
    """A panel with its data."""
    answers = view.ask(panel)
    shown = answers[0].window
    times = {"start": 1000 * shown.start, "end": 1000 * shown.end}
    return {**components.given(panel, answers), "place": place, **times}


def _marks(view: View) -> Iterator[tuple[float, str]]:
    """Where annotations begin, with their colour."""
    for annotation in view.dashboard.annotations:
        if not annotation["enable"]:
            continue
        answer = view.annotate(annotation)
        for series in answer.series:
            times = [float(at) for at, value in series["values"] if float(value)]
            yield from ((at, annotation["iconColor"]) for at in _beginnings(times, answer.window.step))


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
            drawn = {path: picture(view)}
            if path.stem == "dashboard-service":
                drawn[path.with_stem("dashboard-service-dark")] = picture(view, dark=True)
                drawn[path.with_stem("dashboard-service-phone")] = picture(view, *PHONE)
            for file, png in drawn.items():
                file.write_bytes(png)
                sys.stdout.write(f"{file.relative_to(ROOT)}: {len(png) / 1024:.0f} KiB\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
