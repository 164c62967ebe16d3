"""The comparison of two recordings: the documented, stable shape of ``compare --output json``.

Ratios are 0..1 or candidate / baseline as named. Times are seconds, lengths tokens, intervals 95 %. ``null`` means not
recorded or not known; at both ends of an interval it means that chance is not known.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from specdec_exporter.baseline.file import Baseline, Context
from specdec_exporter.comparison.acceptance import acceptance_change, acceptance_of
from specdec_exporter.comparison.decision import Decision, decide
from specdec_exporter.comparison.latency import TITLES, LatencyComparison, compare_latency
from specdec_exporter.comparison.likeness import Flag, flags, refuse_other_minutes, refuse_other_model
from specdec_exporter.comparison.traffic import difference, requests_of, traffic_of
from specdec_exporter.speculation.acceptance import mean_draft_length
from specdec_exporter.speculation.chance import Estimate
from specdec_exporter.speculation.figures import Figures, figures
from specdec_exporter.speculation.measured import Compared, Measured
from specdec_exporter.speculation.policy import Policy
from specdec_exporter.speculation.speedup import measure
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
    generation_tokens_per_second: float | None
    requests_in_flight: float | None
    mean_prompt_tokens: float | None
    mean_generation_tokens: float | None
    preemptions: float | None
    acceptance_ratio: Estimate | None
    mean_acceptance_length: Estimate | None
    figures: Figures | None


_FACTS: Final = (  # as a recording has them
    "name",
    "recorded_at",
    "duration_seconds",
    "interrupted",
    "context",
    "vllm_version",
    "model_name",
    "method",
    "num_speculative_tokens",
)


class Speedup(msgspec.Struct, frozen=True, kw_only=True):
    """The speed-ups of the candidate's decoding, and what its drafts cost; ``null`` without step times.

    ``judged`` is the one that is judged, and ``compared`` says of which comparison: ``like_load`` (as many requests in
    decode, as many prompt tokens per second), ``closed_loop`` (a fixed number of clients), ``same_arrivals`` (as many
    requests per second), or ``unlike_arrivals`` (other requests per second, which do not explain it). ``at_like_load``,
    ``closed_loop`` and ``same_arrivals`` are the comparisons that hold. Where none does, ``why_unknown`` says why, and
    ``remedy`` what would make it known. ``concurrency``: the candidate's mean requests in decode, per engine.
    ``compared_ratio`` is the share of its decoding at loads near those of the baseline, which the figures are of.

    ``break_even_acceptance_ratio`` is also the cost of one more draft token over a step without drafts. It and the mean
    acceptance length that breaks even are ``null`` unless the candidate alone speculates, and the step time of the
    baseline at its load is known.
    """

    judged: Estimate | None = None
    compared: Compared | None = None
    why_unknown: str | None = None
    remedy: str | None = None
    at_like_load: Estimate | None = None
    closed_loop: Estimate | None = None
    same_arrivals: Estimate | None = None
    concurrency: float | None = None
    compared_ratio: float | None = None
    break_even_acceptance_ratio: Estimate | None = None
    break_even_acceptance_length: Estimate | None = None


class Comparison(msgspec.Struct, frozen=True, kw_only=True):
    """The whole comparison; ``latencies`` in the order of :data:`~specdec_exporter.comparison.latency.TITLES`.

    ``paired``: both recordings are of the same minutes. ``acceptance_change``: see
    :func:`~specdec_exporter.comparison.acceptance.acceptance_change`.
    """

    baseline: Side
    candidate: Side
    paired: bool
    latencies: tuple[LatencyComparison, ...]
    speedup: Speedup
    acceptance_change: Estimate | None
    flags: tuple[Flag, ...]
    decision: Decision


def compare(baseline: Baseline, candidate: Baseline, policy: Policy, *, paired: bool = False) -> Comparison:
    """Compare ``candidate`` with ``baseline``; ``paired``: two replicas that share the traffic of the same minutes.

    Raises :class:`~specdec_exporter.errors.ComparisonError` if they cannot be compared: two models, other minutes.
    """
    refuse_other_model(baseline, candidate)
    if paired:
        refuse_other_minutes(baseline, candidate, policy)
    traffic = difference(baseline, candidate, policy, paired=paired)
    # If the baseline speculates too, only the speed-ups mean something.
    plain = step_times(baseline.intervals, policy, per_token=baseline.speculates)
    measured = measure(candidate.intervals, plain, policy, paired=paired) if plain else None
    latencies = tuple(
        compare_latency(sli, baseline, candidate, traffic, policy, measured=measured, paired=paired) for sli in TITLES
    )
    before, after = side_of(baseline, policy), side_of(candidate, policy)
    change, speculates = acceptance_change(baseline, candidate, policy), (baseline.speculates, candidate.speculates)
    return Comparison(
        baseline=before,
        candidate=after,
        paired=paired,
        latencies=latencies,
        speedup=_speedup(measured, before.figures, after.figures),
        acceptance_change=change,
        flags=flags(baseline, candidate, traffic, policy),
        decision=decide(latencies, measured, change, policy, speculates=speculates),
    )


def side_of(recording: Baseline, policy: Policy) -> Side:
    """Return the figures of one recording."""
    counts, seconds, k = recording.counts, recording.duration_seconds, recording.num_speculative_tokens
    accepted, partly = acceptance_of(recording, policy), recording.adaptive_verification
    length = mean_draft_length(counts.draft_tokens, counts.drafts)
    facts: dict[str, Any] = {name: getattr(recording, name) for name in _FACTS}
    facts |= {name: each.value if each else None for name, each in traffic_of(recording)._asdict().items()}
    return Side(
        **facts,
        requests=requests_of(recording),
        preemptions=counts.preemptions,
        acceptance_ratio=None if partly else accepted,
        mean_acceptance_length=accepted.scaled(length, 1.0) if accepted and length else None,
        figures=figures(counts, k, "metrics", seconds, adaptive_verification=partly) if recording.speculates else None,
    )


def _speedup(measured: Measured | None, before: Figures | None, after: Figures | None) -> Speedup:
    """Return the speed-ups; where the acceptance rate is withheld, so is the one that breaks even, but no length."""
    if measured is None:
        return Speedup()
    cost = measured.draft_cost_ratio if after and not before else None
    length = mean_draft_length(after.draft_tokens, after.drafts) if after else None
    return Speedup(
        judged=measured.speedup,
        compared=measured.compared,
        why_unknown=measured.unknown.why if measured.unknown else None,
        remedy=measured.unknown.remedy if measured.unknown else None,
        at_like_load=measured.at_like_load,
        closed_loop=measured.closed_loop,
        same_arrivals=measured.same_arrivals,
        concurrency=measured.concurrency,
        compared_ratio=measured.compared_ratio,
        break_even_acceptance_ratio=cost if after and after.acceptance_ratio is not None else None,
        break_even_acceptance_length=cost.scaled(length, 1.0) if cost and length else None,
    )
