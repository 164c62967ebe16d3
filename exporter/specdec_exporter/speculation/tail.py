"""How the tail of a latency moved: requests above bucket boundaries that most requests kept at baseline. Pure.

``compare`` and the verdict use it. The rule pack records and judges the same.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple

from specdec_exporter.histogram import Histogram
from specdec_exporter.speculation.policy import LatencyPolicy


class TailGrowth(NamedTuple):
    """``share`` more of the requests (0..1) than expected exceed ``limit_seconds``.

    ``margin`` is the largest share that chance explains, at the policy's z-score. ``error`` is the standard error.
    """

    share: float
    limit_seconds: float
    margin: float
    error: float


def grown_tails(
    now: Histogram, baseline: Histogram, policy: LatencyPolicy
) -> Iterator[tuple[float, float, float, float]]:
    """Yield boundary, growth, and the shares above it now and at baseline, where the growth is positive.

    The growth is the share above the boundary now minus ``tail_growth`` times the share at baseline. Only boundaries
    count that held ``tail_limit_share`` of the requests at baseline. Neither histogram may be empty.
    """
    most_slower = round(1.0 - policy.tail_limit_share, 10)
    # A boundary that the baseline lacks kept none of its requests.
    then = dict(zip(baseline.bounds, baseline.counts, strict=True))
    for bound, count in zip(now.bounds, now.counts, strict=True):
        slower, slower_then = 1.0 - count / now.count, 1.0 - then.get(bound, 0.0) / baseline.count
        if slower_then <= most_slower and (share := slower - policy.tail_growth * slower_then) > 0.0:
            yield bound, share, slower, slower_then


def independent_margin(now: Histogram, baseline: Histogram, policy: LatencyPolicy) -> float:
    """Return the largest growth of a tail that chance explains, if requests are independent.

    With s slower now, b at baseline, g = ``tail_growth`` and v = 1 / n + 1 / n at baseline: the square root of a share
    has the sampling error sqrt(1 / n) / 2 for any share. So chance explains s - b up to z sqrt(b v) + z^2 v / 4. At
    most z^2 v g / (4 (g - 1)) of this exceeds (g - 1) b, for any b.
    """
    each = 1.0 / now.count + 1.0 / baseline.count
    return policy.z_score**2 * policy.tail_growth / (4.0 * (policy.tail_growth - 1.0)) * each


def largest_growth(now: Histogram, baseline: Histogram, policy: LatencyPolicy) -> TailGrowth | None:
    """Return the largest growth of the tail, of independent requests; ``None`` if no share grew or one is empty."""
    if now.count <= 0 or baseline.count <= 0:
        return None
    found = max(grown_tails(now, baseline, policy), key=lambda each: each[1], default=None)
    if found is None:
        return None
    bound, share, slower, slower_then = found
    variance = slower * (1.0 - slower) / now.count
    variance += policy.tail_growth**2 * slower_then * (1.0 - slower_then) / baseline.count
    return TailGrowth(share, bound, independent_margin(now, baseline, policy), math.sqrt(max(variance, 0.0)))
