"""Grafana's own code shows the panels' values as they are meant: golden/<dashboard>.txt tells every text and colour.

The names of fields come from made-up answers with the labels that legends and columns name; Grafana's transformations,
field configuration and formats do the rest (components/fields.js: which values it is asked for).
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path

import pytest

from dashboards.conftest import DASHBOARDS
from dashboards.grafana import Dashboard, Json, Panel, window
from panels import components
from panels.database import NOW
from panels.frames import Answer, labels_in_legend

GOLDEN = Path(__file__).parent / "golden"
# What labels say where the texts of a panel depend on it; any other says its own name.
LABELS: Mapping[str, Sequence[str]] = {
    "verdict": ("harmful", "not_measured", "healthy"),
    "stat": ("mean", "p99"),
    "position": ("0", "1"),
    "concurrency": ("4", "8"),
    "sli": ("tpot", "ttft"),
    "finished_reason": ("abort", "error"),
    "action": ("SpecDecodeHarmful/critical/", "SpecDecodeDataUntrusted/warning/baseline_old"),
}
MACROS = {"$inference_service": "chat", "$compare_with": "chat-control"}

pytestmark = pytest.mark.field


def answers(panel: Panel) -> list[Answer]:
    """To each query: series with all combinations of what :data:`LABELS` says of its labels."""
    shown = window(panel, {}, NOW, 3600)
    found = []
    for target in panel.targets:
        names = sorted(labels_in_legend(target) or columns(panel))
        series = [
            {"metric": dict(zip(names, values, strict=True)), "value": [NOW, "1"]}
            for values in itertools.product(*(LABELS.get(name, (name,)) for name in names))
        ]
        legend = target.get("legendFormat") or ""
        for macro, value in MACROS.items():
            legend = legend.replace(macro, value)
        found.append(Answer({**target, "legendFormat": legend}, shown, target["expr"], series))
    return found


def columns(panel: Panel) -> set[str]:
    """The labels that transformations name."""
    named: set[str] = set()
    for each in panel.json.get("transformations", []):
        options = each.get("options", {})
        for key in ("excludeByName", "indexByName", "renameByName"):
            named |= set(options.get(key, {}))
        named |= {mapping["fieldName"] for mapping in options.get("mappings", [])}
    return {name for name in named if re.fullmatch(r"[a-z_]+", name)}


def told(panel: Panel, fields: Sequence[Json]) -> Iterator[str]:
    """A line for each field. Text is coloured as text, unless it says so."""
    empty = str(panel.defaults["noValue"])
    yield f"{panel.row} / {panel.title} ({panel.type}; no data: {empty})"
    for field in fields:
        values = []
        for each in field["typical"]:
            value = "nothing" if each["value"] is None else f"{each['value']:g}" if is_number(each) else each["value"]
            text = "no data" if each["text"] == empty else each["text"]
            color = "" if each["color"] in (None, "text") else f" ({each['color']})"
            values.append(f"{value} -> {text}{color}")
        if values:
            yield f"  {field['name']}: {' | '.join(values)}"
    yield ""


def is_number(each: Json) -> bool:
    return isinstance(each["value"], (int, float))


@cache
def drawn(name: str) -> list[tuple[Panel, list[Json]]]:
    """The panels of a dashboard with the fields that Grafana makes of :func:`answers`."""
    (panels,) = [each.panels for each in DASHBOARDS if each.name == name]
    given = [components.given(panel, answers(panel)) for panel in panels]
    return list(zip(panels, components.fields(given, NOW), strict=True))


def shown(dashboard: Dashboard) -> str:
    return "\n".join(line for panel, fields in drawn(dashboard.name) for line in told(panel, fields))


@pytest.mark.parametrize("dashboard", DASHBOARDS, ids=lambda dashboard: dashboard.name)
def test_values_are_shown_as_they_are_meant(dashboard: Dashboard, request: pytest.FixtureRequest) -> None:
    path = GOLDEN / f"{dashboard.name}.txt"
    if request.config.getoption("--update-golden"):
        path.parent.mkdir(exist_ok=True)
        path.write_text(shown(dashboard), encoding="utf-8")

    assert shown(dashboard) == path.read_text(encoding="utf-8")


@pytest.mark.parametrize("dashboard", DASHBOARDS, ids=lambda dashboard: dashboard.name)
def test_lines_of_a_panel_have_colours_of_their_own(dashboard: Dashboard) -> None:
    shared = {}
    for panel, fields in drawn(dashboard.name):
        colors = [field["typical"][0]["color"] for field in fields if panel.type == "timeseries" and field["typical"]]
        if len(colors) != len(set(colors)):
            shared[str(panel)] = colors

    assert shared == {}
