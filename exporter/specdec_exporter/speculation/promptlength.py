"""Whether a baseline was recorded with prompts of another length. Pure.

A longer context makes verification dearer, and draft heads are trained on short ones. So the gain of speculation falls
with the length of prompts, at any load, and a speed-up holds for prompts of the length that it was measured with.
"""

from __future__ import annotations

from specdec_exporter.speculation.facts import DecodingBaseline
from specdec_exporter.speculation.figures import Figures
from specdec_exporter.speculation.policy import LatencyPolicy, Policy
from specdec_exporter.speculation.verdict import Finding

RECORD_AGAIN = "Record a baseline with prompts of this length: speculation gains less, the longer they are."


def other_prompts(now: float | None, then: float | None, policy: LatencyPolicy) -> str | None:
    """Say that prompts are of another length than those of the baseline; ``None``: they are not, or it is not known.

    ``now`` and ``then`` are mean prompt tokens of a request.
    """
    if not now or not then:
        return None
    times, limit = now / then, policy.prompt_length_ratio
    if 1.0 / limit <= times <= limit:
        return None
    return (
        f"prompts are {times:.{1 if times > 1.0 else 2}f} times as long as those of the baseline "
        f"({now:,.0f} tokens, there {then:,.0f})"
    )


def prompt_findings(figures: Figures, baseline: DecodingBaseline | None, policy: Policy) -> list[Finding]:
    """Return whether the baseline's speed belongs to other prompts. A few requests do not tell."""
    if baseline is None or (figures.requests or 0.0) < policy.min_effective_drafts:
        return []
    words = other_prompts(figures.mean_prompt_tokens, baseline.mean_prompt_tokens, policy.latency)
    return (
        [Finding("WARN", "Prompt length", f"{words}: its speed was recorded with other prompts", RECORD_AGAIN)]
        if words
        else []
    )
