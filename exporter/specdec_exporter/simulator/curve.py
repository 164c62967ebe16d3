"""Acceptance by position: unconditional rates from a mean rate or from a list of rates."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from specdec_exporter.errors import ConfigError

Acceptance = float | tuple[float, ...]


def geometric_rates(acceptance_ratio: float, num_positions: int) -> tuple[float, ...]:
    """Return unconditional rates ``p, p**2, ... p**k`` with the mean ``acceptance_ratio`` (0..1).

    ``p`` is the conditional rate of every position: each draft token is right with probability ``p``.
    """
    low, high = 0.0, 1.0
    for _ in range(60):
        middle = (low + high) / 2
        mean = sum(middle**position for position in range(1, num_positions + 1)) / num_positions
        low, high = (middle, high) if mean < acceptance_ratio else (low, middle)
    return tuple(high**position for position in range(1, num_positions + 1))


def position_rates(acceptance: Acceptance, num_positions: int) -> tuple[float, ...]:
    """Return the unconditional rates of ``num_positions`` positions for a mean rate or for a list of rates.

    Raises :class:`ConfigError` for a rate outside 0..1, a rising curve, or a curve of the wrong length.
    """
    if isinstance(acceptance, (int, float)):
        if not 0 <= acceptance <= 1:
            raise ConfigError(f"acceptance: expected a ratio from 0 to 1, found {acceptance:g}")
        return geometric_rates(acceptance, num_positions)
    if len(acceptance) != num_positions:
        raise ConfigError(f"acceptance: expected {num_positions} rates (one per position), found {len(acceptance)}")
    if not all(0 <= rate <= 1 for rate in acceptance):
        raise ConfigError(f"acceptance: expected ratios from 0 to 1, found {_listed(acceptance)}")
    if any(later > earlier for earlier, later in itertools.pairwise(acceptance)):
        raise ConfigError(f"acceptance: expected rates that do not rise with the position, found {_listed(acceptance)}")
    return tuple(acceptance)


def blend(start: Sequence[float], end: Sequence[float], share: float) -> tuple[float, ...]:
    """Return the curve at ``share`` (0..1) of the way from ``start`` to ``end``."""
    return tuple(a + (b - a) * share for a, b in zip(start, end, strict=True))


def _listed(rates: Sequence[float]) -> str:
    return ", ".join(f"{rate:g}" for rate in rates)
