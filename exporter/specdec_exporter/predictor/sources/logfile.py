"""One path of a log and the file that is read there: how far it has been read."""

from __future__ import annotations

import os

from specdec_exporter.predictor.log.events import Event
from specdec_exporter.predictor.log.lines import LineCutter
from specdec_exporter.predictor.sources.places import Identity


class LogFile:
    """A path of a log, and the file that is read there; ``identity`` is None while none is open.

    ``offset`` is the start of a line, and ``seen`` the end of the bytes read: an unterminated line is read again when
    it has grown. ``alive_at``: when the file last grew, or was last under its path. Methods may raise OSError.
    """

    def __init__(self, path: str, cutter: LineCutter) -> None:
        self.path = path
        self.cutter = cutter
        self.identity: Identity | None = None
        self.offset = self.seen = self.size_bytes = 0
        self.deleted = False
        self.drained = False  # read to its end in this round
        self.alive_at = 0.0
        self._fd = -1

    def open(self, fd: int, status: os.stat_result) -> None:
        """Take over ``fd``, to be read from its start."""
        self._fd = fd
        self.identity = (status.st_dev, status.st_ino)
        self.size_bytes = status.st_size
        self.offset = self.seen = 0
        self.deleted = self.drained = self.cutter.skipping = False

    def close(self) -> None:
        """Close the file, if one is open."""
        if self.identity is not None:
            os.close(self._fd)
            self.identity = None

    def place(self, offset: int) -> None:
        """Go on at ``offset``; inside a line, after that line. Of a file that is shorter, all is unread."""
        if 0 < offset <= self.size_bytes:
            self.offset = self.seen = offset
            self.cutter.skipping = os.pread(self._fd, 1, offset - 1) != b"\n"

    def look(self) -> bool:
        """Look at the file again; return whether it was cut, and so is to be read from its start."""
        status = os.fstat(self._fd)
        self.size_bytes, self.deleted, self.drained = status.st_size, status.st_nlink == 0, False
        if self.size_bytes >= self.seen:
            return False
        self.offset = self.seen = 0
        self.cutter.skipping = False
        self.cutter.scanner.reset()
        return True

    def read(self, buffer: bytearray) -> tuple[list[Event], int]:
        """Return the events of the next piece, and the number of its bytes; none when the file is ``drained``."""
        filled = os.preadv(self._fd, [buffer], self.offset)
        fresh = self.offset + filled - self.seen
        if fresh <= 0:
            self.drained = True
            return [], 0
        self.seen += fresh
        events: list[Event] = []
        while True:
            more, used = self.cutter.cut(buffer, filled)
            events += more
            if not used:
                return events, fresh
            self.offset += used
            filled -= used
            buffer[:filled] = buffer[used : used + filled]

    def end_line(self) -> list[Event]:
        """Return the events of the unterminated last line of a file to which nobody writes any more."""
        rest = bytearray(os.pread(self._fd, self.seen - self.offset, self.offset) + b"\n")
        self.offset = self.seen
        return [] if self.cutter.skipping or len(rest) == 1 else self.cutter.scanner.scan(rest, len(rest))
