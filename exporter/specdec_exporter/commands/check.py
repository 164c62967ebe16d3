"""``check``: a smoke check that a person runs beside a predictor. What was looked at, what was found, what to do.

Two fetches of the predictor's metrics a moment apart, its version, and, where given, its log.
"""

from __future__ import annotations

import asyncio
import glob
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Literal, TextIO

import click
import msgspec

from specdec_exporter.baseline.pinned import PinnedBaseline
from specdec_exporter.commands.flags import DURATION, log_paths_flag
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
# Something answered, so that asking it for its version can tell what it is.
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
    """Examine the predictor at ``url`` (its base, or its metrics' full URL) and print what was found.

    ``log_paths`` are files or globs, read whole as one log. ``timeout_seconds`` holds for each request;
    ``interval_seconds`` lie between the two fetches. ``json`` is one object: what :class:`Examination` has, and the
    level. Returns the exit code: 0 all well, 2 warnings, 1 failed. Raises ConfigError if ``url`` is none, BaselineError
    if the baseline cannot be read.
    """
    url = url if "://" in url else f"http://{url}"
    state = PredictorState("predictor", without_credentials(url))
    pinned = PinnedBaseline(baseline_path) if baseline_path else None
    async with open_session() as session:
        fetcher = MetricsFetcher(session, url)
        reading = await asyncio.to_thread(_read_log, log_paths) if log_paths else None
        access = await _observe(fetcher, state, reading, timeout_seconds, interval_seconds)
    if pinned is not None and state.snapshot is not None and state.snapshot.engines:
        pinned.observe(state.snapshot, state.vllm_version)
        state.observe_baseline(pinned.decoding)
        access = (*access, _baseline(pinned))
    look = Look(
        up=state.up,
        evidence=state.evidence(),
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
        found = f"{name} has no time per output token (vLLM before 0.11.0 does not have it), so speed is not compared"
        return Finding("PASS", "Baseline", found)
    note = "; ".join(pinned.fit.differences)
    return Finding("PASS", "Baseline", f"{name}, of {pinned.decoding.requests:,.0f} requests", note or None)


async def _observe(
    fetcher: MetricsFetcher,
    state: PredictorState,
    reading: LogReading | None,
    timeout_seconds: float,
    interval_seconds: float,
) -> tuple[Finding, ...]:
    """Show the predictor to ``state`` and say how reaching it went."""
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
        state.observe_event(config)
    if not snapshot.stats_present:
        return (answered,)
    await asyncio.sleep(interval_seconds)
    try:
        state.observe_snapshot(await fetcher.fetch(timeout_seconds))
    except FetchError as error:
        state.observe_failure(str(error))
        again = "Did the predictor restart? Run the check again."
        return (answered, Finding("FAIL", "Metrics", f"the second fetch failed: {error}", again))
    return (answered,)


def _read_log(patterns: Sequence[str]) -> LogReading:
    """Read files and globs (what a glob matches: oldest first) as one log."""
    paths: list[str] = []
    for pattern in patterns:
        matches = [] if Path(pattern).exists() else [Path(match) for match in glob.glob(pattern)]  # noqa: PTH207
        matches.sort(key=lambda match: match.stat().st_mtime)
        paths += [str(match) for match in matches] or [pattern]
    inputs = LogInputs(paths)
    story = LogStory()
    story.add(inputs.events(REPORT_KINDS))
    return LogReading(story.analysis(), inputs.counters, tuple(inputs.failed.values()))


@click.command("check")
@click.argument("url")
@log_paths_flag("--log-path", "The predictor's log: path or glob, repeatable.")
@click.option("--timeout", type=DURATION, default="5s", show_default=True, help="Longest time for each request.")
@click.option("--interval", type=DURATION, default="2s", show_default=True, help="Time between the two readings.")
@click.option("--baseline", metavar="FILE", help="Baseline to compare its speed with, from `baseline record`.")
@click.option(
    "--output",
    type=click.Choice(["text", "json"]),
    default="text",
    show_default=True,
    help="Text for people, or one JSON object.",
)
def command(
    url: str,
    *,
    log_paths: tuple[str, ...],
    timeout: float,
    interval: float,
    baseline: str | None,
    output: Literal["text", "json"],
) -> int:
    """Examine the predictor at URL and say what is well, what is not, and what to do.

    Exits with 0 if all is well, with 2 after warnings, with 1 after a failure.
    """
    return asyncio.run(
        check(
            url,
            log_paths=log_paths,
            baseline_path=baseline,
            timeout_seconds=timeout,
            interval_seconds=interval,
            output=output,
        )
    )
