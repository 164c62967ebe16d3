"""The word for evidence: what is cheap to say at every scrape. :mod:`.judging` tells its sentences. Pure.

A speed-up measured against a baseline without speculation decides, whatever is accepted: harmful, not paying or
healthy. If it tells nothing yet, or cannot at this load, the word is watch. Without such a baseline, acceptance
decides: broken, watch or not measured. Nothing is said to lose by acceptance, because break-even is a guess then. Where
drafts are fine and decoding is slower than at baseline, the word is slower: look elsewhere.

Where vLLM verifies only part of each draft (adaptive verification), it counts all of it as drafted, so that acceptance
reads too low. If it is good even so, it is good. What is broken shows at position 0.
"""

from __future__ import annotations

from typing import Final

import msgspec

from specdec_exporter.predictor.versions import SYNTHETIC
from specdec_exporter.speculation.benefit import (
    Basis,
    BreakEven,
    Slowdown,
    Speed,
    break_even,
    of_steps,
    slowdown,
    speed,
)
from specdec_exporter.speculation.chance import Estimate, proportion
from specdec_exporter.speculation.evidence import Evidence, StateName
from specdec_exporter.speculation.figures import Figures
from specdec_exporter.speculation.policy import Policy
from specdec_exporter.speculation.verdict import FINE, GOOD, Undecided, VerdictCode

# By acceptance, from the lowest to the highest.
_BY_ACCEPTANCE: Final[tuple[VerdictCode, ...]] = ("broken", "watch", "not_measured")
_WITHOUT_DRAFTS: Final[dict[StateName, VerdictCode]] = {
    "unreachable": "no_metrics",
    "stats_disabled": "no_metrics",
    "speculation_off": "off",
    "idle": "idle",
    "not_drafting": "watch",
}
_NO_DRAFTS: Final = 0.01  # draft tokens for each step


class Weighed(msgspec.Struct, frozen=True, kw_only=True):
    """The word for ``evidence``, and what its sentences need.

    ``basis``, ``acceptance_ratio``, ``within_chance`` and ``preliminary`` are those of the verdict. ``undecided``: why
    there is no word though there are drafts. ``even``: the break-even that drafts were judged by. ``measured`` and
    ``late``: speed and latency against the baseline, as far as it tells.
    """

    code: VerdictCode
    evidence: Evidence
    basis: Basis | None = None
    acceptance_ratio: Estimate | None = None
    within_chance: tuple[VerdictCode, ...] = ()
    preliminary: str | None = None
    undecided: tuple[Undecided, str] | None = None
    even: BreakEven | None = None
    measured: Speed | None = None
    late: Slowdown | None = None

    @property
    def decided(self) -> bool:
        """Whether a measurement decides, whatever is accepted."""
        return self.code == "slower" or (self.measured is not None and self.measured.word is not None)


def weigh(evidence: Evidence, policy: Policy) -> Weighed:
    """Choose the word for ``evidence``. Its figures belong to a window, or to a lifetime if there is no window.

    Too few drafts give no word.
    """
    if evidence.unusable and evidence.state not in ("unreachable", "drafting"):
        return Weighed(code="unknown", evidence=evidence, undecided=("unusable", "; ".join(evidence.unusable)))
    if evidence.state == "not_drafting":
        return _without_drafts(evidence, policy)
    if evidence.state != "drafting":
        return Weighed(code=_word_without_drafts(evidence), evidence=evidence)
    if evidence.deployment.rejection_sampling == SYNTHETIC:
        why = "rejection_sample_method is synthetic: the operator set the rates of acceptance"
        return Weighed(code="unknown", evidence=evidence, undecided=("synthetic", why))
    figures = evidence.figures
    rate = figures.counted_ratio(evidence.num_speculative_tokens) if figures else None
    if figures is None or rate is None:
        return Weighed(code="unknown", evidence=evidence, undecided=_why_undecided(evidence))
    few = too_few(figures, policy)
    # Where vLLM verifies only part of each draft, the acceptance rate is withheld.
    interval = None if figures.acceptance_ratio is None else acceptance_interval(figures, policy)
    if few is not None and (figures.counted or 0.0) < policy.min_drafts:
        return Weighed(
            code="unknown",
            evidence=evidence,
            undecided=("few_drafts", few),
            acceptance_ratio=interval,
            preliminary=few,
        )
    return _with_drafts(figures, rate, evidence, policy, few=few, interval=interval)


def no_word(weighed: Weighed) -> Weighed:
    """Say that the drafts are too few to be sure, because the next request may change the word."""
    return Weighed(
        code="unknown",
        evidence=weighed.evidence,
        undecided=("few_drafts", weighed.preliminary or ""),
        acceptance_ratio=weighed.acceptance_ratio,
        preliminary=weighed.preliminary,
    )


def _why_undecided(evidence: Evidence) -> tuple[Undecided, str]:
    figures, interval = evidence.figures, evidence.interval_acceptance_length
    if evidence.unusable:
        return "unusable", "; ".join(evidence.unusable)
    if figures is not None and figures.mean_acceptance_length is not None:
        return "unknown_k", f"{figures.mean_acceptance_length:.2f} tokens a draft; of how many drafted is not known"
    if interval is not None and (figures is None or figures.drafts is None):
        return "unknown_k", f"{interval:.2f} tokens a draft in the last interval of the engine, which counts no drafts"
    return "no_figures", "two readings of the predictor are needed"


def _word_without_drafts(evidence: Evidence) -> VerdictCode:
    """Return the word where nothing is drafted."""
    if evidence.state == "speculation_off" and evidence.proves_nothing:
        return "unknown"
    return _WITHOUT_DRAFTS[evidence.state]


def _without_drafts(evidence: Evidence, policy: Policy) -> Weighed:
    """Weigh a server that could draft and does not: the bookkeeping of speculation alone may slow it down."""
    code, cost = _WITHOUT_DRAFTS["not_drafting"], evidence.cost
    drafts_nothing = cost is not None and (cost.draft_tokens_per_step or 0.0) <= _NO_DRAFTS
    measured = of_steps(cost, policy.latency) if cost is not None and drafts_nothing else None
    if measured is None:
        return Weighed(code=code, evidence=evidence)
    slower = measured.speedup.high is not None and measured.speedup.high < 1.0
    if slower and measured.word in ("harmful", "not_paying"):
        code = measured.word
    possible = tuple(sorted({*measured.possible} - {"healthy", code}))
    return Weighed(code=code, evidence=evidence, basis="measured", within_chance=possible, measured=measured)


def _with_drafts(
    figures: Figures,
    rate: float,
    evidence: Evidence,
    policy: Policy,
    *,
    few: str | None,
    interval: Estimate | None,
) -> Weighed:
    """Weigh enough drafts. ``rate``: accepted / draft tokens as counted. ``few``: acceptance is of few requests."""
    even = break_even(figures, evidence.num_speculative_tokens, evidence.method, policy, evidence.cost)
    measured = speed(figures, evidence, even, policy)
    late = _slowdown(figures, evidence, even, measured, policy)
    code, possible = _guess(figures, rate, evidence, even, policy)
    if measured is not None and measured.word is not None:
        code, possible = measured.word, set()
    code, possible = _or_slower(code, possible | {code, *(measured.possible if measured else ())}, late)
    weighed = Weighed(
        code=code,
        evidence=evidence,
        acceptance_ratio=interval,
        within_chance=tuple(sorted(possible - (GOOD if code in GOOD else {code}))),
        even=even,
        measured=measured,
        late=late,
    )
    by_measure = weighed.decided or (code == "watch" and evidence.is_measured)
    return msgspec.structs.replace(
        weighed,
        basis="measured" if by_measure else "assumed",
        preliminary=None if weighed.decided else few,
    )


def _or_slower(
    code: VerdictCode, possible: set[VerdictCode], late: Slowdown | None
) -> tuple[VerdictCode, set[VerdictCode]]:
    """Return the word and the possible ones now that decoding is ``late``, or not: that is so where drafts are fine."""
    if late is None or not possible & FINE:
        return code, possible
    if late.slower or late.within_chance:
        possible = possible | {"slower"}
    if late.slower and not late.within_chance:
        possible = possible - FINE
    return "slower" if late.slower and code in FINE else code, possible


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
    """Return accepted / draft tokens as counted, or verified ones, with its interval; ``None`` without counts.

    Wilson's interval, with as many draws as the drafts are worth: those of one request resemble each other.
    """
    if not figures.counted or not figures.draft_tokens or figures.accepted_tokens is None:
        return None
    effective = policy.effective_drafts(figures.counted, figures.requests)
    return proportion(figures.accepted_tokens, figures.verified_tokens or figures.draft_tokens, effective)


def _guess(
    figures: Figures, rate: float, evidence: Evidence, even: BreakEven, policy: Policy
) -> tuple[VerdictCode, set[VerdictCode]]:
    """Return the word by acceptance, and the words that chance leaves possible.

    Where vLLM verifies only part of each draft, position 0 shows what is broken. While a measurement does not tell yet,
    nothing is said to be good.
    """
    head = next(iter(figures.per_position), 1.0) if figures.partly_verified else None

    broken = policy.acceptance_ratio_broken
    if head is None:  # of a long draft, a small share is enough
        most = policy.accepted_tokens_broken / (figures.mean_draft_length or evidence.num_speculative_tokens or 1)
        broken = min(broken, even.acceptance_ratio, most)

    def word(accepted: float) -> VerdictCode:
        if (accepted if head is None else head) < broken:
            return "broken"
        doubtful = evidence.cost is not None or accepted < even.watch_acceptance_ratio
        return "watch" if doubtful else "not_measured"

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
