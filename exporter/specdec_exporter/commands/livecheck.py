"""``check``: fetch a predictor's metrics twice, ask for its version, read its log if one is given, and report."""

from __future__ import annotations

import asyncio
import glob
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Literal, TextIO

import msgspec

from specdec_exporter.baseline.pinned import PinnedBaseline
from specdec_exporter.errors import FetchError
from specdec_exporter.inspection.examination import LogReading, Look, examine, is_foreign, no_metrics
from specdec_exporter.inspection.logstory import LogStory
from specdec_exporter.predictor.metrics.fetch import MetricsFetcher, open_session, without_credentials
from specdec_exporter.predictor.sources.inputs import REPORT_KINDS, LogInputs
from specdec_exporter.serving.state import PredictorState
from specdec_exporter.speculation.verdict import Finding, Level
from specdec_exporter.terminal.check import print_examination
from specdec_exporter.terminal.console import write

EXIT_CODES: dict[Level, int] = {"PASS": 0, "FAIL": 1, "WARN": 2}
# Errors after an answer: the version can then tell what answered.
_ANSWERED = frozenset({"http_status", "not_metrics", "redirect"})


async def check(
    url: str,
    *,
    log_paths: Sequence[str] = (),
    baseline_path: str | None = None,
    timeout_seconds: float = 5.0,
    interval_seconds: float = 2.0,
    output: Literal["text", "json"] = "text",
    stdout: TextIO | None = None,
) -> int:
    """Examine the predictor at ``url`` (its base, or the full URL of its metrics) and print the findings.

    ``log_paths`` are files or globs, read whole as one log. ``timeout_seconds`` limits each request;
    ``interval_seconds`` lie between the two fetches; a baseline without speculation takes more and longer ones, which
    measure the speed-up. ``json`` is one object: the fields of :class:`Examination`, the
    level and the status. Returns the exit code: 0 passed, 2 warnings, 1 failed. Raises ConfigError if ``url`` is not a
    URL, BaselineError if the baseline cannot be read.
    """
    url = url if "://" in url else f"http://{url}"
    state = PredictorState("predictor", without_credentials(url))
    pinned = PinnedBaseline(baseline_path) if baseline_path else None
    async with open_session() as session:
        fetcher = MetricsFetcher(session, url)
        reading = await asyncio.to_thread(_read_log, log_paths) if log_paths else None
        readings = 1
        if pinned is not None and pinned.step_times is not None:
            # A measured speed-up needs several intervals.
            cost = state.policy.cost
            readings, interval_seconds = cost.min_intervals, max(interval_seconds, cost.interval_seconds)
        access = await _observe(fetcher, state, reading, timeout_seconds, [interval_seconds] * readings)
    if pinned is not None and state.snapshot is not None and state.snapshot.engines:
        pinned.observe(state.snapshot, state.vllm_version)
        state.observe_baseline(pinned.decoding)
        access = (*access, _baseline(pinned))
    look = Look(
        up=state.up,
        evidence=state.evidence(state.published()),
        model_names=state.model_names,
        draft_model=state.draft_model,
        window=state.window(),
        lifetime=state.lifetime(),
    )
    examination = examine(access, look, reading, state.policy)
    status = state.status()
    stdout = stdout or sys.stdout
    if output == "json":
        found = {"level": examination.level, "status": status, **msgspec.structs.asdict(examination)}
        print(msgspec.json.encode(found).decode(), file=stdout)
    else:
        engines = [(engine.engine, engine.lifetime) for engine in status.engines if engine.lifetime is not None]
        write(stdout, lambda console: print_examination(console, examination, look, engines))
    return EXIT_CODES[examination.level]


def _baseline(pinned: PinnedBaseline) -> Finding:
    name = pinned.baseline.name
    if pinned.fit.refusal is not None:
        return Finding("WARN", "Baseline", f"{name} is not compared: {pinned.fit.refusal}", "Record one of this model.")
    if pinned.decoding is None:
        found = f"{name} has no time per output token and no step times, so speed is not compared"
        return Finding("PASS", "Baseline", found)
    note = "; ".join(pinned.fit.differences)
    return Finding("PASS", "Baseline", f"{name}, of {pinned.decoding.requests:,.0f} requests", note or None)


async def _observe(
    fetcher: MetricsFetcher,
    state: PredictorState,
    reading: LogReading | None,
    timeout_seconds: float,
    intervals: Sequence[float],
) -> tuple[Finding, ...]:
    """Update ``state`` from the predictor, again after each interval; return findings about the fetches."""
    started = time.monotonic()
    try:
        snapshot = await fetcher.fetch(timeout_seconds)
    except FetchError as error:
        state.observe_failure(str(error))
        version = await fetcher.version(timeout_seconds) if error.reason in _ANSWERED else None
        return (no_metrics(error, version),)
    answered = Finding("PASS", "Metrics", f"{state.url} answered in {(time.monotonic() - started) * 1000:.0f} ms")
    state.observe_snapshot(snapshot)
    state.observe_version(await fetcher.version(timeout_seconds))
    config = reading.analysis.last_config if reading else None
    if config is not None and not is_foreign(config, state.vllm_version):
        for event in (reading.analysis.last_arguments, config) if reading else ():
            if event is not None:
                state.observe_event(event)
    if not snapshot.stats_present:
        return (answered,)
    for seconds in intervals:
        await asyncio.sleep(seconds)
        try:
            state.observe_snapshot(await fetcher.fetch(timeout_seconds))
        except FetchError as error:
            state.observe_failure(str(error))
            again = "Did the predictor restart? Run the check again."
            return (answered, Finding("FAIL", "Metrics", f"a later fetch failed: {error}", again))
    return (answered,)


def _read_log(patterns: Sequence[str]) -> LogReading:
    """Read files and globs (the matches of a glob in order of age) as one log."""
    paths: list[str] = []
    for pattern in patterns:
        matches = [] if Path(pattern).exists() else [Path(match) for match in glob.glob(pattern)]  # noqa: PTH207
        matches.sort(key=lambda match: match.stat().st_mtime)
        paths += [str(match) for match in matches] or [pattern]
    inputs = LogInputs(paths)
    story = LogStory()
    story.add(inputs.events(REPORT_KINDS))
    return LogReading(story.analysis(), inputs.counters, tuple(inputs.failed.values()))
