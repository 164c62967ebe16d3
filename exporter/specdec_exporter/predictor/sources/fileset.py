"""Which files a log is in just now: the one under its path, those that left it, and in what order they are read."""

from __future__ import annotations

import contextlib
import itertools
import logging
import os
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Literal

from specdec_exporter.predictor.log.counters import ReaderCounters
from specdec_exporter.predictor.log.lines import LineCutter, Scanner
from specdec_exporter.predictor.sources.logfile import Identity, LogFile, Position, open_regular
from specdec_exporter.predictor.sources.places import Place
from specdec_exporter.predictor.sources.rotation import KnownRotatedFiles, Sibling, base_of, begin_alike, siblings

_logger = logging.getLogger(__name__)

_MAX_PAST = 64  # places in closed files remembered
_CLOCK_TICK_NS = 1_000_000_000  # of some network file systems

Start = Literal["end", "start"]


class FileSet:
    """The open files of one predictor. ``files`` stand in the order of reading: each after the one it took over from.

    ``troubles`` collects by path what could not be read, ``moved`` tells that the set has changed. Times are of the
    caller's clock, seconds. Raises nothing for anything that a file does.
    """

    def __init__(
        self, paths: Sequence[str], scanner_factory: Callable[[], Scanner], counters: ReaderCounters, start: Start
    ) -> None:
        self.files: list[LogFile] = []
        self.troubles: dict[str, str] = {}
        self.moved = False
        self._paths = paths
        self._scanner_factory = scanner_factory
        self._counters = counters
        self._start = start
        self._known = KnownRotatedFiles()
        self._past: deque[Position] = deque(maxlen=_MAX_PAST)  # in files closed, which may come back
        self._directories: dict[str, list[int]] = {}  # when a log's were last modified, by its path; nanoseconds
        self._unopened: dict[Identity, int] = {}  # there at the start, but not readable: size then, bytes

    def begin(self, places: Iterable[Place], positions: Iterable[Position], now: float) -> None:
        """The first look: go on from saved positions, otherwise where ``start`` says."""
        self.moved = True
        for place in places:
            if file := self._open(place.path, now):
                if place.rotated:
                    file.belong(base_of(place.path) or place.path)
                    file.retired_at = now
                self.files.append(file)
            else:
                self._unopened[place.identity] = place.size_bytes
        placed: list[LogFile] = []
        unmatched: list[Position] = []
        for position in positions:
            if file := _matching(position, [file for file in self.files if file not in placed]):
                placed.append(file)
                self._place(file, position.offset, skipping=position.skipping)
            else:
                unmatched.append(position)
        for position in unmatched:
            placed += self._resume_rotated(position, placed, now)
        for file in [file for file in self.files if file not in placed]:
            if self._start == "end":
                self._place(file, None)
        self._note_rotated_files([base for path in self._paths for base in (path, os.path.realpath(path))])
        self._note_rotated_files([base for file in self.files for base in file.bases])

    def update(self, places: Sequence[Place], now: float) -> None:
        """Every further look: see which files left, which are new, and which file each new one took over from."""
        by_identity = {place.identity: place for place in places}
        left: list[LogFile] = []
        stayed = [file for file in self.files if file.retired_at is None]
        for file in self.files:
            place = by_identity.pop(file.identity, None)
            if place is not None and not place.rotated:
                file.belong(place.path)
                file.retired_at = None
            elif file.retired_at is None:
                file.retired_at = now
                left.append(file)
                self.moved = True
        for place in by_identity.values():
            if not place.rotated:  # rotated ones are looked for when their path is left or taken
                self._adopt(place, now)
        taken = {file.path for file in self.files if file.retired_at is None}
        for file in left:
            if file.path not in taken:
                missed = self._missed(file, now)
                self._counters.rotations += len(missed)
                self._queue([file, *missed])
        for file in self.files:
            if file.retired_at is None and file in stayed:
                self._note_new_siblings(file)

    def cut(self, file: LogFile, now: float) -> None:
        """The content of ``file`` was taken away: look for what was not read of it in a copy, and go back."""
        if file.retired_at is not None:
            self.close(file)  # nobody cuts a rotated file, except to put a copy in its place
            return
        self._counters.truncations += 1
        self.moved = True
        self._queue([*self._unread_copies(file, now), file])
        file.cutter.scanner.reset()
        try:
            file.rewind()
        except OSError as error:
            self.lose(file, error)

    def pass_over_copy(self, file: LogFile) -> None:
        """Pass over what was added to a rotated ``file`` where that is the log itself, appended by hand."""
        if file.retired_at is None:
            return
        for log in self.files:
            same = log.path == file.path and log.retired_at is None and log.offset > 0
            if same and _holds(log.position(), file, start=file.seen):
                self._place(file, file.size_bytes)

    def lose(self, file: LogFile, error: OSError) -> None:
        """``file`` cannot be read any more; should it be found again, go on where it stood."""
        self.troubles[file.path] = error.strerror or str(error)
        self._forget(file)

    def close(self, file: LogFile) -> None:
        """Let go of ``file``, which was read to its end."""
        self._remember(file)
        self._forget(file)

    def _forget(self, file: LogFile) -> None:
        self._past.append(file.position())
        file.close()
        if file in self.files:
            self.files.remove(file)
        self.moved = True

    # --- new files -------------------------------------------------------------------------------------------------

    def _adopt(self, place: Place, now: float) -> None:
        file = self._open(place.path, now)
        if file is None:
            return
        self.moved = True
        before = next((old for old in reversed(self.files) if old.path == place.path), None)
        # Replaced by a copy of itself (an editor, rsync, a copy-up of overlayfs): its bytes were read.
        copied = before is not None and not before.is_linked() and _holds(before.position(), file)
        read_bytes = before.offset if before and copied else 0
        past = self._saved_position(file)
        if past and past.offset >= read_bytes:
            self._past.remove(past)
            self.files.append(file)
            self._place(file, past.offset, skipping=past.skipping)
            return
        self.files.append(file)
        missed = self._missed(before or file, now)
        if before is None:
            if self._start == "end" and (size := self._unopened.pop(file.identity, None)) is not None:
                self._place(file, None, size_bytes=min(size, file.size_bytes))
        else:
            self._counters.rotations += 1
            if read_bytes:
                self._place(file, read_bytes)
        self._counters.rotations += len(missed)
        self._queue([*([before] if before else []), *missed, file])
        self._note_rotated_files(file.bases)

    def _open(self, path: str, now: float) -> LogFile | None:
        """Open ``path``, unless it is open already."""
        try:
            fd, status = open_regular(path)
        except FileNotFoundError:
            return None
        except OSError as error:
            self.troubles[path] = error.strerror or str(error)
            return None
        if (status.st_dev, status.st_ino) in self._held():
            os.close(fd)
            return None
        try:
            file = LogFile(path, fd, status, LineCutter(self._scanner_factory(), self._counters))
        except OSError as error:
            self.troubles[path] = error.strerror or str(error)
            os.close(fd)
            return None
        file.grew_at = now
        return file

    def _place(
        self, file: LogFile, offset: int | None, *, skipping: bool = False, size_bytes: int | None = None
    ) -> None:
        """Go on from ``offset``; None: from the end of the first ``size_bytes``, by default of all."""
        try:
            if offset is None:
                file.place_at_end(file.size_bytes if size_bytes is None else size_bytes)
            else:
                file.place(offset, skipping=skipping)
        except OSError as error:
            self.lose(file, error)

    def _held(self) -> dict[Identity, bytes]:
        """The files that are open, and their first bytes."""
        return {file.identity: file.head for file in self.files}

    def _queue(self, chain: Sequence[LogFile]) -> None:
        """Let the files of ``chain`` be read one after the other."""
        for older, newer in itertools.pairwise(chain):
            newer.predecessor = older
        self.files = [*(file for file in self.files if file not in chain), *chain]

    def _note_rotated_files(self, bases: Iterable[str]) -> None:
        """Note the rotated files that exist when a path is first followed."""
        for base in dict.fromkeys(bases):
            self._known.look(base, self._held())

    # --- files that have left their path -----------------------------------------------------------------------------

    def _siblings(self, file: LogFile) -> list[Sibling]:
        """Rotated files of the log that ``file`` is of, oldest first; each once, however many paths lead to it."""
        found: dict[Identity, Sibling] = {}
        for base in file.bases:
            for sibling in self._known.look(base, self._held()):
                if sibling.identity not in found or not sibling.new:
                    found[sibling.identity] = sibling
        return list(found.values())

    def _note_new_siblings(self, file: LogFile) -> None:
        """Note rotated files that appear while ``file`` stays under its path.

        No rotation made them: somebody copied, edited or restored a file.
        """
        if not self._directory_changed(file):
            return
        new = [sibling for sibling in self._siblings(file) if sibling.new]
        with contextlib.suppress(OSError):
            status = Path(file.path).stat()
            if (status.st_dev, status.st_ino) == file.identity:  # still: all of them were there before it leaves
                for sibling in new:
                    self._note_rotated_file(file, sibling.identity, sibling.head)

    def _directory_changed(self, file: LogFile) -> bool:
        """Whether files may have been created, renamed or deleted beside ``file`` since this was last asked."""
        modified_ns: list[int] = []
        for base in file.bases:
            with contextlib.suppress(OSError):
                modified_ns.append(Path(base).parent.stat().st_mtime_ns)
        # The clock of a file system is coarse: a change may follow that leaves the same time.
        settled = all(time.time_ns() - modified > _CLOCK_TICK_NS for modified in modified_ns)
        if settled and self._directories.get(file.path) == modified_ns:
            return False
        self._directories[file.path] = modified_ns
        return True

    def _missed(self, file: LogFile, now: float) -> list[LogFile]:
        """Files rotated away from where ``file`` is or was, so fast that they were never seen; oldest first."""
        all_rotated = self._siblings(file)
        # Rotated after the file, they stand after it. What stands before it was edited, or restored, or copied there.
        begin = next((index for index, sibling in enumerate(all_rotated) if sibling.identity == file.identity), 0)
        for sibling in all_rotated[:begin]:
            self._note_rotated_file(file, sibling.identity, sibling.head)
        found: list[LogFile] = []
        for sibling in all_rotated[begin:]:
            if sibling.new and (rotated := self._open_retired(sibling.path, file.path, now)):
                found.append(rotated)
                if past := self._saved_position(rotated):  # could not be read for a while
                    self._place(rotated, past.offset, skipping=past.skipping)
        return found

    def _unread_copies(self, file: LogFile, now: float) -> list[LogFile]:
        """Copies made before ``file`` was cut that have bytes which were not read: one of it, and of what came after.

        The first goes on where ``file`` stood, the others are read whole.
        """
        lost = file.position()
        rotated: list[tuple[Sibling, LogFile]] = []
        for sibling in self._siblings(file):
            if sibling.identity == file.identity:
                break  # cut, and then rotated: what is newer is no copy
            if other := self._open_retired(sibling.path, file.path, now):
                rotated.append((sibling, other))
        copy = _fullest([other for _, other in rotated if lost.offset and _holds(lost, other)])
        copies: list[LogFile] = []
        for sibling, other in rotated:
            if other is copy or (sibling.new and (copies or copy is None)):
                copies.append(other)
            else:
                self._remember(other)
                other.close()
        if copy is not None:  # otherwise they may be files that were renamed
            for other in copies:
                other.freeze()
            # It carries on the stream: a line's pieces, or a pair of lines, may be on both sides of the place.
            copy.cutter.scanner, file.cutter.scanner = file.cutter.scanner, copy.cutter.scanner
            self._place(copy, lost.offset, skipping=lost.skipping)
        return copies

    def _open_retired(self, path: str, base: str, now: float) -> LogFile | None:
        """Open ``path``, a file rotated from ``base``."""
        file = self._open(path, now)
        if file is not None:
            file.belong(base)
            file.retired_at = now
        return file

    def _remember(self, file: LogFile) -> None:
        """Note a rotated file that needs no further reading."""
        self._note_rotated_file(file, file.identity, file.head)

    def _note_rotated_file(self, file: LogFile, identity: Identity, head: bytes) -> None:
        for base in file.bases:
            self._known.add(base, identity, head)

    # --- positions -------------------------------------------------------------------------------------------------

    def _saved_position(self, file: LogFile) -> Position | None:
        """Where ``file`` was left, if it was read before."""
        return next((past for past in reversed(self._past) if _matching(past, [file])), None)

    def _resume_rotated(self, position: Position, placed: Sequence[LogFile], now: float) -> list[LogFile]:
        """Finish the file of ``position`` where it has been rotated to; return the files that are placed by that."""
        live = next((file for file in self.files if file.path == position.path and file not in placed), None)
        bases = dict.fromkeys((position.path, os.path.realpath(position.path)))
        for base in bases if position.path in self._paths or live else ():
            rotated = [file for path in siblings(base) if (file := self._open_retired(path, position.path, now))]
            found = _matching(position, rotated, anywhere=True)
            newer = _newer(position, found, rotated, live) if found and live else []
            for file in rotated:
                if file is not found and file not in newer:
                    file.close()
            if not found:
                continue
            self._place(found, position.offset, skipping=position.skipping)
            if not live or position.rotated:
                self.files.insert(0, found)
                return [found]
            if live.identity == position.identity:  # it was cut after all of them were copied from it
                for copy in (found, *newer):
                    copy.freeze()
            chain = [found, *newer, live]
            self._counters.rotations += len(chain) - 1
            self._queue(chain)
            return chain
        self._past.append(position)
        if live and not position.rotated:
            self._counters.read_errors += 1
            _logger.warning(
                "%s is not the file whose position was saved, nor is that among its rotated files; reading from its %s",
                position.path,
                self._start,
            )
        return []


def _matching(position: Position, files: Sequence[LogFile], *, anywhere: bool = False) -> LogFile | None:
    """The one of ``files`` that ``position`` is in, by content; ``anywhere``: under whatever path."""
    for file in files:
        if file.identity == position.identity and _holds(position, file):
            return file
    # A copy, or the file itself on a volume that was mounted anew, with other numbers.
    candidates = [file for file in files if anywhere or file.path == position.path]
    return _fullest([file for file in candidates if position.offset and _holds(position, file)])


def _fullest(files: Sequence[LogFile]) -> LogFile | None:
    """The largest of ``files``; of equal ones the last."""
    return max(reversed(files), key=lambda file: file.size_bytes, default=None)


def _newer(position: Position, found: LogFile, rotated: Sequence[LogFile], live: LogFile) -> list[LogFile]:
    """Those of the ``rotated`` files, oldest first, that are newer than the one in which ``position`` was ``found``.

    They were never seen, if that is the file itself, renamed, or a copy made before it was cut; of any other copy the
    age tells nothing. (The number of a device changes when its volume is mounted anew.) Of files that were rotated
    before only the place is known, not what came after.
    """
    newer: list[LogFile] = []
    if position.rotated or position.inode not in {found.identity[1], live.identity[1]}:
        return newer
    for file in rotated[rotated.index(found) + 1 :]:
        if not any(begin_alike(file.head, other.head) for other in (found, *newer, live)):
            newer.append(file)
    return newer


def _holds(position: Position, file: LogFile, start: int = 0) -> bool:
    try:
        return position.holds_in(file.fd, start)
    except OSError:
        return False
