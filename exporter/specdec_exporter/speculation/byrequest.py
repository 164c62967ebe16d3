"""Acceptance by request, from the predictor's histogram: every finished request counts once. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from specdec_exporter.histogram import Histogram
from specdec_exporter.speculation.chance import Estimate, proportion

RANKS: Final = (10, 50, 90)


class RequestAcceptance(msgspec.Struct, frozen=True, kw_only=True):
    """How the acceptance rate (0..1) spreads over the ``requests`` that finished in the span.

    ``percentiles``: the bucket of each, from and to (``{"p50": [0.7, 0.8]}``); where in it is not known. ``within``:
    upper bounds, and how many requests are at or below.
    """

    requests: float
    percentiles: dict[str, tuple[float, float]]
    within: tuple[tuple[float, float], ...]

    def share_up_to(self, limit: float) -> Estimate | None:
        """Return the share of requests at or below the highest bound up to ``limit``; ``None`` without one."""
        found = [count for bound, count in self.within if bound <= limit]
        return proportion(found[-1], self.requests, self.requests) if found else None

    def share_above(self, limit: float) -> Estimate | None:
        """Return the share of requests above the lowest bound from ``limit``; ``None`` without one below 1."""
        found = [self.requests - count for bound, count in self.within if limit <= bound < 1.0]
        return proportion(found[0], self.requests, self.requests) if found else None


def request_acceptance(bounds: Sequence[float], within: Sequence[float]) -> RequestAcceptance | None:
    """Return the spread of a histogram with cumulative counts; ``None`` without a request."""
    if not within or within[-1] <= 0:
        return None
    histogram = Histogram(tuple(bounds), tuple(within), 0.0)
    buckets = {f"p{rank}": histogram.bucket_of(rank / 100) for rank in RANKS}
    return RequestAcceptance(
        requests=histogram.count,
        percentiles={name: (low, min(high, 1.0)) for name, (low, high) in buckets.items()},
        within=tuple(zip(bounds, within, strict=True))[:-1],
    )
