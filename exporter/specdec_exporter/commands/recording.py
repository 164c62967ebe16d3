"""Recording a running predictor, and what a person says about a recording."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import Callable, Mapping
from typing import Any

import click

from specdec_exporter.baseline.file import MAX_TEXT, Baseline, Context
from specdec_exporter.config import Access
from specdec_exporter.errors import FetchError, SpecdecError
from specdec_exporter.formatting import plain

DEFAULT_URL = "http://127.0.0.1:8080"

_CONTEXT_HELP = {
    "hardware": "The hardware, e.g. '1x H100 SXM 80GB'.",
    "model": "The model. If several are served: the one to record.  [default: the one that the predictor reports]",
    "runtime": "The runtime.  [default: the predictor's vLLM release]",
    "request_parameters": "The requests, e.g. 'ShareGPT, temperature 0, 16 at once'.",
    "command": "The command that started vLLM.",
}


def context_flags(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the flags that say what a predictor does not report."""
    for name, text in reversed(_CONTEXT_HELP.items()):
        command = click.option(f"--{name.replace('_', '-')}", name, metavar="TEXT", help=text)(command)
    return command


async def record_beside(
    url: str,
    seconds: float,
    *,
    access: Access,
    log_paths: tuple[str, ...],
    timeout_seconds: float,
    name: str | None,
    context: Context,
) -> Baseline:
    """Record a predictor and show progress on stderr; Ctrl-C and SIGTERM end it and keep what was measured."""
    from specdec_exporter.baseline.live import record
    from specdec_exporter.inspection.examination import no_metrics
    from specdec_exporter.predictor.metrics.fetch import without_credentials
    from specdec_exporter.terminal.console import time_progress

    stop = stop_at_signals()
    text = f"Recording {plain(without_credentials(url))} for {seconds:g} s; Ctrl-C ends it early and keeps the data"
    try:
        with time_progress(sys.stderr, text, seconds):
            return await record(
                url,
                access=access,
                duration_seconds=seconds,
                name=name,
                context=context,
                log_paths=log_paths,
                timeout_seconds=timeout_seconds,
                stop=stop,
            )
    except FetchError as error:
        finding = no_metrics(error, None)
        raise SpecdecError(f"{finding.found}. {finding.action}") from error


def stop_at_signals() -> asyncio.Event:
    """Return an event that Ctrl-C and SIGTERM set from now on, in the running event loop."""
    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    return stop


def said(recorded: Baseline) -> str:
    """Return how much was recorded, in words."""
    return f"{recorded.requests_finished or 0:,.0f} requests in {recorded.duration_seconds:,.0f} s"


def given_context(flags: Mapping[str, str | None]) -> Context:
    """Return what the flags say about a recording; raises UsageError if a text is too long."""
    return Context(**{key: one_line(text) for key, text in flags.items()})


def one_line(text: str | None) -> str | None:
    """Return ``text`` as one printable line, ``None`` if it is empty; raises UsageError if it is too long."""
    line = plain(" ".join((text or "").split()))
    if len(line) > MAX_TEXT:
        raise click.UsageError(f"expected a text of at most {MAX_TEXT} characters, found {len(line)}: {line[:40]}...")
    return line or None
