"""How acceptance spreads over windows or requests, and how far chance alone would spread it. Pure."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import Final

import msgspec

_STEPS: Final = 1000  # acceptance is counted to a thousandth
_SIZES: Final = 64  # above the bits of any real number of drafts
_FARTHEST: Final = 8.0  # standard deviations of a part of one draft; no percentile lies beyond


class AcceptanceSpread(msgspec.Struct, frozen=True, kw_only=True):
    """Percentiles (``{"p50": 0.71}``) of the acceptance of ``parts``: windows or requests. Empty without a part.

    ``by_part`` counts each part once. ``by_draft`` counts each draft once, so busy parts weigh more. The ``chance``
    pair is what both would be if acceptance were constant and all drafts independent; empty without a curve.
    """

    parts: int
    by_part: dict[str, float]
    by_draft: dict[str, float]
    chance_by_part: dict[str, float]
    chance_by_draft: dict[str, float]


class SpreadCounter:
    """Counts parts and their drafts by acceptance. Its memory does not grow."""

    def __init__(self) -> None:
        self.parts = [0] * (_STEPS + 1)
        self.drafts = [0] * (_STEPS + 1)
        self._parts_of_size = [0] * _SIZES  # by the bits of the number of drafts
        self._drafts_of_size = [0] * _SIZES

    def add(self, ratio: float, drafts: int) -> None:
        """Count one part. A ratio above 1 counts as 1: differences of lifetime totals can exceed it."""
        step = min(round(ratio * _STEPS), _STEPS)
        self.parts[step] += 1
        self.drafts[step] += drafts
        size = min(drafts.bit_length(), _SIZES - 1)
        self._parts_of_size[size] += 1
        self._drafts_of_size[size] += drafts

    def spread(
        self, ranks: Sequence[int], ratio: float | None, per_position: Sequence[float], draft_length: float | None
    ) -> AcceptanceSpread:
        """Return the percentiles at ``ranks`` (1..99).

        ``ratio``, ``per_position`` and ``draft_length`` are the figures of all parts together, for chance.
        """

        def by_chance(weights: Sequence[int]) -> dict[str, float]:
            if ratio is None or not per_position or not draft_length or not any(weights):
                return {}
            deviation = draft_deviation(per_position, draft_length)
            exact = {rank: ratio + deviation * self._chance(rank / 100, weights) for rank in ranks}
            return {f"p{rank}": min(max(value, 0.0), 1.0) for rank, value in exact.items()}

        return AcceptanceSpread(
            parts=sum(self.parts),
            by_part=_percentiles(self.parts, ranks),
            by_draft=_percentiles(self.drafts, ranks),
            chance_by_part=by_chance(self._parts_of_size),
            chance_by_draft=by_chance(self._drafts_of_size),
        )

    def _chance(self, share: float, weights: Sequence[int]) -> float:
        """Return the quantile of the mean of each part's drafts, in standard deviations of one draft.

        A mixture of normal distributions, whose variances are 1 / drafts; parts of similar size are taken as equal.
        """
        sizes = [
            (weight, math.sqrt(drafts / parts / 2.0))
            for weight, drafts, parts in zip(weights, self._drafts_of_size, self._parts_of_size, strict=True)
            if drafts
        ]
        # The normal distribution's P(X <= x) is (1 + erf(x / sqrt 2)) / 2.
        total = (2.0 * share - 1.0) * sum(weight for weight, _ in sizes)
        return _root(lambda at: sum(weight * math.erf(at * scale) for weight, scale in sizes) - total)


def draft_deviation(per_position: Sequence[float], draft_length: float) -> float:
    """Return the standard deviation of accepted / draft tokens over single drafts.

    ``per_position`` are the unconditional rates r_i. A draft with i accepted has all before accepted, so the mean
    square of accepted tokens is the sum of (2 i + 1) r_i. Too large rather than too small if some drafts are short.
    """
    mean = sum(per_position)
    square = sum((2 * position + 1) * rate for position, rate in enumerate(per_position))
    return math.sqrt(max(square - mean * mean, 0.0)) / draft_length


def _percentiles(weights: Sequence[int], ranks: Sequence[int]) -> dict[str, float]:
    """Return the nearest-rank percentiles of steps that count as often as their weights say."""
    upto = list(accumulate(weights))
    return {f"p{rank}": bisect_left(upto, -(-upto[-1] * rank // 100)) / _STEPS for rank in ranks if upto[-1]}


def _root(rising: Callable[[float], float]) -> float:
    low, high = -_FARTHEST, _FARTHEST
    for _ in range(24):  # to 1e-6
        middle = (low + high) / 2.0
        low, high = (middle, high) if rising(middle) < 0 else (low, middle)
    return (low + high) / 2.0
