"""What a histogram of latencies tells: exact where it is exact, bounded where not, silent where it cannot know."""

from __future__ import annotations

import random
import statistics
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from builders import known
from recordings import INF, histogram, lognormal
from specdec_exporter.comparison import distribution
from specdec_exporter.comparison.distribution import (
    Quantile,
    Sample,
    Shift,
    on_common_bounds,
    ratio_of_quantiles,
    unevenness,
    variance_max,
    widest_gap,
)
from specdec_exporter.histogram import Histogram
from specdec_exporter.speculation.estimate import Estimate, Spread, proportion
from specdec_exporter.speculation.policy import load_policy

POLICY = load_policy().latency
NOMINAL = 0.93  # what 95 % intervals must reach on data of a few hundred trials

latencies = st.lists(st.floats(0.0, 100.0, allow_subnormal=False), min_size=1, max_size=60)

some_bounds = st.sets(st.floats(1e-3, 90.0), max_size=12).map(lambda bounds: (*sorted(bounds), INF))


def coverage(trials: int, contains: Callable[[random.Random], bool]) -> float:
    """Share of trials, each with a source of its own, in which the interval contains the truth."""
    return statistics.mean(contains(random.Random(f"coverage {trial}")) for trial in range(trials))


def mean(seen: Histogram) -> Spread | None:
    return distribution.mean(Sample(seen), POLICY)


def quantile(seen: Histogram, share: float) -> Quantile | None:
    return distribution.quantile(Sample(seen), share, POLICY)


def tail_shift(now: Histogram, then: Histogram) -> Shift | None:
    return distribution.tail_shift(Sample(now), Sample(then), POLICY)


def head_shift(now: Histogram, then: Histogram) -> Shift | None:
    return distribution.head_shift(Sample(now), Sample(then), POLICY)


def contains(estimate: Estimate | None, truth: float) -> bool:
    assert estimate is not None
    assert estimate.low is not None
    assert estimate.high is not None
    return estimate.low <= truth <= estimate.high


# --- Mean ------------------------------------------------------------------------------------------------------------


@given(latencies, some_bounds)
def test_the_mean_is_exact_and_its_variance_is_bounded_by_what_the_buckets_allow(
    values: list[float], bounds: tuple[float, ...]
) -> None:
    seen = histogram(values, bounds)
    found = variance_max(seen)
    if sum(values):
        assert known(mean(seen)).value == pytest.approx(statistics.fmean(values), abs=1e-9)
    if max(values) > (bounds[-2] if len(bounds) > 1 else -1.0):
        assert found is None
    else:
        assert known(found) >= statistics.pvariance(values) - 1e-6


@pytest.mark.parametrize("total", [0.0, 1e9])
def test_a_sum_that_the_buckets_do_not_allow_gives_no_absurd_variance(total: float) -> None:
    found = variance_max(Histogram(bounds=(1.0, 2.0, INF), counts=(1.0, 5.0, 5.0), sum=total))
    assert 0.0 <= known(found) <= 4.0


def test_an_empty_histogram_says_nothing() -> None:
    empty = histogram([])
    full = histogram([0.02])
    assert mean(empty) is None
    assert quantile(empty, 0.5) is None
    assert tail_shift(full, empty) is None
    assert tail_shift(empty, full) is None
    assert head_shift(full, empty) is None
    assert widest_gap(full, empty) is None
    assert unevenness(empty) == 0.0
    assert proportion(0, 0, 0) is None


@pytest.mark.parametrize("median", [0.006, 0.0209, 0.3])
def test_the_ratio_of_means_lies_in_its_interval(median: float) -> None:
    def trial(source: random.Random) -> bool:
        base = known(mean(histogram(lognormal(source, median * 1.3, 200))))
        now = known(mean(histogram(lognormal(source, median, 200))))
        return contains((now / base).estimate(), 1 / 1.3)

    assert coverage(300, trial) >= NOMINAL


def test_a_mean_of_nothing_but_zeros_is_none() -> None:
    assert mean(histogram([0.0, 0.0])) is None


# --- Quantiles -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("seen", "share", "found"),
    [
        (histogram([0.015] * 1000 + [0.03] * 2000 + [9.0] * 1000, (0.01, 0.02, 0.04, INF)), 0.5, (0.03, 0.02, 0.04)),
        (histogram([0.004] * 1000 + [0.02] * 100), 0.5, (None, 0.0, 0.01, "below_first_bucket")),
        (histogram([0.02] * 900 + [100.0] * 100), 0.99, (None, 80.0, None, "above_last_bucket")),
    ],
    ids=["interpolated as in Prometheus", "first bucket", "last bucket"],
)
def test_a_quantile_has_its_boundaries(seen: Histogram, share: float, found: tuple[Any, ...]) -> None:
    assert quantile(seen, share) == Quantile(*found)


@pytest.mark.parametrize("share", [0.5, 0.9, 0.95, 0.99])
def test_too_few_requests_beyond_it_make_it_unresolvable(share: float) -> None:
    needed = distribution.requests_needed(share)
    values = [0.02 if i % 100 < 40 else 0.03 for i in range(needed)]
    enough, few = known(quantile(histogram(values), share)), known(quantile(histogram(values[1:]), share))
    assert enough.unresolvable is None
    assert few.unresolvable == "too_few_requests"


@given(latencies, some_bounds, st.sampled_from([0.01, 0.5, 0.9, 0.99]))
def test_a_quantile_lies_within_its_boundaries(values: list[float], bounds: tuple[float, ...], share: float) -> None:
    found = known(quantile(histogram(values * 10, bounds), share))
    assert (found.seconds is None) is (found.unresolvable is not None)
    if found.seconds is not None:
        assert found.low_seconds is not None
        assert found.low_seconds <= found.seconds <= (found.high_seconds or INF)


def test_the_ratio_of_quantiles_that_share_a_bucket_shows_nothing() -> None:
    before, after = known(quantile(histogram([0.024] * 900), 0.5)), known(quantile(histogram([0.011] * 900), 0.5))
    ratio = known(ratio_of_quantiles(after, before))
    assert ratio.low is not None
    assert ratio.high is not None
    assert ratio.low < 1 < ratio.high


def test_the_ratio_of_quantiles_is_none_where_one_is_not_resolvable() -> None:
    before, after = known(quantile(histogram([0.024] * 900), 0.5)), known(quantile(histogram([0.001] * 900), 0.5))
    assert ratio_of_quantiles(after, before) is None
    assert ratio_of_quantiles(before, after) is None


# --- Buckets ---------------------------------------------------------------------------------------------------------


@given(latencies, some_bounds, some_bounds)
def test_common_boundaries_lose_resolution_and_nothing_else(
    values: list[float], one: tuple[float, ...], other: tuple[float, ...]
) -> None:
    common = sorted({*one} & {*other})
    found = on_common_bounds(Sample(histogram(values, one)), Sample(histogram(values, other)))
    if one != other and common == [INF]:
        assert found is None
    else:
        assert found is not None
        assert found == (Sample(histogram(values, tuple(common))),) * 2


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
    assert shift.shifted is (shift.share > max(shift.margin, POLICY.tail_shift_min))


def test_the_tail_of_the_same_traffic_hardly_ever_shifts() -> None:
    source = random.Random(11)
    alarms = 0
    for _ in range(500):
        median = 0.02 * source.lognormvariate(0.0, 0.5)
        before, after = (histogram(lognormal(source, median, 200)) for _ in range(2))
        shift = known(tail_shift(after, before))
        alarms += shift.shifted
    assert alarms == 0


def test_a_tenth_of_the_requests_far_slower_shifts_the_tail() -> None:
    source = random.Random(12)
    for _ in range(50):
        before = histogram(lognormal(source, 0.02, 1000))
        after = histogram([*lognormal(source, 0.02, 900), *lognormal(source, 0.2, 100)])
        shift = known(tail_shift(after, before))
        assert shift.shifted


def test_the_head_shift_is_what_is_newly_fast() -> None:
    before, after = histogram([0.02] * 1000), histogram([0.009] * 400 + [0.02] * 500 + [0.2] * 100)
    found = known(head_shift(after, before))
    assert (found.share, found.limit_seconds, found.shifted) == (0.4, 0.01, True)


# --- Proportions -----------------------------------------------------------------------------------------------------


@given(st.floats(0, 1), st.floats(1, 1e9), st.floats(1, 1e6))
def test_a_proportion_lies_in_its_interval_and_that_in_0_to_1(share: float, trials: float, independent: float) -> None:
    found = known(proportion(share * trials, trials, independent))
    assert found.low is not None
    assert found.high is not None
    assert 0.0 <= found.low <= found.value <= found.high <= 1.0
