"""How acceptance spreads over windows or requests. Pure."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from itertools import accumulate
from typing import Final

import msgspec

_STEPS: Final = 1000  # acceptance is counted to a thousandth
FEWEST_PARTS: Final = 5  # of fewer, most percentiles are one and the same part


class AcceptanceSpread(msgspec.Struct, frozen=True, kw_only=True):
    """Percentiles (``{"p50": 0.71}``) of the acceptance of ``parts``: windows or requests. Empty below five.

    ``by_part`` counts each part once. ``by_draft`` counts each draft once, so busy parts weigh more. Windows spread
    less than their requests: the more requests share one, the less.
    """

    parts: int
    by_part: dict[str, float]
    by_draft: dict[str, float]


class SpreadCounter:
    """Counts parts and their drafts by acceptance. Its memory does not grow."""

    def __init__(self) -> None:
        self.parts = [0] * (_STEPS + 1)
        self.drafts = [0] * (_STEPS + 1)

    def add(self, ratio: float, drafts: int) -> None:
        """Count one part. A ratio above 1 counts as 1: differences of lifetime totals can exceed it."""
        step = min(round(ratio * _STEPS), _STEPS)
        self.parts[step] += 1
        self.drafts[step] += drafts

    def spread(self, ranks: Sequence[int]) -> AcceptanceSpread:
        """Return the percentiles at ``ranks`` (1..99)."""
        parts = sum(self.parts)
        ranks = ranks if parts >= FEWEST_PARTS else ()
        return AcceptanceSpread(
            parts=parts, by_part=_percentiles(self.parts, ranks), by_draft=_percentiles(self.drafts, ranks)
        )


def _percentiles(weights: Sequence[int], ranks: Sequence[int]) -> dict[str, float]:
    """Return the nearest-rank percentiles of steps that count as often as their weights say."""
    upto = list(accumulate(weights))
    return {f"p{rank}": bisect_left(upto, -(-upto[-1] * rank // 100)) / _STEPS for rank in ranks if upto[-1]}
