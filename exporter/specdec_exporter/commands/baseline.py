"""``baseline record``, ``show`` and ``check``."""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any, Literal, NamedTuple

import click

from specdec_exporter.baseline.file import MAX_TEXT, Baseline, Context
from specdec_exporter.baseline.reading import read_baseline
from specdec_exporter.baseline.remarks import remarks
from specdec_exporter.baseline.writing import refuse_to_overwrite, to_document, to_yaml, write_baseline
from specdec_exporter.commands import EXIT_CODES
from specdec_exporter.commands.flags import (
    DURATION,
    STDOUT,
    URL,
    Checked,
    access_flag,
    file_option,
    log_path_flag,
    output_flag,
    timeout_flag,
)
from specdec_exporter.commands.streams import stop_at_signals
from specdec_exporter.config import SYSTEM_TRUST, Access, Duration
from specdec_exporter.errors import BaselineError, FetchError, SpecdecError
from specdec_exporter.formatting import plain
from specdec_exporter.speculation.verdict import Level, worst

DEFAULT_URL = "http://127.0.0.1:8080"
_DEFAULT_DURATION_SECONDS = 1800.0
_DEFAULT_RANGE_SECONDS = 86400.0


_CONTEXT_HELP = {
    "hardware": "The hardware, e.g. '1x H100 SXM 80GB'.",
    "model": "The model. If several are served: the one to record.  [default: the one that the predictor reports]",
    "runtime": "The runtime.  [default: what the predictor reports]",
    "request_parameters": "The requests, e.g. 'ShareGPT, temperature 0, 16 at once'.",
    "command": "The command that started vLLM.",
}


def _context_flags(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the flags that say what a predictor does not report."""
    for name, text in reversed(_CONTEXT_HELP.items()):
        command = click.option(f"--{name.replace('_', '-')}", name, metavar="TEXT", help=text)(command)
    return command


@click.group("baseline", no_args_is_help=False)
def command() -> None:
    """Record, show and check baselines. A baseline says what a predictor did over a span of time."""


class Range(NamedTuple):
    """A span of time in Prometheus; ``end`` is ``None`` for now."""

    seconds: float
    end: datetime | None = None


def _range(text: str) -> Range:
    """Return ``24h``, or ``START/END`` with both times as RFC 3339."""
    if "/" not in text:
        return Range(Duration(text))
    start, end = map(_moment, text.split("/", 1))
    if start >= end:
        raise ValueError(f"expected a start before the end, found {text!r}")
    return Range((end - start).total_seconds(), end)


def _moment(text: str) -> datetime:
    with contextlib.suppress(ValueError):
        if (moment := datetime.fromisoformat(text)).tzinfo is not None:
            return moment
    raise ValueError(f"expected a time with its zone such as 2026-01-31T12:00:00Z, found {text!r}")


@command.command()
@click.option("--predictor.url", "url", metavar="URL", help=f"The predictor.  [default: {DEFAULT_URL}]")
@click.option("--duration", type=DURATION, help="How long to record.  [default: 30m]")
@access_flag
@timeout_flag
@log_path_flag
@click.option("--prometheus", type=URL, help="Record from a range of this Prometheus instead.")
@click.option("--selector", metavar="{...}", help="With --prometheus: the labels of one service and model.")
@click.option(
    "--range",
    "span",
    type=Checked("duration|start/end", _range),
    help="With --prometheus: how far back, or from when to when.  [default: 24h]",
)
@_context_flags
@file_option
def record(
    *,
    url: str | None,
    duration: float | None,
    access: Access,
    predictor_timeout: float,
    predictor_log_path: tuple[str, ...],
    prometheus: str | None,
    selector: str | None,
    span: Range | None,
    into: str,
    **context: str | None,
) -> int:
    """Record a running predictor, or a range of a Prometheus.

    The figures are the predictor's own counters and histograms. The load may be live traffic or a load generator. The
    recording has the name of its file.
    """
    name = None
    if into != STDOUT:
        refuse_to_overwrite(into)
        name = _one_line(Path(into).stem)
    given = Context(**{key: _one_line(text) for key, text in context.items()})
    if prometheus is not None:
        if url or duration or predictor_log_path or access != SYSTEM_TRUST:
            raise click.UsageError("--prometheus excludes --duration and all --predictor flags")
        if selector is None:
            raise click.UsageError("--prometheus needs --selector, e.g. '{inference_service=\"chat\"}'")
        recorded = _of_range(prometheus, selector, span or Range(_DEFAULT_RANGE_SECONDS), name, given)
    else:
        if selector or span:
            raise click.UsageError("--selector and --range need --prometheus")
        recorded = asyncio.run(
            _of_predictor(
                url or DEFAULT_URL,
                duration or _DEFAULT_DURATION_SECONDS,
                access=access,
                log_paths=predictor_log_path,
                timeout_seconds=predictor_timeout,
                name=name,
                context=given,
            )
        )
    _keep(recorded, into)
    return 0


def _one_line(text: str | None) -> str | None:
    """Return ``text`` as one printable line, ``None`` if it is empty; raises UsageError if it is too long."""
    line = plain(" ".join((text or "").split()))
    if len(line) > MAX_TEXT:
        raise click.UsageError(f"expected a text of at most {MAX_TEXT} characters, found {len(line)}: {line[:40]}...")
    return line or None


async def _of_predictor(url: str, seconds: float, **given: Any) -> Baseline:
    """Record a predictor and show progress on stderr; Ctrl-C and SIGTERM end it and keep what was measured."""
    from specdec_exporter.baseline.live import record
    from specdec_exporter.inspection.examination import no_metrics
    from specdec_exporter.predictor.metrics.fetch import without_credentials
    from specdec_exporter.terminal.console import time_progress

    stop = stop_at_signals()
    text = f"Recording {plain(without_credentials(url))} for {seconds:g} s; Ctrl-C ends it early and keeps the data"
    try:
        with time_progress(sys.stderr, text, seconds):
            return await record(url, duration_seconds=seconds, stop=stop, **given)
    except FetchError as error:
        finding = no_metrics(error, None)
        raise SpecdecError(f"{finding.found}. {finding.action}") from error


def _of_range(url: str, selector: str, span: Range, name: str | None, context: Context) -> Baseline:
    from specdec_exporter.baseline.prometheus import record_range
    from specdec_exporter.predictor.metrics.fetch import without_credentials
    from specdec_exporter.terminal.console import working

    with working(sys.stderr, f"Asking {plain(without_credentials(url))} for {span.seconds:,.0f} s"):
        recorded = asyncio.run(
            record_range(url, selector=selector, range_seconds=span.seconds, end=span.end, name=name, context=context)
        )
    if recorded.duration_seconds < 0.9 * span.seconds:
        covered = f"{recorded.duration_seconds:,.0f} s of {span.seconds:,.0f} s"
        click.echo(f"  note: Prometheus has data for only {covered}", err=True)
    return recorded


def _keep(recorded: Baseline, file: str) -> None:
    if file == STDOUT:
        click.echo(to_yaml(recorded), nl=False)
    else:
        write_baseline(file, recorded)
        requests = f"{recorded.requests_finished or 0:,.0f} requests in {recorded.duration_seconds:,.0f} s"
        click.echo(f"{file}: {requests}", err=True)
    for remark in remarks(recorded):
        click.echo(f"  note: {remark}", err=True)


@command.command()
@click.argument("file")
@output_flag
def show(file: str, output: Literal["text", "json"]) -> int:
    """Show the contents of a baseline."""
    baseline = read_baseline(file)
    if output == "json":
        click.echo(json.dumps(to_document(baseline), indent=2, ensure_ascii=False))
        return 0
    from specdec_exporter.terminal.baseline import print_baseline
    from specdec_exporter.terminal.console import write

    write(sys.stdout, lambda console: print_baseline(console, baseline, remarks(baseline)))
    return 0


@command.command()
@click.argument("files", nargs=-1, required=True, metavar="FILE...")
@click.option("--predictor.url", "url", metavar="URL", help="Also check that baselines fit what this predictor serves.")
@access_flag
@timeout_flag
def check(files: tuple[str, ...], *, url: str | None, access: Access, predictor_timeout: float) -> int:
    """Check baselines, e.g. after an edit. Each fault is printed with its file and key.

    FAIL: a baseline is not valid, or is of another model than the predictor serves. WARN: the predictor's release or
    buckets differ.
    """
    levels: list[Level] = ["PASS"]
    for file in files:
        differences: tuple[str, ...] = ()
        try:
            baseline = read_baseline(file)
            if url is not None:
                from specdec_exporter.baseline.pinned import compare_with

                differences = asyncio.run(compare_with(baseline, url, predictor_timeout, access))
        except SpecdecError as error:
            for mistake in error.args:
                click.echo(f"FAIL {mistake if isinstance(error, BaselineError) else f'{file}: {mistake}'}")
            levels.append("FAIL")
            continue
        blocks = f", {len(baseline.blocks)} blocks of time" if baseline.blocks else ""
        click.echo(f"OK   {file}: {plain(baseline.name)}, {baseline.requests_finished or 0:,.0f} requests{blocks}")
        for difference in differences:
            click.echo(f"     WARN {difference}")
            levels.append("WARN")
        for remark in remarks(baseline):
            click.echo(f"     note: {remark}")
    return EXIT_CODES[worst(levels)]
