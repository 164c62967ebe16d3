"""What a step of decoding takes by load and prompts, from a recording. Pure.

Of each interval, a recording keeps the request-steps, their seconds, the prompt tokens and the tokens that decoding
gave. With b = step seconds / seconds, the requests in decode at a time (Little's law), and r = prompt tokens / seconds,
both per engine, a step without drafts takes

    S0 = alpha + beta * b + gamma * q,    q = r * S0, the prompt tokens that are read in the same step,
    so S0 = (alpha + beta * b) / (1 - gamma * r).

Reading prompts lengthens the steps of a server, so it is a regressor and no disturbance.

A server is no line: small batches are bound by memory, large ones by arithmetic. Where the intervals nearest to a load
lie off the line beyond chance, the step time there is theirs; a part of the scatter about that counts as an error; and
nothing is said far beyond the recorded loads.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Sequence
from itertools import combinations
from operator import itemgetter
from statistics import fmean, variance
from typing import Final, NamedTuple

import msgspec

from specdec_exporter.speculation.chance import Spread, all_but_each, batches, jackknife, stalled
from specdec_exporter.speculation.load import Load
from specdec_exporter.speculation.policy import Policy

MOST_PREFILL: Final = 0.9  # share of a step that reading prompts may take; beyond it the formula has a pole


class Line(NamedTuple):
    """Seconds of a step: ``alpha``, ``beta`` for each request in decode, ``gamma`` for each prompt token read in it."""

    alpha: float
    beta: float
    gamma: float

    def at(self, concurrency: float, prompt_rate: float) -> float:
        """Return the seconds of a step; ``prompt_rate`` is prompt tokens per second, both are per engine."""
        return (self.alpha + self.beta * concurrency) / (1.0 - min(self.gamma * prompt_rate, MOST_PREFILL))


class StepTimes(msgspec.Struct, frozen=True):
    """The step times of a recording, and what is needed to know how far chance moved them.

    ``copies``: the line without each batch of the recording. ``off``: logarithm of the load, and of step time / line,
    for each interval, by load. ``misfit``: the standard deviation of the latter that is left where the line is bent.
    ``loads`` and ``prompt_rates``: the smallest and the largest recorded one, per engine.
    """

    line: Line
    copies: tuple[Line, ...]
    off: tuple[tuple[float, float], ...]
    misfit: float
    loads: tuple[float, float]
    prompt_rates: tuple[float, float]

    def covers(self, concurrency: float) -> bool:
        """Whether a load is near enough to the recorded ones: within half of the least and twice the most."""
        return _near(concurrency, self.loads)

    def covers_prompts(self, prompt_rate: float) -> bool:
        """Whether as many prompt tokens per second, or half or twice as many, were recorded."""
        return _near(prompt_rate, self.prompt_rates)

    def at(self, concurrency: float, prompt_rate: float, policy: Policy) -> Spread | None:
        """Return the seconds of a step at a load and rate of prompts; ``None`` too far from what was recorded."""
        if not self.covers(concurrency) or not self.covers_prompts(prompt_rate):
            return None
        bend = self.bend(concurrency, policy)
        found, *copies = (bend * line.at(concurrency, prompt_rate) for line in (self.line, *self.copies))
        spread = jackknife(found, copies)
        return spread * self.doubt(policy) if spread else None

    def seconds(self, concurrency: float, prompt_rate: float, policy: Policy) -> float:
        """Return the seconds of a step as :meth:`at`, alone and at any load."""
        return self.bend(concurrency, policy) * self.line.at(concurrency, prompt_rate)

    def bend(self, concurrency: float, policy: Policy) -> float:
        """Return step time / line at a load, by the intervals nearest to it.

        Of how far they are off in the mean m, with the standard error e of their scatter, only m (1 - (z e / m)^2)
        counts, and nothing if chance explains it: scatter must not bend a line.
        """
        return _bend(self.off, math.log(concurrency), policy)

    def doubt(self, policy: Policy) -> Spread:
        """Return a 1 with the error of taking a server for a line."""
        return Spread(1.0, policy.chance.misfit_counted * self.misfit)


def _near(value: float, recorded: tuple[float, float]) -> bool:
    return recorded[0] / 2.0 <= value <= 2.0 * recorded[1]


def step_times(loads: Sequence[Load], policy: Policy, *, per_token: bool = False) -> StepTimes | None:
    """Fit the step time of a recording to its intervals, in the order of time; ``None`` if they are too few.

    ``per_token``: seconds of decoding per token instead, of a recording whose steps may give several. Intervals with
    preemptions are left out where enough others remain: a gap of a preempted request counts as one long step.
    """
    told = [load for load in undisturbed(loads, policy) if load.tokens >= 1.0 or not per_token]
    points = [_Point.of(load, load.tokens if per_token else load.steps) for load in told]
    line, cut = _fitted(points), batches(points, policy.chance)
    if line is None or not cut or math.fsum(point.steps for point in points) < policy.cost.min_steps:
        return None
    seconds = [point.steps * point.seconds for point in points]
    if stalled(seconds, [point.steps * point.on(line) for point in points], policy.chance):
        return None
    off = _offs(told, points, line)
    return StepTimes(
        line,
        _copies(cut),
        off,
        _misfit(off, policy),
        _ends([load.concurrency for load in told]),
        _ends([load.prompt_rate for load in told]),
    )


def _offs(loads: Sequence[Load], points: Sequence[_Point], line: Line) -> tuple[tuple[float, float], ...]:
    found = ((math.log(load.concurrency), _off(point, line)) for load, point in zip(loads, points, strict=True))
    # By load alone: among intervals of one load, the nearest must not be those that are off the most.
    return tuple(sorted(found, key=itemgetter(0)))


def _off(point: _Point, line: Line) -> float:
    due = point.on(line)
    return math.log(point.seconds / due) if due > 0.0 else 0.0


def _misfit(off: Sequence[tuple[float, float]], policy: Policy) -> float:
    return math.sqrt(fmean((each - math.log(_bend(off, place, policy))) ** 2 for place, each in off))


_ALIKE: Final = 0.1  # logarithm: loads that need not be told apart


def _bend(off: Sequence[tuple[float, float]], place: float, policy: Policy) -> float:
    number = min(max(len(off) // policy.cost.bend_parts, policy.chance.fewest_batches), len(off))
    low, high = (bisect_left(off, (place + side * _ALIKE,)) for side in (-1.0, 1.0))
    while high - low < number:
        if high == len(off) or (low > 0 and place - off[low - 1][0] < off[high][0] - place):
            low -= 1
        else:
            high += 1
    near = [each for _, each in off[low:high]]
    mean = fmean(near)
    explained = policy.cost.bend_z_score**2 * variance(near) / len(near)
    return math.exp(mean - explained / mean) if mean * mean > explained else 1.0


def _ends(values: Sequence[float]) -> tuple[float, float]:
    return min(values), max(values)


def _copies(cut: Sequence[Sequence[_Point]]) -> tuple[Line, ...]:
    """Return the line without each batch."""
    return tuple(copy for copy in map(_fitted, all_but_each(cut)) if copy is not None)


def undisturbed(loads: Sequence[Load], policy: Policy) -> list[Load]:
    """Return the intervals that ran steps, without those that preempted a request if enough others remain."""
    told = [load for load in loads if load.ran]
    calm = [load for load in told if not load.counts.preemptions]
    return calm if len(calm) >= policy.cost.enough_intervals else told


class _Point(NamedTuple):
    """One interval: how many steps it had, of how many seconds each, and what these seconds depend on."""

    steps: float
    seconds: float
    regressors: tuple[float, float, float]

    @classmethod
    def of(cls, load: Load, steps: float) -> _Point:
        seconds = load.step_seconds / steps
        return cls(steps, seconds, (1.0, load.concurrency, load.prompt_rate * seconds))

    def on(self, line: Line) -> float:
        """Return the seconds of a step that the line gives to this interval."""
        return math.fsum(one * other for one, other in zip(line, self.regressors, strict=True))


# Reading prompts is never all of a step: without the other two, a step without prompts would take no time.
_SUBSETS: Final = tuple(chosen for size in (1, 2, 3) for chosen in combinations(range(3), size) if chosen != (2,))
_EXPLAINS_MORE: Final = 1.0 + 1e-13  # at one load with prompts of one length, all lines explain the same: the first one


def _fitted(points: Sequence[_Point]) -> Line | None:
    """Return the line of least squares with no negative part: relative errors, weighted by steps.

    Three parameters have few subsets, each in closed form; the best one whose parts are all positive is the answer.
    """
    normal, right = _equations(points)
    best, explained = None, 0.0
    for chosen in _SUBSETS:
        part = _solved([[normal[i][j] for j in chosen] for i in chosen], [right[i] for i in chosen])
        if part is None or min(part) < 0.0:
            continue
        gain = math.fsum(right[i] * value for i, value in zip(chosen, part, strict=True))
        if gain > explained * _EXPLAINS_MORE:
            found = dict(zip(chosen, part, strict=True))
            best, explained = Line(*(found.get(i, 0.0) for i in range(3))), gain
    return _at_the_mean(best, points) if best else None


def _equations(points: Sequence[_Point]) -> tuple[list[list[float]], list[float]]:
    """Return the normal equations, matrix and right side."""
    rows = [(point.steps, [each / point.seconds for each in point.regressors]) for point in points]
    normal = [[math.fsum(w * x[i] * x[j] for w, x in rows) for j in range(3)] for i in range(3)]
    return normal, [math.fsum(w * x[i] for w, x in rows) for i in range(3)]


def _at_the_mean(line: Line, points: Sequence[_Point]) -> Line | None:
    """Bring a line back to the sum of all seconds: squares of relative errors pull it below the mean."""
    on_line = math.fsum(point.steps * point.on(line) for point in points)
    level = math.fsum(point.steps * point.seconds for point in points) / on_line
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
