"""Figures over blocks of time: their intervals hold the truth as often as they say, and never break."""

from __future__ import annotations

import math
import random
import statistics
from collections.abc import Sequence

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from builders import known
from specdec_exporter.speculation.estimate import Estimate, Spread, proportion, ratio_of_sums

TRIALS = 500
# Exact two-sided 95 % quantiles of Student's t distribution, by degrees of freedom.
QUANTILES = {
    1: 12.7062, 2: 4.3027, 3: 3.1824, 4: 2.7764, 5: 2.5706, 6: 2.4469, 7: 2.3646, 8: 2.3060, 9: 2.2622, 10: 2.2281,
    11: 2.2010, 12: 2.1788, 13: 2.1604, 14: 2.1448, 15: 2.1314, 16: 2.1199, 20: 2.0860, 25: 2.0595, 30: 2.0423,
    40: 2.0211, 60: 2.0003, 120: 1.9799, 1000: 1.9623, 10**6: 1.9600,
}  # fmt: skip


def blocks(source: random.Random, number: int, correlation: float, noise: float) -> tuple[list[float], list[float]]:
    """Sums whose ratio is 2 in the mean; neighbours deviate alike by ``correlation``."""
    deviation = source.gauss(0.0, 1.0)
    above, below = [], []
    for _ in range(number):
        deviation = correlation * deviation + math.sqrt(1.0 - correlation**2) * source.gauss(0.0, 1.0)
        below.append(source.uniform(50.0, 150.0))
        above.append(2.0 * below[-1] * math.exp(noise * deviation - noise * noise / 2.0))
    return above, below


def coverage(number: int, correlation: float, noise: float) -> float:
    def holds(trial: int) -> bool:
        found = known(
            ratio_of_sums(*blocks(random.Random(f"blocks {trial}"), number, correlation, noise), 4)
        ).estimate()
        return known(found.low) <= 2.0 <= known(found.high)

    return statistics.mean(map(holds, range(TRIALS)))


# --- ratio_of_sums ---


@pytest.mark.parametrize(("number", "noise"), [(4, 0.1), (6, 0.4), (12, 0.02), (24, 0.3), (200, 0.1)])
def test_the_ratio_of_independent_blocks_lies_in_its_interval(number: int, noise: float) -> None:
    assert coverage(number, 0.0, noise) >= 0.93


@pytest.mark.parametrize(
    ("number", "correlation", "least"), [(24, 0.3, 0.92), (24, 0.5, 0.90), (200, 0.5, 0.92), (200, 0.8, 0.90)]
)
def test_blocks_that_resemble_their_neighbours_do_not_make_it_too_narrow(
    number: int, correlation: float, least: float
) -> None:
    assert coverage(number, correlation, 0.1) >= least


def test_blocks_that_agree_exactly_have_no_error() -> None:
    assert ratio_of_sums([2.0] * 8, [1.0] * 8, 4) == Spread(2.0, 0.0, 7)


@pytest.mark.parametrize("number", [1, 2, 3])
def test_few_blocks_have_no_known_error(number: int) -> None:
    assert ratio_of_sums([2.0] * number, [1.0] * number, 4) == Spread(2.0)
    assert Spread(2.0).estimate() == Estimate(2.0, None, None)


@pytest.mark.parametrize(
    ("above", "below"),
    [([], []), ([0.0] * 5, [1.0] * 5), ([1.0] * 5, [0.0] * 5), ([1e308] * 5, [1.0] * 5), ([1.0] * 5, [1e308] * 5),
     ([math.nan] * 5, [1.0] * 5), ([1e200] * 5, [1e-200] * 5), ([1e-200] * 5, [1e200] * 5), ([-1.0] * 5, [1.0] * 5)],
)  # fmt: skip
def test_what_is_no_ratio_is_none(above: Sequence[float], below: Sequence[float]) -> None:
    assert ratio_of_sums(above, below, 4) is None


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


def test_errors_of_independent_figures_add_as_squares() -> None:
    one, other = Spread(6.0, 0.03, 10), Spread(2.0, 0.04, 20)
    for found, value in ((one * other, 12.0), (one / other, 3.0)):
        assert found.value == value
        assert found.error == pytest.approx(0.05)
        # Welch and Satterthwaite: 0.05^4 / (0.03^4 / 10 + 0.04^4 / 20) = 29.9
        assert found.freedom == 29


def test_an_unknown_error_stays_unknown() -> None:
    assert Spread(6.0, 0.03, 10) / Spread(2.0) == Spread(3.0)
    assert Spread(6.0) * Spread(2.0, 0.03, 10) == Spread(12.0)


errors = st.floats(0.0, 1e200) | st.sampled_from([1e-300, 1e-160, 1e300, 1e308])
spreads = st.builds(Spread, st.floats(1e-6, 1e6), st.none() | errors, st.integers(0, 10**6))


@given(spreads, spreads)
@example(Spread(1.0, 5e-324, 2), Spread(1.0, 5e-324, 2))
def test_no_figure_breaks_the_algebra(one: Spread, other: Spread) -> None:
    for found in (one * other, one / other):
        if found.error is None:
            continue
        assert found.error >= max(known(one.error), known(other.error)) * (1 - 1e-12)
        assert min(one.freedom, other.freedom) <= max(found.freedom, 1)
        assert found.freedom <= max(one.freedom, 1) + max(other.freedom, 1)
        low, high = found.estimate().low, found.estimate().high
        assert (low is None) == (high is None)
        assert low is None or 0.0 < low <= found.value <= known(high) < math.inf


# --- Estimate ---


def test_a_share_of_next_to_no_draws_is_anything() -> None:
    assert proportion(0.0, 1e-308, 1e-308) == Estimate(0.0, 0.0, 1.0)
