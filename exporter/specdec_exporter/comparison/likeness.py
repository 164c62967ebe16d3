"""Are two recordings like for like? What forbids comparing them, and what must be said beside the result."""

from __future__ import annotations

from typing import Literal

import msgspec

from specdec_exporter.baseline.file import Baseline
from specdec_exporter.comparison import distribution
from specdec_exporter.comparison.latency import SLIS, Sli
from specdec_exporter.errors import ComparisonError
from specdec_exporter.formatting import plain
from specdec_exporter.histogram import Histogram
from specdec_exporter.speculation.acceptance import ratio
from specdec_exporter.speculation.policy import LatencyPolicy

FlagCode = Literal[
    "hardware_differs",
    "runtime_differs",
    "vllm_version_differs",
    "request_parameters_differ",
    "served_name_differs",
    "context_missing",
    "interrupted",
    "too_few_requests",
    "sli_missing",
    "buckets_differ",
    "prompts_differ",
    "answers_differ",
    "baseline_speculates",
    "candidate_does_not_speculate",
]

TITLES: dict[Sli, str] = {
    "time_per_output_token": "time per output token",
    "time_to_first_token": "time to first token",
    "request_latency": "end-to-end latency",
}


class Flag(msgspec.Struct, frozen=True):
    """One reason to read the result with care: a stable code, what was found, and what to do about it."""

    code: FlagCode
    message: str
    action: str


class Traffic(msgspec.Struct, frozen=True):
    """Means of what was asked and answered, tokens per request; ``None`` where not recorded."""

    prompt_tokens: float | None
    generation_tokens: float | None


def histogram_of(recording: Baseline, sli: Sli) -> Histogram | None:
    """Return the histogram of an SLI."""
    found: Histogram | None = getattr(recording, f"{sli}_seconds")
    return found


def requests_of(recording: Baseline) -> float | None:
    """Requests that got their first token; those that finished where that is not known."""
    first = recording.counts.first_tokens
    return recording.requests_finished if first is None else first


def traffic_of(recording: Baseline) -> Traffic:
    """Return the mean lengths of prompts and answers."""
    requests = requests_of(recording)
    return Traffic(ratio(recording.prompt_tokens, requests), ratio(recording.counts.generation_tokens, requests))


def speculates(recording: Baseline) -> bool:
    """Whether anything was drafted."""
    return bool(recording.counts.draft_tokens or recording.counts.drafts)


def refuse_unlike(baseline: Baseline, candidate: Baseline) -> None:
    """Raise :class:`ComparisonError` for two models, or where no SLI was recorded on both sides."""
    one, other = baseline.context.model, candidate.context.model
    key = "model"
    if one is None or other is None:
        one, other = baseline.model_name, candidate.model_name
        key = "model_name"
    if _differ(_last_part(one), _last_part(other)):
        raise ComparisonError(
            f"expected two recordings of one model, found {key} {plain(one or '')!r} in the baseline and "
            f"{plain(other or '')!r} in the candidate. If both names mean the same model, give both files the same "
            "`model`"
        )
    if not any(_both(baseline, candidate, sli) for sli in SLIS):
        raise ComparisonError(
            "expected a latency that both recordings have requests of, found "
            f"{_recorded(baseline)} in the baseline and {_recorded(candidate)} in the candidate. Record both again "
            "under traffic"
        )


def _last_part(model: str | None) -> str | None:
    """A model's name without where it lies: a directory here, an organisation there."""
    return None if model is None else model.rstrip("/").rpartition("/")[2]


def _both(baseline: Baseline, candidate: Baseline, sli: Sli) -> bool:
    sides = (histogram_of(side, sli) for side in (baseline, candidate))
    return all(side is not None and side.count > 0 for side in sides)


def _recorded(recording: Baseline) -> str:
    names = [TITLES[sli] for sli in SLIS if (found := histogram_of(recording, sli)) is not None and found.count > 0]
    return ", ".join(names) or "none"


def unlike_traffic(baseline: Baseline, candidate: Baseline, policy: LatencyPolicy) -> dict[Sli, str]:
    """SLIs that nothing can be decided of, since they follow the length of prompts or answers, and why."""
    before, after = traffic_of(baseline), traffic_of(candidate)
    found: dict[Sli, str] = {}
    if _apart(before.generation_tokens, after.generation_tokens, policy):
        found["request_latency"] = "answers differ in length"
    if _apart(before.prompt_tokens, after.prompt_tokens, policy):
        found |= dict.fromkeys(("time_to_first_token", "request_latency"), "prompts differ in length")
    return found


def flags(baseline: Baseline, candidate: Baseline, policy: LatencyPolicy) -> tuple[Flag, ...]:
    """Return what must be said beside a comparison of these two, most serious first."""
    return (
        *_setting(baseline, candidate),
        *_traffic(baseline, candidate, policy),
        *_requests(baseline, candidate, policy),
        *_buckets(baseline, candidate),
        *_speculation(baseline, candidate),
        *_recordings(baseline, candidate),
    )


def _setting(baseline: Baseline, candidate: Baseline) -> list[Flag]:
    before, after = baseline.context, candidate.context
    again = "Record both in the same setting, or take the difference as one of both changes together."
    facts: list[tuple[FlagCode, str, str | None, str | None]] = [
        ("hardware_differs", "hardware", before.hardware, after.hardware),
        ("runtime_differs", "runtime", before.runtime, after.runtime),
        ("vllm_version_differs", "vLLM version", baseline.vllm_version, candidate.vllm_version),
        ("request_parameters_differ", "request parameters", before.request_parameters, after.request_parameters),
    ]
    found = [
        Flag(code, f"{name}: {plain(one or '')} in the baseline, {plain(other or '')} in the candidate", again)
        for code, name, one, other in facts
        if _differ(one, other)
    ]
    if before.model is not None and after.model is not None and _differ(baseline.model_name, candidate.model_name):
        names = f"{plain(baseline.model_name or '')} and {plain(candidate.model_name or '')}"
        found.append(
            Flag("served_name_differs", f"the same model is served as {names}", "Check that it is the same model.")
        )
    return found


def _traffic(baseline: Baseline, candidate: Baseline, policy: LatencyPolicy) -> list[Flag]:
    before, after = traffic_of(baseline), traffic_of(candidate)
    facts: tuple[tuple[FlagCode, str, str, float | None, float | None], ...] = (
        ("prompts_differ", "prompts", "to first token and end to end", before.prompt_tokens, after.prompt_tokens),
        ("answers_differ", "answers", "end to end", before.generation_tokens, after.generation_tokens),
    )
    return [
        Flag(
            code,
            f"{what} have {one:.0f} tokens on average in the baseline, {other:.0f} in the candidate: latency {which} "
            "follows their length and decides nothing",
            "Replay the same requests to both.",
        )
        for code, what, which, one, other in facts
        if one is not None and other is not None and _apart(one, other, policy)
    ]


def _requests(baseline: Baseline, candidate: Baseline, policy: LatencyPolicy) -> list[Flag]:
    found = []
    for name, side in (("baseline", baseline), ("candidate", candidate)):
        counts = {sli: side_of.count for sli in SLIS if (side_of := histogram_of(side, sli)) is not None}
        few = [sli for sli, count in counts.items() if count < policy.min_requests]
        if few:
            found.append(
                Flag(
                    "too_few_requests",
                    f"the {name} has {min(counts[sli] for sli in few):,.0f} requests of "
                    f"{', '.join(TITLES[sli] for sli in few)}: fewer than {policy.min_requests} decide nothing, since "
                    "one slow request in a hundred shows, or does not, by chance",
                    f"Record longer; a P99 needs {distribution.requests_needed(0.99)} requests.",
                )
            )
    return found


def _buckets(baseline: Baseline, candidate: Baseline) -> list[Flag]:
    found = []
    for sli in SLIS:
        before, after = histogram_of(baseline, sli), histogram_of(candidate, sli)
        if before is None or after is None:
            missing = [name for name, side in (("baseline", before), ("candidate", after)) if side is None]
            words = f"{TITLES[sli]} was not recorded in the {' and the '.join(missing)}"
            since = "vLLM has it since 0.11.0. " if sli == "time_per_output_token" else ""
            found.append(Flag("sli_missing", words, f"{since}Record both with a release that has it."))
        elif before.bounds != after.bounds:
            common = distribution.on_common_bounds(before, after)
            words = (
                f"{len(common[0].bounds) - 1} boundaries that both have were compared"
                if common
                else "none is the same, so only the means were compared"
            )
            action = "Record both with the same --custom-histogram-buckets."
            found.append(Flag("buckets_differ", f"{TITLES[sli]} has different buckets: {words}", action))
    return found


def _speculation(baseline: Baseline, candidate: Baseline) -> list[Flag]:
    found = []
    if speculates(baseline):
        found.append(
            Flag(
                "baseline_speculates",
                "the baseline speculates too, so the ratio is that of two settings, not what speculation gives",
                "For that, record a baseline without --speculative-config.",
            )
        )
    if not speculates(candidate):
        found.append(
            Flag(
                "candidate_does_not_speculate",
                "the candidate drafted nothing",
                "If it should have: check --speculative-config, and whether the files are the right way round.",
            )
        )
    return found


def _recordings(baseline: Baseline, candidate: Baseline) -> list[Flag]:
    found = []
    for name, side in (("baseline", baseline), ("candidate", candidate)):
        if side.interrupted:
            words = f"recording the {name} was interrupted after {side.duration_seconds:,.0f} s"
            found.append(Flag("interrupted", words, "Record it again to the end."))
        if side.context.missing:
            found.append(
                Flag(
                    "context_missing",
                    f"the {name} does not say: {', '.join(side.context.missing).replace('_', ' ')}",
                    "Add it to the file: a number without it can be neither reported nor repeated.",
                )
            )
    return found


def _differ(one: str | None, other: str | None) -> bool:
    """Whether two texts say different things, white space and case aside; unknown is not different."""
    return one is not None and other is not None and one.casefold().split() != other.casefold().split()


def _apart(one: float | None, other: float | None, policy: LatencyPolicy) -> bool:
    if one is None or other is None:
        return False
    return max(one, other) > (1.0 + policy.traffic_tolerance) * min(one, other)
