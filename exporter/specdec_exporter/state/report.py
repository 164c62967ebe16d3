"""The record -> the status that page, API and ``check`` show. It is filled here alone."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from specdec_exporter.baseline.pinned import Fit, PinnedBaseline
from specdec_exporter.baseline.remarks import remarks
from specdec_exporter.predictor.facts.failures import explained
from specdec_exporter.predictor.versions import KnownPitfall, warning_counts
from specdec_exporter.speculation.measured import Measured, Unknown
from specdec_exporter.state.outliers import outlying_engines
from specdec_exporter.state.record import PredictorState
from specdec_exporter.state.status import (
    BaselineStatus,
    EngineStatus,
    LoadStatus,
    LogStatus,
    Measurement,
    PredictorStatus,
)
from specdec_exporter.state.view import (
    break_even_of,
    engines_of,
    evidence_of,
    lifetime_of,
    said_of,
    start_of,
    state_name,
    unusable_of,
    window_of,
)


def status_of(
    state: PredictorState, *, age_seconds: float | None = None, old: bool = False, log_problem: str | None = None
) -> PredictorStatus:
    """Return the whole status, with figures summed over engines.

    ``age_seconds``: since the last read ended; ``old``: the read since then does not end. ``log_problem``: in words
    why the log cannot be read.
    """
    window, running, failed = window_of(state), state.running, state.failed_start
    engines = [track.snapshot for track in state.tracks.values()] if state.counted else []
    usages = [usage for engine in engines if (usage := engine.kv_cache_usage_ratio) is not None]
    assumed, said = break_even_of(state), said_of(state)
    wall_clock_ahead = state.wall_clock() - state.clock()
    return PredictorStatus(
        inference_service=state.name,
        url=state.url,
        age_seconds=age_seconds,
        old=old,
        processes=state.process_count,
        up=state.up,
        up_reason=state.up_reason,
        failed_start=explained(failed.failure, failed.message, failed.timestamp) if failed else None,
        state=state_name(state),
        model_names=state.model_names,
        inference_engine=state.inference_engine.name if state.inference_engine else None,
        inference_engine_version=state.version if state.is_other_engine else running.vllm_version,
        untold=f"{state.engine.untold}." if state.engine.untold and state.counted else None,
        vllm_version=running.vllm_version,
        engine_generation=state.engine_generation,
        method=state.method,
        draft_model=state.draft_model,
        num_speculative_tokens=state.num_speculative_tokens,
        rejection_sampling=running.deployment.rejection_sampling,
        adaptive_verification=running.deployment.adaptive_verification,
        start=start_of(state),
        requests_running=_total(engine.requests_running for engine in engines),
        requests_waiting=_total(engine.requests_waiting for engine in engines),
        kv_cache_usage_ratio=max(usages, default=None),
        acceptance_ratio_min=assumed.acceptance_ratio,
        mean_acceptance_length_min=assumed.mean_acceptance_length,
        break_even=break_even_of(state, state.cost),
        measured=_measurement(state.cost, state.cost_seconds) if state.cost else None,
        by_load=tuple(_loads(state)),
        window=window,
        lifetime=lifetime_of(state),
        engines=tuple(
            EngineStatus(
                model_name=engine.model_name, engine=engine.engine, window=engine.window, lifetime=engine.lifetime
            )
            for engine in engines_of(state)
        ),
        history=state.history.shown(state.clock(), window, wall_clock_ahead),
        warnings=warning_counts(state.warnings),
        pitfalls=(*noted(state), *outlying_engines(state), *evidence_of(state).pitfalls()),
        log=_log(state, log_problem),
        verdict=said.shown.verdict(state.policy),
        verdict_since=said.shown_since + wall_clock_ahead,
        verdict_may_be_older=said.first,
        baseline=_baseline(state.pinned, state.fit) if state.pinned else None,
    )


def _total(values: Iterable[float | None]) -> float | None:
    told = [value for value in values if value is not None]
    return sum(told) if told else None


def _measurement(cost: Measured, seconds: float) -> Measurement:
    figures: dict[str, Any] = msgspec.structs.asdict(cost)
    unknown: Unknown | None = figures.pop("unknown")
    return Measurement(
        seconds=seconds,
        why_unknown=unknown.why if unknown else None,
        remedy=unknown.remedy if unknown else None,
        **figures,
    )


def _loads(state: PredictorState) -> Iterable[LoadStatus]:
    for model, counters in sorted(state.loads.items()):
        for bound, totals in counters.bins():
            yield LoadStatus(
                model_name=model,
                concurrency=bound,
                seconds=totals.load.seconds,
                steps=totals.load.steps,
                step_seconds=totals.load.step_seconds / totals.load.steps,
                tokens_per_step=totals.load.tokens / totals.load.steps,
                speedup=totals.speedup,
            )


def _log(state: PredictorState, problem: str | None) -> LogStatus | None:
    if state.reader is None:
        return None
    return LogStatus(
        windows=sum(totals.windows for totals in state.log.engines.values()),
        lines=state.reader.lines,
        parse_errors=state.reader.parse_errors,
        bytes_behind=state.reader.bytes_behind,
        last_line_timestamp=state.reader.last_line_timestamp,
        problem=problem,
    )


def _baseline(pinned: PinnedBaseline, fit: Fit) -> BaselineStatus:
    baseline = pinned.baseline
    return BaselineStatus(
        name=baseline.name,
        recorded_at=baseline.recorded_at,
        recorded_timestamp=baseline.recorded_timestamp,
        duration_seconds=baseline.duration_seconds,
        interrupted=baseline.interrupted,
        model_name=baseline.model_name,
        vllm_version=baseline.vllm_version,
        served=fit.refusal is None,
        refusal=fit.refusal,
        remarks=(*fit.differences, *remarks(baseline)),
        acceptance_ratio=pinned.acceptance_ratio,
        mean_acceptance_length=pinned.mean_acceptance_length,
        mean_latency_seconds={sli: histogram.mean for sli, histogram in baseline.histograms()},
    )


def noted(state: PredictorState) -> tuple[KnownPitfall, ...]:
    """Return what the figures leave out or mix up here, whatever the release."""
    notes = []
    told, shown, processes = state.engines_told, len(state.tracks), state.process_count
    if told > shown:
        notes.append(
            KnownPitfall(
                code="too_many_engines",
                releases="",
                meaning=f"{told:,} engines; {shown:,} are shown. Every figure is about these alone.",
                action="Run one exporter for each predictor; it shows more engines. If there should be fewer, see who "
                "answers.",
                costly=False,
            )
        )
    if unusable := list(unusable_of(state).values()):
        notes.append(
            KnownPitfall(
                code="unusable_counters",
                releases="",
                meaning=f"{'; '.join(unusable)}. Figures computed from this are not known.",
                action="Restart the predictor. If that does not help, look for a plugin, a patch or a proxy that "
                "changes its metrics.",
                costly=True,
            )
        )
    if processes > 1:
        both = "both" if processes == 2 else "all of them"
        notes.append(
            KnownPitfall(
                code="several_processes",
                releases="",
                meaning=f"{processes} processes answer at this URL. Counts add up {both}; gauges show one at a time.",
                action="Point each exporter at one pod.",
                costly=True,
            )
        )
    return tuple(notes)
