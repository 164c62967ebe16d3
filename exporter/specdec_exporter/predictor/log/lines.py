"""Whole lines for a scanner, out of a log that arrives in pieces.

The one reading core of :mod:`tail`, :mod:`history` and :mod:`stream`: they differ in where bytes come from, not in what
a line is.
"""

from __future__ import annotations

from typing import Protocol

from specdec_exporter.predictor.log.counters import ReaderCounters
from specdec_exporter.predictor.log.events import Event

# One read, and the longest line that is read at all. The engine-init line, vLLM's longest of interest, has a few KiB.
CHUNK_BYTES = 256 * 1024


class Scanner(Protocol):
    """What a reader needs of :class:`~specdec_exporter.predictor.log.scan.LogScanner`."""

    def scan(self, buffer: bytearray, end: int) -> list[Event]:
        """Events of the whole lines in ``buffer[:end]``."""

    def finish(self, tail: bytes = b"") -> list[Event]:
        """Events still held back, the stream having ended with the unterminated ``tail``."""

    def reset(self) -> None:
        """Forget what was held back."""


class LineCutter:
    """Hands one stream's whole lines to its scanner; skips lines too long to hold, and NUL holes.

    A hole (NULs in front of a line) is what remains where a log was truncated under a writer that does not append.
    """

    __slots__ = ("_counters", "scanner", "skipping")

    def __init__(self, scanner: Scanner, counters: ReaderCounters) -> None:
        self._counters = counters
        self.scanner = scanner
        self.skipping = False  # what comes up to the next newline belongs to a line already disposed of

    def cut(self, buffer: bytearray, filled: int) -> tuple[list[Event], int]:
        """Read what can be read of ``buffer[:filled]``; return its events and the number of bytes done with.

        Bytes not done with must stand at the start of ``buffer`` at the next call. Call again as long as bytes are done
        with: a call may stop early. A full buffer is never left as it is.
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
        # The search for one byte is a memchr, some ten times faster than the search for two.
        if buffer.find(0, 0, end) >= 0 and (hole := buffer.find(b"\n\0", 0, end)) >= 0:
            end = hole + 1
        if end:
            return self.scanner.scan(buffer, end), end
        if filled < len(buffer):
            return [], 0
        self._counters.oversized_lines += 1
        self.skipping = True
        return [], filled
