"""Which of several recordings to run at each load: how much faster each decodes than without speculation. Pure.

At each load, each recording is compared as :func:`~specdec_exporter.speculation.speedup.measure` compares the whole of
it, by its intervals around that load. At one request rate they differ: a faster server has fewer requests in flight.
Then the comparison at the same requests per second says which to run. ``concurrency`` is the number of requests in
decode at a time, per engine.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import chain, pairwise
from types import MappingProxyType
from typing import Final

import msgspec

from specdec_exporter.baseline.file import Baseline
from specdec_exporter.comparison.compare import Comparison
from specdec_exporter.speculation.acceptance import ratio
from specdec_exporter.speculation.chance import Estimate
from specdec_exporter.speculation.load import Load
from specdec_exporter.speculation.measured import Compared
from specdec_exporter.speculation.policy import Policy
from specdec_exporter.speculation.speedup import measure
from specdec_exporter.speculation.steptime import StepTimes, step_times, total


class AtLoad(msgspec.Struct, frozen=True, kw_only=True):
    """What recordings with speculation do at one load, and which to run.

    ``compared``: what is alike, the load (or the number of clients), or the requests per second; in the latter case
    ``concurrency`` is that of the recording without speculation. ``recorded_seconds``: for how long all recordings ran
    at about this load, in engine-seconds. ``speedups`` of decoding, by recording; without those whose speed-up is not
    known. ``recording`` is the one to run; ``null`` for no speculation. ``unjudged`` names recordings that may be
    faster and are not known here: their mean time per output token is lower, or not recorded. Where there is one,
    nothing is advised.
    """

    compared: Compared = "like_load"
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


_LEAST_POWER: Final = -2  # a load of 1/4: an engine that idles most of the time
_MOST_POWER: Final = 11  # 2048 requests in decode
_WIDER: Final = 2.1  # loads around one where too few intervals ran at that one


def speedups_by_load(plain: Baseline, candidates: Sequence[Baseline], policy: Policy) -> list[AtLoad]:
    """Compare each candidate with the recording without speculation, at about each power of two that was recorded.

    The load is the mean of all intervals around that power: what clients of a fixed number give is met, not missed.
    """
    without, having = _by_power(plain), [(candidate, _by_power(candidate)) for candidate in candidates]
    parts = [without, *(part for _, part in having)]
    times, found = step_times(plain.intervals, policy), []
    for power in sorted({*chain(*parts)}):
        around = total([load for part in parts for load in part.get(power, ())])
        if around.steps < policy.cost.min_steps:
            continue
        speedups = {
            candidate.name: known
            for candidate, part in having
            if times and (known := _speedup(candidate, part.get(power, ()), times, policy))
        }
        found.append(AtLoad(concurrency=around.concurrency, recorded_seconds=around.seconds, speedups=speedups))
    return found


def _by_power(recording: Baseline) -> dict[int, list[Load]]:
    """Return the intervals around each power of two."""
    found: dict[int, list[Load]] = {}
    for load in recording.intervals:
        if load.ran:
            power = min(max(round(math.log2(load.concurrency)), _LEAST_POWER), _MOST_POWER)
            found.setdefault(power, []).append(load)
    return found


def _speedup(recording: Baseline, own: Sequence[Load], plain: StepTimes, policy: Policy) -> Estimate | None:
    """Return the speed-up of a recording by its ``own`` intervals at a load; by those around it where they are few."""
    if not own:
        return None
    if len(own) < policy.chance.fewest_batches:
        here = total(own).concurrency
        own = [each for each in recording.intervals if each.ran and 1.0 / _WIDER < each.concurrency / here < _WIDER]
    found = measure(own, plain, policy)
    return found.at_like_load or found.closed_loop


def at_the_same_arrivals(plain: Baseline, comparisons: Sequence[Comparison]) -> list[AtLoad]:
    """Return what recordings do at the same requests per second; nothing where that is not known of any."""
    found = {each.candidate.name: each.speedup.same_arrivals for each in comparisons}
    whole = total([load for load in plain.intervals if load.ran])
    known = {name: each for name, each in found.items() if each is not None}
    if not known:
        return []
    return [
        AtLoad(compared="same_arrivals", concurrency=whole.concurrency, recorded_seconds=whole.seconds, speedups=known)
    ]


def choose(
    loads: Sequence[AtLoad],
    plain: Baseline,
    candidates: Sequence[Baseline],
    policy: Policy,
    whole: Mapping[str, Estimate | None] = MappingProxyType({}),
) -> list[AtLoad]:
    """Choose at each load, ascending; ``whole`` has the speed-up of each whole recording, where it is known.

    The load where most was recorded takes the smallest k of those that lose at most ``k_loss_max``: it wastes least.
    Those that are as fast there but for what two runs differ by are told apart by their whole recordings. From there
    outwards, each load runs what its neighbour does unless that loses more, or loses against no speculation. Else
    chance alone would change k from load to load.
    """
    by_name: dict[str | None, Baseline] = {None: plain, **{each.name: each for each in candidates}}
    ks = {name: each.k or (0.0 if each is plain else math.inf) for name, each in by_name.items()}
    good = [_as_good(each, policy.cost.k_loss_max) for each in loads]
    chosen = [min(names, key=ks.__getitem__) for names in good]
    start = max(range(len(loads)), key=lambda i: (bool(loads[i].speedups), loads[i].recorded_seconds), default=0)
    if loads:
        chosen[start] = min(_told_apart(loads[start], whole, policy), key=ks.__getitem__)
    for before, here in (*pairwise(range(start, len(loads))), *pairwise(range(start, -1, -1))):
        if not loads[here].speedups or chosen[before] in good[here]:
            chosen[here] = chosen[before]
    seconds = {name: _seconds_per_token(each) for name, each in by_name.items()}
    return [
        msgspec.structs.replace(each, recording=name, unjudged=_unjudged(each, name, seconds))
        for each, name in zip(loads, chosen, strict=True)
    ]


def _told_apart(at: AtLoad, whole: Mapping[str, Estimate | None], policy: Policy) -> list[str | None]:
    """Return what loses next to nothing by the whole recordings, of what is about as fast as the fastest here."""
    loss_max = policy.cost.k_loss_max
    if at.fastest is None or at.speedup(at.fastest) < 1.0:
        return [None]
    least = max(at.speedup(at.fastest) / policy.latency.slowdown_min, 1.0)
    by_whole = {name: found.value for name in at.speedups if at.speedup(name) >= least and (found := whole.get(name))}
    if at.fastest not in by_whole:
        return _as_good(at, loss_max)
    most = max(by_whole.values())
    return [name for name, value in by_whole.items() if value >= (1.0 - loss_max) * most]


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
