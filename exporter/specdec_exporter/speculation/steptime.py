"""What a step of decoding takes by load and prompts, from a recording. Pure.

Of each interval, a recording keeps the request-steps, their seconds, the prompt tokens that were computed and the
tokens that decoding gave. With b = step seconds / seconds, the requests in decode at a time (Little's law), and r =
prompt tokens / seconds, both per engine, a step without drafts takes

    S0 = alpha + beta * b + gamma * q,    q = r * S0, the prompt tokens that are read in the same step,
    so S0 = (alpha + beta * b) / (1 - gamma * r).

Reading prompts lengthens the steps of a server, so it is a regressor and no disturbance.

b and q contain S0 themselves: b = X * S0 with X, request-steps per second. Where arrivals set X, a slow minute of the
machine has a high b for that alone, and least squares would draw a line through the origin. So X and r are the
instruments, as for any regressor that the error moves (two-stage least squares, Wright 1928): with relative errors

    1 = alpha / S0 + beta * X + gamma * r,

and only 1 / S0 is replaced by its fit on 1, X and r. The intercept of that fit is the speed of a step without load.
Where it cannot be told from 0, or where as many requests were in decode all the time (the load was steady: constant
arrivals, or a fixed number of clients), nothing tells how a step depends on load. Then only the mean step time is
known, at the load that was recorded.

A server is no line: small batches are bound by memory, large ones by arithmetic. Where the intervals nearest to a load
lie off the line beyond chance, the step time there is theirs; a part of the scatter about that counts as an error; and
nothing is said far beyond the recorded loads.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import combinations
from operator import itemgetter
from statistics import fmean, pstdev
from typing import Final, NamedTuple

from specdec_exporter.speculation.acceptance import Counts
from specdec_exporter.speculation.chance import Spread, all_but_each, batches, jackknife, stalled
from specdec_exporter.speculation.load import Load
from specdec_exporter.speculation.policy import Policy

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


@dataclass(frozen=True, slots=True, eq=False)
class Curve:
    """A line, and where the intervals lie off it: logarithms of load and of step time / line, by load."""

    line: Line
    off: tuple[tuple[float, float], ...] = ()
    _bends: dict[int, float] = field(default_factory=dict)

    def at(self, concurrency: float, prompt_rate: float, policy: Policy) -> float:
        """Return the seconds of a step at a load and rate of prompts."""
        return self.bend(concurrency, policy) * self.line.at(concurrency, prompt_rate)

    def bend(self, concurrency: float, policy: Policy) -> float:
        """Return step time / line at a load, by the intervals nearest to it.

        Of how far they are off in the mean m, with the standard error e of their scatter, only m (1 - (z e / m)^2)
        counts, and nothing if chance explains it: scatter must not bend a line.
        """
        if not self.off:
            return 1.0
        place = round(math.log(concurrency) * _PLACES)
        if place not in self._bends:
            self._bends[place] = _bend(self.off, place / _PLACES, policy)
        return self._bends[place]


_PLACES: Final = 20  # a load that differs by less than a twentieth bends alike


@dataclass(frozen=True, slots=True, eq=False)
class StepTimes:
    """The step times of a recording, and what is needed to know how far chance moved them.

    ``steady``: the load did not vary by itself, so ``curve`` is flat and holds at about the recorded load only.
    ``copies``: the curve without each batch of the recording. ``misfit``: the standard deviation about the curve.
    ``loads`` and ``prompt_rates``: the smallest and the largest recorded one, per engine. ``parts``: what the server
    did in each batch, with all intervals; ``preempted``: also those with preemptions are among ``curve``'s.
    """

    curve: Curve
    copies: tuple[Curve, ...]
    steady: bool
    misfit: float
    loads: tuple[float, float]
    prompt_rates: tuple[float, float]
    parts: tuple[Load, ...]
    preempted: bool = False

    @property
    def whole(self) -> Load:
        """What the server did in all intervals."""
        return total(self.parts)

    def covers(self, concurrency: float, policy: Policy) -> bool:
        """Whether a load is near enough to the recorded ones: no farther off than these are from their middle.

        At least the traffic's tolerance counts as near, and at most half of the least or twice the most.
        """
        reach = max(math.sqrt(self.loads[1] / self.loads[0]), 1.0 + policy.latency.traffic_tolerance)
        return _near(concurrency, self.loads, min(reach, _REACH))

    def covers_prompts(self, prompt_rate: float, policy: Policy) -> bool:
        """Whether such a rate of prompts, or half or twice of it, was recorded, or they are a small part of a step."""
        small = self.curve.line.gamma * prompt_rate < policy.cost.small_prefill_share
        return small or _near(prompt_rate, self.prompt_rates, _REACH)

    def seconds(self, load: Load, policy: Policy) -> float | None:
        """Return the seconds of a step without drafts at an interval's load; ``None`` where that was not recorded."""
        if not self.covers(load.concurrency, policy) or not self.covers_prompts(load.prompt_rate, policy):
            return None
        return self.curve.at(load.concurrency, load.prompt_rate, policy)

    def doubt(self, policy: Policy) -> Spread:
        """Return a 1 with the error of taking a server for a curve."""
        return Spread(1.0, policy.chance.misfit_counted * self.misfit)


_REACH: Final = 2.0


def _near(value: float, recorded: tuple[float, float], reach: float) -> bool:
    return recorded[0] / reach <= value <= reach * recorded[1]


def total(loads: Sequence[Load]) -> Load:
    """Return the sum of intervals."""
    return sum(loads, Load(0.0, Counts()))


def in_time(loads: Sequence[Load], policy: Policy) -> list[Sequence[Load]]:
    """Cut intervals into consecutive batches; empty if they are too few.

    Where their times are known, batches have equal times: those of two recordings that began at once are of the same
    minutes. Else they have equal numbers.
    """
    cut = batches(loads, policy.chance)
    ends = [load.ends for load in loads if load.ends is not None]
    if not cut or len(ends) < len(loads):
        return cut
    first = min(end - load.seconds for end, load in zip(ends, loads, strict=True))
    span = (max(ends) - first) / len(cut)
    timed: list[list[Load]] = [[] for _ in cut]
    for end, load in zip(ends, loads, strict=True):
        timed[min(max(int((end - load.seconds / 2.0 - first) / span), 0), len(cut) - 1)].append(load)
    return list(timed) if all(timed) else cut


def step_times(loads: Sequence[Load], policy: Policy, *, per_token: bool = False) -> StepTimes | None:
    """Fit the step time of a recording to its intervals, in the order of time; ``None`` if they are too few.

    ``per_token``: seconds of decoding per token instead, of a recording whose steps may give several. Intervals with
    preemptions are left out where enough others remain: a gap of a preempted request counts as one long step.
    """
    ran = [load for load in loads if load.ran and (load.tokens >= 1.0 or not per_token)]
    told = undisturbed(ran, policy)
    cut = [[_Point.of(load, per_token=per_token) for load in batch] for batch in in_time(told, policy)]
    points = [point for batch in cut for point in batch]
    if not cut or math.fsum(point.steps for point in points) < policy.cost.min_steps:
        return None
    rest = all_but_each(cut)
    fits = [_fitted(some) for some in (points, *rest)]
    lines = [fit.line for fit in fits if fit is not None]
    unloaded = [fit.unloaded for fit in fits if fit is not None]
    steady = len(lines) < len(fits) or _is_even(points, policy) or not _tells_unloaded(unloaded, policy)
    if steady:
        lines = [_flat(some) for some in (points, *rest)]
    seconds = [point.steps * point.seconds for point in points]
    if stalled(seconds, [point.steps * point.on(lines[0]) for point in points], policy.chance):
        return None
    curve, *copies = (
        Curve(line, () if steady else _offs(some, line)) for line, some in zip(lines, (points, *rest), strict=True)
    )
    whole = [load.concurrency for load in told]
    return StepTimes(
        curve=curve,
        copies=tuple(copies),
        steady=steady,
        misfit=_misfit(points, curve, policy),
        loads=(total(told).concurrency,) * 2 if steady else _ends(whole),
        prompt_rates=_ends([load.prompt_rate for load in told]),
        parts=tuple(map(total, in_time(ran, policy))),
        preempted=any(load.counts.preemptions for load in told),
    )


def _is_even(points: Sequence[_Point], policy: Policy) -> bool:
    """Whether as many requests were in decode all the time: clients that wait for their answers set the load."""
    return pstdev(math.log(point.concurrency) for point in points) < policy.cost.even_load_spread


def _tells_unloaded(unloaded: Sequence[float], policy: Policy) -> bool:
    """Whether the load varied enough by itself: the first stage tells the speed of a step without load from 0.

    ``unloaded``: that speed, and without each batch. Its F, the square of value / error, must be at least the policy's.
    """
    found = jackknife(unloaded[0], unloaded[1:])
    return found is not None and found.error is not None and found.error**2 * policy.cost.first_stage_f_min <= 1.0


def _offs(points: Sequence[_Point], line: Line) -> tuple[tuple[float, float], ...]:
    off = [_off(point, line) for point in points]
    # At the load that an interval would have had on the line: a slow one has more in decode for that alone.
    places = (math.log(point.concurrency) - each for point, each in zip(points, off, strict=True))
    # By load alone: among intervals of one load, the nearest must not be those that are off the most.
    return tuple(sorted(zip(places, off, strict=True), key=itemgetter(0)))


def _off(point: _Point, line: Line) -> float:
    due = point.on(line)
    return math.log(point.seconds / due) if due > 0.0 else 0.0


def _misfit(points: Sequence[_Point], curve: Curve, policy: Policy) -> float:
    off = curve.off or _offs(points, curve.line)
    return math.sqrt(fmean((each - math.log(curve.bend(math.exp(place), policy))) ** 2 for place, each in off))


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
    # statistics.variance takes ten times as long: it counts in fractions.
    squares = math.fsum((each - mean) ** 2 for each in near)
    explained = policy.cost.bend_z_score**2 * squares / max(len(near) - 1, 1) / len(near)
    return math.exp(mean - explained / mean) if mean * mean > explained else 1.0


def _ends(values: Sequence[float]) -> tuple[float, float]:
    return min(values), max(values)


def undisturbed(loads: Sequence[Load], policy: Policy) -> list[Load]:
    """Return the intervals that ran steps, without those that preempted a request if enough others remain."""
    told = [load for load in loads if load.ran]
    calm = [load for load in told if not load.counts.preemptions]
    return calm if len(calm) >= policy.cost.enough_intervals else told


class _Point(NamedTuple):
    """One interval: how many steps it had, of how many seconds each, and what these seconds depend on.

    ``rate`` is steps per second, ``prompt_rate`` prompt tokens per second.
    """

    steps: float
    seconds: float
    rate: float
    prompt_rate: float

    @classmethod
    def of(cls, load: Load, *, per_token: bool) -> _Point:
        """``per_token``: tokens count instead of steps."""
        steps = load.tokens if per_token else load.steps
        return cls(steps, load.step_seconds / steps, steps / load.seconds, load.prompt_rate)

    @property
    def concurrency(self) -> float:
        return self.rate * self.seconds

    def on(self, line: Line) -> float:
        """Return the seconds of a step that the line gives to this interval."""
        return line.alpha + (line.beta * self.rate + line.gamma * self.prompt_rate) * self.seconds


class _Fit(NamedTuple):
    """A line, and steps per second of a request without load, by the first stage."""

    line: Line
    unloaded: float


# Reading prompts is never all of a step: without the other two, a step without prompts would take no time.
_SUBSETS: Final = tuple(chosen for size in (1, 2, 3) for chosen in combinations(range(3), size) if chosen != (2,))
_EXPLAINS_MORE: Final = 1.0 + 1e-13  # at one load with prompts of one length, all lines explain the same: the first one


def _fitted(points: Sequence[_Point]) -> _Fit | None:
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
    return _Fit(line, stage[0]) if line else None


def _first_stage(points: Sequence[_Point]) -> tuple[float, ...] | None:
    """Return 1 / seconds as intercept and slopes by the rate of steps and that of prompts, if these vary."""
    normal, right = _equations(
        [(each.steps, (1.0, each.rate, each.prompt_rate), 1.0 / each.seconds) for each in points]
    )
    for size in (3, 2):
        if found := _solved([row[:size] for row in normal[:size]], right[:size]):
            return (*found, 0.0)[:3]
    return None


def _fit(stage: Sequence[float], point: _Point) -> float:
    return stage[0] + stage[1] * point.rate + stage[2] * point.prompt_rate


def _flat(points: Sequence[_Point]) -> Line:
    steps = math.fsum(point.steps for point in points)
    return Line(math.fsum(point.steps * point.seconds for point in points) / steps)


def _equations(
    rows: Sequence[tuple[float, tuple[float, float, float], float]],
) -> tuple[list[list[float]], list[float]]:
    """Return the normal equations, matrix and right side, of rows of weight, regressors and value."""
    normal = [[math.fsum(w * x[i] * x[j] for w, x, _ in rows) for j in range(3)] for i in range(3)]
    return normal, [math.fsum(w * x[i] * y for w, x, y in rows) for i in range(3)]


def _at_the_mean(line: Line, points: Sequence[_Point]) -> Line | None:
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
