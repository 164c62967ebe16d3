"""How the tail of a latency moved: requests above bucket boundaries that most requests kept at baseline. Pure.

``compare`` and the verdict use it. The rule pack records and judges the same.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple

import msgspec

from specdec_exporter.histogram import Histogram
from specdec_exporter.speculation.chance import Spread, ratio_of_sums, t_quantile
from specdec_exporter.speculation.policy import ChancePolicy, LatencyPolicy, Policy


class Sample(NamedTuple):
    """One latency of one side: of all requests, and of the same requests in blocks of time, in their order."""

    whole: Histogram
    blocks: tuple[Histogram, ...] = ()


class Shift(msgspec.Struct, frozen=True):
    """The share of all requests (0..1) that moved above a bucket boundary, beyond what was to be expected.

    ``limit_seconds`` is the boundary with the largest share; ``None``: no request moved. ``margin`` is the largest
    share that chance explains, at the policy's z-score. ``error``: the standard error if requests are independent.
    ``shifted``: the share exceeds the margin and the policy's minimum.
    """

    share: float
    limit_seconds: float | None
    margin: float
    error: float
    shifted: bool


def tail_shift(now: Sample, baseline: Sample, policy: Policy) -> Shift | None:
    """Return the shift of the tail, as the rule pack records and judges it; ``None`` if a histogram is empty.

    The margin is :func:`_independent_margin`. The scatter of batches may widen it, so the shift is the one that exceeds
    its own margin most.
    """
    if now.whole.count <= 0 or baseline.whole.count <= 0:
        return None
    limits = policy.latency
    least = _independent_margin(now.whole, baseline.whole, limits)
    found = []
    for bound, share, error in _grown_tails(now.whole, baseline.whole, limits):
        then = _scatter(baseline, bound, policy.chance, limits.tail_growth)
        both = _scatter(now, bound, policy.chance) * then
        margin = max(least, min(t_quantile(limits.z_score, both.freedom) * (both.error or 0.0), 1.0))
        found.append(Shift(share, bound, margin, error, shifted=share > max(margin, limits.tail_shift_min)))
    nothing = Shift(0.0, None, least, 0.0, shifted=False)
    return max(found, key=lambda each: each.share - each.margin, default=nothing)


def _grown_tails(now: Histogram, baseline: Histogram, policy: LatencyPolicy) -> Iterator[tuple[float, float, float]]:
    """Yield boundary, growth and its standard error for independent requests, where the growth is positive.

    The growth is the share above the boundary now minus ``tail_growth`` times the share at baseline. Only boundaries
    count that held ``tail_limit_share`` of the requests at baseline. Neither histogram may be empty.
    """
    most_slower = round(1.0 - policy.tail_limit_share, 10)
    # A boundary that the baseline lacks kept none of its requests.
    then = dict(zip(baseline.bounds, baseline.counts, strict=True))
    for bound, count in zip(now.bounds, now.counts, strict=True):
        slower, slower_then = 1.0 - count / now.count, 1.0 - then.get(bound, 0.0) / baseline.count
        if slower_then <= most_slower and (share := slower - policy.tail_growth * slower_then) > 0.0:
            variance = slower * (1.0 - slower) / now.count
            variance += policy.tail_growth**2 * slower_then * (1.0 - slower_then) / baseline.count
            yield bound, share, math.sqrt(max(variance, 0.0))


def _independent_margin(now: Histogram, baseline: Histogram, policy: LatencyPolicy) -> float:
    """Return the largest growth of a tail that chance explains, if requests are independent.

    With s slower now, b at baseline, g = ``tail_growth`` and v = 1 / n + 1 / n at baseline: the square root of a share
    has the sampling error sqrt(1 / n) / 2 for any share. So chance explains s - b up to z sqrt(b v) + z^2 v / 4. At
    most z^2 v g / (4 (g - 1)) of this exceeds (g - 1) b, for any b.
    """
    each = 1.0 / now.count + 1.0 / baseline.count
    return policy.z_score**2 * policy.tail_growth / (4.0 * (policy.tail_growth - 1.0)) * each


def _scatter(sample: Sample, bound: float, policy: ChancePolicy, factor: float = 1.0) -> Spread:
    """Return a 1 with the error of ``factor`` times the share of requests above ``bound``, as batches show it.

    Where one batch decides, that is the share itself; without blocks or slower requests, nothing.
    """
    blocks = [each for each in sample.blocks if bound in each.bounds]
    slower = [each.count - each.counts[each.bounds.index(bound)] for each in blocks]
    found = ratio_of_sums(slower, [each.count for each in blocks], policy)
    if found is None:
        return Spread(1.0, 0.0)
    return Spread(1.0, factor * found.value * (1.0 if found.error is None else found.error), found.freedom)
