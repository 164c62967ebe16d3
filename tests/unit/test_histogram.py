"""The one histogram: every value is counted once, in its bucket."""

from __future__ import annotations

import math
from itertools import accumulate

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


def histogram_quantile(share: float, bounds: list[float], counts: list[float]) -> float:
    """Prometheus' ``BucketQuantile``, written out by hand."""
    if len(bounds) < 2 or counts[-1] == 0:
        return math.nan
    rank, bucket = share * counts[-1], 0
    while bucket < len(bounds) - 1 and counts[bucket] < rank:
        bucket += 1
    if bucket == len(bounds) - 1:
        return bounds[-2]
    if bucket == 0 and bounds[0] <= 0:
        return bounds[0]
    start, end, count = 0.0, bounds[bucket], counts[bucket]
    if bucket > 0:
        start = bounds[bucket - 1]
        count -= counts[bucket - 1]
        rank -= counts[bucket - 1]
    return start + (end - start) * (rank / count)


@given(
    st.lists(st.tuples(st.floats(-1.0, 100.0), st.integers(0, 1000)), max_size=8, unique_by=lambda each: each[0]),
    st.integers(0, 50),
    st.sampled_from([0.5, 0.9, 0.99, 1.0]),
)
def test_an_interpolated_quantile_is_that_of_promql(
    buckets: list[tuple[float, int]], beyond: int, share: float
) -> None:
    bounds = [*sorted(bound for bound, _ in buckets), math.inf]
    counts = [float(count) for count in accumulate([*(count for _, count in buckets), beyond])]
    expected = histogram_quantile(share, bounds, counts)
    found = Histogram(tuple(bounds), tuple(counts), 0.0).interpolated(share)
    assert found == (None if math.isnan(expected) else expected)
