"""One open log file: which file it is, how far it has been read, and whether it is still the one that was read.

Inode numbers are reused and contents are replaced in place, so a place in a log is known by content: the first bytes of
the file and the bytes just before the place. Both are checked with every read.
"""

from __future__ import annotations

import errno
import hashlib
import os
import stat
from pathlib import Path
from typing import Annotated

import msgspec

from specdec_exporter.predictor.log.events import Event
from specdec_exporter.predictor.log.lines import CHUNK_BYTES, LineCutter

HEAD_BYTES = 1024
MARKER_BYTES = 256

Identity = tuple[int, int]  # device and inode; exact only while the file is held open
_Natural = Annotated[int, msgspec.Meta(ge=0)]


class Position(msgspec.Struct, frozen=True, kw_only=True):
    """A place in a log file, with the evidence by which it is found again. Offsets and lengths are bytes.

    ``rotated`` tells that the file no longer stood under its path, ``skipping`` that the place is inside a line which
    is already disposed of.
    """

    path: str
    device: _Natural
    inode: _Natural
    offset: _Natural
    head_bytes: Annotated[int, msgspec.Meta(ge=0, le=HEAD_BYTES)]
    head_digest: str
    marker_bytes: Annotated[int, msgspec.Meta(ge=0, le=MARKER_BYTES)]
    marker_digest: str
    rotated: bool = False
    skipping: bool = False

    @property
    def identity(self) -> Identity:
        """Device and inode at the time."""
        return self.device, self.inode

    def holds_in(self, fd: int, start: int = 0) -> bool:
        """Whether the open file ``fd`` has this content before this place, ``start`` bytes on. Raises OSError."""
        if self.offset and not (self.head_bytes and self.marker_bytes):
            return False  # read bytes leave evidence; without it the position was not written by us
        if not self.marker_bytes <= self.offset <= os.fstat(fd).st_size - start:
            return False
        if digest(os.pread(fd, self.head_bytes, start)) != self.head_digest:
            return False
        return digest(os.pread(fd, self.marker_bytes, start + self.offset - self.marker_bytes)) == self.marker_digest


def digest(content: bytes | bytearray) -> str:
    """A short hash that tells contents apart; no secret is protected by it."""
    return hashlib.blake2b(content, digest_size=12).hexdigest()


def open_regular(path: str) -> tuple[int, os.stat_result]:
    """Open a regular file for reading; return descriptor and status. Raises OSError, also for any other kind of file.

    A FIFO in particular is never opened: its writer would block, or die of SIGPIPE, when this process goes away.
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
    """Why a file of this kind is not read; None for a regular file."""
    if stat.S_ISREG(status.st_mode):
        return None
    if stat.S_ISDIR(status.st_mode):
        return "it is a directory; name the file, or a glob such as DIR/*.log"
    if stat.S_ISFIFO(status.st_mode):
        return (
            "it is a FIFO; a reader that dies would take the predictor with it, pipe it to the exporter's stdin instead"
        )
    return "it is not a regular file"


def _common_length(left: bytes, right: bytes) -> int:
    pairs = enumerate(zip(left, right, strict=False))
    return next((index for index, (a, b) in pairs if a != b), min(len(left), len(right)))


class LogFile:
    """A log file held open. Methods raise OSError.

    ``offset`` stands at the start of a line; an unterminated rest is read again when it has grown. So nothing of a line
    is kept in memory between reads, and the offset is always a place to go on from.
    """

    def __init__(self, path: str, fd: int, status: os.stat_result, cutter: LineCutter) -> None:
        self.path = ""
        self.bases: tuple[str, ...] = ()
        self.belong(path)
        self.identity: Identity = (status.st_dev, status.st_ino)
        self.size_bytes = status.st_size
        self.modified_ns = status.st_mtime_ns
        self.links = status.st_nlink
        self.cutter = cutter
        self.offset = 0
        self.seen = 0  # the furthest byte looked at: offset, or the end of the unterminated line
        self.drained = False  # nothing more to be had at the last look
        self.retired_at: float | None = None  # when it was found to be no longer under its path
        self.grew_at = 0.0
        self.flushed = False
        self.predecessor: LogFile | None = None  # to be drained first
        self._end: int | None = None  # of a copy: see freeze
        self.head = os.pread(fd, HEAD_BYTES, 0)
        self._fd = fd
        self._marker = b""
        self._marker_buffer = memoryview(bytearray(MARKER_BYTES))

    def close(self) -> None:
        """Let go of the file. May be called again."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    @property
    def closed(self) -> bool:
        """Whether :meth:`close` was called."""
        return self._fd < 0

    @property
    def fd(self) -> int:
        """The open descriptor."""
        return self._fd

    @property
    def frozen(self) -> bool:
        """Whether :meth:`freeze` was called."""
        return self._end is not None

    @property
    def resumable(self) -> bool:
        """Whether a later start can find the file, and in it what was not read."""
        return self.links > 0 and not (self.frozen and self.drained)

    @property
    def bytes_behind(self) -> int:
        """Bytes of the file not yet looked at."""
        return max(0, self.size_bytes - self.seen)

    def belong(self, path: str) -> None:
        """Note that the file stands under ``path``, or stood there before it was rotated."""
        if path != self.path:
            self.path = path
            # Rotation renames the file itself, or a link to it, so that both names may be added to.
            self.bases = tuple(dict.fromkeys((path, os.path.realpath(path))))

    def freeze(self) -> None:
        """Read no further than the present end: the file is a copy of a log, to which only copies are appended."""
        self._end = self.size_bytes

    def is_linked(self) -> bool:
        """Whether any path leads to the file, now."""
        return os.fstat(self._fd).st_nlink > 0

    def place(self, offset: int, *, skipping: bool = False) -> None:
        """Go on from ``offset``, which is the start of a line unless ``skipping``."""
        self.offset = self.seen = offset
        length = min(offset, MARKER_BYTES)
        self._marker = os.pread(self._fd, length, offset - length)
        self.cutter.skipping = skipping

    def place_at_end(self, size_bytes: int) -> None:
        """Go on after the last whole line of the first ``size_bytes``: a line completed from now on is read whole.

        Of a line longer than any that is read, the part that is read is long enough to be found too long again.
        """
        start = max(0, size_bytes - CHUNK_BYTES)
        self.place(start + os.pread(self._fd, size_bytes - start, start).rfind(b"\n") + 1)

    def look(self) -> bool:
        """Take in the file's status. False where what was read of it is gone: truncated, and perhaps grown again."""
        status = os.fstat(self._fd)
        self.links = status.st_nlink
        size_bytes = self._bounded(status.st_size)
        untouched = size_bytes == self.seen and status.st_mtime_ns == self.modified_ns
        if self.retired_at is not None and self.drained and untouched:
            return True  # retired files can be many
        self.size_bytes = size_bytes
        self.modified_ns = status.st_mtime_ns
        self.drained = False
        if self.size_bytes < self.seen:
            return False
        head = os.pread(self._fd, HEAD_BYTES, 0)
        if not head.startswith(self.head):
            return False
        self.head = head
        return self._marker == os.pread(self._fd, len(self._marker), self.offset - len(self._marker))

    def read(self, buffer: bytearray, view: memoryview) -> tuple[list[Event], int] | None:
        """Read one piece; return its events and the number of bytes read. None where the file was cut.

        ``view`` is a view of the whole ``buffer``. Sets ``drained`` when there was nothing to do.
        """
        length = len(self._marker)
        # The bytes before the place come with the same call, so that the file cannot change between check and read.
        count = os.preadv(self._fd, [self._marker_buffer[:length], view], self.offset - length)
        if self._marker_buffer[:length] != self._marker or count < length:
            return None
        filled = self._bounded(self.offset + count - length) - self.offset
        events, done = self.cutter.cut(buffer, filled)
        self.seen = max(self.seen, self.offset + filled)
        self.drained = not done
        if done:
            self.offset += done
            known = (
                self._marker + bytes(buffer[:done])
                if done < MARKER_BYTES
                else bytes(buffer[done - MARKER_BYTES : done])
            )
            self._marker = known[-MARKER_BYTES:]
        return events, count

    def rewind(self) -> None:
        """Go back to where the content differs from what was read, the file having been cut.

        That is the start of the line with the first different byte. Where the first KiB does not differ at all, nothing
        says which of the rest was read before, and the place is the present end: never twice.
        """
        before = self.head
        self.size_bytes = os.fstat(self._fd).st_size
        self.head = os.pread(self._fd, HEAD_BYTES, 0)
        same = _common_length(before, self.head)
        if same == HEAD_BYTES:
            self.place_at_end(self.size_bytes)
            return
        self.place(self.head.rfind(b"\n", 0, same) + 1)

    def _bounded(self, size_bytes: int) -> int:
        return size_bytes if self._end is None else min(size_bytes, self._end)

    def finish(self) -> list[Event]:
        """Give the unterminated last line and whatever the scanner held back: nobody writes here any more.

        Should somebody write after all, the rest of that line is skipped.
        """
        tail = os.pread(self._fd, min(self.seen - self.offset, CHUNK_BYTES), self.offset)
        self.flushed = True
        events = self.cutter.scanner.finish(b"" if self.cutter.skipping else tail)
        if tail:
            self.place(self.offset + len(tail), skipping=True)
        return events

    def position(self) -> Position:
        """Where to go on after a restart."""
        return Position(
            path=self.path,
            device=self.identity[0],
            inode=self.identity[1],
            offset=self.offset,
            head_bytes=len(self.head),
            head_digest=digest(self.head),
            marker_bytes=len(self._marker),
            marker_digest=digest(self._marker),
            rotated=self.retired_at is not None,
            skipping=self.cutter.skipping,
        )
