"""The files that hold a log now, and the order of reading: the time of a file decides its place, not its name.

When a file has left the log's path, or was cut, the files beside it that were not there at the last look are what the
log was in between. They are read in the order of their times, each whole. A copy of the file goes on where that stood.
"""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import logging
import math
import os
import time
from collections.abc import Callable, Iterable, Sequence
from fnmatch import fnmatch
from pathlib import Path
from typing import Literal

import msgspec

from specdec_exporter import bounds
from specdec_exporter.predictor.log.counters import ReaderCounters
from specdec_exporter.predictor.log.lines import CHUNK_BYTES, LineCutter, Scanner
from specdec_exporter.predictor.sources.logfile import Identity, LogFile, Position, common_length, open_regular
from specdec_exporter.predictor.sources.places import Beside, Directories, Findings, Place, is_glob
from specdec_exporter.predictor.sources.positions import Saved

_logger = logging.getLogger(__name__)

_MOST_KNOWN = 8 * bounds.LOG_FILES  # closed files that are remembered
_CLOCK_TICK_NS = 1_000_000_000  # the coarsest modification times, on some network file systems
_SAY_AGAIN_SECONDS = 60.0

Start = Literal["end", "start"]


@dataclasses.dataclass(slots=True)
class _Log:
    """A path of a log. ``live`` is its file, and ``modified_ns`` the time of that when it was last intact.

    ``unsettled``: what the log was between two live files could not be opened yet. ``beside`` is what was beside it at
    the last look, and ``directories`` are the modification times then.
    """

    path: str
    live: LogFile | None = None
    modified_ns: int = 0
    unsettled: bool = False
    beside: Beside = dataclasses.field(default_factory=Beside)
    directories: tuple[int, ...] = ()


class FileSet:
    """The open files of one predictor. ``files`` are in the order of reading: each after its predecessor.

    ``troubles`` maps each unreadable path to the reason. ``moved`` says that the set has changed. Times are seconds of
    the caller's clock. Problems with files raise nothing.
    """

    def __init__(
        self,
        paths: Sequence[str],
        scanner_factory: Callable[[], Scanner],
        counters: ReaderCounters,
        start: Start,
        directories: Directories,
    ) -> None:
        self.files: list[LogFile] = []
        self.troubles: dict[str, str] = {}
        self.moved = False
        self._scanner_factory = scanner_factory
        self._counters = counters
        self._start = start
        self._directories = directories
        self._paths = [path for path in paths if not is_glob(path)]
        self._logs = {path: _Log(path) for path in self._paths}
        self._begun_ns = time.time_ns()
        self._here: set[Identity] = set()  # what is under a path of a log
        self._known: dict[Identity, Position] = {}  # closed files: how far they need no reading
        self._unopened: dict[Identity, int] = {}  # size in bytes at the start of files that were not opened then
        self._said_gap_at = -math.inf

    @property
    def positions(self) -> list[Position]:
        """Where reading stands in each file, the open ones last."""
        return [*self._known.values(), *(file.position() for file in self.files if file.resumable)]

    # --- looks --------------------------------------------------------------------------------------------------------

    def begin(self, findings: Findings, saved: Saved, now: float) -> None:
        """Take up the files of the first look, at their saved positions or where ``start`` says."""
        self.moved = True
        self._directories.refresh()
        self._here = {place.identity for place in findings.places}
        self._unopened = {place.identity: place.size_bytes for place in findings.left_out}
        self._known = {one.identity: one for one in saved.files}
        lost = {one.path: one for one in saved.files if not one.rotated and not one.foreign}
        for place in findings.places:
            if (file := self._open(place.path)) is None:
                self._unopened[place.identity] = place.size_bytes
                continue
            self._log(place.path).live = file
            self.files.append(file)
        unplaced = [file for file in self.files if not self._is_resumed(file, lost)]
        for position in list(lost.values()):
            # A copy, or the file itself after its volume was mounted anew.
            copy = next((each for each in unplaced if position.offset and position.holds_in(each.fd)), None)
            if copy is not None:
                self._resume(copy, position, lost)
                unplaced.remove(copy)
        for file in unplaced:
            if file.path not in lost and not _is_new(file, saved):
                self._place(file, None if self._start == "end" else 0)
        for path, position in lost.items():
            log = self._log(path)
            log.modified_ns = position.modified_ns
            self._known.pop(position.identity, None)
            between = self._between(log, now, lost=position)
            live = [log.live] if log.live else []
            for file in live:
                rewritten = file.identity == position.identity and position.begins(file.fd)
                if not between and rewritten and file.size_bytes >= position.offset:
                    self._place(file, None if self._start == "end" else 0)  # nothing shows which of it was read
            self._queue([*between, *live])
        for log in self._logs.values():
            self._note(log, now)
            if log.live is not None:
                log.modified_ns = log.live.modified_ns

    def _is_resumed(self, file: LogFile, lost: dict[str, Position]) -> bool:
        """Go on in a file whose place was saved; return whether there was one."""
        known = self._known.get(file.identity)
        if known is None or not known.holds_in(file.fd):
            return False
        self._resume(file, known, lost)
        return True

    def _resume(self, file: LogFile, position: Position, lost: dict[str, Position]) -> None:
        self._take_up(file, position)
        self._log(file.path).modified_ns = position.modified_ns
        if lost.get(position.path) is position:
            del lost[position.path]

    def update(self, findings: Findings, now: float) -> None:
        """Take in a further look: which files have left their path, which are new, and what came between them."""
        self._directories.refresh()
        left_out = {place.identity for place in findings.left_out}
        for file in [file for file in self.files if file.identity in left_out]:
            self.close(file)
            self._logs.pop(file.path, None)
        places = {place.path: place for place in findings.places}
        paths = {place.identity: place.path for place in findings.places}
        self._here = set(paths)
        for file in self.files:
            if paths.get(file.identity) == file.path:
                file.retired_at = None
            elif file.retired_at is None:  # a glob may find it by its new name
                file.retired_at = now
                self.moved = True
        for place in findings.places:
            self._arrive(self._log(place.path), place, now)
        for log in [log for path, log in self._logs.items() if path not in places]:
            self._leave(log, now)

    def _arrive(self, log: _Log, place: Place, now: float) -> None:
        """Take in the file that is under the path of a log now."""
        before = log.live
        if before is not None and not before.closed and before.identity == place.identity:
            self._queue(self._between(log, now) if log.unsettled else [])
            self._note(log, now)
            log.modified_ns = before.modified_ns
            return
        opened = {file.identity: file for file in self.files}
        if place.identity in opened:  # renamed where a glob finds both names
            log.live = opened[place.identity]
            return
        if self._is_own(place) and self._is_read(place):
            return
        file = self._open(place.path)
        if file is None:
            return
        log.live = file
        log.modified_ns = log.modified_ns or self._begun_ns  # what was beside a new log before we came is not of it
        self.moved = True
        held = before is not None and not before.closed
        known, unopened = self._known.get(file.identity), self._unopened.pop(file.identity, None)
        if known is not None and not known.foreign and known.holds_in(file.fd):
            self._take_up(file, known)
        elif unopened is not None and self._start == "end":
            self._place(file, None, size_bytes=min(unopened, file.size_bytes))
        elif before is not None and held and (same := _end_of_copy(before, file)):
            # An editor, rsync or overlayfs replaced the log by a copy of itself.
            self._place(file, same, skipping=before.cutter.skipping and same == before.offset, seen=before.seen)
            self._queue([before, file])
            return
        self._follow(log, before, [file], now)

    def _leave(self, log: _Log, now: float) -> None:
        """No file is under the path of a log now."""
        before, log.live = log.live, None
        if before is not None or log.unsettled or self._has_changed(log):
            self._follow(log, before, [], now)
        if log.path not in self._paths and not log.unsettled:
            del self._logs[log.path]

    def _follow(self, log: _Log, before: LogFile | None, live: list[LogFile], now: float) -> None:
        """Queue what was under the path of a log, what it was in between, and what is there now."""
        held = [before] if before is not None and not before.closed else []
        known = log.beside
        between = self._between(log, now)
        self._queue([*held, *between, *live])
        self._counters.rotations += len(between) + bool(held and live)
        visible = {place.identity for place in log.beside.places} | self._here
        if held and live and not log.unsettled and held[0].identity not in visible and not self._has_copy(held[0]):
            # It was compressed or deleted, and so may be what nobody has seen.
            gone = sum(place.identity not in visible for place in known.places)
            packed = len(log.beside.packed - known.packed)
            if not packed or packed > gone:
                self._note_gap(log.path, "it was rotated, and what it was before is gone", now)

    def cut(self, file: LogFile, now: float) -> None:
        """Handle a ``file`` whose content was cut: read the rest of it from a copy, and the file itself anew."""
        if file.retired_at is not None:
            self.close(file)  # a rotated file is cut only to be replaced by a copy
            return
        self._counters.truncations += 1
        self.moved = True
        self._directories.refresh()  # the copy may be new
        log = self._log(file.path)
        log.modified_ns = file.modified_ns
        with contextlib.suppress(OSError):  # another file may have taken its place by now
            status = Path(log.path).stat()
            self._here.add((status.st_dev, status.st_ino))
        lost = file.position()
        between = self._between(log, now, lost=lost)
        for copy in [each for each in between[:1] if each.copied]:
            copy.seen = max(copy.offset, min(file.seen, copy.size_bytes))
            # The scanner moves to the copy, because lines that belong together may stand on both sides of the place.
            copy.cutter.scanner, file.cutter.scanner = file.cutter.scanner, copy.cutter.scanner
        file.cutter.scanner.reset()
        try:
            file.rewind(anew=bool(between))
        except OSError as error:
            self.lose(file, error)
        # The log may have been rotated after it was cut.
        older = [each for each in between if each.copied or each.modified_ns <= file.modified_ns]
        self._queue([*older, file, *(each for each in between if each not in older)])

    def lose(self, file: LogFile, error: OSError) -> None:
        """Close ``file``, which cannot be read any more. If it returns, go on at the same place."""
        self.troubles[file.path] = error.strerror or str(error)
        self.close(file)

    def close(self, file: LogFile) -> None:
        """Close ``file``, and remember how far it was read."""
        self._know(file.position())
        file.close()
        if file in self.files:
            self.files.remove(file)
        self.moved = True

    # --- beside a log -------------------------------------------------------------------------------------------------

    def _between(self, log: _Log, now: float, *, lost: Position | None = None) -> list[LogFile]:
        """Open what the log was since it was last intact, in the order of time.

        ``lost`` is a place in a file that is not open, or was cut. The file that holds it comes first.
        """
        places = self._beside(log)
        # The name of a file that grows beside the log belongs to another log, also after that has rotated.
        known = [(place, self._known[place.identity]) for place in places if self._is_read(place)]
        others = {one.path for place, one in known if one.foreign and place.size_bytes > one.offset}
        files = []
        if lost is not None:
            files = self._holders(log, places, lost, now) if lost.offset else []
            visible = not lost.offset and lost.identity in {place.identity for place in places}
            if not files and not visible and not log.unsettled:
                self._note_gap(log.path, "it was cut, or rotated while nobody read it, and its rest is gone", now)
        for place in places:
            if self._is_open(place.identity) or place.identity in {file.identity for file in files}:
                continue
            if self._is_read(place):
                continue
            if (file := self._open_beside(log, place, now)) is None:
                continue
            if (known_place := self._known.get(place.identity)) is not None:
                self._take_up(file, known_place)
            elif place.modified_ns < log.modified_ns or place.path in others or self._is_copy(file):
                self._ignore(file, place)
                continue
            files.append(file)
        return files

    def _holders(self, log: _Log, places: Iterable[Place], lost: Position, now: float) -> list[LogFile]:
        """Open the file that holds a lost place, at that place: itself, or the first copy."""
        itself = [place for place in places if place.identity == lost.identity]
        copies = [place for place in places if place.modified_ns >= log.modified_ns and not self._is_own(place)]
        for place in (*itself, *copies):
            if self._is_open(place.identity) or (file := self._open_beside(log, place, now)) is None:
                continue
            if lost.holds_in(file.fd):
                file.copied = file.identity != lost.identity
                self._known.pop(file.identity, None)
                self._take_up(file, lost)
                return [file]
            file.close()
        return []

    def _note(self, log: _Log, now: float) -> None:
        """Note what appears beside an intact log: no rotation made it. Go on in rotated files that have grown."""
        if not self._has_changed(log):
            return
        for place in self._beside(log):
            if self._is_open(place.identity) or self._is_read(place):
                continue
            if (file := self._open_beside(log, place, now)) is None:
                continue
            if (known := self._known.get(place.identity)) is not None:
                self._take_up(file, known)
                self.files.insert(0, file)
            elif log.live and 0 < log.modified_ns <= place.modified_ns and self._was(log.live, file):
                self._place(file, log.live.offset, skipping=log.live.cutter.skipping)
                self._queue([file, log.live])
            else:
                self._ignore(file, place)

    def _was(self, live: LogFile, file: LogFile) -> bool:
        """Whether ``live`` was ``file`` at the last look, and was cut since. Its beginning may still be the same."""
        return file.size_bytes > 0 and live.position().holds_in(file.fd) and not self._is_copy(file)

    def _is_copy(self, file: LogFile) -> bool:
        """Whether an open file begins with all that is in ``file``."""
        if not file.size_bytes:
            return False
        with contextlib.suppress(OSError):
            file.place(file.size_bytes)
            end = file.position()
            file.place(0)
            return any(end.holds_in(other.fd) for other in self.files)
        return False

    def _has_changed(self, log: _Log) -> bool:
        """Whether files may have been created, renamed or deleted beside the log since the last look."""
        # The clock of a file system is coarse, so a later change may leave the same time.
        times = self._directories.times(log.path)
        return times != log.directories or any(time.time_ns() - each <= _CLOCK_TICK_NS for each in times)

    def _beside(self, log: _Log) -> tuple[Place, ...]:
        log.directories = self._directories.times(log.path)
        try:
            log.beside = self._directories.beside(log.path)
        except OSError as error:
            self.troubles[log.path] = error.strerror or str(error)
            log.unsettled = True
            return ()
        log.unsettled = False
        return log.beside.places

    def beside(self, path: str) -> list[str]:
        """Return the files beside the log at ``path`` at the last look, oldest first."""
        return [place.path for place in self._logs[path].beside.places] if path in self._logs else []

    def _is_open(self, identity: Identity) -> bool:
        return identity in self._here or any(file.identity == identity for file in self.files)

    def _is_read(self, place: Place) -> bool:
        """Whether a closed file needs no reading. An inode may be of another file by now."""
        known = self._known.get(place.identity)
        if known is None:
            return False
        if (known.offset, known.modified_ns) != (place.size_bytes, place.modified_ns):
            try:
                fd, _ = open_regular(place.path)
            except OSError:
                return False
            try:
                if not known.holds_in(fd):
                    del self._known[place.identity]
                    return False
            finally:
                os.close(fd)
        return known.foreign or place.size_bytes <= known.offset

    def _is_own(self, place: Place) -> bool:
        """Whether it is a closed file of this log."""
        self._is_read(place)  # forgets what another file with its inode was
        return place.identity in self._known and not self._known[place.identity].foreign

    def _has_copy(self, file: LogFile) -> bool:
        """Whether a file that needs no reading is a copy of an open one."""
        return any(one.offset and one.holds_in(file.fd) for one in self._known.values() if one.foreign)

    def _ignore(self, file: LogFile, place: Place) -> None:
        """Close a file that is not of this log, or was before we came; nothing of it is to be read."""
        with contextlib.suppress(OSError):
            file.place(file.size_bytes)
            self._know(msgspec.structs.replace(file.position(), path=place.path, foreign=True))
        file.close()

    def _know(self, position: Position) -> None:
        self._known.pop(position.identity, None)
        self._known[position.identity] = position
        while len(self._known) > _MOST_KNOWN:
            del self._known[next(iter(self._known))]

    def _note_gap(self, path: str, why: str, now: float) -> None:
        self._counters.gaps += 1
        if now - self._said_gap_at >= _SAY_AGAIN_SECONDS:
            self._said_gap_at = now
            _logger.warning("lines of the log %s may be missing: %s", path, why)

    # --- files --------------------------------------------------------------------------------------------------------

    def _log(self, path: str) -> _Log:
        return self._logs.setdefault(path, _Log(path))

    def _open(self, path: str) -> LogFile | None:
        """Open ``path``, unless it is open already."""
        try:
            fd, status = open_regular(path)
            file = LogFile(path, fd, status, LineCutter(self._scanner_factory(), self._counters))
        except FileNotFoundError:
            return None
        except OSError as error:
            self.troubles[path] = error.strerror or str(error)
            return None
        if any(other.identity == file.identity for other in self.files):
            file.close()
            return None
        return file

    def _open_beside(self, log: _Log, place: Place, now: float) -> LogFile | None:
        """Open a file that was at the path of a log."""
        file = self._open(place.path)
        if file is None:
            log.unsettled |= place.path in self.troubles
            return None
        file.path, file.retired_at = log.path, now
        return file

    def _take_up(self, file: LogFile, position: Position) -> None:
        self._known.pop(position.identity, None)
        self._place(file, position.offset, skipping=position.skipping)

    def _place(
        self,
        file: LogFile,
        offset: int | None,
        *,
        skipping: bool = False,
        seen: int = 0,
        size_bytes: int | None = None,
    ) -> None:
        """Go on from ``offset``; if None, from the end of the first ``size_bytes`` (default: of the file).

        ``seen``: the end of the bytes that were read already, of a half line.
        """
        try:
            if offset is None:
                file.place_at_end(file.size_bytes if size_bytes is None else size_bytes)
            else:
                file.place(offset, skipping=skipping)
                file.seen = max(offset, min(seen, file.size_bytes))
        except OSError as error:
            self.lose(file, error)

    def _queue(self, chain: Sequence[LogFile]) -> None:
        """Make each file of ``chain`` wait for the one before it."""
        for older, newer in itertools.pairwise(chain):
            newer.predecessor = older
        self.files += [file for file in chain if file not in self.files]


def _is_new(file: LogFile, saved: Saved) -> bool:
    """Whether a file came after the positions were saved, which knew all files of its path."""
    known = any(fnmatch(file.path, pattern) or file.path == pattern for pattern in saved.paths)
    return known and file.modified_ns >= max((one.modified_ns for one in saved.files), default=0)


def _end_of_copy(log: LogFile, copy: LogFile) -> int:
    """Return how much of ``copy`` was read, or will be, in ``log``, which it replaced; 0 if it is no copy of it."""
    end = at = log.offset
    try:
        if os.fstat(log.fd).st_nlink or not log.position().holds_in(copy.fd):
            return 0
        same = CHUNK_BYTES
        while same == CHUNK_BYTES:
            piece, other = (os.pread(file.fd, CHUNK_BYTES, at) for file in (log, copy))
            same = common_length(piece, other)
            if newline := piece.rfind(b"\n", 0, same) + 1:  # there may be none: in a hole, or in a long line
                end = at + newline
            at += same
    except OSError:
        pass
    return end
