"""The comparison of two recordings: the documented, stable shape of ``compare --output json``.

Ratios are 0..1 or candidate / baseline as named. Times are seconds, lengths tokens, intervals 95 %. ``null`` means not
recorded or not known; at both ends of an interval it means that chance is not known.
"""

from __future__ import annotations

import msgspec

from specdec_exporter.baseline.file import Baseline, Context
from specdec_exporter.comparison.acceptance import AcceptanceChange, acceptance_change, acceptance_of
from specdec_exporter.comparison.decision import Decision, decide
from specdec_exporter.comparison.latency import SLIS, LatencyComparison, Sli, compare_latency
from specdec_exporter.comparison.likeness import (
    Flag,
    flags,
    refuse_other_minutes,
    refuse_unlike,
    sample_of,
    speculates,
)
from specdec_exporter.comparison.traffic import conditions, difference, requests_of, traffic_of
from specdec_exporter.speculation.acceptance import mean_draft_length, ratio
from specdec_exporter.speculation.chance import Estimate
from specdec_exporter.speculation.figures import Figures, figures
from specdec_exporter.speculation.policy import Policy
from specdec_exporter.speculation.speedup import Measured, measure
from specdec_exporter.speculation.steptime import step_times


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
    """Three speed-ups of the candidate, and what its drafts cost. Only ``realised`` is known without step times.

    ``at_like_load`` is of decoding, at the load and the prompts per second that the candidate had; it is the one that
    is judged. ``concurrency`` is that load: the mean requests in decode, per engine. ``compared_ratio`` is the share of
    the candidate's decoding at loads near those of the baseline, which the figures are of. ``closed_loop`` is what a
    fixed number of clients gets. ``realised`` is baseline mean / candidate mean of ``realised_from``, as recorded.

    ``draft_cost_ratio`` is the cost of one more draft token over a step without drafts: the acceptance that breaks
    even, and with it the mean acceptance length. ``null`` unless the candidate alone speculates.
    """

    realised: Estimate | None
    realised_from: Sli | None
    at_like_load: Estimate | None
    closed_loop: Estimate | None
    concurrency: float | None
    compared_ratio: float | None
    draft_cost_ratio: Estimate | None
    break_even_acceptance_ratio: Estimate | None
    break_even_acceptance_length: Estimate | None


class Comparison(msgspec.Struct, frozen=True, kw_only=True):
    """The whole comparison; ``latencies`` in the order of :data:`~specdec_exporter.comparison.latency.SLIS`.

    ``paired``: both recordings are of the same minutes. ``acceptance_change`` is ``null`` unless both speculate.
    """

    baseline: Side
    candidate: Side
    paired: bool
    latencies: tuple[LatencyComparison, ...]
    speedup: Speedup
    acceptance_change: AcceptanceChange | None
    flags: tuple[Flag, ...]
    decision: Decision


def compare(baseline: Baseline, candidate: Baseline, policy: Policy, *, paired: bool = False) -> Comparison:
    """Compare ``candidate`` with ``baseline``; ``paired``: two replicas that share the traffic of the same minutes.

    Raises :class:`~specdec_exporter.errors.ComparisonError` if they cannot be compared: two models, other minutes.
    """
    refuse_unlike(baseline, candidate)
    if paired:
        refuse_other_minutes(baseline, candidate, policy)
    traffic = difference(baseline, candidate, policy, paired=paired)
    measured = at_like_load(baseline, candidate, policy, recorded_in_both=bool(traffic.load), paired=paired)
    found = conditions(traffic, measured.speedup if measured else None, paired=paired)
    latencies = tuple(
        compare_latency(sli, sample_of(baseline, sli), sample_of(candidate, sli), policy, found[sli]) for sli in SLIS
    )
    flagged = flags(baseline, candidate, traffic, policy, like_load=measured is not None)
    change = acceptance_change(baseline, candidate, flagged, policy)
    before, after = side_of(baseline, policy), side_of(candidate, policy)
    return Comparison(
        baseline=before,
        candidate=after,
        paired=paired,
        latencies=latencies,
        speedup=_speedup(latencies, before.figures, after.figures, measured),
        acceptance_change=change,
        flags=flagged,
        decision=decide(
            latencies,
            speculates=(speculates(baseline), speculates(candidate)),
            measured=measured,
            preemptions=(baseline.counts.preemptions or 0.0, candidate.counts.preemptions or 0.0),
            acceptance=change,
            shared=traffic.shared,
            flags=len(flagged),
            policy=policy.latency,
        ),
    )


def at_like_load(
    baseline: Baseline, candidate: Baseline, policy: Policy, *, recorded_in_both: bool = False, paired: bool = False
) -> Measured | None:
    """Return how much faster ``candidate`` decodes than ``baseline`` at like load; ``None`` if that is not known.

    If the baseline speculates, only the speed-ups mean something. ``recorded_in_both`` leaves out loads that the
    baseline did not have: where the loads differ, the line of its step times may bend between them.
    """
    plain = step_times(baseline.intervals, policy, per_token=speculates(baseline))
    if plain is None:
        return None
    low, high = plain.loads
    loads = [each for each in candidate.intervals if not recorded_in_both or low <= each.concurrency <= high]
    return measure(loads, plain, policy, paired=paired)


def side_of(recording: Baseline, policy: Policy) -> Side:
    """Return the figures of one recording."""
    counts, seconds, k = recording.counts, recording.duration_seconds, recording.num_speculative_tokens
    requests, traffic = requests_of(recording), traffic_of(recording)
    accepted, partly = acceptance_of(recording, policy), recording.adaptive_verification
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
        requests_in_flight=traffic.in_flight and traffic.in_flight.value,
        generation_tokens_per_second=ratio(counts.generation_tokens, seconds),
        mean_prompt_tokens=traffic.prompt_tokens and traffic.prompt_tokens.value,
        mean_generation_tokens=traffic.generation_tokens and traffic.generation_tokens.value,
        preemptions=counts.preemptions,
        acceptance_ratio=None if partly else accepted,
        mean_acceptance_length=accepted.scaled(length, 1.0) if accepted and length else None,
        figures=figures(counts, k, "metrics", seconds, adaptive_verification=partly) if speculates(recording) else None,
    )


def _speedup(
    latencies: tuple[LatencyComparison, ...], before: Figures | None, after: Figures | None, measured: Measured | None
) -> Speedup:
    """Time per output token exists since 0.11.0; before, the realised speed-up is of the whole request."""
    realised = next(
        (each for each in latencies if each.sli != "time_to_first_token" and each.mean_ratio is not None), None
    )
    cost, even_length = _break_even(measured, after) if measured and after and not before else (None, None)
    return Speedup(
        realised=realised.mean_ratio.inverse() if realised and realised.mean_ratio else None,
        realised_from=realised.sli if realised else None,
        at_like_load=measured.speedup if measured else None,
        closed_loop=measured.closed_loop if measured else None,
        concurrency=measured.concurrency if measured else None,
        compared_ratio=measured.compared_ratio if measured else None,
        draft_cost_ratio=cost,
        break_even_acceptance_ratio=cost,
        break_even_acceptance_length=even_length,
    )


def _break_even(measured: Measured, drafted: Figures) -> tuple[Estimate | None, Estimate | None]:
    """Return the cost of one more draft token, and the mean acceptance length that breaks even.

    Where the acceptance rate is withheld, so is the cost: both are per draft token as counted. The length is not.
    """
    cost, length = measured.draft_cost_ratio, mean_draft_length(drafted.draft_tokens, drafted.drafts)
    even_length = cost.scaled(length, 1.0) if cost and length else None
    return (None if drafted.acceptance_ratio is None else cost), even_length
