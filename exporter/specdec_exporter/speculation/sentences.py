"""The verdict's sentences: headline and next step for each case."""

from __future__ import annotations

import math

from specdec_exporter.speculation.benefit import BreakEven, against
from specdec_exporter.speculation.evidence import Evidence
from specdec_exporter.speculation.figures import Figures
from specdec_exporter.speculation.verdict import Case, Level, Verdict
from specdec_exporter.speculation.weighing import Weighed


def undecided(case: Case, reason: str) -> Verdict:
    """Return the verdict that there is none, and why."""
    headline, action = _WORDS[case]
    return Verdict(code="unknown", headline=headline, reasons=(reason,), action=action)


def sentence(weighed: Weighed, figures: Figures, even: BreakEven) -> tuple[str, str]:
    """Return headline and next step for the word that was chosen for drafts."""
    headline, action = _WORDS[_case(weighed, figures, even)]
    speedup = weighed.measured.speedup.value if weighed.measured else math.nan
    filled = {"speedup": speedup, "against": against(figures, even)}
    return headline.format_map(filled), action.format(measure=_how_to_measure(weighed.evidence))


def _case(weighed: Weighed, figures: Figures, even: BreakEven) -> Case:
    """Return which sentence it is."""
    rate, pays = figures.acceptance_ratio, weighed.measured is not None and weighed.measured.word == "healthy"
    by_steps = weighed.evidence.cost is not None
    match weighed.code:
        case "broken":
            return "broken_by_length" if rate is None else "broken"
        case "slower":
            by_drafts = weighed.late is not None and weighed.late.by_drafts
            return "slower_paying" if pays else "slower_by_drafts" if by_drafts else "slower"
        case "harmful":
            return "harmful_by_steps" if by_steps else "harmful"
        case "not_paying":
            return "not_paying"
        case "healthy":
            return "healthy_measured" if pays else "healthy"
    return "watch_by_steps" if by_steps else "watch_low" if _is_low(rate, even) else "watch"


def _is_low(rate: float | None, even: BreakEven) -> bool:
    return rate is not None and rate < even.acceptance_ratio


def _how_to_measure(evidence: Evidence) -> str:
    """Return the way to a measured speed-up."""
    if evidence.cost is not None:
        return evidence.cost.unknown.remedy if evidence.cost.unknown else "measure for longer"
    return (
        "record a baseline without speculation (specdec-exporter baseline record) and serve it with --baseline.file, "
        "or compare results of vllm bench serve that you have (specdec-exporter compare)"
    )


_LOOK_ELSEWHERE = (
    "If it began with a deployment, roll back. Otherwise look at load (waiting requests, KV cache, preemptions), "
    "neighbours on the machine and longer prompts."
)
_WORDS: dict[Case, tuple[str, str]] = {
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
    "broken_by_length": (
        "The first token of a draft is almost never accepted",
        "Check that draft and target belong together. Look at low load too: a busy vLLM may verify none of a draft.",
    ),
    "harmful": (
        "Decoding is much slower than when its baseline was recorded",
        "Roll back to the last good --speculative-config, or remove it, now; investigate afterwards.",
    ),
    "harmful_by_steps": (
        "Speculation does harm: decoding is slower with it than without it",
        "Roll back to the last good --speculative-config, or remove it, now; investigate afterwards.",
    ),
    "not_paying": (
        "Speculation does not pay: decoding is no faster with it",
        "Switch speculation off at this load, or limit it to smaller batches.",
    ),
    "watch_low": (
        "May lose: {against}",
        "To know, {measure}. What a step gives depends on draft head, temperature and prompts; what pays, on the load.",
    ),
    "watch": ("May pay: {against}", "To know, {measure}."),
    "watch_by_steps": ("The measurement does not tell yet whether speculation pays", "To know, {measure}."),
    "healthy_measured": ("Speculation is paying off", "Nothing to do."),
    "healthy": ("Probably pays: {against}", "To know, {measure}."),
}

SUSPECTED = (
    "Decoding may be slower with speculation than without it",
    "Wait for the next reading: if it finds the same, roll back.",
)
# A server that could draft and does not, and is slower than without speculation (vllm#49548: dynamic k of 0).
IDLE_SPECULATION = (
    "Nothing is drafted, and decoding is slower than without speculation",
    "Run without --speculative-config at this load: a k of 0 still costs time in each step.",
)

# States without drafts to judge: level and subject of the one finding, and the verdict.
SUBJECTS: dict[str, tuple[Level, str]] = {
    "unreachable": ("FAIL", "Metrics"),
    "stats_disabled": ("FAIL", "Statistics"),
    "speculation_off": ("WARN", "Speculation"),
    "idle": ("PASS", "Drafting"),
    "not_drafting": ("WARN", "Drafting"),
}
WITHOUT_DRAFTS: dict[str, Verdict] = {
    "unreachable": Verdict(
        code="unknown",
        headline="No metrics of the predictor, so nothing is known",
        action="Check that the predictor runs and that its URL is that of the port with its /metrics.",
    ),
    "stats_disabled": Verdict(
        code="unknown",
        headline="The predictor answers, but without engine statistics",
        reasons=(
            "its /metrics holds none of the inference engine's families",
            "or nothing in them can be used, as where several processes in one answer contradict each other",
        ),
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
