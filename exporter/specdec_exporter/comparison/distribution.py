"""Statistics of latency histograms, whose buckets hide where in them a request lies.

Pure functions on :class:`~specdec_exporter.histogram.Histogram`: cumulative counts, seconds. Counts may be fractions,
because Prometheus extrapolates increases. Only :func:`quantile` interpolates.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from typing import Literal

import msgspec

from specdec_exporter.histogram import Histogram
from specdec_exporter.speculation.estimate import Estimate, Mean, Z
from specdec_exporter.speculation.policy import LatencyPolicy

Unresolvable = Literal["below_first_bucket", "above_last_bucket", "too_few_requests"]


class Quantile(msgspec.Struct, frozen=True):
    """A quantile, seconds.

    ``seconds`` is interpolated within its bucket, as Prometheus does it: for people, never for a decision. If it is
    ``None``, ``unresolvable`` says why. With 95 % confidence the quantile lies between the bucket boundaries
    ``low_seconds`` and ``high_seconds``; ``None``: no boundary on that side.
    """

    seconds: float | None
    low_seconds: float | None
    high_seconds: float | None
    unresolvable: Unresolvable | None = None


class Shift(msgspec.Struct, frozen=True):
    """The share of all requests (0..1) that moved across a bucket boundary.

    ``limit_seconds`` is the boundary with the largest share; ``None``: no request moved. ``margin`` is the largest
    share that chance explains. ``shifted``: the share exceeds the margin and the policy's minimum.
    """

    share: float
    limit_seconds: float | None
    margin: float
    shifted: bool


def mean(histogram: Histogram) -> Mean | None:
    """Return the mean and the largest variance that counts and sum allow; ``None`` for an empty histogram.

    In a bucket [a, b] with mean m, the mean of squares is at most (a + b) m - a b, when every value lies at an end. The
    total is largest when the highest buckets take as much of the sum as they can. Values above the last finite bound
    leave the variance unbounded.
    """
    if histogram.count <= 0:
        return None
    value = histogram.mean
    buckets = list(_buckets(histogram))
    if any(count > 0 and math.isinf(high) for _, high, count in buckets):
        return Mean(value, histogram.count, None)
    free = histogram.sum - sum(low * count for low, _, count in buckets)
    squares = 0.0
    for low, high, count in reversed(buckets):
        moved = min(max(free, 0.0), (high - low) * count) if count > 0 else 0.0
        free -= moved
        squares += low * low * count + (low + high) * moved if count > 0 else 0.0
    return Mean(value, histogram.count, max(squares / histogram.count - value * value, 0.0))


def _buckets(histogram: Histogram) -> zip[tuple[float, float, float]]:
    """Lower bound, upper bound and count of each bucket. Latencies are not negative."""
    lows = (min(0.0, histogram.bounds[0]), *histogram.bounds[:-1])
    before = (0.0, *histogram.counts[:-1])
    return zip(
        lows,
        histogram.bounds,
        (now - then for now, then in zip(histogram.counts, before, strict=True)),
        strict=True,
    )


def quantile(histogram: Histogram, share: float, z: float = Z) -> Quantile | None:
    """Return the ``share`` quantile (0.99 for P99); ``None`` for an empty histogram.

    The number of requests below the true quantile is binomial. So for any distribution the quantile lies between the
    ranks n q -+ z sqrt(n q (1 - q)), and the interval consists of the buckets with these ranks. The quantile is
    unresolvable in the first bucket, above the last finite bound, and with too few requests for both ranks.
    """
    count = histogram.count
    if count <= 0:
        return None
    rank = share * count
    spread = z * math.sqrt(share * (1.0 - share) * count)
    low = _bounds_at(histogram, rank - spread)[0] if rank > spread else None
    high = _bounds_at(histogram, rank + spread)[1] if rank + spread <= count else None
    at = bisect_left(histogram.counts, rank)
    if at >= len(histogram.bounds) - 1:
        return Quantile(None, low, None, "above_last_bucket")
    if at == 0:
        return Quantile(None, low, high, "below_first_bucket")
    if rank <= spread or rank + spread > count:
        return Quantile(None, low, high, "too_few_requests")
    start, end = histogram.bounds[at - 1], histogram.bounds[at]
    below, within = histogram.counts[at - 1], histogram.counts[at] - histogram.counts[at - 1]
    return Quantile(start + (end - start) * (rank - below) / within, low, high)


def _bounds_at(histogram: Histogram, rank: float) -> tuple[float, float | None]:
    """Return the boundaries of the bucket with the request of this rank; the last bucket has no upper one."""
    at = min(bisect_left(histogram.counts, rank), len(histogram.bounds) - 1)
    low = histogram.bounds[at - 1] if at else min(0.0, histogram.bounds[0])
    return low, None if math.isinf(histogram.bounds[at]) else histogram.bounds[at]


def requests_needed(share: float, z: float = Z) -> int:
    """Return how many requests :func:`quantile` needs for a rank on both sides: 381 for P99."""
    rarer = min(share, 1.0 - share)
    return math.ceil(z * z * (1.0 - rarer) / rarer)


def ratio_of_quantiles(numerator: Quantile | None, denominator: Quantile | None) -> Estimate | None:
    """Return the ratio of two quantiles, bounded by the outermost boundaries; ``None`` if one is unresolvable."""
    if numerator is None or denominator is None or not numerator.seconds or not denominator.seconds:
        return None
    low, high = numerator.low_seconds, numerator.high_seconds
    return Estimate(
        numerator.seconds / denominator.seconds,
        low / denominator.high_seconds if low is not None and denominator.high_seconds else None,
        high / denominator.low_seconds if high is not None and denominator.low_seconds else None,
    )


def on_common_bounds(one: Histogram, other: Histogram) -> tuple[Histogram, Histogram] | None:
    """Reduce both to their common boundaries, which loses only resolution; ``None`` without a common one."""
    if one.bounds == other.bounds:
        return one, other
    common = frozenset(one.bounds) & frozenset(other.bounds)
    if all(math.isinf(bound) for bound in common):
        return None
    return _with_bounds(one, common), _with_bounds(other, common)


def _with_bounds(histogram: Histogram, bounds: frozenset[float]) -> Histogram:
    kept = [pair for pair in zip(histogram.bounds, histogram.counts, strict=True) if pair[0] in bounds]
    return Histogram(tuple(bound for bound, _ in kept), tuple(count for _, count in kept), histogram.sum)


def tail_shift(now: Histogram, baseline: Histogram, policy: LatencyPolicy) -> Shift | None:
    """Return the shift of the tail, as the rule pack records and judges it; ``None`` if a histogram is empty.

    The shift is the share slower now minus ``tail_growth`` times the share slower at baseline, at least 0. It is the
    largest over the common boundaries that held ``tail_limit_share`` of the requests at baseline.

    The margin, with s slower now, b at baseline, g = ``tail_growth`` and v = 1 / n + 1 / n at baseline: the square root
    of a share has the sampling error sqrt(1 / n) / 2 for any share. So chance explains s - b up to
    z sqrt(b v) + z^2 v / 4. At most z^2 v g / (4 (g - 1)) of this exceeds (g - 1) b, for any b.
    """
    if now.count <= 0 or baseline.count <= 0:
        return None
    growth = policy.tail_growth
    most_slower = round(1.0 - policy.tail_limit_share, 10)
    then = dict(zip(baseline.bounds, baseline.counts, strict=True))
    share, limit = 0.0, None
    for bound, count in zip(now.bounds, now.counts, strict=True):
        slower_then = 1.0 - then[bound] / baseline.count if bound in then else math.inf
        if slower_then > most_slower:
            continue
        newly = 1.0 - count / now.count - growth * slower_then
        if newly > share:
            share, limit = newly, bound
    margin = policy.z_score**2 * growth / (4.0 * (growth - 1.0)) * (1.0 / now.count + 1.0 / baseline.count)
    return Shift(share, limit, margin, shifted=share > max(margin, policy.tail_shift_min))


def head_shift(now: Histogram, baseline: Histogram, policy: LatencyPolicy) -> Shift | None:
    """Return the share of requests newly faster than some boundary; ``None`` if a histogram is empty.

    The shift is the share within a boundary now minus the share at baseline, the largest over all common boundaries and
    at least 0. It shows that the body became faster, even if the tail became slower.
    """
    if now.count <= 0 or baseline.count <= 0:
        return None
    then = dict(zip(baseline.bounds, baseline.counts, strict=True))
    share, limit, margin = 0.0, None, 0.0
    for bound, count in zip(now.bounds, now.counts, strict=True):
        newly = count / now.count - then[bound] / baseline.count if bound in then else 0.0
        if newly > share:
            share, limit = newly, bound
            pooled = (count + then[bound]) / (now.count + baseline.count)
            margin = policy.z_score * math.sqrt(pooled * (1.0 - pooled) * (1.0 / now.count + 1.0 / baseline.count))
    return Shift(share, limit, margin, shifted=share > max(margin, 1.0 - policy.tail_limit_share))
