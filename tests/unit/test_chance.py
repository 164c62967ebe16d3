"""How far chance moves a figure: the intervals hold the truth as often as they say, and never break."""

from __future__ import annotations

import math
import random
import statistics
from collections.abc import Sequence

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from specdec_exporter.speculation.chance import (
    Estimate,
    Spread,
    batches,
    difference,
    independent_draws,
    jackknife,
    of_batches,
    proportion,
    ratio_of_sums,
    stalled,
)
from specdec_exporter.speculation.policy import load_policy
from support.builders import known

POLICY = load_policy().chance
FEWEST = POLICY.fewest_batches
# Exact two-sided 95 % quantiles of Student's t distribution, by degrees of freedom.
QUANTILES = {
    1: 12.7062, 2: 4.3027, 3: 3.1824, 4: 2.7764, 5: 2.5706, 6: 2.4469, 7: 2.3646, 8: 2.3060, 9: 2.2622, 10: 2.2281,
    11: 2.2010, 12: 2.1788, 13: 2.1604, 14: 2.1448, 15: 2.1314, 16: 2.1199, 20: 2.0860, 25: 2.0595, 30: 2.0423,
    40: 2.0211, 60: 2.0003, 120: 1.9799, 1000: 1.9623, 10**6: 1.9600,
}  # fmt: skip


# --- Batches ---


@given(st.integers(0, 200))
def test_batches_hold_every_part_once_in_its_order_and_are_about_equal(number: int) -> None:
    cut = batches(range(number), POLICY)
    assert len(cut) == (min(number, POLICY.batches) if number >= FEWEST else 0)
    if cut:
        assert [part for batch in cut for part in batch] == list(range(number))
        assert max(map(len, cut)) - min(map(len, cut)) <= 1


def test_the_jackknife_of_a_mean_is_its_standard_error() -> None:
    """For the logarithm of a geometric mean, it is the textbook formula exactly."""
    values = [1.9, 2.2, 2.0, 2.4, 1.7, 2.1, 1.8, 2.3]
    found = known(of_batches(values, statistics.geometric_mean, POLICY))
    logarithms = [math.log(value) for value in values]
    assert found.value == pytest.approx(statistics.geometric_mean(values))
    assert found.error == pytest.approx(statistics.stdev(logarithms) / math.sqrt(8))
    assert found.freedom == 7


def test_a_figure_that_hangs_on_one_batch_has_no_known_error() -> None:
    assert jackknife(2.0, [2.0, None, 2.1, 1.9]) == Spread(2.0)
    assert jackknife(2.0, [2.0, 0.0, 2.1, 1.9]) == Spread(2.0)
    assert jackknife(2.0, []) == Spread(2.0)
    assert jackknife(0.0, [1.0] * 4) is None


@pytest.mark.parametrize(("number", "correlation"), [(FEWEST, 0.0), (8, 0.0), (40, 0.0), (200, 0.5), (400, 0.8)])
def test_a_ratio_lies_in_its_interval_though_neighbours_are_alike(number: int, correlation: float) -> None:
    source = random.Random(f"blocks {number} {correlation}")

    def holds() -> bool:
        deviation = source.gauss(0.0, 1.0)
        above, below = [], []
        for _ in range(number):
            deviation = correlation * deviation + math.sqrt(1.0 - correlation**2) * source.gauss(0.0, 1.0)
            below.append(source.uniform(50.0, 150.0))
            above.append(2.0 * below[-1] * math.exp(0.1 * deviation - 0.005))
        found = known(ratio_of_sums(above, below, POLICY)).estimate()
        return known(found.low) <= 2.0 <= known(found.high)

    assert statistics.mean(holds() for _ in range(400)) >= 0.91


def test_parts_that_agree_exactly_have_no_error_and_few_have_no_known_one() -> None:
    found = known(ratio_of_sums([2.0] * 8, [1.0] * 8, POLICY))
    assert found.value == 2.0
    assert known(found.error) == pytest.approx(0.0, abs=1e-12)
    few = ratio_of_sums([2.0] * (FEWEST - 1), [1.0] * (FEWEST - 1), POLICY)
    assert few == Spread(2.0)
    assert few.estimate() == Estimate(2.0, None, None)


@pytest.mark.parametrize(
    ("above", "below"), [([], []), ([0.0] * 5, [1.0] * 5), ([1.0] * 5, [0.0] * 5), ([math.nan] * 5, [1.0] * 5)]
)
def test_what_is_no_ratio_is_none(above: Sequence[float], below: Sequence[float]) -> None:
    assert ratio_of_sums(above, below, POLICY) is None


@pytest.mark.parametrize(
    ("seconds", "expected", "decides"),
    [
        ([10.0] * 7 + [60.0], [10.0] * 8, True),
        ([10.0] * 7 + [60.0], [10.0] * 7 + [60.0], False),  # as busy as that
        ([10.0] * 7 + [20.0], [10.0] * 8, False),
        ([0.0] * 8, [1.0] * 8, False),
    ],
)
def test_one_batch_decides_if_it_holds_far_more_than_its_due(
    seconds: list[float], expected: list[float], decides: bool
) -> None:
    assert stalled(seconds, expected, POLICY) == decides


# --- Spread ---


def reach(spread: Spread) -> float:
    """Distance to the upper end, in standard errors."""
    return math.log(known(spread.estimate().high) / spread.value) / known(spread.error)


@pytest.mark.parametrize(("freedom", "quantile"), QUANTILES.items())
def test_intervals_reach_as_far_as_students_distribution_does(freedom: int, quantile: float) -> None:
    assert reach(Spread(3.0, 0.01, freedom)) == pytest.approx(quantile, abs=1e-4)


@pytest.mark.parametrize("error", [None, 50.0, 1e300, math.inf, math.nan])
def test_an_error_beyond_all_bounds_gives_no_interval(error: float | None) -> None:
    assert Spread(3.0, error, 10).estimate() == Estimate(3.0, None, None)
    assert Spread(3.0, error, 10).of_two_runs(POLICY) == Estimate(3.0, None, None)


def test_two_runs_differ_by_at_least_the_floor_and_too_wide_an_interval_is_not_said() -> None:
    exact = Spread(2.0, 0.0, 7).of_two_runs(POLICY)
    assert known(exact.high) / 2.0 == pytest.approx(math.exp(1.96 * POLICY.runs_differ), rel=1e-4)
    assert known(exact.low) == pytest.approx(4.0 / known(exact.high))
    # A factor of 3 in all is 0.549 to either side.
    assert Spread(2.0, 0.27, math.inf).of_two_runs(POLICY).low is not None
    assert Spread(2.0, 0.29, math.inf).of_two_runs(POLICY) == Estimate(2.0, None, None)


def test_errors_of_independent_figures_add_as_squares() -> None:
    one, other = Spread(6.0, 0.03, 10), Spread(2.0, 0.04, 20)
    for found, value in ((one * other, 12.0), (one / other, 3.0)):
        assert found.value == value
        assert found.error == pytest.approx(0.05)
        # Welch and Satterthwaite
        assert found.freedom == pytest.approx(0.05**4 / (0.03**4 / 10 + 0.04**4 / 20))


def test_an_unknown_error_stays_unknown() -> None:
    assert Spread(6.0, 0.03, 10) / Spread(2.0) == Spread(3.0)
    assert Spread(6.0) * Spread(2.0, 0.03, 10) == Spread(12.0)


errors = st.floats(0.0, 1e200) | st.sampled_from([1e-300, 1e-160, 1e300, 1e308])
spreads = st.builds(Spread, st.floats(1e-6, 1e6), st.none() | errors, st.integers(1, 10**6) | st.just(math.inf))


@given(spreads, spreads)
@example(Spread(1.0, 5e-324, 2), Spread(1.0, 5e-324, 2))
def test_no_figure_breaks_the_algebra(one: Spread, other: Spread) -> None:
    for found in (one * other, one / other):
        if found.error is None:
            continue
        assert found.error >= max(known(one.error), known(other.error)) * (1 - 1e-12)
        assert min(one.freedom, other.freedom) * (1 - 1e-9) <= found.freedom
        assert found.freedom <= (one.freedom + other.freedom) * (1 + 1e-9)
        for estimate in (found.estimate(), found.of_two_runs(POLICY)):
            assert (estimate.low is None) == (estimate.high is None)
            assert estimate.low is None or 0.0 < estimate.low <= found.value <= known(estimate.high) < math.inf


# --- Shares ---


def test_wilsons_interval_is_the_textbooks() -> None:
    found = known(proportion(8.0, 10.0, 10.0))
    assert (found.value, known(found.low), known(found.high)) == pytest.approx((0.8, 0.4902, 0.9433), abs=1e-4)
    wider = known(proportion(80.0, 100.0, 10.0))
    assert wider == found  # a hundred trials that tell as much as ten
    assert proportion(0.0, 1e-308, 1e-308) == Estimate(0.0, 0.0, 1.0)
    assert proportion(1.0, 0.0, 1.0) is None


def test_a_difference_of_shares_is_newcombes() -> None:
    """Newcombe (1998), example (a): 56/70 - 48/80."""
    found = difference(known(proportion(48.0, 80.0, 80.0)), known(proportion(56.0, 70.0, 70.0)))
    assert found.value == pytest.approx(0.2)
    assert (known(found.low), known(found.high)) == pytest.approx((0.0524, 0.3339), abs=1e-4)


def test_a_share_is_worth_as_many_draws_as_have_its_error() -> None:
    assert independent_draws(Spread(0.5, 0.1)) == pytest.approx(0.25 / 0.05**2)
    assert independent_draws(Spread(0.5, 0.1, 7)) == pytest.approx(0.25 / 0.05**2 * (1.96 / 2.3646) ** 2, rel=1e-4)
    assert independent_draws(Spread(0.5, 0.0)) == math.inf
    assert independent_draws(Spread(0.5)) is None
