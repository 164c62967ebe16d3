"""The exception tree. Raised with a message for a person; caught once, in ``cli.py``."""

from __future__ import annotations


class SpecdecError(Exception):
    """Anything we word ourselves: one clear line, no traceback."""


class ConfigError(SpecdecError):
    """A flag, an environment variable or a configuration file is wrong. Names file, key and what was expected."""


class BaselineError(SpecdecError):
    """A baseline cannot be read, recorded or written. Of a file it names path, line, key, expected and found."""


class ComparisonError(SpecdecError):
    """Two recordings cannot be compared: says in what they differ, and what to do about it."""


class FetchError(SpecdecError):
    """The predictor's ``/metrics`` could not be fetched or understood.

    ``reason`` is a short code from a bounded set (``connect``, ``timeout``, ``http_status``, ``too_large``,
    ``redirect``, ``not_metrics``, ``truncated``, ``encoding``), the message says it in words.
    """

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


class ExpositionError(SpecdecError):
    """A ``/metrics`` body is not an exposition, or is cut off. ``reason`` as in :class:`FetchError`."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason
