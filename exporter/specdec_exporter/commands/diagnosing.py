"""What ``doctor`` reads, and the reports that it prints."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence
from functools import partial
from typing import Literal

import click
import msgspec

from specdec_exporter.commands.livecheck import EXIT_CODES, Window, look_at, observe, read_log
from specdec_exporter.config import SYSTEM_TRUST, Access
from specdec_exporter.doctor.diagnosis import Observed, Report, diagnose, of_command, of_log, of_running
from specdec_exporter.doctor.manifest import Server, read_manifest
from specdec_exporter.doctor.tokenizers import compare_tokenizers
from specdec_exporter.errors import ConfigError
from specdec_exporter.inspection.examination import examine
from specdec_exporter.predictor.arguments import ServerCommand, read_command
from specdec_exporter.predictor.facts.deployment import Deployment
from specdec_exporter.predictor.metrics.fetch import MetricsFetcher, open_session, without_credentials
from specdec_exporter.predictor.versions import Release
from specdec_exporter.serving.state import PredictorState
from specdec_exporter.speculation.verdict import worst
from specdec_exporter.terminal.console import write
from specdec_exporter.terminal.doctor import print_report
from specdec_exporter.yamlfile import MAX_BYTES, read_bytes

_TIMEOUT_SECONDS = 5.0  # for each request


class Given(msgspec.Struct, frozen=True, kw_only=True):
    """What a person gave; ``-`` is stdin. ``window_seconds``: how long to read a running server."""

    url: str | None = None
    arguments: str | None = None
    manifest: str | None = None
    log_paths: tuple[str, ...] = ()
    release: Release | None = None
    access: Access = SYSTEM_TRUST
    window_seconds: float = 2.0


async def doctor(given: Given, *, output: Literal["text", "json"] = "text") -> int:
    """Read what was given, judge it and print a report for each server of the manifest.

    Returns the worst exit code: 0 nothing to do, 2 warnings, 1 failed. Raises ConfigError for arguments or a manifest
    that cannot be read.
    """
    servers = _servers(given)
    later = await _seen(given)
    reports = [_report(given, server, later) for server in servers or [None]]
    for report in reports:
        if output == "json":
            click.echo(msgspec.json.encode(report))
        else:
            write(sys.stdout, partial(print_report, report=report))
    return EXIT_CODES[worst(report.level for report in reports)]


def _servers(given: Given) -> tuple[Server, ...]:
    if given.arguments is not None:
        return (Server(name="", command=read_command(given.arguments)),)
    if given.manifest is None:
        return ()
    if given.manifest == "-":
        return read_manifest(sys.stdin.buffer.read(MAX_BYTES + 1), "stdin")
    return read_manifest(read_bytes(given.manifest, ConfigError), given.manifest)


async def _seen(given: Given) -> list[Observed]:
    """Return what the log shows, if there is one, and what the server at the URL does, as ``check`` sees it."""
    reading = await asyncio.to_thread(read_log, given.log_paths) if given.log_paths else None
    up, running = False, []
    if given.url is not None:
        state = PredictorState("predictor", without_credentials(given.url), window_seconds=300.0)
        window = Window(given.window_seconds, given.window_seconds, asyncio.Event())
        async with open_session() as session:
            fetcher = MetricsFetcher(session, given.url, access=given.access)
            fetches = await observe(fetcher, state, reading, timeout_seconds=_TIMEOUT_SECONDS, window=window)
        look = look_at(state)
        up, running = look.up, [of_running(examine(fetches, look, reading, state.policy), look)]
    return [of_log(reading, up=up), *running] if reading else running


def _report(given: Given, server: Server | None, later: Sequence[Observed]) -> Report:
    command = server.command if server else ServerCommand()
    deployment = command.deployment() if server else Deployment()
    deployment = msgspec.structs.replace(deployment, release=given.release or deployment.release)
    tokenizers = compare_tokenizers(deployment)
    before = of_command(command, deployment, [tokenizers] if tokenizers else [])
    unread = ", ".join(dict.fromkeys(command.unread))
    looked_at = {
        "Server": server.name if server else "",
        "Log": ", ".join(given.log_paths),
        "URL": without_credentials(given.url) if given.url else "",
        "Not read": f"{unread}: their values stand in a variable, a template or a file" if unread else "",
    }
    return diagnose([before, *later], {name: text for name, text in looked_at.items() if text})
