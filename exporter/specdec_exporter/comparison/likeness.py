"""Whether two recordings are like for like: what forbids the comparison, and what the reader must know."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

import msgspec

from specdec_exporter.baseline.file import Baseline
from specdec_exporter.comparison.traffic import Difference
from specdec_exporter.errors import ComparisonError
from specdec_exporter.predictor.quantization import quantization_of, without_precision
from specdec_exporter.predictor.speculativeconfig import given_config
from specdec_exporter.speculation.figures import PARTLY_VERIFIED
from specdec_exporter.speculation.policy import Policy

FlagCode = Literal[
    "settings_differ",
    "load_differs",
    "prompts_differ",
    "answers_differ",
    "buckets_differ",
    "baseline_speculates",
    "candidate_does_not_speculate",
    "drafts_not_known",
    "order_swapped",
    "partly_verified",
    "short_recording",
    "interrupted",
    "requests_failed",
    "context_missing",
]


class Flag(msgspec.Struct, frozen=True):
    """A reason to read the result with care: a stable code, what was found, and the next step."""

    code: FlagCode
    message: str
    action: str


# --- What forbids a comparison ---------------------------------------------------------------------------------------


def refuse_other_model(baseline: Baseline, candidate: Baseline) -> None:
    """Raise :class:`ComparisonError` if the models differ."""
    key, one, other = "model", baseline.context.model, candidate.context.model
    if one is None or other is None:
        key, one, other = "model_name", baseline.model_name, candidate.model_name
    if one is not None and other is not None and not same_model(one, other):
        raise ComparisonError(
            f"expected recordings of one model, found {key} {one!r} in {baseline.name} and {other!r} in "
            f"{candidate.name}. If both names mean the same model, give both files the same `model`"
        )


def same_model(one: str, other: str) -> bool:
    """Whether two names mean one model, in whatever directory and quantisation."""
    return not _differ(_last_part(one), _last_part(other))


def _last_part(model: str) -> str:
    """Return a model's name without directory or organisation, and without quantisation: that is a setting."""
    name = model.rstrip("/").rpartition("/")[2]
    return without_precision(name) or name


def refuse_other_minutes(baseline: Baseline, candidate: Baseline, policy: Policy) -> None:
    """Raise :class:`ComparisonError` unless both recordings began and ended together, to within one block of time."""
    blocks = max(policy.chance.fewest_batches, len(baseline.blocks), len(candidate.blocks))
    most = min(baseline.duration_seconds, candidate.duration_seconds) / blocks
    ends = [side.recorded_timestamp for side in (baseline, candidate)]
    starts = [end - side.duration_seconds for end, side in zip(ends, (baseline, candidate), strict=True)]
    apart = max(abs(later - earlier) for earlier, later in (starts, ends))
    if apart > most:
        raise ComparisonError(
            f"expected --paired recordings of the same minutes, found {apart:,.0f} s between their starts or ends (at "
            f"most {most:,.0f} s): start `baseline record` for both replicas at once, with the same --duration"
        )


# --- What the reader must know ---------------------------------------------------------------------------------------


def flags(baseline: Baseline, candidate: Baseline, traffic: Difference, policy: Policy) -> tuple[Flag, ...]:
    """Return what a reader of this comparison must know, most serious first."""
    return (
        *_settings(baseline, candidate),
        *_traffic(traffic),
        *_uncounted_caches(baseline, candidate, policy),
        *_buckets(baseline, candidate),
        *_speculation(baseline, candidate),
        *_recording("the baseline", baseline, policy),
        *_recording("the candidate", candidate, policy),
    )


def _settings(baseline: Baseline, candidate: Baseline) -> Iterator[Flag]:
    """Yield how hardware, release, models or requests differ, in one flag."""
    now = _facts(candidate)
    words = [
        f"{name}: {then} in the baseline, {now[name]} in the candidate"
        for name, then in _facts(baseline).items()
        if _differ(then, now.get(name))
    ]
    if words:
        action = "Record both in the same setting. Otherwise the result shows the effect of all changes together."
        yield Flag("settings_differ", "; ".join(words), action)


def _facts(side: Baseline) -> dict[str, object]:
    """Return the facts of a setting by name; those of a draft model only where one was at work."""
    context = side.context
    target, draft = quantization_of(context.command, context.model)
    found: dict[str, object] = {
        "hardware": context.hardware,
        "runtime": context.runtime,
        "inference engine": side.engine.name,
        "vLLM version": side.vllm_version,
        "quantisation of the target model": target or "none named",
        "request parameters": context.request_parameters,
    }
    if side.speculates:
        found["quantisation of the draft model"] = draft or "none named"
        found["draft model"] = given_config(context.command).get("model") or side.draft_model
    return found


def _traffic(traffic: Difference) -> Iterator[Flag]:
    """Yield how load, prompts and answers differ."""
    if traffic.load:
        words = f"{traffic.load}: only decoding is judged"
        yield Flag("load_differs", words, "Send requests at the same rate, or from as many clients, to both.")
    nothing, same = "end-to-end latency and tails depend on it and decide nothing", "Send the same requests to both."
    if traffic.prompts:
        yield Flag("prompts_differ", f"{traffic.prompts}: time to first token, {nothing}", same)
    if traffic.caches:
        again = "Warm up both servers with the same requests before you record."
        words = f"{traffic.caches}: only decoding is judged; time to first token, {nothing}"
        yield Flag("prompts_differ", words, again)
    if traffic.answers:
        yield Flag("answers_differ", f"{traffic.answers}: {nothing}", same)


def _uncounted_caches(baseline: Baseline, candidate: Baseline, policy: Policy) -> Iterator[Flag]:
    """Yield that a cache was at work on one side, and that the other does not say whether one was."""
    sides = (("the baseline", baseline, candidate), ("the candidate", candidate, baseline))
    for name, side, other in sides:
        held = other.counts.cached_prompt_ratio
        if side.counts.cached_prompt_tokens is not None or held is None or not side.counts.prompt_tokens:
            continue
        if held > policy.latency.cached_prompt_difference:
            words = (
                f"{name} does not count the prompt tokens that a prefix cache held, {held:.0%} on the other side: its "
                "step times take all of its prompt tokens for computed ones"
            )
            yield Flag("prompts_differ", words, f"Record {name} again with this version, and vLLM 0.9.2 or newer.")


def _buckets(baseline: Baseline, candidate: Baseline) -> Iterator[Flag]:
    before, after = ({name: each.bounds for name, each in side.histograms()} for side in (baseline, candidate))
    if any(bounds != before.get(name, bounds) for name, bounds in after.items()):
        words = "the buckets of a latency differ: its tail is compared at the boundaries that both have"
        yield Flag("buckets_differ", words, "Record both with the same --custom-histogram-buckets.")


def _speculation(baseline: Baseline, candidate: Baseline) -> Iterator[Flag]:
    if baseline.speculates:
        words = "the baseline speculates too, so the ratio compares two settings of speculation"
        action = "To see what speculation gives, record a baseline without --speculative-config."
        yield Flag("baseline_speculates", words, action)
    if not candidate.speculates:
        action = "If it should draft, check --speculative-config, and check the order of the two files."
        yield Flag("candidate_does_not_speculate", "the candidate drafted nothing", action)
    partly = [name for name, side in (("baseline", baseline), ("candidate", candidate)) if side.adaptive_verification]
    if partly:
        action = "Compare the times and the mean acceptance length; acceptance and its curve mean nothing here."
        yield Flag("partly_verified", f"{' and '.join(partly)}: {PARTLY_VERIFIED}", action)


def _recording(name: str, side: Baseline, policy: Policy) -> Iterator[Flag]:
    """Yield what is missing in a recording."""
    again = "Record it again with this version, to the end."
    if len(side.blocks) < policy.chance.batches:
        words = (
            f"{name} has {len(side.blocks)} blocks of time: below {policy.chance.batches} intervals are wide, below "
            f"{policy.chance.fewest_batches} nothing is decided"
        )
        yield Flag("short_recording", words, "Record longer.")
    if side.interrupted:
        yield Flag("interrupted", f"{name}'s recording was interrupted after {side.duration_seconds:,.0f} s", again)
    if side.context.missing:
        words = f"{name} does not say: {', '.join(side.context.missing).replace('_', ' ')}"
        action = "Add it to the file: nobody can report or repeat a number without it."
        yield Flag("context_missing", words, action)


def _differ(one: object, other: object) -> bool:
    """Whether two known texts differ, apart from white space and case."""
    known = isinstance(one, str) and isinstance(other, str)
    return known and str(one).casefold().split() != str(other).casefold().split()
