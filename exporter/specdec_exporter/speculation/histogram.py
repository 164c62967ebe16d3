"""A histogram of what was observed, in buckets that are fixed beforehand: bounded memory for any number of values."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass, field
from itertools import accumulate


@dataclass(slots=True)
class ObservedHistogram:
    """Counts of values by ``bounds``: ascending upper limits, included; what lies above them counts as infinite."""

    bounds: tuple[float, ...]
    counts: list[int] = field(init=False)  # per bucket, not cumulative
    sum: float = 0.0

    def __post_init__(self) -> None:
        """Start with empty buckets."""
        self.counts = [0] * (len(self.bounds) + 1)

    def observe(self, value: float) -> None:
        """Count one value."""
        self.counts[bisect_left(self.bounds, value)] += 1
        self.sum += value

    def buckets(self) -> tuple[tuple[float, ...], list[int]]:
        """Return the bounds, the last of them infinite, and how many values are at or below each."""
        return (*self.bounds, float("inf")), list(accumulate(self.counts))
