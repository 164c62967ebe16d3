"""A file or a pipe read to its end: nothing to follow, nothing to go back to."""

from __future__ import annotations

import select
from collections.abc import Callable, Iterator
from typing import Protocol

from specdec_exporter.errors import SpecdecError
from specdec_exporter.predictor.log.counters import ReaderCounters
from specdec_exporter.predictor.log.events import Event
from specdec_exporter.predictor.log.lines import CHUNK_BYTES, LineCutter, Scanner


class BinaryStream(Protocol):
    """A file opened for reading bytes, ``sys.stdin.buffer`` for one."""

    def readinto(self, buffer: memoryview, /) -> int | None:
        """Fill ``buffer`` as far as possible; 0 at the end, None where nothing is there yet."""

    def fileno(self) -> int:
        """The descriptor."""


class Pieces:
    """The buffer of a stream that cannot be read again: the unterminated rest is moved to its start."""

    def __init__(self, scanner: Scanner, counters: ReaderCounters) -> None:
        self._buffer = bytearray(CHUNK_BYTES)
        self._view = memoryview(self._buffer)
        self._cutter = LineCutter(scanner, counters)
        self._counters = counters
        self._filled = 0

    @property
    def space(self) -> memoryview:
        """Where the next piece goes; never empty."""
        return self._view[self._filled :]

    def take(self, count: int) -> list[Event]:
        """Events of the next ``count`` bytes, which were put into :attr:`space`."""
        self._counters.bytes += count
        self._filled += count
        events: list[Event] = []
        while True:
            found, done = self._cutter.cut(self._buffer, self._filled)
            events += found
            if not done:
                return events
            self._filled -= done
            self._view[: self._filled] = self._view[done : done + self._filled]

    def finish(self, *, ended: bool = True) -> list[Event]:
        """Events of the end. ``ended`` tells that no more will come, so that an unterminated line is a line."""
        tail = bytes(self._view[: self._filled]) if ended and not self._cutter.skipping else b""
        self._filled = 0
        return self._cutter.scanner.finish(tail)


def read_stream(
    file: BinaryStream,
    scanner: Scanner,
    on_progress: Callable[[int], None] | None = None,
    *,
    counters: ReaderCounters | None = None,
) -> Iterator[list[Event]]:
    """Events of a file or pipe up to its end, as they come: those of one read at a time, if there are any.

    ``on_progress`` is told the number of bytes read so far, about every 256 KiB. ``counters`` takes bytes and oversized
    lines. Raises SpecdecError when the file cannot be read to its end.
    """
    pieces = Pieces(scanner, counters or ReaderCounters())
    # A buffered reader's readinto waits for a full buffer; readinto1 gives what a pipe has.
    readinto = getattr(file, "readinto1", file.readinto)
    total = 0
    while True:
        try:
            count = readinto(pieces.space)
            if count is None:  # somebody made the descriptor non-blocking
                select.select([file], [], [])
                continue
        except OSError as error:
            name = getattr(file, "name", "the log")
            raise SpecdecError(f"cannot read {name}: {error.strerror} (after {total} bytes)") from error
        if not count:
            break
        total += count
        if events := pieces.take(count):
            yield events
        if on_progress is not None:
            on_progress(total)
    if events := pieces.finish():
        yield events
