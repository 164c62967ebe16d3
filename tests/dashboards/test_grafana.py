"""What stands in for Grafana does to variables, steps and frames what Grafana documents."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dashboards.frames import Field, Frame, View, frames, legend
from dashboards.grafana import ALL, Dashboard, Json, Panel, Variable, duration, interpolate, options, seconds, window

HOUR = 3600
END = 1_790_000_000.0


class Answering:
    """Has the same answer to every instant query, and remembers what it was asked."""

    def __init__(self, *series: tuple[dict[str, str], float]) -> None:
        self._series = series
        self.asked: list[tuple[str, float, float, float]] = []

    def instant(self, expression: str, at: float) -> list[Json]:
        self.asked.append((expression, at, at, 0.0))
        return [{"metric": labels, "value": [at, str(value)]} for labels, value in self._series]

    def range(self, expression: str, start: float, end: float, step: float) -> list[Json]:
        self.asked.append((expression, start, end, step))
        return [
            {"metric": labels, "values": [[start, str(value)], [end, str(value)]]} for labels, value in self._series
        ]

    def series(self, selector: str, start: float, end: float) -> list[dict[str, str]]:
        self.asked.append((selector, start, end, 0.0))
        return [labels for labels, _ in self._series]


def panel(**json: Any) -> Panel:
    return Panel("tiny", "", {"type": "timeseries", "title": "T", "gridPos": {"x": 0, "y": 0, "w": 12, "h": 8}, **json})


def variable(value: Any, *choices: str, **json: Any) -> Variable:
    return Variable({"name": "service", "type": "query", **json}, value, choices)


@pytest.mark.parametrize(
    ("text", "value", "expected"),
    [
        ("$service", variable("a.b"), "a.b"),
        ("${service}", variable(("a.b", "c"), multi=True), r"(a\\.b|c)"),
        ("${service}", variable("a.b", multi=True), r"a\\.b"),
        ("${service:regex}", variable(("a.b", "c"), multi=True), r"(a\.b|c)"),
        ("[[service]]", variable(ALL, "a", "b", includeAll=True), "(a|b)"),
        ("$service", variable(ALL, "a", includeAll=True, allValue=".*"), ".*"),
        ("$service", variable(ALL, includeAll=True), ""),
        ("$service", variable(""), ""),
        ("${service:queryparam}", variable(("a", "b"), multi=True), "var-service=a&var-service=b"),
    ],
)
def test_a_variable_becomes(text: str, value: Variable, expected: str) -> None:
    assert interpolate(text, {"service": value}, {}) == expected


def test_people_read_values_without_escapes() -> None:
    assert interpolate("$service", {"service": variable("a.b", multi=True)}, {}, "raw") == "a.b"


def test_an_unknown_variable_is_an_error() -> None:
    with pytest.raises(KeyError, match="pod"):
        interpolate("up{pod=~'$pod'}", {}, {})


def test_the_rate_interval_holds_four_scrapes_even_where_steps_are_short() -> None:
    shown = window(panel(interval="1m"), {}, END, 3 * HOUR)

    assert (shown.step, shown.macros["__rate_interval"], shown.macros["__range"]) == (60, "4m", "3h")


def test_without_a_panel_s_interval_scrapes_are_thought_to_be_15_seconds_apart() -> None:
    shown = window(panel(), {}, END, HOUR)

    assert (shown.step, shown.macros["__rate_interval"]) == (15, "1m")


def test_steps_grow_with_the_range() -> None:
    wide = window(panel(interval="1m"), {}, END, 7 * 24 * HOUR)

    assert (wide.step, wide.macros["__interval"]) == (600, "10m")
    assert window(panel(interval="1m", maxDataPoints=100), {}, END, 24 * HOUR).step == 900


def test_a_panel_s_own_time_counts() -> None:
    shown = window(panel(timeFrom="1h", timeShift="1d"), {}, END, 6 * HOUR)

    assert (shown.start, shown.end) == (END - 25 * HOUR, END - 24 * HOUR)


@pytest.mark.parametrize("text", ["15s", "4m", "1h", "2d", "500ms"])
def test_durations_are_read_and_written(text: str) -> None:
    assert duration(seconds(text)) == text


@given(st.integers(1, 10**6))
def test_every_duration_in_whole_seconds_survives_being_written(whole: int) -> None:
    assert seconds(duration(whole)) == whole


def test_variables_offer_labels_of_series() -> None:
    source = Answering(({"cluster": "eu"}, 1), ({"cluster": "us"}, 1), ({"cluster": "eu"}, 1), ({}, 1))
    asked = {"name": "cluster", "type": "query", "query": "label_values(specdec_up, cluster)", "regex": "/^(e).*/"}

    assert list(options({**asked, "regex": ""}, {}, source, 0, 1)) == ["eu", "us"]
    assert list(options(asked, {}, source, 0, 1)) == ["e"]


def test_ranges_are_aligned_to_their_step() -> None:
    source = Answering(({}, 1))
    view = View(Dashboard("tiny", {}), {}, source, END + 7, HOUR)
    view.ask(panel(interval="1m", targets=[{"refId": "A", "expr": "up"}]))

    assert [(at % 60, until % 60) for _, at, until, _ in source.asked] == [(0, 0)]


def test_a_legend_prints_labels() -> None:
    assert legend({"expr": "up", "legendFormat": "{{pod}} ({{ engine }})"}, {"pod": "a", "engine": "0"}) == "a (0)"
    assert legend({"expr": "up", "legendFormat": "__auto"}, {"__name__": "up", "pod": "a"}) == 'up{pod="a"}'


def test_tables_of_several_queries_become_one_with_a_column_for_each() -> None:
    source = Answering(({"service": "chat"}, 1.0), ({"service": "code"}, 2.0))
    targets = [{"refId": ref, "expr": "x", "format": "table", "instant": True} for ref in "AB"]
    steps = [
        {"id": "merge", "options": {}},
        {
            "id": "organize",
            "options": {
                "excludeByName": {"Time": True},
                "indexByName": {"service": 0, "Value #B": 1, "Value #A": 2},
                "renameByName": {"Value #A": "Rate", "Value #B": "Length"},
            },
        },
        {"id": "sortBy", "options": {"sort": [{"field": "Rate", "desc": True}]}},
    ]
    table = panel(type="table", targets=targets, transformations=steps)
    (frame,) = frames(table, View(Dashboard("tiny", {}), {}, source, END, HOUR).ask(table))

    assert [field.name for field in frame.fields] == ["service", "Length", "Rate"]
    assert frame.rows()[0] == {"service": "code", "Length": 2.0, "Rate": 2.0}


def test_series_are_joined_by_time() -> None:
    source = Answering(({}, 1.0))
    joined = panel(
        targets=[{"refId": "A", "expr": "x", "legendFormat": "x"}, {"refId": "B", "expr": "y", "legendFormat": "y"}],
        transformations=[{"id": "joinByField", "options": {"byField": "Time", "mode": "inner"}}],
    )
    (frame,) = frames(joined, View(Dashboard("tiny", {}), {}, source, END, HOUR).ask(joined))

    assert [field.title for field in frame.fields] == ["Time", "x", "y"]
    assert len(frame) == 2


def test_an_unknown_transformation_is_an_error() -> None:
    with pytest.raises(ValueError, match="groupBy"):
        frames(panel(transformations=[{"id": "groupBy", "options": {}}]), [])


def test_values_that_are_no_numbers_are_nothing() -> None:
    frame = Frame("A", (Field("Time", [1.0]), Field("Value", [None], {}, "x")))

    assert frame.value_fields[0].numbers == []
