"""From a panel to its queries, as Grafana puts them, and from the answers to frames, as its packages take them."""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from dashboards.grafana import (
    COLUMNS,
    Dashboard,
    Json,
    Panel,
    Source,
    Variable,
    Window,
    chosen,
    interpolate,
    window,
)

LABEL = re.compile(r"\{\{\s*(\w+)\s*\}\}")  # in a legend


@dataclasses.dataclass(frozen=True, slots=True)
class Answer:
    """One query of a panel as it was put, and what came back."""

    target: Json
    window: Window
    expression: str
    series: list[Json]

    @property
    def values(self) -> list[float]:
        """Every value of every series."""
        return [float(value) for series in self.series for _, value in series.get("values") or [series["value"]]]


@dataclasses.dataclass(frozen=True, slots=True)
class View:
    """Somebody looks at a dashboard: with these variables, at so many seconds that end at ``end`` (Unix seconds)."""

    dashboard: Dashboard
    variables: Mapping[str, Variable]
    source: Source
    end: float
    range_seconds: float

    @classmethod
    def of(cls, dashboard: Dashboard, picks: Mapping[str, str], source: Source, end: float) -> View:
        """The view after ``picks`` were made in the dashboard's variables."""
        return cls(dashboard, chosen(dashboard, picks, source, end), source, end, dashboard.range_seconds)

    def ask(self, panel: Panel) -> list[Answer]:
        """Put every query of a panel."""
        return [self._ask(target, window(panel, target, self.end, self.range_seconds)) for target in panel.targets]

    def _ask(self, target: Json, shown: Window) -> Answer:
        expression = interpolate(target["expr"], self.variables, shown.macros)
        if target.get("instant") and not target.get("range"):
            series = self.source.instant(expression, shown.end)
        else:  # Grafana aligns what it asks for, so that panels do not jitter
            start, until = (at - at % shown.step for at in (shown.start, shown.end))
            series = self.source.range(expression, start, until, shown.step)
        legend = interpolate(target.get("legendFormat") or "", self.variables, shown.macros)
        return Answer({**target, "legendFormat": legend}, shown, expression, series)

    def annotate(self, annotation: Json) -> Answer:
        """Put the query of an annotation."""
        whole = Panel(self.dashboard.name, "", {"gridPos": {"w": COLUMNS}})
        return self._ask(annotation["target"], window(whole, annotation["target"], self.end, self.range_seconds))


def frames(answers: Sequence[Answer]) -> list[Json]:
    """The answers as the data source hands them to a panel: frames as Grafana's packages take them."""
    tables = sum(answer.target.get("format") == "table" for answer in answers)
    return [
        frame
        for answer in answers
        for frame in (
            _table(answer, several=tables > 1) if answer.target.get("format") == "table" else _time_series(answer)
        )
    ]


def labels_in_legend(target: Mapping[str, Any]) -> set[str]:
    """The labels that a legend prints."""
    return set(LABEL.findall(target.get("legendFormat") or ""))


def _time_series(answer: Answer) -> list[Json]:
    """A frame for each series, called as the query's legend says."""
    found = []
    for series in answer.series:
        labels = {name: text for name, text in series["metric"].items() if name != "__name__"}
        samples = series.get("values") or [series["value"]]
        value = _field(
            "number",
            "Value",
            [_number(text) for _, text in samples],
            displayNameFromDS=_legend(answer.target["legendFormat"], labels),
        )
        found.append(_frame(answer, [at for at, _ in samples], value | {"labels": labels}))
    return found


def _legend(form: str, labels: Mapping[str, str]) -> str:
    return LABEL.sub(lambda label: labels.get(label[1], ""), form)


def _table(answer: Answer, *, several: bool) -> list[Json]:
    """One frame for all series, labels as columns; the value's column is named by its query where there are several."""
    rows = [
        (at, series["metric"], _number(value))
        for series in answer.series
        for at, value in series.get("values") or [series["value"]]
    ]
    if not rows:
        return []
    names = sorted({name for series in answer.series for name in series["metric"]})
    columns = [_field("string", name, [labels.get(name, "") for _, labels, _ in rows]) for name in names]
    value = f"Value #{answer.target['refId']}" if several else "Value"
    return [_frame(answer, [at for at, _, _ in rows], *columns, _field("number", value, [cell for *_, cell in rows]))]


def _frame(answer: Answer, times: Iterable[str | float], *fields: Json) -> Json:
    at = [round(1000 * float(seconds)) for seconds in times]
    time = _field("time", "Time", at, interval=1000 * answer.window.step)
    return {"refId": answer.target["refId"], "fields": [time, *fields]}


def _field(kind: str, name: str, values: Sequence[object], **config: object) -> Json:
    return {"type": kind, "name": name, "values": values, "config": config}


def _number(text: str) -> float | None:
    value = float(text)
    return None if math.isnan(value) else value
