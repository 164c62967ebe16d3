"""The exception tree. Raised with a message for a person; caught once, in ``cli.py``."""

from __future__ import annotations


class SpecdecError(Exception):
    """Anything we word ourselves: one clear line, no traceback."""


class ConfigError(SpecdecError):
    """A flag, an environment variable or a configuration file is wrong. Names file, key and what was expected."""


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
