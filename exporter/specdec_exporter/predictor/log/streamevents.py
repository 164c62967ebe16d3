"""What the events of one log stream say together: whose drafts they are, and whether the server starts."""

from __future__ import annotations

import msgspec

from specdec_exporter import bounds
from specdec_exporter.predictor.log.counters import ReaderCounters
from specdec_exporter.predictor.log.events import (
    AGGREGATED,
    START_KINDS,
    EngineConfig,
    EngineStats,
    Event,
    KVCache,
    ServerArguments,
    SpecDecoding,
    StartFailure,
    StartPhase,
)
from specdec_exporter.predictor.log.failedstart import StartWatch


class StreamEvents:
    """The events of ``kinds`` since they were last taken."""

    def __init__(self, counters: ReaderCounters, kinds: frozenset[type]) -> None:
        self._kinds = kinds
        self._counters = counters
        self._wants_start = bool(kinds & {StartPhase, KVCache})
        # In so many further bytes of the log, lines about a start count.
        self._start_bytes = bounds.START_BYTES if self._wants_start else 0
        self._starts = StartWatch() if StartFailure in kinds else None
        # The statistics that a process (its server, name and id) printed last.
        self._stats: dict[tuple[str | None, str | None, int | None], EngineStats] = {}
        self._events: list[Event] = []

    @property
    def starting(self) -> bool:
        """Whether every line is wanted, because the server may be about to start."""
        return self._start_bytes > 0 or (self._starts is not None and self._starts.active)

    def pass_by(self, count: int) -> None:
        """Take note of so many bytes of the log."""
        self._start_bytes = max(self._start_bytes - count, 0)

    def watch(self, text: str, timestamp: str | None) -> None:
        """Look at one line for a failed start."""
        if self._starts is not None and self._starts.active:
            self._events += self._starts.line(text, timestamp)

    def add(self, event: Event) -> None:
        """Take in the event of one line."""
        writer = event.server, event.process, event.pid
        if isinstance(event, EngineStats):
            self._stats[writer] = event
            self._start_bytes = 0
        if self._start_bytes <= 0 and isinstance(event, StartPhase | KVCache):
            return  # later than a start, where only chance finds it
        if self._starts is not None and type(event) in START_KINDS:
            self._events += self._starts.started(event)
        if type(event) not in self._kinds:
            return
        if self._wants_start and isinstance(event, EngineConfig | ServerArguments):
            self._start_bytes = bounds.START_BYTES
        if isinstance(event, SpecDecoding) and (stats := self._stats.pop(writer, None)) is not None:
            # It belongs to the same process's statistics line before it. A sum over engines is no engine's load.
            running = None if stats.engine == AGGREGATED else stats.running
            event = msgspec.structs.replace(event, engine=stats.engine, requests_running=running)
        self._events.append(event)

    def forget_engines(self) -> None:
        """Forget whose statistics were printed last: a line that cannot be read may have named another engine."""
        self._stats.clear()

    def finish(self) -> None:
        """End the stream: nothing follows."""
        if self._starts is not None:
            self._events += self._starts.finish()

    def taken(self) -> list[Event]:
        """Return the events since the last call."""
        if len(self._stats) > bounds.LOG_WRITERS:
            self._counters.dropped["log_writers"] += len(self._stats)
            self._stats.clear()
        events, self._events = self._events, []
        self._counters.matched_lines += len(events)
        return events
