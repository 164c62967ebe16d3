"""What stands in for Grafana writes variables and steps into queries as Grafana documents it."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dashboards.grafana import ALL, Panel, Variable, duration, interpolate, seconds, window

HOUR = 3600
END = 1_790_000_000.0


def variable(value: Any, *choices: str, **json: Any) -> Variable:
    return Variable({"name": "service", "type": "query", **json}, value, choices)


@pytest.mark.parametrize(
    ("text", "value", "expected"),
    [
        ("$service", variable("a.b"), "a.b"),
        ("${service}", variable(("a.b", "c"), multi=True), r"(a\\.b|c)"),
        ("${service}", variable("a.b", multi=True), r"a\\.b"),
        ("${service:raw}", variable("a.b", multi=True), "a.b"),
        ("$service", variable(ALL, "a", "b", includeAll=True), "(a|b)"),
        ("$service", variable(ALL, "a", includeAll=True, allValue=".*"), ".*"),
        ("$service", variable(ALL, includeAll=True), ""),
    ],
)
def test_a_variable_becomes(text: str, value: Variable, expected: str) -> None:
    assert interpolate(text, {"service": value}, {}) == expected


@pytest.mark.parametrize(
    ("panel", "hours", "step", "rate_interval"),
    [
        ({"interval": "1m"}, 3, 60, "4m"),  # four scrapes, even where steps are short
        ({}, 1, 15, "1m"),  # without an interval Grafana takes 15 seconds for the time between scrapes
        ({"interval": "1m"}, 7 * 24, 900, "16m"),  # steps grow with the range
        ({"interval": "1m", "maxDataPoints": 100}, 24, 900, "16m"),
    ],
)
def test_steps_follow_the_range_and_the_interval(
    panel: dict[str, Any], hours: int, step: float, rate_interval: str
) -> None:
    shown = window(Panel("tiny", "", {"gridPos": {"w": 12}, **panel}), {}, END, hours * HOUR)

    assert (shown.step, shown.macros["__rate_interval"], shown.start) == (step, rate_interval, END - hours * HOUR)


@given(st.integers(1, 10**6))
def test_a_duration_survives_being_written(whole: int) -> None:
    assert seconds(duration(whole)) == whole
