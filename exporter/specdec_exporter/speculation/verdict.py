"""Is speculation paying off? One word, one sentence, the reasons and the next step, from figures and policy.

The worst state that is proved holds: broken, harmful, not paying, watch, healthy. Acceptance and the break-even of the
policy are an estimate; a speed-up measured against a baseline without speculation is stronger than it, both ways. The
rule pack records the same states by the same thresholds.
"""

from __future__ import annotations

import math
from typing import Literal

import msgspec

from specdec_exporter.speculation.acceptance import break_even_length, ratio, recommended_num_speculative_tokens
from specdec_exporter.speculation.figures import Figures
from specdec_exporter.speculation.policy import ResolvedPolicy

StateName = Literal["unreachable", "stats_disabled", "speculation_off", "idle", "not_drafting", "drafting"]
VerdictCode = Literal["healthy", "watch", "not_paying", "harmful", "broken", "idle", "off", "unknown"]


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """One word, one sentence, why, and what to do next."""

    code: VerdictCode
    headline: str
    reasons: tuple[str, ...]
    action: str


_WITHOUT_DRAFTS = {
    "unreachable": Verdict(
        code="unknown",
        headline="The predictor does not answer, so nothing is known",
        reasons=(),
        action="Check that the predictor runs and that --predictor.url points at the port of its /metrics.",
    ),
    "stats_disabled": Verdict(
        code="unknown",
        headline="The predictor answers without a single statistic of its engine",
        reasons=("its /metrics holds none of the inference engine's families",),
        action="Start vLLM without --disable-log-stats, or point --predictor.url at vLLM instead of a proxy.",
    ),
    "speculation_off": Verdict(
        code="off",
        headline="Speculative decoding is off",
        reasons=("the predictor exposes no draft counters, or its log says speculative_config=None",),
        action="Nothing to do, unless it should be on: pass --speculative-config to vLLM.",
    ),
    "idle": Verdict(
        code="idle",
        headline="Speculation is on; no tokens are being generated",
        reasons=(),
        action="Wait for traffic.",
    ),
    "not_drafting": Verdict(
        code="watch",
        headline="Tokens are generated, but nothing is drafted",
        reasons=("no draft tokens while decoding steps go on",),
        action="Look for sampling parameters that switch speculation off, a batch-size limit (dynamic k), or, with "
        "n-gram lookup, prompts that hold nothing to copy.",
    ),
}


class DecodingBaseline(msgspec.Struct, frozen=True):
    """Mean time per output token, seconds, of so many requests at baseline; ``speculative``: recorded with drafts."""

    mean_seconds: float
    requests: float
    speculative: bool


class Remark(msgspec.Struct, frozen=True):
    """Something that a curve shows, and what to do about it."""

    found: str
    action: str


class _Measured(msgspec.Struct, frozen=True):
    """Time per output token over that at baseline.

    ``pays``: whether the speed-up over a baseline without speculation is worth it; ``None`` where that was not
    measured, or of too few requests.
    """

    slowdown: float
    harmful: bool
    pays: bool | None
    reason: str


def recommend(figures: Figures | None, num_speculative_tokens: int | None, policy: ResolvedPolicy) -> int | None:
    """Return the k that the measured curve speaks for; ``None`` where drafts are too few, or too short to tell."""
    general = policy.general
    if figures is None or not num_speculative_tokens or (figures.drafts or 0.0) < general.min_drafts:
        return None
    if (figures.mean_draft_length or 0.0) < num_speculative_tokens * (1.0 - general.short_draft_tolerance):
        return None
    return recommended_num_speculative_tokens(figures.per_position, policy.draft_cost_ratio)


def mean_acceptance_length_min(
    figures: Figures | None, num_speculative_tokens: int | None, policy: ResolvedPolicy
) -> float | None:
    """Return the break-even length of drafts of their mean length, of k tokens while that is not known."""
    drafted = figures.mean_draft_length if figures else None
    length = drafted or num_speculative_tokens
    return None if length is None else break_even_length(length, policy.draft_cost_ratio)


def judge(
    state: StateName,
    figures: Figures | None,
    policy: ResolvedPolicy,
    num_speculative_tokens: int | None,
    baseline: DecodingBaseline | None = None,
) -> Verdict:
    """Return the verdict on ``figures`` (a window's, or a lifetime's where there is no window).

    Acceptance below the method's minimum does not break even; nor does, by the same arithmetic, a mean acceptance
    length below 1 + draft length * minimum. Between minimum and watch level it may pay: measure. Too few drafts give no
    verdict. A ``baseline`` is compared with the time per output token of the figures, where they have one.
    """
    if state != "drafting":
        return _WITHOUT_DRAFTS[state]
    rate = figures.acceptance_ratio if figures else None
    if figures is None or rate is None:
        return Verdict(
            code="unknown",
            headline="Speculation is on; there are no figures yet",
            reasons=("two readings of the predictor are needed",),
            action="Wait for the next reading.",
        )
    if figures.drafts is not None and figures.drafts < policy.general.min_drafts:
        return Verdict(
            code="unknown",
            headline="Too few drafts for a verdict",
            reasons=(f"{figures.drafts:.0f} drafts, at least {policy.general.min_drafts} are needed",),
            action="Look again after more traffic.",
        )
    measured = _measure(figures, baseline, policy) if baseline else None
    code = _code(rate, policy, measured)
    reasons = _reasons(figures, rate, policy, num_speculative_tokens)
    if measured is not None:
        reasons.insert(0, measured.reason)
    headline, action = _words(code, rate, policy, measured)
    if code == "not_paying":
        action = _remedy(recommend(figures, num_speculative_tokens, policy), num_speculative_tokens)
    return Verdict(code=code, headline=headline, reasons=tuple(reasons), action=action)


def curve_remark(figures: Figures, policy: ResolvedPolicy) -> Remark | None:
    """Return what is wrong with the shape of a curve: rejected from its first position, or lost after it."""
    first, second = (*figures.conditional, None, None)[:2]
    if first is None:
        return None
    if first < policy.general.head_acceptance_ratio_min:
        return Remark(
            f"position 0 is accepted in {first:.0%} of the drafts only: the draft is wrong from its first token",
            "Check that draft and target belong together: checkpoint, tokenizer, quantisation, release.",
        )
    if second is not None and second < policy.general.tail_acceptance_ratio_min and not figures.short_drafts:
        return Remark(
            f"position 0 is accepted ({first:.1%}), position 1 almost never ({second:.1%})",
            "Lower k to 1, or check that the draft head fits this release: it loses its way after one token.",
        )
    return None


def is_suspicious(figures: Figures, num_speculative_tokens: int | None, policy: ResolvedPolicy) -> bool:
    """Whether so much is accepted that the text probably repeats itself."""
    rate, general = figures.acceptance_ratio, policy.general
    positions = num_speculative_tokens or len(figures.per_position)
    return rate is not None and rate > general.acceptance_ratio_suspicious and positions >= general.suspicious_positions


def is_below_expected(rate: float, policy: ResolvedPolicy) -> bool:
    """Whether acceptance breaks even and yet falls short of what is usual for the method."""
    expected = policy.acceptance_ratio_expected
    return expected is not None and policy.acceptance_ratio_min <= rate < expected[0]


def _measure(figures: Figures, baseline: DecodingBaseline, policy: ResolvedPolicy) -> _Measured | None:
    """Compare time per output token with the baseline's; ``None`` where there is none to compare."""
    limits = policy.general.latency
    seconds, requests = figures.time_per_output_token_seconds, figures.timed_requests
    slowdown = ratio(seconds, baseline.mean_seconds)
    if not slowdown or not requests or not baseline.requests or seconds is None:
        return None
    chance = limits.z_score * limits.time_per_output_token_cv * math.sqrt(1 / requests + 1 / baseline.requests)
    slower = slowdown > max(limits.harmful_ratio, 1 + chance)
    rejected = (figures.acceptance_ratio or 0.0) < policy.acceptance_ratio_min
    enough = not baseline.speculative and requests >= limits.min_requests
    compared = "with" if baseline.speculative else "without"
    return _Measured(
        slowdown=slowdown,
        harmful=slower and (rejected or not baseline.speculative),
        pays=1 / slowdown >= limits.speedup_min if enough else None,
        reason=f"time per output token {1000 * seconds:.1f} ms over {requests:,.0f} requests, "
        f"{1000 * baseline.mean_seconds:.1f} ms at baseline {compared} speculation: speed-up {1 / slowdown:.2f}",
    )


def _code(rate: float, policy: ResolvedPolicy, measured: _Measured | None) -> VerdictCode:
    pays = measured.pays if measured else None
    if rate < policy.general.acceptance_ratio_broken:
        return "broken"
    if measured is not None and measured.harmful:
        return "harmful"
    if pays is False:
        return "not_paying"
    if rate < policy.acceptance_ratio_min:
        return "watch" if pays else "not_paying"
    if rate < policy.acceptance_ratio_watch and not pays:
        return "watch"
    return "healthy"


def _reasons(figures: Figures, rate: float, policy: ResolvedPolicy, num_speculative_tokens: int | None) -> list[str]:
    reasons = [f"acceptance {rate:.2f} (minimum {policy.acceptance_ratio_min:.2f} for this method)"]
    expected = policy.acceptance_ratio_expected
    if expected is not None and is_below_expected(rate, policy):
        reasons.append(
            f"{expected[0]:.2f} to {expected[1]:.2f} is usual for {policy.method}: draft and target may not fit"
        )
    if is_suspicious(figures, num_speculative_tokens, policy):
        reasons.append("text that repeats itself is accepted almost always: look at some outputs")
    break_even = mean_acceptance_length_min(figures, num_speculative_tokens, policy)
    if figures.mean_acceptance_length is not None and break_even is not None:
        reasons.append(f"mean acceptance length {figures.mean_acceptance_length:.2f} (break-even {break_even:.2f})")
    if figures.tokens_per_step is not None:
        reasons.append(f"tokens per step {figures.tokens_per_step:.2f}, which is the ceiling of the speed-up")
    if (remark := curve_remark(figures, policy)) is not None:
        reasons.append(remark.found)
    if figures.short_drafts:
        reasons.append("some drafts are shorter than k, so the curve's tail reads too low")
    return reasons


def _words(code: VerdictCode, rate: float, policy: ResolvedPolicy, measured: _Measured | None) -> tuple[str, str]:
    """Return headline and next step; the next step of ``not_paying`` depends on the curve."""
    case: str = code
    if code == "harmful" and rate >= policy.acceptance_ratio_min:
        case = "harmful_though_accepted"
    elif code == "not_paying" and measured is not None and measured.pays is False:
        case = "measured_not_paying"
    elif code == "watch" and measured is not None and measured.pays:
        case = "measured_paying"
    elif code == "healthy" and is_below_expected(rate, policy):
        case = "below_expected"
    return _WORDS[case]


_WORDS: dict[str, tuple[str, str]] = {
    "broken": (
        "Almost nothing that is drafted is accepted",
        "Switch speculation off until draft and target fit: model, tokenizer, quantisation, release. Drafts are waste.",
    ),
    "harmful": (
        "Speculation makes the service slower",
        "Roll back to the last good --speculative-config, or remove it, now; investigate afterwards.",
    ),
    "harmful_though_accepted": (
        "The service is slower than without speculation, although drafts are accepted",
        "Compare load with the baseline's: in big batches drafts cost more than they save. Limit them, or switch off.",
    ),
    "not_paying": ("Speculation probably costs more than it gives", ""),
    "measured_not_paying": ("Speculation gives no speed-up", ""),
    "watch": (
        "Speculation may or may not pay at this acceptance",
        "Measure: compare latency with a run without speculation.",
    ),
    "measured_paying": (
        "Speculation pays off now, at an acceptance that often does not",
        "Watch it under load: the bigger the batch, the more acceptance it takes to break even.",
    ),
    "healthy": ("Speculation is paying off", "Nothing to do."),
    "below_expected": (
        "Speculation is paying off, less than is usual for its method",
        "Check that draft and target belong together (checkpoint, tokenizer, quantisation); more may be had.",
    ),
}


def _remedy(recommended: int | None, num_speculative_tokens: int | None) -> str:
    look = "look at the draft head, the sampling temperature and the load"
    if recommended == 0:
        return f"Switch speculation off, or compare latency with a run without it; then {look}."
    if recommended and num_speculative_tokens and recommended < num_speculative_tokens:
        return f"Lower k from {num_speculative_tokens} to {recommended}; then {look}."
    return f"Compare latency with a run without speculation, and {look}."
