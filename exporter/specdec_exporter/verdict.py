"""Is speculation paying off? One word, one sentence, the reasons and the next step, from figures and policy."""

from __future__ import annotations

from specdec_exporter.acceptance import break_even_length, recommended_num_speculative_tokens
from specdec_exporter.policy import ResolvedPolicy
from specdec_exporter.status import Figures, StateName, Verdict

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


def recommend(figures: Figures | None, num_speculative_tokens: int | None, policy: ResolvedPolicy) -> int | None:
    """Return the k that the measured curve speaks for; ``None`` where drafts are too few, or too short to tell."""
    if figures is None or not num_speculative_tokens or (figures.drafts or 0.0) < policy.min_drafts:
        return None
    if (figures.mean_draft_length or 0.0) < num_speculative_tokens * (1.0 - policy.short_draft_tolerance):
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
    state: StateName, figures: Figures | None, policy: ResolvedPolicy, num_speculative_tokens: int | None
) -> Verdict:
    """Return the verdict on ``figures`` (a window's, or a lifetime's where there is no window).

    Acceptance below the method's minimum does not break even; nor does, by the same arithmetic, a mean acceptance
    length below 1 + draft length * minimum. Between minimum and watch level it may pay: measure. Too few drafts give no
    verdict.
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
    if figures.drafts is not None and figures.drafts < policy.min_drafts:
        return Verdict(
            code="unknown",
            headline="Too few drafts for a verdict",
            reasons=(f"{figures.drafts:.0f} drafts, at least {policy.min_drafts} are needed",),
            action="Look again after more traffic.",
        )
    reasons = [f"acceptance {rate:.2f} (minimum {policy.acceptance_ratio_min:.2f} for this method)"]
    break_even = mean_acceptance_length_min(figures, num_speculative_tokens, policy)
    if figures.mean_acceptance_length is not None and break_even is not None:
        reasons.append(f"mean acceptance length {figures.mean_acceptance_length:.2f} (break-even {break_even:.2f})")
    if figures.short_drafts:
        reasons.append("some drafts are shorter than k, so the curve's tail reads too low")
    if rate < policy.acceptance_ratio_broken:
        return Verdict(
            code="broken",
            headline="Almost nothing that is drafted is accepted",
            reasons=tuple(reasons),
            action="Switch speculation off, since every draft is wasted work, until draft and target fit: model, "
            "tokenizer, quantisation, release.",
        )
    if rate < policy.acceptance_ratio_min:
        return Verdict(
            code="not_paying",
            headline="Speculation probably costs more than it gives",
            reasons=tuple(reasons),
            action=_remedy(recommend(figures, num_speculative_tokens, policy), num_speculative_tokens),
        )
    if rate < policy.acceptance_ratio_watch:
        return Verdict(
            code="watch",
            headline="Speculation may or may not pay at this acceptance",
            reasons=tuple(reasons),
            action="Measure: compare latency with a run without speculation.",
        )
    return Verdict(
        code="healthy",
        headline="Speculation is paying off",
        reasons=tuple(reasons),
        action="Nothing to do.",
    )


def _remedy(recommended: int | None, num_speculative_tokens: int | None) -> str:
    look = "look at the draft head, the sampling temperature and the load"
    if recommended == 0:
        return f"Switch speculation off, or compare latency with a run without it; then {look}."
    if recommended and num_speculative_tokens and recommended < num_speculative_tokens:
        return f"Lower k from {num_speculative_tokens} to {recommended}; then {look}."
    return f"Compare latency with a run without speculation, and {look}."
