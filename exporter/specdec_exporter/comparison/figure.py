"""A figure of a recording, its parts by time, and its ratio to the same figure of another recording. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from specdec_exporter.speculation.chance import Estimate, Spread, batches, of_batches, ratio_of_sums, stalled
from specdec_exporter.speculation.policy import ChancePolicy

Part = tuple[float, float]


class Figure(NamedTuple):
    """The ratio of two sums over a recording, and both sums of each of its blocks of time."""

    value: float
    parts: tuple[Part, ...]

    def spread(self, policy: ChancePolicy) -> Spread:
        """Return the value with the error that its batches show; not known where one stall decides."""
        above, below = [part[0] for part in self.parts], [part[1] for part in self.parts]
        found = None if stalled(above, below, policy) else ratio_of_sums(above, below, policy)
        return Spread(self.value, found.error, found.freedom) if found else Spread(self.value)


def ratio(
    after: Figure | None, before: Figure | None, policy: ChancePolicy, *, paired: bool = False
) -> Estimate | None:
    """Return after / before with its 95 % interval; ``None`` unless both are known and the ratio is a number.

    ``paired``: both are of the same minutes, so each batch is left out of both at once. A burst is then in both.
    """
    if after is None or before is None or not 0.0 < before.value < math.inf:
        return None
    value = after.value / before.value
    if not 0.0 < value < math.inf:
        return None
    found = _of_pairs(after, before, policy) if paired else after.spread(policy) / before.spread(policy)
    return Spread(value, found.error, found.freedom).of_two_runs(policy) if found else Estimate(value, None, None)


_Pair = tuple[Sequence[Part], Sequence[Part]]


def _of_pairs(after: Figure, before: Figure, policy: ChancePolicy) -> Spread | None:
    one, other = batches(after.parts, policy), batches(before.parts, policy)
    if len(one) != len(other):
        return None
    return of_batches(list(zip(one, other, strict=True)), _quotient, policy)


def _quotient(pairs: Sequence[_Pair]) -> float | None:
    above, below = (_sum_ratio([part for pair in pairs for part in pair[side]]) for side in (0, 1))
    return above / below if above and below else None


def _sum_ratio(parts: Sequence[Part]) -> float | None:
    above, below = (math.fsum(part[i] for part in parts) for i in (0, 1))
    return above / below if 0.0 < above < math.inf and 0.0 < below < math.inf else None
