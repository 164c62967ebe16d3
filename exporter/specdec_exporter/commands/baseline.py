"""``specdec-exporter baseline``: parse, call, print."""

from __future__ import annotations

import asyncio
import contextlib
import json
import signal
import sys
from datetime import datetime
from pathlib import Path
from typing import Literal

import click

from specdec_exporter.baseline import file as baselines
from specdec_exporter.baseline.file import MAX_TEXT, Baseline, Context
from specdec_exporter.commands.flags import DURATION, Checked, context_flags, log_paths_flag
from specdec_exporter.errors import BaselineError, SpecdecError
from specdec_exporter.formatting import plain

STDOUT = "-"
_DEFAULT_URL = "http://127.0.0.1:8080"
_DEFAULT_DURATION_SECONDS = 1800.0
_DEFAULT_RANGE_SECONDS = 86400.0


@click.group("baseline", context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
def command() -> None:
    """Record, show and check baselines: what a predictor did over a span, to compare with."""


def _moment(text: str) -> datetime:
    with contextlib.suppress(ValueError):
        if (moment := datetime.fromisoformat(text)).tzinfo is not None:
            return moment
    raise ValueError(f"expected a time with its zone such as 2026-01-31T12:00:00Z, found {text!r}")


@command.command()
@click.option("--predictor.url", "url", metavar="URL", help=f"The predictor.  [default: {_DEFAULT_URL}]")
@click.option("--duration", type=DURATION, help="How long to record.  [default: 30m]")
@log_paths_flag("--predictor.log-path", "Its log, for method, draft model and k: path or glob, repeatable.")
@click.option("--prometheus", metavar="URL", help="Record from a range of this Prometheus instead.")
@click.option("--selector", metavar="{...}", help="With --prometheus: the labels of one service and model.")
@click.option("--range", "span", type=DURATION, help="With --prometheus: how far back.  [default: 24h]")
@click.option("--end", type=Checked("time", _moment), help="With --prometheus: where the range ends.  [default: now]")
@click.option("--timeout", type=DURATION, help="Longest time for each request.  [default: 5s; Prometheus: 60s]")
@click.option("--name", help="What to call it.  [default: the file's name]")
@context_flags
@click.option("-o", "--output", default=STDOUT, metavar="FILE", help="Where to write it.  [default: standard output]")
@click.option("--force", is_flag=True, help="Overwrite FILE.")
def record(
    *,
    url: str | None,
    duration: float | None,
    log_paths: tuple[str, ...],
    prometheus: str | None,
    selector: str | None,
    span: float | None,
    end: datetime | None,
    timeout: float | None,
    name: str | None,
    output: str,
    force: bool,
    **context: str | None,
) -> int:
    """Record a baseline: from a predictor for a while, or from a range of a Prometheus.

    The server's own histograms are recorded, so any load will do: live traffic or a load generator.
    """
    if output != STDOUT:
        baselines.refuse_to_overwrite(output, force=force)
        name = name or Path(output).stem
    given = Context(**{key: one_line(value) for key, value in context.items()})
    name = one_line(name)
    if prometheus is not None:
        if url or duration or log_paths:
            raise click.UsageError("--prometheus goes without --predictor.url, --predictor.log-path and --duration")
        if selector is None:
            raise click.UsageError("--prometheus needs --selector, e.g. '{inference_service=\"chat\"}'")
        span = span or _DEFAULT_RANGE_SECONDS
        from specdec_exporter.baseline.prometheus import record_range  # noqa: PLC0415

        recorded = asyncio.run(
            record_range(
                prometheus,
                selector=selector,
                range_seconds=span,
                end=end,
                name=name,
                context=given,
                timeout_seconds=timeout or 60.0,
            )
        )
        if recorded.duration_seconds < 0.9 * span:
            click.echo(f"  note: there is data for {recorded.duration_seconds:,.0f} s of {span:,.0f} s only", err=True)
    else:
        if selector or span or end:
            raise click.UsageError("--selector, --range and --end go with --prometheus")
        recorded = asyncio.run(
            record_beside(
                _with_scheme(url or _DEFAULT_URL),
                duration or _DEFAULT_DURATION_SECONDS,
                log_paths=log_paths,
                timeout_seconds=timeout or 5.0,
                name=name,
                context=given,
            )
        )
    _keep(recorded, output, force=force)
    return 0


async def record_beside(
    url: str, seconds: float, *, log_paths: tuple[str, ...], timeout_seconds: float, name: str | None, context: Context
) -> Baseline:
    """Record a predictor with progress on stderr; Ctrl-C and SIGTERM end it and keep what was measured."""
    from specdec_exporter.baseline.live import record as watch  # noqa: PLC0415
    from specdec_exporter.predictor.metrics.fetch import without_credentials  # noqa: PLC0415
    from specdec_exporter.terminal.baseline import recording_progress  # noqa: PLC0415

    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    async with recording_progress(sys.stderr, without_credentials(url), seconds):
        return await watch(
            url,
            duration_seconds=seconds,
            name=name,
            context=context,
            log_paths=log_paths,
            timeout_seconds=timeout_seconds,
            stop=stop,
        )


def _with_scheme(url: str) -> str:
    return url if "://" in url else f"http://{url}"


def one_line(text: str | None) -> str | None:
    """Text as a baseline can hold it; ``None`` for nothing."""
    line = plain(" ".join((text or "").split()))
    if len(line) > MAX_TEXT:
        raise click.UsageError(f"expected a text of at most {MAX_TEXT} characters, found {len(line)}: {line[:40]}...")
    return line or None


def _keep(recorded: Baseline, output: str, *, force: bool) -> None:
    if output == STDOUT:
        click.echo(baselines.to_yaml(recorded), nl=False)
    else:
        baselines.write_baseline(output, recorded, force=force)
        requests = f"{recorded.requests_finished or 0:,.0f} requests in {recorded.duration_seconds:,.0f} s"
        click.echo(f"{output}: {requests}", err=True)
    for remark in baselines.remarks(recorded):
        click.echo(f"  note: {remark}", err=True)


@command.command()
@click.argument("file")
@click.option("--output", type=click.Choice(["text", "json"]), default="text", show_default=True)
def show(file: str, output: Literal["text", "json"]) -> int:
    """Show what a baseline holds."""
    found = baselines.read_baseline(file)
    if output == "json":
        click.echo(json.dumps(baselines.to_document(found), indent=2, ensure_ascii=False))
        return 0
    from specdec_exporter.terminal.baseline import print_baseline  # noqa: PLC0415  rich takes long to import
    from specdec_exporter.terminal.console import write  # noqa: PLC0415

    write(sys.stdout, lambda console: print_baseline(console, found, baselines.remarks(found)))
    return 0


@command.command()
@click.argument("files", nargs=-1, required=True, metavar="FILE...")
@click.option("--predictor.url", "url", metavar="URL", help="Also check whether it fits what this predictor serves.")
@click.option("--timeout", type=DURATION, default="5s", show_default=True, help="Longest time for each request.")
def check(files: tuple[str, ...], url: str | None, timeout: float) -> int:
    """Check baselines, e.g. after an edit. Every fault has its file, line and key.

    Exits with 0 if all are valid and 1 if one is not, or is not of the model that the predictor serves; with 2 if the
    predictor's release or buckets differ.
    """
    code = 0
    for file in files:
        differences: tuple[str, ...] = ()
        try:
            found = baselines.read_baseline(file)
            if url is not None:
                from specdec_exporter.baseline.pinned import compare_with  # noqa: PLC0415

                differences = asyncio.run(compare_with(found, _with_scheme(url), timeout))
        except SpecdecError as error:
            click.echo(f"FAIL {error if isinstance(error, BaselineError) else f'{file}: {error}'}")
            code = 1
            continue
        click.echo(f"OK   {file}: {plain(found.name)}, {found.requests_finished or 0:,.0f} requests")
        for difference in differences:
            click.echo(f"     WARN {difference}")
            code = code or 2
        for remark in baselines.remarks(found):
            click.echo(f"     note: {remark}")
    return code
