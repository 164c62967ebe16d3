"""Whether two recordings are like for like: what forbids the comparison, and what the reader must know."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Final, Literal

import msgspec

from specdec_exporter.baseline.file import Baseline
from specdec_exporter.comparison.distribution import Sample, requests_needed
from specdec_exporter.comparison.latency import SLIS, Sli
from specdec_exporter.comparison.traffic import Difference
from specdec_exporter.errors import ComparisonError
from specdec_exporter.histogram import Histogram
from specdec_exporter.predictor.quantization import quantization_of, without_precision
from specdec_exporter.predictor.speculativeconfig import given_config
from specdec_exporter.speculation.figures import PARTLY_VERIFIED
from specdec_exporter.speculation.policy import Policy

FlagCode = Literal[
    "hardware_differs",
    "runtime_differs",
    "vllm_version_differs",
    "quantization_differs",
    "draft_model_differs",
    "request_parameters_differ",
    "context_missing",
    "interrupted",
    "too_few_requests",
    "sli_missing",
    "buckets_differ",
    "load_differs",
    "prompts_differ",
    "answers_differ",
    "baseline_speculates",
    "candidate_does_not_speculate",
    "partly_verified",
    "old_recording",
    "no_blocks",
    "few_blocks",
]

TITLES: dict[Sli, str] = {
    "time_per_output_token": "time per output token",
    "time_to_first_token": "time to first token",
    "request_latency": "end-to-end latency",
}


class Flag(msgspec.Struct, frozen=True):
    """A reason to read the result with care: a stable code, what was found, and the next step."""

    code: FlagCode
    message: str
    action: str


def sample_of(recording: Baseline, sli: Sli) -> Sample:
    """Return an SLI of a recording with its blocks of time; without requests if it was not recorded."""
    found = [getattr(each, f"{sli}_seconds") for each in (recording, *recording.blocks)]
    return Sample(found[0], tuple(block for block in found[1:] if block)) if found[0] else _NOTHING


_NOTHING: Final = Sample(Histogram((math.inf,), (0.0,), 0.0))


def speculates(recording: Baseline) -> bool:
    """Whether anything was drafted."""
    return bool(recording.counts.draft_tokens or recording.counts.drafts)


def is_plain(recording: Baseline) -> bool:
    """Whether the predictor ran without speculation."""
    return not speculates(recording) and recording.method is None and recording.num_speculative_tokens is None


def k_of(recording: Baseline) -> int | None:
    """Return the number of speculative tokens; if not recorded, the number of positions."""
    return recording.num_speculative_tokens or len(recording.counts.accepted_per_position) or None


# --- What forbids a comparison ---------------------------------------------------------------------------------------


def refuse_unlike(baseline: Baseline, candidate: Baseline) -> None:
    """Raise :class:`ComparisonError` if the models differ, or if the recordings share no SLI."""
    key, one, other = "model", baseline.context.model, candidate.context.model
    if one is None or other is None:
        key, one, other = "model_name", baseline.model_name, candidate.model_name
    if one is not None and other is not None and _differ(_last_part(one), _last_part(other)):
        raise ComparisonError(
            f"expected recordings of one model, found {key} {one!r} in {baseline.name} and {other!r} in "
            f"{candidate.name}. If both names mean the same model, give both files the same `model`"
        )
    before, after = (
        [TITLES[sli] for sli in SLIS if sample_of(side, sli).whole.count] for side in (baseline, candidate)
    )
    if not set(before) & set(after):
        raise ComparisonError(
            f"expected a latency with requests in both recordings, found {', '.join(before) or 'none'} in the baseline "
            f"and {', '.join(after) or 'none'} in the candidate. Record both again under traffic"
        )


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
    apart = max(abs(starts[1] - starts[0]), abs(ends[1] - ends[0]))
    if apart > most:
        raise ComparisonError(
            f"expected --paired recordings of the same minutes, found {apart:,.0f} s between their starts or ends (at "
            f"most {most:,.0f} s): start `baseline record` for both replicas at once, with the same --duration"
        )


# --- What the reader must know ---------------------------------------------------------------------------------------


def flags(
    baseline: Baseline, candidate: Baseline, traffic: Difference, policy: Policy, *, like_load: bool
) -> tuple[Flag, ...]:
    """Return what a reader of this comparison must know, most serious first. ``like_load``: a like load was found."""
    sides = (("the baseline", baseline), ("the candidate", candidate))
    return (
        *_settings(baseline, candidate),
        *_traffic(traffic, like_load=like_load),
        *(flag for name, side in sides for flag in _requests(name, side, policy)),
        *_latencies(baseline, candidate),
        *_speculation(baseline, candidate),
        *(flag for name, side in sides for flag in _recording(name, side, policy)),
    )


def _settings(baseline: Baseline, candidate: Baseline) -> Iterator[Flag]:
    """Yield how hardware, release, models or requests differ."""
    before, after = _facts(baseline), _facts(candidate)
    both = speculates(baseline) and speculates(candidate)
    again = "Record both in the same setting. Otherwise the result shows the effect of both changes together."
    for (code, name), then in before.items():
        now = after[code, name]
        if (both or name not in _OF_DRAFTS) and _differ(then, now):
            yield Flag(code, f"{name}: {then} in the baseline, {now} in the candidate", again)


_OF_DRAFTS: Final = ("quantisation of the draft model", "draft model")


def _facts(side: Baseline) -> dict[tuple[FlagCode, str], object]:
    """Return the facts of a setting, by the flag and the name of each."""
    context = side.context
    target, draft = quantization_of(context.command, context.model)
    return {
        ("hardware_differs", "hardware"): context.hardware,
        ("runtime_differs", "runtime"): context.runtime,
        ("vllm_version_differs", "vLLM version"): side.vllm_version,
        ("quantization_differs", "quantisation of the target model"): target or "none named",
        ("quantization_differs", "quantisation of the draft model"): draft or "none named",
        ("draft_model_differs", "draft model"): given_config(context.command).get("model"),
        ("request_parameters_differ", "request parameters"): context.request_parameters,
    }


def _traffic(traffic: Difference, *, like_load: bool) -> Iterator[Flag]:
    """Yield how load, prompts and answers differ."""
    if traffic.load:
        per_token = "compared at like load" if like_load else "not compared: no load was recorded in both"
        words = (
            f"{traffic.load}: time to first token and end-to-end latency depend on it and decide nothing; time per "
            f"output token is {per_token}"
        )
        yield Flag("load_differs", words, "Send requests at the same rate, or from as many clients, to both.")
    nothing = "end-to-end latency and tails depend on it and decide nothing"
    if words := traffic.other_prompts or traffic.prompts or "":
        other = "the speed-up compares different work; " if traffic.other_prompts else ""
        yield Flag(
            "prompts_differ", f"{words}: {other}time to first token, {nothing}", "Send the same requests to both."
        )
    if traffic.answers:
        yield Flag("answers_differ", f"{traffic.answers}: {nothing}", "Send the same requests to both.")


def _requests(name: str, side: Baseline, policy: Policy) -> Iterator[Flag]:
    """Yield which latencies have too few requests."""
    least = policy.latency.min_requests
    counts = {sli: sample_of(side, sli).whole.count for sli in SLIS}
    if few := {sli: count for sli, count in counts.items() if 0.0 < count < least}:
        slis = ", ".join(TITLES[sli] for sli in few)
        words = f"{name} has {min(few.values()):,.0f} requests of {slis}: fewer than {least} decide nothing"
        yield Flag("too_few_requests", words, f"Record longer; a P99 needs {requests_needed(0.99)} requests.")


def _latencies(baseline: Baseline, candidate: Baseline) -> Iterator[Flag]:
    """Yield which latencies are missing or have other buckets."""
    for sli in SLIS:
        before, after = (sample_of(side, sli).whole for side in (baseline, candidate))
        if not before.count or not after.count:
            missing = [name for name, side in (("baseline", before), ("candidate", after)) if not side.count]
            since = "vLLM has it since 0.11.0. " if sli == "time_per_output_token" else ""
            action = f"{since}Record both with a release that has it."
            yield Flag("sli_missing", f"{' and '.join(missing)} without {TITLES[sli]}", action)
        elif before.bounds != after.bounds:
            common = len({*before.bounds} & {*after.bounds}) - 1
            words = f"{TITLES[sli]} has different buckets: its tail is compared at the {common} common boundaries"
            yield Flag("buckets_differ", words, "Record both with the same --custom-histogram-buckets.")


def _speculation(baseline: Baseline, candidate: Baseline) -> Iterator[Flag]:
    if speculates(baseline):
        words = "the baseline speculates too, so the ratio compares two settings of speculation"
        action = "To see what speculation gives, record a baseline without --speculative-config."
        yield Flag("baseline_speculates", words, action)
    if not speculates(candidate):
        action = "If it should draft, check --speculative-config, and check the order of the two files."
        yield Flag("candidate_does_not_speculate", "the candidate drafted nothing", action)
    partly = [name for name, side in (("baseline", baseline), ("candidate", candidate)) if side.adaptive_verification]
    if partly:
        action = "Compare the times and the mean acceptance length; acceptance and its curve mean nothing here."
        yield Flag("partly_verified", f"{' and '.join(partly)}: {PARTLY_VERIFIED}", action)


def _recording(name: str, side: Baseline, policy: Policy) -> Iterator[Flag]:
    """Yield what is missing in a recording."""
    if side.old:
        words = (
            f"{name} was recorded with version 0.1: it keeps step times by load, not by time, so its speed-up is rough"
        )
        yield Flag("old_recording", words, "Record it again with this version.")
    number, chance = len(side.blocks), policy.chance
    if number < chance.fewest_batches:
        words = f"{name} has {number} blocks of time; with fewer than {chance.fewest_batches} nothing is decided"
        yield Flag("no_blocks", words, "Record longer.")
    elif number < chance.batches:
        words = f"{name} has {number} blocks of time, so its intervals are wider than those of a longer recording"
        yield Flag("few_blocks", words, "Record longer.")
    if side.interrupted:
        words = f"{name}'s recording was interrupted after {side.duration_seconds:,.0f} s"
        yield Flag("interrupted", words, "Record it again to the end.")
    if side.context.missing:
        words = f"{name} does not say: {', '.join(side.context.missing).replace('_', ' ')}"
        action = "Add it to the file: nobody can report or repeat a number without it."
        yield Flag("context_missing", words, action)


def _differ(one: object, other: object) -> bool:
    """Whether two known texts differ, apart from white space and case."""
    known = isinstance(one, str) and isinstance(other, str)
    return known and str(one).casefold().split() != str(other).casefold().split()
