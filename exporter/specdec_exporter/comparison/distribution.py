"""Statistics of latency histograms, whose buckets hide where in them a request lies.

Pure functions on :class:`~specdec_exporter.histogram.Histogram`: cumulative counts, seconds. Counts may be fractions,
because Prometheus extrapolates increases. Only :func:`quantile` interpolates.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Sequence
from typing import Literal

import msgspec

from specdec_exporter.comparison.figure import Figure
from specdec_exporter.histogram import Histogram
from specdec_exporter.speculation.chance import Spread, Z, batches, t_quantile
from specdec_exporter.speculation.policy import ChancePolicy, Policy
from specdec_exporter.speculation.tail import grown_tails, independent_margin

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
    """The share of all requests (0..1) that moved above a bucket boundary.

    ``limit_seconds`` is the boundary with the largest share; ``None``: no request moved. ``margin`` is the largest
    share that chance explains. ``shifted``: the share exceeds the margin and the policy's minimum.
    """

    share: float
    limit_seconds: float | None
    margin: float
    shifted: bool


class Sample(msgspec.Struct, frozen=True):
    """One latency of one side: of all requests, and of the same requests in blocks of time, in their order."""

    whole: Histogram
    blocks: tuple[Histogram, ...] = ()

    @property
    def mean(self) -> Figure | None:
        """Seconds per request; ``None`` without requests, and if they took no time."""
        if self.whole.count <= 0 or not 0.0 < self.whole.mean < math.inf:
            return None
        return Figure(self.whole.mean, tuple((block.sum, block.count) for block in self.blocks))


def quantile(histogram: Histogram, share: float) -> Quantile | None:
    """Return the ``share`` quantile (0.99 for P99); ``None`` for an empty histogram.

    The number of requests below the true quantile is binomial. So for any distribution the quantile lies between the
    ranks n q -+ z sqrt(n q (1 - q)), and the interval consists of the buckets with these ranks. The quantile is
    unresolvable in the first bucket, above the last finite bound, and with too few requests for both ranks.
    """
    count = histogram.count
    if count <= 0:
        return None
    rank = share * count
    spread = Z * math.sqrt(share * (1.0 - share) * count)
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


def _bounds_at(histogram: Histogram, rank: float) -> tuple[float, float | None]:
    """Return the boundaries of the bucket with the request of this rank; the last bucket has no upper one."""
    at = min(bisect_left(histogram.counts, rank), len(histogram.bounds) - 1)
    low = histogram.bounds[at - 1] if at else min(0.0, histogram.bounds[0])
    return low, None if math.isinf(histogram.bounds[at]) else histogram.bounds[at]


def requests_needed(share: float) -> int:
    """Return how many requests :func:`quantile` needs for a rank on both sides: 381 for P99."""
    rarer = min(share, 1.0 - share)
    return math.ceil(Z * Z * (1.0 - rarer) / rarer)


def tail_shift(now: Sample, baseline: Sample, policy: Policy) -> Shift | None:
    """Return the shift of the tail, as the rule pack records and judges it; ``None`` if a histogram is empty.

    The shift is the share slower now minus ``tail_growth`` times the share slower at baseline, at least 0. It is the
    largest over the common boundaries that held ``tail_limit_share`` of the requests at baseline.

    The margin is :func:`independent_margin`. The scatter of batches may widen it, so the shift is the one that exceeds
    its own margin most.
    """
    if now.whole.count <= 0 or baseline.whole.count <= 0:
        return None
    limits = policy.latency
    least = independent_margin(now.whole, baseline.whole, limits)
    found = []
    for bound, share, _, _ in grown_tails(now.whole, baseline.whole, limits):
        then = _share_error(baseline, bound, policy.chance)
        both = _share_error(now, bound, policy.chance) * Spread(
            1.0, limits.tail_growth * (then.error or 0.0), then.freedom
        )
        margin = max(least, min(t_quantile(limits.z_score, both.freedom) * (both.error or 0.0), 1.0))
        found.append(Shift(share, bound, margin, shifted=share > max(margin, limits.tail_shift_min)))
    return max(found, key=lambda each: each.share - each.margin, default=Shift(0.0, None, least, shifted=False))


def _share_error(sample: Sample, bound: float, policy: ChancePolicy) -> Spread:
    """Return a 1 with the absolute error of the share of requests above ``bound``, by the jackknife over batches."""
    cut = batches([block for block in sample.blocks if bound in block.bounds], policy)
    sums = [(_slower(batch, bound), math.fsum(block.count for block in batch)) for batch in cut]
    slower, requests = (math.fsum(column) for column in zip(*sums, strict=True)) if sums else (0.0, 0.0)
    if any(all_in_it >= requests for _, all_in_it in sums) or not sums:
        return Spread(1.0, 0.0)
    without = [(slower - above) / (requests - count) for above, count in sums]
    mean = math.fsum(without) / len(without)
    squares = math.fsum((each - mean) ** 2 for each in without)
    return Spread(1.0, math.sqrt(squares * (len(without) - 1) / len(without)), len(without) - 1)


def _slower(blocks: Sequence[Histogram], bound: float) -> float:
    return math.fsum(block.count - block.counts[block.bounds.index(bound)] for block in blocks)
