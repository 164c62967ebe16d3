"""How much faster each of several recordings decodes than the one without speculation, by load. Pure.

Each recording, with speculation or without, has its own line of step times. So its speed-up is known at every load near
its own ones, whatever loads the others ran at. At one request rate they differ: a faster server has fewer requests in
flight.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Final, NamedTuple

import msgspec

from specdec_exporter.baseline.file import Baseline
from specdec_exporter.comparison.loads import k_of
from specdec_exporter.speculation.acceptance import ratio
from specdec_exporter.speculation.chance import Estimate, Spread
from specdec_exporter.speculation.load import Load
from specdec_exporter.speculation.policy import Policy
from specdec_exporter.speculation.steptime import StepTimes, step_times


class AtLoad(msgspec.Struct, frozen=True, kw_only=True):
    """What a recording does at one load: ``concurrency`` is the number of requests in decode at a time, per engine.

    ``speedup`` is seconds per token without speculation / its own, at this load and at one rate of prompts for all
    recordings. ``tokens_per_step`` is of its intervals between half and twice this load. ``step_seconds`` follows from
    it; ``plain_step_seconds`` is a step without speculation. ``draft_cost_ratio`` is what one more draft token costs
    over such a step. All are ``null`` where the speed-up or its interval is not known.
    """

    concurrency: float
    speedup: Estimate | None = None
    tokens_per_step: float | None = None
    step_seconds: float | None = None
    plain_step_seconds: float | None = None
    draft_cost_ratio: Estimate | None = None


class Line(msgspec.Struct, frozen=True, kw_only=True):
    """One recording by load, ascending; all recordings have the same loads.

    ``least_concurrency`` and ``most_concurrency`` are the loads that it ran at; ``null`` if its step times tell nothing.
    """

    recording: str
    method: str | None
    num_speculative_tokens: int | None
    mean_time_per_output_token_seconds: float | None
    least_concurrency: float | None
    most_concurrency: float | None
    by_load: tuple[AtLoad, ...]

    def speedup_at(self, concurrency: float) -> Estimate | None:
        """Return its speed-up at a load of the grid."""
        return next((each.speedup for each in self.by_load if each.concurrency == concurrency), None)


_LEAST_POWER: Final = -2  # a load of 1/4: an engine that idles most of the time
_MOST_POWER: Final = 11  # 2048 requests in decode


def nearest(load: Load) -> float:
    """Return the load of the grid, a power of two, that an interval is nearest to."""
    return 2.0 ** min(max(round(math.log2(load.concurrency)), _LEAST_POWER), _MOST_POWER)


def sum_by_load(recordings: Iterable[Baseline], figure: Callable[[Load], float]) -> dict[float, float]:
    """Return the sum of a figure over the intervals at about each load of the grid."""
    found: dict[float, float] = {}
    for load in (load for each in recordings for load in each.intervals if load.ran):
        found[nearest(load)] = found.get(nearest(load), 0.0) + figure(load)
    return found


def _grid(recordings: Iterable[Baseline], policy: Policy) -> list[float]:
    """Return the powers of two from the least to the most recorded load; a load has at least ``min_steps``."""
    steps = sum_by_load(recordings, lambda load: load.steps)
    powers = [round(math.log2(load)) for load, number in steps.items() if number >= policy.cost.min_steps]
    return [2.0**power for power in range(min(powers), max(powers) + 1)] if powers else []


class _Point(NamedTuple):
    """A load, and the prompt tokens per second at which all recordings are compared there."""

    concurrency: float
    prompt_rate: float


def lines_by_load(plain: Baseline, candidates: Sequence[Baseline], policy: Policy) -> tuple[Line, ...]:
    """Compare each candidate with the recording without speculation at each load.

    How many prompt tokens come with each generated one is a property of the traffic. At one load, a faster server
    generates more tokens, so it reads more prompts too. All are compared at the mean of these rates, so that none is
    far from its own.
    """
    every = (plain, *candidates)
    times = [step_times(each.intervals, policy, per_token=True) for each in every]
    intervals = [load for each in every for load in each.intervals]
    prompts = math.fsum(load.counts.prompt_tokens or 0.0 for load in intervals)
    per_token = ratio(prompts, math.fsum(load.tokens for load in intervals)) or 0.0
    points = [_Point(load, _prompt_rate(load, per_token, times)) for load in _grid(every, policy)]
    return tuple(_line(each, own, times[0], points, policy) for each, own in zip(candidates, times[1:], strict=True))


def _prompt_rate(load: float, per_token: float, times: Sequence[StepTimes | None]) -> float:
    """Return the mean rate of prompts that the recordings near a load have there."""
    prompts = per_token * load  # in the time of one token
    lines = [each.line for each in times if each is not None and each.covers(load)]
    rates = [prompts / (line.at(load, 0.0) + line.gamma * prompts) for line in lines]
    return math.fsum(rates) / len(rates) if rates else 0.0


def _line(
    recording: Baseline, own: StepTimes | None, plain: StepTimes | None, points: Sequence[_Point], policy: Policy
) -> Line:
    return Line(
        recording=recording.name,
        method=recording.method,
        num_speculative_tokens=k_of(recording),
        mean_time_per_output_token_seconds=seconds_per_token(recording),
        least_concurrency=own.loads[0] if own else None,
        most_concurrency=own.loads[1] if own else None,
        by_load=tuple(
            _at_load(
                point.concurrency,
                plain.at(*point, policy) if plain else None,
                own.at(*point, policy) if own else None,
                recording,
                policy,
            )
            for point in points
        ),
    )


def _at_load(concurrency: float, plain: Spread | None, own: Spread | None, of: Baseline, policy: Policy) -> AtLoad:
    found = (plain / own).of_two_runs(policy.chance) if plain and own else None
    if plain is None or own is None or found is None or found.low is None or found.high is None:
        return AtLoad(concurrency=concurrency)
    ran = [load for load in of.intervals if load.ran]
    near = [load for load in ran if concurrency / 2.0 <= load.concurrency <= 2.0 * concurrency] or ran
    steps = math.fsum(load.steps for load in near)
    tokens = math.fsum(load.tokens for load in near) / steps
    drafted = math.fsum(load.counts.draft_tokens or 0.0 for load in near) / steps
    return AtLoad(
        concurrency=concurrency,
        speedup=found,
        tokens_per_step=tokens,
        step_seconds=own.value * tokens,
        plain_step_seconds=plain.value,
        draft_cost_ratio=None if of.adaptive_verification else _cost(found, tokens, drafted),
    )


def _cost(speedup: Estimate, tokens: float, drafted: float) -> Estimate | None:
    """Return the cost of a draft token: a step takes tokens / speed-up times one without drafts. Never below 0."""
    if not drafted > 0.0:
        return None
    found = speedup.inverse().scaled(tokens / drafted, -1.0 / drafted)
    return Estimate(max(found.value, 0.0), max(found.low or 0.0, 0.0), max(found.high or 0.0, 0.0))


def seconds_per_token(recording: Baseline) -> float | None:
    """Return the mean time per output token of the whole recording; ``None`` if it was not recorded."""
    found = recording.time_per_output_token_seconds
    return ratio(found.sum, found.count) if found else None
