"""The sources of a predictor's log, behind one interface: files, stdin or the Kubernetes API."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Protocol

from specdec_exporter.config import PredictorSettings
from specdec_exporter.errors import ConfigError
from specdec_exporter.predictor.log.counters import ReaderCounters
from specdec_exporter.predictor.log.events import SERVED_KINDS, START_KINDS, Event
from specdec_exporter.predictor.log.scan import LogScanner
from specdec_exporter.predictor.sources.follow import LogFollower
from specdec_exporter.predictor.sources.kubelog import KubernetesLogReader, predictors_container
from specdec_exporter.predictor.sources.stdin import StreamFollower
from specdec_exporter.predictor.sources.stream import open_stdin


class LogSource(Protocol):
    """Follows a log and passes its events to a sink until it is stopped or cancelled; raises nothing else."""

    @property
    def problem(self) -> str | None:
        """Why the log cannot be read, in words; ``None`` if the last round of reading succeeded."""

    async def begin(self) -> None:
        """Note what the log holds already; awaited before the exporter reports that it is ready."""

    async def follow(self, sink: Callable[[Event], None], stop: asyncio.Event) -> None:
        """Read until ``stop`` is set, then once more to the end."""


def open_log_source(settings: PredictorSettings, counters: ReaderCounters) -> LogSource:
    """Return the source that the settings name. Raises :class:`ConfigError` if it cannot work."""
    read = partial(LogScanner, log_format=settings.log_format, trust=settings.log_trust)
    new_scanner = partial(read, counters, kinds=SERVED_KINDS)
    # Lines from before the start are not counted, but those of the server's last start tell what runs.
    new_config_scanner = partial(read, ReaderCounters(), kinds=START_KINDS)
    if settings.log_source == "kubernetes":
        return KubernetesLogReader(
            predictors_container(),
            scanner=new_scanner(),
            counters=counters,
            history_scanner=new_config_scanner(),
            start=settings.log_from,
        )
    if "-" in settings.log_paths:
        if len(settings.log_paths) > 1:
            raise ConfigError("--predictor.log-path: stdin ('-') cannot be read together with files")
        return StreamFollower(open_stdin().fileno(), new_scanner(), counters=counters)
    return LogFollower(
        settings.log_paths,
        counters=counters,
        scanner_factory=new_scanner,
        config_scanner_factory=new_config_scanner,
        start=settings.log_from,
    )
