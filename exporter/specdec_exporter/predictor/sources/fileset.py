"""The files that hold a log now, and the order of reading: the time of a file decides its place, not its name.

When a file has left the log's path, or was cut, the files beside it that were not there at the last look are what the
log was in between. They are read in the order of their times, each whole. A copy of the file goes on where that stood.
"""

from __future__ import annotations

import contextlib
import dataclasses
import logging
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Literal

from specdec_exporter.predictor.log.counters import ReaderCounters
from specdec_exporter.predictor.log.lines import Scanner
from specdec_exporter.predictor.sources.logfile import Identity, LogFile, Position
from specdec_exporter.predictor.sources.openfiles import OpenFiles
from specdec_exporter.predictor.sources.places import Beside, Directories, Findings, Place, identities, is_glob
from specdec_exporter.predictor.sources.positions import Saved

_logger = logging.getLogger(__name__)

_CLOCK_TICK_NS = 1_000_000_000  # the coarsest modification times, on some network file systems
_GONE = "it was cut, or rotated while nobody read it, and its rest is gone"

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

    @property
    def held(self) -> LogFile | None:
        """Its file, if that is open."""
        return None if self.live is None or self.live.closed else self.live


class FileSet(OpenFiles):
    """The open files of one predictor, look by look. Times are seconds of the caller's clock."""

    def __init__(
        self,
        paths: Sequence[str],
        scanner_factory: Callable[[], Scanner],
        counters: ReaderCounters,
        start: Start,
        directories: Directories,
    ) -> None:
        super().__init__(scanner_factory, counters)
        self._start = start
        self._directories = directories
        self._patterns = paths
        self._paths = [path for path in paths if not is_glob(path)]
        self._logs = {path: _Log(path) for path in self._paths}
        self._begun_ns = time.time_ns()
        self._here: set[Identity] = set()  # what is under a path of a log
        self._unopened: dict[Identity, int] = {}  # size in bytes at the start of files that were not opened then

    # --- looks --------------------------------------------------------------------------------------------------------

    def begin(self, findings: Findings, saved: Saved, now: float) -> None:
        """Take up the files of the first look, at their saved positions or where ``start`` says."""
        self.moved = True
        self._directories.refresh()
        self._here = {place.identity for place in findings.places}
        self._unopened = {place.identity: place.size_bytes for place in findings.left_out}
        for position in saved.files:
            self._closed.add(position)
        self._open_all(findings.places)
        lost = saved.last_places(self._patterns)
        unplaced = self._resume_all(lost)
        for file in unplaced:
            self._begin_at_start(file, saved, is_lost=file.path in lost)
        for position in lost.values():
            self._follow_lost(position, now)
        for log in self._logs.values():
            self._note(log, now)
            if log.live is not None:
                log.modified_ns = log.live.modified_ns

    def _open_all(self, places: Iterable[Place]) -> None:
        for place in places:
            if (file := self._open(place.path)) is None:
                self._unopened[place.identity] = place.size_bytes
                continue
            self._log(place.path).live = file
            self.files.append(file)

    def _begin_at_start(self, file: LogFile, saved: Saved, *, is_lost: bool) -> None:
        """Place a file of the first look that no saved position is of; ``is_lost``: one of its log is."""
        log, known = self._log(file.path), self._closed.get(file.identity)
        foreign = known if known is not None and known.holds_in(file.fd) else None
        was_there = self._start == "end" and not saved.is_older_than(file)
        if (foreign or not was_there) and self._is_found_copy(log, file):
            self._drop(log, file)
        elif foreign:
            self._take_up(file, foreign)
        elif was_there and not is_lost:
            self._place(file, None)

    def _resume_all(self, lost: dict[str, Position]) -> list[LogFile]:
        """Go on in the files whose places were saved, which are then no longer ``lost``; return the other files."""
        unplaced = []
        for file in self.files:
            known = self._closed.get(file.identity)
            if known is not None and not known.foreign and known.holds_in(file.fd):
                self._resume(file, known, lost)
            else:
                unplaced.append(file)
        for position in [one for one in lost.values() if one.offset]:
            # A copy, or the file itself after its volume was mounted anew.
            for copy in [file for file in unplaced if position.holds_in(file.fd)][:1]:
                self._resume(copy, position, lost)
                unplaced.remove(copy)
        return unplaced

    def _follow_lost(self, lost: Position, now: float) -> None:
        """Go on where reading of a log stopped: it was rotated or cut while nobody read it."""
        log = self._log(lost.path)
        log.modified_ns = lost.modified_ns
        self._closed.forget(lost.identity)
        between = self._between(log, now, lost=lost)
        if (file := log.live) is None:
            self._queue(between)
            return
        rewritten = file.identity == lost.identity and lost.begins(file.fd) and file.size_bytes >= lost.offset
        if rewritten and not between and self._start == "end":
            self._place(file, None)  # nothing shows which of it was read
        self._queue([*between, file])

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
        before = log.held
        if before is not None and before.identity == place.identity:
            self._stay(log, before, now)
            return
        opened = next((file for file in self.files if file.identity == place.identity), None)
        if opened is not None:  # renamed where a glob finds both names
            log.live = opened
            return
        if (self._closed.is_own(place) and self._closed.is_read(place)) or (file := self._open(place.path)) is None:
            return
        self._here.discard(place.identity)  # it may have been rotated since
        if self._is_found_copy(log, file):
            file.close()
            return
        self._here.add(file.identity)
        log.live = file
        log.modified_ns = log.modified_ns or self._begun_ns  # what was beside a new log before we came is not of it
        self.moved = True
        if not self._begin_in(file) and before is not None and self._is_replaced(before, file):
            self._queue([before, file])
        else:
            self._follow(log, before, [file], now)

    def _stay(self, log: _Log, live: LogFile, now: float) -> None:
        """The file is still under the path of a log."""
        if self._is_found_copy(log, live):
            self._drop(log, live)
            return
        self._queue(self._between(log, now) if log.unsettled else [])
        self._note(log, now)
        log.modified_ns = live.modified_ns

    def _is_found_copy(self, log: _Log, file: LogFile) -> bool:
        """Whether a glob finds a copy of another log: nothing of it is to be read, unless that is cut."""
        return log.path not in self._paths and not file.seen and self._is_copy(file, of_another=True)

    def _drop(self, log: _Log, file: LogFile) -> None:
        """Close a file of which nothing was read, until the next look."""
        log.live = None
        self._here.discard(file.identity)
        self.files.remove(file)
        file.close()

    def _begin_in(self, file: LogFile) -> bool:
        """Go on where reading of a new file stopped, or after what it held at the start; return whether it is known."""
        known, unopened = self._closed.get(file.identity), self._unopened.pop(file.identity, None)
        if known is not None and not known.foreign and known.holds_in(file.fd):
            self._take_up(file, known)
            return True
        if unopened is not None and self._start == "end":
            self._place(file, None, size_bytes=min(unopened, file.size_bytes))
            return True
        return False

    def _leave(self, log: _Log, now: float) -> None:
        """No file is under the path of a log now."""
        before, held, log.live = log.live, log.held, None
        if not log.modified_ns:
            self._note(log, now)  # there never was one
        elif before is not None or log.unsettled or self._has_changed(log):
            self._follow(log, held, [], now)
        if log.path not in self._paths and not log.unsettled:
            del self._logs[log.path]

    def _follow(self, log: _Log, before: LogFile | None, live: list[LogFile], now: float) -> None:
        """Queue what was under the path of a log, what it was in between, and what is there now."""
        known = log.beside
        between = self._between(log, now)
        self._queue([*([before] if before else []), *between, *live])
        self._counters.rotations += len(between) + bool(before and live)
        if before is None or not live or log.unsettled:
            return
        visible = {place.identity for place in log.beside.places} | self._here
        if before.identity not in visible and not self._closed.has_copy_of(before):
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

    # --- beside a log -------------------------------------------------------------------------------------------------

    def _between(self, log: _Log, now: float, *, lost: Position | None = None) -> list[LogFile]:
        """Open what the log was since it was last intact, in the order of time.

        ``lost`` is a place in a file that is not open, or was cut. The file that holds it comes first.
        """
        places = self._beside(log)
        self._here |= identities([log.path])  # what took the path since it was opened is for the next look
        others = self._closed.names_of_others(places)
        files = self._holder(log, places, lost, now) if lost else []
        for place in places:
            if place.identity in {file.identity for file in files} or not self._is_unread(place):
                continue
            if (file := self._open_beside(log, place, now)) is None:
                continue
            if (known := self._closed.get(place.identity)) is not None:
                self._take_up(file, known)
                files.append(file)
            elif place.modified_ns < log.modified_ns or place.path in others or self._is_copy(file):
                self._ignore(file, place)
            else:
                files.append(file)
        return files

    def _holder(self, log: _Log, places: Iterable[Place], lost: Position, now: float) -> list[LogFile]:
        """Open the file that holds a lost place, at that place: itself, or the first copy. Note if there is none."""
        if not lost.offset:  # every file may hold it
            if lost.identity not in {place.identity for place in places} and not log.unsettled:
                self._note_gap(log.path, _GONE, now)
            return []
        itself = [place for place in places if place.identity == lost.identity]
        copies = [one for one in places if one.modified_ns >= log.modified_ns and not self._closed.is_own(one)]
        for place in (*itself, *copies):
            if self._is_open(place.identity) or (file := self._open_beside(log, place, now)) is None:
                continue
            if lost.holds_in(file.fd):
                file.copied = file.identity != lost.identity
                self._closed.forget(file.identity)
                self._take_up(file, lost)
                return [file]
            file.close()
        if not log.unsettled:
            self._note_gap(log.path, _GONE, now)
        return []

    def _note(self, log: _Log, now: float) -> None:
        """Note what appears beside an intact log: no rotation made it. Go on in rotated files that have grown."""
        if not self._has_changed(log):
            return
        before = log.beside, log.directories
        places = self._beside(log)
        if not self._is_intact(log):  # a rotation made what has just appeared; the next look tells
            log.beside, log.directories = before
            return
        for place in places:
            if not self._is_unread(place) or (file := self._open_beside(log, place, now)) is None:
                continue
            if (known := self._closed.get(place.identity)) is not None:
                self._take_up(file, known)
                self.files.insert(0, file)
            elif log.live and 0 < log.modified_ns <= place.modified_ns and self._was(log.live, file):
                self._place(file, log.live.offset, skipping=log.live.cutter.skipping)
                self._queue([file, log.live])
            else:
                self._ignore(file, place)

    def _is_intact(self, log: _Log) -> bool:
        """Whether the path of a log still has the file that it had in this look, or none."""
        live = log.held
        with contextlib.suppress(OSError):
            return identities([log.path]) == ({live.identity} if live else set()) and (live is None or live.look())
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

    def _is_unread(self, place: Place) -> bool:
        return not self._is_open(place.identity) and not self._closed.is_read(place)

    # --- files --------------------------------------------------------------------------------------------------------

    def _log(self, path: str) -> _Log:
        return self._logs.setdefault(path, _Log(path))

    def _open_beside(self, log: _Log, place: Place, now: float) -> LogFile | None:
        """Open a file that was at the path of a log, unless another has its name by now: the next look finds both."""
        file = self._open(place.path)
        if file is None:
            log.unsettled |= place.path in self.troubles
            return None
        if file.identity != place.identity:
            file.close()
            return None
        file.path, file.retired_at = log.path, now
        return file
