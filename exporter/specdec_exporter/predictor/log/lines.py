"""Cutting a log that arrives in pieces into whole lines; shared by all sources."""

from __future__ import annotations

from typing import Protocol

from specdec_exporter import bounds
from specdec_exporter.predictor.log.counters import ReaderCounters
from specdec_exporter.predictor.log.events import Event

# The size of one read, and so of the longest line: a longer one does not fit. The longest line of interest, the
# engine-init line, has a few KiB.
CHUNK_BYTES = bounds.LINE_BYTES


class Scanner(Protocol):
    """The methods of :class:`~specdec_exporter.predictor.log.scan.LogScanner` that a reader calls."""

    def scan(self, buffer: bytearray, end: int) -> list[Event]:
        """Return the events of the whole lines in ``buffer[:end]``."""

    def finish(self, tail: bytes = b"") -> list[Event]:
        """End the stream with the unterminated line ``tail``; return the events still held back."""

    def reset(self) -> None:
        """Forget the events held back."""


class LineCutter:
    """Gives one stream's whole lines to its scanner; skips oversized lines and holes.

    A hole is a run of NULs before a line. It appears when a log is truncated under a writer that does not append.
    """

    __slots__ = ("_counters", "scanner", "skipping")

    def __init__(self, scanner: Scanner, counters: ReaderCounters) -> None:
        self._counters = counters
        self.scanner = scanner
        self.skipping = False  # until the next newline: that line was counted or given up

    def cut(self, buffer: bytearray, filled: int) -> tuple[list[Event], int]:
        """Read the whole lines of ``buffer[:filled]``; return their events and the number of bytes used.

        A call may stop early, so call again until it uses no bytes. At each call, ``buffer`` must start with the bytes
        not used so far. From a full buffer, a call always uses some.
        """
        if not filled:
            return [], 0
        if self.skipping:
            newline = buffer.find(b"\n", 0, filled)
            self.skipping = newline < 0
            return [], filled if newline < 0 else newline + 1
        if buffer[0] == 0:
            return [], filled - len(buffer[:filled].lstrip(b"\0"))

        end = buffer.rfind(b"\n", 0, filled) + 1
        # A search for one byte is some ten times faster than a search for two.
        if buffer.find(0, 0, end) >= 0 and (hole := buffer.find(b"\n\0", 0, end)) >= 0:
            end = hole + 1
        if end:
            return self.scanner.scan(buffer, end), end
        if filled < len(buffer):
            return [], 0
        self._counters.oversized_lines += 1
        self.skipping = True
        return [], filled
