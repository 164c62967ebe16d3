"""Which of several recordings to run at each load. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Final

import msgspec

from specdec_exporter.comparison.byload import Line
from specdec_exporter.speculation.chance import Estimate
from specdec_exporter.speculation.policy import Policy


class Choice(msgspec.Struct, frozen=True, kw_only=True):
    """What to run at one load; ``concurrency`` is the number of requests in decode at a time, per engine.

    ``step_seconds``: for how long the recordings with speculation ran at about this load, request-steps added up.
    ``fastest`` names the fastest recording, and ``best`` is its speed-up; ``null`` if none is known here.
    ``recording`` is the one to run, and ``speedup`` its speed-up; ``null`` for no speculation. It loses next to nothing
    against the fastest, has a small k, and changes little from load to load. ``unjudged`` names the recordings whose
    speed-up is not known here and which may be faster: their mean time per output token is lower, or not recorded.
    Where there is one, nothing is advised.
    """

    concurrency: float
    step_seconds: float
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


def choose(
    lines: Sequence[Line], step_seconds: Mapping[float, float], plain_seconds_per_token: float | None, policy: Policy
) -> tuple[Choice, ...]:
    """Choose at each load, ascending; ``step_seconds`` are by load.

    The load where most was recorded takes the smallest k of those that lose at most ``k_loss_max``: it wastes least.
    From there outwards, each load runs what its neighbour does unless that loses more, or loses against no speculation.
    Else chance alone would change k from load to load.
    """
    loads = [each.concurrency for each in lines[0].by_load]
    weights = [step_seconds.get(load, 0.0) for load in loads]
    judged = [{line.recording: found for line in lines if (found := line.speedup_at(load))} for load in loads]
    k: dict[str | None, float] = {line.recording: line.num_speculative_tokens or math.inf for line in lines}
    good = [_as_good(each, policy.cost.k_loss_max) for each in judged]
    chosen = [min(each, key=lambda name: k.get(name, 0.0)) for each in good]
    start = max((i for i, each in enumerate(judged) if each), key=lambda i: weights[i], default=0)
    for before, here in (*pairwise(range(start, len(loads))), *pairwise(range(start, -1, -1))):
        if not judged[here] or chosen[before] in good[here]:
            chosen[here] = chosen[before]
    own: dict[str | None, float | None] = {line.recording: line.mean_time_per_output_token_seconds for line in lines}
    own[None] = plain_seconds_per_token
    choices = []
    for load, weight, speedups, name in zip(loads, weights, judged, chosen, strict=True):
        fastest = max(speedups, key=lambda each: speedups[each].value, default=None)
        unjudged = (line.recording for line in lines if line.recording not in speedups)
        choices.append(
            Choice(
                concurrency=load,
                step_seconds=weight,
                fastest=fastest,
                best=speedups[fastest] if fastest is not None else None,
                recording=name,
                speedup=speedups.get(name) if name is not None else None,
                unjudged=tuple(each for each in unjudged if _may_beat(own[each], own[name])),
            )
        )
    return tuple(choices)


def _as_good(speedups: Mapping[str, Estimate], loss_max: float) -> list[str | None]:
    """Return what loses next to nothing against the fastest, and nothing against no speculation; the fastest first."""
    values: dict[str | None, float] = {None: PLAIN.value, **{name: each.value for name, each in speedups.items()}}
    least = max((1.0 - loss_max) * max(values.values()), PLAIN.value)
    return sorted((name for name in values if values[name] >= least), key=lambda name: -values[name])


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
