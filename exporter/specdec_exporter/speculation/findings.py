"""The reasons behind a verdict: what was found of acceptance, length, curve and chance."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from specdec_exporter.formatting import percent
from specdec_exporter.predictor.versions import LOSSY_REJECTION
from specdec_exporter.speculation.benefit import BreakEven, needed
from specdec_exporter.speculation.chance import Estimate
from specdec_exporter.speculation.evidence import DecodingBaseline, Evidence
from specdec_exporter.speculation.figures import PARTLY_VERIFIED, Figures
from specdec_exporter.speculation.policy import LatencyPolicy, Policy
from specdec_exporter.speculation.verdict import GOOD, LOSSES, WORDS, Finding, VerdictCode

_NO_RATE = "Draft tokens are not counted: there is a length, and no acceptance rate."


def by_break_even(
    figures: Figures,
    num_speculative_tokens: int | None,
    even: BreakEven,
    policy: Policy,
    code: VerdictCode,
    *,
    decided: bool = False,
) -> list[Finding]:
    """Judge length, acceptance and curve by the break-even; an assumed one counts nothing where a speed ``decided``.

    The word, ``code``, tells whether the draft may be why.
    """
    counts = not (decided and even.basis == "assumed")
    low = counts and (figures.counted_ratio(num_speculative_tokens) or 0.0) < even.acceptance_ratio
    findings = _acceptance(figures, num_speculative_tokens, even, policy, low=low)
    if figures.mean_acceptance_length is not None and even.mean_acceptance_length is not None:
        text = f"mean acceptance length {figures.mean_acceptance_length:.2f}; {needed(figures, even)}"
        if code == "watch" and even.basis == "assumed" and even.watch_acceptance_ratio > 1.0:
            text += "; no length is known to be enough there"
        findings.insert(0, Finding(findings[0].level, "Length", text))
        findings[1] = msgspec.structs.replace(findings[1], level="PASS")  # one fact is one warning
    suspect = code in ("broken", "not_paying", "harmful") or (code == "watch" and low)
    return [*findings, *_by_step(figures, policy, suspect=suspect)]


def _acceptance(
    figures: Figures, num_speculative_tokens: int | None, even: BreakEven, policy: Policy, *, low: bool
) -> list[Finding]:
    if (rate := figures.acceptance_ratio) is None:
        return [Finding("PASS", "Verification", PARTLY_VERIFIED if figures.partly_verified else _NO_RATE)]
    text = f"acceptance {percent(rate)} (break-even {even.acceptance_ratio:.0%}, {even.basis})"
    if rate < policy.acceptance_ratio_flag and not low:
        text += f"; below {policy.acceptance_ratio_flag:.0%}, which is shown and alerts nobody"
    found = Finding("WARN" if low else "PASS", "Acceptance", text)
    return [found, *_suspicion(rate, num_speculative_tokens or len(figures.per_position), policy)]


def _by_step(figures: Figures, policy: Policy, *, suspect: bool) -> Iterator[Finding]:
    """Yield what tokens per step and the curve say; ``suspect``: whether the draft may be why speculation loses."""
    if figures.tokens_per_step is not None:
        text = f"tokens per step {figures.tokens_per_step:.2f}, the upper limit of the speed-up"
        yield Finding("PASS", "Tokens per step", text)
    if suspect and (curve := curve_finding(figures, policy)) is not None:
        yield curve
    if figures.short_drafts:
        yield Finding("PASS", "Curve", "some drafts are shorter than k, so the curve's tail reads too low")


def _suspicion(rate: float, positions: int, policy: Policy) -> list[Finding]:
    if rate <= policy.acceptance_ratio_suspicious or positions < policy.suspicious_positions:
        return []
    return [Finding("PASS", "Acceptance", "text that repeats itself is accepted almost always: look at some outputs")]


def curve_finding(figures: Figures, policy: Policy) -> Finding | None:
    """Return what is wrong with the curve: its first position is rejected, or only its first is accepted.

    Where vLLM verifies only part of each draft, its budget is for the whole batch (``adaptive_verification.py`` of
    0.28.0 to 0.33.0), so a busy server may verify no token of some drafts.
    """
    first, second = (*figures.conditional, None, None)[:2]
    if first is None:
        return None
    if first < policy.head_acceptance_ratio_min:
        found = f"position 0 is accepted in {first:.0%} of the drafts only"
        action = "Check that draft and target belong together: checkpoint, tokenizer, quantisation, release."
        if figures.acceptance_ratio is None:
            action += " Look at low load too: a busy vLLM may verify none of a draft."
        else:
            found += ": most drafts are wrong from their first token"
        return Finding("WARN", "Curve", found, action)
    if second is not None and second < policy.tail_acceptance_ratio_min and not figures.short_drafts:
        found = f"position 0 is accepted ({first:.1%}), position 1 almost never ({second:.1%})"
        action = "Check that the draft head fits this release: its second token is almost always wrong."
        return Finding("WARN", "Curve", found, action)
    return None


def chance_findings(
    preliminary: str | None, code: VerdictCode, within_chance: tuple[VerdictCode, ...], interval: Estimate | None
) -> list[Finding]:
    """Return how far chance could explain the verdict. ``preliminary``: the drafts are of too few requests."""
    findings = [Finding("PASS", "Chance", preliminary)] if preliminary else []
    if within_chance:
        possible = {code, *within_chance}
        others = " or ".join(f'"{WORDS[other].title.lower()}"' for other in within_chance)
        words = f"more drafts may change the verdict to {others}"
        if possible & GOOD and possible & LOSSES:
            words = "too early to tell whether speculation pays"
        ends = (interval.low, interval.high) if interval else ()
        acceptance = f": acceptance lies between {' and '.join(map(percent, ends))} (95%)" if ends else ""
        findings.append(Finding("PASS", "Chance", f"{words}{acceptance}"))
    return findings


def cost_findings(evidence: Evidence) -> list[Finding]:
    """Return what drafting cost in one iteration, by the engine's own measure."""
    most, overhead = evidence.speedup_max, evidence.draft_overhead_ratio
    if most is None or overhead is None:
        return []
    text = (
        f"drafting took {overhead:.1%} of the engine's last iteration, by the engine: a speed-up of at most {most:.2f} "
        "in one iteration, which proves nothing alone"
    )
    return [Finding("PASS", "Draft cost", text)]


def interval_findings(evidence: Evidence) -> list[Finding]:
    """Return what a gauge of the engine says of its last interval."""
    if (length := evidence.interval_acceptance_length) is None:
        return []
    return [Finding("PASS", "Interval", f"mean acceptance length {length:.2f} in the engine's last interval (a gauge)")]


def answer_findings(rejection_sampling: str | None) -> list[Finding]:
    """Return whether answers may differ from the target's."""
    if rejection_sampling not in LOSSY_REJECTION:
        return []
    text = f"rejection sampling is lossy ({rejection_sampling}): answers may differ from the target's"
    return [Finding("PASS", "Answers", text)]


# A longer context makes verification dearer, and draft heads are trained on short ones. So the gain of speculation
# falls with the length of prompts, at any load.
_RECORD_AGAIN = "Record a baseline with prompts of this length: speculation gains less, the longer they are."


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


_SPEED_HOLDS = (
    "The measured speed-up counts computed prompt tokens only, so it holds. Times to first token do not compare with "
    "those of the baseline."
)


def other_caches(now: float | None, then: float | None, policy: LatencyPolicy, where: str = "now") -> str | None:
    """Say that caches held another share of the prompt tokens than in the baseline; ``None`` as :func:`other_prompts`.

    ``now`` and ``then`` are these shares, 0..1. ``where`` names the side of ``now``.
    """
    if now is None or then is None or abs(now - then) <= policy.cached_prompt_difference:
        return None
    return f"a prefix cache held {now:.0%} of the prompt tokens {where}, {then:.0%} in the baseline"


def prompt_findings(figures: Figures, baseline: DecodingBaseline | None, policy: Policy) -> list[Finding]:
    """Return whether the baseline's speed belongs to other prompts. A few requests do not tell."""
    if baseline is None or (figures.requests or 0.0) < policy.min_effective_drafts:
        return []
    findings = []
    if words := other_prompts(figures.mean_prompt_tokens, baseline.mean_prompt_tokens, policy.latency):
        found = f"{words}: its speed was recorded with other prompts"
        findings.append(Finding("WARN", "Prompt length", found, _RECORD_AGAIN))
    if words := other_caches(figures.cached_prompt_ratio, baseline.cached_prompt_ratio, policy.latency):
        findings.append(Finding("WARN", "Prefix cache", words, _SPEED_HOLDS))
    return findings
