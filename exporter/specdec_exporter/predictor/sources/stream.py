"""Reading a log that comes in pieces and cannot be read again: a pipe, a connection, a file read once."""

from __future__ import annotations

import logging
import select
import sys
from collections.abc import Callable, Iterable, Iterator
from typing import BinaryIO, Protocol

from specdec_exporter.errors import SpecdecError
from specdec_exporter.predictor.log.counters import ReaderCounters
from specdec_exporter.predictor.log.events import Event
from specdec_exporter.predictor.log.lines import CHUNK_BYTES, LineCutter, Scanner

_logger = logging.getLogger(__name__)


class BinaryStream(Protocol):
    """A file opened for reading bytes, such as ``sys.stdin.buffer``."""

    def readinto(self, buffer: memoryview, /) -> int | None:
        """Fill ``buffer`` as far as possible. Return 0 at the end, None where no byte has come yet."""

    def fileno(self) -> int:
        """The descriptor."""


def open_stdin() -> BinaryIO:
    """Return the bytes of stdin. Raises SpecdecError if the caller closed it."""
    if sys.stdin is None:
        raise SpecdecError("stdin is closed")
    return sys.stdin.buffer


class Pieces:
    """The buffer of one stream. An unterminated line moves to its start and waits for the next piece."""

    def __init__(self, scanner: Scanner, counters: ReaderCounters) -> None:
        self._buffer = bytearray(CHUNK_BYTES)
        self._view = memoryview(self._buffer)
        self._cutter = LineCutter(scanner, counters)
        self._counters = counters
        self._filled = 0

    @property
    def space(self) -> memoryview:
        """The free part of the buffer: the next piece goes here. It is never empty."""
        return self._view[self._filled :]

    def take(self, count: int) -> list[Event]:
        """Return the events of the ``count`` bytes that were just put into :attr:`space`."""
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

    def feed(self, chunk: bytes) -> list[Event]:
        """Return the events of ``chunk``, the next bytes of the stream."""
        events: list[Event] = []
        while chunk:
            part = chunk[: len(self.space)]
            self.space[: len(part)] = part
            events += self.take(len(part))
            chunk = chunk[len(part) :]
        return events

    def finish(self, *, ended: bool = True) -> list[Event]:
        """Return the events that the scanner held back. If the stream has ``ended``, its unterminated line counts."""
        tail = bytes(self._view[: self._filled]) if ended and not self._cutter.skipping else b""
        self._filled = 0
        return self._cutter.scanner.finish(tail)


def deliver(events: Iterable[Event], sink: Callable[[Event], None], counters: ReaderCounters, name: str) -> None:
    """Give ``events`` to ``sink``. If it raises, log and count a read error; ``name`` says which log this is."""
    for event in events:
        try:
            sink(event)
        except Exception:
            counters.read_errors += 1
            _logger.exception("an event of %s was lost", name)


def read_stream(
    file: BinaryStream,
    scanner: Scanner,
    on_progress: Callable[[int], None] | None = None,
    *,
    counters: ReaderCounters | None = None,
) -> Iterator[list[Event]]:
    """Read a file or pipe to its end; yield the events of each read that has some.

    ``on_progress`` gets the number of bytes read so far, about every 256 KiB. ``counters`` counts bytes and oversized
    lines. Raises SpecdecError when the file cannot be read to its end.
    """
    pieces = Pieces(scanner, counters or ReaderCounters())
    # A buffered reader's readinto waits for a full buffer; readinto1 returns what has come.
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
