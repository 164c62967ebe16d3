"""What a histogram of latencies tells: exact where it is exact, bounded where not, silent where it cannot know."""

from __future__ import annotations

import math
import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specdec_exporter.comparison.latency import mean_of
from specdec_exporter.histogram import Histogram
from specdec_exporter.speculation import tailshift
from specdec_exporter.speculation.chance import Z
from specdec_exporter.speculation.policy import load_policy
from specdec_exporter.speculation.tailshift import Sample, Shift
from support.builders import known
from support.recordings import INF, histogram, lognormal

POLICY = load_policy()

latencies = st.lists(st.floats(0.0, 100.0, allow_subnormal=False), min_size=1, max_size=60)

some_bounds = st.sets(st.floats(1e-3, 90.0), max_size=12).map(lambda bounds: (*sorted(bounds), INF))


def tail_shift(now: Histogram, then: Histogram) -> Shift | None:
    return tailshift.tail_shift(Sample(now), Sample(then), POLICY)


def test_an_empty_histogram_says_nothing() -> None:
    empty, full = histogram([]), histogram([0.02])
    assert mean_of(Sample(empty)) is None
    assert empty.quantile(0.5, Z) == (None, None)
    assert (tail_shift(full, empty), tail_shift(empty, full)) == (None, None)


def test_a_mean_of_nothing_but_zeros_is_none() -> None:
    assert mean_of(Sample(histogram([0.0, 0.0]))) is None


# --- Quantiles -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("seen", "share", "found"),
    [
        (histogram([0.015] * 1000 + [0.03] * 2000 + [9.0] * 1000, (0.01, 0.02, 0.04, INF)), 0.5, (0.02, 0.04)),
        (histogram([0.004] * 1000 + [0.02] * 100), 0.5, (None, 0.01)),
        (histogram([0.02] * 900 + [100.0] * 100), 0.99, (80.0, None)),
        (histogram([0.02] * 380), 0.99, (0.01, None)),
        (histogram([0.02] * 381), 0.99, (0.01, 0.025)),
        (histogram([0.02]), 0.5, (None, None)),
    ],
    ids=["two ranks in one bucket", "first bucket", "last bucket", "too few", "enough", "one request"],
)
def test_a_quantile_has_its_boundaries(seen: Histogram, share: float, found: tuple[Any, ...]) -> None:
    assert seen.quantile(share, Z) == found


@given(latencies, some_bounds, st.sampled_from([0.01, 0.5, 0.9, 0.99]))
def test_the_quantile_of_the_requests_lies_within_its_boundaries(
    values: list[float], bounds: tuple[float, ...], share: float
) -> None:
    low, high = histogram(values * 10, bounds).quantile(share, Z)
    own = sorted(values * 10)[max(math.ceil(share * 10 * len(values)), 1) - 1]
    assert (low or 0.0) <= own <= (INF if high is None else high)


# --- Tail ------------------------------------------------------------------------------------------------------------


def test_the_tail_shift_is_what_is_newly_slow_beyond_a_limit_that_used_to_hold() -> None:
    before = histogram([0.02] * 900 + [0.06] * 80 + [0.09] * 20)
    after = histogram([0.02] * 850 + [0.06] * 80 + [0.2] * 70)
    found = known(tail_shift(after, before))
    # At 0.1 s: 7 % slower now, none then. At 0.075 s only 7 % - 1.5 x 2 %, at 0.025 s 15 % - 1.5 x 10 %.
    assert found.share == pytest.approx(0.07)
    assert found.limit_seconds == pytest.approx(0.1)


@given(latencies, latencies, some_bounds)
def test_a_tail_shift_is_a_share_and_none_against_itself(
    values: list[float], others: list[float], bounds: tuple[float, ...]
) -> None:
    one, other = histogram(values, bounds), histogram(others, bounds)
    itself, shift = tail_shift(one, one), tail_shift(one, other)
    assert itself is not None
    assert itself.share == 0.0
    assert shift is not None
    assert 0.0 <= shift.share <= 1.0
    assert shift.shifted is (shift.share > max(shift.margin, POLICY.latency.tail_shift_min))


def test_the_tail_of_the_same_traffic_hardly_ever_shifts() -> None:
    source = random.Random(11)
    alarms = 0
    for _ in range(500):
        median = 0.02 * source.lognormvariate(0.0, 0.5)
        before, after = (histogram(lognormal(source, median, 200)) for _ in range(2))
        shift = known(tail_shift(after, before))
        alarms += shift.shifted
    assert alarms == 0


def test_slow_requests_of_one_burst_need_not_be_a_worse_tail() -> None:
    """The same 3 % of slow requests: in every block of time, or all in one, as chance may have it."""

    def in_blocks(*slow: int) -> Sample:
        blocks = [histogram([0.02] * (100 - each) + [0.2] * each) for each in slow]
        return Sample(histogram([0.02] * (100 * len(slow) - sum(slow)) + [0.2] * sum(slow)), tuple(blocks))

    none, steady, burst = in_blocks(*[0] * 8), in_blocks(*[3] * 8), in_blocks(24, *[0] * 7)
    assert known(tailshift.tail_shift(steady, none, POLICY)).shifted
    assert not known(tailshift.tail_shift(burst, none, POLICY)).shifted


@given(latencies, latencies, some_bounds, some_bounds)
def test_only_boundaries_of_both_are_compared(
    values: list[float], others: list[float], one: tuple[float, ...], other: tuple[float, ...]
) -> None:
    common = tuple(sorted({*one} & {*other}))
    found = tail_shift(histogram(values, one), histogram(others, other))
    assert found == tail_shift(histogram(values, common), histogram(others, common))
