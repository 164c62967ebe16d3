"""Histograms as in Prometheus: the number of values at or below each of a few fixed bounds."""

from __future__ import annotations

import math
from bisect import bisect_left
from dataclasses import dataclass, field
from itertools import accumulate, pairwise
from operator import add, sub

import msgspec


class Histogram(msgspec.Struct, frozen=True):
    """``counts[i]`` values are at most ``bounds[i]``. Bounds ascend and the last is ``inf``, so counts never fall."""

    bounds: tuple[float, ...]
    counts: tuple[float, ...]
    sum: float

    @property
    def count(self) -> float:
        """Number of values."""
        return self.counts[-1]

    @property
    def mean(self) -> float:
        """Mean value. The histogram must not be empty."""
        return self.sum / self.count

    def __add__(self, other: Histogram) -> Histogram:
        """Return the sum of both; their bounds must be equal."""
        return Histogram(self.bounds, tuple(map(add, self.counts, other.counts)), self.sum + other.sum)

    def __sub__(self, earlier: Histogram) -> Histogram:
        """Return the increase since ``earlier``; their bounds must be equal."""
        return Histogram(self.bounds, tuple(map(sub, self.counts, earlier.counts)), self.sum - earlier.sum)

    def sum_bounds(self) -> tuple[float, float]:
        """Return the smallest and the largest possible sum of the values in these buckets; no value is below 0."""
        low = high = before = 0.0
        for (lower, upper), count in zip(pairwise((0.0, *self.bounds)), self.counts, strict=True):
            if values := count - before:
                low += values * lower
                high += values * upper
            before = count
        return low, high

    def quantile(self, share: float, z: float) -> tuple[float | None, float | None]:
        """Return bounds between which the ``share`` quantile (0.5 for the median) lies; ``None``: none on that side.

        The number of values below the true quantile is binomial. So, for any distribution, it lies between the ranks
        n q -+ z sqrt(n q (1 - q)), as surely as a normal value within z standard errors. An empty one knows neither.
        """
        reach = z * math.sqrt(share * (1.0 - share) * self.count)
        low, high = (bisect_left(self.counts, max(share * self.count + side, 0.0)) for side in (-reach, reach))
        known = self.count > 0 and high < len(self.bounds) - 1
        return self.bounds[low - 1] if low else None, self.bounds[high] if known else None

    def interpolated(self, share: float) -> float | None:
        """Return the ``share`` quantile, above 0, as PromQL's ``histogram_quantile`` does; ``None`` where that is NaN.

        Values spread evenly over their bucket, and the first bucket begins at 0. No quantile is above the highest
        finite bound.
        """
        last = len(self.bounds) - 1
        if not self.count or not last:
            return None
        rank = share * self.count
        i = bisect_left(self.counts, rank, hi=last)
        if i == last or (i == 0 and self.bounds[0] <= 0):
            return self.bounds[min(i, last - 1)]
        start, below = (self.bounds[i - 1], self.counts[i - 1]) if i else (0.0, 0.0)
        return start + (self.bounds[i] - start) * ((rank - below) / (self.counts[i] - below))

    def tail(self, share: float) -> Histogram:
        """Return it from the bucket of the ``share`` quantile on: without bounds that hold less, or more than all.

        The bound below stays, for who interpolates. An empty histogram stays as it is.
        """
        if not self.count:
            return self
        first = max(bisect_left(self.counts, share * self.count) - 1, 0)
        last = min(bisect_left(self.counts, self.count) + 1, len(self.bounds) - 1)
        return Histogram((*self.bounds[first:last], math.inf), (*self.counts[first:last], self.count), self.sum)

    def buckets(self) -> list[tuple[str, float]]:
        """Return label ``le`` and count of each bucket."""
        return list(zip(map(le, self.bounds), self.counts, strict=True))


@dataclass(slots=True)
class HistogramCounter:
    """Counts values into a :class:`Histogram` with ``bounds`` and ``inf``. Its memory does not grow."""

    bounds: tuple[float, ...]
    sum: float = 0.0
    _counts: list[int] = field(init=False)  # per bucket, not cumulative

    def __post_init__(self) -> None:
        """Start with empty buckets."""
        self._counts = [0] * (len(self.bounds) + 1)

    def observe(self, value: float) -> None:
        """Count a value; one equal to a bound is at most that bound."""
        self._counts[bisect_left(self.bounds, value)] += 1
        self.sum += value

    @property
    def count(self) -> int:
        """Number of values."""
        return sum(self._counts)

    @property
    def histogram(self) -> Histogram:
        """The counts so far."""
        return Histogram((*self.bounds, math.inf), tuple(accumulate(self._counts)), self.sum)


def le(bound: float) -> str:
    """Return a bound as the value of the label ``le``, spelled as in Prometheus' clients."""
    return "+Inf" if bound == math.inf else repr(bound)
