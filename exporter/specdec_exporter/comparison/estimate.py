"""A figure with the interval in which it lies as far as chance goes: 95 %, two-sided. Pure; standard library only."""

from __future__ import annotations

import math
from statistics import NormalDist
from typing import Final

import msgspec

CONFIDENCE: Final = 0.95


def z_score(confidence: float) -> float:
    """Two-sided quantile of the normal distribution: 1.96 for 0.95."""
    return NormalDist().inv_cdf((1.0 + confidence) / 2.0)


Z: Final = z_score(CONFIDENCE)
# For each of two intervals that together hold with CONFIDENCE (Bonferroni).
Z_OF_PAIR: Final = z_score((1.0 + CONFIDENCE) / 2.0)


_MAX_ERROR: Final = 100.0  # squared and relative: an interval from nothing to everything


class Estimate(msgspec.Struct, frozen=True):
    """``value`` as measured; ``low`` and ``high`` bound it. ``None``: nothing bounds it on that side."""

    value: float
    low: float | None
    high: float | None

    def inverse(self) -> Estimate:
        """1 / value, for positive values."""
        return Estimate(1.0 / self.value, _inverse(self.high), _inverse(self.low))

    def scaled(self, factor: float, offset: float = 0.0) -> Estimate:
        """Offset + factor * value, for a factor that is not negative and is itself taken as exact."""
        low, high = self.low, self.high
        return Estimate(
            offset + factor * self.value,
            None if low is None else offset + factor * low,
            None if high is None else offset + factor * high,
        )


def _inverse(value: float | None) -> float | None:
    return 1.0 / value if value else None


def proportion(successes: float, trials: float, independent: float) -> Estimate | None:
    """Share of successes with Wilson's score interval for so many ``independent`` draws; ``None`` without trials.

    Trials in clusters (the draft tokens of a request) are not independent; with the number of clusters of like size
    the interval is as wide as correlation within them can make it.
    """
    if trials <= 0 or independent <= 0:
        return None
    share = min(max(successes / trials, 0.0), 1.0)
    spread = Z * Z / independent
    centre = (share + spread / 2.0) / (1.0 + spread)
    half = math.sqrt(spread * (share * (1.0 - share) + spread / 4.0)) / (1.0 + spread)
    return Estimate(share, min(max(centre - half, 0.0), share), max(min(centre + half, 1.0), share))


class Mean(msgspec.Struct, frozen=True):
    """Mean of ``count`` values; ``variance_max``: the largest variance that they may have, ``None`` if unbounded."""

    value: float
    count: float
    variance_max: float | None


def ratio_of_means(numerator: Mean, denominator: Mean) -> Estimate | None:
    """Ratio of two independent means with its delta-method interval; ``None`` where a mean is not positive.

    The interval is normal in the logarithm, so the inverse ratio has the inverse interval. Wide rather than narrow,
    since the largest possible variances are taken; unbounded where a variance is.
    """
    if numerator.value <= 0 or denominator.value <= 0:
        return None
    ratio = numerator.value / denominator.value
    if not 0.0 < ratio < math.inf:  # under- or overflow: nothing that was ever measured
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
