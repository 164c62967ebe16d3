"""The one histogram: every value is counted once, in its bucket."""

from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st

from specdec_exporter.histogram import Histogram, HistogramCounter

BOUNDS = (0.0, 0.5, 1.0, 2.0)
values = st.lists(st.integers(-4, 20).map(lambda quarters: quarters / 4))


def counted(seen: list[float]) -> Histogram:
    counter = HistogramCounter(BOUNDS)
    for value in seen:
        counter.observe(value)
    assert counter.count == len(seen)
    return counter.histogram


@given(values)
def test_a_count_is_the_number_of_values_at_or_below_the_bound(seen: list[float]) -> None:
    found = counted(seen)
    assert found.bounds == (*BOUNDS, math.inf)
    assert found.counts == tuple(sum(value <= bound for value in seen) for bound in found.bounds)
    assert (found.count, found.sum) == (len(seen), sum(seen))
    assert found.buckets()[::4] == [("0.0", found.counts[0]), ("+Inf", len(seen))]
    assert not seen or found.mean == sum(seen) / len(seen)


@given(values, values)
def test_sum_and_difference_are_those_of_the_values(some: list[float], more: list[float]) -> None:
    assert counted(some) + counted(more) == counted(some + more)
    assert counted(some + more) - counted(some) == counted(more)
