"""Figures with their two-sided 95 % interval. Pure; standard library only."""

from __future__ import annotations

import math
from statistics import NormalDist
from typing import Final

import msgspec

Z: Final = NormalDist().inv_cdf(1.0 - 0.05 / 2.0)  # 1.96
# For each of two intervals that hold together with 95 % (Bonferroni).
Z_OF_PAIR: Final = NormalDist().inv_cdf(1.0 - 0.05 / 4.0)
_MAX_ERROR: Final = 100.0  # squared and relative; beyond it an interval says nothing


class Estimate(msgspec.Struct, frozen=True):
    """``value`` as measured, between ``low`` and ``high``; ``None``: unbounded on that side."""

    value: float
    low: float | None
    high: float | None

    def inverse(self) -> Estimate:
        """1 / value, for positive values."""
        return Estimate(1.0 / self.value, _inverse(self.high), _inverse(self.low))

    def scaled(self, factor: float, offset: float = 0.0) -> Estimate:
        """Offset + factor * value, for an exact factor of at least 0."""
        low, high = self.low, self.high
        return Estimate(
            offset + factor * self.value,
            None if low is None else offset + factor * low,
            None if high is None else offset + factor * high,
        )


def _inverse(value: float | None) -> float | None:
    return 1.0 / value if value else None


def proportion(successes: float, trials: float, independent: float) -> Estimate | None:
    """Share of successes with Wilson's score interval for ``independent`` draws; ``None`` without trials.

    Trials in clusters (the draft tokens of a request) are not independent. Pass the number of clusters: the interval is
    then the widest that correlation within clusters of equal size can cause.
    """
    if trials <= 0 or independent <= 0:
        return None
    share = min(max(successes / trials, 0.0), 1.0)
    spread = Z * Z / independent
    centre = (share + spread / 2.0) / (1.0 + spread)
    half = math.sqrt(spread * (share * (1.0 - share) + spread / 4.0)) / (1.0 + spread)
    return Estimate(share, min(max(centre - half, 0.0), share), max(min(centre + half, 1.0), share))


class Mean(msgspec.Struct, frozen=True):
    """Mean of ``count`` values; ``variance_max`` is their largest possible variance, ``None`` if unbounded."""

    value: float
    count: float
    variance_max: float | None


def ratio_of_means(numerator: Mean, denominator: Mean) -> Estimate | None:
    """Ratio of two independent means with its delta-method interval; ``None`` if a mean is not positive.

    The interval is normal in the logarithm, so the inverse ratio has the inverse interval. It uses the largest possible
    variances, so it is too wide rather than too narrow; it is unbounded if a variance is.
    """
    if numerator.value <= 0 or denominator.value <= 0:
        return None
    ratio = numerator.value / denominator.value
    if not 0.0 < ratio < math.inf:  # under- or overflow: no real measurement
        return None
    error = 0.0
    for mean in (numerator, denominator):
        if mean.variance_max is None or mean.count <= 1:
            return Estimate(ratio, None, None)
        error += mean.variance_max / (mean.count - 1.0) / mean.value / mean.value
    if not error < _MAX_ERROR:
        return Estimate(ratio, None, None)
    factor = math.exp(Z * math.sqrt(error))
    return Estimate(ratio, ratio / factor, ratio * factor)
