"""Statistics of latency histograms, whose buckets hide where in them a request lies.

Pure functions on :class:`~specdec_exporter.histogram.Histogram`: cumulative counts, seconds. Counts may be fractions,
because Prometheus extrapolates increases. Only :func:`quantile` interpolates.

Requests that share a batch or a busy minute are alike, so there is more chance in n of them than in n independent
ones. The scatter of a sample's blocks of time tells how much more.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from typing import Literal, NamedTuple

import msgspec

from specdec_exporter.histogram import Histogram
from specdec_exporter.speculation.estimate import Estimate, Spread, Z, ratio_of_sums, t_quantile
from specdec_exporter.speculation.policy import LatencyPolicy
from specdec_exporter.speculation.tail import grown_tails, independent_margin, slower_shares

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


class Sample(msgspec.Struct, frozen=True):
    """One latency of one side: of all requests, and of the same requests in blocks of time, in their order.

    Without blocks, ``blocks`` is empty.
    """

    whole: Histogram
    blocks: tuple[Histogram, ...] = ()

    def in_blocks(self, parts: Sequence[float], policy: LatencyPolicy) -> Spread | None:
        """Return the sum of ``parts``, one for each block, over the requests, with the scatter of the blocks.

        ``None`` if the sum is 0, and if there are fewer than ``min_blocks``.
        """
        if len(self.blocks) < policy.min_blocks:
            return None
        return ratio_of_sums(parts, [block.count for block in self.blocks], policy.min_blocks)

    def slower_than(self, bound: float, policy: LatencyPolicy) -> Spread | None:
        """Return the share of requests above ``bound`` as :meth:`in_blocks`, also ``None`` if it is not a boundary."""
        if any(bound not in block.bounds for block in self.blocks):
            return None
        parts = [block.count - block.counts[block.bounds.index(bound)] for block in self.blocks]
        return self.in_blocks(parts, policy)


def mean(sample: Sample, policy: LatencyPolicy) -> Spread | None:
    """Return the mean with its error; ``None`` if it is 0, or without requests.

    The scatter of the blocks gives the error. With fewer than ``min_blocks``, requests are taken as independent, with
    the largest variance that the buckets allow; the error is unknown if some lie above the last finite bound.
    """
    histogram = sample.whole
    if histogram.count <= 0 or not 0.0 < histogram.mean < math.inf:
        return None
    if found := sample.in_blocks([block.sum for block in sample.blocks], policy):
        return Spread(histogram.mean, found.error, found.freedom)
    variance = variance_max(histogram)
    if variance is None or histogram.count <= 1:
        return Spread(histogram.mean)
    error = math.sqrt(variance / (histogram.count - 1.0)) / histogram.mean
    if not error < math.inf:  # no real measurement
        return Spread(histogram.mean)
    return Spread(histogram.mean, error, max(int(histogram.count) - 1, 1))


def variance_max(histogram: Histogram) -> float | None:
    """Return the largest variance that counts and sum allow; ``None`` if unbounded. The histogram must not be empty.

    In a bucket [a, b] with mean m, the mean of squares is at most (a + b) m - a b, when every value lies at an end. The
    total is largest when the highest buckets take as much of the sum as they can. Values above the last finite bound
    leave the variance unbounded.
    """
    buckets = list(_buckets(histogram))
    if any(count > 0 and math.isinf(high) for _, high, count in buckets):
        return None
    free = histogram.sum - sum(low * count for low, _, count in buckets)
    squares = 0.0
    for low, high, count in reversed(buckets):
        moved = min(max(free, 0.0), (high - low) * count) if count > 0 else 0.0
        free -= moved
        squares += low * low * count + (low + high) * moved if count > 0 else 0.0
    return max(squares / histogram.count - histogram.mean * histogram.mean, 0.0)


def unevenness(histogram: Histogram) -> float:
    """Return the variance of the values over the square of their mean; 0 for an empty histogram.

    The values are taken as in the middle of their buckets, and those above the last finite bound as equal to it.
    """
    total = squares = 0.0
    for low, high, count in _buckets(histogram):
        middle = low if math.isinf(high) else (low + high) / 2.0
        total += count * middle
        squares += count * middle * middle
    found = squares / total / total * histogram.count - 1.0 if total else 0.0
    return max(found, 0.0)


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


def quantile(sample: Sample, share: float, policy: LatencyPolicy, z: float = Z) -> Quantile | None:
    """Return the ``share`` quantile (0.99 for P99); ``None`` for an empty histogram.

    The number of independent requests below the true quantile is binomial. So for any distribution the quantile lies
    between the ranks n q -+ z sqrt(n q (1 - q)), and the interval consists of the buckets with these ranks. The scatter
    of blocks at the next boundary above widens them. The quantile is unresolvable in the first bucket, above the last
    finite bound, and with too few requests for both ranks.
    """
    histogram = sample.whole
    count = histogram.count
    if count <= 0:
        return None
    rank = share * count
    spread = z * math.sqrt(share * (1.0 - share) * count * _growth(sample, share, policy))
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
    return Quantile(start + (end - start) * ((rank - below) / within), low, high)


def _growth(sample: Sample, share: float, policy: LatencyPolicy) -> float:
    """Return how many times the variance of independent requests the count below the ``share`` quantile has."""
    histogram = sample.whole
    at = min(bisect_left(histogram.counts, share * histogram.count), len(histogram.bounds) - 2)
    found = sample.slower_than(histogram.bounds[at], policy) if at >= 0 else None
    if found is None or not 0.0 < found.value < 1.0:
        return 1.0
    return design_effect(found, (1.0 - found.value) / found.value / histogram.count)


def design_effect(found: Spread, independent: float) -> float:
    """Return how many times the variance of independent requests a figure has by the scatter of blocks, at least 1.

    ``independent`` is their variance, relative to the square of the figure. An error of few degrees of freedom counts
    as a larger one. 1 if the error is not known.
    """
    if found.error is None or not independent > 0.0:
        return 1.0
    wide = found.error * t_quantile(Z, found.freedom) / Z
    return max(wide * wide / independent, 1.0)


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
    if numerator is None or denominator is None:
        return None
    ratio = _ratio(numerator.seconds, denominator.seconds)
    if not ratio:
        return None
    return Estimate(
        ratio,
        _ratio(numerator.low_seconds, denominator.high_seconds),
        _ratio(numerator.high_seconds, denominator.low_seconds),
    )


def _ratio(numerator: float | None, denominator: float | None) -> float | None:
    """Return a finite ratio; ``None`` if a part is missing, or the ratio is too large for a number."""
    if numerator is None or not denominator:
        return None
    ratio = numerator / denominator
    return ratio if math.isfinite(ratio) else None


def on_common_bounds(one: Sample, other: Sample) -> tuple[Sample, Sample] | None:
    """Reduce both to their common boundaries, which loses only resolution; ``None`` without a common one."""
    if one.whole.bounds == other.whole.bounds:
        return one, other
    common = frozenset(one.whole.bounds) & frozenset(other.whole.bounds)
    if all(math.isinf(bound) for bound in common):
        return None
    return (
        msgspec.structs.replace(one, whole=_with_bounds(one.whole, common)),
        msgspec.structs.replace(other, whole=_with_bounds(other.whole, common)),
    )


def _with_bounds(histogram: Histogram, bounds: frozenset[float]) -> Histogram:
    kept = [pair for pair in zip(histogram.bounds, histogram.counts, strict=True) if pair[0] in bounds]
    return Histogram(tuple(bound for bound, _ in kept), tuple(count for _, count in kept), histogram.sum)


def widest_gap(one: Histogram, other: Histogram) -> tuple[float, float] | None:
    """Return the common boundary at which two distributions are farthest apart, and how much more of ``one`` is within.

    ``None`` without a common boundary, or if a histogram is empty.
    """
    if one.count <= 0 or other.count <= 0:
        return None
    gaps = ((bound, then - now) for bound, now, then in _slower(Sample(one), Sample(other)))
    return max(gaps, key=lambda each: abs(each[1]), default=None)


def tail_shift(now: Sample, baseline: Sample, policy: LatencyPolicy) -> Shift | None:
    """Return the shift of the tail, as the rule pack records and judges it; ``None`` if a histogram is empty.

    The shift is the share slower now minus ``tail_growth`` times the share slower at baseline, at least 0. It is the
    largest over the common boundaries that held ``tail_limit_share`` of the requests at baseline.

    The margin is :func:`independent_margin`. The scatter of blocks may widen it, so the shift is the one that exceeds
    its own margin most.
    """
    if now.whole.count <= 0 or baseline.whole.count <= 0:
        return None
    margin = independent_margin(now.whole, baseline.whole, policy)
    moved = (
        _Moved(bound, share, max(margin, _margin_in_blocks(now, baseline, bound, policy.tail_growth, policy)))
        for bound, share, _, _ in grown_tails(now.whole, baseline.whole, policy)
    )
    return _largest(moved, policy.tail_shift_min) or Shift(0.0, None, margin, shifted=False)


def head_shift(now: Sample, baseline: Sample, policy: LatencyPolicy) -> Shift | None:
    """Return the share of requests newly faster than some boundary; ``None`` if a histogram is empty.

    The shift is the share within a boundary now minus the share at baseline, the largest over all common boundaries and
    at least 0. It shows that the body became faster, even if the tail became slower.
    """
    if now.whole.count <= 0 or baseline.whole.count <= 0:
        return None
    least = 1.0 - policy.tail_limit_share
    return _largest(_faster(now, baseline, policy), least) or Shift(0.0, None, 0.0, shifted=False)


class _Moved(NamedTuple):
    """A boundary, the share that moved across it, and the share that chance explains there."""

    bound: float
    share: float
    margin: float


def _slower(now: Sample, baseline: Sample) -> Iterator[tuple[float, float, float]]:
    """Return each common boundary with the shares above it, now and at baseline."""
    return slower_shares(now.whole, baseline.whole)


def _faster(now: Sample, baseline: Sample, policy: LatencyPolicy) -> Iterator[_Moved]:
    counts = (now.whole.count, baseline.whole.count)
    each = 1.0 / counts[0] + 1.0 / counts[1]
    for bound, slower, slower_then in _slower(now, baseline):
        if slower < slower_then:
            pooled = (slower * counts[0] + slower_then * counts[1]) / sum(counts)
            margin = policy.z_score * math.sqrt(max(pooled * (1.0 - pooled), 0.0) * each)
            in_blocks = _margin_in_blocks(now, baseline, bound, 1.0, policy)
            yield _Moved(bound, slower_then - slower, max(margin, in_blocks))


def _largest(moved: Iterable[_Moved], least: float) -> Shift | None:
    """Return the shift that exceeds its margin most; ``None`` if nothing moved."""
    found = max(moved, key=lambda each: each.share - each.margin, default=None)
    if found is None:
        return None
    return Shift(found.share, found.bound, found.margin, shifted=found.share > max(found.margin, least))


def _margin_in_blocks(now: Sample, baseline: Sample, bound: float, growth: float, policy: LatencyPolicy) -> float:
    """Return what chance explains of a shift, by the scatter of blocks; 0 if no side has blocks."""
    if not now.blocks and not baseline.blocks:
        return 0.0
    one, other = _share_error(now, bound, policy), _share_error(baseline, bound, policy)
    both = one * Spread(1.0, growth * (other.error or 0.0), other.freedom)
    return min(t_quantile(policy.z_score, both.freedom) * (both.error or 0.0), 1.0)


def _share_error(sample: Sample, bound: float, policy: LatencyPolicy) -> Spread:
    """Return the absolute error of the share above ``bound``, at least that of independent requests."""
    whole = sample.whole
    slower = 1.0 - whole.counts[whole.bounds.index(bound)] / whole.count
    independent = math.sqrt(max(slower * (1.0 - slower), 0.0) / whole.count)
    found = sample.slower_than(bound, policy)
    if found is None or found.error is None or found.error * found.value <= independent:
        return Spread(1.0, independent, max(int(whole.count), 1))
    return Spread(1.0, found.error * found.value, found.freedom)
