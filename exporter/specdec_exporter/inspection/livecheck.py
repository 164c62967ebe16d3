"""``check``: read a predictor over a window, ask for its version, read its log if one is given, and examine it.

A running exporter has done all of that already: what it says about its own window is examined instead.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Final

from msgspec.structs import replace

from specdec_exporter.baseline.pinned import PinnedBaseline
from specdec_exporter.config import SYSTEM_TRUST, Access
from specdec_exporter.errors import FetchError
from specdec_exporter.formatting import plain
from specdec_exporter.inspection.examination import (
    Examination,
    LogReading,
    baseline_finding,
    examine,
    is_foreign,
    no_metrics,
    pitfall_finding,
)
from specdec_exporter.inspection.exportercheck import STATUS_PATH, examine_exporter
from specdec_exporter.inspection.logstory import LogStory
from specdec_exporter.predictor.log.events import REPORT_KINDS
from specdec_exporter.predictor.metrics.fetch import MetricsFetcher, open_session, without_credentials
from specdec_exporter.predictor.sources.inputs import LogInputs
from specdec_exporter.speculation.policy import load_policy
from specdec_exporter.speculation.verdict import Finding
from specdec_exporter.state.observing import observe_event, observe_failure, observe_snapshot, observe_version, pin
from specdec_exporter.state.outliers import outlying_engines
from specdec_exporter.state.record import PredictorState
from specdec_exporter.state.report import noted, status_of
from specdec_exporter.state.status import PredictorStatus, Status
from specdec_exporter.state.view import evidence_of

# Errors after an answer: the version can then tell what answered.
_ANSWERED: Final = frozenset({"http_status", "not_metrics", "redirect"})
# Readings between the first and the last show that the predictor drafts all the time, and did not restart.
_READING_SECONDS = 15.0
_INTERVAL_SECONDS: Final = 5.0  # of a speed-up, if somebody waits for it
_SHORT_SECONDS = 5.0  # needs no progress
WINDOW_SECONDS: Final = 2.0

Progress = Callable[[str, float], AbstractContextManager[None]]
"""Shows a text, and how much of so many seconds has passed."""


def _silent(_text: str, _seconds: float) -> AbstractContextManager[None]:
    return nullcontext()


@dataclass(frozen=True, slots=True)
class Window:
    """The time over which a predictor is read: a reading at its end, and some before. ``stop`` ends it early."""

    seconds: float
    reading_seconds: float
    stop: asyncio.Event
    progress: Progress = _silent

    def shown(self, url: str) -> AbstractContextManager[None]:
        """Show the time that has passed, if it is long."""
        if self.seconds <= _SHORT_SECONDS:
            return nullcontext()
        text = f"Reading {plain(url)} for {self.seconds:g} s; Ctrl-C ends it early and reports what there is"
        return self.progress(text, self.seconds)

    async def readings(self) -> AsyncIterator[bool]:
        """Wait for the time of each reading, and say whether it is the last, as the one at a stop is."""
        left = max(1, math.ceil(self.seconds / self.reading_seconds))
        pause = self.seconds / left
        while left:
            left -= 1
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self.stop.wait(), pause)
                left = 0
            yield left == 0


@dataclass(slots=True)
class PredictorLog:
    """The predictor's log, read once: files and globs as one log, as ``serve`` finds them. No ``paths``: none is given.

    It is read just before the last reading of the metrics. So its lines are as fresh, and hold no draft that those do
    not count.
    """

    paths: Sequence[str]
    reading: LogReading | None = None

    async def read(self, state: PredictorState) -> None:
        """Read the log, if that is not done, and tell ``state`` of the start unless that is another release's."""
        if not self.paths or self.reading is not None:
            return
        self.reading = await asyncio.to_thread(read_log, self.paths)
        config = self.reading.analysis.last_config
        foreign = state.is_other_engine or (config is not None and is_foreign(config, state.running.vllm_version))
        if not foreign:
            for event in self.reading.analysis.start.events:
                observe_event(state, event)


async def examined(
    url: str,
    *,
    access: Access = SYSTEM_TRUST,
    log_paths: Sequence[str] = (),
    baseline_path: str | None = None,
    timeout_seconds: float = 5.0,
    window_seconds: float = WINDOW_SECONDS,
    stop: asyncio.Event | None = None,
    progress: Progress = _silent,
) -> list[tuple[Examination, PredictorStatus]]:
    """Examine the predictor at ``url`` (its base, also with ``/v1``, or the full URL of its metrics).

    ``access`` has its TLS and token. ``log_paths`` are files or globs, read whole as one log. ``timeout_seconds``
    limits each request. The figures cover ``window_seconds``; a baseline without speculation takes a longer window,
    which measures the speed-up. ``stop`` ends the window early.

    If an exporter answers at ``url`` (its base, or the full URL of its metrics or its status), its own window, log and
    baseline count at once, for each of its predictors. A finding names what was given beside them and is not used.

    Raises ConfigError if ``url`` is not a URL, BaselineError if the baseline cannot be read.
    """
    asks_exporter = url.endswith(f"/{STATUS_PATH}")
    url = url.removesuffix(STATUS_PATH)
    pinned = PinnedBaseline(baseline_path) if baseline_path else None
    policy = load_policy()
    seconds, reading_seconds = window_seconds, _READING_SECONDS
    if pinned is not None and pinned.step_times is not None:
        # A measured speed-up needs several intervals. Short ones do: the line of the baseline holds for any length.
        reading_seconds = min(policy.cost.interval_seconds, _INTERVAL_SECONDS)
        policy = replace(policy, cost=replace(policy.cost, interval_seconds=reading_seconds))
        seconds = max(seconds, policy.chance.fewest_batches * reading_seconds)
    state = PredictorState(
        "predictor", without_credentials(url), window_seconds=max(300.0, window_seconds), policy=policy
    )
    window = Window(seconds, reading_seconds, stop or asyncio.Event(), progress)
    async with open_session() as session:
        fetcher = MetricsFetcher(session, url, access=access)
        log = PredictorLog(log_paths)
        fetches = await observe(fetcher, state, log, timeout_seconds=timeout_seconds, window=window)
        exporter = None
        if not state.snapshot.stats_present if state.snapshot else asks_exporter:
            exporter = await fetcher.ask(STATUS_PATH, Status, timeout_seconds)
    if exporter is not None:
        given = {"--window": window_seconds != WINDOW_SECONDS, "--predictor.log-path": log_paths}
        unused = [name for name, value in (given | {"--baseline.file": baseline_path}).items() if value]
        return [(examine_exporter(exporter, status, policy, unused), status) for status in exporter.predictors]
    fetches += (*_baseline(pinned, state), *map(pitfall_finding, (*noted(state), *outlying_engines(state))))
    status = status_of(state)
    return [(examine(fetches, status, log.reading, policy, evidence_of(state)), status)]


def _baseline(pinned: PinnedBaseline | None, state: PredictorState) -> tuple[Finding, ...]:
    """Compare ``state`` with its baseline from now on; return the finding about that."""
    if pinned is None or state.snapshot is None or not state.snapshot.engines:
        return ()
    pin(state, pinned)
    name, fit = pinned.baseline.name, state.fit
    if state.baseline is None:
        details = " has no time per output token and no step times, so speed is not compared"
        return (baseline_finding(name, fit.refusal, details, ()),)
    details = f", of {state.baseline.requests:,.0f} requests"
    return (baseline_finding(name, fit.refusal, details, fit.differences),)


async def observe(
    fetcher: MetricsFetcher,
    state: PredictorState,
    log: PredictorLog,
    *,
    timeout_seconds: float,
    window: Window,
) -> tuple[Finding, ...]:
    """Update ``state`` from the predictor over the window, and from its log; return findings about the fetches."""
    findings = await _fetched(fetcher, state, log, timeout_seconds=timeout_seconds, window=window)
    await log.read(state)
    return findings


async def _fetched(
    fetcher: MetricsFetcher, state: PredictorState, log: PredictorLog, *, timeout_seconds: float, window: Window
) -> tuple[Finding, ...]:
    started = time.monotonic()
    try:
        snapshot = await fetcher.fetch(timeout_seconds)
    except FetchError as error:
        observe_failure(state, str(error))
        version = await fetcher.version(timeout_seconds) if error.reason in _ANSWERED else None
        return (no_metrics(error, version),)
    answered = Finding("PASS", "Metrics", f"{state.url} answered in {(time.monotonic() - started) * 1000:.0f} ms")
    observe_snapshot(state, snapshot)
    observe_version(state, await fetcher.version(timeout_seconds, state.engine))
    if not snapshot.stats_present:
        return (answered,)
    try:
        with window.shown(state.url):
            async for is_last in window.readings():
                if is_last:
                    await log.read(state)
                snapshot = await fetcher.fetch(timeout_seconds)
                observe_snapshot(state, snapshot)
    except FetchError as error:
        observe_failure(state, str(error))
        again = "Did the predictor restart? Run the check again."
        return (answered, Finding("FAIL", "Metrics", f"a later fetch failed: {error}", again))
    return (answered,)


def read_log(patterns: Sequence[str]) -> LogReading:
    """Read files and globs as one log, as ``serve`` finds them."""
    inputs = LogInputs.found(patterns)
    story = LogStory()
    story.add(inputs.events(REPORT_KINDS))
    analysis = story.analysis(inputs.counters)
    return LogReading(analysis, inputs.counters, tuple(inputs.failed.values()), story.deployment())
