"""Which of several recordings to run at each load. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import partial
from itertools import pairwise
from typing import Final

import msgspec

from specdec_exporter.comparison.byload import Line
from specdec_exporter.speculation.chance import Estimate
from specdec_exporter.speculation.policy import Policy


class Choice(msgspec.Struct, frozen=True, kw_only=True):
    """What to run at one load; ``concurrency`` is the number of requests in decode at a time, per engine.

    ``recorded_seconds`` is the sum over the recordings with speculation.
    ``fastest`` names the fastest recording, and ``best`` is its speed-up; ``null`` if none is known here.
    ``recording`` is the one to run, and ``speedup`` its speed-up; ``null`` for no speculation. It loses next to nothing
    against the fastest, has a small k, and changes little from load to load. ``unjudged`` names the recordings whose
    speed-up is not known here and which may be faster: their mean time per output token is lower, or not recorded.
    Where there is one, nothing is advised.
    """

    concurrency: float
    recorded_seconds: float
    fastest: str | None
    best: Estimate | None
    recording: str | None
    speedup: Estimate | None
    unjudged: tuple[str, ...]

    @property
    def known(self) -> bool:
        """Whether it is known what to run."""
        return self.best is not None and not self.unjudged


PLAIN: Final = Estimate(1.0, 1.0, 1.0)  # the speed-up of no speculation, which has no name


def choose(lines: Sequence[Line], plain_seconds_per_token: float | None, policy: Policy) -> tuple[Choice, ...]:
    """Choose at each load, ascending.

    The load where most was recorded takes the smallest k of those that lose at most ``k_loss_max``: it wastes least.
    From there outwards, each load runs what its neighbour does unless that loses more, or loses against no speculation.
    Else chance alone would change k from load to load.
    """
    rows = list(zip(*(each.by_load for each in lines), strict=True))
    weights = [math.fsum(at.recorded_seconds for at in row) for row in rows]
    judged = [{line.recording: at.speedup for line, at in zip(lines, row, strict=True) if at.speedup} for row in rows]
    k = {line.recording: line.num_speculative_tokens or math.inf for line in lines}
    chosen = _with_few_changes(judged, weights, k, policy.cost.k_loss_max)
    own: dict[str | None, float | None] = {line.recording: line.mean_time_per_output_token_seconds for line in lines}
    own[None] = plain_seconds_per_token
    return tuple(map(partial(_choice, own), [row[0].concurrency for row in rows], weights, judged, chosen))


def _with_few_changes(
    judged: Sequence[Mapping[str, Estimate]], weights: Sequence[float], k: Mapping[str, float], loss_max: float
) -> list[str | None]:
    """Return what to run at each load."""
    good = [_as_good(each, loss_max) for each in judged]
    chosen = [min(each, key=lambda name: k[name] if name is not None else 0.0) for each in good]
    start = max((i for i, each in enumerate(judged) if each), key=lambda i: weights[i], default=0)
    for before, here in (*pairwise(range(start, len(judged))), *pairwise(range(start, -1, -1))):
        if not judged[here] or chosen[before] in good[here]:
            chosen[here] = chosen[before]
    return chosen


def _as_good(speedups: Mapping[str, Estimate], loss_max: float) -> list[str | None]:
    """Return what loses next to nothing against the fastest, and nothing against no speculation; the fastest first."""
    values: dict[str | None, float] = {None: PLAIN.value, **{name: each.value for name, each in speedups.items()}}
    least = max((1.0 - loss_max) * max(values.values()), PLAIN.value)
    return sorted((name for name in values if values[name] >= least), key=lambda name: -values[name])


def _choice(
    seconds_per_token: Mapping[str | None, float | None],
    load: float,
    recorded_seconds: float,
    speedups: Mapping[str, Estimate],
    name: str | None,
) -> Choice:
    fastest = max(speedups, key=lambda each: speedups[each].value, default=None)
    others = (each for each in seconds_per_token if each is not None and each not in speedups)
    return Choice(
        concurrency=load,
        recorded_seconds=recorded_seconds,
        fastest=fastest,
        best=speedups[fastest] if fastest is not None else None,
        recording=name,
        speedup=speedups.get(name) if name is not None else None,
        unjudged=tuple(each for each in others if _may_beat(seconds_per_token[each], seconds_per_token[name])),
    )


def _may_beat(one: float | None, other: float | None) -> bool:
    """Whether one mean time per output token may be lower than another; ``None``: not recorded."""
    return one is None or other is None or one < other


def is_gain(found: Estimate | None) -> bool:
    """Whether a speed-up is one beyond chance."""
    return found is not None and found.low is not None and found.low > 1.0


def crossover(speedups: Sequence[tuple[float, float]]) -> float | None:
    """Return where a ratio falls below 1, interpolated between two loads in the logarithm of the load."""
    for (before, gain), (after, loss) in pairwise(speedups):
        if gain >= 1.0 > loss:
            return before * math.exp(math.log(after / before) * (gain - 1.0) / (gain - loss))
    return None


def stops_paying(choices: Sequence[Choice]) -> Estimate | None:
    """Return the concurrency at which even the fastest falls below 1; ``None`` if that is between no two loads."""
    found = [(each.concurrency, each.best) for each in choices if each.best]
    value = crossover([(load, each.value) for load, each in found])
    if value is None:
        return None
    low, high = (crossover([(load, getattr(each, end) or 0.0) for load, each in found]) for end in ("low", "high"))
    return Estimate(value, low, high)
