"""How busy an engine was in an interval, and which bin of loads holds it."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specdec_exporter.speculation.acceptance import Counts
from specdec_exporter.speculation.load import BOUND_SLACK, CONCURRENCY_BOUNDS, Load, bin_of


def load(steps: float = 100.0, concurrency: float = 3.0, seconds: float = 5.0, **counts: Any) -> Load:
    return Load(seconds, Counts(steps=steps, step_seconds=concurrency * seconds, **counts))


# --- One interval ---


def test_the_tokens_of_decoding_are_those_after_the_first() -> None:
    assert load(generation_tokens=120.0, first_tokens=20.0).tokens == 100.0
    assert load(generation_tokens=120.0).tokens == 120.0
    assert load(generation_tokens=3.0, first_tokens=4.0).tokens == 0.0  # only prefill
    assert load().tokens == 0.0


@pytest.mark.parametrize(
    ("changed", "ran"),
    [
        ({}, True),
        ({"steps": 0.0}, False),
        ({"concurrency": 0.0}, False),
        ({"seconds": 0.0}, False),
        ({"steps": math.nan}, False),
        ({"concurrency": math.nan}, False),
        ({"steps": -1.0}, False),
    ],
)
def test_an_interval_ran_if_its_amounts_are_those_of_a_server(changed: dict[str, Any], ran: bool) -> None:
    assert load(**changed).ran == ran


# --- Bins ---


@given(st.floats(0.0, 1e6))
def test_a_bin_holds_what_is_at_most_its_bound_and_above_half_of_it(concurrency: float) -> None:
    bound = bin_of(concurrency)
    assert concurrency / BOUND_SLACK <= bound or bound == CONCURRENCY_BOUNDS[-1]
    assert concurrency / BOUND_SLACK > bound / 2 or bound == 1
