"""The growth of a tail is the same for the verdict and for ``compare``, and its buckets add up over time."""

from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st

from builders import known
from specdec_exporter.comparison.latency import Sample, tail_shift
from specdec_exporter.histogram import Histogram
from specdec_exporter.speculation.acceptance import Counts
from specdec_exporter.speculation.figures import figures
from specdec_exporter.speculation.policy import load_policy
from specdec_exporter.speculation.tail import largest_growth

POLICY = load_policy().latency
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


@given(now=histograms(), then=histograms())
def test_the_verdict_and_compare_find_the_same_growth(now: Histogram, then: Histogram) -> None:
    shift = known(tail_shift(Sample(now), Sample(then), load_policy()))
    growth = largest_growth(now, then, POLICY)
    if growth is None:
        assert shift.share == 0.0
    else:
        assert (growth.share, growth.limit_seconds, growth.margin) == (shift.share, shift.limit_seconds, shift.margin)
        assert growth.error >= 0.0


def test_an_empty_histogram_has_no_tail() -> None:
    some, none = Histogram(BOUNDS, (1.0, 1.0, 2.0, 2.0), 0.1), Histogram(BOUNDS, (0.0,) * 4, 0.0)
    assert (largest_growth(some, none, POLICY), largest_growth(none, some, POLICY)) == (None, None)


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
    served = then.tail(POLICY.tail_limit_share)
    assert largest_growth(now, served, POLICY) == largest_growth(now, then, POLICY)
    assert (served.count, served.mean, served.bucket_of(0.99)) == (then.count, then.mean, then.bucket_of(0.99))
    assert len(served.bounds) <= len(then.bounds)
