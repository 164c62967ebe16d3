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
from collections.abc import Mapping, Sequence
from itertools import accumulate, pairwise

import msgspec

from specdec_exporter.speculation.acceptance import ratio
from specdec_exporter.speculation.estimate import Estimate, Spread, ratio_of_sums
from specdec_exporter.speculation.load import Load, LoadBin, bin_of
from specdec_exporter.speculation.policy import CostPolicy


class StepTime(msgspec.Struct, frozen=True):
    """Mean seconds of a request-step at one concurrency. A true value lies in ``low`` to ``high`` times the mean.

    The factors differ from 1 where the concurrency was not recorded.
    """

    concurrency: float
    seconds: Spread
    low: float = 1.0
    high: float = 1.0


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


def measure(loads: Sequence[Load], plain: StepTimes, policy: CostPolicy) -> MeasuredCost | None:
    """Compare the intervals of a span with a baseline at like load; ``None`` if too few have a like load."""
    told = [load for load in loads if load.tells_the_cost]
    pairs = [(load, like) for load in told if (like := plain.at(load.concurrency)) is not None]
    steps = sum(load.steps for load, _ in pairs)
    if steps < policy.min_steps:
        return None
    seconds = [load.step_seconds for load, _ in pairs]
    plain_seconds = [load.steps * like.seconds.value for load, like in pairs]
    plain_token_seconds = [load.tokens * like.seconds.value for load, like in pairs]
    # Drafts cost more at some loads than at others. That is no scatter of the figures for the loads that there were.
    loads_alike = [bin_of(load.concurrency) for load, _ in pairs]
    slowdown = ratio_of_sums(seconds, plain_seconds, policy.min_intervals, loads_alike)
    speedup = ratio_of_sums(plain_token_seconds, seconds, policy.min_intervals, loads_alike)
    if slowdown is None or speedup is None:
        return None
    # The steps of one load share the baseline's error, so it does not shrink with their number.
    errors = [like.seconds.error for _, like in pairs]
    known = [error for error in errors if error is not None]
    shared = _weighted(plain_seconds, known) if len(known) == len(errors) else None
    baseline = Spread(1.0, shared, min(like.seconds.freedom for _, like in pairs))
    lows, highs = ([like.low for _, like in pairs], [like.high for _, like in pairs])
    clock = sum(load.seconds for load, _ in pairs)
    tokens = sum(load.tokens for load, _ in pairs)
    found = MeasuredCost(
        concurrency=sum(seconds) / clock,
        compared_ratio=sum(seconds) / sum(load.step_seconds for load in told),
        steps=steps,
        step_seconds=sum(seconds) / steps,
        plain_step_seconds=sum(plain_seconds) / steps,
        tokens_per_step=tokens / steps,
        draft_tokens_per_step=sum(load.counts.draft_tokens or 0.0 for load, _ in pairs) / steps,
        slowdown=_widened(
            (slowdown / baseline).estimate(),
            1.0 / _weighted(plain_seconds, highs),
            1.0 / _weighted(plain_seconds, lows),
        ),
        speedup=_widened(
            (speedup * baseline).estimate(),
            _weighted(plain_token_seconds, lows),
            _weighted(plain_token_seconds, highs),
        ),
    )
    figures = [value for value in msgspec.structs.astuple(found) if isinstance(value, float)]
    for each in (found.slowdown, found.speedup):
        figures += [end for end in (each.low, each.value, each.high) if end is not None]
    return found if all(map(math.isfinite, figures)) else None  # absurd counts overflow; that is no figure


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
    """What the recorded k say about every k up to the largest.

    ``recommended`` is the k to run, 0 for no speculation. It is ``None`` if the recordings do not tell. If there are
    several ``candidates`` then, recording ``record_next`` too would tell; if there is one, a slowdown has no interval.
    ``within_chance``: a k looked better than the running one, but not beyond chance. If the running k is in use,
    ``recommended`` is then one that is surely better, or the running k itself. ``try_more``: the last position pays for
    itself, so k + 1 may pay.
    """

    recommended: int | None
    candidates: tuple[int, ...]
    record_next: int | None
    within_chance: bool
    try_more: bool
    expected: tuple[ExpectedSpeedup, ...]


def step_costs(slowdowns: Mapping[int, float]) -> tuple[StepCost, ...]:
    """Return what the step time may be by k, from the step time / plain step time of the recorded k.

    Two or more k tell the fixed part from the marginal part, by least squares. One k does not: then the truth lies
    between the two that are returned, all marginal and all fixed. (A fixed part is the start of the draft model or
    head; the marginal part is drafting and verifying one more token.)
    """
    over = {k: max(value - 1.0, 0.0) for k, value in slowdowns.items()}
    if len(over) == 1:
        ((k, cost),) = over.items()
        return StepCost(0.0, cost / k), StepCost(cost, 0.0)
    found = _line(over)
    if found.marginal < 0.0:
        return (StepCost(sum(over.values()) / len(over), 0.0),)
    if found.fixed < 0.0:
        return (StepCost(0.0, sum(k * cost for k, cost in over.items()) / sum(k * k for k in over)),)
    return (found,)


def _line(over: Mapping[int, float]) -> StepCost:
    """Return the line through the costs of two or more k, by least squares. Its parts may be negative."""
    mean_k, mean = sum(over) / len(over), sum(over.values()) / len(over)
    marginal = sum((k - mean_k) * cost for k, cost in over.items()) / sum((k - mean_k) ** 2 for k in over)
    return StepCost(mean - marginal * mean_k, marginal)


def choose_k(
    slowdowns: Mapping[int, Estimate],
    per_position: Sequence[float],
    drafts_per_step: float,
    running: int,
    *,
    loss_max: float = 0.0,
    fixed_k: bool = False,
    in_use: bool = True,
) -> KChoice | None:
    """Choose among the k up to ``running``, by the ``slowdown`` of each recorded k at one load.

    ``per_position`` is the unconditional curve of ``running``, ``drafts_per_step`` the share of steps with a draft.
    ``fixed_k``: the drafter cannot run another k. ``in_use``: the running k stays unless another is better beyond
    chance; otherwise no k has a claim, and the best one is recommended. ``loss_max``: a k that loses no more than this
    share of the best speed-up, whichever cost is true, is as good as the best. ``None`` without a recorded k, or with a
    curve of another length.
    """
    if not slowdowns or len(per_position) != running or not running:
        return None
    drafted = min(drafts_per_step, 1.0)
    lengths = [1.0 + drafted * total for total in accumulate(per_position, initial=0.0)]
    costs = step_costs({k: found.value for k, found in slowdowns.items()})
    allowed = (0, running) if fixed_k else tuple(range(running + 1))

    def speedup(cost: StepCost, k: int) -> float:
        return lengths[k] / cost.slowdown(k)

    # The smallest of equally good k wastes least.
    best = sorted({max(allowed, key=lambda k: (speedup(cost, k), -k)) for cost in costs})
    if len(best) > 1:
        kept = {k: min(speedup(cost, k) / max(speedup(cost, j) for j in best) for cost in costs) for k in allowed}
        surest = max(kept, key=lambda k: (kept[k], -k))
        best = [surest] if kept[surest] >= 1.0 - loss_max else best
    limits = _limits(slowdowns)
    expected = tuple(
        ExpectedSpeedup(
            k,
            min(speedup(cost, k) for cost in (*costs, *limits)),
            max(speedup(cost, k) for cost in (*costs, *limits)),
        )
        for k in allowed
        if k
    )
    recommended, within_chance = None, False
    if best == [running] and limits:
        recommended = running
    elif len(best) == 1 and limits:
        # The running k is known only so well, and another k must be better than that.
        margin = max(found.high / found.value for found in slowdowns.values() if found.high is not None)
        better = [
            k
            for k in allowed
            if all(speedup(cost, k) > (margin if k else 1.0) * speedup(cost, running) for cost in (*costs, *limits))
        ]
        fallback = max(better, key=lambda k: min(speedup(cost, k) for cost in costs), default=running)
        recommended = best[0] if best[0] in better or not in_use else fallback
        within_chance = best[0] not in better
    last = per_position[-1]
    conditional = ratio(last, per_position[-2] if running > 1 else 1.0) or 0.0
    # What one more position would at least have to bring, if it is accepted like the last one.
    needed = max(cost.marginal * lengths[-1] / cost.slowdown(running) for cost in costs)
    return KChoice(
        recommended=recommended,
        candidates=tuple(best),
        record_next=next((k for k in best if k and k not in slowdowns), None) if len(best) > 1 else None,
        within_chance=within_chance,
        try_more=not fixed_k and best == [running] and drafted * last * conditional > needed,
        expected=expected,
    )


def _limits(slowdowns: Mapping[int, Estimate]) -> tuple[StepCost, ...]:
    """Return the costs with the slowdowns at the ends of their intervals; empty if one has no interval."""
    low = {k: found.low for k, found in slowdowns.items() if found.low is not None}
    high = {k: found.high for k, found in slowdowns.items() if found.high is not None}
    if len(low) < len(slowdowns) or len(high) < len(slowdowns):
        return ()
    if len(slowdowns) == 1:
        return (*step_costs(low), *step_costs(high))
    # The weights that least squares give the k grow or fall with k. So any comparison is tightest where the smaller k
    # are at one end and the larger ones at the other.
    corners = (
        {k: max((small if k < first else large)[k] - 1.0, 0.0) for k in slowdowns}
        for small, large in ((low, high), (high, low))
        for first in slowdowns
    )
    return tuple(map(_line, corners))


def crossover(speedups: Sequence[tuple[float, float]]) -> float | None:
    """Return the concurrency at which the speed-up falls below 1, from pairs of concurrency and speed-up, ascending.

    It is interpolated between two loads, in the logarithm of the load. ``None`` if the speed-up falls below 1 between
    no two loads.
    """
    for (before, gain), (after, loss) in pairwise(speedups):
        if gain >= 1.0 > loss and before > 0.0:
            share = (gain - 1.0) / (gain - loss)
            return before * math.exp(share * math.log(after / before))
    return None


def batch_schedule(best: Sequence[tuple[int, int]]) -> list[tuple[int, int, int]]:
    """Return vLLM's ``num_speculative_tokens_per_batch_size``: triples of first batch size, last batch size and k.

    ``best`` pairs the bound of a bin of concurrency with its best k, ascending. The first triple begins at 1; loads
    that were not recorded take the k of the next larger one.
    """
    found: list[tuple[int, int, int]] = []
    for bound, k in best:
        first = found[-1][1] + 1 if found else 1
        if found and found[-1][2] == k:
            found[-1] = (found[-1][0], bound, k)
        else:
            found.append((first, bound, k))
    return found
