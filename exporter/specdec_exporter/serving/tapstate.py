"""The state of ``tap``: saved responses and the log's lines in, counts by kind of request out. Only this changes it."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from typing import NamedTuple

from specdec_exporter import bounds
from specdec_exporter.predictor.log.counters import ReaderCounters
from specdec_exporter.predictor.log.events import Event
from specdec_exporter.predictor.responses import Junk, ResponseSpeculation, SavedLine
from specdec_exporter.speculation.requests import RequestCounter, RequestGroups
from specdec_exporter.speculation.temperatures import RequestTemperatures


class _Waiting(NamedTuple):
    until: float
    record: ResponseSpeculation


class TapState:
    """Counts of requests since the start.

    ``log_readable``: whether the log can be read that tells temperatures. With a log, a response without a temperature
    waits a while for its request, whose line may be read later. ``problem``: why the saved responses cannot be read.
    """

    def __init__(
        self,
        *,
        with_header: bool = False,
        log_readable: Callable[[], bool] | None = None,
        problem: Callable[[], str | None] = lambda: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.all = RequestCounter()
        self.groups = RequestGroups(with_header=with_header)
        self.reader = ReaderCounters()
        self.junk_reason: str | None = None  # of the last unreadable line
        self._lines = Counter(record=0, without_record=0, unreadable=0)
        self._temperatures = RequestTemperatures(bounds.TAP_TEMPERATURES) if log_readable else None
        self._waiting: dict[str, _Waiting] = {}  # by the response's id, the oldest first
        self._problem = problem
        self._log_readable = log_readable
        self._clock = clock

    @property
    def problem(self) -> str | None:
        """Why the saved responses cannot be read, in words; ``None`` if they can."""
        return self._problem()

    @property
    def log_readable(self) -> bool | None:
        """Whether the log can be read; ``None`` without one."""
        return self._log_readable() if self._log_readable else None

    @property
    def lines_by_result(self) -> dict[str, int]:
        """Lines of saved responses by what was found in them."""
        return {**self._lines, "too_long": self.reader.oversized_lines}

    @property
    def dropped(self) -> Counter[str]:
        """What was beyond a bound, by what."""
        found = {"tap_groups": self.groups.left_out, "positions": self.groups.positions_left_out}
        return Counter(found) + self.reader.dropped

    def observe_response(self, line: SavedLine) -> None:
        """Take in one line of saved responses."""
        if not isinstance(line, ResponseSpeculation):
            self._lines["unreadable" if isinstance(line, Junk) else "without_record"] += 1
            if isinstance(line, Junk):
                self.junk_reason = line.reason
            return
        self._lines["record"] += 1
        self.count_late()
        if self._temperatures is None or line.request_id is None:
            self._count(line)
        elif (joined := self._temperatures.joined(line)) is not None:
            self._count(joined)
        else:
            self._wait(line.request_id, line)

    def observe_event(self, event: Event) -> None:
        """Take in one line of the predictor's log."""
        if self._temperatures is None or (name := self._temperatures.observe_event(event)) is None:
            return
        # log_request_ids() the other way round
        for response_id in (name, name.removesuffix("-0")):
            if (waiting := self._waiting.pop(response_id, None)) is not None:
                self._count(self._temperatures.joined(waiting.record) or waiting.record)

    def count_late(self, *, ended: bool = False) -> None:
        """Count the responses that have waited long enough for their temperature, or all if reading has ``ended``."""
        now = self._clock()
        while self._waiting:
            oldest = next(iter(self._waiting))
            if not ended and self._waiting[oldest].until > now:
                return
            self._count(self._waiting.pop(oldest).record)

    def _wait(self, response_id: str, record: ResponseSpeculation) -> None:
        if (before := self._waiting.pop(response_id, None)) is not None:
            self._count(before.record)
        self._waiting[response_id] = _Waiting(self._clock() + bounds.WAITING_SECONDS, record)
        if len(self._waiting) > bounds.TAP_WAITING:
            self._count(self._waiting.pop(next(iter(self._waiting))).record)

    def _count(self, record: ResponseSpeculation) -> None:
        self.all.add(record)
        self.groups.add(record)
