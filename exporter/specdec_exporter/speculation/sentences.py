"""The verdict's sentences: headline and next step for each case."""

from __future__ import annotations

import math

import msgspec
from msgspec.structs import replace

from specdec_exporter.predictor.engines.engine import ENGINES, VLLM, InferenceEngine
from specdec_exporter.speculation.benefit import BreakEven, against
from specdec_exporter.speculation.evidence import Evidence, StateName
from specdec_exporter.speculation.figures import Figures
from specdec_exporter.speculation.verdict import Undecided, Verdict
from specdec_exporter.speculation.weighing import Weighed

_Words = tuple[str, str]


class WithoutDrafts(msgspec.Struct, frozen=True, kw_only=True):
    """The sentences of a verdict where nothing was drafted."""

    headline: str
    action: str
    reasons: tuple[str, ...] = ()


def undecided(case: Undecided, reason: str) -> Verdict:
    """Return the verdict that there is none, and why."""
    headline, action = _UNDECIDED[case]
    return Verdict(code="unknown", headline=headline, reasons=(reason,), action=action)


def without_drafts(evidence: Evidence) -> WithoutDrafts:
    """Return the sentences about a predictor without drafts to judge."""
    state, figures, engine = evidence.state, evidence.figures, evidence.inference_engine
    if state == "stats_disabled" and not engine.is_read:
        read = [other.name for other in ENGINES.values() if other.is_read]
        action = f"Give the URL of a server of {', '.join(read[:-1])} or {read[-1]}."
        return WithoutDrafts(headline=f"This is {engine.name}: {engine.untold}", action=action)
    if state == "speculation_off" and evidence.proves_nothing:
        said = _NEVER_DRAFTED
    elif state == "idle" and figures and figures.one_token_each:
        said = _ONE_TOKEN
    else:
        said = _WITHOUT_DRAFTS[state]
    if state == "stats_disabled" and engine is not VLLM:
        said = replace(said, action="Point --predictor.url at vLLM instead of a proxy.")  # it has no such flag
    reasons = said.reasons if engine is VLLM else said.reasons[:1]  # the others are about vLLM's log
    return replace(said, reasons=reasons, action=_of_engine(said.action, engine))


def _of_engine(text: str, engine: InferenceEngine) -> str:
    """Return the text for another inference engine than vLLM."""
    if engine is VLLM:
        return text
    return text.replace(VLLM.speculates_by, engine.speculates_by).replace(VLLM.name, engine.name)


def sentence(weighed: Weighed, figures: Figures, even: BreakEven) -> tuple[str, str]:
    """Return headline and next step for the word that was chosen for drafts."""
    headline, action = _words(weighed, figures, even)
    speedup = weighed.measured.speedup.value if weighed.measured else math.nan
    filled = {"speedup": speedup, "against": against(figures, even)}
    action = action.format(measure=_how_to_measure(weighed.evidence))
    return headline.format_map(filled), _of_engine(action, weighed.evidence.inference_engine)


def _words(weighed: Weighed, figures: Figures, even: BreakEven) -> _Words:
    """Return headline and next step, with places for figures."""
    rate, pays = figures.acceptance_ratio, weighed.measured is not None and weighed.measured.word == "healthy"
    by_steps = weighed.evidence.cost is not None
    match weighed.code:
        case "broken":
            return _BROKEN_BY_LENGTH if figures.partly_verified else _BROKEN
        case "slower":
            by_drafts = weighed.late is not None and weighed.late.by_drafts
            return _SLOWER_PAYING if pays else _SLOWER_BY_DRAFTS if by_drafts else _SLOWER
        case "harmful":
            return _HARMFUL_BY_STEPS if by_steps else _HARMFUL
        case "not_paying" | "healthy" | "not_measured":
            return _ALWAYS[weighed.code]
    return _WATCH_BY_STEPS if by_steps else _WATCH_LOW if _is_low(rate, even) else _WATCH


def _is_low(rate: float | None, even: BreakEven) -> bool:
    return rate is not None and rate < even.acceptance_ratio


def _how_to_measure(evidence: Evidence) -> str:
    """Return the way to a measured speed-up."""
    if evidence.cost is not None:
        return evidence.cost.unknown.remedy if evidence.cost.unknown else "measure for longer"
    return evidence.inference_engine.measure_by or (
        "record a baseline without speculation (specdec-exporter baseline record) and serve it with --baseline.file, "
        "or compare results of vllm bench serve that you have (specdec-exporter compare)"
    )


_LOOK_ELSEWHERE = (
    "If it began with a deployment, roll back. Otherwise look at load (waiting requests, KV cache, preemptions), "
    "neighbours on the machine and longer prompts."
)
_UNDECIDED: dict[Undecided, _Words] = {
    "no_figures": ("Speculation is on; there are no figures yet", "Wait for the next reading."),
    "few_drafts": ("Too few drafts for a verdict", "Look again after more traffic."),
    "unknown_k": (
        "There is a length, and too little else for a verdict",
        "To know, compare results of vllm bench serve with and without speculation (specdec-exporter compare).",
    ),
    "unusable": (
        "A counter of the predictor cannot be used, so there is no verdict",
        "Restart the predictor. If that does not help, look for a plugin, a patch or a proxy that changes its metrics.",
    ),
    "synthetic": (
        "Acceptance is synthetic: it says nothing about the draft",
        "To measure the draft, remove rejection_sample_method from --speculative-config: synthetic is for tests.",
    ),
}
_SLOWER = ("Slower than before, not because of drafts", _LOOK_ELSEWHERE)
_SLOWER_PAYING = (
    "Slower than before, not because of drafts: speculation still gives {speedup:.2f}x",
    _LOOK_ELSEWHERE,
)
_SLOWER_BY_DRAFTS = (
    "Slower than before: fewer draft tokens are accepted",
    "Find what changed when acceptance fell: draft model, target, quantisation, release, sampling or prompts.",
)
_BROKEN = (
    "Almost nothing that is drafted is accepted",
    "Check that draft and target belong together: model, tokenizer, quantisation, release. Then {measure}.",
)
_BROKEN_BY_LENGTH = (
    "The first token of a draft is almost never accepted",
    "Check that draft and target belong together. Look at low load too: a busy vLLM may verify none of a draft.",
)
_HARMFUL = (
    "Decoding is much slower than when its baseline was recorded",
    "Roll back to the last good --speculative-config, or remove it, now; investigate afterwards.",
)
_HARMFUL_BY_STEPS = (
    "Speculation does harm: decoding is slower with it than without it",
    "Roll back to the last good --speculative-config, or remove it, now; investigate afterwards.",
)
_NOT_PAYING = (
    "Speculation does not pay: decoding is no faster with it",
    "Switch speculation off at this load, or limit it to smaller batches.",
)
_WATCH_LOW = (
    "May lose: {against}",
    "To know, {measure}. What a step gives depends on draft head, temperature and prompts; what pays, on the load.",
)
_WATCH = ("May pay: {against}", "To know, {measure}.")
_WATCH_BY_STEPS = ("The measurement does not tell yet whether speculation pays", "To know, {measure}.")
_HEALTHY = ("Speculation is paying off", "Nothing to do.")
_NOT_MEASURED = ("Probably pays: {against}", "To know, {measure}.")
_ALWAYS = {"not_paying": _NOT_PAYING, "healthy": _HEALTHY, "not_measured": _NOT_MEASURED}

SUSPECTED = (
    "Decoding may be slower with speculation than without it",
    "Wait for the next reading: if it finds the same, roll back.",
)
# A server that could draft and does not, and is slower than without speculation (vllm#49548: dynamic k of 0).
IDLE_SPECULATION = (
    "Nothing is drafted, and decoding is slower than without speculation",
    "Run without --speculative-config at this load: a k of 0 still costs time in each step.",
)

# States without drafts to judge: subject of the one finding, and the verdict.
SUBJECTS: dict[str, str] = {
    "unreachable": "Metrics",
    "stats_disabled": "Statistics",
    "speculation_off": "Speculation",
    "idle": "Drafting",
    "not_drafting": "Drafting",
}
_WITHOUT_DRAFTS: dict[StateName, WithoutDrafts] = {
    "unreachable": WithoutDrafts(
        headline="No metrics of the predictor: what it does now is not known",
        action="Check that the predictor runs and that its URL is that of the port with its /metrics.",
    ),
    "stats_disabled": WithoutDrafts(
        headline="The predictor answers, but without engine statistics",
        reasons=(
            "its /metrics holds none of the inference engine's families",
            "or nothing in them can be used, as where several processes in one answer contradict each other",
        ),
        action="Start vLLM without --disable-log-stats, or point --predictor.url at vLLM instead of a proxy.",
    ),
    "speculation_off": WithoutDrafts(
        headline="Speculative decoding is off",
        reasons=(
            "the predictor exposes no draft counters",
            "or its log says speculative_config=None, or its method is extract_hidden_states, which drafts nothing",
        ),
        action="Nothing to do, unless it should be on: pass --speculative-config to vLLM.",
    ),
    "idle": WithoutDrafts(
        headline="Speculation is on; no tokens are being generated",
        action="Wait for traffic.",
    ),
    "not_drafting": WithoutDrafts(
        headline="Tokens are generated, but nothing is drafted",
        reasons=("no draft tokens while decoding steps go on",),
        action="Look for sampling parameters that switch speculation off, a batch-size limit (dynamic k), or, with "
        "n-gram lookup, prompts that hold nothing to copy.",
    ),
}
_ONE_TOKEN = WithoutDrafts(
    headline="Each request gets one token: nothing to draft here",
    reasons=("a prefill server, or requests with max_tokens of 1",),
    action="Nothing to do on a prefill server: ask the servers that decode.",
)
_NEVER_DRAFTED = WithoutDrafts(
    headline="No draft was counted since the predictor started",
    reasons=("speculation is off, drafts nothing, or the release does not count drafts",),
    action="Nothing to do, unless it should be on: pass --speculative-config to vLLM.",
)
