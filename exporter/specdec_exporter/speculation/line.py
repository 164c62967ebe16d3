"""The line of the step time by load and prompts, fitted by two-stage least squares. Pure.

b and q contain the step time S0 themselves: b = X * S0 with X, request-steps per second. Where arrivals set X, a slow
minute of the machine has a high b for that alone, and least squares would draw a line through the origin. So X and the
rate of prompts r are the instruments, as for any regressor that the error moves (Wright 1928): with relative errors

    1 = alpha / S0 + beta * X + gamma * r,

and only 1 / S0 is replaced by its fit on 1, X and r. The intercept of that fit is the speed of a step without load.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import combinations
from typing import Final, NamedTuple

from specdec_exporter.speculation.load import Load

MOST_PREFILL: Final = 0.9  # share of a step that reading prompts may take; beyond it the formula has a pole


class Line(NamedTuple):
    """Seconds of a step: ``alpha``, ``beta`` for each request in decode, ``gamma`` for each prompt token read in it."""

    alpha: float
    beta: float = 0.0
    gamma: float = 0.0

    def at(self, concurrency: float, prompt_rate: float) -> float:
        """Return the seconds of a step; ``prompt_rate`` is prompt tokens per second, both are per engine."""
        return (self.alpha + self.beta * concurrency) / (1.0 - self.prefill(prompt_rate))

    def prefill(self, prompt_rate: float) -> float:
        """Return the share of a step that reading prompts takes."""
        return min(self.gamma * prompt_rate, MOST_PREFILL)


class Point(NamedTuple):
    """One interval: how many steps it had, of how many seconds each, and what these seconds depend on.

    ``rate`` is steps per second, ``prompt_rate`` prompt tokens per second.
    """

    steps: float
    seconds: float
    rate: float
    prompt_rate: float

    @classmethod
    def of(cls, load: Load, *, per_token: bool) -> Point:
        """``per_token``: tokens count instead of steps."""
        steps = load.tokens if per_token else load.steps
        return cls(steps, load.step_seconds / steps, steps / load.seconds, load.prompt_rate)

    @property
    def concurrency(self) -> float:
        """Requests in decode at a time."""
        return self.rate * self.seconds

    def on(self, line: Line) -> float:
        """Return the seconds of a step that the line gives to this interval."""
        return line.alpha + (line.beta * self.rate + line.gamma * self.prompt_rate) * self.seconds


class Fit(NamedTuple):
    """A line, and steps per second of a request without load, by the first stage."""

    line: Line
    unloaded: float


# Reading prompts is never all of a step: without the other two, a step without prompts would take no time.
_SUBSETS: Final = tuple(chosen for size in (1, 2, 3) for chosen in combinations(range(3), size) if chosen != (2,))
_EXPLAINS_MORE: Final = 1.0 + 1e-13  # at one load with prompts of one length, all lines explain the same: the first one


def fitted(points: Sequence[Point]) -> Fit | None:
    """Return the line of two-stage least squares with no negative part; ``None`` if the rate of steps never varied."""
    stage = _first_stage(points)
    if stage is None:
        return None
    rows = [(each.steps, (_fit(stage, each), each.rate, each.prompt_rate), 1.0) for each in points]
    normal, right = _equations(rows)
    best, explained = None, 0.0
    for chosen in _SUBSETS:
        part = _solved([[normal[i][j] for j in chosen] for i in chosen], [right[i] for i in chosen])
        if part is None or min(part) < 0.0:
            continue
        gain = math.fsum(right[i] * value for i, value in zip(chosen, part, strict=True))
        if gain > explained * _EXPLAINS_MORE:
            found = dict(zip(chosen, part, strict=True))
            best, explained = Line(*(found.get(i, 0.0) for i in range(3))), gain
    line = _at_the_mean(best, points) if best else None
    return Fit(line, stage[0]) if line else None


def _first_stage(points: Sequence[Point]) -> tuple[float, ...] | None:
    """Return 1 / seconds as intercept and slopes by the rate of steps and that of prompts, if these vary."""
    normal, right = _equations(
        [(each.steps, (1.0, each.rate, each.prompt_rate), 1.0 / each.seconds) for each in points]
    )
    for size in (3, 2):
        if found := _solved([row[:size] for row in normal[:size]], right[:size]):
            return (*found, 0.0)[:3]
    return None


def _fit(stage: Sequence[float], point: Point) -> float:
    return stage[0] + stage[1] * point.rate + stage[2] * point.prompt_rate


def flat(points: Sequence[Point]) -> Line:
    """Return the mean step time as a line."""
    steps = math.fsum(point.steps for point in points)
    return Line(math.fsum(point.steps * point.seconds for point in points) / steps)


def _equations(
    rows: Sequence[tuple[float, tuple[float, float, float], float]],
) -> tuple[list[list[float]], list[float]]:
    """Return the normal equations, matrix and right side, of rows of weight, regressors and value."""
    normal = [[math.fsum(w * x[i] * x[j] for w, x, _ in rows) for j in range(3)] for i in range(3)]
    return normal, [math.fsum(w * x[i] * y for w, x, y in rows) for i in range(3)]


def _at_the_mean(line: Line, points: Sequence[Point]) -> Line | None:
    """Bring a line back to the sum of all seconds: squares of relative errors pull it below the mean."""
    on_line = math.fsum(point.steps * point.on(line) for point in points)
    level = math.fsum(point.steps * point.seconds for point in points) / on_line if on_line > 0.0 else math.inf
    return Line(line.alpha * level, line.beta * level, line.gamma * level) if math.isfinite(level) else None


def _solved(matrix: list[list[float]], right: list[float]) -> list[float] | None:
    """Solve by Gauss with pivots; ``None`` if the regressors do not differ."""
    size = len(right)
    rows = [[*row, value] for row, value in zip(matrix, right, strict=True)]
    for i in range(size):
        pivot = max(range(i, size), key=lambda j: abs(rows[j][i]))
        rows[i], rows[pivot] = rows[pivot], rows[i]
        if not abs(rows[i][i]) > _SMALLEST_PIVOT * matrix[i][i]:
            return None
        for j in range(size):
            if j != i:
                factor = rows[j][i] / rows[i][i]
                rows[j] = [one - factor * other for one, other in zip(rows[j], rows[i], strict=True)]
    return [rows[i][size] / rows[i][i] for i in range(size)]


_SMALLEST_PIVOT: Final = 1e-9  # relative
