"""Is speculation paying off? The one judgement of a predictor: evidence and policy in, words out.

The verdict is the worst proven state: broken, harmful, not paying, watch, healthy. Acceptance against the policy's
break-even is an estimate. A speed-up measured against a baseline without speculation overrides it, both ways. Page,
API, ``check`` and ``analyze`` show this judgement; the rule pack records the same states by the same thresholds.
"""

from __future__ import annotations

import math
from typing import Literal, NamedTuple

import msgspec

from specdec_exporter.predictor.versions import LOSSY_REJECTION, SYNTHETIC, KnownPitfall
from specdec_exporter.speculation.acceptance import break_even_length, ratio, recommended_num_speculative_tokens
from specdec_exporter.speculation.facts import DecodingBaseline, Evidence
from specdec_exporter.speculation.figures import Figures
from specdec_exporter.speculation.policy import Policy, ResolvedPolicy

VerdictCode = Literal["healthy", "watch", "not_paying", "harmful", "broken", "idle", "off", "unknown"]
Level = Literal["PASS", "WARN", "FAIL"]


class Finding(msgspec.Struct, frozen=True):
    """One finding: its level, what was found, and the next step if there is one."""

    level: Level
    subject: str
    found: str
    action: str | None = None


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """The verdict: one word, one sentence, the reasons, and the next step."""

    code: VerdictCode
    headline: str
    reasons: tuple[str, ...]
    action: str


class Judgement(msgspec.Struct, frozen=True, kw_only=True):
    """The verdict, the findings behind it, and the known pitfalls of the predictor's release."""

    verdict: Verdict
    findings: tuple[Finding, ...]
    pitfalls: tuple[KnownPitfall, ...]


class _Measured(NamedTuple):
    """Time per output token against the baseline's.

    ``pays``: whether the speed-up is large enough; ``None`` with too few requests, or if the baseline speculates.
    """

    harmful: bool
    pays: bool | None
    reason: str


def recommend(figures: Figures | None, num_speculative_tokens: int | None, policy: ResolvedPolicy) -> int | None:
    """Return the best k by the measured curve; ``None`` if the method fixes k, or drafts are too few or too short."""
    general = policy.general
    if policy.fixed_k or figures is None or not num_speculative_tokens or (figures.drafts or 0.0) < general.min_drafts:
        return None
    if (figures.mean_draft_length or 0.0) < num_speculative_tokens * (1.0 - general.short_draft_tolerance):
        return None
    return recommended_num_speculative_tokens(figures.per_position, policy.draft_cost_ratio)


def mean_acceptance_length_min(
    figures: Figures | None, num_speculative_tokens: int | None, policy: ResolvedPolicy
) -> float | None:
    """Return the break-even length for drafts of mean length; if that is not known, for drafts of k tokens."""
    drafted = figures.mean_draft_length if figures else None
    length = drafted or num_speculative_tokens
    return None if length is None else break_even_length(length, policy.draft_cost_ratio)


def suffices(figures: Figures, policy: Policy) -> bool:
    """Whether there are enough drafts to judge.

    If the release counts no drafts, the draft tokens decide. A V0 engine gives a ratio without any count; it suffices.
    """
    counted = figures.draft_tokens if figures.drafts is None else figures.drafts
    return counted is None or counted >= policy.min_drafts


def judge(evidence: Evidence, policy: Policy) -> Judgement:
    """Judge ``evidence``. Its figures belong to a window, or to a lifetime if there is no window.

    Acceptance below the method's minimum does not break even. This is the same as a mean acceptance length below
    1 + draft length * minimum. Between the minimum and the watch level speculation may pay: measure. Too few drafts
    give no verdict. A baseline is compared by the time per output token, if the figures have one.
    """
    verdict, findings = _drafting(evidence, policy) if evidence.state == "drafting" else _without_drafts(evidence)
    return Judgement(verdict=verdict, findings=findings, pitfalls=evidence.pitfalls())


def _without_drafts(evidence: Evidence) -> tuple[Verdict, tuple[Finding, ...]]:
    (level, subject), verdict = _SUBJECTS[evidence.state], _WITHOUT_DRAFTS[evidence.state]
    return verdict, (Finding(level, subject, verdict.headline, verdict.action),)


def _drafting(evidence: Evidence, policy: Policy) -> tuple[Verdict, tuple[Finding, ...]]:
    if evidence.rejection_sampling == SYNTHETIC:
        return _undecided("synthetic", "rejection_sample_method is synthetic: the operator set the rates of acceptance")
    figures, own = evidence.figures, policy.for_method(evidence.method)
    rate = figures.acceptance_ratio if figures else None
    if figures is None or rate is None:
        return _undecided("no_figures", "two readings of the predictor are needed")
    if not suffices(figures, policy):
        counted = (
            f"{figures.draft_tokens:.0f} draft tokens" if figures.drafts is None else f"{figures.drafts:.0f} drafts"
        )
        return _undecided("few_drafts", f"{counted}, at least {policy.min_drafts} are needed")
    measured = _measure(figures, evidence.baseline, own) if evidence.baseline else None
    code = _code(rate, own, measured)
    headline, action = _words(code, rate, own, measured)
    if code == "not_paying":
        k = evidence.num_speculative_tokens
        action = _remedy(recommend(figures, k, own), k)
    findings = [*_findings(figures, rate, evidence.num_speculative_tokens, own), *_remarks(evidence)]
    # The next step belongs to the first finding: the measurement if there is one, else acceptance.
    if measured is not None:
        lost = measured.harmful or measured.pays is False
        findings.insert(0, Finding("WARN" if lost else "PASS", "Speed", measured.reason))
    if code != "healthy":
        findings[0] = msgspec.structs.replace(findings[0], action=action)
    reasons = tuple(finding.found for finding in findings)
    return Verdict(code=code, headline=headline, reasons=reasons, action=action), tuple(findings)


def _undecided(case: str, reason: str) -> tuple[Verdict, tuple[Finding, ...]]:
    headline, action = _WORDS[case]
    verdict = Verdict(code="unknown", headline=headline, reasons=(reason,), action=action)
    return verdict, (Finding("WARN", "Acceptance", f"{headline}: {reason}", action),)


def _findings(
    figures: Figures, rate: float, num_speculative_tokens: int | None, policy: ResolvedPolicy
) -> list[Finding]:
    """Judge acceptance, length and curve by the method's policy."""
    low = rate < policy.acceptance_ratio_min
    text = f"acceptance {rate:.2f} (minimum {policy.acceptance_ratio_min:.2f} for this method)"
    findings = [Finding("WARN" if low else "PASS", "Acceptance", text)]
    if _is_suspicious(figures, rate, num_speculative_tokens, policy.general):
        text = "text that repeats itself is accepted almost always: look at some outputs"
        findings.append(Finding("PASS", "Acceptance", text))
    length = figures.mean_acceptance_length
    break_even = mean_acceptance_length_min(figures, num_speculative_tokens, policy)
    if length is not None and break_even is not None:
        text = f"mean acceptance length {length:.2f} (break-even {break_even:.2f})"
        findings.append(Finding("WARN" if length < break_even else "PASS", "Length", text))
    if figures.tokens_per_step is not None:
        text = f"tokens per step {figures.tokens_per_step:.2f}, which is the ceiling of the speed-up"
        findings.append(Finding("PASS", "Tokens per step", text))
    if (curve := curve_finding(figures, policy)) is not None:
        findings.append(curve)
    if figures.short_drafts:
        text = "some drafts are shorter than k, so the curve's tail reads too low"
        findings.append(Finding("PASS", "Curve", text))
    return findings


def _remarks(evidence: Evidence) -> list[Finding]:
    """Return what matters beside the verdict: published lengths, and answers that may differ."""
    remarks = [Finding("PASS", "Reference", evidence.published)] if evidence.published else []
    if evidence.rejection_sampling in LOSSY_REJECTION:
        text = f"rejection sampling is lossy ({evidence.rejection_sampling}): answers may differ from the target's"
        remarks.append(Finding("PASS", "Answers", text))
    return remarks


def curve_finding(figures: Figures, policy: ResolvedPolicy) -> Finding | None:
    """Return what is wrong with the curve: its first position is rejected, or only its first is accepted."""
    first, second = (*figures.conditional, None, None)[:2]
    if first is None:
        return None
    if first < policy.general.head_acceptance_ratio_min:
        return Finding(
            "WARN",
            "Curve",
            f"position 0 is accepted in {first:.0%} of the drafts only: the draft is wrong from its first token",
            "Check that draft and target belong together: checkpoint, tokenizer, quantisation, release.",
        )
    if second is not None and second < policy.general.tail_acceptance_ratio_min and not figures.short_drafts:
        return Finding(
            "WARN",
            "Curve",
            f"position 0 is accepted ({first:.1%}), position 1 almost never ({second:.1%})",
            f"{'Check' if policy.fixed_k else 'Lower k to 1, or check'} that the draft head fits this release: its "
            "second token is almost always wrong.",
        )
    return None


def _is_suspicious(figures: Figures, rate: float, num_speculative_tokens: int | None, policy: Policy) -> bool:
    """Whether acceptance is so high that the text probably repeats itself."""
    positions = num_speculative_tokens or len(figures.per_position)
    return rate > policy.acceptance_ratio_suspicious and positions >= policy.suspicious_positions


def _measure(figures: Figures, baseline: DecodingBaseline, policy: ResolvedPolicy) -> _Measured | None:
    """Compare time per output token with the baseline's; ``None`` if either is missing."""
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


def _words(code: VerdictCode, rate: float, policy: ResolvedPolicy, measured: _Measured | None) -> tuple[str, str]:
    """Return headline and next step; for ``not_paying`` the caller finds the next step."""
    case: str = code
    if code == "harmful" and rate >= policy.acceptance_ratio_min:
        case = "harmful_though_accepted"
    elif code == "not_paying" and measured is not None and measured.pays is False:
        case = "measured_not_paying"
    elif code == "watch" and measured is not None and measured.pays:
        case = "measured_paying"
    return _WORDS[case]


_WORDS: dict[str, tuple[str, str]] = {
    "no_figures": ("Speculation is on; there are no figures yet", "Wait for the next reading."),
    "few_drafts": ("Too few drafts for a verdict", "Look again after more traffic."),
    "synthetic": (
        "Acceptance is synthetic: it says nothing about the draft",
        "To measure the draft, remove rejection_sample_method from --speculative-config: synthetic is for tests.",
    ),
    "broken": (
        "Almost nothing that is drafted is accepted",
        "Switch speculation off until draft and target fit: model, tokenizer, quantisation, release.",
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
        "Speculation pays off now, although acceptance is low",
        "Watch it under load: bigger batches need more acceptance to break even.",
    ),
    "healthy": ("Speculation is paying off", "Nothing to do."),
}


def _remedy(recommended: int | None, num_speculative_tokens: int | None) -> str:
    look = "look at the draft head, the sampling temperature and the load"
    if recommended == 0:
        return f"Switch speculation off, or compare latency with a run without it; then {look}."
    if recommended and num_speculative_tokens and recommended < num_speculative_tokens:
        return f"Lower k from {num_speculative_tokens} to {recommended}; then {look}."
    return f"Compare latency with a run without speculation, and {look}."


# States without drafts to judge: level and subject of the one finding, and the verdict.
_SUBJECTS: dict[str, tuple[Level, str]] = {
    "unreachable": ("FAIL", "Metrics"),
    "stats_disabled": ("FAIL", "Statistics"),
    "speculation_off": ("WARN", "Speculation"),
    "idle": ("PASS", "Drafting"),
    "not_drafting": ("WARN", "Drafting"),
    "api_servers": ("PASS", "Log"),
    "no_engine_config": ("WARN", "Log"),
    "no_stats_lines": ("PASS", "Log"),
    "nothing_known": ("WARN", "Log"),
}
_WITHOUT_DRAFTS: dict[str, Verdict] = {
    "unreachable": Verdict(
        code="unknown",
        headline="The predictor does not answer, so nothing is known",
        reasons=(),
        action="Check that the predictor runs and that --predictor.url points at the port of its /metrics.",
    ),
    "stats_disabled": Verdict(
        code="unknown",
        headline="The predictor answers, but without engine statistics",
        reasons=("its /metrics holds none of the inference engine's families",),
        action="Start vLLM without --disable-log-stats, or point --predictor.url at vLLM instead of a proxy.",
    ),
    "speculation_off": Verdict(
        code="off",
        headline="Speculative decoding is off",
        reasons=(
            "the predictor exposes no draft counters, or its log says speculative_config=None",
            "or its method is extract_hidden_states, which drafts nothing",
        ),
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
    "api_servers": Verdict(
        code="unknown",
        headline="Several API servers: vLLM switches its periodic stats lines off",
        reasons=(
            "with --api-server-count above 1 no stats line is logged (vLLM 0.10.2 and later)",
            "--data-parallel-size N runs N API servers unless told otherwise (0.15.1 and later)",
        ),
        action="Read /metrics, which stays complete: specdec-exporter check URL. For lines in the log start vLLM with "
        "--api-server-count 1.",
    ),
    "no_engine_config": Verdict(
        code="unknown",
        headline="Tokens were generated, but no spec-decode line was logged",
        reasons=(
            "speculation is off, or nothing was drafted; the engine's init line, which would tell, is not in this log",
        ),
        action="Read the log from the predictor's start, or ask it: specdec-exporter check URL.",
    ),
    "no_stats_lines": Verdict(
        code="unknown",
        headline="Speculation is configured, but the log holds no stats line",
        reasons=(
            "no traffic yet: idle intervals are logged at DEBUG level only",
            "or --disable-log-stats, or a log level above INFO (VLLM_LOGGING_LEVEL)",
            "or several API servers (--api-server-count, --data-parallel-size), which switch the lines off",
        ),
        action="Ask the predictor: specdec-exporter check URL.",
    ),
    "nothing_known": Verdict(
        code="unknown",
        headline="This log holds no line of vLLM's statistics",
        reasons=(
            "another container's or program's log",
            "or --disable-log-stats, a log level above INFO (VLLM_LOGGING_LEVEL), or VLLM_CONFIGURE_LOGGING=0",
            "or a diffusion model, whose lines count no acceptance",
        ),
        action="Check that this is the log of the predictor's own container, from its start; or ask the predictor: "
        "specdec-exporter check URL.",
    ),
}
