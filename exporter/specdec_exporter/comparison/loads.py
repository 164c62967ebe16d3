"""Two recordings at like load: how much faster one decodes, and which k its cost leaves. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from specdec_exporter.baseline.file import Baseline
from specdec_exporter.speculation.acceptance import Counts, at, mean_draft_length, position_ratios, ratio
from specdec_exporter.speculation.cost import KChoice, MeasuredCost, StepTimes, choose_k, measure, step_times
from specdec_exporter.speculation.estimate import Estimate
from specdec_exporter.speculation.load import LoadBin, bin_of
from specdec_exporter.speculation.policy import Policy


def is_plain(recording: Baseline) -> bool:
    """Whether the predictor ran without speculation."""
    counts = recording.counts
    drafted = counts.drafts or counts.draft_tokens
    return not drafted and recording.method is None and recording.num_speculative_tokens is None


def k_of(recording: Baseline) -> int | None:
    """Return the number of speculative tokens; if not recorded, the number of positions."""
    return recording.num_speculative_tokens or len(recording.counts.accepted_per_position) or None


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


def choose(slowdown: Estimate, drafted: Counts, method: str | None, running: int, policy: Policy) -> KChoice | None:
    """Choose among the k up to ``running``, by what its drafts were accepted; ``None`` if that was not recorded.

    Short drafts make the curve read low, so they leave only ``running`` and no speculation to choose from.
    """
    curve = position_ratios(drafted.accepted_per_position, drafted.drafts)
    per_step = ratio(drafted.drafts, drafted.steps)
    if not curve or per_step is None or (drafted.drafts or 0.0) < policy.min_drafts:
        return None
    return choose_k(
        slowdown,
        tuple(at(curve, position) for position in range(running)),
        per_step,
        running,
        loss_max=policy.cost.k_loss_max,
        fixed_k=policy.for_method(method).fixed_k or _drafts_are_short(drafted, running, policy),
    )


def _drafts_are_short(counts: Counts, k: int, policy: Policy) -> bool:
    """Whether drafts are shorter than k by so much that the curve tells nothing about another k."""
    length = mean_draft_length(counts.draft_tokens, counts.drafts)
    return length is not None and length < k * (1.0 - policy.short_draft_tolerance)
