"""A figure of a recording, its parts by time, and its ratio to the same figure of another recording. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from specdec_exporter.speculation import acceptance
from specdec_exporter.speculation.chance import Estimate, Spread, batches, of_batches, ratio_of_sums, stalled
from specdec_exporter.speculation.policy import ChancePolicy


class Figure(NamedTuple):
    """The ratio of two sums over a recording, and both sums of each of its blocks of time."""

    value: float
    parts: tuple[tuple[float, float], ...]

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
    value = acceptance.ratio(after.value, before.value) if after and before else None
    if after is None or before is None or not value:
        return None
    found = _of_pairs(after, before, policy) if paired else after.spread(policy) / before.spread(policy)
    return Spread(value, found.error, found.freedom).of_two_runs(policy) if found else Estimate(value, None, None)


def _of_pairs(after: Figure, before: Figure, policy: ChancePolicy) -> Spread | None:
    one, other = ([_sums(batch) for batch in batches(each.parts, policy)] for each in (after, before))
    if len(one) != len(other):
        return None
    return of_batches([(*then, *now) for now, then in zip(one, other, strict=True)], _quotient, policy)


def _quotient(rows: Sequence[Sequence[float]]) -> float | None:
    """Return the ratio of the ratios of four sums, earlier ones first."""
    above, below, above_now, below_now = _sums(rows) if rows else (0.0,) * 4
    then, now = acceptance.ratio(above, below), acceptance.ratio(above_now, below_now)
    return acceptance.ratio(now, then)


def _sums(rows: Sequence[Sequence[float]]) -> list[float]:
    return [math.fsum(column) for column in zip(*rows, strict=True)]
