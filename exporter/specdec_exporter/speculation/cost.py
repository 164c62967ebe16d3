"""What a draft costs here, measured: the same server's step time with and without drafts, at like load. Pure.

S0 and S1 are the mean seconds of a request-step without and with speculation, L the tokens per step and d the draft
tokens per step; steps without a draft count. Then

* the speed-up is L * S0 / S1,
* the draft cost ratio c, the cost of one more draft token over a step without drafts, is (S1 / S0 - 1) / d,
* drafts break even at the acceptance rate c, and at the mean acceptance length 1 + draft length * c.

All of it depends on the load, so each span is compared with the step time that the baseline had at its concurrency.
``None`` means that it cannot be known.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import reduce
from itertools import accumulate, pairwise
from operator import add
from typing import NamedTuple

import msgspec

from specdec_exporter.speculation.acceptance import ratio
from specdec_exporter.speculation.estimate import Estimate, Spread, ratio_of_sums
from specdec_exporter.speculation.load import Load, bin_of
from specdec_exporter.speculation.policy import CostPolicy


class StepTime(msgspec.Struct, frozen=True):
    """Mean seconds of a request-step at one concurrency. A true value lies in ``low`` to ``high`` times the mean.

    The factors differ from 1 where the concurrency was not recorded.
    """

    concurrency: float
    seconds: Spread
    low: float = 1.0
    high: float = 1.0


class LoadBin(msgspec.Struct, frozen=True):
    """The spans whose concurrency was at most ``bound`` and above half of it, by :func:`bin_of`.

    ``intervals`` were summed to ``blocks``, each of about as many intervals, in the order of time. The counts of blocks
    are :data:`LOAD_COUNTS`; ``accepted_per_position`` is of the whole bin.
    """

    bound: int
    intervals: int
    blocks: tuple[Load, ...]
    accepted_per_position: tuple[float, ...] = ()

    @property
    def total(self) -> Load:
        """The sum of the blocks."""
        found = reduce(add, self.blocks)
        counts = msgspec.structs.replace(found.counts, accepted_per_position=self.accepted_per_position)
        return Load(found.seconds, counts)


class StepTimes(msgspec.Struct, frozen=True):
    """Step time by concurrency: the loads at which it was recorded, ascending."""

    points: tuple[StepTime, ...]
    like_load_factor: float

    def at(self, concurrency: float) -> StepTime | None:
        """Return the step time at ``concurrency``, interpolated between the recorded loads.

        Beyond them the nearest load counts, if it is within the policy's factor. With more load a step neither becomes
        faster nor slower by more than the load's own growth. These are the limits of ``low`` and ``high`` beyond the
        recorded loads, and between two loads of which one is farther away than the factor.
        """
        for before, after in pairwise(self.points):
            if before.concurrency <= concurrency <= after.concurrency:
                return _between(before, after, concurrency, self.like_load_factor)
        if not self.points or not concurrency > 0.0:
            return None
        nearest = self.points[0] if concurrency < self.points[0].concurrency else self.points[-1]
        growth = concurrency / nearest.concurrency
        if not 1.0 / self.like_load_factor <= growth <= self.like_load_factor:
            return None
        return StepTime(concurrency, nearest.seconds, min(growth, 1.0), max(growth, 1.0))


def _between(before: StepTime, after: StepTime, concurrency: float, like_load_factor: float) -> StepTime:
    span = after.concurrency - before.concurrency
    share = (concurrency - before.concurrency) / span if span > 0 else 0.0
    ends = (before.seconds, after.seconds)
    errors = [end.error for end in ends]
    error = None if None in errors else max(each for each in errors if each is not None)
    value = (1.0 - share) * ends[0].value + share * ends[1].value
    found = StepTime(concurrency, Spread(value, error, min(end.freedom for end in ends)))
    growth = (concurrency / before.concurrency, concurrency / after.concurrency)
    if growth[0] <= like_load_factor and 1.0 / like_load_factor <= growth[1]:
        return found
    low = max(ends[0].value, ends[1].value * growth[1]) / value
    high = min(ends[1].value, ends[0].value * growth[0]) / value
    return msgspec.structs.replace(found, low=min(low, 1.0), high=max(high, 1.0))


def step_times(bins: Sequence[LoadBin], policy: CostPolicy, *, per_token: bool = False) -> StepTimes:
    """Return the step times of a recording; bins with too few request-steps or intervals say nothing.

    ``per_token``: seconds of steps per token instead, of a recording whose steps may give several.
    """
    points = []
    for each in bins:
        total = each.total
        if total.steps < policy.min_steps or each.intervals < policy.min_intervals:
            continue
        seconds = ratio_of_sums(
            [block.step_seconds for block in each.blocks],
            [block.tokens if per_token else block.steps for block in each.blocks],
            policy.min_intervals,
        )
        if seconds is not None and 0.0 < total.concurrency < math.inf:
            points.append(StepTime(total.concurrency, seconds))
    return StepTimes(tuple(sorted(points, key=lambda point: point.concurrency)), policy.like_load_factor)


class MeasuredCost(msgspec.Struct, frozen=True, kw_only=True):
    """What drafts cost and gave over a span, against a baseline without speculation at like load.

    ``compared_ratio`` is the share of the step time that has a like load in the baseline; the other figures are of this
    part. ``slowdown`` is step time / step time without speculation at the same loads. ``concurrency`` is the mean.
    """

    concurrency: float
    compared_ratio: float
    steps: float
    step_seconds: float
    plain_step_seconds: float
    tokens_per_step: float
    draft_tokens_per_step: float
    slowdown: Estimate
    speedup: Estimate

    @property
    def draft_cost_ratio(self) -> Estimate | None:
        """Cost of one more draft token / cost of a step without drafts, which is the acceptance that breaks even.

        It is never below 0: drafts do not make a step faster. ``None`` without drafts.
        """
        drafted = self.draft_tokens_per_step
        if drafted <= 0 or not math.isfinite(max(self.slowdown.value, self.slowdown.high or 0.0) / drafted):
            return None
        low, value, high = (
            None if bound is None else max((bound - 1.0) / drafted, 0.0)
            for bound in (self.slowdown.low, self.slowdown.value, self.slowdown.high)
        )
        return Estimate(value or 0.0, low, high)

    def pays(self, speedup_min: float) -> bool | None:
        """Whether the speed-up is at least ``speedup_min``, beyond chance; ``None`` if that cannot be told."""
        found = self.speedup
        if found.low is None or found.high is None:
            return None
        if found.value >= speedup_min and found.low > 1.0:
            return True
        return False if found.high < speedup_min else None


class _Compared(NamedTuple):
    """Intervals, each with the baseline's step time at its load."""

    loads: tuple[Load, ...]
    likes: tuple[StepTime, ...]

    def sum_of(self, count: Callable[[Load], float]) -> float:
        return sum(map(count, self.loads))

    def at_baseline(self, count: Callable[[Load], float]) -> list[float]:
        """Return the seconds that as many steps would have taken at baseline, for each interval."""
        return [count(load) * like.seconds.value for load, like in zip(self.loads, self.likes, strict=True)]

    def shared_error(self, plain_seconds: Sequence[float]) -> Spread:
        """Return a 1 with the baseline's error, which does not shrink with the number of steps that share it."""
        errors = [like.seconds.error for like in self.likes]
        known = [error for error in errors if error is not None]
        shared = _weighted(plain_seconds, known) if len(known) == len(errors) else None
        return Spread(1.0, shared, min(like.seconds.freedom for like in self.likes))

    def limits(self, seconds: Sequence[float]) -> tuple[float, float]:
        """Return the mean limits of the baseline's step times, as factors."""
        lows, highs = [like.low for like in self.likes], [like.high for like in self.likes]
        return _weighted(seconds, lows), _weighted(seconds, highs)


def measure(loads: Sequence[Load], plain: StepTimes, policy: CostPolicy) -> MeasuredCost | None:
    """Compare the intervals of a span with a baseline at like load; ``None`` if too few have a like load."""
    told = [load for load in loads if load.tells_the_cost]
    pairs = [(load, like) for load in told if (like := plain.at(load.concurrency)) is not None]
    compared = _Compared(tuple(load for load, _ in pairs), tuple(like for _, like in pairs))
    steps = compared.sum_of(lambda load: load.steps)
    if steps < policy.min_steps:
        return None
    seconds = [load.step_seconds for load in compared.loads]
    plain_seconds = compared.at_baseline(lambda load: load.steps)
    plain_token_seconds = compared.at_baseline(lambda load: load.tokens)
    # Drafts cost more at some loads than at others. That is no scatter of the figures for the loads that there were.
    loads_alike = [bin_of(load.concurrency) for load in compared.loads]
    slowdown = ratio_of_sums(seconds, plain_seconds, policy.min_intervals, loads_alike)
    speedup = ratio_of_sums(plain_token_seconds, seconds, policy.min_intervals, loads_alike)
    if slowdown is None or speedup is None:
        return None
    baseline = compared.shared_error(plain_seconds)
    low, high = compared.limits(plain_seconds)
    found = MeasuredCost(
        concurrency=sum(seconds) / compared.sum_of(lambda load: load.seconds),
        compared_ratio=sum(seconds) / sum(load.step_seconds for load in told),
        steps=steps,
        step_seconds=sum(seconds) / steps,
        plain_step_seconds=sum(plain_seconds) / steps,
        tokens_per_step=compared.sum_of(lambda load: load.tokens) / steps,
        draft_tokens_per_step=compared.sum_of(lambda load: load.counts.draft_tokens or 0.0) / steps,
        slowdown=_widened((slowdown / baseline).estimate(), 1.0 / high, 1.0 / low),
        speedup=_widened((speedup * baseline).estimate(), *compared.limits(plain_token_seconds)),
    )
    return found if _is_finite(found) else None


def _is_finite(found: MeasuredCost) -> bool:
    """Whether all figures are numbers; absurd counts overflow, and that is no figure."""
    figures = [value for value in msgspec.structs.astuple(found) if isinstance(value, float)]
    for each in (found.slowdown, found.speedup):
        figures += [end for end in (each.low, each.value, each.high) if end is not None]
    return all(map(math.isfinite, figures))


def _weighted(weights: Sequence[float], values: Sequence[float]) -> float:
    """Return the mean of ``values`` by ``weights``."""
    return sum(weight * value for weight, value in zip(weights, values, strict=True)) / sum(weights)


def _widened(found: Estimate, low: float, high: float) -> Estimate:
    return Estimate(
        found.value,
        None if found.low is None else found.low * low,
        None if found.high is None else found.high * high,
    )


# --- Which k ----------------------------------------------------------------------------------------------------------


class StepCost(msgspec.Struct, frozen=True):
    """Step time by k, over a step without drafts: 1 + ``fixed`` + k * ``marginal`` for k of at least 1."""

    fixed: float
    marginal: float

    def slowdown(self, k: int) -> float:
        """Return the step time with ``k`` draft tokens over the step time without drafts, which is never shorter."""
        return max(1.0 + self.fixed + k * self.marginal, 1.0) if k else 1.0


class ExpectedSpeedup(msgspec.Struct, frozen=True):
    """The speed-up to expect of one ``k``. Between ``low`` and ``high`` it depends on what was not recorded."""

    k: int
    low: float
    high: float


class KChoice(msgspec.Struct, frozen=True, kw_only=True):
    """What the recorded k says about every k up to itself.

    ``recommended`` is the k to run, 0 for no speculation: the running k, or one that is surely better. It is ``None``
    if the recording does not tell. If there are several ``candidates`` then, recording ``record_next`` too would tell;
    if there is one, the slowdown has no interval. ``within_chance``: a k looked better than the running one, but not
    beyond chance. ``try_more``: the last position pays for itself, so k + 1 may pay.
    """

    recommended: int | None
    candidates: tuple[int, ...]
    record_next: int | None
    within_chance: bool
    try_more: bool
    expected: tuple[ExpectedSpeedup, ...]


def step_costs(k: int, slowdown: float) -> tuple[StepCost, StepCost]:
    """Return what the step time may be by k, from the step time / plain step time of one recorded k.

    The truth lies between the two that are returned, all marginal and all fixed. (A fixed part is the start of the
    draft model or head; the marginal part is drafting and verifying one more token.)
    """
    cost = max(slowdown - 1.0, 0.0)
    return StepCost(0.0, cost / k), StepCost(cost, 0.0)


class _Speedups(msgspec.Struct, frozen=True):
    """Speed-ups by k: ``lengths`` are tokens per step for each k, ``allowed`` the k that the drafter can run."""

    lengths: tuple[float, ...]
    allowed: tuple[int, ...]

    def of(self, cost: StepCost, k: int) -> float:
        return self.lengths[k] / cost.slowdown(k)

    def best(self, costs: Sequence[StepCost], loss_max: float) -> list[int]:
        """Return the best k for each cost, ascending; only one where it loses next to nothing whichever is true."""
        # The smallest of equally good k wastes least.
        best = sorted({max(self.allowed, key=lambda k: (self.of(cost, k), -k)) for cost in costs})
        if len(best) == 1:
            return best
        kept = {
            k: min(self.of(cost, k) / max(self.of(cost, other) for other in best) for cost in costs)
            for k in self.allowed
        }
        surest = max(kept, key=lambda k: (kept[k], -k))
        return [surest] if kept[surest] >= 1.0 - loss_max else best

    def expected(self, costs: Sequence[StepCost]) -> tuple[ExpectedSpeedup, ...]:
        found = ((k, [self.of(cost, k) for cost in costs]) for k in self.allowed if k)
        return tuple(ExpectedSpeedup(k, min(values), max(values)) for k, values in found)

    def surely_better(self, costs: Sequence[StepCost], running: int, margin: float) -> list[int]:
        """Return the k that beat ``running`` whichever cost is true, by ``margin`` unless they are no speculation."""
        return [
            k
            for k in self.allowed
            if all(self.of(cost, k) > (margin if k else 1.0) * self.of(cost, running) for cost in costs)
        ]


def choose_k(
    slowdown: Estimate,
    per_position: Sequence[float],
    drafts_per_step: float,
    running: int,
    *,
    loss_max: float = 0.0,
    fixed_k: bool = False,
) -> KChoice | None:
    """Choose among the k up to ``running``, by its ``slowdown`` at one load.

    ``per_position`` is its unconditional curve, ``drafts_per_step`` the share of steps with a draft. The running k
    stays unless another is better beyond chance. ``fixed_k``: the drafter cannot run another k. ``loss_max``: a k that
    loses no more than this share of the best speed-up, whichever cost is true, is as good as the best. ``None`` with a
    curve of another length.
    """
    if len(per_position) != running or not running:
        return None
    drafted = min(drafts_per_step, 1.0)
    lengths = tuple(1.0 + drafted * total for total in accumulate(per_position, initial=0.0))
    speedups = _Speedups(lengths, (0, running) if fixed_k else tuple(range(running + 1)))
    costs = step_costs(running, slowdown.value)
    limits = _limits(running, slowdown)
    best = speedups.best(costs, loss_max)
    recommended = _recommended(speedups, best[0], running, slowdown) if limits and len(best) == 1 else None
    return KChoice(
        recommended=recommended,
        candidates=tuple(best),
        record_next=next((k for k in best if k not in (0, running)), None) if len(best) > 1 else None,
        within_chance=recommended is not None and best != [recommended],
        try_more=not fixed_k and best == [running] and _last_position_pays(per_position, drafted, lengths[-1], costs),
        expected=speedups.expected((*costs, *limits)),
    )


def _recommended(speedups: _Speedups, best: int, running: int, slowdown: Estimate) -> int:
    """Return the best k if it surely beats the running one; else another that does, or the running one."""
    if best == running:
        return running
    costs, limits = step_costs(running, slowdown.value), _limits(running, slowdown)
    # The running k is known only so well, and another k must be better than that.
    margin = (slowdown.high or slowdown.value) / slowdown.value
    better = speedups.surely_better((*costs, *limits), running, margin)
    if best in better:
        return best
    return max(better, key=lambda k: min(speedups.of(cost, k) for cost in costs), default=running)


def _last_position_pays(
    per_position: Sequence[float], drafted: float, length: float, costs: Sequence[StepCost]
) -> bool:
    """Whether one more position would pay if it were accepted as often as the last one, whichever cost is true."""
    running, last = len(per_position), per_position[-1]
    conditional = ratio(last, per_position[-2] if running > 1 else 1.0) or 0.0
    needed = max(cost.marginal * length / cost.slowdown(running) for cost in costs)
    return drafted * last * conditional > needed


def _limits(running: int, slowdown: Estimate) -> tuple[StepCost, ...]:
    """Return the costs with the slowdown at the ends of its interval; empty without one."""
    if slowdown.low is None or slowdown.high is None:
        return ()
    return (*step_costs(running, slowdown.low), *step_costs(running, slowdown.high))
