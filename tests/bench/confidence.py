"""What a count of trials does not rule out: exact one-sided bounds at 95 %."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence

MISSED = 0.05


def highest_share(found: int, trials: int) -> float:
    """The largest true share with which so few, or fewer, would be found once in twenty (Clopper and Pearson)."""
    if found >= trials:
        return 1.0
    return _crossing(lambda share: _binomial(found, trials, share), 0.0, 1.0)


def lowest_share(found: int, trials: int) -> float:
    """The smallest true share with which so many, or more, would be found once in twenty."""
    return 1.0 - highest_share(trials - found, trials)


def highest_count(found: int) -> float:
    """The largest expected count of independent events with which so few, or fewer, would happen once in twenty."""

    def at_most(mean: float) -> float:
        return sum(math.exp(k * math.log(mean) - mean - math.lgamma(k + 1)) for k in range(found + 1)) if mean else 1.0

    return _crossing(at_most, 0.0, 10.0 + 3.0 * found)


def highest_mean(counts: Sequence[int]) -> float:
    """The largest expected count of a trial, from the counts of independent trials.

    The events of a trial may come together, so it is the larger of two bounds: the one of independent events, and
    Student's by the scatter of the counts.
    """
    trials, mean = len(counts), statistics.mean(counts)
    least = highest_count(sum(counts)) / trials
    if trials < 2:
        return least
    normal = statistics.NormalDist().inv_cdf(1 - MISSED)
    student = normal + (normal**3 + normal) / (4 * (trials - 1))
    return max(least, mean + student * statistics.stdev(counts) / math.sqrt(trials))


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
