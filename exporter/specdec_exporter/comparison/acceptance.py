"""The acceptance rate of a recording, with the interval that its requests allow."""

from __future__ import annotations

import math

from specdec_exporter.baseline.file import Baseline
from specdec_exporter.comparison.distribution import variance_max
from specdec_exporter.comparison.traffic import requests_of
from specdec_exporter.speculation.estimate import Estimate, independent_draws, proportion, ratio_of_sums
from specdec_exporter.speculation.policy import Policy


def acceptance_of(recording: Baseline, policy: Policy) -> Estimate | None:
    """Return the acceptance rate with Wilson's 95 % interval; ``None`` if nothing was drafted.

    The scatter of the recording's blocks tells how many independent draws the drafts are worth, whatever requests have
    in common. Without enough blocks it follows from the number of requests and how uneven their lengths are.
    """
    counts = recording.counts
    drafts = counts.drafts or counts.draft_tokens
    if not drafts or not counts.draft_tokens or counts.accepted_tokens is None:
        return None
    by_block = ratio_of_sums(
        [block.counts.accepted_tokens or 0.0 for block in recording.blocks],
        [block.counts.draft_tokens or 0.0 for block in recording.blocks],
        policy.cost.min_intervals,
    )
    draws = None if by_block is None else independent_draws(by_block)
    if draws is None:
        draws = policy.effective_drafts(drafts, _requests_of_even_length(recording))
    return proportion(counts.accepted_tokens, counts.draft_tokens, min(draws, drafts))


def _requests_of_even_length(recording: Baseline) -> float | None:
    """Requests / (1 + variance / mean^2) of their lengths: so many of equal length tell as much (Kish)."""
    requests, lengths = requests_of(recording), recording.generation_length
    if requests is None or lengths is None or not lengths.count or not 0.0 < lengths.mean < math.inf:
        return requests
    variance = variance_max(lengths)
    if variance is None or not (uneven := variance / lengths.mean / lengths.mean) < math.inf:
        return requests
    return requests / (1.0 + uneven)
