"""Where a predictor's log comes from: files, stdin or the Kubernetes API, behind one face."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from functools import partial
from typing import Protocol

from specdec_exporter.config import PredictorSettings
from specdec_exporter.errors import ConfigError
from specdec_exporter.predictor.log.counters import ReaderCounters
from specdec_exporter.predictor.log.events import EngineConfig, Event, PredictorWarning, RequestParams, SpecDecoding
from specdec_exporter.predictor.log.scan import LogScanner

SERVED_KINDS: frozenset[type] = frozenset({SpecDecoding, EngineConfig, PredictorWarning, RequestParams})


class LogSource(Protocol):
    """Follows a log and gives its events to a sink until told to stop; never raises."""

    @property
    def healthy(self) -> bool:
        """Whether the last round of reading succeeded."""

    def begin(self) -> None:
        """Take note of what is there already, before anybody is told that reading has begun."""

    async def follow(self, sink: Callable[[Event], None], stop: asyncio.Event) -> None:
        """Read until ``stop`` is set, then once more what is there."""


def open_log_source(settings: PredictorSettings, counters: ReaderCounters) -> LogSource:
    """Return the source that the settings name; raises :class:`ConfigError` where it cannot work."""
    new_scanner = partial(LogScanner, counters, log_format=settings.log_format, kinds=SERVED_KINDS)
    # What was logged before the start is not counted, but its last engine-init line says what runs.
    new_config_scanner = partial(
        LogScanner, ReaderCounters(), log_format=settings.log_format, kinds=frozenset({EngineConfig})
    )
    if settings.log_source == "kubernetes":
        from specdec_exporter.predictor.sources.kubelog import KubernetesLogReader  # noqa: PLC0415  only where it is used

        return KubernetesLogReader.from_environment(
            scanner=new_scanner(), counters=counters, history_scanner=new_config_scanner(), start=settings.log_from
        )
    if "-" in settings.log_paths:
        if len(settings.log_paths) > 1:
            raise ConfigError("--predictor.log-path: stdin ('-') cannot be read together with files")
        from specdec_exporter.predictor.sources.stdin import StreamFollower  # noqa: PLC0415  only where it is used

        return StreamFollower(sys.stdin.fileno(), new_scanner(), counters=counters)
    from specdec_exporter.predictor.sources.tail import LogFollower  # noqa: PLC0415  only where it is used

    return LogFollower(
        settings.log_paths,
        counters=counters,
        scanner_factory=new_scanner,
        config_scanner_factory=new_config_scanner,
        start=settings.log_from,
        state_path=settings.log_state,
    )
