"""From the answers of a data source to what a panel draws: frames, names in legends, and Grafana's transformations."""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Callable, Mapping, Sequence
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

Cell = float | str | None


@dataclasses.dataclass(frozen=True, slots=True)
class Field:
    """One column. ``display`` is the name that the query gave it; times are Unix seconds."""

    name: str
    values: Sequence[Cell]
    labels: Mapping[str, str] = dataclasses.field(default_factory=dict)
    display: str = ""

    @property
    def title(self) -> str:
        """What a legend or a header says without field configuration."""
        return self.display or self.name

    @property
    def numbers(self) -> list[float]:
        """The values that are numbers."""
        return [value for value in self.values if isinstance(value, (int, float))]


@dataclasses.dataclass(frozen=True, slots=True)
class Frame:
    """Columns of equal length, from the query ``ref``."""

    ref: str
    fields: tuple[Field, ...]

    def __len__(self) -> int:
        return len(self.fields[0].values) if self.fields else 0

    def rows(self) -> list[dict[str, Cell]]:
        """Row by row, by name of the column."""
        return [{field.name: field.values[row] for field in self.fields} for row in range(len(self))]

    @property
    def value_fields(self) -> list[Field]:
        """All but time."""
        return [field for field in self.fields if field.name != "Time"]


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
        legend = interpolate(target.get("legendFormat") or "", self.variables, shown.macros, "raw")
        return Answer({**target, "legendFormat": legend}, shown, expression, series)

    def annotate(self, annotation: Json) -> Answer:
        """Put the query of an annotation, as fine as Grafana does: a minute, if nothing is said."""
        target = annotation.get("target") or annotation
        whole = Panel(self.dashboard.name, "", {"interval": "60s", "gridPos": {"w": COLUMNS}})
        return self._ask(target, window(whole, target, self.end, self.range_seconds))


def frames(panel: Panel, answers: Sequence[Answer]) -> list[Frame]:
    """What the panel draws: the answers as frames, transformed."""
    found = untransformed(answers)
    for each in panel.json.get("transformations", []):
        if each["id"] not in TRANSFORMATIONS:
            raise ValueError(f"{panel}: the transformation {each['id']!r} is not known here")
        found = TRANSFORMATIONS[each["id"]](found, each.get("options", {}))
    return found


def untransformed(answers: Sequence[Answer]) -> list[Frame]:
    """The answers as the data source hands them over."""
    tables = sum(answer.target.get("format") == "table" for answer in answers)
    return [
        frame
        for answer in answers
        for frame in (
            _table(answer, several=tables > 1) if answer.target.get("format") == "table" else _time_series(answer)
        )
    ]


def legend(target: Mapping[str, Any], labels: Mapping[str, str]) -> str:
    """The name of a series: by the query's format, else as Prometheus writes it."""
    form = target.get("legendFormat") or ""
    if form and form != "__auto":
        return re.sub(r"\{\{\s*(\w+)\s*\}\}", lambda label: labels.get(label[1], ""), form)
    inner = ", ".join(f'{label}="{text}"' for label, text in sorted(labels.items()) if label != "__name__")
    return labels.get("__name__", "") + (f"{{{inner}}}" if inner else "") or str(target["expr"])


def labels_in_legend(target: Mapping[str, Any]) -> set[str]:
    """The labels that a legend prints."""
    return set(re.findall(r"\{\{\s*(\w+)\s*\}\}", target.get("legendFormat") or ""))


def _number(text: str) -> float | None:
    value = float(text)
    return None if math.isnan(value) else value


def _time_series(answer: Answer) -> list[Frame]:
    found = []
    for series in answer.series:
        samples = series.get("values") or [series["value"]]
        labels = {name: text for name, text in series["metric"].items() if name != "__name__"}
        times = Field("Time", [float(at) for at, _ in samples])
        values = [_number(value) for _, value in samples]
        found.append(
            Frame(
                answer.target["refId"],
                (times, Field("Value", values, labels, legend(answer.target, series["metric"]))),
            )
        )
    if answer.target.get("format") == "heatmap":
        found.sort(key=lambda frame: float(frame.fields[1].labels.get("le", "inf")))
    return found


def _table(answer: Answer, *, several: bool) -> list[Frame]:
    """One frame for all series, labels as columns; the value's column is named by its query where there are several."""
    names = sorted({name for series in answer.series for name in series["metric"]})
    rows = [
        (float(at), series["metric"], _number(value))
        for series in answer.series
        for at, value in series.get("values") or [series["value"]]
    ]
    if not rows:
        return []
    ref = answer.target["refId"]
    columns = [Field(name, [labels.get(name, "") for _, labels, _ in rows]) for name in names]
    value = Field(f"Value #{ref}" if several else "Value", [number for _, _, number in rows])
    return [Frame(ref, (Field("Time", [at for at, _, _ in rows]), *columns, value))]


# --- Transformations --------------------------------------------------------------------------------------------------


def _framed(ref: str, names: Sequence[str], rows: Sequence[Mapping[str, Cell]], like: Sequence[Frame]) -> Frame:
    """A frame of rows; what is known of a field of the same name is kept."""
    known = {field.name: field for frame in like for field in frame.fields}
    return Frame(
        ref,
        tuple(
            dataclasses.replace(known.get(name, Field(name, ())), name=name, values=[row.get(name) for row in rows])
            for name in names
        ),
    )


def _names(given: Sequence[Frame]) -> list[str]:
    return list(dict.fromkeys(field.name for frame in given for field in frame.fields))


def _merge(given: list[Frame], _options: Json) -> list[Frame]:
    """Rows that agree in all fields that every frame has become one."""
    if not given:
        return []
    shared = set.intersection(*({field.name for field in frame.fields} for frame in given))
    merged: list[dict[str, Cell]] = []
    for frame in given:
        for row in frame.rows():
            for other in merged:
                agrees = all(other.get(name) == row[name] for name in shared)
                if agrees and all(name in shared or other.get(name) in (None, cell) for name, cell in row.items()):
                    other.update(row)
                    break
            else:
                merged.append(dict(row))
    return [_framed(given[0].ref, _names(given), merged, given)]


def _organize(given: list[Frame], options: Json) -> list[Frame]:
    """Leave out, put in order, rename."""
    excluded = {name for name, out in options.get("excludeByName", {}).items() if out}
    order, renamed = options.get("indexByName", {}), options.get("renameByName", {})
    done = []
    for frame in given:
        fields = [field for field in frame.fields if field.name not in excluded]
        fields.sort(key=lambda field: order.get(field.name, len(order)))
        done.append(
            dataclasses.replace(
                frame,
                fields=tuple(
                    dataclasses.replace(field, name=renamed[field.name], display=renamed[field.name])
                    if renamed.get(field.name)
                    else field
                    for field in fields
                ),
            )
        )
    return done


def rank(value: Cell) -> tuple[bool, float, str]:
    """For sorting: nothing first, numbers by size, text by letters."""
    return (True, value, "") if isinstance(value, (int, float)) else (value is not None, 0.0, value or "")


def _sort(given: list[Frame], options: Json) -> list[Frame]:
    (by,) = options["sort"]
    done = []
    for frame in given:
        key = next((f for f in frame.fields if by["field"] in (f.name, f.title)), None)
        cells = key.values if key else [None] * len(frame)
        rows = sorted(range(len(frame)), key=[rank(cell) for cell in cells].__getitem__, reverse=bool(by.get("desc")))
        fields = tuple(dataclasses.replace(f, values=[f.values[row] for row in rows]) for f in frame.fields)
        done.append(dataclasses.replace(frame, fields=fields))
    return done


def _convert(given: list[Frame], options: Json) -> list[Frame]:
    """Text to numbers; other conversions leave the values as they are."""
    numbers = {each["targetField"] for each in options.get("conversions", []) if each["destinationType"] == "number"}

    def converted(field: Field) -> Field:
        if field.name not in numbers:
            return field
        return dataclasses.replace(
            field, values=[None if value in (None, "") else float(value) for value in field.values]
        )

    return [dataclasses.replace(frame, fields=tuple(map(converted, frame.fields))) for frame in given]


def _rows_to_fields(given: list[Frame], options: Json) -> list[Frame]:
    """Each row becomes a field: one column has its name, another its value."""
    name, value = (each["fieldName"] for each in options["mappings"])
    return [Frame(frame.ref, tuple(Field(str(row[name]), [row[value]]) for row in frame.rows())) for frame in given]


def reduced(field: Field, how: str) -> Cell:
    """One value for a field, by the name of Grafana's reducer."""
    if how != "lastNotNull":
        raise ValueError(f"the reducer {how!r} is not known here")
    return next((value for value in reversed(field.values) if value is not None), None)


TRANSFORMATIONS: Mapping[str, Callable[[list[Frame], Json], list[Frame]]] = {
    "convertFieldType": _convert,
    "merge": _merge,
    "organize": _organize,
    "rowsToFields": _rows_to_fields,
    "sortBy": _sort,
}
