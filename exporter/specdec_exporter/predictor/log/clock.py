"""The times that a log prints. Pure."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Final

_DAY_SECONDS: Final = 86_400
_WITHOUT_YEAR: Final = re.compile(r"\d\d-\d\d \d\d:\d\d:\d\d", re.ASCII)  # vLLM's own
_SOME_YEAR: Final = 2000  # a leap year
_UNIX_TIME: Final = re.compile(r"\d{9,20}(?:\.\d{1,9})?", re.ASCII)
_MOST_UNIX_SECONDS: Final = 1e11  # larger numbers are milli-, micro- or nanoseconds


def seconds_between(earlier: str | None, later: str | None) -> float | None:
    """Return the seconds between two times within a day; ``None`` if one cannot be read, or the clock was set."""
    if earlier is None or later is None:
        return None
    begin, end = _seconds(earlier), _seconds(later)
    if begin is None or end is None or not 0.0 <= end - begin < _DAY_SECONDS:
        return None
    return end - begin


def _seconds(printed: str) -> float | None:
    if _UNIX_TIME.fullmatch(printed):
        time = float(printed)
        while time > _MOST_UNIX_SECONDS:
            time /= 1000
        return time
    dated = f"{_SOME_YEAR}-{printed}" if _WITHOUT_YEAR.fullmatch(printed) else printed.strip().replace(",", ".")
    try:
        moment = datetime.fromisoformat(dated)
    except ValueError:
        return None
    return moment.replace(tzinfo=moment.tzinfo or UTC).timestamp()
