"""How far chance may have moved a figure: one way for every ratio. Pure.

Requests that share a batch, a burst or an hour are alike, so no formula for independent requests holds. A recording is
cut into a few consecutive batches instead, and each figure is computed anew without each of them (the jackknife,
Tukey 1958). Two sides add their variances, with Welch's degrees of freedom. No pair of recordings can know what
differs between any two runs of one setting, so every ratio of two sides has a least standard error.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import cache
from itertools import pairwise
from statistics import NormalDist
from typing import Final, TypeVar

import msgspec

from specdec_exporter.formatting import decimal
from specdec_exporter.speculation.policy import ChancePolicy

Z: Final = NormalDist().inv_cdf(1.0 - 0.05 / 2.0)  # 1.96

_T = TypeVar("_T")


class Estimate(msgspec.Struct, frozen=True):
    """``value`` as measured, with its 95 % interval from ``low`` to ``high``; ``None``: that end is not known."""

    value: float
    low: float | None
    high: float | None

    def inverse(self) -> Estimate:
        """1 / value, for positive values."""
        low, high = (1.0 / end if end else None for end in (self.high, self.low))
        return Estimate(1.0 / self.value, low, high)

    def scaled(self, factor: float, offset: float = 0.0) -> Estimate:
        """Offset + factor * value, for an exact factor of at least 0."""
        low, high = self.low, self.high
        return Estimate(
            offset + factor * self.value,
            None if low is None else offset + factor * low,
            None if high is None else offset + factor * high,
        )


def interval(found: Estimate | None, shown: Callable[[float | None], str], unit: str = "") -> str:
    """A figure with its interval if there is one, ``81.6% (79.9% to 83.2%)``; ``unit``: of the figure alone."""
    if found is None:
        return "-"
    value = f"{shown(found.value)}{unit}"
    if found.low is None and found.high is None:
        return value
    return f"{value} ({shown(found.low)} to {shown(found.high)})"


def times(found: Estimate | None) -> str:
    """A ratio, ``1.84x (1.79 to 1.90)``."""
    return interval(found, decimal, "x")


class Spread(msgspec.Struct, frozen=True):
    """A positive figure, the standard error of its logarithm (``None``: not known), and that error's freedom."""

    value: float
    error: float | None = None
    freedom: float = math.inf

    def __mul__(self, other: Spread) -> Spread:
        """Multiply independent figures."""
        return Spread(self.value * other.value, *_added(self, other))

    def __truediv__(self, other: Spread) -> Spread:
        """Divide by an independent figure."""
        return Spread(self.value / other.value, *_added(self, other))

    def estimate(self) -> Estimate:
        """The figure with its 95 % interval, symmetric in the logarithm."""
        reach = None if self.error is None else self.error * t_quantile(Z, self.freedom)
        if reach is None or not reach < _MAX_LOGARITHM:
            return Estimate(self.value, None, None)
        factor = math.exp(reach)
        high = self.value * factor
        return Estimate(self.value, self.value / factor, high if high < math.inf else None)

    def of_two_runs(self, policy: ChancePolicy) -> Estimate:
        """The interval of a ratio of two sides: with what any two runs differ by, and none that is too wide to say."""
        found = (self * Spread(1.0, policy.runs_differ)).estimate()
        if found.low is None or found.high is None or found.high > policy.widest_interval * found.low:
            return Estimate(self.value, None, None)
        return found


def _added(one: Spread, other: Spread) -> tuple[float | None, float]:
    """Return error and freedom of a product (Welch and Satterthwaite): the figure with the larger error decides."""
    if one.error is None or other.error is None:
        return None, math.inf
    total = math.hypot(one.error, other.error)
    least = min(one.freedom, other.freedom)
    if not 0.0 < total < math.inf:
        return total, least
    shares = sum((each.error / total) ** 4 / each.freedom for each in (one, other) if each.error)
    return total, max(1.0 / shares, least) if shares > 0.0 else math.inf


_MAX_LOGARITHM: Final = 20.0  # a wider interval says nothing, and would overflow


def batches(parts: Sequence[_T], policy: ChancePolicy) -> list[Sequence[_T]]:
    """Cut ``parts``, in the order of time, into consecutive batches of about equal length; empty if too few."""
    number = min(policy.batches, len(parts))
    if number < policy.fewest_batches:
        return []
    ends = [len(parts) * i // number for i in range(number + 1)]
    return [parts[start:end] for start, end in pairwise(ends)]


def all_but_each(cut: Sequence[Sequence[_T]]) -> list[list[_T]]:
    """Return the parts of all batches but one, for each batch in turn."""
    return [[part for other in cut if other is not batch for part in other] for batch in cut]


def jackknife(value: float | None, without_each: Sequence[float | None]) -> Spread | None:
    """Return a positive figure with its error, from the same figure without each batch; ``None`` if it is not positive.

    Variance of the logarithm: (n - 1) / n * the sum of squares around the mean (Tukey). Without batches, or where the
    figure hangs on one of them, the error is not known.
    """
    if value is None or not 0.0 < value < math.inf:
        return None
    found = [math.log(each) for each in without_each if each is not None and 0.0 < each < math.inf]
    if len(found) < max(len(without_each), 2):
        return Spread(value)
    number, mean = len(found), math.fsum(found) / len(found)
    off = [each - mean for each in found]
    squares = math.fsum(each * each for each in off)
    likeness = math.fsum(one * other for one, other in pairwise(off)) / squares + 1.0 / number if squares else 0.0
    kept = min(max(likeness, 0.0), _MOST_ALIKE)
    return Spread(value, math.sqrt(squares * (number - 1) / number * (1.0 + kept) / (1.0 - kept)), number - 1)


_MOST_ALIKE: Final = 0.6


def of_batches(
    parts: Sequence[_T], figure: Callable[[Sequence[_T]], float | None], policy: ChancePolicy
) -> Spread | None:
    """Return a positive figure of consecutive parts with its error, by leaving out each batch of them in turn."""
    return jackknife(figure(parts), list(map(figure, all_but_each(batches(parts, policy)))))


def ratio_of_sums(numerators: Sequence[float], denominators: Sequence[float], policy: ChancePolicy) -> Spread | None:
    """Return the ratio of two sums over consecutive parts; ``None`` unless both sums are positive."""
    return of_batches(list(zip(numerators, denominators, strict=True)), _ratio, policy)


def _ratio(pairs: Sequence[tuple[float, float]]) -> float | None:
    above, below = (math.fsum(column) for column in zip(*pairs, strict=True)) if pairs else (0.0, 0.0)
    return above / below if 0.0 < above < math.inf and 0.0 < below < math.inf else None


def stalled(seconds: Sequence[float], expected: Sequence[float], policy: ChancePolicy) -> bool:
    """Whether one stall decides: one batch holds most of the seconds, and far more of them than was to be expected."""
    whole, total = math.fsum(seconds), math.fsum(expected)
    cut = zip(batches(seconds, policy), batches(expected, policy), strict=True)
    for held, due in cut:
        share = math.fsum(held) / whole if whole else 0.0
        if share > policy.stall_share and share * total > policy.stall_ratio * math.fsum(due):
            return True
    return False


# --- Shares -----------------------------------------------------------------------------------------------------------


def proportion(successes: float, trials: float, independent: float) -> Estimate | None:
    """Share of successes with Wilson's score interval for ``independent`` draws; ``None`` without trials.

    Trials in clusters (the draft tokens of a request) are not independent. Pass the number of independent draws that
    tell as much.
    """
    if trials <= 0 or independent <= 0:
        return None
    share = min(max(successes / trials, 0.0), 1.0)
    spread = Z * Z / independent
    if not spread < math.inf:  # next to no draws
        return Estimate(share, 0.0, 1.0)
    centre = (share + spread / 2.0) / (1.0 + spread)
    half = math.sqrt(spread * (share * (1.0 - share) + spread / 4.0)) / (1.0 + spread)
    return Estimate(share, min(max(centre - half, 0.0), share), max(min(centre + half, 1.0), share))


def difference(one: Estimate, other: Estimate) -> Estimate:
    """Return ``other`` - ``one``, for two independent shares with Wilson's intervals (Newcombe's hybrid score)."""
    value = other.value - one.value

    def reach(up: Estimate, down: Estimate) -> float | None:
        if up.high is None or down.low is None:
            return None
        return math.hypot(up.high - up.value, down.value - down.low)

    less, more = reach(one, other), reach(other, one)
    return Estimate(value, None if less is None else value - less, None if more is None else value + more)


def independent_draws(share: Spread) -> float | None:
    """Return how many independent draws have the error of a share; ``None`` if the error is not known.

    Infinite for an error of 0. Few degrees of freedom count as fewer draws: Wilson's interval has the normal quantile.
    """
    if share.error is None:
        return None
    width = share.value * share.error * t_quantile(Z, share.freedom) / Z
    variance = width**2  # 0 also where it is too small for a float
    return max(share.value * (1.0 - share.value), 0.0) / variance if variance else math.inf


# --- Student's t ------------------------------------------------------------------------------------------------------

_MANY: Final = 100  # degrees of freedom from which the expansion is exact to five digits


@cache
def t_quantile(z: float, freedom: float) -> float:
    """Return the quantile of Student's t distribution beyond which as much lies as beyond ``z`` of a normal one.

    A freedom between two whole numbers counts as the lower one, and one below 1 as 1.
    """
    if freedom > _MANY:
        return z + (z**3 + z) / (4.0 * freedom) + (5.0 * z**5 + 16.0 * z**3 + 3.0 * z) / 96.0 / freedom / freedom
    whole = max(int(freedom + _ROUNDING), 1)
    within, low, high = math.erf(z / math.sqrt(2.0)), 0.0, math.pi / 2.0
    for _ in range(50):
        middle = (low + high) / 2.0
        low, high = (middle, high) if _within(middle, whole) < within else (low, middle)
    return math.sqrt(whole) * math.tan(low)


_ROUNDING: Final = 1e-9


def _within(angle: float, freedom: int) -> float:
    """Return the probability of |t| <= sqrt(freedom) * tan(angle) (Abramowitz and Stegun, 26.7.3 and 26.7.4)."""
    odd, total, cosine = freedom % 2, 0.0, math.cos(angle)
    term = cosine if odd else 1.0
    for power in range(odd, freedom - 1, 2):
        total += term
        term *= cosine * cosine * (power + 1) / (power + 2)
    found = math.sin(angle) * total
    return 2.0 / math.pi * (angle + found) if odd else found
