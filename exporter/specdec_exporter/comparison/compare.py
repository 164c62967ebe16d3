"""The comparison of two recordings: the documented, stable shape of ``compare --output json``.

Ratios are 0..1 or candidate / baseline as named. Times are seconds, lengths tokens, intervals 95 %. ``null`` means not
recorded or not defined; at the end of an interval it means unbounded.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from specdec_exporter.baseline.file import Baseline, Context
from specdec_exporter.comparison.acceptance import AcceptanceChange, acceptance_change, acceptance_of
from specdec_exporter.comparison.conduct import conduct_flags
from specdec_exporter.comparison.decision import Decision, Drafting, decide
from specdec_exporter.comparison.latency import SLIS, LatencyComparison, Pair, Sli, compare_latency
from specdec_exporter.comparison.likeness import Flag, flags, refuse_unlike, sample_of, speculates
from specdec_exporter.comparison.loads import at_like_load, choose, k_of
from specdec_exporter.comparison.traffic import Figure, conditions, difference, requests_of, traffic_of
from specdec_exporter.speculation.acceptance import mean_draft_length, ratio
from specdec_exporter.speculation.cost import MeasuredCost
from specdec_exporter.speculation.estimate import Estimate
from specdec_exporter.speculation.figures import Figures, figures
from specdec_exporter.speculation.policy import Policy

CeilingSource = Literal["tokens_per_step", "mean_acceptance_length"]


class Side(msgspec.Struct, frozen=True, kw_only=True):
    """One recording. ``figures`` is ``null`` if nothing was drafted. ``requests_in_flight`` waited or ran, in the mean.

    The intervals of ``acceptance_ratio`` and ``mean_acceptance_length`` know that requests are not independent: see
    :func:`~specdec_exporter.comparison.acceptance.acceptance_of`.
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
    requests_in_flight: float | None
    generation_tokens_per_second: float | None
    mean_prompt_tokens: float | None
    mean_generation_tokens: float | None
    preemptions: float | None
    acceptance_ratio: Estimate | None
    mean_acceptance_length: Estimate | None
    figures: Figures | None


class Speedup(msgspec.Struct, frozen=True, kw_only=True):
    """The speed-up of the candidate.

    ``realised`` is baseline mean / candidate mean of ``realised_from``. ``ceiling`` is the speed-up if drafting cost no
    time: tokens per step. If the steps are not known, it is the mean acceptance length, which leaves out steps without
    a draft. ``efficiency`` is realised / ceiling and has the interval of the realised speed-up. Ceiling and efficiency
    are ``null`` if the baseline speculates or the candidate does not.

    ``realised`` is what users felt. If the same requests arrived, a faster server had fewer of them in flight.
    ``at_like_load`` is the speed-up at the same concurrency, and ``concurrency`` its mean, per engine; this one decides
    on k. ``draft_cost_ratio`` is the cost of one more draft token over a step without drafts: the acceptance that
    breaks even, and with it the mean acceptance length. They need step times by load in both recordings.
    """

    realised: Estimate | None
    realised_from: Sli | None
    ceiling: float | None
    ceiling_from: CeilingSource | None
    efficiency: Estimate | None
    at_like_load: Estimate | None
    concurrency: float | None
    draft_cost_ratio: Estimate | None
    break_even_acceptance_ratio: Estimate | None
    break_even_acceptance_length: Estimate | None


class Comparison(msgspec.Struct, frozen=True, kw_only=True):
    """The whole comparison; ``latencies`` in the order of :data:`~specdec_exporter.comparison.latency.SLIS`.

    ``acceptance_change`` is ``null`` unless both speculate.
    """

    baseline: Side
    candidate: Side
    latencies: tuple[LatencyComparison, ...]
    speedup: Speedup
    generation_tokens_per_second_ratio: float | None
    acceptance_change: AcceptanceChange | None
    flags: tuple[Flag, ...]
    decision: Decision


def compare(baseline: Baseline, candidate: Baseline, policy: Policy) -> Comparison:
    """Compare ``candidate`` with ``baseline``. Raises ComparisonError if they cannot be compared (two models)."""
    refuse_unlike(baseline, candidate)
    traffic = difference(baseline, candidate, policy.latency)
    like_load = at_like_load(baseline, candidate, policy)
    found = conditions(traffic, at_like_load(baseline, candidate, policy, recorded_in_both=True))
    latencies = tuple(
        compare_latency(sli, sample_of(baseline, sli), sample_of(candidate, sli), policy.latency, found[sli])
        for sli in SLIS
    )
    before, after = side_of(baseline, policy), side_of(candidate, policy)
    drafting = _drafting(baseline, candidate, like_load, policy)
    like = found["time_per_output_token"].like_load is not None
    flagged = (
        *flags(baseline, candidate, traffic, policy.latency, like_load=like),
        *conduct_flags(baseline, candidate, policy),
    )
    change = acceptance_change(baseline, candidate, flagged, policy)
    return Comparison(
        baseline=before,
        candidate=after,
        latencies=latencies,
        speedup=_speedup(latencies, before.figures, after.figures, like_load, drafting),
        generation_tokens_per_second_ratio=ratio(
            after.generation_tokens_per_second, before.generation_tokens_per_second
        ),
        acceptance_change=change,
        flags=flagged,
        decision=decide(
            latencies,
            before.figures,
            after.figures,
            drafting=drafting,
            policy=policy.for_method(candidate.method),
            preemptions=Pair(baseline.counts.preemptions, candidate.counts.preemptions),
            acceptance=change,
        ),
    )


def _drafting(baseline: Baseline, candidate: Baseline, cost: MeasuredCost | None, policy: Policy) -> Drafting | None:
    """Return what drafts cost at like load; ``None`` if the recordings do not tell."""
    if cost is None or speculates(baseline) or not speculates(candidate):
        return None
    k, choice = k_of(candidate), None
    if k is not None and not candidate.adaptive_verification and cost.draft_tokens_per_step > 0:
        choice = choose(cost.slowdown, candidate.counts, candidate.method, k, policy)
    return Drafting(cost, choice, cost.pays(policy.latency.speedup_min))


def side_of(recording: Baseline, policy: Policy) -> Side:
    """Return the figures of one recording."""
    counts, seconds = recording.counts, recording.duration_seconds
    requests, traffic = requests_of(recording), traffic_of(recording)
    accepted, partly = acceptance_of(recording, policy), recording.adaptive_verification
    k, drafted = recording.num_speculative_tokens, None
    if speculates(recording):
        drafted = figures(counts, k, "metrics", seconds, adaptive_verification=partly)
    length = mean_draft_length(counts.draft_tokens, counts.drafts)
    return Side(
        name=recording.name,
        recorded_at=recording.recorded_at,
        duration_seconds=seconds,
        interrupted=recording.interrupted,
        context=recording.context,
        vllm_version=recording.vllm_version,
        model_name=recording.model_name,
        method=recording.method,
        num_speculative_tokens=k,
        requests=requests,
        requests_per_second=ratio(requests, seconds),
        requests_in_flight=_value(traffic.in_flight),
        generation_tokens_per_second=ratio(counts.generation_tokens, seconds),
        mean_prompt_tokens=_value(traffic.prompt_tokens),
        mean_generation_tokens=_value(traffic.generation_tokens),
        preemptions=counts.preemptions,
        acceptance_ratio=None if partly else accepted,
        mean_acceptance_length=accepted.scaled(length, 1.0) if accepted and length else None,
        figures=drafted,
    )


def _value(found: Figure | None) -> float | None:
    return None if found is None else found.value


def _speedup(
    latencies: tuple[LatencyComparison, ...],
    baseline: Figures | None,
    candidate: Figures | None,
    like_load: MeasuredCost | None,
    drafting: Drafting | None,
) -> Speedup:
    by_sli = {latency.sli: latency for latency in latencies}
    # Time per output token exists since 0.11.0; the rule pack uses the same order.
    slis: tuple[Sli, ...] = ("time_per_output_token", "request_latency")
    source = next((sli for sli in slis if by_sli[sli].mean_ratio is not None), None)
    realised = _inverse(by_sli[source].mean_ratio if source else None)
    ceiling, ceiling_from = _ceiling(candidate) if baseline is None and candidate is not None else (None, None)
    price, even_length = _break_even(candidate, drafting) if candidate and drafting else (None, None)
    return Speedup(
        realised=realised,
        realised_from=source,
        ceiling=ceiling,
        ceiling_from=ceiling_from,
        efficiency=realised.scaled(1.0 / ceiling) if realised and ceiling else None,
        at_like_load=like_load.speedup if like_load else None,
        concurrency=like_load.concurrency if like_load else None,
        draft_cost_ratio=price,
        break_even_acceptance_ratio=price,
        break_even_acceptance_length=even_length,
    )


def _break_even(candidate: Figures, drafting: Drafting) -> tuple[Estimate | None, Estimate | None]:
    """Return the cost of one more draft token, and the mean acceptance length that breaks even.

    Where the acceptance rate is withheld, so is the cost: both are per draft token as counted. The length is not.
    """
    price, length = drafting.cost.draft_cost_ratio, mean_draft_length(candidate.draft_tokens, candidate.drafts)
    even_length = price.scaled(length, 1.0) if price and length else None
    return (None if candidate.acceptance_ratio is None else price), even_length


def _inverse(found: Estimate | None) -> Estimate | None:
    return found.inverse() if found else None


def _ceiling(candidate: Figures) -> tuple[float | None, CeilingSource | None]:
    """Return the speed-up if drafting cost no time, and the figure that it is."""
    if candidate.tokens_per_step is not None:
        return candidate.tokens_per_step, "tokens_per_step"
    if candidate.mean_acceptance_length is not None:
        return candidate.mean_acceptance_length, "mean_acceptance_length"
    return None, None
