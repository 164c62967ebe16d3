"""What two recordings say about each other: the documented, stable shape of ``compare --output json``.

Ratios are 0..1 or candidate / baseline as named, times are seconds, lengths tokens; intervals are of 95 %. ``null``
means not recorded, not defined, or not bounded on that side.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from specdec_exporter.baseline.file import Baseline, Context
from specdec_exporter.comparison.decision import Decision, decide
from specdec_exporter.comparison.estimate import Estimate, proportion
from specdec_exporter.comparison.latency import SLIS, LatencyComparison, Pair, Sli, compare_latency
from specdec_exporter.comparison.likeness import (
    Flag,
    flags,
    histogram_of,
    refuse_unlike,
    requests_of,
    speculates,
    traffic_of,
    unlike_traffic,
)
from specdec_exporter.speculation.acceptance import ratio
from specdec_exporter.speculation.figures import Figures, figures
from specdec_exporter.speculation.policy import Policy


class Side(msgspec.Struct, frozen=True, kw_only=True):
    """One recording. ``figures`` is ``null`` where nothing was drafted.

    ``acceptance_ratio`` and ``mean_acceptance_length`` have the interval that holds if all drafts of a request stand
    or fall together, which is the widest that correlation can make it: the counters do not tell requests apart.
    """

    name: str
    recorded_at: str
    duration_seconds: float
    interrupted: bool
    context: Context
    vllm_version: str | None
    model_name: str | None
    method: str | None
    num_speculative_tokens: int | None
    requests: float | None
    requests_per_second: float | None
    generation_tokens_per_second: float | None
    mean_prompt_tokens: float | None
    mean_generation_tokens: float | None
    preemptions: float | None
    acceptance_ratio: Estimate | None
    mean_acceptance_length: Estimate | None
    figures: Figures | None


class Speedup(msgspec.Struct, frozen=True, kw_only=True):
    """What speculation gives. ``null`` where the baseline speculates, too, or the candidate does not, but for
    ``realised``, which is baseline mean / candidate mean of ``realised_from`` all the same.

    ``ceiling`` is what it would be if a step with drafts took no longer than one without: tokens per step, or mean
    acceptance length where that is not known, which leaves out steps without a draft. ``efficiency`` is realised /
    ceiling; its interval is that of the realised speed-up.
    """

    realised: Estimate | None
    realised_from: Sli | None
    ceiling: float | None
    ceiling_from: Literal["tokens_per_step", "mean_acceptance_length"] | None
    efficiency: Estimate | None


class Comparison(msgspec.Struct, frozen=True, kw_only=True):
    """All of it. ``latencies`` are in the order of :data:`~specdec_exporter.comparison.latency.SLIS`."""

    baseline: Side
    candidate: Side
    latencies: tuple[LatencyComparison, ...]
    speedup: Speedup
    generation_tokens_per_second_ratio: float | None
    flags: tuple[Flag, ...]
    decision: Decision


def compare(baseline: Baseline, candidate: Baseline, policy: Policy) -> Comparison:
    """Compare ``candidate`` with ``baseline``. Raises ComparisonError where that says nothing (two models)."""
    refuse_unlike(baseline, candidate)
    unlike = unlike_traffic(baseline, candidate, policy.latency)
    latencies = tuple(
        compare_latency(
            sli,
            histogram_of(baseline, sli),
            histogram_of(candidate, sli),
            policy.latency,
            unlike=unlike.get(sli),
        )
        for sli in SLIS
    )
    before, after = _side(baseline), _side(candidate)
    return Comparison(
        baseline=before,
        candidate=after,
        latencies=latencies,
        speedup=_speedup(latencies, before.figures, after.figures),
        generation_tokens_per_second_ratio=ratio(
            after.generation_tokens_per_second, before.generation_tokens_per_second
        ),
        flags=flags(baseline, candidate, policy.latency),
        decision=decide(
            latencies,
            before.figures,
            after.figures,
            num_speculative_tokens=candidate.num_speculative_tokens,
            policy=policy.for_method(candidate.method),
            preemptions=Pair(baseline.preemptions, candidate.preemptions),
        ),
    )


def _side(recording: Baseline) -> Side:
    counts, seconds = recording.counts, recording.duration_seconds
    requests, traffic = requests_of(recording), traffic_of(recording)
    accepted = None
    if counts.draft_tokens and counts.accepted_tokens is not None:
        clusters = min((known for known in (requests, counts.drafts) if known), default=counts.draft_tokens)
        accepted = proportion(counts.accepted_tokens, counts.draft_tokens, clusters)
    drafted = None
    if speculates(recording):
        drafted = figures(counts, recording.num_speculative_tokens, "metrics", seconds)
    length = drafted.mean_draft_length if drafted else None
    return Side(
        name=recording.name,
        recorded_at=recording.recorded_at,
        duration_seconds=seconds,
        interrupted=recording.interrupted,
        context=recording.context,
        vllm_version=recording.vllm_version,
        model_name=recording.model_name,
        method=recording.method,
        num_speculative_tokens=recording.num_speculative_tokens,
        requests=requests,
        requests_per_second=ratio(requests, seconds),
        generation_tokens_per_second=ratio(counts.generation_tokens, seconds),
        mean_prompt_tokens=traffic.prompt_tokens,
        mean_generation_tokens=traffic.generation_tokens,
        preemptions=recording.preemptions,
        acceptance_ratio=accepted,
        mean_acceptance_length=accepted.scaled(length, 1.0) if accepted and length else None,
        figures=drafted,
    )


def _speedup(latencies: tuple[LatencyComparison, ...], baseline: Figures | None, candidate: Figures | None) -> Speedup:
    by_sli = {latency.sli: latency for latency in latencies}
    # Per token where both releases have that (since 0.11.0), else end to end: the same order as in the rule pack.
    slis: tuple[Sli, ...] = ("time_per_output_token", "request_latency")
    source = next((sli for sli in slis if by_sli[sli].mean_ratio is not None), None)
    slower = by_sli[source].mean_ratio if source else None
    realised = slower.inverse() if slower else None
    ceiling, ceiling_from = None, None
    if baseline is None and candidate is not None:
        ceiling, ceiling_from = _ceiling(candidate)
    return Speedup(
        realised=realised,
        realised_from=source,
        ceiling=ceiling,
        ceiling_from=ceiling_from,
        efficiency=realised.scaled(1.0 / ceiling) if realised and ceiling else None,
    )


def _ceiling(
    candidate: Figures,
) -> tuple[float | None, Literal["tokens_per_step", "mean_acceptance_length"] | None]:
    if candidate.tokens_per_step is not None:
        return candidate.tokens_per_step, "tokens_per_step"
    if candidate.mean_acceptance_length is not None:
        return candidate.mean_acceptance_length, "mean_acceptance_length"
    return None, None
