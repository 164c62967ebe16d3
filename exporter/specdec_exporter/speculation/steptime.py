"""What a step of decoding takes by load and prompts, from a recording. Pure.

Of each interval, a recording keeps the request-steps, their seconds, the prompt tokens that were computed and the
tokens that decoding gave. With b = step seconds / seconds, the requests in decode at a time (Little's law), and r =
prompt tokens / seconds, both per engine, a step without drafts takes

    S0 = alpha + beta * b + gamma * q,    q = r * S0, the prompt tokens that are read in the same step,
    so S0 = (alpha + beta * b) / (1 - gamma * r).

Reading prompts lengthens the steps of a server, so it is a regressor and no disturbance.

Where the load did not vary by itself (constant arrivals, or a fixed number of clients), nothing tells how a step
depends on it: the first stage of the fit (:mod:`.line`) does not tell the speed of a step without load from 0, or as
many requests were in decode all the time. Such a load is called steady, and only its mean step time is known.

A server is no line: small batches are bound by memory, large ones by arithmetic. Where the intervals nearest to a load
lie off the line beyond chance, the step time there is theirs; a part of the scatter about that counts as an error; and
nothing is said far beyond the recorded loads.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, field
from operator import itemgetter
from statistics import fmean, pstdev
from typing import Final

from specdec_exporter.speculation.acceptance import Counts
from specdec_exporter.speculation.chance import Spread, all_but_each, batches, jackknife, stalled
from specdec_exporter.speculation.line import Line, Point, fitted, flat
from specdec_exporter.speculation.load import Load
from specdec_exporter.speculation.policy import Policy


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
    did in each batch, with all intervals; ``span``, ``scatter``, ``unevenness`` and ``even``:
    see :func:`span_of`, :func:`scatter`, :func:`unevenness`, :func:`is_even`.
    ``preempted``: also those with preemptions are among ``curve``'s.
    """

    curve: Curve
    copies: tuple[Curve, ...]
    steady: bool
    misfit: float
    loads: tuple[float, float]
    prompt_rates: tuple[float, float]
    parts: tuple[Load, ...]
    span: tuple[float, float] | None
    scatter: float
    unevenness: float
    even: bool
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
        """Whether such a rate of prompts, or half or twice of it, was recorded, or need not be.

        It need not where prompts certainly are a small part of a step, and where they are fewer than recorded and what
        they add to a step is certain: without them a step is shorter by that.
        """
        gamma, error = self.curve.line.gamma, self._gamma_error
        small = gamma > 0.0 and (gamma + 2.0 * error) * prompt_rate < policy.cost.small_prefill_share
        fewer = gamma > 2.0 * error and prompt_rate < self.prompt_rates[0]
        return small or fewer or _near(prompt_rate, self.prompt_rates, _REACH)

    @property
    def _gamma_error(self) -> float:
        """The standard error of what a prompt token adds to a step; 0 means nothing where the line has none."""
        found = [curve.line.gamma for curve in self.copies]
        mean = fmean(found)
        return math.sqrt(math.fsum((each - mean) ** 2 for each in found) * (len(found) - 1) / len(found))

    def seconds(self, load: Load, policy: Policy) -> float | None:
        """Return the seconds of a step without drafts at an interval's load; ``None`` where that was not recorded."""
        if not self.covers(load.concurrency, policy) or not self.covers_prompts(load.prompt_rate, policy):
            return None
        return self.curve.at(load.concurrency, load.prompt_rate, policy)

    def doubt(self, concurrency: float, policy: Policy) -> Spread:
        """Return a 1 with the error of taking a server for a curve, which grows with the way from the mean load."""
        away = 1.0 + abs(math.log(concurrency / self.whole.concurrency))
        return Spread(1.0, policy.chance.misfit_counted * self.misfit * away)


_REACH: Final = 2.0


def _near(value: float, recorded: tuple[float, float], reach: float) -> bool:
    return recorded[0] / reach <= value <= reach * recorded[1]


def total(loads: Sequence[Load]) -> Load:
    """Return the sum of intervals."""
    return sum(loads, Load(0.0, Counts()))


def is_even(parts: Sequence[Load | Point], policy: Policy) -> bool:
    """Whether as many requests were in decode all the time: clients that wait for their answers set the load."""
    usual = _usual(sorted(math.log(part.concurrency) for part in parts), _TENTH)
    return pstdev(usual) < policy.cost.even_load_spread


def unevenness(loads: Sequence[Load]) -> float:
    """Return by how much more requests a step had in decode, in the mean, than there were at a time; 1 or more.

    Where they come in bursts, most steps run in a full batch, and the mean over time hides that.
    """
    whole = total(loads)
    return math.fsum(load.steps * load.concurrency for load in loads) / whole.steps / whole.concurrency


def scatter(loads: Sequence[Load]) -> float:
    """Return the standard deviation of the logarithm of seconds per token, over intervals."""
    return pstdev([math.log(load.step_seconds / load.tokens) for load in loads if load.tokens >= 1.0] or [0.0])


def in_time(loads: Sequence[Load], policy: Policy, span: tuple[float, float] | None = None) -> list[Sequence[Load]]:
    """Cut intervals into consecutive batches of equal time; of equal number, where a time is not known or one is empty.

    ``span``: that of the other recording of a pair, so that batches are of the same minutes; there some may be empty.
    Empty if intervals are too few.
    """
    cut, own = batches(loads, policy.chance), span_of(loads)
    if not cut or own is None:
        return cut
    first, last = span or own
    timed: list[list[Load]] = [[] for _ in cut]
    for load in loads:
        place = ((load.ends or 0.0) - load.seconds / 2.0 - first) / (last - first)
        timed[min(max(int(place * len(cut)), 0), len(cut) - 1)].append(load)
    return list(timed) if all(timed) or span is not None else cut


def span_of(loads: Sequence[Load]) -> tuple[float, float] | None:
    """Return when the first interval began and the last one ended; ``None`` where a time is not known."""
    ends = [load.ends for load in loads if load.ends is not None]
    if not loads or len(ends) < len(loads):
        return None
    return min(end - load.seconds for end, load in zip(ends, loads, strict=True)), max(ends)


def step_times(loads: Sequence[Load], policy: Policy, *, per_token: bool = False) -> StepTimes | None:
    """Fit the step time of a recording to its intervals, in the order of time; ``None`` if they are too few.

    ``per_token``: seconds of decoding per token instead, of a recording whose steps may give several. Intervals with
    preemptions are left out where enough others remain: a gap of a preempted request counts as one long step.
    """
    ran = [load for load in loads if load.ran and (load.tokens >= 1.0 or not per_token)]
    told = undisturbed(ran, policy)
    samples = _samples(told, policy, per_token=per_token)
    if not samples:
        return None
    points, curves = samples[0], _curves(samples, policy)
    curve, *copies = curves or [Curve(flat(some)) for some in samples]
    if _is_stalled(points, curve.line, policy):
        return None
    return StepTimes(
        curve=curve,
        copies=tuple(copies),
        steady=curves is None,
        misfit=_misfit(points, curve, policy),
        loads=_ends([load.concurrency for load in told] if curves else [total(told).concurrency]),
        prompt_rates=_ends([load.prompt_rate for load in told]),
        parts=tuple(map(total, in_time(ran, policy))),
        span=span_of(ran),
        scatter=scatter(ran),
        unevenness=unevenness(ran),
        even=is_even(told, policy),
        preempted=total(told).counts.preemptions not in (None, 0.0),
    )


def _samples(loads: Sequence[Load], policy: Policy, *, per_token: bool) -> list[list[Point]]:
    """Return all intervals, and all but those of each batch; empty if they are too few."""
    cut = [[Point.of(load, per_token=per_token) for load in batch] for batch in in_time(loads, policy)]
    points = [point for batch in cut for point in batch]
    if not cut or math.fsum(point.steps for point in points) < policy.cost.min_steps:
        return []
    return [points, *all_but_each(cut)]


def _is_stalled(points: Sequence[Point], line: Line, policy: Policy) -> bool:
    due = [point.steps * point.on(line) for point in points]
    return stalled([point.steps * point.seconds for point in points], due, policy.chance)


def _curves(samples: Sequence[Sequence[Point]], policy: Policy) -> list[Curve] | None:
    """Return the curve of all intervals, and without each batch; ``None`` if the load was steady."""
    fits = [fit for fit in map(fitted, samples) if fit is not None]
    if len(fits) < len(samples) or is_even(samples[0], policy):
        return None
    if not _tells_unloaded([fit.unloaded for fit in fits], policy):
        return None
    return [Curve(fit.line, _offs(some, fit.line)) for fit, some in zip(fits, samples, strict=True)]


_TENTH: Final = 0.1  # a load generator that starts late and ends early leaves intervals that are partly idle
_TWENTIETH: Final = 0.05


def _usual(ascending: Sequence[float], share: float) -> Sequence[float]:
    """Return all but the smallest and the largest ones, so many of each."""
    left_out = int(len(ascending) * share)
    return ascending[left_out : len(ascending) - left_out]


def _tells_unloaded(unloaded: Sequence[float], policy: Policy) -> bool:
    """Whether the load varied enough by itself: the first stage tells the speed of a step without load from 0.

    ``unloaded``: that speed, and without each batch. Its F, the square of value / error, must be at least the policy's.
    """
    found = jackknife(unloaded[0], unloaded[1:])
    return found is not None and found.error is not None and found.error**2 * policy.cost.first_stage_f_min <= 1.0


def _offs(points: Sequence[Point], line: Line) -> tuple[tuple[float, float], ...]:
    off = [_off(point, line) for point in points]
    # At the load that an interval would have had on the line: a slow one has more in decode for that alone.
    places = (math.log(point.concurrency) - each for point, each in zip(points, off, strict=True))
    # By load alone: among intervals of one load, the nearest must not be those that are off the most.
    return tuple(sorted(zip(places, off, strict=True), key=itemgetter(0)))


def _off(point: Point, line: Line) -> float:
    due = point.on(line)
    return math.log(point.seconds / due) if due > 0.0 else 0.0


def _misfit(points: Sequence[Point], curve: Curve, policy: Policy) -> float:
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
    usual = _usual(sorted(values), _TWENTIETH)
    return usual[0], usual[-1]


def undisturbed(loads: Sequence[Load], policy: Policy) -> list[Load]:
    """Return the intervals that ran steps, without those that preempted a request if enough others remain."""
    told = [load for load in loads if load.ran]
    calm = [load for load in told if not load.counts.preemptions]
    return calm if len(calm) >= policy.cost.enough_intervals else told
