"""The exception tree. Each message is for a person; ``cli.py`` catches them, once."""

from __future__ import annotations

from typing import Literal

FetchReason = Literal[
    "connect",
    "tls",
    "timeout",
    "http_status",
    "redirect",
    "credentials",
    "too_large",
    "truncated",
    "encoding",
    "not_metrics",
]
"""Why metrics could not be fetched."""


class SpecdecError(Exception):
    """An error with a message of our own: one clear line for each mistake, no traceback."""

    def __str__(self) -> str:
        """Return all mistakes on one line."""
        return "; ".join(map(str, self.args))


class ConfigError(SpecdecError, ValueError):
    """A flag, an environment variable or a configuration file is wrong. Names file, key and the expected value."""


class BaselineError(SpecdecError):
    """A baseline cannot be read, recorded or written. For a file it names path, line, key, expected and found."""


class ComparisonError(SpecdecError):
    """Two recordings cannot be compared. Says how they differ, and the next step."""


class BenchResultError(SpecdecError):
    """A result of a load generator cannot be read. Names file, key, expected and found."""


class ForeignResultError(BenchResultError):
    """JSON, but no result of the load generator: a folder may hold such files."""


class FetchError(SpecdecError):
    """The predictor's ``/metrics`` could not be fetched or understood. The message says ``reason`` in words."""

    def __init__(self, reason: FetchReason, message: str, status: int | None = None) -> None:
        super().__init__(message)
        self.reason = reason
        self.status = status  # of HTTP, where that is the reason


class ExpositionError(SpecdecError):
    """A ``/metrics`` body is not an exposition, or is cut off. ``reason`` as in :class:`FetchError`."""

    def __init__(self, reason: FetchReason, message: str) -> None:
        super().__init__(message)
        self.reason = reason
