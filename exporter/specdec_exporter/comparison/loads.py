"""What recordings did at each load, beside the step times of recordings without speculation."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain

import msgspec

from specdec_exporter.baseline.file import Baseline
from specdec_exporter.comparison.requests import workload_of
from specdec_exporter.histogram import Histogram
from specdec_exporter.speculation.acceptance import (
    Counts,
    acceptance_ratio,
    at,
    mean_acceptance_length,
    mean_draft_length,
    position_ratios,
    ratio,
)
from specdec_exporter.speculation.cost import KChoice, MeasuredCost, StepTimes, choose_k, measure, step_times
from specdec_exporter.speculation.estimate import Estimate
from specdec_exporter.speculation.load import Load, LoadBin, bin_of
from specdec_exporter.speculation.policy import Policy


class AtLoad(msgspec.Struct, frozen=True, kw_only=True):
    """What was recorded at one load; ``concurrency`` is the mean number of requests in decode at a time, per engine.

    ``concurrency_bound`` is the upper bound of a bin of loads, ``null`` for a whole recording. ``speedup`` is
    tokens per step * step time without speculation / step time, at like load; ``draft_cost_ratio`` is what one more
    draft token costs, over a step without drafts. ``compared_ratio`` is the share of the step time that has a like
    load without speculation. ``pays``: whether the speed-up is at least the policy's, beyond chance; ``null`` if that
    cannot be told. ``estimated``: there are no step times by load, so the means over requests stand in for them; such
    figures have no interval and decide nothing.
    """

    concurrency_bound: int | None
    concurrency: float | None
    steps: float | None
    acceptance_ratio: float | None
    mean_acceptance_length: float | None
    tokens_per_step: float | None
    draft_tokens_per_step: float | None
    step_seconds: float | None
    plain_step_seconds: float | None
    compared_ratio: float | None
    draft_cost_ratio: Estimate | None
    speedup: Estimate | None
    pays: bool | None
    estimated: bool = False


class Reference(msgspec.Struct, frozen=True):
    """Recordings without speculation, together."""

    recordings: tuple[Baseline, ...] = ()
    bins: tuple[LoadBin, ...] = ()
    times: StepTimes = StepTimes((), 1.0)


class Group(msgspec.Struct, frozen=True):
    """All recordings of one workload with one method and k, beside those without speculation."""

    workload: str | None
    method: str | None
    k: int | None
    recordings: tuple[Baseline, ...]
    bins: tuple[LoadBin, ...]
    reference: Reference
    whole: AtLoad
    by_load: tuple[AtLoad, ...]


def is_plain(recording: Baseline) -> bool:
    """Whether the predictor ran without speculation."""
    counts = recording.counts
    drafted = counts.drafts or counts.draft_tokens
    return not drafted and recording.method is None and recording.num_speculative_tokens is None


def k_of(recording: Baseline) -> int | None:
    """Return the number of speculative tokens; if not recorded, the number of positions."""
    return recording.num_speculative_tokens or len(recording.counts.accepted_per_position) or None


def reference_of(recordings: Sequence[Baseline], policy: Policy) -> Reference:
    """Return the recordings without speculation as one; their step times are pooled by load."""
    bins = pooled(recordings)
    return Reference(tuple(recordings), bins, step_times(bins, policy.cost))


def group_of(recordings: Sequence[Baseline], reference: Reference, policy: Policy) -> Group:
    """Return recordings of one workload, method and k as one."""
    first = recordings[0]
    whole, by_load = figures_of(recordings, reference, policy)
    return Group(
        workload_of(first),
        first.method,
        k_of(first),
        tuple(recordings),
        pooled(recordings),
        reference,
        whole,
        by_load,
    )


def figures_of(
    recordings: Sequence[Baseline], reference: Reference, policy: Policy
) -> tuple[AtLoad, tuple[AtLoad, ...]]:
    """Return the figures of recordings of one setting: of all, and by load."""
    bins = pooled(recordings)
    if not bins or (reference.recordings and not reference.bins):
        return estimated(recordings, reference.recordings), ()
    whole = at_load(None, total_of(bins), cost_of(bins, reference.times, policy), policy)
    return whole, tuple(
        at_load(each.bound, each.total, cost_of([each], reference.times, policy), policy) for each in bins
    )


def pooled(recordings: Iterable[Baseline]) -> tuple[LoadBin, ...]:
    """Return the bins of several recordings; the blocks of one bound stand together."""
    found: dict[int, list[LoadBin]] = {}
    for each in chain.from_iterable(recording.by_load for recording in recordings):
        found.setdefault(each.bound, []).append(each)
    return tuple(
        LoadBin(
            bound,
            sum(each.intervals for each in bins),
            tuple(chain.from_iterable(each.blocks for each in bins)),
            total_of(bins).counts.accepted_per_position,
        )
        for bound, bins in sorted(found.items())
        if any(each.blocks for each in bins)
    )


def cost_of(bins: Sequence[LoadBin], plain: StepTimes, policy: Policy) -> MeasuredCost | None:
    """Return the cost over ``bins`` against ``plain``; ``None`` if too little has a like load there."""
    return measure([block for each in bins for block in each.blocks], plain, policy.cost)


def at_like_load(
    baseline: Baseline, candidate: Baseline, policy: Policy, *, recorded_in_both: bool = False
) -> MeasuredCost | None:
    """Return how much faster ``candidate`` decodes at the loads of ``baseline``; ``None`` if too few are alike.

    Its speed-up is seconds per token of the baseline / those of the candidate. The other figures are per step, so they
    mean something only if the baseline drafted nothing. ``recorded_in_both`` leaves out loads that are merely alike.
    """
    drafted = baseline.counts.drafts or baseline.counts.draft_tokens
    times = step_times(baseline.by_load, policy.cost, per_token=bool(drafted))
    bounds = {bin_of(point.concurrency) for point in times.points}
    bins = [each for each in candidate.by_load if each.bound in bounds or not recorded_in_both]
    return cost_of(bins, times, policy)


def at_load(bound: int | None, total: Load, cost: MeasuredCost | None, policy: Policy) -> AtLoad:
    """Return the figures of a span; with ``cost`` those of the part that was compared."""
    counts = total.counts
    tokens, drafted = _ratio(total.tokens, total.steps), _ratio(counts.draft_tokens, total.steps)
    return AtLoad(
        concurrency_bound=bound,
        concurrency=cost.concurrency if cost else total.concurrency or None,
        steps=cost.steps if cost else counts.steps,
        acceptance_ratio=_finite(acceptance_ratio(counts.accepted_tokens, counts.draft_tokens)),
        mean_acceptance_length=_finite(mean_acceptance_length(counts.accepted_tokens, counts.drafts)),
        tokens_per_step=cost.tokens_per_step if cost else tokens,
        draft_tokens_per_step=cost.draft_tokens_per_step if cost else drafted,
        step_seconds=cost.step_seconds if cost else _ratio(counts.step_seconds, total.steps),
        plain_step_seconds=cost.plain_step_seconds if cost else None,
        compared_ratio=cost.compared_ratio if cost else None,
        draft_cost_ratio=cost.draft_cost_ratio if cost else None,
        speedup=cost.speedup if cost else None,
        pays=cost.pays(policy.latency.speedup_min) if cost else None,
    )


def total_of(bins: Sequence[LoadBin]) -> Load:
    """Return the sum of the bins."""
    return sum((each.total for each in bins), Load(0.0, Counts()))


def estimated(recordings: Sequence[Baseline], plain: Sequence[Baseline]) -> AtLoad:
    """Return the figures of whole recordings without step times by load.

    The mean time per output token stands in: times the tokens per step it is about the time of a step. Requests of
    different lengths and acceptance bias this, so there is no interval.
    """
    counts = sum((each.counts for each in recordings), Counts())
    total = Load(math.fsum(each.duration_seconds for each in recordings), counts)
    tokens, drafted = _ratio(total.tokens, counts.steps), _ratio(counts.draft_tokens, counts.steps)
    mean, plain_mean = (
        mean_seconds(each.time_per_output_token_seconds for each in side) for side in (recordings, plain)
    )
    seconds = _finite(mean * tokens) if mean and tokens else None
    slowdown, speedup = _ratio(seconds, plain_mean), _ratio(plain_mean, mean)
    cost = None if slowdown is None else _ratio(max(slowdown - 1.0, 0.0), drafted)
    return AtLoad(
        concurrency_bound=None,
        concurrency=None,
        steps=counts.steps,
        acceptance_ratio=_finite(acceptance_ratio(counts.accepted_tokens, counts.draft_tokens)),
        mean_acceptance_length=_finite(mean_acceptance_length(counts.accepted_tokens, counts.drafts)),
        tokens_per_step=tokens,
        draft_tokens_per_step=drafted,
        step_seconds=seconds,
        plain_step_seconds=plain_mean,
        compared_ratio=None,
        draft_cost_ratio=_without_interval(cost),
        speedup=_without_interval(speedup),
        pays=None,
        estimated=True,
    )


def choose(
    slowdowns: Mapping[int, Estimate],
    drafted: Counts,
    method: str | None,
    running: int,
    policy: Policy,
    *,
    in_use: bool,
) -> KChoice | None:
    """Choose among the k up to ``running``, by what its drafts were accepted; ``None`` if that was not recorded.

    ``in_use``: ``running`` stays unless another k is better beyond chance. Short drafts make the curve read low, so
    they leave only ``running`` and no speculation to choose from.
    """
    curve = position_ratios(drafted.accepted_per_position, drafted.drafts)
    per_step = ratio(drafted.drafts, drafted.steps)
    if not curve or per_step is None or (drafted.drafts or 0.0) < policy.min_drafts:
        return None
    return choose_k(
        slowdowns,
        tuple(at(curve, position) for position in range(running)),
        per_step,
        running,
        loss_max=policy.cost.k_loss_max,
        fixed_k=policy.for_method(method).fixed_k or drafts_are_short(drafted, running, policy),
        in_use=in_use,
    )


def drafts_are_short(counts: Counts, k: int, policy: Policy) -> bool:
    """Whether drafts are shorter than k by so much that the curve tells nothing about another k."""
    length = mean_draft_length(counts.draft_tokens, counts.drafts)
    return length is not None and length < k * (1.0 - policy.short_draft_tolerance)


def _without_interval(value: float | None) -> Estimate | None:
    value = _finite(value)
    return None if value is None else Estimate(value, None, None)


def mean_seconds(histograms: Iterable[Histogram | None]) -> float | None:
    """Return the mean of all histograms; ``None`` if nothing was recorded."""
    found = [each for each in histograms if each is not None]
    return _ratio(math.fsum(each.sum for each in found), math.fsum(each.count for each in found))


def _ratio(numerator: float | None, denominator: float | None) -> float | None:
    return _finite(ratio(numerator, denominator))


def _finite(value: float | None) -> float | None:
    # Absurd counts overflow; that is no figure.
    return value if value is not None and math.isfinite(value) else None
