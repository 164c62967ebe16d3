"""Bytes of one log stream -> events. Finds the lines of interest without splitting the rest into lines."""

from __future__ import annotations

from typing import Literal

from specdec_exporter.predictor.counters import ReaderCounters
from specdec_exporter.predictor.events import Event

LogFormat = Literal["auto", "plain", "cri", "docker"]


class LogScanner:
    """Reads ONE log stream (one file, or stdin). Holds only what a line may need from the lines before it.

    ``kinds`` limits the work to the kinds wanted (an :class:`EngineConfig`-only scan of a long history is cheap).
    Nothing here raises on any input.
    """

    def __init__(
        self, counters: ReaderCounters, *, log_format: LogFormat = "auto", kinds: frozenset[type] | None = None
    ) -> None: ...

    def scan(self, buffer: bytearray, end: int) -> list[Event]:
        """Events of ``buffer[:end]``, which must end with a newline (or be empty): whole lines only, any number of them."""
        raise NotImplementedError

    def finish(self, tail: bytes = b"") -> list[Event]:
        """The stream has ended: ``tail`` is its unterminated last line. Gives whatever was held back; may be called once
        per ended stream, after which the scanner is fresh.
        """
        raise NotImplementedError

    def reset(self) -> None:
        """The stream was cut under us (truncation): forget partial lines and pairing, without events."""
        raise NotImplementedError
