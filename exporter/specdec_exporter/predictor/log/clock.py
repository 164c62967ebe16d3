"""The times that a log prints -> seconds. Pure."""

from __future__ import annotations

import math
import re
from datetime import UTC, datetime
from typing import Final

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
