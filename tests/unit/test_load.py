"""What engines did by how busy they were: no interval in two bins, nothing lost, and memory that does not grow."""

from __future__ import annotations

import math
from functools import reduce
from operator import add
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specdec_exporter.speculation.acceptance import Counts
from specdec_exporter.speculation.load import (
    BLOCK_COUNTS,
    BOUND_SLACK,
    CONCURRENCY_BOUNDS,
    Load,
    LoadBin,
    LoadBins,
    bin_of,
)

MOST_BLOCKS = 24


def load(steps: float = 100.0, concurrency: float = 3.0, seconds: float = 5.0, **counts: Any) -> Load:
    return Load(seconds, Counts(steps=steps, step_seconds=concurrency * seconds, **counts))


def sorted_in(*loads: Load) -> tuple[LoadBin, ...]:
    bins = LoadBins()
    for each in loads:
        bins.add(each)
    return bins.bins()


# --- One interval ---


def test_the_tokens_of_decoding_are_those_after_the_first() -> None:
    assert load(generation_tokens=120.0, first_tokens=20.0).tokens == 100.0
    assert load(generation_tokens=120.0).tokens == 120.0
    assert load(generation_tokens=3.0, first_tokens=4.0).tokens == 0.0  # only prefill
    assert load().tokens == 0.0


@pytest.mark.parametrize(
    ("changed", "tells"),
    [
        ({}, True),
        ({"preemptions": 1.0}, False),
        ({"steps": 0.0}, False),
        ({"concurrency": 0.0}, False),
        ({"seconds": 0.0}, False),
        ({"steps": math.nan}, False),
        ({"concurrency": math.nan}, False),
        ({"steps": -1.0}, False),
    ],
)
def test_an_interval_tells_the_cost_of_steps_if_some_ran_and_none_waited(changed: dict[str, Any], tells: bool) -> None:
    assert load(**changed).tells_the_cost == tells
    assert bool(sorted_in(load(**changed))) == tells


# --- Bins ---


@given(st.floats(0.0, 1e6))
def test_a_bin_holds_what_is_at_most_its_bound_and_above_half_of_it(concurrency: float) -> None:
    bound = bin_of(concurrency)
    assert concurrency / BOUND_SLACK <= bound or bound == CONCURRENCY_BOUNDS[-1]
    assert concurrency / BOUND_SLACK > bound / 2 or bound == 1


counts = st.integers(0, 10**6).map(float)
loads = st.builds(
    lambda seconds, concurrency, steps, values, curve: load(
        steps,
        concurrency,
        seconds,
        **dict(zip((name for name in BLOCK_COUNTS if name not in ("steps", "step_seconds")), values, strict=True)),
        accepted_per_position=tuple(curve),
    ),
    st.integers(1, 60).map(float),
    st.sampled_from([0.5, 1.0, 3.0, 4.0, 7.0, 100.0, 5000.0]),
    counts,
    st.lists(counts, min_size=len(BLOCK_COUNTS) - 2, max_size=len(BLOCK_COUNTS) - 2),
    st.lists(counts, max_size=4),
)


@given(st.lists(loads, max_size=120))
def test_nothing_is_lost_and_nothing_counts_twice(found: list[Load]) -> None:
    bins = sorted_in(*found)
    told = [each for each in found if each.tells_the_cost]
    assert [each.bound for each in bins] == sorted({bin_of(each.concurrency) for each in told})
    for each in bins:
        members = [one for one in told if bin_of(one.concurrency) == each.bound]
        assert each.intervals == len(members)
        assert 1 <= len(each.blocks) <= MOST_BLOCKS
        assert len(each.blocks) >= min(len(members), MOST_BLOCKS // 2)
        assert each.total == reduce(add, members)
        assert reduce(add, each.blocks).seconds == each.total.seconds
        assert all(block.tells_the_cost for block in each.blocks)
        assert bin_of(each.total.concurrency) == each.bound
        assert all(bin_of(block.concurrency) == each.bound for block in each.blocks)


@pytest.mark.parametrize("number", [1, 23, 24, 25, 26, 48, 49, 1000, 17280])
def test_blocks_hold_intervals_in_the_order_of_time_and_about_as_many_each(number: int) -> None:
    """The intervals of a block are read off ``drafts``, which holds the number of each interval here."""
    (found,) = sorted_in(*(load(drafts=float(i), draft_tokens=1.0) for i in range(number)))
    sizes = [int(block.counts.draft_tokens or 0.0) for block in found.blocks]
    assert sum(sizes) == number == found.intervals
    assert min(number, MOST_BLOCKS // 2) <= len(sizes) <= MOST_BLOCKS
    assert len(set(sizes[:-1])) <= 1  # the last one may still fill up
    assert sizes[-1] <= sizes[0]
    first = 0
    for size, block in zip(sizes, found.blocks, strict=True):
        assert block.counts.drafts == sum(range(first, first + size))
        first += size


def test_a_count_that_only_some_intervals_have_is_0_in_the_others() -> None:
    """The predictor shows it only from its first event on. A file has a list per count, without gaps."""
    (found,) = sorted_in(load(), load(drafts=7.0))
    assert [block.counts.drafts for block in found.blocks] == [0.0, 7.0]
    assert [block.counts.draft_tokens for block in found.blocks] == [None, None]
