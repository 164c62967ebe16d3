"""What ``doctor`` reads, and the reports that it prints."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Literal, TextIO

import msgspec

from specdec_exporter.commands.livecheck import EXIT_CODES, Window, look_at, observe, read_log
from specdec_exporter.config import SYSTEM_TRUST, Access
from specdec_exporter.errors import ConfigError
from specdec_exporter.formatting import plain
from specdec_exporter.inspection.beforestart import names_of, storage, tokenizers, with_sizes
from specdec_exporter.inspection.doctor import (
    Diagnosis,
    Observed,
    Report,
    diagnose,
    of_command,
    of_log,
    of_running,
)
from specdec_exporter.inspection.examination import LogReading, examine
from specdec_exporter.predictor.arguments import ServerCommand, read_command
from specdec_exporter.predictor.checkpoint import Checkpoint, read_checkpoint
from specdec_exporter.predictor.facts.deployment import Deployment
from specdec_exporter.predictor.manifest import Server, read_manifest
from specdec_exporter.predictor.metrics.fetch import MetricsFetcher, open_session, without_credentials
from specdec_exporter.predictor.versions import Release
from specdec_exporter.serving.state import PredictorState
from specdec_exporter.terminal.console import write
from specdec_exporter.terminal.doctor import print_report
from specdec_exporter.yamlfile import MAX_BYTES

_READING_SECONDS = 15.0


class Given(msgspec.Struct, frozen=True, kw_only=True):
    """What a person gave. ``gpu_bytes``: memory of one GPU; ``-`` is stdin."""

    url: str | None = None
    arguments: str | None = None
    manifest: str | None = None
    log_paths: tuple[str, ...] = ()
    release: Release | None = None
    gpu_bytes: float | None = None
    target_path: str | None = None
    draft_path: str | None = None


async def doctor(
    given: Given,
    *,
    access: Access = SYSTEM_TRUST,
    timeout_seconds: float = 5.0,
    window_seconds: float = 2.0,
    output: Literal["text", "json"] = "text",
    stdout: TextIO | None = None,
    stderr: TextIO | None = None,
) -> int:
    """Read what was given, judge it and print a report for each server of the manifest.

    Returns the worst exit code: 0 nothing to do, 2 warnings, 1 failed. Raises ConfigError for arguments, a manifest or
    a folder that cannot be read.
    """
    stdout, stderr = stdout or sys.stdout, stderr or sys.stderr
    servers = _servers(given)
    reading = await asyncio.to_thread(read_log, given.log_paths) if given.log_paths else None
    later = [of_log(reading)] if reading else []
    if given.url is not None:
        window = Window(window_seconds, _READING_SECONDS, asyncio.Event())
        later = await _running(
            given.url, reading, access=access, timeout_seconds=timeout_seconds, window=window, stderr=stderr
        )
    code = 0
    for server in servers or [None]:
        report = _report(given, server, later)
        if output == "json":
            print(msgspec.json.encode(report).decode(), file=stdout)
        else:
            write(stdout, partial(print_report, report=report))
        code = max(code, EXIT_CODES[report.level], key=_SEVERITY.index)
    return code


_SEVERITY = tuple(EXIT_CODES[level] for level in ("PASS", "WARN", "FAIL"))


def _servers(given: Given) -> tuple[Server, ...]:
    if given.arguments is not None:
        return (Server(name="", command=read_command(given.arguments)),)
    if given.manifest is None:
        return ()
    if given.manifest == "-":
        return read_manifest(sys.stdin.buffer.read(MAX_BYTES + 1), "stdin")
    try:
        with Path(given.manifest).open("rb") as file:
            content = file.read(MAX_BYTES + 1)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else error
        raise ConfigError(plain(f"{given.manifest}: cannot be read: {reason}")) from error
    return read_manifest(content, given.manifest)


def _report(given: Given, server: Server | None, later: list[Observed]) -> Report:
    command = server.command if server else ServerCommand()
    deployment = command.deployment() if server else Deployment()
    deployment = msgspec.structs.replace(deployment, release=given.release or deployment.release)
    target = _checkpoint(given.target_path, deployment.model)
    draft = _checkpoint(given.draft_path, deployment.draft_model)
    names = names_of(deployment, server)
    deployment, guessed = with_sizes(
        deployment,
        target=target,
        draft=draft,
        target_name=names[0],
        draft_name=names[1],
        gpu_bytes=given.gpu_bytes,
    )
    found = [*tokenizers(target, draft, deployment.method), *(storage(server) if server else ())]
    diagnoses = [Diagnosis(stage="before", **msgspec.structs.asdict(each)) for each in found]
    before = of_command(command, deployment, diagnoses)
    return diagnose(
        [before, *later],
        _looked_at(given, server, target, draft),
        names=[name for name in names if name],
        guessed=guessed,
    )


def _looked_at(
    given: Given, server: Server | None, target: Checkpoint | None, draft: Checkpoint | None
) -> Mapping[str, str]:
    unread = ", ".join(dict.fromkeys(server.command.unread)) if server else ""
    words = {
        "Server": server.name if server else "",
        "Its GPUs": str(server.gpus) if server and server.gpus is not None else "",
        "Folders": " and ".join(each.path for each in (target, draft) if each is not None),
        "Log": ", ".join(given.log_paths),
        "URL": without_credentials(given.url) if given.url else "",
        "Not read": f"{unread}: their values stand in a variable, a template or a file" if unread else "",
    }
    return {name: text for name, text in words.items() if text}


def _checkpoint(path: str | None, named: str | None) -> Checkpoint | None:
    """Return the folder at ``path``, else the one that the arguments name, if it is on this machine."""
    if path is not None:
        return read_checkpoint(path)
    try:
        return read_checkpoint(named) if named and Path(named).is_dir() else None
    except (ConfigError, OSError, ValueError):
        return None


async def _running(
    url: str,
    reading: LogReading | None,
    *,
    access: Access,
    timeout_seconds: float,
    window: Window,
    stderr: TextIO,
) -> list[Observed]:
    """Return what the log shows, if there is one, and what the server at ``url`` does."""
    url = url if "://" in url else f"http://{url}"
    state = PredictorState("predictor", without_credentials(url), window_seconds=300.0)
    async with open_session() as session:
        fetcher = MetricsFetcher(session, url, access=access)
        fetches = await observe(fetcher, state, reading, timeout_seconds=timeout_seconds, window=window, stderr=stderr)
    look = look_at(state)
    observed = [of_log(reading, up=look.up)] if reading else []
    return [*observed, of_running(examine(fetches, look, reading, state.policy), look)]
