"""Figures with their two-sided 95 % interval. Pure; standard library only."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Final

import msgspec

from specdec_exporter.speculation.chance import Z_OF_PAIR, Estimate, Z, difference, proportion, t_quantile

__all__ = [
    "Z_OF_PAIR",
    "Estimate",
    "Spread",
    "Z",
    "difference",
    "independent_draws",
    "proportion",
    "ratio_of_sums",
    "t_quantile",
]


class Spread(msgspec.Struct, frozen=True):
    """A positive figure, its relative standard error (``None``: not known), and the degrees of freedom of the error."""

    value: float
    error: float | None = None
    freedom: int = 0

    def __mul__(self, other: Spread) -> Spread:
        """Multiply independent figures."""
        return Spread(self.value * other.value, *self._errors(other))

    def __truediv__(self, other: Spread) -> Spread:
        """Divide by an independent figure."""
        return Spread(self.value / other.value, *self._errors(other))

    def inverse(self) -> Spread:
        """1 / value."""
        return Spread(1.0 / self.value, self.error, self.freedom)

    def _errors(self, other: Spread) -> tuple[float | None, int]:
        if self.error is None or other.error is None:
            return None, 0
        total = math.hypot(self.error, other.error)
        if not 0.0 < total < math.inf:
            return total, min(self.freedom, other.freedom)
        # Welch and Satterthwaite: the figure with the larger error decides.
        shares = ((self.error / total, self.freedom), (other.error / total, other.freedom))
        found = int(1.0 / sum(share**4 / max(freedom, 1) for share, freedom in shares) + _ROUNDING)
        # By the formula it is never less. Rounding of the smallest floats could make it so.
        return total, max(found, min(self.freedom, other.freedom))

    def estimate(self, z: float = Z) -> Estimate:
        """The figure with its interval, symmetric in the logarithm: 95 %, or that of another normal quantile ``z``."""
        reach = None if self.error is None else self.error * t_quantile(z, self.freedom)
        if reach is None or not reach < _MAX_LOGARITHM:
            return Estimate(self.value, None, None)
        factor = math.exp(reach)
        high = self.value * factor
        return Estimate(self.value, self.value / factor, high if high < math.inf else None)


def independent_draws(share: Spread) -> float | None:
    """Return how many independent draws have the error of a share; ``None`` if the error is not known.

    Infinite for an error of 0. Few degrees of freedom count as fewer draws: Wilson's interval has the normal quantile.
    """
    if share.error is None:
        return None
    width = share.value * share.error * t_quantile(Z, share.freedom) / Z
    variance = width**2  # 0 also where it is too small for a float
    return max(share.value * (1.0 - share.value), 0.0) / variance if variance else math.inf


_MAX_LOGARITHM: Final = 20.0  # a wider interval says nothing, and would overflow
_ROUNDING: Final = 1e-9
_MAX_CORRELATION: Final = 0.9


def ratio_of_sums(
    numerators: Sequence[float],
    denominators: Sequence[float],
    blocks_min: int,
    strata: Sequence[int] | None = None,
) -> Spread | None:
    """Return the ratio of two sums over blocks of time; ``None`` unless both sums are positive.

    The blocks' own scatter gives the error, so requests that share a batch or an hour do not make it too small. Blocks
    that resemble their neighbours count for less: the variance grows by (1 + r) / (1 - r), and the degrees of freedom
    shrink by as much, where r is the correlation of the residuals of neighbours. A correlation within n blocks comes
    out too low by (1 + 4 r) / n (Kendall 1954), so this is added. With fewer than ``blocks_min`` blocks the error is
    not known.

    ``strata`` names the kind of each block, such as its load. Kinds whose ratios differ are then no scatter. Kinds of
    fewer than ``blocks_min`` blocks are taken as one.
    """
    above, below, blocks = sum(numerators), sum(denominators), len(denominators)
    if not (0.0 < above < math.inf and 0.0 < below < math.inf and 0.0 < above / below < math.inf):
        return None
    ratio = above / below
    if blocks < max(blocks_min, 2):
        return Spread(ratio)
    pairs = [(one / above, other / below) for one, other in zip(numerators, denominators, strict=True)]
    squares = variance = products = 0.0
    groups = _grouped(pairs, blocks_min, strata or [0] * blocks)
    for residuals in map(_residuals, groups):
        found = sum(residual * residual for residual in residuals)
        squares += found
        variance += found * len(residuals) / max(len(residuals) - 1, 1)
        products += sum(one * other for one, other in pairwise(residuals))
    freedom = max(blocks - len(groups), 1)
    if not squares:
        return Spread(ratio, 0.0, freedom)
    if not squares < math.inf:  # no real measurement
        return Spread(ratio)
    seen = products / squares
    correlation = min(max(seen + (1.0 + 4.0 * max(seen, 0.0)) * len(groups) / blocks, 0.0), _MAX_CORRELATION)
    growth = (1.0 + correlation) / (1.0 - correlation)
    return Spread(ratio, math.sqrt(variance * growth), min(max(round(freedom / growth), 2), freedom))


_Pair = tuple[float, float]


def _grouped(pairs: Sequence[_Pair], smallest: int, strata: Sequence[int]) -> list[list[_Pair]]:
    """Return the blocks of each kind, in their order. Small kinds come together."""
    groups: dict[int, list[_Pair]] = {}
    for pair, stratum in zip(pairs, strata, strict=True):
        groups.setdefault(stratum, []).append(pair)
    small = {stratum for stratum, group in groups.items() if len(group) < smallest}
    together = [pair for pair, stratum in zip(pairs, strata, strict=True) if stratum in small]
    found = [group for stratum, group in groups.items() if stratum not in small]
    return [*found, together] if together else found


def _residuals(group: Sequence[_Pair]) -> list[float]:
    """Return how far each block is from the ratio of its kind."""
    # A kind alone says nothing about its own ratio, so its scatter is around the ratio of all.
    own = sum(one for one, _ in group) / (sum(other for _, other in group) or math.inf) if len(group) > 1 else 1.0
    return [one - own * other for one, other in group]
