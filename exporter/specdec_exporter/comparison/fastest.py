"""Which of several recordings is fastest at each load, beside one without speculation. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise

import msgspec

from specdec_exporter.baseline.file import Baseline
from specdec_exporter.comparison.loads import cost_of, k_of
from specdec_exporter.speculation.acceptance import acceptance_ratio, ratio
from specdec_exporter.speculation.cost import MeasuredCost, StepTimes
from specdec_exporter.speculation.estimate import Estimate
from specdec_exporter.speculation.load import LoadBin
from specdec_exporter.speculation.policy import Policy


class AtLoad(msgspec.Struct, frozen=True, kw_only=True):
    """What a recording did at one load; ``concurrency`` is the mean number of requests in decode at a time, per engine.

    ``concurrency_bound`` is the upper bound of the bin of loads, ``seconds`` the wall-clock time in it, of all engines.
    ``speedup`` is tokens per step * step time without speculation / step time, and ``draft_cost_ratio`` what one more
    draft token costs over a step without drafts, both at like load; ``null`` if that load was not recorded without
    speculation.
    """

    concurrency_bound: int
    concurrency: float
    seconds: float
    acceptance_ratio: float | None
    tokens_per_step: float | None
    step_seconds: float | None
    plain_step_seconds: float | None
    draft_cost_ratio: Estimate | None
    speedup: Estimate | None


class Line(msgspec.Struct, frozen=True, kw_only=True):
    """One recording by load, ascending.

    ``stops_paying_at`` is the concurrency at which its speed-up falls below 1; ``null`` if that is between no two
    recorded loads.
    """

    recording: str
    method: str | None
    num_speculative_tokens: int | None
    mean_time_per_output_token_seconds: float | None
    by_load: tuple[AtLoad, ...]
    stops_paying_at: Estimate | None

    def at(self, bound: int) -> AtLoad | None:
        """Return what it did at a load if it was compared there, with an interval."""
        found = next((each for each in self.by_load if each.concurrency_bound == bound), None)
        speedup = found.speedup if found else None
        return None if speedup is None or speedup.low is None or speedup.high is None else found

    def speedup_at(self, bound: int) -> Estimate | None:
        """Return its speed-up at a load if it was compared there, with an interval."""
        found = self.at(bound)
        return found.speedup if found else None


class Fastest(msgspec.Struct, frozen=True, kw_only=True):
    """The fastest recording at one load; ``recording`` is ``null`` if none is faster than no speculation.

    ``speedup`` is that of the fastest one, whether or not it is a gain. ``within_chance`` names the recordings that may
    be as fast. ``unjudged`` names those that were not compared at this load and may be faster: per token they are, as
    a whole. Where there is one, nothing is recommended for this load.
    """

    concurrency_bound: int
    concurrency: float
    seconds: float
    recording: str | None
    speedup: Estimate
    within_chance: tuple[str, ...]
    unjudged: tuple[str, ...]


def line_of(recording: Baseline, plain: StepTimes, policy: Policy) -> Line:
    """Return a recording by load, beside the step times without speculation."""
    by_load = tuple(_at_load(each, cost_of([each], plain, policy)) for each in recording.by_load)
    if recording.adaptive_verification:
        by_load = tuple(msgspec.structs.replace(each, acceptance_ratio=None, draft_cost_ratio=None) for each in by_load)
    return Line(
        recording=recording.name,
        method=recording.method,
        num_speculative_tokens=k_of(recording),
        mean_time_per_output_token_seconds=seconds_per_token(recording),
        by_load=by_load,
        stops_paying_at=stops_paying([(each.concurrency, each.speedup) for each in by_load if each.speedup]),
    )


def _at_load(found: LoadBin, cost: MeasuredCost | None) -> AtLoad:
    total = found.total
    return AtLoad(
        concurrency_bound=found.bound,
        concurrency=cost.concurrency if cost else total.concurrency,
        seconds=total.seconds,
        acceptance_ratio=_finite(acceptance_ratio(total.counts.accepted_tokens, total.counts.draft_tokens)),
        tokens_per_step=cost.tokens_per_step if cost else _finite(ratio(total.tokens, total.steps)),
        step_seconds=cost.step_seconds if cost else _finite(ratio(total.step_seconds, total.steps)),
        plain_step_seconds=cost.plain_step_seconds if cost else None,
        draft_cost_ratio=cost.draft_cost_ratio if cost else None,
        speedup=cost.speedup if cost else None,
    )


def _finite(value: float | None) -> float | None:
    # Absurd counts overflow; that is no figure.
    return value if value is not None and math.isfinite(value) else None


def seconds_per_token(recording: Baseline) -> float | None:
    """Return the mean time per output token of the whole recording; ``None`` if it was not recorded."""
    found = recording.time_per_output_token_seconds
    return ratio(found.sum, found.count) if found else None


def stops_paying(speedups: Sequence[tuple[float, Estimate]]) -> Estimate | None:
    """Return the concurrency at which the speed-up falls below 1, from pairs of concurrency and speed-up.

    ``None`` if it does so between no two of the loads.
    """
    found = sorted(speedups, key=lambda each: each[0])
    value = crossover([(load, each.value) for load, each in found])
    if value is None:
        return None
    low = crossover([(load, each.low) for load, each in found if each.low is not None])
    high = crossover([(load, each.high) for load, each in found if each.high is not None])
    # With few loads, an end of the interval may lie beyond them.
    return Estimate(value, None if low is None else min(low, value), None if high is None else max(high, value))


def crossover(speedups: Sequence[tuple[float, float]]) -> float | None:
    """Return where the speed-up falls below 1, interpolated between two loads in the logarithm of the load."""
    for (before, gain), (after, loss) in pairwise(speedups):
        if gain >= 1.0 > loss and before > 0.0:
            share = (gain - 1.0) / (gain - loss)
            return before * math.exp(share * math.log(after / before))
    return None


# --- Beside each other ------------------------------------------------------------------------------------------------


def fastest_by_load(lines: Sequence[Line], plain_seconds_per_token: float | None) -> tuple[Fastest, ...]:
    """Return the fastest recording at each load at which one was compared, ascending."""
    bounds = sorted({each.concurrency_bound for line in lines for each in line.by_load})
    found = [best for bound in bounds if (best := _fastest_at(bound, lines, plain_seconds_per_token)) is not None]
    return tuple(_with_few_changes(found, {line.recording: line for line in lines}))


def _fastest_at(bound: int, lines: Sequence[Line], plain_seconds_per_token: float | None) -> Fastest | None:
    judged = [(line, at, at.speedup) for line in lines if (at := line.at(bound)) and at.speedup]
    if not judged:
        return None
    best, at_best, speedup = max(judged, key=lambda each: each[2].value)
    gains = speedup.value > 1.0
    seconds = best.mean_time_per_output_token_seconds if gains else plain_seconds_per_token
    names = [line.recording for line, _, _ in judged]
    return Fastest(
        concurrency_bound=bound,
        concurrency=at_best.concurrency,
        seconds=math.fsum(at.seconds for _, at, _ in judged),
        recording=best.recording if gains else None,
        speedup=speedup,
        within_chance=tuple(
            line.recording for line, _, other in judged if line is not best and _may_be_as_fast(other, speedup)
        ),
        unjudged=tuple(line.recording for line in lines if line.recording not in names and _may_beat(line, seconds)),
    )


def _may_be_as_fast(other: Estimate, best: Estimate) -> bool:
    return (other.high or 0.0) >= (best.low or 0.0)


def _may_beat(line: Line, seconds: float | None) -> bool:
    """Whether a recording may be faster per token than ``seconds``, as far as its mean over all loads tells."""
    own = line.mean_time_per_output_token_seconds
    return own is None or seconds is None or own < seconds


def _with_few_changes(found: Sequence[Fastest], lines: Mapping[str, Line]) -> Iterator[Fastest]:
    """Let neighbouring loads share a recording unless it is slower at one of them beyond chance.

    Otherwise chance alone makes the best k rise and fall from load to load.
    """
    alike: list[Fastest] = []
    shared: set[str] = set()
    for each in found:
        possible = {each.recording, *each.within_chance} if each.recording and not each.unjudged else set()
        names = {name for name in possible if name is not None}
        if not shared & names:
            yield from _with_one(alike, shared, lines)
            alike, shared = [], names
        alike.append(each)
        shared = shared & names
    yield from _with_one(alike, shared, lines)


def _with_one(alike: Sequence[Fastest], shared: set[str], lines: Mapping[str, Line]) -> Iterator[Fastest]:
    def gain(name: str) -> float:
        speedups = (lines[name].speedup_at(each.concurrency_bound) for each in alike)
        return math.fsum(math.log(found.value) for found in speedups if found)

    name = max(sorted(shared), key=gain, default=None)
    for each in alike:
        speedup = lines[name].speedup_at(each.concurrency_bound) if name else None
        if name is None or speedup is None or name == each.recording:
            yield each
            continue
        others = tuple(other for other in (each.recording, *each.within_chance) if other and other != name)
        yield msgspec.structs.replace(each, recording=name, speedup=speedup, within_chance=others)
