"""Is speculation paying off? One word, one sentence, the reasons and the next step, from figures and policy."""

from __future__ import annotations

from specdec_exporter.acceptance import break_even_length
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


def judge(
    state: StateName, figures: Figures | None, policy: ResolvedPolicy, num_speculative_tokens: int | None
) -> Verdict:
    """Return the verdict on ``figures`` (a window's, or a lifetime's where there is no window).

    Acceptance below the method's minimum, or a mean acceptance length below 1 + k c, does not pay. Between minimum and
    watch level it depends on the draft's cost: measure. Too few drafts give no verdict.
    """
    if state != "drafting":
        return _WITHOUT_DRAFTS[state]
    rate = figures.acceptance_ratio if figures else None
    if figures is None or rate is None:
        return Verdict(
            code="unknown",
            headline="Speculation is on; there are no figures yet",
            reasons=("two readings of the predictor are needed",),
            action="Wait for the next scrape.",
        )
    if figures.drafts is not None and figures.drafts < policy.min_drafts:
        return Verdict(
            code="unknown",
            headline="Too few drafts for a verdict",
            reasons=(f"{figures.drafts:.0f} drafts, at least {policy.min_drafts} are needed",),
            action="Wait for more traffic.",
        )
    acceptance = f"acceptance {rate:.2f} (minimum {policy.acceptance_ratio_min:.2f} for this method)"
    length, break_even = figures.mean_acceptance_length, None
    if num_speculative_tokens:
        break_even = break_even_length(num_speculative_tokens, policy.draft_cost_ratio)
    reasons = [acceptance]
    too_short = length is not None and break_even is not None and length < break_even
    if length is not None and break_even is not None:
        reasons.append(f"mean acceptance length {length:.2f} (break-even {break_even:.2f})")
    if figures.short_drafts:
        reasons.append("some drafts are shorter than k, so the curve's tail reads too low")
    if rate < policy.acceptance_ratio_broken:
        return Verdict(
            code="broken",
            headline="Almost nothing that is drafted is accepted",
            reasons=tuple(reasons),
            action="Check that the draft fits the target (model, tokenizer, quantisation, release); until then switch "
            "speculation off, since every draft is wasted work.",
        )
    if rate < policy.acceptance_ratio_min or too_short:
        return Verdict(
            code="not_paying",
            headline="Speculation is probably slower than decoding without it",
            reasons=tuple(reasons),
            action="Lower k to the recommended value, or switch speculation off; then look at the draft head, the "
            "sampling temperature and the load.",
        )
    if rate < policy.acceptance_ratio_watch:
        return Verdict(
            code="watch",
            headline="Speculation may or may not pay at this acceptance",
            reasons=tuple(reasons),
            action="Measure: compare latency with a run without speculation, and look at the recommended k.",
        )
    return Verdict(
        code="healthy",
        headline="Speculation is paying off",
        reasons=tuple(reasons),
        action="Nothing to do.",
    )
