"""Why a server does not start: the known causes in ``failures.yaml``. Pure but for reading that file."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import Final

import msgspec
import msgspec.yaml

UNKNOWN: Final = "unknown_failure"  # the code of a failure that no pattern finds


class Failure(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One cause. ``pattern`` finds it in the line that names it; ``None``: no line is known.

    ``checked``: releases whose own source, or whose server, has the text; without any, ``unchecked`` says why.
    """

    code: str
    pattern: str | None
    cause: str
    action: str
    sources: tuple[str, ...]
    checked: tuple[str, ...] = ()
    unchecked: str | None = None


class FailedStart(msgspec.Struct, frozen=True, kw_only=True):
    """A start that failed: the line that says why, its cause and the way out; ``timestamp`` as the log prints it."""

    code: str
    message: str
    timestamp: str | None
    cause: str
    action: str

    @property
    def told(self) -> str:
        """What happened, why, and the line that says so."""
        when = f" at {self.timestamp}" if self.timestamp else ""
        return f"the server did not start{when}: {self.code}. {self.cause} Its line: {self.message}"


@cache
def load_failures() -> dict[str, Failure]:
    """Return the causes by code, in the order of the file. Loads PyYAML, so a scrape must not need them."""
    content = Path(__file__).with_name("failures.yaml").read_bytes()
    return {failure.code: failure for failure in msgspec.yaml.decode(content, type=tuple[Failure, ...])}


@cache
def _patterns() -> tuple[tuple[str, re.Pattern[str]], ...]:
    return tuple((each.code, re.compile(each.pattern)) for each in load_failures().values() if each.pattern)


def known_cause(line: str) -> str | None:
    """Return the code of the cause that a line names; ``None`` if it names none that is known."""
    return next((code for code, pattern in _patterns() if pattern.search(line)), None)


def explained(code: str, message: str, timestamp: str | None) -> FailedStart:
    """Add what is known of the cause to a failed start."""
    failure = load_failures()[code]
    return FailedStart(code=code, message=message, timestamp=timestamp, cause=failure.cause, action=failure.action)
