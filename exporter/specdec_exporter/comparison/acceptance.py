"""The acceptance rate of a recording, with the interval that its requests allow, and how it changed between two."""

from __future__ import annotations

from specdec_exporter.baseline.file import Baseline
from specdec_exporter.predictor.versions import canonical_method
from specdec_exporter.speculation.chance import Estimate, difference, independent_draws, proportion, ratio_of_sums
from specdec_exporter.speculation.policy import Policy


def acceptance_change(baseline: Baseline, candidate: Baseline, policy: Policy) -> Estimate | None:
    """Return candidate - baseline: -0.08 is a fall by 8 percentage points.

    ``None`` unless both drafted with one k and method, because another one changes acceptance by itself, and unless all
    drafts were verified.
    """
    methods = {canonical_method(each.method) for each in (baseline, candidate) if each.method}
    adaptive = baseline.adaptive_verification or candidate.adaptive_verification
    if adaptive or baseline.k != candidate.k or len(methods) > 1:
        return None
    before, after = acceptance_of(baseline, policy), acceptance_of(candidate, policy)
    return difference(before, after) if before and after else None


def fell(change: Estimate | None, policy: Policy) -> bool:
    """Whether acceptance fell beyond chance, and by more than ``acceptance_drop_min``."""
    if change is None or change.high is None:
        return False
    return change.high < 0.0 and change.value < -policy.acceptance_drop_min


def acceptance_of(recording: Baseline, policy: Policy) -> Estimate | None:
    """Return the acceptance rate with Wilson's 95 % interval; ``None`` if nothing was drafted.

    Drafts of one request are alike, so the scatter of the recording's batches tells how many independent draws they are
    worth. Without batches there is no interval.
    """
    counts = recording.counts
    drafts = counts.drafts or counts.draft_tokens
    if not drafts or not counts.draft_tokens or counts.accepted_tokens is None:
        return None
    found = ratio_of_sums(
        [block.counts.accepted_tokens or 0.0 for block in recording.blocks],
        [block.counts.draft_tokens or 0.0 for block in recording.blocks],
        policy.chance,
    )
    draws = independent_draws(found) if found else None
    if draws is None:
        return Estimate(min(counts.accepted_tokens / counts.draft_tokens, 1.0), None, None)
    return proportion(counts.accepted_tokens, counts.draft_tokens, min(draws, drafts))
