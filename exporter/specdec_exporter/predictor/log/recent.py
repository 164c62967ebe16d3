"""The last part of a log, by the times that its lines print."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable
from typing import Final

import msgspec

from specdec_exporter.errors import SpecdecError
from specdec_exporter.predictor.log.clock import LineClock
from specdec_exporter.predictor.log.events import Event
from specdec_exporter.predictor.log.start import Start

# Eight engines log this much in 14 hours. It takes some 150 MB.
MOST_EVENTS: Final = 200_000


class LastPart(msgspec.Struct, frozen=True):
    """The last part of a log: its events, and before it those of vLLM's last start.

    ``complete`` is false if the beginning of the part is missing, because it has more events than are kept.
    """

    start: list[Event]
    events: list[Event]
    complete: bool


class RecentEvents:
    """Takes in the events of a log and keeps those of its last ``seconds``, at most ``most_events``.

    Time counts back from the last event. An event without a time has the time of the event before it.
    """

    def __init__(self, seconds: float, *, most_events: int = MOST_EVENTS) -> None:
        self._seconds = seconds
        self._most_events = most_events
        self._clock = LineClock()
        self._now = self._left_out = -math.inf
        self._start = Start()
        self._events: deque[tuple[float, Event]] = deque()

    def add(self, events: Iterable[Event]) -> None:
        """Take in events as they come."""
        kept = self._events
        for event in events:
            time = self._clock.seconds(event.timestamp)
            self._now = self._now if time is None else time
            kept.append((self._now, event))
            while kept[0][0] < self._now - self._seconds:
                self._pass(kept.popleft()[1])
            if len(kept) > self._most_events:
                self._left_out, event_left_out = kept.popleft()
                self._pass(event_left_out)

    def _pass(self, event: Event) -> None:
        self._start = self._start.after(event)

    def last_part(self) -> LastPart:
        """Return what was kept; raises :class:`SpecdecError` if the log has events, and none of them a time."""
        if self._events and self._now == -math.inf:
            raise SpecdecError(
                "the lines of this log have no time that can be read, so its last part is not known: cut it by hand, "
                "or let the runtime add times (kubectl logs --timestamps)"
            )
        begin = self._now - self._seconds
        recent: list[Event] = []
        for time, event in self._events:
            if time < begin:
                self._pass(event)
            else:
                recent.append(event)
        return LastPart(list(self._start.events), recent, complete=self._left_out < begin or not recent)
