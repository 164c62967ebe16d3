"""The one judgement of a predictor: evidence and policy in, a verdict with its findings out. Pure.

:mod:`.weighing` chooses the word; the sentences are told here, for whoever reads them: page, API and commands.
"""

from __future__ import annotations

import msgspec

from specdec_exporter.predictor.versions import KnownPitfall
from specdec_exporter.speculation.benefit import BreakEven
from specdec_exporter.speculation.evidence import Evidence
from specdec_exporter.speculation.figures import Figures
from specdec_exporter.speculation.findings import (
    answer_findings,
    by_break_even,
    chance_findings,
    cost_findings,
    interval_findings,
    prompt_findings,
)
from specdec_exporter.speculation.policy import Policy
from specdec_exporter.speculation.sentences import (
    IDLE_SPECULATION,
    SUBJECTS,
    sentence,
    undecided,
    without_drafts,
)
from specdec_exporter.speculation.verdict import GOOD, LOSSES, WORDS, Finding, Judgement, Level, Undecided, Verdict
from specdec_exporter.speculation.weighing import Weighed, no_word, weigh


def judge(evidence: Evidence, policy: Policy) -> Judgement:
    """Judge ``evidence``. Its figures belong to a window, or to a lifetime if there is no window.

    Too few drafts, or of too few requests, give no verdict.
    """
    weighed = weigh(evidence, policy)
    verdict, findings = tell(weighed if weighed.preliminary is None else no_word(weighed), policy)
    return Judgement(verdict=verdict, findings=findings, pitfalls=evidence.pitfalls())


def tell(weighed: Weighed, policy: Policy) -> tuple[Verdict, tuple[Finding, ...]]:
    """Return the verdict that ``weighed`` is, and the findings behind it."""
    if weighed.undecided is not None:
        return _undecided(weighed, *weighed.undecided)
    if weighed.evidence.figures is not None and weighed.even is not None:
        return _judged(weighed, weighed.evidence.figures, weighed.even, policy)
    verdict = _without_drafts(weighed)
    return verdict, told(verdict, weighed.evidence.state, ()).findings


def _undecided(weighed: Weighed, case: Undecided, reason: str) -> tuple[Verdict, tuple[Finding, ...]]:
    verdict = msgspec.structs.replace(
        undecided(case, reason), acceptance_ratio=weighed.acceptance_ratio, preliminary=weighed.preliminary
    )
    return verdict, (Finding("WARN", "Acceptance", f"{verdict.headline}: {reason}", verdict.action),)


def _without_drafts(weighed: Weighed) -> Verdict:
    said, measured = without_drafts(weighed.evidence), weighed.measured
    loses = weighed.code in LOSSES
    headline, action = IDLE_SPECULATION if loses else (said.headline, said.action)
    return Verdict(
        code=weighed.code,
        basis=weighed.basis,
        headline=headline,
        reasons=said.reasons if measured is None else (*said.reasons, measured.reason),
        action=action,
        within_chance=weighed.within_chance,
    )


def told(verdict: Verdict, state: str, pitfalls: tuple[KnownPitfall, ...]) -> Judgement:
    """Return a judgement that was made elsewhere: its verdict is the one finding."""
    finding = Finding(WORDS[verdict.code].level, SUBJECTS.get(state, "Verdict"), verdict.headline, verdict.action)
    return Judgement(verdict=verdict, findings=(finding,), pitfalls=pitfalls)


def _judged(weighed: Weighed, figures: Figures, even: BreakEven, policy: Policy) -> tuple[Verdict, tuple[Finding, ...]]:
    """Tell the word for enough drafts."""
    evidence, code, decided = weighed.evidence, weighed.code, weighed.decided
    headline, action = sentence(weighed, figures, even)
    findings = [
        *_measured_findings(weighed),
        *by_break_even(figures, evidence.num_speculative_tokens, even, policy, code, decided=decided),
        *chance_findings(weighed.preliminary, code, weighed.within_chance, weighed.acceptance_ratio),
        *cost_findings(evidence),
        *interval_findings(evidence),
        *prompt_findings(figures, evidence.baseline, policy),
        *answer_findings(evidence.deployment.rejection_sampling),
    ]
    # The next step belongs to the first finding: the measurement if there is one, else acceptance.
    if code not in GOOD:
        level = findings[0].level if any(finding.level != "PASS" for finding in findings) else WORDS[code].level
        findings[0] = msgspec.structs.replace(findings[0], level=level, action=action)
    elif decided:  # there is nothing to do, unless a finding says so
        action = next((finding.action for finding in findings if finding.action), action)
    verdict = Verdict(
        code=code,
        basis=weighed.basis,
        headline=headline,
        reasons=tuple(finding.found for finding in findings),
        action=action,
        acceptance_ratio=weighed.acceptance_ratio,
        within_chance=weighed.within_chance,
        preliminary=weighed.preliminary,
    )
    return verdict, tuple(findings)


def _measured_findings(weighed: Weighed) -> list[Finding]:
    """Return the findings on speed and latency."""
    findings, measured, cost = [], weighed.measured, weighed.evidence.cost
    if weighed.late is not None and weighed.code == "slower":
        findings.append(Finding("WARN", "Latency", weighed.late.reason))
    # Against other drafts it is no speed-up.
    if measured is not None and (weighed.code != "slower" or measured.word == "healthy"):
        level: Level = "WARN" if measured.word in ("harmful", "not_paying") else "PASS"
        findings.append(Finding(level, "Speed", measured.reason))
    if measured is None and cost is not None and cost.unknown is not None:
        findings.append(Finding("PASS", "Speed", f"speed-up not known: {cost.unknown.why}"))
    return findings
