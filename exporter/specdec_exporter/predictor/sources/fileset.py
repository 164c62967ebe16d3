"""The files that hold a log now: the one under its path, its rotated files, and the order of reading."""

from __future__ import annotations

import contextlib
import functools
import itertools
import logging
import os
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Literal

from specdec_exporter import bounds
from specdec_exporter.predictor.log.counters import ReaderCounters
from specdec_exporter.predictor.log.lines import CHUNK_BYTES, LineCutter, Scanner
from specdec_exporter.predictor.sources.logfile import (
    HEAD_BYTES,
    Identity,
    LogFile,
    Position,
    bases_of,
    common_length,
    open_regular,
)
from specdec_exporter.predictor.sources.places import Findings, Place
from specdec_exporter.predictor.sources.rotation import (
    KnownRotatedFiles,
    Sibling,
    base_of,
    begin_alike,
    siblings,
    sorted_names,
)

_logger = logging.getLogger(__name__)

_MAX_PAST = 4 * bounds.LOG_FILES  # remembered positions in closed files
_CLOCK_TICK_NS = 1_000_000_000  # the coarsest modification times, on some network file systems

Start = Literal["end", "start"]


class FileSet:
    """The open files of one predictor. ``files`` are in the order of reading: each after its predecessor.

    ``troubles`` maps each unreadable path to the reason. ``moved`` says that the set has changed. Times are seconds of
    the caller's clock. Problems with files raise nothing.
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
        self._past: deque[Position] = deque(maxlen=_MAX_PAST)  # in closed files, which may return
        self._directories: dict[str, list[int]] = {}  # modification times of a log's directories, ns, by its path
        self._unopened: dict[Identity, int] = {}  # size in bytes at the start of files that were not opened then
        self._names_in = functools.cache(sorted_names)  # many logs may share a directory: it is read once in a look

    def begin(self, findings: Findings, positions: Iterable[Position], now: float) -> None:
        """Take up the files of the first look, at their saved positions or where ``start`` says."""
        self.moved = True
        self._names_in.cache_clear()
        self._unopened = {place.identity: place.size_bytes for place in findings.left_out}
        for place in findings.places:
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
        for file in [file for file in placed if file.retired_at is not None]:
            with contextlib.suppress(OSError):
                rest = os.pread(file.fd, HEAD_BYTES, file.seen)
                if any(begin_alike(rest, log.head) for log in self._live(file.path)):
                    self._place(file, file.size_bytes)  # somebody appended the log itself
        self._note_rotated_files([*map(bases_of, self._paths), *(file.bases for file in self.files)])

    def update(self, findings: Findings, now: float) -> None:
        """Take in a further look: which files have left their path, which are new, and what each new file follows."""
        self._names_in.cache_clear()
        left_out = {place.identity for place in findings.left_out if not place.rotated}
        for file in [file for file in self.files if file.identity in left_out and file.retired_at is None]:
            self.close(file)
        by_identity = {place.identity: place for place in findings.places}
        left: list[LogFile] = []
        stayed = [file for file in self.files if file.retired_at is None]
        for file in self.files:
            place = by_identity.pop(file.identity, None)
            if place is not None and not place.rotated:
                file.belong(place.path)
                file.retired_at = None
                file.replaced = False
            elif file.retired_at is None:
                file.retired_at = now
                left.append(file)
                self.moved = True
        for place in by_identity.values():
            if not place.rotated:  # a rotated file is searched for when a file leaves or takes its path
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
        """Handle a ``file`` whose content was cut: read the rest of it from a copy, and the file itself anew."""
        if file.retired_at is not None:
            self.close(file)  # a rotated file is cut only to be replaced by a copy
            return
        self._counters.truncations += 1
        self.moved = True
        self._names_in.cache_clear()  # the copy may be new
        self._queue([*self._unread_copies(file, now), file])
        file.cutter.scanner.reset()
        try:
            file.rewind()
        except OSError as error:
            self.lose(file, error)

    def pass_over_copy(self, file: LogFile) -> None:
        """Skip what was added to a rotated ``file`` if somebody appended the log itself to it."""
        if file.retired_at is None:
            return
        if any(_continues(file, log.position()) for log in self._live(file.path)):
            self._place(file, file.size_bytes)

    def _live(self, path: str) -> list[LogFile]:
        return [file for file in self.files if file.path == path and file.retired_at is None]

    def lose(self, file: LogFile, error: OSError) -> None:
        """Close ``file``, which cannot be read any more. If it returns, go on at the same place."""
        self.troubles[file.path] = error.strerror or str(error)
        self._forget(file)

    def close(self, file: LogFile) -> None:
        """Close ``file``, which was read to its end."""
        self._remember(file, file)
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
        # An editor, rsync or overlayfs replaced the file by a copy of itself, whose bytes were read or will be.
        copied = before is not None and not before.is_linked() and _holds(before.position(), file)
        read_bytes = _end_of_common_lines(before, file) if before and copied else 0
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
                skipping = before.cutter.skipping and read_bytes == before.offset
                self._place(file, read_bytes, skipping=skipping, seen=before.seen)
        self._counters.rotations += len(missed)
        older = [before] if before else []
        # A log that was replaced by its copy was not rotated, so the files that were are older.
        self._queue([*missed, *older, file] if read_bytes else [*older, *missed, file])
        self._note_rotated_files([file.bases])

    def _open(self, path: str, now: float) -> LogFile | None:
        """Open ``path``, unless it is open already."""
        try:
            fd, status = open_regular(path)
            file = LogFile(path, fd, status, LineCutter(self._scanner_factory(), self._counters))
        except FileNotFoundError:
            return None
        except OSError as error:
            self.troubles[path] = error.strerror or str(error)
            return None
        if file.identity in self._open_heads():
            file.close()
            return None
        file.grew_at = now
        return file

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

    def _open_heads(self) -> dict[Identity, bytes]:
        return {file.identity: file.head for file in self.files}

    def _queue(self, chain: Sequence[LogFile]) -> None:
        """Make each file of ``chain`` wait for the one before it."""
        for older, newer in itertools.pairwise(chain):
            newer.predecessor = older
        self.files = [*(file for file in self.files if file not in chain), *chain]

    def _note_rotated_files(self, bases: Iterable[Sequence[str]]) -> None:
        """Note the rotated files that exist when a path is first followed."""
        for base in dict.fromkeys(itertools.chain.from_iterable(bases)):
            self._known.look(base, self.rotated_paths(base), self._open_heads())

    # --- rotated files -----------------------------------------------------------------------------------------------

    def rotated_paths(self, base: str) -> list[str]:
        """Return the rotated files of the log at ``base``, oldest first, as of the last look."""
        return siblings(base, self._names_in)

    def _siblings(self, file: LogFile) -> list[Sibling]:
        """Return the rotated files of the same log, oldest first; each once, even if several paths lead to it."""
        found: dict[Identity, Sibling] = {}
        for base in file.bases:
            for sibling in self._known.look(base, self.rotated_paths(base), self._open_heads()):
                if sibling.identity not in found or not sibling.new:
                    found[sibling.identity] = sibling
        return list(found.values())

    def _note_new_siblings(self, file: LogFile) -> None:
        """Note rotated files that appear while ``file`` stays under its path.

        Rotation did not make them: somebody copied, edited or restored a file. A copy may have taken the name of an
        open file that still has another, like the target of a link. A later start would read what was added to it.
        """
        if not self._directory_changed(file):
            return
        rotated = self._siblings(file)
        identities = {sibling.identity for sibling in rotated}
        with contextlib.suppress(OSError):
            status = Path(file.path).stat()
            if (status.st_dev, status.st_ino) != file.identity:
                return  # a rotation came in between
            for sibling in rotated:
                if sibling.new:
                    self._remember(file, sibling)
            for old in self.files:
                if old.retired_at is not None and old.path == file.path:
                    copied = any(begin_alike(sibling.head, old.head) for sibling in rotated)
                    old.replaced = copied and old.identity not in identities

    def _directory_changed(self, file: LogFile) -> bool:
        """Whether files may have been created, renamed or deleted beside ``file`` since this was last asked."""
        modified_ns: list[int] = []
        for base in file.bases:
            with contextlib.suppress(OSError):
                modified_ns.append(Path(base).parent.stat().st_mtime_ns)
        # The clock of a file system is coarse, so a later change may leave the same time.
        settled = all(time.time_ns() - modified > _CLOCK_TICK_NS for modified in modified_ns)
        if settled and self._directories.get(file.path) == modified_ns:
            return False
        self._directories[file.path] = modified_ns
        return True

    def _missed(self, file: LogFile, now: float) -> list[LogFile]:
        """Open rotated files of the same log that were never seen under its path, oldest first."""
        all_rotated = self._siblings(file)
        # Files rotated after ``file`` come after it. Somebody edited, restored or copied those before it.
        begin = next((index for index, sibling in enumerate(all_rotated) if sibling.identity == file.identity), 0)
        for sibling in all_rotated[:begin]:
            self._remember(file, sibling)
        found: list[LogFile] = []
        for sibling in all_rotated[begin:]:
            if sibling.new and (rotated := self._open_retired(sibling.path, file.path, now)):
                found.append(rotated)
                if past := self._saved_position(rotated):  # could not be read for a while
                    self._place(rotated, past.offset, skipping=past.skipping)
        return found

    def _unread_copies(self, file: LogFile, now: float) -> list[LogFile]:
        """Return copies from before ``file`` was cut that hold unread bytes: one of ``file``, then of later content.

        The first goes on where ``file`` stood; the others are read whole.
        """
        lost = file.position()
        rotated: list[tuple[Sibling, LogFile]] = []
        for sibling in self._siblings(file):
            if sibling.identity == file.identity:
                break  # it was cut and then rotated, so newer files are no copies
            if other := self._open_retired(sibling.path, file.path, now):
                rotated.append((sibling, other))
        copy = _fullest([other for _, other in rotated if lost.offset and _holds(lost, other)])
        copies: list[LogFile] = []
        for sibling, other in rotated:
            if other is copy or (sibling.new and (copies or copy is None)):
                copies.append(other)
            else:
                self._remember(other, other)
                other.close()
        if copy is not None:  # otherwise they may be files that were renamed
            for other in copies:
                other.freeze()
            # The scanner moves to the copy, because lines that belong together may stand on both sides of the place.
            copy.cutter.scanner, file.cutter.scanner = file.cutter.scanner, copy.cutter.scanner
            end = lost.offset
            while _holds(lost, copy, start=end):  # somebody appended the log to its copy
                end += lost.offset
            self._place(copy, end, skipping=lost.skipping, seen=file.seen)
        return copies

    def _open_retired(self, path: str, base: str, now: float) -> LogFile | None:
        """Open ``path``, a file rotated from ``base``."""
        file = self._open(path, now)
        if file is not None:
            file.belong(base)
            file.retired_at = now
        return file

    def _remember(self, log: LogFile, rotated: LogFile | Sibling) -> None:
        """Note that the file ``rotated`` from ``log`` needs no further reading."""
        for base in log.bases:
            self._known.add(base, rotated.identity, rotated.head)

    # --- positions -------------------------------------------------------------------------------------------------

    def _saved_position(self, file: LogFile) -> Position | None:
        """Return where reading of ``file`` stopped, if it was read before."""
        return next((past for past in reversed(self._past) if _matching(past, [file])), None)

    def _resume_rotated(self, position: Position, placed: Sequence[LogFile], now: float) -> list[LogFile]:
        """Find the file of ``position`` among the rotated files and queue it; return all files that this places."""
        live = next((file for file in self.files if file.path == position.path and file not in placed), None)
        for base in bases_of(position.path) if position.path in self._paths or live else ():
            paths = self.rotated_paths(base)
            rotated = [file for path in paths if (file := self._open_retired(path, position.path, now))]
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
            if live.identity == position.identity:  # all are copies from before it was cut
                for copy in (found, *newer):
                    copy.freeze()
            chain = [found, *newer, live]
            self._counters.rotations += len(chain) - 1
            self._queue(chain)
            return chain
        for file in placed:
            if live and file.retired_at is not None and _continues(file, position):  # the log was truncated then
                self._place(file, file.seen + position.offset, skipping=position.skipping)
                file.freeze()
                self._queue([file, live])
                return [live]
        self._past.append(position)
        if live and not position.rotated:
            self._counters.read_errors += 1
            _logger.warning(
                "%s is not the file whose position was saved, and no rotated file of it is; reading from its %s",
                position.path,
                self._start,
            )
        return []


def _matching(position: Position, files: Sequence[LogFile], *, anywhere: bool = False) -> LogFile | None:
    """Return the file that has the content of ``position``; ``anywhere``: its path may differ."""
    for file in files:
        if file.identity == position.identity and _holds(position, file):
            return file
    # The numbers differ for a copy, and for the file itself after its volume was mounted anew.
    candidates = [file for file in files if anywhere or file.path == position.path]
    return _fullest([file for file in candidates if position.offset and _holds(position, file)])


def _fullest(files: Sequence[LogFile]) -> LogFile | None:
    """Return the largest of ``files``; of equal ones the last."""
    return max(reversed(files), key=lambda file: file.size_bytes, default=None)


def _newer(position: Position, found: LogFile, rotated: Sequence[LogFile], live: LogFile) -> list[LogFile]:
    """Return the ``rotated`` files, oldest first, that are newer than ``found``, which holds ``position``.

    They are unread if ``found`` is the renamed file itself or a copy from before it was cut. The age of any other copy
    proves nothing. Nothing is known of the files that follow one which was already rotated. Only inodes count here,
    because the number of a device changes when its volume is mounted anew.
    """
    newer: list[LogFile] = []
    if position.rotated or position.inode not in {found.identity[1], live.identity[1]}:
        return newer
    copied = position.inode != found.identity[1]
    for file in rotated[rotated.index(found) + 1 :]:
        if copied and file.modified_ns < found.modified_ns:
            continue  # somebody copied the log by hand and gave the copy an old name
        if not any(begin_alike(file.head, other.head) for other in (found, *newer, live)):
            newer.append(file)
    return newer


def _end_of_common_lines(log: LogFile, copy: LogFile) -> int:
    """Return the end of the whole lines that ``copy`` has like ``log``, from the place of ``log`` on."""
    end = at = log.offset
    with contextlib.suppress(OSError):
        same = CHUNK_BYTES
        while same == CHUNK_BYTES:
            piece, other = (os.pread(file.fd, CHUNK_BYTES, at) for file in (log, copy))
            same = common_length(piece, other)
            if newline := piece.rfind(b"\n", 0, same) + 1:  # there may be none: in a hole, or in a long line
                end = at + newline
            at += same
    return end


def _continues(rotated: LogFile, position: Position) -> bool:
    """Whether somebody appended the log itself, which was read as far as ``position``, to its rotated file."""
    return (
        position.path == rotated.path
        and not position.rotated
        and position.offset > 0
        and _holds(position, rotated, start=rotated.seen)
    )


def _holds(position: Position, file: LogFile, start: int = 0) -> bool:
    try:
        return position.holds_in(file.fd, start)
    except OSError:
        return False
