"""What a count of trials does not rule out: exact one-sided bounds at 95 %."""

from __future__ import annotations

import math
from collections.abc import Callable

MISSED = 0.05


def highest_share(found: int, trials: int) -> float:
    """The largest true share with which so few, or fewer, would be found once in twenty (Clopper and Pearson)."""
    if found >= trials:
        return 1.0
    return _crossing(lambda share: _binomial(found, trials, share), 0.0, 1.0)


def lowest_share(found: int, trials: int) -> float:
    """The smallest true share with which so many, or more, would be found once in twenty."""
    return 1.0 - highest_share(trials - found, trials)


def _binomial(found: int, trials: int, share: float) -> float:
    """Chance of ``found`` or fewer."""
    if share <= 0.0 or share >= 1.0:
        return float(share <= 0.0)
    yes, no = math.log(share), math.log1p(-share)
    ways = (math.lgamma(trials + 1) - math.lgamma(k + 1) - math.lgamma(trials - k + 1) for k in range(found + 1))
    return math.fsum(math.exp(way + k * yes + (trials - k) * no) for k, way in enumerate(ways))


def _crossing(falling: Callable[[float], float], low: float, high: float) -> float:
    """Where a falling chance reaches one in twenty."""
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if falling(middle) > MISSED else (low, middle)
    return high
