"""``baseline record --predictor.url``: fetch a predictor's metrics at both ends of a span, and watch for restarts."""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from collections.abc import AsyncIterator, Sequence
from datetime import UTC, datetime

import msgspec

from specdec_exporter.baseline.file import Baseline, Context, as_utc
from specdec_exporter.baseline.recording import Recorder, with_increases
from specdec_exporter.config import SYSTEM_TRUST, Access
from specdec_exporter.errors import BaselineError, FetchError
from specdec_exporter.predictor.engines.engine import VLLM, InferenceEngine
from specdec_exporter.predictor.log.events import EngineConfig, ServerArguments
from specdec_exporter.predictor.log.start import Start
from specdec_exporter.predictor.metrics.fetch import MetricsFetcher, open_session
from specdec_exporter.predictor.metrics.snapshot import Snapshot
from specdec_exporter.predictor.sources.inputs import LogInputs
from specdec_exporter.speculation.policy import load_policy

# A predictor takes about 10 s to load, so no restart between two polls stays hidden.
_POLL_SECONDS = 5.0
_FEWEST = 12  # polls, blocks and intervals of a short span


async def record(
    url: str,
    *,
    access: Access = SYSTEM_TRUST,
    duration_seconds: float,
    name: str | None = None,
    context: Context | None = None,
    log_paths: Sequence[str] = (),
    timeout_seconds: float = 5.0,
    stop: asyncio.Event | None = None,
) -> Baseline:
    """Record the predictor at ``url`` (its base, or its metrics' full URL) for ``duration_seconds``.

    ``access`` has its TLS and token. ``context`` holds what the caller knows; its model chooses among several served
    models. The predictor and its log (files or globs) fill in the rest. ``stop`` ends the span early and marks the
    recording as interrupted. Raises :class:`BaselineError` if the predictor restarts or no request finishes, and
    :class:`FetchError` if the first fetch fails.
    """
    context = context or Context()
    stop = stop or asyncio.Event()
    start = await asyncio.to_thread(logged_start, log_paths)
    config = start.config
    async with open_session() as session:
        fetcher = MetricsFetcher(session, url, access=access, lengths=True)
        first = await fetcher.fetch(timeout_seconds)
        started = time.monotonic()
        interval_seconds = min(load_policy().cost.interval_seconds, duration_seconds / _FEWEST)
        recorder = Recorder(first, started, context.model, interval_seconds=interval_seconds)
        engine = recorder.engine
        version = await fetcher.version(timeout_seconds, engine)
        models = await fetcher.models(timeout_seconds)
        _refuse_other_log(config, engine, version)
        async for snapshot in _polled(fetcher, started + duration_seconds, timeout_seconds, stop):
            recorder.observe(snapshot, time.monotonic())
    logged, told = start.speculator(recorder.num_positions), recorder.speculator
    return with_increases(
        Baseline(
            name=name or recorder.model_name or "baseline",
            recorded_at=as_utc(datetime.now(UTC)),
            duration_seconds=round(recorder.seconds, 3),
            context=_filled(context, config, engine, version, models.get(recorder.model_name or "")),
            inference_engine=engine.code,
            vllm_version=(version or (config.vllm_version if config else None)) if engine is VLLM else None,
            method=told.method or logged.method,
            draft_model=told.draft_model or logged.draft_model,
            num_speculative_tokens=told.num_speculative_tokens or logged.num_speculative_tokens,
            model_name=recorder.model_name or None,
            interrupted=recorder.seconds < duration_seconds,
        ),
        recorder.increases(),
    )


def _refuse_other_log(config: EngineConfig | None, engine: InferenceEngine, version: str | None) -> None:
    if config is not None and engine is not VLLM:
        raise BaselineError(f"the log comes from vLLM, and {engine.name} answers: only vLLM's log is read")
    logged = config.vllm_version if config else None
    if logged and version and logged != version:
        raise BaselineError(
            f"the log comes from vLLM {logged}, the predictor runs {version}: give the predictor's own log"
        )


async def _polled(
    fetcher: MetricsFetcher, until: float, timeout_seconds: float, stop: asyncio.Event
) -> AsyncIterator[Snapshot]:
    """Yield a snapshot every few seconds and one at the end; skip fetches that fail, but repeat the last one."""
    left = until - time.monotonic()
    poll_seconds = min(_POLL_SECONDS, left / _FEWEST)
    fetched = True
    while True:
        # The last poll comes exactly at the end.
        seconds = left if 0.0 <= left < 1.5 * poll_seconds else poll_seconds
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(stop.wait(), seconds if fetched or left > 0 else 0.1)
        try:
            snapshot = await fetcher.fetch(timeout_seconds)
        except FetchError:
            fetched = False
        else:
            fetched = True
            yield snapshot
        left = until - time.monotonic()
        if stop.is_set() or (left <= 0 and (fetched or left < -timeout_seconds)):
            return


def logged_start(patterns: Sequence[str]) -> Start:
    """Return the last arguments and engine-init line of the logs.

    Raises :class:`BaselineError` if a log cannot be read.
    """
    start = Start()
    if not patterns:
        return start
    inputs = LogInputs.found(patterns)
    for event in inputs.events(frozenset({EngineConfig, ServerArguments})):
        start = start.after(event)
    for path, problem in inputs.failed.items():
        if path in inputs.paths or not inputs.paths or os.path.lexists(path):  # one of several may have no log yet
            raise BaselineError(problem)
    return start


def _filled(
    context: Context, config: EngineConfig | None, engine: InferenceEngine, version: str | None, root: str | None
) -> Context:
    """Fill the gaps in ``context`` with what the predictor says about itself."""
    model = root or (config.model if config else None)
    runtime = f"{engine.name} {version}" if version else None
    return msgspec.structs.replace(context, model=context.model or model, runtime=context.runtime or runtime)
