"""The one judgement of a predictor: evidence and policy in, a verdict with its findings out.

A speed-up measured against a baseline without speculation decides, whatever is accepted: harmful, not paying or
healthy. If it tells nothing yet, or cannot at this load, the word is watch. Without such a baseline, acceptance
decides: broken, watch or healthy. Nothing is said to lose by acceptance, because break-even is a guess then. Where
drafts are fine and decoding is slower than at baseline, the word is slower: look elsewhere.

Where vLLM verifies only part of each draft (adaptive verification), it counts all of it as drafted, so that acceptance
reads too low. If it is good even so, it is good. What is broken shows at position 0.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import msgspec

from specdec_exporter.predictor.versions import SYNTHETIC, KnownPitfall
from specdec_exporter.speculation.benefit import (
    BreakEven,
    Slowdown,
    Speed,
    break_even,
    of_steps,
    slowdown,
    speed,
)
from specdec_exporter.speculation.chance import Estimate, proportion
from specdec_exporter.speculation.facts import Evidence
from specdec_exporter.speculation.figures import Figures
from specdec_exporter.speculation.findings import (
    answer_findings,
    by_break_even,
    chance_findings,
    prompt_findings,
)
from specdec_exporter.speculation.policy import Policy
from specdec_exporter.speculation.sentences import (
    IDLE_SPECULATION,
    SUBJECTS,
    WITHOUT_DRAFTS,
    sentence,
    undecided,
)
from specdec_exporter.speculation.verdict import Finding, Judgement, Level, Verdict, VerdictCode

# Words that say nothing against drafts.
_FINE: Final[frozenset[VerdictCode]] = frozenset({"healthy", "watch"})
# By acceptance, from the lowest to the highest.
_BY_ACCEPTANCE: Final[tuple[VerdictCode, ...]] = ("broken", "watch", "healthy")


def judge(evidence: Evidence, policy: Policy) -> Judgement:
    """Judge ``evidence``. Its figures belong to a window, or to a lifetime if there is no window.

    Too few drafts give no verdict.
    """
    pitfalls = evidence.pitfalls()
    if evidence.state == "not_drafting":
        return told(_without_drafts(evidence, policy), evidence.state, pitfalls)
    if evidence.state != "drafting":
        return told(WITHOUT_DRAFTS[evidence.state], evidence.state, pitfalls)
    verdict, findings = _drafting(evidence, policy)
    return Judgement(verdict=verdict, findings=findings, pitfalls=pitfalls)


def _without_drafts(evidence: Evidence, policy: Policy) -> Verdict:
    """Judge a server that could draft and does not: the bookkeeping of speculation alone may slow it down."""
    verdict, cost = WITHOUT_DRAFTS["not_drafting"], evidence.cost
    if cost is None or (cost.draft_tokens_per_step or 0.0) > _NO_DRAFTS:
        return verdict
    found = of_steps(cost, policy.latency)
    if found is None:
        return verdict
    slower = found.speedup.high is not None and found.speedup.high < 1.0
    told_apart = found.word if found.word in ("harmful", "not_paying") and slower else None
    headline, action = IDLE_SPECULATION if told_apart else (verdict.headline, verdict.action)
    return Verdict(
        code=told_apart or verdict.code,
        basis="measured",
        headline=headline,
        reasons=(*verdict.reasons, found.reason),
        action=action,
        within_chance=tuple(sorted({*found.possible} - {told_apart or "healthy", "healthy"})),
    )


_NO_DRAFTS: Final = 0.01  # draft tokens for each step


def told(
    verdict: Verdict, state: str, pitfalls: tuple[KnownPitfall, ...], acceptance_ratio_min: float = 0.0
) -> Judgement:
    """Return a judgement that was made elsewhere: its verdict is the one finding."""
    accepted = verdict.acceptance_ratio
    low = verdict.code == "watch" and accepted is not None and accepted.value < acceptance_ratio_min
    level, subject = SUBJECTS.get(state) or ("PASS" if verdict.code in _FINE and not low else "WARN", "Verdict")
    finding = Finding(level, subject, verdict.headline, verdict.action)
    return Judgement(verdict=verdict, findings=(finding,), pitfalls=pitfalls)


def too_few(figures: Figures, policy: Policy) -> str | None:
    """Return why there are too few drafts, or of too few requests, to judge by acceptance; ``None`` if they suffice.

    If the release counts no drafts, the draft tokens decide. A V0 engine gives a ratio without any count; it suffices.
    """
    if (counted := figures.counted) is None:
        return None
    if counted < policy.min_drafts:
        what = "draft tokens" if figures.drafts is None else "drafts"
        return f"{counted:.0f} {what}, at least {policy.min_drafts} are needed"
    effective = policy.effective_drafts(counted, figures.requests)
    if effective >= policy.min_effective_drafts:
        return None
    whose = "few requests"
    if figures.requests is not None:
        requests = max(round(figures.requests), 1)
        whose = f"{requests:,} request{'' if requests == 1 else 's'}"
    return f"the drafts of {whose} resemble each other and count like {effective:.0f}: too few to be sure"


def acceptance_interval(figures: Figures, policy: Policy) -> Estimate | None:
    """Return accepted / draft tokens as counted, with its interval; ``None`` without counts.

    Wilson's interval, with as many draws as the drafts are worth: those of one request resemble each other.
    """
    if not figures.counted or not figures.draft_tokens or figures.accepted_tokens is None:
        return None
    effective = policy.effective_drafts(figures.counted, figures.requests)
    return proportion(figures.accepted_tokens, figures.draft_tokens, effective)


def _undecided(case: str, reason: str) -> tuple[Verdict, tuple[Finding, ...]]:
    verdict = undecided(case, reason)
    return verdict, (Finding("WARN", "Acceptance", f"{verdict.headline}: {reason}", verdict.action),)


def _drafting(evidence: Evidence, policy: Policy) -> tuple[Verdict, tuple[Finding, ...]]:
    if evidence.deployment.rejection_sampling == SYNTHETIC:
        return _undecided("synthetic", "rejection_sample_method is synthetic: the operator set the rates of acceptance")
    figures = evidence.figures
    if figures is None or figures.counted_ratio is None:
        return _undecided("no_figures", "two readings of the predictor are needed")
    few = too_few(figures, policy)
    if few is not None and (figures.counted or 0.0) < policy.min_drafts:
        unknown, findings = _undecided("few_drafts", few)
        return msgspec.structs.replace(unknown, acceptance_ratio=_shown(figures, policy), preliminary=few), findings
    return _judged(figures, figures.counted_ratio, evidence, policy, few)


def _shown(figures: Figures, policy: Policy) -> Estimate | None:
    """Return the acceptance rate with its interval; ``None`` where vLLM verifies only part of each draft."""
    return None if figures.acceptance_ratio is None else acceptance_interval(figures, policy)


def _judged(
    figures: Figures, counted: float, evidence: Evidence, policy: Policy, few: str | None
) -> tuple[Verdict, tuple[Finding, ...]]:
    """Judge enough drafts. ``counted``: accepted / draft tokens. ``few``: why acceptance is judged by few requests."""
    even = break_even(figures, evidence.num_speculative_tokens, evidence.method, policy, evidence.cost)
    found, interval = _weigh(figures, counted, evidence, even, policy), _shown(figures, policy)
    preliminary = None if found.decided else few
    headline, action = sentence(found.code, even, figures, evidence, measured=found.measured, late=found.late)
    findings = [
        *_measured_findings(found, evidence),
        *by_break_even(figures, evidence.num_speculative_tokens, even, policy, found.code, decided=found.decided),
        *chance_findings(preliminary, found.within_chance, interval),
        *prompt_findings(figures, evidence.baseline, policy),
        *answer_findings(evidence.deployment.rejection_sampling),
    ]
    # The next step belongs to the first finding: the measurement if there is one, else acceptance.
    if found.code != "healthy":
        findings[0] = msgspec.structs.replace(findings[0], action=action)
    elif found.decided:  # there is nothing to do, unless a finding says so
        action = next((finding.action for finding in findings if finding.action), action)
    verdict = Verdict(
        code=found.code,
        basis="measured" if found.decided or (found.code == "watch" and evidence.is_measured) else "assumed",
        headline=headline,
        reasons=tuple(finding.found for finding in findings),
        action=action,
        acceptance_ratio=interval,
        within_chance=found.within_chance,
        preliminary=preliminary,
    )
    return verdict, tuple(findings)


class _Weighed(NamedTuple):
    """The word. ``measured`` and ``late``: speed and latency against the baseline, as far as it tells."""

    code: VerdictCode
    within_chance: tuple[VerdictCode, ...]
    measured: Speed | None
    late: Slowdown | None

    @property
    def decided(self) -> bool:
        """Whether a measurement decides, whatever is accepted."""
        return self.code == "slower" or (self.measured is not None and self.measured.word is not None)


def _weigh(figures: Figures, rate: float, evidence: Evidence, even: BreakEven, policy: Policy) -> _Weighed:
    """Choose the word. ``rate``: accepted / draft tokens as counted."""
    measured = speed(figures, evidence, even, policy)
    code, possible = _guess(figures, rate, evidence, even, policy)
    if measured is not None and measured.word is not None:
        code, possible = measured.word, set()
    possible |= {code, *(measured.possible if measured else ())}
    late = _slowdown(figures, evidence, even, measured, policy)
    if late is not None and possible & _FINE:
        if late.slower or late.within_chance:
            possible.add("slower")
        if late.slower and not late.within_chance:
            possible -= _FINE
        if late.slower and code in _FINE:
            code = "slower"
    return _Weighed(code, tuple(sorted(possible - {code})), measured, late)


def _guess(
    figures: Figures, rate: float, evidence: Evidence, even: BreakEven, policy: Policy
) -> tuple[VerdictCode, set[VerdictCode]]:
    """Return the word by acceptance, and the words that chance leaves possible.

    Where vLLM verifies only part of each draft, position 0 shows what is broken. While a measurement does not tell yet,
    nothing is said to be good.
    """
    head = next(iter(figures.per_position), 1.0) if figures.acceptance_ratio is None else None

    broken = policy.acceptance_ratio_broken
    if head is None:  # of a long draft, a small share is enough
        most = policy.accepted_tokens_broken / (figures.mean_draft_length or evidence.num_speculative_tokens or 1)
        broken = min(broken, even.acceptance_ratio, most)

    def word(accepted: float) -> VerdictCode:
        if (accepted if head is None else head) < broken:
            return "broken"
        return "watch" if evidence.cost is not None or accepted < even.watch_acceptance_ratio else "healthy"

    interval = acceptance_interval(figures, policy)
    ends = (interval.low or 0.0, interval.high or 0.0) if interval else (rate, rate)
    lowest, highest = (_BY_ACCEPTANCE.index(word(end)) for end in ends)
    return word(rate), set(_BY_ACCEPTANCE[lowest : highest + 1])


def _slowdown(
    figures: Figures, evidence: Evidence, even: BreakEven, measured: Speed | None, policy: Policy
) -> Slowdown | None:
    """Compare with the baseline, unless drafts may be why.

    Against one without drafts, they must be shown to pay; against another, their acceptance must not be low.
    """
    baseline, rate = evidence.baseline, figures.acceptance_ratio
    pays, low = measured is not None and measured.word == "healthy", rate is not None and rate < even.acceptance_ratio
    if baseline is None or not (pays or (baseline.speculative and not low)):
        return None
    return slowdown(figures, baseline, policy)


def _measured_findings(found: _Weighed, evidence: Evidence) -> list[Finding]:
    """Return the findings on speed and latency."""
    findings, measured = [], found.measured
    if found.late is not None and found.code == "slower":
        findings.append(Finding("WARN", "Latency", found.late.reason))
    # Against other drafts it is no speed-up.
    if measured is not None and (found.code != "slower" or measured.word == "healthy"):
        level: Level = "WARN" if measured.word in ("harmful", "not_paying") else "PASS"
        findings.append(Finding(level, "Speed", measured.reason))
    if measured is None and evidence.cost is not None and evidence.cost.unknown is not None:
        findings.append(Finding("PASS", "Speed", f"speed-up not known: {evidence.cost.unknown.why}"))
    return findings
