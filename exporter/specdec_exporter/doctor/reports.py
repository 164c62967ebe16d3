"""``doctor``: read arguments, a manifest, a log and a running server, and report on each server."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from specdec_exporter.config import SYSTEM_TRUST, Access
from specdec_exporter.doctor.diagnosis import Observed, Report, diagnose, of_command, of_log, of_running
from specdec_exporter.doctor.manifest import Server, read_manifest
from specdec_exporter.doctor.tokenizers import compare_tokenizers
from specdec_exporter.errors import ConfigError
from specdec_exporter.inspection.examination import examine
from specdec_exporter.inspection.livecheck import PredictorLog, Window, observe, read_log
from specdec_exporter.predictor.arguments import ServerCommand
from specdec_exporter.predictor.facts.deployment import Deployment
from specdec_exporter.predictor.metrics.fetch import MetricsFetcher, open_session, without_credentials
from specdec_exporter.predictor.servercommand import read_command
from specdec_exporter.predictor.sources.stream import open_stdin
from specdec_exporter.predictor.versions import Release
from specdec_exporter.state.record import PredictorState
from specdec_exporter.state.report import status_of
from specdec_exporter.state.view import evidence_of
from specdec_exporter.yamlfile import MAX_BYTES, read_bytes, read_yaml

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


async def reports(given: Given) -> list[Report]:
    """Read what was given and judge it: a report for each server of the manifest.

    Raises ConfigError for arguments or a manifest that cannot be read.
    """
    servers = _servers(given)
    later = await _seen(given)
    return [_report(given, server, later) for server in servers or [None]]


def _servers(given: Given) -> tuple[Server, ...]:
    if given.arguments is not None:
        return (Server(name="", command=read_command(given.arguments, _config_file)),)
    if given.manifest is None:
        return ()
    if given.manifest == "-":
        return read_manifest(open_stdin().read(MAX_BYTES + 1), "stdin")
    return read_manifest(read_bytes(given.manifest, ConfigError), given.manifest)


def _config_file(path: str) -> Mapping[Any, Any] | None:
    """Return the arguments in the file of ``--config``; ``None`` if it is not here. Raises ConfigError for no YAML."""
    if not Path(path).is_file():
        return None
    settings = read_yaml(path, ConfigError)
    if settings is not None and not isinstance(settings, Mapping):
        raise ConfigError(f"{path}: expected arguments by their names, found no mapping")
    return settings or {}


async def _seen(given: Given) -> list[Observed]:
    """Return what the log shows, if there is one, and what the server at the URL does, as ``check`` sees it."""
    log, up, running = PredictorLog(given.log_paths), False, []
    if given.url is not None:
        state = PredictorState("predictor", without_credentials(given.url), window_seconds=300.0)
        window = Window(given.window_seconds, given.window_seconds, asyncio.Event())
        async with open_session() as session:
            fetcher = MetricsFetcher(session, given.url, access=given.access)
            fetches = await observe(fetcher, state, log, timeout_seconds=_TIMEOUT_SECONDS, window=window)
        evidence = evidence_of(state)
        examination = examine(fetches, status_of(state), log.reading, state.policy, evidence)
        up, running = state.up, [of_running(examination, evidence, up=state.up)]
    elif given.log_paths:
        log.reading = await asyncio.to_thread(read_log, given.log_paths)
    return [of_log(log.reading, up=up), *running] if log.reading else running


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
