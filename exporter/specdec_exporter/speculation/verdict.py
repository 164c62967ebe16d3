"""Is speculation paying off? The one judgement of a predictor: evidence and policy in, words out.

A speed-up measured against a baseline without speculation decides, whatever is accepted: harmful, not paying or
healthy. Without one, or if chance could explain it, acceptance decides: broken, not paying, watch or healthy. The
policy's break-even is a guess, and the words say so. Where drafts are fine and decoding is slower than at baseline, the
word is slower: look elsewhere. Page, API, ``check`` and ``analyze`` show this judgement; the rule pack records the same
states by the same thresholds.
"""

from __future__ import annotations

import math
from typing import Final, Literal

import msgspec

from specdec_exporter.predictor.versions import LOSSY_REJECTION, SYNTHETIC, KnownPitfall
from specdec_exporter.speculation.benefit import (
    Basis,
    BreakEven,
    Slowdown,
    Speed,
    assumed_break_even,
    k_choice,
    measured_break_even,
    slowdown,
    speed,
)
from specdec_exporter.speculation.cost import KChoice
from specdec_exporter.speculation.estimate import Estimate, proportion
from specdec_exporter.speculation.facts import DecodingBaseline, Evidence
from specdec_exporter.speculation.figures import Figures
from specdec_exporter.speculation.policy import Policy, ResolvedPolicy

VerdictCode = Literal["healthy", "watch", "slower", "not_paying", "harmful", "broken", "idle", "off", "unknown"]
Level = Literal["PASS", "WARN", "FAIL"]


class Finding(msgspec.Struct, frozen=True):
    """One finding: its level, what was found, and the next step if there is one."""

    level: Level
    subject: str
    found: str
    action: str | None = None


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """The verdict: one word, one sentence, the reasons, and the next step.

    ``basis``: whether a measurement decided, or acceptance against a break-even that may be assumed; ``None`` if
    there was nothing to judge. ``acceptance_ratio`` has its 95 % interval; ``None`` without counts. ``within_chance``:
    the other words that may be true of the same service, if only chance made the difference. ``preliminary``: the
    drafts come from so few requests that the next ones may say anything; in words, ``None`` if they suffice.
    """

    code: VerdictCode
    basis: Basis | None = None
    headline: str
    reasons: tuple[str, ...]
    action: str
    acceptance_ratio: Estimate | None = None
    within_chance: tuple[VerdictCode, ...] = ()
    preliminary: str | None = None


class Remembered(msgspec.Struct, frozen=True, kw_only=True):
    """What a predictor was last said to be worth. Times are monotonic seconds.

    ``word``: the verdict that had enough drafts, ``None`` if there was none or it is too old. ``told_at``: the last
    look with enough drafts. ``other``: what all looks since ``other_since`` say instead. ``shown``: the verdict now.
    """

    shown: Verdict
    word: Verdict | None = None
    told_at: float = 0.0
    other: VerdictCode | None = None
    other_since: float = 0.0


def remembered(before: Remembered | None, judged: Verdict, now: float, policy: Policy) -> Remembered:
    """Return what to say now that ``judged`` is what the last figures say.

    A word that chance may confuse with the last one replaces it only after it has held for ``verdict_hold_seconds``:
    else the verdict of a service near a threshold would change at every look. Any other word is said at once. The last
    word also stands while there are too few drafts for another one, for the same time.
    """
    hold = policy.verdict_hold_seconds
    word = before.word if before and now - before.told_at < hold else None
    if judged.preliminary is not None or judged.basis is None:
        shown = judged
        if judged.preliminary is not None:
            few = "there are too few drafts now for another verdict"
            shown = _kept(word, judged, few) if word else _without_word(judged, judged.preliminary)
        return Remembered(shown=shown, word=word, told_at=before.told_at if before else 0.0)
    if word is None or judged.code == word.code or word.code not in judged.within_chance:
        return Remembered(shown=judged, word=judged, told_at=now)
    since = before.other_since if before and before.other == judged.code else now
    if now - since >= hold:
        return Remembered(shown=judged, word=judged, told_at=now)
    reason = f"it becomes {judged.code.replace('_', ' ')} if that holds for {hold / 60:.0f} minutes"
    shown = _kept(word, judged, reason)
    return Remembered(shown=shown, word=word, told_at=now, other=judged.code, other_since=since)


def _without_word(judged: Verdict, reason: str) -> Verdict:
    """Return a preliminary verdict without its word, which the next request may change."""
    verdict, _ = _undecided("few_drafts", reason)
    return msgspec.structs.replace(verdict, acceptance_ratio=judged.acceptance_ratio, preliminary=reason)


def _kept(word: Verdict, judged: Verdict, reason: str) -> Verdict:
    """Return the last word with the figures of now."""
    within_chance = {*judged.within_chance, *((judged.code,) if judged.basis else ())} - {word.code}
    return msgspec.structs.replace(
        word,
        reasons=(*judged.reasons, f"the last verdict stands: {reason}"),
        acceptance_ratio=judged.acceptance_ratio,
        within_chance=tuple(sorted(within_chance)),
    )


class Judgement(msgspec.Struct, frozen=True, kw_only=True):
    """The verdict, the findings behind it, and the known pitfalls of the predictor's release."""

    verdict: Verdict
    findings: tuple[Finding, ...]
    pitfalls: tuple[KnownPitfall, ...]


def suffices(figures: Figures, policy: Policy) -> bool:
    """Whether there are enough drafts, of enough requests, to judge by acceptance.

    If the release counts no drafts, the draft tokens decide. A V0 engine gives a ratio without any count; it suffices.
    """
    counted = _counted(figures)
    if counted is None:
        return True
    effective = policy.effective_drafts(counted, figures.requests)
    return _has_min_drafts(figures, policy) and effective >= policy.min_effective_drafts


def _has_min_drafts(figures: Figures, policy: Policy) -> bool:
    counted = _counted(figures)
    return counted is None or counted >= policy.min_drafts


def _counted(figures: Figures) -> float | None:
    return figures.draft_tokens if figures.drafts is None else figures.drafts


def acceptance_interval(figures: Figures, policy: Policy) -> Estimate | None:
    """Return the acceptance rate with its interval; ``None`` without counts.

    Wilson's interval, with as many draws as the drafts are worth: those of one request resemble each other.
    """
    counted = _counted(figures)
    if not counted or not figures.draft_tokens or figures.accepted_tokens is None:
        return None
    effective = policy.effective_drafts(counted, figures.requests)
    return proportion(figures.accepted_tokens, figures.draft_tokens, effective)


def judge(evidence: Evidence, policy: Policy) -> Judgement:
    """Judge ``evidence``. Its figures belong to a window, or to a lifetime if there is no window.

    Acceptance below break-even, measured or assumed, does not pay. This is the same as a mean acceptance length below
    the break-even length. Below the watch level speculation may pay: measure. Too few drafts give no verdict.
    """
    verdict, findings = _drafting(evidence, policy) if evidence.state == "drafting" else _without_drafts(evidence)
    return Judgement(verdict=verdict, findings=findings, pitfalls=evidence.pitfalls())


def told(verdict: Verdict, state: str, pitfalls: tuple[KnownPitfall, ...]) -> Judgement:
    """Return a judgement that was made elsewhere: its verdict is the one finding."""
    level, subject = _SUBJECTS.get(state, ("PASS" if verdict.code in _WELL else "WARN", "Verdict"))
    return Judgement(
        verdict=verdict, findings=(Finding(level, subject, verdict.headline, verdict.action),), pitfalls=pitfalls
    )


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
    k, interval = evidence.num_speculative_tokens, acceptance_interval(figures, policy)
    measured = speed(figures, evidence.baseline, evidence.cost, own)
    decided = measured is not None and (measured.harmful or measured.pays is not None)
    if not _has_min_drafts(figures, policy):
        what = "draft tokens" if figures.drafts is None else "drafts"
        reason = f"{_counted(figures):.0f} {what}, at least {policy.min_drafts} are needed"
        unknown, finding = _undecided("few_drafts", reason)
        return msgspec.structs.replace(unknown, acceptance_ratio=interval, preliminary=reason), finding
    even = measured_break_even(figures, k, evidence.cost) or assumed_break_even(figures, k, own)
    by_drafts = _code(rate, even, own, measured)
    late = _slowdown(figures, evidence.baseline, measured, own)
    code = "slower" if late is not None and late.slower and by_drafts in _FINE else by_drafts
    decided = decided or code == "slower"
    headline, action = _words(code, even, evidence, measured, late)
    if code == "not_paying" and measured is not None and measured.pays is False:
        action = _remedy(k_choice(figures, k, evidence.cost, own), k)
    possible = {by_drafts, *_within_chance(interval, even, own, measured)}
    within_chance = tuple(sorted(_with_slower(possible, late) - {code}))
    preliminary = None if decided or suffices(figures, policy) else _too_few_requests(figures, policy)
    findings = _findings(figures, rate, k, even, own)
    if preliminary:
        findings.append(Finding("PASS", "Chance", preliminary))
    if within_chance:
        findings.append(Finding("PASS", "Chance", _chance(within_chance, interval)))
    findings += _remarks(evidence)
    # The next step belongs to the first finding: the measurement if there is one, else acceptance.
    if measured is not None and (code != "slower" or measured.pays):  # against other drafts it is no speed-up
        lost = measured.harmful or measured.pays is False
        findings.insert(0, Finding("WARN" if lost else "PASS", "Speed", measured.reason))
    if late is not None and code == "slower":
        findings.insert(0, Finding("WARN", "Latency", late.reason))
    if code != "healthy":
        findings[0] = msgspec.structs.replace(findings[0], action=action)
    reasons = tuple(finding.found for finding in findings)
    basis: Basis = "measured" if decided else even.basis
    verdict = Verdict(
        code=code,
        basis=basis,
        headline=headline,
        reasons=reasons,
        action=action,
        acceptance_ratio=interval,
        within_chance=within_chance,
        preliminary=preliminary,
    )
    return verdict, tuple(findings)


def _too_few_requests(figures: Figures, policy: Policy) -> str:
    effective = policy.effective_drafts(_counted(figures) or 0.0, figures.requests)
    whose = "few requests"
    if figures.requests is not None:
        requests = max(round(figures.requests), 1)
        whose = f"{requests:,} request{'' if requests == 1 else 's'}"
    return f"the drafts of {whose} tell as much as {effective:.0f} independent ones: too few to be sure"


def _chance(within_chance: tuple[VerdictCode, ...], interval: Estimate | None) -> str:
    words = " or ".join(code.replace("_", " ") for code in within_chance)
    acceptance = f": acceptance lies between {interval.low:.2f} and {interval.high:.2f} (95 %)" if interval else ""
    return f"it may also be {words}{acceptance}"


def _undecided(case: str, reason: str) -> tuple[Verdict, tuple[Finding, ...]]:
    headline, action = _WORDS[case]
    verdict = Verdict(code="unknown", headline=headline, reasons=(reason,), action=action)
    return verdict, (Finding("WARN", "Acceptance", f"{headline}: {reason}", action),)


def _findings(
    figures: Figures, rate: float, num_speculative_tokens: int | None, even: BreakEven, policy: ResolvedPolicy
) -> list[Finding]:
    """Judge acceptance, length and curve by the break-even."""
    text = f"acceptance {rate:.2f} (break-even {even.acceptance_ratio:.2f}, {even.basis})"
    findings = [Finding("WARN" if rate < even.acceptance_ratio else "PASS", "Acceptance", text)]
    if _is_suspicious(figures, rate, num_speculative_tokens, policy.general):
        text = "text that repeats itself is accepted almost always: look at some outputs"
        findings.append(Finding("PASS", "Acceptance", text))
    length = figures.mean_acceptance_length
    if length is not None and even.mean_acceptance_length is not None:
        text = f"mean acceptance length {length:.2f} (break-even {even.mean_acceptance_length:.2f}, {even.basis})"
        findings.append(Finding("WARN" if length < even.mean_acceptance_length else "PASS", "Length", text))
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
    """Return what matters beside the verdict: answers that may differ from the target's."""
    if evidence.rejection_sampling not in LOSSY_REJECTION:
        return []
    text = f"rejection sampling is lossy ({evidence.rejection_sampling}): answers may differ from the target's"
    return [Finding("PASS", "Answers", text)]


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
            "Check that the draft head fits this release: its second token is almost always wrong.",
        )
    return None


def _is_suspicious(figures: Figures, rate: float, num_speculative_tokens: int | None, policy: Policy) -> bool:
    """Whether acceptance is so high that the text probably repeats itself."""
    positions = num_speculative_tokens or len(figures.per_position)
    return rate > policy.acceptance_ratio_suspicious and positions >= policy.suspicious_positions


def _code(rate: float, even: BreakEven, policy: ResolvedPolicy, measured: Speed | None) -> VerdictCode:
    if measured is not None and measured.harmful:
        return "harmful"
    if measured is not None and measured.pays is not None:
        return "healthy" if measured.pays else "not_paying"
    return _by_acceptance(rate, even, policy)


_FINE: Final[frozenset[VerdictCode]] = frozenset({"healthy", "watch"})


def _slowdown(
    figures: Figures, baseline: DecodingBaseline | None, measured: Speed | None, policy: ResolvedPolicy
) -> Slowdown | None:
    """Compare with the baseline, unless drafts may be why: against one without drafts, they must be shown to pay."""
    if baseline is None or not (baseline.speculative or (measured is not None and measured.pays)):
        return None
    return slowdown(figures, baseline, policy)


def _with_slower(possible: set[VerdictCode], late: Slowdown | None) -> set[VerdictCode]:
    """Return the possible words when a service that is fine may be slower than its baseline."""
    if late is None or not possible & _FINE:
        return possible
    if late.within_chance:
        return possible | {"slower"}
    return (possible - _FINE) | {"slower"} if late.slower else possible


def _within_chance(
    interval: Estimate | None, even: BreakEven, policy: ResolvedPolicy, measured: Speed | None
) -> set[VerdictCode]:
    """Return the words within the intervals: the speed-up's, and acceptance's unless speed decides."""
    possible: set[VerdictCode] = set(measured.possible) if measured else set()
    decided = measured is not None and (measured.harmful or measured.pays is not None)
    if not decided and interval is not None and interval.low is not None and interval.high is not None:
        limits = (policy.general.acceptance_ratio_broken, even.acceptance_ratio, policy.acceptance_ratio_watch)
        between = (limit for limit in limits if interval.low < limit < interval.high)
        possible |= {_by_acceptance(rate, even, policy) for rate in (interval.low, interval.high, *between)}
    return possible


def _by_acceptance(rate: float, even: BreakEven, policy: ResolvedPolicy) -> VerdictCode:
    if rate < policy.general.acceptance_ratio_broken:
        return "broken"
    if rate < even.acceptance_ratio:
        return "not_paying"
    return "watch" if rate < policy.acceptance_ratio_watch else "healthy"


def _words(
    code: VerdictCode, even: BreakEven, evidence: Evidence, measured: Speed | None, late: Slowdown | None
) -> tuple[str, str]:
    """Return headline and next step."""
    case: str = code
    if code == "slower":
        if measured is not None and measured.pays:
            case = "slower_paying"
        elif late is not None and late.by_drafts:
            case = "slower_by_drafts"
    elif code == "harmful" and even.basis == "measured":
        case = "harmful_at_like_load"
    elif measured is not None and measured.pays is not None and not measured.harmful:
        case = "measured_paying" if measured.pays else "measured_not_paying"
    elif even.basis == "measured" and code != "broken":
        case = "undecided"
    headline, action = _WORDS[case]
    speedup = measured.speedup.value if measured else math.nan
    return headline.format(even=even, speedup=speedup), action.format(measure=_how_to_measure(evidence))


def _how_to_measure(evidence: Evidence) -> str:
    """Return the way to a measured break-even."""
    if evidence.cost is not None:
        return "measure for longer"
    if evidence.baseline is not None and evidence.baseline.step_times is not None:
        return "send enough requests, or record the baseline without speculation at this load too"
    return (
        "record a baseline without speculation (specdec-exporter baseline record) and serve it with --baseline.file; "
        "then break-even is measured here"
    )


_LOOK_ELSEWHERE = (
    "If it began with a deployment, roll back. Otherwise look at load (waiting requests, KV cache, preemptions), "
    "neighbours on the machine and longer prompts."
)
_WORDS: dict[str, tuple[str, str]] = {
    "slower": ("Slower than before, not because of drafts", _LOOK_ELSEWHERE),
    "slower_paying": (
        "Slower than before, not because of drafts: speculation still gives {speedup:.2f}x",
        _LOOK_ELSEWHERE,
    ),
    "slower_by_drafts": (
        "Slower than before: fewer draft tokens are accepted",
        "Find what changed when acceptance fell: draft model, target, quantisation, release, sampling or prompts.",
    ),
    "no_figures": ("Speculation is on; there are no figures yet", "Wait for the next reading."),
    "few_drafts": ("Too few drafts for a verdict", "Look again after more traffic."),
    "synthetic": (
        "Acceptance is synthetic: it says nothing about the draft",
        "To measure the draft, remove rejection_sample_method from --speculative-config: synthetic is for tests.",
    ),
    "broken": (
        "Almost nothing that is drafted is accepted",
        "Check that draft and target belong together: model, tokenizer, quantisation, release. Then {measure}.",
    ),
    "harmful": (
        "Decoding is much slower than at baseline",
        "Roll back to the last good --speculative-config, or remove it, now; investigate afterwards.",
    ),
    "harmful_at_like_load": (
        "Speculation makes the service slower than the same load without it",
        "Roll back to the last good --speculative-config, or remove it, now; investigate afterwards.",
    ),
    "not_paying": (
        "Acceptance is below {even.acceptance_ratio:.2f}; whether it pays is not measured here",
        "To know, {measure}. Meanwhile look at the draft head, the sampling temperature and the traffic.",
    ),
    "measured_not_paying": ("Speculation gives no speed-up", ""),
    "watch": (
        "Speculation may or may not pay at this acceptance; it is not measured here",
        "To know, {measure}.",
    ),
    "undecided": ("The measurement does not tell yet whether speculation pays", "To know, {measure}."),
    "measured_paying": ("Speculation is paying off", "Nothing to do."),
    "healthy": ("Acceptance is good; the speed-up is not measured here", "To know it, {measure}."),
}


def _remedy(choice: KChoice | None, num_speculative_tokens: int | None) -> str:
    """Return the next step after a measured loss."""
    if choice is not None and choice.recommended == 0:
        return "Switch speculation off at this load: no k up to the running one pays."
    if choice is not None and choice.recommended and choice.recommended != num_speculative_tokens:
        return f"Lower k from {num_speculative_tokens} to {choice.recommended}."
    if choice is not None and choice.record_next:
        return (
            f"Switch speculation off at this load, or record k = {choice.record_next} too (specdec-exporter tune): a "
            "lower k may pay."
        )
    return "Switch speculation off at this load, or limit it to smaller batches."


# Speculation may pay.
_WELL: frozenset[VerdictCode] = frozenset({"healthy", "watch"})

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
