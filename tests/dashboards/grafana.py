"""What Grafana does to a dashboard before a query leaves it: variables, macros, steps. As of 10.4, Prometheus only.

Written from Grafana's documented behaviour; where there is a choice, the harsher: the data source has Grafana's default
scrape interval of 15 s, although the pack's series are a minute apart.
"""

from __future__ import annotations

import dataclasses
import itertools
import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Protocol

import promql_parser as promql

from support.fieldtools import ROOT

RENDERED = ROOT / "dashboards" / "rendered"
DATASOURCE_INTERVAL_SECONDS = 15.0  # of the data source's settings, when nobody changed them
SCRAPE_SECONDS = 60  # the slowest that the pack is for
COLUMNS = 24
SCREEN_PIXELS = 1368  # the panels of a window of 1400
FIRST_SCREEN_UNITS = 20  # of the grid's height, in a window of 1400 by 900 pixels, under Grafana's own bars
CHARACTER_PIXELS = 6  # of letters 11 pixels high, the smallest that can be read
ALL = "$__all"
UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400}
# Grafana's steps between samples: 10 ms to a day, as people count time.
STEPS = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 15, 20, 30, 60, 120, 300, 600, 900, 1200, 1800)
STEPS_OF_HOURS = (3600, 7200, 10800, 21600, 43200, 86400)

Json = dict[str, Any]


class Source(Protocol):
    """What queries are put to."""

    def instant(self, expression: str, at: float) -> list[Json]: ...

    def range(self, expression: str, start: float, end: float, step: float) -> list[Json]: ...

    def series(self, selector: str, start: float, end: float) -> list[dict[str, str]]: ...


@dataclasses.dataclass(frozen=True, slots=True)
class Panel:
    """One panel that is no row; ``row`` is the title of the row that it stands under."""

    dashboard: str
    row: str
    json: Json

    def __str__(self) -> str:
        return f"{self.dashboard}: {self.row} / {self.title}" if self.row else f"{self.dashboard}: {self.title}"

    @property
    def type(self) -> str:
        """Grafana's name of the visualization."""
        found: str = self.json["type"]
        return found

    @property
    def title(self) -> str:
        """What stands above it."""
        return str(self.json.get("title", ""))

    @property
    def targets(self) -> list[Json]:
        """The queries that are not hidden."""
        return [target for target in self.json.get("targets", []) if not target.get("hide")]

    @property
    def defaults(self) -> Json:
        """Field configuration of all fields."""
        return dict(self.json.get("fieldConfig", {}).get("defaults", {}))

    @property
    def overrides(self) -> list[Json]:
        """Field configuration of some fields."""
        return list(self.json.get("fieldConfig", {}).get("overrides", []))


@dataclasses.dataclass(frozen=True, slots=True)
class Dashboard:
    """One rendered file."""

    name: str
    json: Json

    @property
    def panels(self) -> list[Panel]:
        """All panels in the file's order, those of folded rows too."""
        found, row = [], ""
        for panel in self.json["panels"]:
            if panel["type"] == "row":
                row = panel["title"]
                found += [Panel(self.name, row, folded) for folded in panel["panels"]]
            else:
                found.append(Panel(self.name, row, panel))
        return found

    @property
    def unfolded(self) -> list[Json]:
        """Rows and panels as they stand after somebody unfolded every row."""
        found: list[Json] = []
        moved = 0
        for panel in self.json["panels"]:
            inner = panel.get("panels", [])
            for each in [panel, *inner]:
                grid = each["gridPos"]
                found.append({**each, "gridPos": {**grid, "y": grid["y"] + moved}})
            if inner:
                below = max(each["gridPos"]["y"] + each["gridPos"]["h"] for each in inner)
                moved += below - panel["gridPos"]["y"] - panel["gridPos"]["h"]
        return found

    @property
    def queries_on_open(self) -> int:
        """What Grafana asks of the data source before anybody scrolls: variables, annotations, panels in sight."""
        in_sight = [panel for panel in self.json["panels"] if panel["gridPos"]["y"] < FIRST_SCREEN_UNITS]
        panels = [target for panel in in_sight for target in panel.get("targets", [])]
        variables = [each for each in self.variables if each["type"] == "query"]
        annotations = [each for each in self.annotations if each["enable"]]
        return len(panels) + len(variables) + len(annotations)

    @property
    def variables(self) -> list[Json]:
        """In the order in which they depend on each other."""
        return list(self.json.get("templating", {}).get("list", []))

    @property
    def annotations(self) -> list[Json]:
        """Without Grafana's own."""
        return [each for each in self.json.get("annotations", {}).get("list", []) if not each.get("builtIn")]

    @property
    def expressions(self) -> Iterator[tuple[str, promql.Expr]]:
        """Every query, parsed with all variables put in, and whose it is."""
        variables = {each["name"]: Variable(each, "value") for each in self.variables}
        macros = Window(0, 6 * 3600, SCRAPE_SECONDS).macros
        asked = [(f"{panel}, {each['refId']}", each) for panel in self.panels for each in panel.json["targets"]]
        asked += [(f"annotation {each['name']} of {self.name}", each["target"]) for each in self.annotations]
        for whose, target in asked:
            yield whose, promql.parse(interpolate(target["expr"], variables, macros))

    @property
    def range_seconds(self) -> int:
        """How far back it looks when it is opened."""
        return seconds(self.json["time"]["from"].removeprefix("now-"))


def load(folder: Path = RENDERED) -> list[Dashboard]:
    """The rendered dashboards, by name."""
    return [
        Dashboard(path.stem, json.loads(path.read_text(encoding="utf-8"))) for path in sorted(folder.glob("*.json"))
    ]


def seconds(duration: str) -> int:
    """``90s``, ``1m``, ``1d``."""
    return int(duration[:-1]) * UNITS[duration[-1]]


@dataclasses.dataclass(frozen=True, slots=True)
class Window:
    """The time that a panel shows, and how finely. Unix seconds."""

    start: float
    end: float
    step: float

    @property
    def macros(self) -> dict[str, str]:
        """Of Grafana's own variables the only one that the dashboards may use: the others follow steps of drawing."""
        return {"__range": f"{self.end - self.start:.0f}s"}


def window(panel: Panel, target: Mapping[str, Any], end: float, range_seconds: float) -> Window:
    """What Grafana asks for when the dashboard ends at ``end``."""
    minimum = target.get("interval") or panel.json.get("interval")
    points = SCREEN_PIXELS * panel.json["gridPos"]["w"] // COLUMNS
    step = max(_step(range_seconds / points), seconds(minimum) if minimum else DATASOURCE_INTERVAL_SECONDS)
    return Window(end - range_seconds, end, step)


def _step(exact: float) -> float:
    """The nearest of the steps, as Grafana rounds: up from half of the way."""
    steps = [*STEPS, *STEPS_OF_HOURS]
    for lower, upper in itertools.pairwise(steps):
        if exact < (lower + upper) / 2:
            return lower
    return steps[-1]


# --- Variables --------------------------------------------------------------------------------------------------------

_USE = re.compile(r"\$\{([^}]+)\}|\$(\w+)")


@dataclasses.dataclass(frozen=True, slots=True)
class Variable:
    """One variable as chosen: ``value`` is what was picked, or :data:`ALL`."""

    json: Json
    value: str
    choices: tuple[str, ...] = ()

    def __str__(self) -> str:
        """As it stands in a query: within a quoted string, as a regular expression where several can be picked."""
        if self.value == ALL:
            return str(self.json["allValue"])
        several = self.json.get("multi") or self.json.get("includeAll")
        text = re.sub(r"[\\^$*+?.()|\[\]{}/]", r"\\\g<0>", self.value) if several else self.value
        return text.replace("\\", "\\\\")


def interpolate(text: str, variables: Mapping[str, Variable], macros: Mapping[str, str]) -> str:
    """Replace every variable.

    As Grafana does, it leaves ``$1`` of a ``label_replace``. Raises ``KeyError`` for one that neither Grafana nor the
    dashboard has.
    """

    def replacement(use: re.Match[str]) -> str:
        name = use[1] or use[2]
        return use[0] if name.isdecimal() else str({**variables, **macros}[name])

    return _USE.sub(replacement, text)


def chosen(dashboard: Dashboard, picks: Mapping[str, str], source: Source, end: float) -> dict[str, Variable]:
    """Every variable of a dashboard after somebody made ``picks``, one after the other as Grafana does.

    What is not picked is All where that exists, else the first choice.
    """
    variables: dict[str, Variable] = {}
    for variable in dashboard.variables:
        choices = tuple(options(variable, variables, source, end - dashboard.range_seconds, end))
        name = variable["name"]
        first = ALL if variable.get("includeAll") else choices[0] if choices else ""
        variables[name] = Variable(variable, picks.get(name, first), choices)
    return variables


def options(variable: Json, before: Mapping[str, Variable], source: Source, start: float, end: float) -> Iterator[str]:
    """What the variable offers."""
    match variable["type"]:
        case "datasource":
            yield "prometheus"
        case "query":
            yield from sorted(set(_query(interpolate(variable["query"]["query"], before, {}), source, start, end)))
        case kind:
            raise ValueError(f"${variable['name']}: variables of type {kind!r} are not known here")


def _query(text: str, source: Source, start: float, end: float) -> Iterator[str]:
    match = re.fullmatch(r"label_values\((.+),\s*(\w+)\s*\)", text, re.DOTALL)
    if match is None:
        raise ValueError(f"expected label_values(metric, label), found {text!r}")
    yield from (labels[match[2]] for labels in source.series(match[1], start, end) if match[2] in labels)
