"""How much faster each of several recordings decodes than the one without speculation, by load. Pure.

Each recording, with speculation or without, has its own line of step times. So its speed-up is known at every load near
its own ones, whatever loads the others ran at. At one request rate they differ: a faster server has fewer requests in
flight. ``concurrency`` is the number of requests in decode at a time, per engine.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple

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

    ``recorded_seconds``: for how long it ran at about this load, the seconds of all request-steps. ``speedup`` is
    seconds per token without speculation / its own, at this load and at one rate of prompts for all recordings;
    ``null`` where it or its interval is not known.
    """

    concurrency: float
    recorded_seconds: float
    speedup: Estimate | None


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


_NOTHING: Final = Load(0.0, Counts())
_LEAST_POWER: Final = -2  # a load of 1/4: an engine that idles most of the time
_MOST_POWER: Final = 11  # 2048 requests in decode


def lines_by_load(plain: Baseline, candidates: Sequence[Baseline], policy: Policy) -> tuple[Line, ...]:
    """Compare each candidate with the recording without speculation, at about each power of two that was recorded.

    The load is the mean of all intervals around that power: what clients of a fixed number give is met, not missed.
    How many prompt tokens come with each generated one is a property of the traffic. At one load, a faster server
    generates more tokens, so it reads more prompts too. All are compared at the mean of these rates, so that none is
    far from its own.
    """
    every = [_Recorded.of(each, policy) for each in (plain, *candidates)]
    prompts = math.fsum(each.whole.counts.prompt_tokens or 0.0 for each in every)
    per_token = ratio(prompts, math.fsum(each.whole.tokens for each in every)) or 0.0
    by_load = [_row(power, load, per_token * load, every, policy) for power, load in _grid(every, policy)]
    return tuple(
        Line(
            recording=each.recording.name,
            method=each.recording.method,
            num_speculative_tokens=k_of(each.recording),
            mean_time_per_output_token_seconds=seconds_per_token(each.recording),
            concurrency=each.whole.concurrency or None,
            by_load=tuple(row[i] for row in by_load),
        )
        for i, each in enumerate(every[1:])
    )


def seconds_per_token(recording: Baseline) -> float | None:
    """Return the mean time per output token of the whole recording; ``None`` if it was not recorded."""
    found = recording.time_per_output_token_seconds
    return ratio(found.sum, found.count) if found else None


class _Recorded(NamedTuple):
    """A recording with its step times, and the sums of its intervals: of all, and of those around each power of two."""

    recording: Baseline
    times: StepTimes | None
    whole: Load
    octaves: Mapping[int, Load]

    @classmethod
    def of(cls, recording: Baseline, policy: Policy) -> _Recorded:
        found: dict[int, Load] = {}
        for load in recording.intervals:
            if load.ran:
                power = min(max(round(math.log2(load.concurrency)), _LEAST_POWER), _MOST_POWER)
                found[power] = found.get(power, _NOTHING) + load
        times = step_times(recording.intervals, policy, per_token=True)
        return cls(recording, times, sum(found.values(), _NOTHING), found)


def _grid(every: Sequence[_Recorded], policy: Policy) -> Iterator[tuple[int, float]]:
    """Yield powers of two with their loads, from the least to the most that has at least ``min_steps``."""
    powers = {power for each in every for power in each.octaves}
    loads = {power: sum((each.octaves.get(power, _NOTHING) for each in every), _NOTHING) for power in powers}
    recorded = {power: load.concurrency for power, load in loads.items() if load.steps >= policy.cost.min_steps}
    for power in range(min(recorded), max(recorded) + 1) if recorded else ():
        yield power, recorded.get(power, 2.0**power)


def _row(power: int, load: float, prompts: float, every: Sequence[_Recorded], policy: Policy) -> list[AtLoad]:
    """Return what each candidate does at a load, ``prompts`` tokens are read in the time of a token."""
    rate = _prompt_rate(load, prompts, [each.times for each in every if each.times])
    plain, *others = (each.times.at(load, rate, policy) if each.times else None for each in every)
    return [
        AtLoad(
            concurrency=load,
            recorded_seconds=each.octaves.get(power, _NOTHING).step_seconds,
            speedup=_speedup(plain, own, policy),
        )
        for own, each in zip(others, every[1:], strict=True)
    ]


def _speedup(plain: Spread | None, own: Spread | None, policy: Policy) -> Estimate | None:
    if plain is None or own is None:
        return None
    found = (plain / own).of_two_runs(policy.chance)
    return None if found.low is None or found.high is None else found


def _prompt_rate(load: float, prompts: float, times: Sequence[StepTimes]) -> float:
    """Return the mean rate of prompts of the recordings near a load."""
    lines = [each.line for each in times if each.covers(load)]
    rates = [prompts / (line.at(load, 0.0) + line.gamma * prompts) for line in lines]
    return math.fsum(rates) / len(rates) if rates else 0.0
