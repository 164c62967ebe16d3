"""Which of several recordings to run at each load: how much faster each decodes than without speculation. Pure.

Each recording, with speculation or without, has its own line of step times. So its speed-up is known at every load near
its own ones, whatever loads the others ran at. At one request rate they differ: a faster server has fewer requests in
flight. ``concurrency`` is the number of requests in decode at a time, per engine.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import chain, pairwise
from typing import Final

import msgspec

from specdec_exporter.baseline.file import Baseline
from specdec_exporter.speculation.acceptance import Counts, ratio
from specdec_exporter.speculation.chance import Estimate
from specdec_exporter.speculation.load import Load
from specdec_exporter.speculation.policy import Policy
from specdec_exporter.speculation.steptime import StepTimes, step_times


class AtLoad(msgspec.Struct, frozen=True, kw_only=True):
    """What recordings with speculation do at one load, and which to run.

    ``recorded_seconds``: for how long they ran at about this load, the seconds of all request-steps. ``speedups``, by
    recording: seconds per token without speculation / its own, at this load and at one rate of prompts for all; without
    those whose speed-up or its interval is not known. ``recording`` is the one to run; ``null`` for no speculation.
    ``unjudged`` names recordings that are not known here and may be faster: their mean time per output token is lower,
    or not recorded. Where there is one, nothing is advised.
    """

    concurrency: float
    recorded_seconds: float
    speedups: dict[str, Estimate]
    recording: str | None = None
    unjudged: tuple[str, ...] = ()

    @property
    def known(self) -> bool:
        """Whether it is known what to run."""
        return bool(self.speedups) and not self.unjudged

    @property
    def fastest(self) -> str | None:
        """The recording with the largest speed-up."""
        return max(self.speedups, key=lambda name: self.speedups[name].value, default=None)

    def speedup(self, name: str | None) -> float:
        """Return the speed-up of a recording; no speculation, ``None``, has 1."""
        return 1.0 if name is None else self.speedups[name].value


_NOTHING: Final = Load(0.0, Counts())
_LEAST_POWER: Final = -2  # a load of 1/4: an engine that idles most of the time
_MOST_POWER: Final = 11  # 2048 requests in decode


def speedups_by_load(plain: Baseline, candidates: Sequence[Baseline], policy: Policy) -> list[AtLoad]:
    """Compare each candidate with the recording without speculation, at about each power of two that was recorded.

    The load is the mean of all intervals around that power: what clients of a fixed number give is met, not missed.
    How many prompt tokens come with each generated one is a property of the traffic. At one load, a faster server
    generates more tokens, so it reads more prompts too. All are compared at the mean of these rates, so that none is
    far from its own.
    """
    parts = [_by_power(each) for each in (plain, *candidates)]
    loads = {power: sum((each.get(power, _NOTHING) for each in parts), _NOTHING) for power in sorted({*chain(*parts)})}
    whole = sum(loads.values(), _NOTHING)
    per_token = ratio(whole.counts.computed_prompt_tokens, whole.tokens) or 0.0
    times = {each.name: step_times(each.intervals, policy, per_token=True) for each in (plain, *candidates)}
    return [
        AtLoad(
            concurrency=load.concurrency,
            recorded_seconds=math.fsum(each.get(power, _NOTHING).step_seconds for each in parts[1:]),
            speedups=_speedups(load.concurrency, per_token * load.concurrency, times, policy),
        )
        for power, load in loads.items()
        if load.steps >= policy.cost.min_steps
    ]


def _by_power(recording: Baseline) -> dict[int, Load]:
    """Return the sums of the intervals around each power of two."""
    found: dict[int, Load] = {}
    for load in recording.intervals:
        if load.ran:
            power = min(max(round(math.log2(load.concurrency)), _LEAST_POWER), _MOST_POWER)
            found[power] = found.get(power, _NOTHING) + load
    return found


def _speedups(
    load: float, prompts: float, times: Mapping[str, StepTimes | None], policy: Policy
) -> dict[str, Estimate]:
    """Return the speed-ups over the first one at a load, where ``prompts`` tokens are read in the time of a token."""
    near = [each.line for each in times.values() if each and each.covers(load)]
    rates = [prompts / (line.at(load, 0.0) + line.gamma * prompts) for line in near]
    rate = math.fsum(rates) / len(rates) if rates else 0.0
    plain, *others = ((name, each.at(load, rate, policy) if each else None) for name, each in times.items())
    found = {name: (plain[1] / own).of_two_runs(policy.chance) for name, own in others if plain[1] and own}
    return {name: each for name, each in found.items() if each.low is not None and each.high is not None}


def choose(loads: Sequence[AtLoad], plain: Baseline, candidates: Sequence[Baseline], policy: Policy) -> list[AtLoad]:
    """Choose at each load, ascending.

    The load where most was recorded takes the smallest k of those that lose at most ``k_loss_max``: it wastes least.
    From there outwards, each load runs what its neighbour does unless that loses more, or loses against no speculation.
    Else chance alone would change k from load to load.
    """
    by_name: dict[str | None, Baseline] = {None: plain, **{each.name: each for each in candidates}}
    ks = {name: each.k or (0.0 if each is plain else math.inf) for name, each in by_name.items()}
    good = [_as_good(each, policy.cost.k_loss_max) for each in loads]
    chosen = [min(names, key=ks.__getitem__) for names in good]
    start = max(range(len(loads)), key=lambda i: (bool(loads[i].speedups), loads[i].recorded_seconds), default=0)
    for before, here in (*pairwise(range(start, len(loads))), *pairwise(range(start, -1, -1))):
        if not loads[here].speedups or chosen[before] in good[here]:
            chosen[here] = chosen[before]
    seconds = {name: _seconds_per_token(each) for name, each in by_name.items()}
    return [
        msgspec.structs.replace(each, recording=name, unjudged=_unjudged(each, name, seconds))
        for each, name in zip(loads, chosen, strict=True)
    ]


def _unjudged(at: AtLoad, chosen: str | None, seconds: Mapping[str | None, float]) -> tuple[str, ...]:
    """Return the recordings that are not known at a load and may be faster than the chosen one."""
    limit = seconds[chosen] or math.inf
    return tuple(name for name in seconds if name is not None and name not in at.speedups and seconds[name] < limit)


def _as_good(at: AtLoad, loss_max: float) -> list[str | None]:
    """Return what loses next to nothing against the fastest, and nothing against no speculation; the fastest first."""
    names = sorted((None, *at.speedups), key=at.speedup, reverse=True)
    return [name for name in names if at.speedup(name) >= max((1.0 - loss_max) * at.speedup(names[0]), 1.0)]


def _seconds_per_token(recording: Baseline) -> float:
    """Return the mean time per output token of the whole recording; 0 if it was not recorded."""
    found = recording.time_per_output_token_seconds
    return (ratio(found.sum, found.count) if found else None) or 0.0


def crossover(speedups: Sequence[tuple[float, float]]) -> float | None:
    """Return where a ratio falls below 1, interpolated between two loads in the logarithm of the load."""
    for (before, gain), (after, loss) in pairwise(speedups):
        if gain >= 1.0 > loss:
            return before * math.exp(math.log(after / before) * (gain - 1.0) / (gain - loss))
    return None


def stops_paying(loads: Sequence[AtLoad]) -> Estimate | None:
    """Return the concurrency at which even the fastest falls below 1; ``None`` if that is between no two loads."""
    found = [(each.concurrency, each.speedups[each.fastest]) for each in loads if each.fastest is not None]
    value, low, high = (
        crossover([(load, getattr(each, end)) for load, each in found]) for end in ("value", "low", "high")
    )
    return None if value is None else Estimate(value, low, high)
