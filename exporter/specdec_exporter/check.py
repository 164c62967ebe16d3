"""``check``: a smoke check that a person runs beside a predictor. What was looked at, what was found, what to do.

Two fetches of the predictor's metrics a moment apart, its version, and, where given, its log. FAIL (exit code 1) where
the exporter could not work: no answer, no metrics, no statistics, an unreadable log. WARN (2) where it works and
speculation does not: off, not drafting, nothing drafted yet, below the method's policy. An idle predictor is judged by
its lifetime figures.
"""

from __future__ import annotations

import asyncio
import glob
import os
import sys
import time
from collections.abc import Callable, Sequence
from typing import TextIO

import aiohttp
import msgspec

from specdec_exporter import report
from specdec_exporter.analysis import Analysis, LogStory
from specdec_exporter.analyze import REPORT_KINDS, LogInputs
from specdec_exporter.errors import FetchError
from specdec_exporter.policy import load_policy
from specdec_exporter.predictor.counters import ReaderCounters
from specdec_exporter.predictor.fetch import MetricsFetcher
from specdec_exporter.report import Level, percent
from specdec_exporter.runtime import without_credentials
from specdec_exporter.state import PredictorState
from specdec_exporter.status import Figures, PredictorStatus, Verdict
from specdec_exporter.verdict import judge

EXIT_CODES: dict[Level, int] = {"PASS": 0, "FAIL": 1, "WARN": 2}
# A draft head that predicts one token and then nothing: position 1 is reached and almost never accepted.
_CLIFF_FIRST, _CLIFF_SECOND = 0.3, 0.05
# Text that repeats itself is accepted almost always.
_REPETITION_RATIO = 0.995


class Finding(msgspec.Struct, frozen=True):
    """One line of the check. ``action`` is what to do about it, where there is something."""

    level: Level
    subject: str
    found: str
    action: str | None = None


class LogReading(msgspec.Struct, frozen=True):
    """What the log said, how reading it went, and why a file could not be read (in words)."""

    analysis: Analysis
    counters: ReaderCounters
    failures: tuple[str, ...]


class Examination(msgspec.Struct, frozen=True, kw_only=True):
    """Everything a check found. ``basis`` are the figures that it judged, ``basis_span`` says of when."""

    findings: tuple[Finding, ...]
    status: PredictorStatus
    log: Analysis | None
    basis: Figures | None
    basis_span: str
    verdict: Verdict

    @property
    def level(self) -> Level:
        """The worst level of the findings."""
        levels = {finding.level for finding in self.findings}
        return "FAIL" if "FAIL" in levels else "WARN" if "WARN" in levels else "PASS"


async def check(
    url: str,
    *,
    log_paths: Sequence[str] = (),
    timeout_seconds: float = 5.0,
    interval_seconds: float = 2.0,
    stdout: TextIO | None = None,
) -> int:
    """Examine the predictor at ``url`` (base URL or full metrics URL) and print what was found.

    ``log_paths`` are files or globs, read whole as one log. Returns the exit code: 0 all well, 2 warnings, 1 failed.
    """
    examination = await examine(url, log_paths, timeout_seconds, interval_seconds)
    report.write(stdout or sys.stdout, lambda console: report.print_examination(console, examination))
    return EXIT_CODES[examination.level]


async def examine(url: str, log_paths: Sequence[str], timeout_seconds: float, interval_seconds: float) -> Examination:
    """Look at everything; raises nothing that the network or the files could cause."""
    url = url if "://" in url else f"http://{url}"
    shown = without_credentials(url)
    reading = await asyncio.to_thread(_read_log, log_paths) if log_paths else None
    log = reading.analysis if reading else None
    state = PredictorState("predictor", shown)
    if log is not None and log.last_config is not None:
        state.observe_event(log.last_config)
    findings: list[Finding] = []
    async with aiohttp.ClientSession(trust_env=False, cookie_jar=aiohttp.DummyCookieJar()) as session:
        fetcher = MetricsFetcher(session, url)
        findings.append(await _first_fetch(fetcher, state, shown, timeout_seconds))
        if state.up:
            state.observe_version(await fetcher.version(timeout_seconds))
        if state.state not in ("unreachable", "stats_disabled"):
            await asyncio.sleep(interval_seconds)
            findings += await _second_fetch(fetcher, state, timeout_seconds)
    status = state.status()
    basis, span = _basis(status, log)
    verdict = status.verdict
    if basis is not None and status.state in ("drafting", "idle"):
        verdict = judge("drafting", basis, state.resolved_policy, status.num_speculative_tokens)
    if status.state == "stats_disabled":
        findings.append(_statistics(status))
    elif status.up:
        findings += [_release(status), _speculation(status, log)]
        if status.state != "speculation_off":
            findings.append(_drafting(status))
            findings += _payoff(status, basis, span, verdict)
    if reading is not None:
        findings += _log(reading, status)
    return Examination(
        findings=tuple(findings), status=status, log=log, basis=basis, basis_span=span, verdict=verdict
    )


def _read_log(patterns: Sequence[str]) -> LogReading:
    paths: list[str] = []
    for pattern in patterns:
        matches = [] if os.path.exists(pattern) else glob.glob(pattern)
        paths += sorted(matches, key=os.path.getmtime) or [pattern]
    inputs = LogInputs(paths)
    story = LogStory()
    story.add(inputs.events(REPORT_KINDS))
    return LogReading(story.analysis(), inputs.counters, tuple(inputs.failed.values()))


async def _first_fetch(fetcher: MetricsFetcher, state: PredictorState, shown: str, timeout_seconds: float) -> Finding:
    started = time.monotonic()
    try:
        snapshot = await fetcher.fetch(timeout_seconds)
    except FetchError as error:
        state.observe_failure(str(error))
        version = await fetcher.version(timeout_seconds) if error.reason in _ANSWERED else None
        hint = _HINTS.get(error.reason, _WRONG_PLACE)
        if version is not None:
            hint = f"It is vLLM {version} by its /version, so give the URL without a path, or with the path of /metrics."
        return Finding("FAIL", "Metrics", str(error), hint)
    state.observe_snapshot(snapshot)
    took = (time.monotonic() - started) * 1000
    return Finding("PASS", "Metrics", f"{shown} answered in {took:.0f} ms")


async def _second_fetch(fetcher: MetricsFetcher, state: PredictorState, timeout_seconds: float) -> list[Finding]:
    try:
        state.observe_snapshot(await fetcher.fetch(timeout_seconds))
    except FetchError as error:
        state.observe_failure(str(error))
        return [
            Finding(
                "FAIL", "Metrics", f"the second fetch failed: {error}", "Did the predictor restart? Run the check again."
            )
        ]
    return []
