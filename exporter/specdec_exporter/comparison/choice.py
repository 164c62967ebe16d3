"""Which of several recordings to run at each load. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import pairwise

import msgspec

from specdec_exporter.comparison.byload import Line
from specdec_exporter.speculation.chance import Estimate
from specdec_exporter.speculation.policy import Policy


class Choice(msgspec.Struct, frozen=True, kw_only=True):
    """What to run at one load; ``concurrency`` is the number of requests in decode at a time, per engine.

    ``step_seconds``: for how long the recordings with speculation ran at about this load, request-steps added up.
    ``fastest`` names the fastest recording and ``speedup`` is its speed-up; ``null`` if none is known here.
    ``recording`` is the one to run, ``null`` for none: one that loses next to nothing against the fastest, with a small
    k and with few changes from load to load. ``unjudged`` names the recordings whose speed-up is not known here and
    which may be faster: their mean time per output token is lower, or not recorded. Then nothing is advised here.
    """

    concurrency: float
    step_seconds: float
    fastest: str | None
    speedup: Estimate | None
    recording: str | None
    unjudged: tuple[str, ...]

    @property
    def known(self) -> bool:
        """Whether it is known what to run."""
        return self.speedup is not None and not self.unjudged


def is_gain(found: Estimate | None) -> bool:
    """Whether a speed-up is one beyond chance."""
    return found is not None and found.low is not None and found.low > 1.0


def choose(
    lines: Sequence[Line], step_seconds: Mapping[float, float], plain_seconds_per_token: float | None, policy: Policy
) -> tuple[Choice, ...]:
    """Choose at each load, ascending; ``step_seconds`` are by load.

    The load that was recorded most decides first. Its neighbours run the same recording unless that loses more than
    ``k_loss_max`` there; else chance alone would change k from load to load.
    """
    loads = [each.concurrency for each in lines[0].by_load]
    judged = [{line: found for line in lines if (found := line.speedup_at(load))} for load in loads]
    chosen = _with_few_changes(judged, [step_seconds.get(load, 0.0) for load in loads], policy.cost.k_loss_max)
    found = []
    for load, speedups, line in zip(loads, judged, chosen, strict=True):
        fastest = max(speedups, key=lambda each: speedups[each].value, default=None)
        seconds = line.mean_time_per_output_token_seconds if line else plain_seconds_per_token
        found.append(
            Choice(
                concurrency=load,
                step_seconds=step_seconds.get(load, 0.0),
                fastest=fastest.recording if fastest else None,
                speedup=speedups[fastest] if fastest else None,
                recording=line.recording if line else None,
                unjudged=tuple(each.recording for each in lines if each not in speedups and _may_beat(each, seconds)),
            )
        )
    return tuple(found)


def most_recorded(choices: Sequence[Choice]) -> Choice | None:
    """Return the load that was recorded most of those at which a speed-up is known."""
    compared = [each for each in choices if each.speedup]
    return max(compared, key=lambda each: (each.step_seconds, each.concurrency), default=None)


_Speedups = Mapping[Line, Estimate]


def _with_few_changes(judged: Sequence[_Speedups], weights: Sequence[float], loss_max: float) -> list[Line | None]:
    """Return what to run at each load, from the load with the largest weight outwards."""
    good = [_as_good(each, loss_max) for each in judged]
    chosen: list[Line | None] = [None] * len(judged)
    start = max((i for i, each in enumerate(judged) if each), key=lambda i: (weights[i], i), default=None)
    if start is None:
        return chosen
    chosen[start] = _pick(good[start], judged[start])
    outwards = [*pairwise(range(start, len(judged))), *pairwise(range(start, -1, -1))]
    for before, here in outwards:
        keeps = chosen[before] in good[here] or not judged[here]
        chosen[here] = chosen[before] if keeps else _pick(good[here], judged[here])
    return chosen


def _as_good(speedups: _Speedups, loss_max: float) -> list[Line | None]:
    """Return the recordings that lose next to nothing, none of them slower than no speculation, which is ``None``."""
    least = (1.0 - loss_max) * max((1.0, *(each.value for each in speedups.values())))
    found: list[Line | None] = [line for line, each in speedups.items() if each.value >= max(least, 1.0)]
    return [*found, None] if least <= 1.0 else found


def _pick(good: Sequence[Line | None], speedups: _Speedups) -> Line | None:
    """Return the smallest k, which wastes least; of those that gain beyond chance, if there are any."""

    def order(line: Line | None) -> tuple[bool, float, float]:
        if line is None:
            return False, 0.0, 0.0
        return not is_gain(speedups[line]), line.num_speculative_tokens or math.inf, -speedups[line].value

    return min(good, key=order)


def _may_beat(line: Line, seconds: float | None) -> bool:
    """Whether a recording may be faster per token than ``seconds``, as far as its mean over all loads tells."""
    own = line.mean_time_per_output_token_seconds
    return own is None or seconds is None or own < seconds


def crossover(speedups: Sequence[tuple[float, float]]) -> float | None:
    """Return where the speed-up falls below 1, interpolated between two loads in the logarithm of the load."""
    for (before, gain), (after, loss) in pairwise(speedups):
        if gain >= 1.0 > loss:
            return before * (after / before) ** ((gain - 1.0) / (gain - loss))
    return None


def stops_paying(choices: Sequence[Choice]) -> Estimate | None:
    """Return the concurrency at which even the fastest falls below 1; ``None`` if that is between no two loads."""
    found = [(each.concurrency, each.speedup) for each in choices if each.speedup]
    value = crossover([(load, each.value) for load, each in found])
    if value is None:
        return None
    # With few loads, an end of the interval may lie beyond them.
    return Estimate(
        value,
        crossover([(load, each.low or 0.0) for load, each in found]),
        crossover([(load, each.high or each.value) for load, each in found]),
    )
