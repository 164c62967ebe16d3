"""One open log file: its identity, how far it has been read, and whether its content is still the same.

File systems reuse inode numbers, and programs replace contents in place. So two pieces of content identify a place in a
log: the first bytes of the file and the bytes just before the place. Every read checks both.
"""

from __future__ import annotations

import bisect
import errno
import hashlib
import math
import os
import stat
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated

import msgspec

from specdec_exporter.predictor.log.events import Event
from specdec_exporter.predictor.log.lines import CHUNK_BYTES, LineCutter

HEAD_BYTES = 1024
MARKER_BYTES = 256

Identity = tuple[int, int]  # device and inode; unique only while the file is open
_Natural = Annotated[int, msgspec.Meta(ge=0)]


class Position(msgspec.Struct, frozen=True, kw_only=True):
    """A place in a log file, with digests of the content that identifies it. Offsets and lengths are bytes.

    ``modified_ns`` is the file's time at the last look. ``rotated``: the file had left its path. ``foreign``: it is no
    file of the log, or older than the first look. ``skipping``: the place is inside a line whose rest is to be skipped.
    """

    path: str
    device: _Natural
    inode: _Natural
    offset: _Natural
    head_bytes: Annotated[int, msgspec.Meta(ge=0, le=HEAD_BYTES)]
    head_digest: str
    marker_bytes: Annotated[int, msgspec.Meta(ge=0, le=MARKER_BYTES)]
    marker_digest: str
    modified_ns: _Natural = 0
    rotated: bool = False
    foreign: bool = False
    skipping: bool = False

    @property
    def identity(self) -> Identity:
        """Device and inode when the position was taken."""
        return self.device, self.inode

    def holds_in(self, fd: int) -> bool:
        """Whether ``fd`` has this content before this place; no if it cannot be read."""
        if self.offset and not (self.head_bytes and self.marker_bytes):
            return False  # we always write both digests after reading, so this position is not ours
        try:
            if not self.marker_bytes <= self.offset <= os.fstat(fd).st_size:
                return False
            marker = os.pread(fd, self.marker_bytes, self.offset - self.marker_bytes)
        except OSError:
            return False
        return self.begins(fd) and digest(marker) == self.marker_digest

    def begins(self, fd: int) -> bool:
        """Whether ``fd`` begins like the file of this place; no if it cannot be read."""
        try:
            return digest(os.pread(fd, self.head_bytes, 0)) == self.head_digest
        except OSError:
            return False


def digest(content: bytes | bytearray) -> str:
    """A short hash that tells contents apart. It protects no secret."""
    return hashlib.blake2b(content, digest_size=12).hexdigest()


def open_regular(path: str) -> tuple[int, os.stat_result]:
    """Open a regular file for reading; return descriptor and status. Raises OSError, also for other kinds of files.

    A FIFO stays closed: its writer would block, or die of SIGPIPE, when the exporter ends.
    """
    if kind := irregularity(Path(path).stat()):
        raise OSError(errno.EINVAL, kind)
    fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    status = os.fstat(fd)
    if kind := irregularity(status):  # replaced between the two calls
        os.close(fd)
        raise OSError(errno.EINVAL, kind)
    return fd, status


def irregularity(status: os.stat_result) -> str | None:
    """Say why a file of this kind cannot be read; None for a regular file."""
    if stat.S_ISREG(status.st_mode):
        return None
    if stat.S_ISDIR(status.st_mode):
        return "it is a directory; name the file, or a glob such as DIR/*.log"
    if stat.S_ISFIFO(status.st_mode):
        return "it is a FIFO, which kills the predictor when the exporter ends; pipe it to the exporter's stdin instead"
    return "it is not a regular file"


def common_length(left: bytes, right: bytes) -> int:
    """Return how many bytes both have alike from their beginning."""
    length = min(len(left), len(right))
    return bisect.bisect_left(range(length), True, key=lambda end: left[: end + 1] != right[: end + 1])


class LogFile:
    """An open log file, which owns ``fd``. All methods may raise OSError.

    ``offset`` is the start of a line. An unterminated line is read again when it has grown. So no part of a line is in
    memory between reads, and a later start can go on from any offset.
    """

    def __init__(self, path: str, fd: int, status: os.stat_result, cutter: LineCutter) -> None:
        self.path = path
        self.identity: Identity = (status.st_dev, status.st_ino)
        self.size_bytes = status.st_size
        self.modified_ns = status.st_mtime_ns
        self.links = status.st_nlink  # none: it was deleted
        self.cutter = cutter
        self.offset = 0
        self.seen = 0  # end of the bytes read: offset, or the end of the unterminated line
        self.drained = False  # read to its end at the last look
        self.retired_at: float | None = None  # when it was found to have left its path
        self.grew_at = -math.inf
        self.flushed = False
        self.predecessor: LogFile | None = None  # to be read to its end first
        self.copied = False  # it was made by copying the log, perhaps in the middle of a line
        try:
            self.head = os.pread(fd, HEAD_BYTES, 0)
        except OSError:
            os.close(fd)
            raise
        self.fd = fd
        self._marker = b""  # the bytes before offset

    def close(self) -> None:
        """Close the file. A second call does nothing."""
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1

    @property
    def closed(self) -> bool:
        """Whether :meth:`close` was called."""
        return self.fd < 0

    @property
    def bytes_behind(self) -> int:
        """Bytes not read yet."""
        return max(0, self.size_bytes - self.seen)

    def place(self, offset: int, *, skipping: bool = False) -> None:
        """Go on from ``offset``, which is the start of a line unless ``skipping``."""
        self.offset = self.seen = offset
        length = min(offset, MARKER_BYTES)
        self._marker = os.pread(self.fd, length, offset - length)
        self.cutter.skipping = skipping

    def place_at_end(self, size_bytes: int) -> None:
        """Go on after the last whole line of the first ``size_bytes``, so that a line completed later is read whole.

        In an oversized line, go back only so far that it is still found to be oversized.
        """
        start = max(0, size_bytes - CHUNK_BYTES)
        self.place(start + os.pread(self.fd, size_bytes - start, start).rfind(b"\n") + 1)
        self.seen = size_bytes

    def look(self) -> bool:
        """Update size and times. Return False if the bytes read before are gone: the file was cut or rewritten."""
        status = os.fstat(self.fd)
        self.links = status.st_nlink
        size_bytes = status.st_size
        untouched = size_bytes == self.seen and status.st_mtime_ns == self.modified_ns
        if self.retired_at is not None and self.drained and untouched:
            return True  # retired files can be many
        self.size_bytes = size_bytes
        self.drained = False
        if self.size_bytes < self.seen:
            return False
        head = os.pread(self.fd, HEAD_BYTES, 0)
        if not head.startswith(self.head):
            return False
        if self._marker != os.pread(self.fd, len(self._marker), self.offset - len(self._marker)):
            return False
        self.head, self.modified_ns = head, status.st_mtime_ns
        return True

    def read(self, buffer: bytearray) -> tuple[list[Event], int] | None:
        """Read one piece into ``buffer``; return its events and the number of bytes read. None: the file was cut.

        Sets ``drained`` at the end of the file.
        """
        length = len(self._marker)
        marker = bytearray(length)
        # The same call also reads the bytes before the place, so the file cannot change between check and read.
        count = os.preadv(self.fd, [marker, buffer], self.offset - length)
        if count < length or marker != self._marker:
            return None
        filled = count - length
        events, done = self.cutter.cut(buffer, filled)
        self.seen = max(self.seen, self.offset + filled)
        self.drained = not done
        if done:
            self.offset += done
            self._marker = (self._marker + buffer[max(0, done - MARKER_BYTES) : done])[-MARKER_BYTES:]
        return events, count

    def rewind(self, *, anew: bool = False) -> None:
        """Find a new place after the file was cut: the start of the line with the first byte that differs.

        If the first KiB is the same, nothing shows which of the rest was read before. Then the place is the end, so
        that no line counts twice. ``anew``: all of it is new, for a copy holds what it was.
        """
        before = self.head
        status = os.fstat(self.fd)
        self.size_bytes, self.modified_ns = status.st_size, status.st_mtime_ns
        self.head = os.pread(self.fd, HEAD_BYTES, 0)
        same = common_length(before, self.head)
        if anew:
            self.place(0)
        elif same == HEAD_BYTES:
            self.place_at_end(self.size_bytes)
        else:
            self.place(self.head.rfind(b"\n", 0, same) + 1)

    def is_copy_of(self, others: Iterable[LogFile]) -> bool:
        """Whether one of ``others`` begins with all that is in this file, of which nothing was read yet."""
        if not self.size_bytes:
            return False
        self.place(self.size_bytes)
        end = self.position()
        self.place(0)
        return any(end.holds_in(other.fd) for other in others)

    def end_in(self, copy: LogFile) -> int:
        """Return how much of ``copy``, which took the place of this file, was or will be read here; 0 if it is none."""
        end = at = self.offset
        if os.fstat(self.fd).st_nlink or not self.position().holds_in(copy.fd):
            return 0
        same = CHUNK_BYTES
        while same == CHUNK_BYTES:
            piece, other = (os.pread(file.fd, CHUNK_BYTES, at) for file in (self, copy))
            same = common_length(piece, other)
            if newline := piece.rfind(b"\n", 0, same) + 1:  # there may be none: in a hole, or in a long line
                end = at + newline
            at += same
        return end

    def finish(self) -> list[Event]:
        """Return the events of the unterminated last line and of what the scanner held back.

        If somebody writes to the file later, the rest of that line is skipped.
        """
        tail = os.pread(self.fd, min(self.seen - self.offset, CHUNK_BYTES), self.offset)
        self.flushed = True
        was_there = self.grew_at == -math.inf  # before we came, so it may have counted already
        no_line = self.cutter.skipping or self.copied or was_there
        events = self.cutter.scanner.finish(b"" if no_line else tail)
        if tail:
            self.place(self.offset + len(tail), skipping=True)
        return events

    def position(self) -> Position:
        """Return the place to go on from after a restart."""
        head = self.head[: self.offset]  # what follows was not read, and may be other lines when the log is cut
        return Position(
            path=self.path,
            device=self.identity[0],
            inode=self.identity[1],
            offset=self.offset,
            head_bytes=len(head),
            head_digest=digest(head),
            marker_bytes=len(self._marker),
            marker_digest=digest(self._marker),
            modified_ns=self.modified_ns,
            rotated=self.retired_at is not None,
            skipping=self.cutter.skipping,
        )
