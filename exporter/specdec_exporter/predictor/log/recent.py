"""The last part of a log, by the times that its lines print."""

from __future__ import annotations

import math
import re
from collections import deque
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Final

import msgspec

from specdec_exporter.errors import SpecdecError
from specdec_exporter.predictor.log.events import START_KINDS, Event

# Eight engines log this much in 14 hours. It takes some 150 MB.
MOST_EVENTS: Final = 200_000

_DAY_SECONDS: Final = 86_400
_DAYS_BEFORE_MONTH: Final = (0, 31, 59, 90, 120, 151, 181, 212, 243, 273, 304, 334)
_WITHOUT_YEAR: Final = re.compile(r"(0[1-9]|1[0-2])-(\d\d) (\d\d):(\d\d):(\d\d)", re.ASCII)
_UNIX_TIME: Final = re.compile(r"\d{9,20}(?:\.\d{1,9})?", re.ASCII)
_MOST_UNIX_SECONDS: Final = 1e11  # larger numbers are milli-, micro- or nanoseconds
_LATE_SECONDS: Final = 60  # processes that share a log may write a line so much later than its time


class LineClock:
    """Reads the times that a log prints, in seconds; only their differences mean something.

    vLLM prints no year: such a time gets the year that brings it nearest to the line before. If the clock is set back
    (the end of summer time), time goes on from there. If it is set forward, that looks like a pause.
    """

    def __init__(self) -> None:
        self._has_year: bool | None = None  # as in the first line; a log is of one kind
        self._now = 0.0
        self._newest = -math.inf  # with what the clock was set back
        self._set_back = 0.0
        self._year_begin = 0.0
        self._leap_days = 0  # 1 once this year has shown 29 February

    def seconds(self, printed: str | None) -> float | None:
        """Return the time of a line; ``None`` if it has none that can be read."""
        if printed is None:
            return None
        without_year = _WITHOUT_YEAR.fullmatch(printed)
        if self._has_year not in (None, without_year is None):
            return None
        time = self._in_nearest_year(without_year) if without_year else _absolute(printed)
        if time is None:
            return None
        self._has_year, self._now = without_year is None, time
        if time + self._set_back < self._newest - _LATE_SECONDS:
            self._set_back = self._newest - time
        time += self._set_back
        self._newest = max(self._newest, time)
        return time

    def _in_nearest_year(self, printed: re.Match[str]) -> float:
        month, day, hours, minutes, seconds = map(int, printed.groups())
        days = _DAYS_BEFORE_MONTH[month - 1] + day + (self._leap_days if month > 2 else 0)
        time = self._year_begin + days * _DAY_SECONDS + hours * 3600 + minutes * 60 + seconds
        year = (365 + self._leap_days) * _DAY_SECONDS
        if self._has_year is not None and time < self._now - year / 2:
            time += year
            self._year_begin += year
            self._leap_days = 0
        elif self._has_year is not None and time > self._now + year / 2:
            time -= year  # a late line of the old year
        if (month, day) == (2, 29):
            self._leap_days = 1
        return time


def _absolute(printed: str) -> float | None:
    if _UNIX_TIME.fullmatch(printed):
        time = float(printed)
        while time > _MOST_UNIX_SECONDS:
            time /= 1000
        return time
    try:
        moment = datetime.fromisoformat(printed.strip().replace(",", "."))
    except ValueError:
        return None
    return moment.replace(tzinfo=moment.tzinfo or UTC).timestamp()


class LastPart(msgspec.Struct, frozen=True):
    """The last part of a log: its events, and before it the last event of each kind that vLLM prints at its start.

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
        self._start: dict[type, Event] = {}
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
        if type(event) in START_KINDS:
            self._start.pop(type(event), None)  # the last one comes last
            self._start[type(event)] = event

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
        return LastPart(list(self._start.values()), recent, complete=self._left_out < begin or not recent)
