"""What decoding takes without drafts, at any load, and what drafts cost and give against that. Pure.

Of each interval, a recording keeps the request-steps, their seconds, the prompt tokens and the tokens that decoding
gave. With b = step seconds / seconds, the requests in decode at a time (Little's law), and r = prompt tokens / seconds,
both per engine, a step without drafts takes

    S0 = alpha + beta * b + gamma * q,    q = r * S0, the prompt tokens that are read in the same step,
    so S0 = (alpha + beta * b) / (1 - gamma * r).

Reading prompts lengthens the steps of both sides, so it is a regressor. The speed-up of what runs now, at the load and
with the prompts that it has, is its tokens * S0 / its step seconds. ``None`` means that it cannot be known.

A server is no line: small batches are bound by memory, large ones by arithmetic. So nothing is said far beyond the
recorded loads, and a part of the scatter about the line counts as an error.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import combinations
from typing import Final, NamedTuple

import msgspec

from specdec_exporter.speculation.chance import Estimate, Spread, batches, jackknife, of_batches, stalled
from specdec_exporter.speculation.load import Load
from specdec_exporter.speculation.policy import Policy

_MOST_PREFILL: Final = 0.9  # share of a step that reading prompts may take; beyond it the formula has a pole


class Line(NamedTuple):
    """Seconds of a step: ``alpha``, ``beta`` for each request in decode, ``gamma`` for each prompt token read in it."""

    alpha: float
    beta: float
    gamma: float

    def at(self, concurrency: float, prompt_rate: float) -> float:
        """Return the seconds of a step; ``prompt_rate`` is prompt tokens per second, both are per engine."""
        return (self.alpha + self.beta * concurrency) / (1.0 - min(self.gamma * prompt_rate, _MOST_PREFILL))


class StepTimes(msgspec.Struct, frozen=True):
    """The line of a recording without drafts, and what is needed to know how far chance moved it.

    ``copies``: the line without each batch of the recording. ``misfit``: standard deviation of an interval's logarithm
    about the line. ``loads`` and ``prompt_rates``: the smallest and the largest recorded one, per engine.
    """

    line: Line
    copies: tuple[Line, ...]
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
        return self.each(lambda line: line.at(concurrency, prompt_rate), policy)

    def each(self, figure: Callable[[Line], float], policy: Policy) -> Spread | None:
        """Return a figure of the line with the error that the line gives it."""
        found = jackknife(figure(self.line), list(map(figure, self.copies)))
        return found * self.doubt(policy) if found else None

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
    told = _undisturbed(loads, policy)
    points = [_Point.of(load, load.tokens if per_token else load.steps) for load in told]
    points = [point for point in points if point.seconds > 0.0]
    line = _fitted(points)
    cut = batches(points, policy.chance)
    if line is None or not cut or math.fsum(point.steps for point in points) < policy.cost.min_steps:
        return None
    seconds = [point.steps * point.seconds for point in points]
    if stalled(seconds, [point.steps * point.on(line) for point in points], policy.chance):
        return None
    copies = [_fitted([point for other in cut if other is not batch for point in other]) for batch in cut]
    concurrencies, prompt_rates = [load.concurrency for load in told], [load.prompt_rate for load in told]
    return StepTimes(
        line,
        tuple(copy for copy in copies if copy is not None),
        _misfit(points, line),
        (min(concurrencies), max(concurrencies)),
        (min(prompt_rates), max(prompt_rates)),
    )


def _misfit(points: Sequence[_Point], line: Line) -> float:
    scatter = [(point.steps, math.log(point.seconds / due)) for point in points if (due := point.on(line)) > 0.0]
    return math.sqrt(math.fsum(w * x * x for w, x in scatter) / math.fsum(w for w, _ in scatter))


def _undisturbed(loads: Sequence[Load], policy: Policy) -> list[Load]:
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
        seconds = load.step_seconds / steps if steps > 0.0 else 0.0
        return cls(steps, seconds, (1.0, load.concurrency, load.prompt_rate * seconds))

    def on(self, line: Line) -> float:
        """Return the seconds of a step that the line gives to this interval."""
        return math.fsum(one * other for one, other in zip(line, self.regressors, strict=True))


# Reading prompts is never all of a step: without the other two, a step without prompts would take no time.
_SUBSETS: Final = tuple(chosen for size in (1, 2, 3) for chosen in combinations(range(3), size) if chosen != (2,))
_EXPLAINS_MORE: Final = 1.0 + 1e-9  # at one load with prompts of one length, all lines explain the same: the first one


def _fitted(points: Sequence[_Point]) -> Line | None:
    """Return the line of least squares with no negative part: relative errors, weighted by steps.

    Three parameters have few subsets, each in closed form; the best one whose parts are all positive is the answer.
    Squares of relative errors pull the line below the mean, so it is brought back to the sum of all seconds.
    """
    rows = [(point.steps, [each / point.seconds for each in point.regressors]) for point in points]
    normal = [[math.fsum(w * x[i] * x[j] for w, x in rows) for j in range(3)] for i in range(3)]
    right = [math.fsum(w * x[i] for w, x in rows) for i in range(3)]
    best, explained = None, 0.0
    for chosen in _SUBSETS:
        part = _solved([[normal[i][j] for j in chosen] for i in chosen], [right[i] for i in chosen])
        if part is None or min(part) < 0.0:
            continue
        gain = math.fsum(right[i] * value for i, value in zip(chosen, part, strict=True))
        if gain > explained * _EXPLAINS_MORE:
            found = dict(zip(chosen, part, strict=True))
            best, explained = Line(*(found.get(i, 0.0) for i in range(3))), gain
    if best is None:
        return None
    on_line = math.fsum(point.steps * point.on(best) for point in points)
    level = math.fsum(point.steps * point.seconds for point in points) / on_line
    # The part of prompts is per second of a step, whatever the level.
    return Line(best.alpha * level, best.beta * level, best.gamma * level) if math.isfinite(level) else None


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


# --- Against it -------------------------------------------------------------------------------------------------------


class Measured(msgspec.Struct, frozen=True, kw_only=True):
    """What drafts cost and gave over a span, against a recording without them.

    ``speedup`` is of decoding, at the load and the prompts per second that there were; it is what is judged.
    ``closed_loop`` is what a fixed number of clients gets: a faster server also reads their prompts faster.
    ``slowdown`` is step time / step time without drafts. ``compared_ratio`` is the share of the step time at loads near
    the recorded ones; the other figures are of this part. ``concurrency`` is the mean, per engine.
    """

    concurrency: float
    compared_ratio: float
    steps: float
    step_seconds: float
    plain_step_seconds: float
    tokens_per_step: float
    draft_tokens_per_step: float
    slowdown: Estimate
    speedup: Estimate
    closed_loop: Estimate

    @property
    def draft_cost_ratio(self) -> Estimate | None:
        """Cost of one more draft token / cost of a step without drafts, which is the acceptance that breaks even.

        It is never below 0: drafts do not make a step faster. ``None`` without drafts.
        """
        drafted = self.draft_tokens_per_step
        if drafted <= 0 or not math.isfinite(max(self.slowdown.value, self.slowdown.high or 0.0) / drafted):
            return None
        low, value, high = (
            None if bound is None else max((bound - 1.0) / drafted, 0.0)
            for bound in (self.slowdown.low, self.slowdown.value, self.slowdown.high)
        )
        return Estimate(value or 0.0, low, high)


def measure(loads: Sequence[Load], plain: StepTimes, policy: Policy, *, paired: bool = False) -> Measured | None:
    """Compare the intervals of a span, in the order of time, with a recording without drafts.

    ``None`` if too few steps ran at a load near the recorded ones, or with other prompts per second than there.
    ``paired``: both are of the same minutes, so that a burst or a noisy neighbour moves both sides of a batch alike.
    """
    told = _undisturbed(loads, policy)
    near = [load for load in told if plain.covers(load.concurrency)]
    total = _Sums.of(near, plain.line)
    if total is None or total.steps < policy.cost.min_steps or not plain.covers_prompts(total.prompt_rate):
        return None
    due = [load.steps * plain.line.at(load.concurrency, load.prompt_rate) for load in near]
    unknown = stalled([load.step_seconds for load in near], due, policy.chance)

    def ratio(figure: Callable[[_Sums], float]) -> Estimate | None:
        def of(some: Sequence[Load], line: Line) -> float | None:
            sums = _Sums.of([load for load in some if plain.covers(load.concurrency)], line)
            return figure(sums) if sums else None

        now = _of_pairs(told, of, plain, policy) if paired else _of_both(told, of, plain, policy)
        if now is None:
            return None
        if unknown:
            return Estimate(now.value, None, None)
        # What the minutes had in common moved both sides off the line alike.
        return (now if paired else now * plain.doubt(policy)).of_two_runs(policy.chance)

    slowdown, speedup, closed = ratio(_Sums.slowdown), ratio(_Sums.speedup), ratio(_Sums.closed_loop)
    if slowdown is None or speedup is None or closed is None:
        return None
    return Measured(
        concurrency=total.step_seconds / total.seconds,
        compared_ratio=total.step_seconds / math.fsum(load.step_seconds for load in told),
        steps=total.steps,
        step_seconds=total.step_seconds / total.steps,
        plain_step_seconds=total.plain_step_seconds / total.steps,
        tokens_per_step=total.tokens / total.steps,
        draft_tokens_per_step=math.fsum(load.counts.draft_tokens or 0.0 for load in near) / total.steps,
        slowdown=slowdown,
        speedup=speedup,
        closed_loop=closed,
    )


_Of = Callable[[Sequence[Load], Line], float | None]


def _of_both(loads: Sequence[Load], of: _Of, plain: StepTimes, policy: Policy) -> Spread | None:
    """Return a figure of two recordings whose chances are independent."""
    now = of_batches(loads, lambda some: of(some, plain.line), policy.chance)
    if now is None:
        return None
    then = jackknife(now.value, [of(loads, copy) for copy in plain.copies])
    return now * Spread(1.0, then.error, then.freedom) if then else None


def _of_pairs(loads: Sequence[Load], of: _Of, plain: StepTimes, policy: Policy) -> Spread | None:
    """Return a figure of two recordings of the same minutes: each batch is left out of both at once."""
    cut = batches(loads, policy.chance)
    rest = [[load for other in cut if other is not batch for load in other] for batch in cut]
    copies = plain.copies if len(plain.copies) == len(cut) else ()
    return jackknife(of(loads, plain.line), [of(some, copy) for some, copy in zip(rest, copies, strict=False)])


class _Sums(NamedTuple):
    """Sums over intervals, beside what the same steps and tokens would have taken without drafts.

    Each interval counts at its own load: at their mean, bursts would read too low.
    """

    seconds: float
    steps: float
    step_seconds: float
    tokens: float
    prompt_rate: float
    plain_step_seconds: float
    plain_token_seconds: float
    plain_token_seconds_alone: float  # without prompts
    gamma: float

    @classmethod
    def of(cls, loads: Sequence[Load], line: Line) -> _Sums | None:
        """Return the sums; ``None`` without steps, or if absurd counts overflow."""
        plain = [line.at(load.concurrency, load.prompt_rate) for load in loads]
        seconds = math.fsum(load.seconds for load in loads)
        found = cls(
            seconds,
            math.fsum(load.steps for load in loads),
            math.fsum(load.step_seconds for load in loads),
            math.fsum(load.tokens for load in loads),
            math.fsum(load.prompt_rate * load.seconds for load in loads) / seconds if seconds else 0.0,
            math.fsum(load.steps * each for load, each in zip(loads, plain, strict=True)),
            math.fsum(load.tokens * each for load, each in zip(loads, plain, strict=True)),
            math.fsum(load.tokens * line.at(load.concurrency, 0.0) for load in loads),
            line.gamma,
        )
        useful = (found.steps, found.step_seconds, found.plain_step_seconds, found.plain_token_seconds)
        return found if all(0.0 < each < math.inf for each in useful) else None

    def slowdown(self) -> float:
        return self.step_seconds / self.plain_step_seconds

    def speedup(self) -> float:
        return self.plain_token_seconds / self.step_seconds

    def closed_loop(self) -> float:
        """U = L (alpha + beta b) / (S1 (1 - gamma r / U)), solved for U: r falls with the speed of the server."""
        return self.plain_token_seconds_alone / self.step_seconds + min(self.gamma * self.prompt_rate, _MOST_PREFILL)
