"""How recordings were made, and what traffic they hold: a warm-up, mixed requests, time before the first token.

These are remarks, not decisions.
"""

from __future__ import annotations

from collections.abc import Iterator

from specdec_exporter.baseline.file import SLIS, Baseline
from specdec_exporter.comparison import distribution
from specdec_exporter.comparison.likeness import Flag, sample_of, speculates
from specdec_exporter.speculation.policy import Policy


def conduct_flags(baseline: Baseline, candidate: Baseline, policy: Policy) -> Iterator[Flag]:
    """Yield what to know about both recordings."""
    for name, side in (("the baseline", baseline), ("the candidate", candidate)):
        if cold := _cold_start(side, policy):
            words = f"{name} begins slowly: {cold}"
            yield Flag("cold_start", words, "Let the server answer some requests before the recording starts.")
        if varied := _varied_acceptance(side, policy):
            words = f"{name}'s acceptance differs between parts of the recording: {varied}"
            action = "Record kinds of requests apart: those with low acceptance may be slower with speculation."
            yield Flag("acceptance_varies", words, action)
    yield from _bound_by_first_token(baseline, policy)


def _cold_start(side: Baseline, policy: Policy) -> str | None:
    """Return in words which latency was slower in the first block than in each other one, and by far than in all."""
    for key in SLIS[:2]:
        found = [histogram for block in side.blocks if (histogram := getattr(block, key)) and histogram.count]
        if len(found) < max(policy.latency.enough_blocks, 2) or len(found) < len(side.blocks):
            continue
        first, *others = (histogram.mean for histogram in found)
        rest = sum(histogram.sum for histogram in found[1:]) / sum(histogram.count for histogram in found[1:])
        if first > max(others) and first > policy.comparison.cold_start_ratio * rest > 0.0:
            name = key.removesuffix("_seconds").replace("_", " ")
            return f"{name} is {first / rest:.1f} times that of the rest in the first of {len(found)} blocks"
    return None


def _varied_acceptance(side: Baseline, policy: Policy) -> str | None:
    """Return in words how far the acceptance of whole blocks lies apart, among those with enough drafts."""
    if side.adaptive_verification:
        return None
    counts = [block.counts for block in side.blocks if (block.counts.drafts or 0.0) >= policy.min_drafts]
    rates = [(each.accepted_tokens or 0.0) / each.draft_tokens for each in counts if each.draft_tokens]
    if len(rates) < policy.latency.enough_blocks or max(rates) - min(rates) <= policy.comparison.acceptance_range_max:
        return None
    return f"{min(rates):.0%} to {max(rates):.0%} in {len(rates)} blocks"


def _bound_by_first_token(plain: Baseline, policy: Policy) -> Iterator[Flag]:
    """Yield a flag if most of a request's time without speculation goes by before its first token."""
    first, whole = (sample_of(plain, sli) for sli in ("time_to_first_token", "request_latency"))
    if speculates(plain) or first is None or whole is None:
        return
    means = [distribution.mean(each, policy.latency) for each in (first, whole)]
    if not means[0] or not means[1] or not means[1].value:
        return
    share = means[0].value / means[1].value
    if share > policy.comparison.first_token_share_max:
        words = f"the first token takes {min(share, 1.0):.0%} of a request's time without speculation"
        action = (
            "Speculation speeds up only the rest. Look at waiting requests, prompt lengths and prefix caching first."
        )
        yield Flag("first_token_bound", words, action)
