"""The status of one predictor, from what is known of it."""

from __future__ import annotations

from collections.abc import Iterable

from specdec_exporter.predictor.facts.failures import explained
from specdec_exporter.predictor.versions import KnownPitfall, warning_counts
from specdec_exporter.serving.lastword import Remembered
from specdec_exporter.serving.status import EngineStatus, LoadStatus, LogStatus, Measurement, PredictorStatus
from specdec_exporter.serving.view import PredictorView
from specdec_exporter.speculation.measured import Measured


def status_of(
    known: PredictorView, said: Remembered, clock_offset: float, pitfalls: tuple[KnownPitfall, ...]
) -> PredictorStatus:
    """Return the whole status, with figures summed over engines.

    ``clock_offset``: Unix seconds - monotonic seconds. ``pitfalls``: of the predictor's release.
    """
    window, running, failed = known.window(), known.running, known.failed_start
    assumed = known.assumed_break_even
    usages = [usage for each in known.snapshots if (usage := each.kv_cache_usage_ratio) is not None]
    return PredictorStatus(
        inference_service=known.name,
        url=known.url,
        processes=known.processes,
        up=known.up,
        up_reason=known.up_reason,
        failed_start=explained(failed.failure, failed.message, failed.timestamp) if failed else None,
        state=known.state,
        model_names=known.model_names,
        vllm_version=running.vllm_version,
        engine_generation=known.engine_generation,
        method=running.method,
        draft_model=running.draft_model,
        num_speculative_tokens=known.num_speculative_tokens,
        rejection_sampling=running.deployment.rejection_sampling,
        adaptive_verification=running.deployment.adaptive_verification,
        start=known.start,
        requests_running=_total(each.requests_running for each in known.snapshots),
        requests_waiting=_total(each.requests_waiting for each in known.snapshots),
        kv_cache_usage_ratio=max(usages, default=None),
        acceptance_ratio_min=assumed.acceptance_ratio,
        mean_acceptance_length_min=assumed.mean_acceptance_length,
        break_even=known.break_even,
        measured=_measurement(known.cost, known.cost_seconds) if known.cost else None,
        by_load=tuple(_loads(known)),
        window=window,
        lifetime=known.lifetime(),
        engines=tuple(
            EngineStatus(
                model_name=engine.model_name, engine=engine.engine, window=engine.window, lifetime=engine.lifetime
            )
            for engine in known.engines()
        ),
        history=known.shown_history(window),
        warnings=warning_counts(known.warnings),
        pitfalls=(*noted(known), *pitfalls),
        log=_log(known),
        verdict=said.shown,
        verdict_since=said.shown_since + clock_offset,
        verdict_may_be_older=said.first,
    )


def _total(values: Iterable[float | None]) -> float | None:
    found = [value for value in values if value is not None]
    return sum(found) if found else None


def _measurement(cost: Measured, seconds: float) -> Measurement:
    return Measurement(
        seconds=seconds,
        speedup=cost.speedup,
        compared=cost.compared,
        why_unknown=cost.unknown.why if cost.unknown else None,
        remedy=cost.unknown.remedy if cost.unknown else None,
        at_like_load=cost.at_like_load,
        closed_loop=cost.closed_loop,
        same_arrivals=cost.same_arrivals,
        draft_cost_ratio=cost.draft_cost_ratio,
        concurrency=cost.concurrency,
        compared_ratio=cost.compared_ratio,
        steps=cost.steps,
        step_seconds=cost.step_seconds,
        plain_step_seconds=cost.plain_step_seconds,
        tokens_per_step=cost.tokens_per_step,
        draft_tokens_per_step=cost.draft_tokens_per_step,
    )


def _loads(known: PredictorView) -> Iterable[LoadStatus]:
    for model, counters in sorted(known.loads.items()):
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


def _log(known: PredictorView) -> LogStatus | None:
    if known.reader is None:
        return None
    return LogStatus(
        windows=sum(totals.windows for totals in known.log.engines.values()),
        lines=known.reader.lines,
        parse_errors=known.reader.parse_errors,
        bytes_behind=known.reader.bytes_behind,
        last_line_timestamp=known.reader.last_line_timestamp,
    )


def noted(known: PredictorView) -> tuple[KnownPitfall, ...]:
    """Return what the figures leave out or mix up here, whatever the release."""
    found = []
    if known.too_many_engines is not None:
        found.append(
            KnownPitfall(
                code="too_many_engines",
                releases="",
                meaning=f"{known.too_many_engines}. Every figure is about these alone.",
                action="Run one exporter for each predictor; it shows more engines. If there should be fewer, see who "
                "answers.",
                costly=False,
            )
        )
    if known.processes > 1:
        both = "both" if known.processes == 2 else "all of them"
        found.append(
            KnownPitfall(
                code="several_processes",
                releases="",
                meaning=f"{known.processes} processes answer at this URL. Counts add up {both}; gauges show one at a "
                "time.",
                action="Point each exporter at one pod.",
                costly=True,
            )
        )
    return tuple(found)
