"""What Grafana does to a dashboard before a query leaves it: variables, macros, steps. As of 10.4, Prometheus only.

Written from Grafana's documented behaviour; where there is a choice, the harsher: the data source has Grafana's default
scrape interval of 15 s, although the pack's series are a minute apart.
"""

from __future__ import annotations

import dataclasses
import itertools
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from fieldtools import ROOT

RENDERED = ROOT / "dashboards" / "rendered"
DATASOURCE_INTERVAL_SECONDS = 15.0  # of the data source's settings, when nobody changed them
COLUMNS = 24
SCREEN_PIXELS = 1368  # the panels of a window of 1400
ALL = "$__all"
UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0, "w": 604800.0}
# Grafana's steps between samples: 10 ms to a day, as people count time.
STEPS = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 15, 20, 30, 60, 120, 300, 600, 900, 1200, 1800)
STEPS_OF_HOURS = (3600, 7200, 10800, 21600, 43200, 86400)

Json = dict[str, Any]
Value = str | tuple[str, ...]


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
    def options(self) -> Json:
        """Of the visualization."""
        return dict(self.json.get("options", {}))

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
        """What Grafana asks of the data source before anybody clicks: variables, annotations, panels in sight."""
        panels = [target for panel in self.json["panels"] for target in panel.get("targets", [])]
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
    def range_seconds(self) -> float:
        """How far back it looks when it is opened."""
        return seconds(self.json["time"]["from"].removeprefix("now-"))


def load(folder: Path = RENDERED) -> list[Dashboard]:
    """The rendered dashboards, by name."""
    return [
        Dashboard(path.stem, json.loads(path.read_text(encoding="utf-8"))) for path in sorted(folder.glob("*.json"))
    ]


def seconds(duration: str) -> float:
    """``90s``, ``1m``, ``1d`` and what Grafana puts a ``>`` before."""
    match = re.fullmatch(r">?(\d+)(ms|[smhdw])", duration)
    if match is None:
        raise ValueError(f"expected a duration such as 30s or 5m, found {duration!r}")
    return int(match[1]) * UNITS[match[2]]


def duration(of_seconds: float) -> str:
    """As Grafana writes it into a query: the largest unit that divides it."""
    for unit in ("d", "h", "m", "s"):
        if of_seconds >= UNITS[unit] and of_seconds % UNITS[unit] == 0:
            return f"{round(of_seconds / UNITS[unit])}{unit}"
    return f"{round(of_seconds * 1000)}ms"


@dataclasses.dataclass(frozen=True, slots=True)
class Window:
    """The time that a panel shows, and how finely. Unix seconds."""

    start: float
    end: float
    step: float
    scrape_seconds: float

    @property
    def macros(self) -> dict[str, str]:
        """Grafana's own variables."""
        span = self.end - self.start
        rate = max(self.step + self.scrape_seconds, 4 * self.scrape_seconds)
        return {
            "__interval": duration(self.step),
            "__interval_ms": f"{self.step * 1000:g}",
            "__rate_interval": duration(rate),
            "__range": duration(span),
            "__range_s": f"{span:g}",
            "__range_ms": f"{span * 1000:g}",
            "__from": f"{self.start * 1000:.0f}",
            "__to": f"{self.end * 1000:.0f}",
        }


def window(panel: Panel, target: Mapping[str, Any], end: float, range_seconds: float) -> Window:
    """What Grafana asks for when the dashboard ends at ``end``."""
    minimum = target.get("interval") or panel.json.get("interval")
    scrape = seconds(minimum) if minimum else DATASOURCE_INTERVAL_SECONDS
    points = panel.json.get("maxDataPoints") or SCREEN_PIXELS * panel.json["gridPos"]["w"] // COLUMNS
    step = max(_step(range_seconds / points), scrape)
    return Window(end - range_seconds, end, step, scrape)


def _step(exact: float) -> float:
    """The nearest of the steps, as Grafana rounds: up from half of the way."""
    steps = [*STEPS, *STEPS_OF_HOURS]
    for lower, upper in itertools.pairwise(steps):
        if exact < (lower + upper) / 2:
            return lower
    return steps[-1]


# --- Variables --------------------------------------------------------------------------------------------------------

_USE = re.compile(r"\$\{(?P<braced>\w+)(?:\.[^:}]+)?(?::(?P<format>\w+))?\}|\$(?P<plain>\w+)")


@dataclasses.dataclass(frozen=True, slots=True)
class Variable:
    """One variable as chosen: ``value`` is what was picked, several values, or :data:`ALL`."""

    json: Json
    value: Value
    choices: tuple[str, ...] = ()

    @property
    def selects_several(self) -> bool:
        """Whether Grafana writes it as a regular expression."""
        return bool(self.json.get("multi") or self.json.get("includeAll"))

    def text(self, form: str | None) -> str:
        """As it stands in a query, by the format that follows its name."""
        if self.value == ALL and self.json.get("allValue"):
            return str(self.json["allValue"])
        several: tuple[str, ...] = (
            self.choices if self.value == ALL else (self.value,) if isinstance(self.value, str) else self.value
        )
        match form:
            case None if not self.selects_several:
                return "".join(several[:1]).replace("\\", "\\\\").replace("'", "\\'")
            case None:  # within a quoted string: its backslashes are doubled
                return _either([_escaped(text).replace("\\", "\\\\") for text in several])
            case "raw":
                return ",".join(several)
            case _:
                raise ValueError(f"the format {form!r} of ${self.json['name']} is not known here")


def _escaped(text: str) -> str:
    return re.sub(r"[\\^$*+?.()|\[\]{}/]", r"\\\g<0>", text)


def _either(texts: Sequence[str]) -> str:
    return "".join(texts) if len(texts) < 2 else "(" + "|".join(texts) + ")"


def interpolate(
    text: str, variables: Mapping[str, Variable], macros: Mapping[str, str], form: str | None = None
) -> str:
    """Replace every variable; ``form``: of those that say none, ``raw`` in what people read.

    As Grafana does, it leaves ``$1`` of a ``label_replace``. Raises ``KeyError`` for one that neither Grafana nor the
    dashboard has.
    """

    def replacement(use: re.Match[str]) -> str:
        name = use["braced"] or use["plain"]
        if name.isdecimal():
            return use[0]
        return macros[name] if name in macros else variables[name].text(use["format"] or form)

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
