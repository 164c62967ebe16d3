"""The one judgement of a predictor: evidence and policy in, a verdict with its findings out.

A speed-up measured against a baseline without speculation decides, whatever is accepted: harmful, not paying or
healthy. If it tells nothing yet, or cannot at this load, the word is watch. Without such a baseline, acceptance
decides: broken, watch or healthy. Nothing is said to lose by acceptance, because break-even is a guess then. Where
drafts are fine and decoding is slower than at baseline, the word is slower: look elsewhere.

Where vLLM verifies only part of each draft (adaptive verification), it counts all of it as drafted, so that acceptance
reads too low. If it is good even so, it is good. What is broken shows at position 0.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Final, NamedTuple

import msgspec

from specdec_exporter.predictor.versions import SYNTHETIC, KnownPitfall
from specdec_exporter.speculation.acceptance import acceptance_ratio
from specdec_exporter.speculation.benefit import (
    BreakEven,
    Slowdown,
    Speed,
    assumed_break_even,
    measured_break_even,
    slowdown,
    speed,
)
from specdec_exporter.speculation.chance import Estimate, proportion
from specdec_exporter.speculation.facts import DecodingBaseline, Evidence
from specdec_exporter.speculation.figures import Figures
from specdec_exporter.speculation.findings import answer_findings, by_break_even, chance_findings, request_findings
from specdec_exporter.speculation.policy import Policy, ResolvedPolicy
from specdec_exporter.speculation.promptlength import prompt_findings
from specdec_exporter.speculation.sentences import sentence, subject_of, undecided, without_drafts
from specdec_exporter.speculation.verdict import Finding, Judgement, Verdict, VerdictCode

# Words that say nothing against drafts.
_FINE: Final[frozenset[VerdictCode]] = frozenset({"healthy", "watch"})


def judge(evidence: Evidence, policy: Policy) -> Judgement:
    """Judge ``evidence``. Its figures belong to a window, or to a lifetime if there is no window.

    Too few drafts give no verdict.
    """
    verdict, findings = _drafting(evidence, policy) if evidence.state == "drafting" else _silent(evidence)
    return Judgement(verdict=verdict, findings=findings, pitfalls=evidence.pitfalls())


def told(
    verdict: Verdict, state: str, pitfalls: tuple[KnownPitfall, ...], acceptance_ratio_min: float = 0.0
) -> Judgement:
    """Return a judgement that was made elsewhere: its verdict is the one finding."""
    accepted = verdict.acceptance_ratio
    low = verdict.code == "watch" and accepted is not None and accepted.value < acceptance_ratio_min
    level, subject = subject_of(state) or ("PASS" if verdict.code in _FINE and not low else "WARN", "Verdict")
    return Judgement(
        verdict=verdict, findings=(Finding(level, subject, verdict.headline, verdict.action),), pitfalls=pitfalls
    )


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
    """Return accepted / draft tokens as counted, with its interval; ``None`` without counts.

    Wilson's interval, with as many draws as the drafts are worth: those of one request resemble each other.
    """
    counted = _counted(figures)
    if not counted or not figures.draft_tokens or figures.accepted_tokens is None:
        return None
    effective = policy.effective_drafts(counted, figures.requests)
    return proportion(figures.accepted_tokens, figures.draft_tokens, effective)


def _silent(evidence: Evidence) -> tuple[Verdict, tuple[Finding, ...]]:
    judgement = told(without_drafts(evidence.state), evidence.state, ())
    return judgement.verdict, judgement.findings


def _undecided(case: str, reason: str) -> tuple[Verdict, tuple[Finding, ...]]:
    verdict = undecided(case, reason)
    return verdict, (Finding("WARN", "Acceptance", f"{verdict.headline}: {reason}", verdict.action),)


def _few_drafts(figures: Figures, policy: Policy) -> tuple[Verdict, tuple[Finding, ...]]:
    what = "draft tokens" if figures.drafts is None else "drafts"
    reason = f"{_counted(figures):.0f} {what}, at least {policy.min_drafts} are needed"
    unknown, finding = _undecided("few_drafts", reason)
    interval = None if figures.acceptance_ratio is None else acceptance_interval(figures, policy)
    return msgspec.structs.replace(unknown, acceptance_ratio=interval, preliminary=reason), finding


class _Weighed(NamedTuple):
    """What decides. ``measured`` and ``late``: speed and latency against the baseline, as far as it tells.

    ``rate`` and its ``interval`` are ``None`` where vLLM verifies only part of each draft.
    """

    figures: Figures
    rate: float | None
    interval: Estimate | None
    even: BreakEven
    measured: Speed | None
    late: Slowdown | None
    accepted: VerdictCode  # by acceptance alone
    code: VerdictCode
    within_chance: tuple[VerdictCode, ...]
    decided: bool  # by a measurement
    preliminary: str | None


def _drafting(evidence: Evidence, policy: Policy) -> tuple[Verdict, tuple[Finding, ...]]:
    if evidence.deployment.rejection_sampling == SYNTHETIC:
        return _undecided("synthetic", "rejection_sample_method is synthetic: the operator set the rates of acceptance")
    figures = evidence.figures
    if figures is None or (rate := _counted_ratio(figures, evidence)) is None:
        return _undecided("no_figures", "two readings of the predictor are needed")
    if not _has_min_drafts(figures, policy):
        return _few_drafts(figures, policy)
    own = policy.for_method(evidence.method)
    found = _weigh(figures, rate, evidence, own)
    headline, action = sentence(
        found.code, found.accepted, found.even, found.rate, evidence, measured=found.measured, late=found.late
    )
    findings = _findings(found, evidence, own)
    # The next step belongs to the first finding: the measurement if there is one, else acceptance.
    if found.code != "healthy":
        findings[0] = msgspec.structs.replace(findings[0], action=action)
    elif found.decided:  # there is nothing to do, unless a finding says so
        action = next((finding.action for finding in findings if finding.action), action)
    verdict = Verdict(
        code=found.code,
        basis="measured" if found.decided or (found.code == "watch" and evidence.cost is not None) else "assumed",
        headline=headline,
        reasons=tuple(finding.found for finding in findings),
        action=action,
        acceptance_ratio=found.interval,
        within_chance=found.within_chance,
        preliminary=found.preliminary,
    )
    return verdict, tuple(findings)


def _counted_ratio(figures: Figures, evidence: Evidence) -> float | None:
    """Return accepted / draft tokens as vLLM counts them: the acceptance rate if it verifies all of each draft."""
    if evidence.deployment.adaptive_verification:
        return acceptance_ratio(figures.accepted_tokens, figures.draft_tokens)
    return figures.acceptance_ratio


def _weigh(figures: Figures, rate: float, evidence: Evidence, own: ResolvedPolicy) -> _Weighed:
    """Choose the word. ``rate``: accepted / draft tokens as counted."""
    policy, k, partly = own.general, evidence.num_speculative_tokens, evidence.deployment.adaptive_verification
    interval = acceptance_interval(figures, policy)
    measured = speed(figures, evidence, own)
    even = measured_break_even(figures, k, evidence.cost) or assumed_break_even(figures, k, own)
    head = next(iter(figures.per_position), 1.0)
    unsure = (evidence.cost is not None or evidence.unmeasured is not None) and not _decides(measured)
    accepted = partial(_by_acceptance, head=head if partly else None, policy=own)
    guess = partial(accepted, unsure=unsure)
    by_drafts = _code(rate, guess, measured)
    low = not partly and rate < even.acceptance_ratio
    late = _slowdown(figures, evidence.baseline, measured, own, low=low)
    code: VerdictCode = "slower" if late is not None and late.slower and by_drafts in _FINE else by_drafts
    decided = _decides(measured) or code == "slower"
    limits = (policy.acceptance_ratio_broken, own.acceptance_ratio_watch)
    possible = _with_slower({by_drafts, *_within_chance(interval, guess, limits, measured)}, late)
    return _Weighed(
        figures=figures,
        rate=None if partly else rate,
        interval=None if partly else interval,
        even=even,
        measured=measured,
        late=late,
        accepted=accepted(rate),
        code=code,
        within_chance=tuple(sorted(possible - {code})),
        decided=decided,
        preliminary=None if decided or suffices(figures, policy) else _too_few_requests(figures, policy),
    )


def _findings(found: _Weighed, evidence: Evidence, own: ResolvedPolicy) -> list[Finding]:
    """Return the reasons, those by which it was decided first."""
    first, measured = [], found.measured
    if found.late is not None and found.code == "slower":
        first.append(Finding("WARN", "Latency", found.late.reason))
    if measured is not None and (found.code != "slower" or measured.pays):  # against other drafts it is no speed-up
        lost = measured.harmful or measured.pays is False
        first.append(Finding("WARN" if lost else "PASS", "Speed", measured.reason))
    if measured is None and evidence.unmeasured is not None:
        first.append(Finding("PASS", "Speed", f"speed-up not known: {evidence.unmeasured.why}"))
    return [
        *first,
        *by_break_even(found.figures, found.rate, evidence.num_speculative_tokens, found.even, own),
        *request_findings(found.figures.by_request, own),
        *chance_findings(found.preliminary, found.within_chance, found.interval),
        *prompt_findings(found.figures, evidence.baseline, own.general),
        *answer_findings(evidence.deployment.rejection_sampling),
    ]


def _too_few_requests(figures: Figures, policy: Policy) -> str:
    effective = policy.effective_drafts(_counted(figures) or 0.0, figures.requests)
    whose = "few requests"
    if figures.requests is not None:
        requests = max(round(figures.requests), 1)
        whose = f"{requests:,} request{'' if requests == 1 else 's'}"
    return f"the drafts of {whose} tell as much as {effective:.0f} independent ones: too few to be sure"


def _code(rate: float, guess: Callable[[float], VerdictCode], measured: Speed | None) -> VerdictCode:
    if measured is not None and measured.harmful:
        return "harmful"
    if measured is not None and measured.pays is not None:
        return "healthy" if measured.pays else "not_paying"
    return guess(rate)


def _decides(measured: Speed | None) -> bool:
    """Whether the measured speed decides, whatever is accepted."""
    return measured is not None and (measured.harmful or measured.pays is not None)


def _slowdown(
    figures: Figures, baseline: DecodingBaseline | None, measured: Speed | None, policy: ResolvedPolicy, *, low: bool
) -> Slowdown | None:
    """Compare with the baseline, unless drafts may be why.

    Against one without drafts, they must be shown to pay; against another, their acceptance must not be ``low``.
    """
    pays = measured is not None and measured.pays
    if baseline is None or not (pays or (baseline.speculative and not low)):
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
    interval: Estimate | None,
    guess: Callable[[float], VerdictCode],
    limits: Sequence[float],
    measured: Speed | None,
) -> set[VerdictCode]:
    """Return the words within the intervals: the speed-up's, and acceptance's unless speed decides."""
    possible: set[VerdictCode] = set(measured.possible) if measured else set()
    if not _decides(measured) and interval is not None and interval.low is not None and interval.high is not None:
        between = (limit for limit in limits if interval.low < limit < interval.high)
        possible |= {guess(rate) for rate in (interval.low, interval.high, *between)}
    return possible


def _by_acceptance(rate: float, head: float | None, *, policy: ResolvedPolicy, unsure: bool = False) -> VerdictCode:
    """Choose the word by accepted / draft tokens as counted.

    ``head``: acceptance at position 0, where vLLM verifies only part of each draft. ``unsure``: a measurement does not
    tell yet, so that nothing is said to be good.
    """
    if (rate if head is None else head) < policy.general.acceptance_ratio_broken:
        return "broken"
    return "watch" if unsure or rate < policy.acceptance_ratio_watch else "healthy"
