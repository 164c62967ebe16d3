"""The buckets of a latency add up over time, and the part of them that is served tells of the tail what all do."""

from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st

from specdec_exporter.histogram import Histogram
from specdec_exporter.speculation.acceptance import Counts
from specdec_exporter.speculation.figures import figures
from specdec_exporter.speculation.policy import load_policy
from specdec_exporter.speculation.tailshift import Sample, tail_shift

POLICY = load_policy()
BOUNDS = (0.01, 0.025, 0.05, math.inf)


def histograms() -> st.SearchStrategy[Histogram]:
    buckets = st.lists(st.integers(0, 1000), min_size=4, max_size=4).filter(any)
    return buckets.map(lambda parts: Histogram(BOUNDS, tuple(float(sum(parts[: i + 1])) for i in range(4)), 1.0))


def counts(histogram: Histogram) -> Counts:
    return Counts(
        timed_requests=histogram.count,
        output_token_seconds=histogram.sum,
        timed_bounds=histogram.bounds,
        timed_within=histogram.counts,
    )


@given(first=histograms(), later=histograms())
def test_buckets_add_up_and_are_what_a_span_added(first: Histogram, later: Histogram) -> None:
    total = counts(first) + counts(later)
    assert total.timed_within == (first + later).counts
    assert (total - counts(first)).timed_within == later.counts
    assert (total - Counts()).timed_within == total.timed_within
    assert (Counts() + total).timed_within == total.timed_within
    assert Counts().or_else(total).timed_within == total.timed_within


@given(first=histograms(), later=histograms())
def test_buckets_with_other_bounds_are_nothing_in_common(first: Histogram, later: Histogram) -> None:
    other = counts(Histogram((0.02, 0.04, 0.08, math.inf), later.counts, later.sum))
    for mixed in (counts(first) + other, counts(first) - other, Counts() - other):
        assert (mixed.timed_bounds, mixed.timed_within) == ((), ())
        assert figures(mixed, None, "metrics", 300.0).timed_within == ()


@given(now=histograms(), then=histograms())
def test_the_served_part_of_a_baseline_tells_the_same_growth(now: Histogram, then: Histogram) -> None:
    served = then.tail(POLICY.latency.tail_limit_share)
    shifts = [tail_shift(Sample(now), Sample(each), POLICY) for each in (served, then)]
    assert shifts[0] == shifts[1]
    assert (served.count, served.mean, served.quantile(0.99, 0.0)) == (then.count, then.mean, then.quantile(0.99, 0.0))
    assert len(served.bounds) <= len(then.bounds)
