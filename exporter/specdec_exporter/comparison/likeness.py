"""Whether two recordings are like for like: what forbids the comparison, and what the reader must know."""

from __future__ import annotations

import math
from typing import Literal

import msgspec

from specdec_exporter.baseline.file import Baseline
from specdec_exporter.comparison import distribution
from specdec_exporter.comparison.distribution import Sample
from specdec_exporter.comparison.latency import SLIS, Sli
from specdec_exporter.comparison.traffic import Difference
from specdec_exporter.errors import ComparisonError
from specdec_exporter.histogram import Histogram
from specdec_exporter.predictor.quantization import quantization_of, without_precision
from specdec_exporter.predictor.speculativeconfig import given_config
from specdec_exporter.speculation.figures import PARTLY_VERIFIED
from specdec_exporter.speculation.policy import LatencyPolicy

FlagCode = Literal[
    "hardware_differs",
    "runtime_differs",
    "vllm_version_differs",
    "quantization_differs",
    "draft_model_differs",
    "request_parameters_differ",
    "served_name_differs",
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
    "no_blocks",
    "few_blocks",
    "blocks_correlated",
    "cold_start",
    "acceptance_varies",
    "first_token_bound",
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


def histogram_of(recording: Baseline, sli: Sli) -> Histogram | None:
    """Return the histogram of an SLI."""
    found: Histogram | None = getattr(recording, f"{sli}_seconds")
    return found


def sample_of(recording: Baseline, sli: Sli) -> Sample | None:
    """Return an SLI of a recording with its blocks of time; ``None`` if it was not recorded."""
    whole = histogram_of(recording, sli)
    if whole is None:
        return None
    blocks = (getattr(block, f"{sli}_seconds") for block in recording.blocks)
    return Sample(whole, tuple(block for block in blocks if block is not None))


def speculates(recording: Baseline) -> bool:
    """Whether anything was drafted."""
    return bool(recording.counts.draft_tokens or recording.counts.drafts)


def refuse_unlike(baseline: Baseline, candidate: Baseline) -> None:
    """Raise :class:`ComparisonError` if the models differ, or if the recordings share no SLI."""
    refuse_other_model(baseline, candidate)
    before, after = _recorded(baseline), _recorded(candidate)
    if not set(before) & set(after):
        raise ComparisonError(
            f"expected a latency with requests in both recordings, found {', '.join(before) or 'none'} in the baseline "
            f"and {', '.join(after) or 'none'} in the candidate. Record both again under traffic"
        )


def refuse_other_model(baseline: Baseline, candidate: Baseline) -> None:
    """Raise :class:`ComparisonError` if the models differ."""
    one, other = baseline.context.model, candidate.context.model
    key = "model"
    if one is None or other is None:
        one, other = baseline.model_name, candidate.model_name
        key = "model_name"
    if one is None or other is None or not _differ(_last_part(one), _last_part(other)):
        return
    raise ComparisonError(
        f"expected recordings of one model, found {key} {one!r} in {baseline.name} and "
        f"{other!r} in {candidate.name}. If both names mean the same model, give both files the same "
        "`model`"
    )


def _last_part(model: str) -> str:
    """Return a model's name without directory or organisation, and without quantisation: that is a setting."""
    name = model.rstrip("/").rpartition("/")[2]
    return without_precision(name) or name


def _recorded(recording: Baseline) -> list[str]:
    """Return the titles of the SLIs with requests."""
    return [TITLES[sli] for sli in SLIS if (found := histogram_of(recording, sli)) is not None and found.count > 0]


def flags(
    baseline: Baseline, candidate: Baseline, traffic: Difference, policy: LatencyPolicy, *, like_load: bool
) -> tuple[Flag, ...]:
    """Return what a reader of this comparison must know, most serious first. ``like_load``: a like load was found."""
    sides = (("the baseline", baseline), ("the candidate", candidate))
    return (
        *setting_flags(baseline, candidate),
        *traffic_flags(traffic, like_load=like_load),
        *(flag for name, side in sides for flag in request_flags(name, side, policy)),
        *_buckets(baseline, candidate),
        *_speculation(baseline, candidate),
        *(flag for name, side in sides for flag in block_flags(name, side, policy)),
        *(flag for name, side in sides for flag in recording_flags(name, side)),
    )


def setting_flags(baseline: Baseline, candidate: Baseline) -> list[Flag]:
    """Return how hardware, release or requests differ."""
    before, after = baseline.context, candidate.context
    again = "Record both in the same setting. Otherwise the result shows the effect of both changes together."
    facts: list[tuple[FlagCode, str, str | None, str | None]] = [
        ("hardware_differs", "hardware", before.hardware, after.hardware),
        ("runtime_differs", "runtime", before.runtime, after.runtime),
        ("vllm_version_differs", "vLLM version", baseline.vllm_version, candidate.vllm_version),
        *_models(baseline, candidate),
        ("request_parameters_differ", "request parameters", before.request_parameters, after.request_parameters),
    ]
    found = [
        Flag(code, f"{name}: {one or ''} in the baseline, {other or ''} in the candidate", again)
        for code, name, one, other in facts
        if _differ(one, other)
    ]
    if before.model is not None and after.model is not None and _differ(baseline.model_name, candidate.model_name):
        names = f"{baseline.model_name or ''} and {candidate.model_name or ''}"
        found.append(
            Flag("served_name_differs", f"the same model is served as {names}", "Check that it is the same model.")
        )
    return found


def _models(baseline: Baseline, candidate: Baseline) -> list[tuple[FlagCode, str, str | None, str | None]]:
    """Return how target and draft are quantised, and which model drafts, where both sides have one."""
    sides = [quantization_of(each.context.command, each.context.model) for each in (baseline, candidate)]
    target = [found.target or "none named" for found in sides]
    draft = [found.draft or "none named" for found in sides]
    found: list[tuple[FlagCode, str, str | None, str | None]] = [
        ("quantization_differs", "quantisation of the target model", target[0], target[1])
    ]
    if speculates(baseline) and speculates(candidate):
        models = [given_config(each.context.command).get("model") for each in (baseline, candidate)]
        one, other = (each if isinstance(each, str) else None for each in models)
        found += [
            ("quantization_differs", "quantisation of the draft model", draft[0], draft[1]),
            ("draft_model_differs", "draft model", one, other),
        ]
    return found


def traffic_flags(traffic: Difference, *, like_load: bool) -> list[Flag]:
    """Return how load, prompts and answers differ."""
    per_token = "time per output token is compared at like load" if like_load else "no load was recorded in both"
    waits = "time to first token, end-to-end latency and tails depend on it and decide nothing"
    of_prompts = f"the speed-up compares different work{f'; {waits}' if traffic.prompts else ''}"
    facts: tuple[tuple[FlagCode, str | None, str, str], ...] = (
        (
            "load_differs",
            traffic.load,
            f"time to first token and end-to-end latency depend on it and decide nothing; {per_token}",
            "Send requests at the same rate, or from as many clients, to both.",
        ),
        (
            "prompts_differ",
            traffic.other_prompts or traffic.prompts,
            of_prompts if traffic.other_prompts else waits,
            "Send the same requests to both.",
        ),
        (
            "answers_differ",
            traffic.answers,
            "end-to-end latency and tails depend on it and decide nothing",
            "Send the same requests to both.",
        ),
    )
    return [Flag(code, f"{words}: {consequence}", action) for code, words, consequence, action in facts if words]


def request_flags(name: str, side: Baseline, policy: LatencyPolicy) -> list[Flag]:
    """Return which latencies have too few requests; ``name`` is what messages call the recording."""
    counts = {sli: found.count for sli in SLIS if (found := histogram_of(side, sli)) is not None}
    few = {sli: count for sli, count in counts.items() if count < policy.min_requests}
    if not few:
        return []
    words = (
        f"{name} has {min(few.values()):,.0f} requests of {', '.join(TITLES[sli] for sli in few)}: fewer than "
        f"{policy.min_requests} decide nothing, because one slow request in a hundred shows up only by chance"
    )
    action = f"Record longer; a P99 needs {distribution.requests_needed(0.99)} requests."
    return [Flag("too_few_requests", words, action)]


def _buckets(baseline: Baseline, candidate: Baseline) -> list[Flag]:
    found = []
    for sli in SLIS:
        before, after = histogram_of(baseline, sli), histogram_of(candidate, sli)
        if before is None or after is None:
            missing = [name for name, side in (("baseline", before), ("candidate", after)) if side is None]
            words = f"{' and '.join(missing)} without {TITLES[sli]}"
            since = "vLLM has it since 0.11.0. " if sli == "time_per_output_token" else ""
            found.append(Flag("sli_missing", words, f"{since}Record both with a release that has it."))
        elif before.bounds != after.bounds:
            common = distribution.on_common_bounds(Sample(before), Sample(after))
            words = (
                f"only the {len(common[0].whole.bounds) - 1} common boundaries were compared"
                if common
                else "no boundary is common, so only the means were compared"
            )
            action = "Record both with the same --custom-histogram-buckets."
            found.append(Flag("buckets_differ", f"{TITLES[sli]} has different buckets: {words}", action))
    return found


def _speculation(baseline: Baseline, candidate: Baseline) -> list[Flag]:
    found = []
    if speculates(baseline):
        words = "the baseline speculates too, so the ratio compares two settings of speculation"
        action = "To see what speculation gives, record a baseline without --speculative-config."
        found.append(Flag("baseline_speculates", words, action))
    if not speculates(candidate):
        action = "If it should draft, check --speculative-config, and check the order of the two files."
        found.append(Flag("candidate_does_not_speculate", "the candidate drafted nothing", action))
    partly = [name for name, side in (("baseline", baseline), ("candidate", candidate)) if side.adaptive_verification]
    if partly:
        action = "Compare the times and the mean acceptance length; acceptance and its curve mean nothing here."
        found.append(Flag("partly_verified", f"{' and '.join(partly)}: {PARTLY_VERIFIED}", action))
    return found


def recording_flags(name: str, side: Baseline) -> list[Flag]:
    """Return what is missing in a recording; ``name`` is what messages call it."""
    found = []
    if side.interrupted:
        words = f"{name}'s recording was interrupted after {side.duration_seconds:,.0f} s"
        found.append(Flag("interrupted", words, "Record it again to the end."))
    if side.context.missing:
        words = f"{name} does not say: {', '.join(side.context.missing).replace('_', ' ')}"
        action = "Add it to the file: nobody can report or repeat a number without it."
        found.append(Flag("context_missing", words, action))
    return found


def block_flags(name: str, side: Baseline, policy: LatencyPolicy) -> list[Flag]:
    """Return what is wrong with the blocks that tell chance; ``name`` is what messages call the recording."""
    number = len(side.blocks)
    if not number:
        words = (
            f"{name} has no blocks of time, so its requests are taken as independent. On a busy server they are not, "
            "and its intervals are too narrow"
        )
        return [Flag("no_blocks", words, "Record it again.")]
    if number < policy.min_blocks:
        words = (
            f"{name} has only {number} of the {policy.min_blocks} blocks of time that intervals need, so its requests "
            "are taken as independent. On a busy server they are not, and its intervals are too narrow"
        )
        return [Flag("few_blocks", words, "Record longer.")]
    if number < policy.enough_blocks:
        words = f"{name} has {number} blocks of time, so its intervals are far wider than those of a longer recording"
        return [Flag("few_blocks", words, "Record longer.")]
    alike = [TITLES[sli] for sli in SLIS if (sample := sample_of(side, sli)) and _correlated(sample, policy)]
    if not alike:
        return []
    words = (
        f"{name}'s {' and '.join(alike)} wandered meanwhile: {number} blocks of time tell as little as a few, and "
        "slower changes do not show"
    )
    return [Flag("blocks_correlated", words, "Record longer.")]


def _correlated(sample: Sample, policy: LatencyPolicy) -> bool:
    """Whether neighbours are so alike that few blocks' worth is left, and that this hides a difference."""
    found = distribution.mean(sample, policy)
    if found is None or found.freedom >= policy.min_blocks:
        return False
    return (found.estimate().high or math.inf) > policy.slowdown_min * found.value


def _differ(one: str | None, other: str | None) -> bool:
    """Whether two known texts differ, apart from white space and case."""
    return one is not None and other is not None and one.casefold().split() != other.casefold().split()
