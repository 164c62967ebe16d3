"""How much faster each of several recordings decodes than the one without speculation, by load. Pure.

Each recording, with speculation or without, has its own line of step times. So its speed-up is known at every load near
its own ones, whatever loads the others ran at. At one request rate they differ: a faster server has fewer requests in
flight. ``concurrency`` is the number of requests in decode at a time, per engine.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Final

import msgspec

from specdec_exporter.baseline.file import Baseline
from specdec_exporter.comparison.likeness import k_of
from specdec_exporter.speculation.acceptance import Counts, ratio
from specdec_exporter.speculation.chance import Estimate, Spread
from specdec_exporter.speculation.load import Load
from specdec_exporter.speculation.policy import Policy
from specdec_exporter.speculation.steptime import StepTimes, step_times


class AtLoad(msgspec.Struct, frozen=True, kw_only=True):
    """What a recording does at one load.

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
    """One recording by load, ascending; all recordings have the same loads. ``concurrency`` is its mean."""

    recording: str
    method: str | None
    num_speculative_tokens: int | None
    mean_time_per_output_token_seconds: float | None
    concurrency: float | None
    by_load: tuple[AtLoad, ...]

    def speedup_at(self, concurrency: float) -> Estimate | None:
        """Return its speed-up at one of the loads."""
        return next((each.speedup for each in self.by_load if each.concurrency == concurrency), None)


_LEAST_POWER: Final = -2  # a load of 1/4: an engine that idles most of the time
_MOST_POWER: Final = 11  # 2048 requests in decode
# Intervals within the first of these factors of a load tell its step times if they differ by the span; else those
# farther away tell how the step time grows.
_NEAR: Final = (3.0, 9.0, 27.0)
_SPAN: Final = 2.0


def sum_by_load(recordings: Iterable[Baseline], figure: Callable[[Load], float]) -> dict[float, float]:
    """Return the sum of a figure over the intervals, by the power of two that is nearest to their load."""
    found: dict[float, float] = {}
    for load in (load for each in recordings for load in each.intervals if load.ran):
        nearest = 2.0 ** min(max(round(math.log2(load.concurrency)), _LEAST_POWER), _MOST_POWER)
        found[nearest] = found.get(nearest, 0.0) + figure(load)
    return found


def lines_by_load(plain: Baseline, candidates: Sequence[Baseline], policy: Policy) -> tuple[Line, ...]:
    """Compare each candidate with the recording without speculation, at the powers of two that were recorded.

    How many prompt tokens come with each generated one is a property of the traffic. At one load, a faster server
    generates more tokens, so it reads more prompts too. All are compared at the mean of these rates, so that none is
    far from its own.
    """
    every = (plain, *candidates)
    whole = [_sum(each) for each in every]
    prompts = math.fsum(each.counts.prompt_tokens or 0.0 for each in whole)
    per_token = ratio(prompts, math.fsum(each.tokens for each in whole)) or 0.0
    by_load = []
    for load in _grid(every, policy):
        times = [_times_near(load, each.intervals, policy) for each in every]
        rate = _prompt_rate(load, per_token * load, [each for each in times if each is not None])
        before, *after = (each.at(load, rate, policy) if each else None for each in times)
        by_load.append([_at_load(load, before, own, of, policy) for own, of in zip(after, candidates, strict=True)])
    return tuple(
        Line(
            recording=each.name,
            method=each.method,
            num_speculative_tokens=k_of(each),
            mean_time_per_output_token_seconds=seconds_per_token(each),
            concurrency=whole[i + 1].concurrency or None,
            by_load=tuple(row[i] for row in by_load),
        )
        for i, each in enumerate(candidates)
    )


def seconds_per_token(recording: Baseline) -> float | None:
    """Return the mean time per output token of the whole recording; ``None`` if it was not recorded."""
    found = recording.time_per_output_token_seconds
    return ratio(found.sum, found.count) if found else None


def _sum(recording: Baseline) -> Load:
    return sum((load for load in recording.intervals if load.ran), Load(0.0, Counts()))


def _grid(recordings: Iterable[Baseline], policy: Policy) -> list[float]:
    """Return the powers of two from the least to the most recorded load; a load has at least ``min_steps``."""
    steps = sum_by_load(recordings, lambda load: load.steps)
    powers = [round(math.log2(load)) for load, number in steps.items() if number >= policy.cost.min_steps]
    return [2.0**power for power in range(min(powers), max(powers) + 1)] if powers else []


def _times_near(concurrency: float, loads: Sequence[Load], policy: Policy) -> StepTimes | None:
    """Fit the step times of a recording to the intervals nearest to a load; to all of them if these are too few.

    Step times are flat while memory decides, and grow with the load where arithmetic does: one line over a ramp of
    loads is off by a third in the bend, and lines over a few octaves by a few percent.
    """
    for factor in _NEAR:
        near = [load for load in loads if load.ran and 1.0 / factor <= load.concurrency / concurrency <= factor]
        found = [load.concurrency for load in near]
        if found and max(found) >= _SPAN * min(found) and (times := step_times(near, policy, per_token=True)):
            return times
    return step_times(loads, policy, per_token=True)


def _prompt_rate(load: float, prompts: float, times: Sequence[StepTimes]) -> float:
    """Return the mean rate of prompts at a load, ``prompts`` tokens in the time of one generated token each."""
    lines = [each.line for each in times if each.covers(load)]
    rates = [prompts / (line.at(load, 0.0) + line.gamma * prompts) for line in lines]
    return math.fsum(rates) / len(rates) if rates else 0.0


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
        draft_cost_ratio=_cost(found, tokens, drafted) if drafted > 0.0 and not of.adaptive_verification else None,
    )


def _cost(speedup: Estimate, tokens: float, drafted: float) -> Estimate:
    """Return the cost of a draft token: a step takes tokens / speed-up times one without drafts. Never below 0."""
    found = speedup.inverse().scaled(tokens / drafted, -1.0 / drafted)
    return Estimate(max(found.value, 0.0), max(found.low or 0.0, 0.0), max(found.high or 0.0, 0.0))
