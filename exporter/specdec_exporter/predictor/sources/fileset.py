"""The files that hold a log now: the one under its path, its rotated files, and the order of reading."""

from __future__ import annotations

import contextlib
import itertools
import logging
import os
from collections import deque
from collections.abc import Callable, Collection, Iterable, Sequence
from pathlib import Path
from typing import Literal

from specdec_exporter import bounds
from specdec_exporter.predictor.log.counters import ReaderCounters
from specdec_exporter.predictor.log.lines import LineCutter, Scanner
from specdec_exporter.predictor.sources.contents import (
    continues,
    fullest,
    holds,
    matching,
    newer_than,
    read_of_copy,
)
from specdec_exporter.predictor.sources.logfile import (
    HEAD_BYTES,
    Identity,
    LogFile,
    Position,
    bases_of,
    open_regular,
)
from specdec_exporter.predictor.sources.places import Findings, Place
from specdec_exporter.predictor.sources.rotation import (
    RotatedFiles,
    Sibling,
    base_of,
    begin_alike,
)

_logger = logging.getLogger(__name__)

_MAX_PAST = 4 * bounds.LOG_FILES  # remembered positions in closed files

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
        self._rotated = RotatedFiles()
        self._past: deque[Position] = deque(maxlen=_MAX_PAST)  # in closed files, which may return
        self._unopened: dict[Identity, int] = {}  # size in bytes at the start of files that were not opened then

    def begin(self, findings: Findings, positions: Iterable[Position], now: float) -> None:
        """Take up the files of the first look, at their saved positions or where ``start`` says."""
        self.moved = True
        self._rotated.refresh()
        self._unopened = {place.identity: place.size_bytes for place in findings.left_out}
        for place in findings.places:
            if file := self._open(place.path, now):
                if place.rotated:
                    file.belong(base_of(place.path) or place.path)
                    file.retired_at = now
                self.files.append(file)
            else:
                self._unopened[place.identity] = place.size_bytes
        self._place_saved(positions, now)
        self._note_rotated_files([*map(bases_of, self._paths), *(file.bases for file in self.files)])

    def _place_saved(self, positions: Iterable[Position], now: float) -> None:
        """Place the files of the first look at their saved positions, the others where ``start`` says."""
        placed: list[LogFile] = []
        unmatched: list[Position] = []
        for position in positions:
            if file := matching(position, [file for file in self.files if file not in placed]):
                placed.append(file)
                self._place(file, position.offset, skipping=position.skipping)
            else:
                unmatched.append(position)
        for position in unmatched:
            placed += self._resume_rotated(position, placed, now)
        if self._start == "end":
            for file in [file for file in self.files if file not in placed]:
                self._place(file, None)
        for file in [file for file in placed if file.retired_at is not None]:
            with contextlib.suppress(OSError):
                rest = os.pread(file.fd, HEAD_BYTES, file.seen)
                if any(begin_alike(rest, log.head) for log in self._live(file.path)):
                    self._place(file, file.size_bytes)  # somebody appended the log itself

    def update(self, findings: Findings, now: float) -> None:
        """Take in a further look: which files have left their path, which are new, and what each new file follows."""
        self._rotated.refresh()
        self._close_left_out({place.identity for place in findings.left_out if not place.rotated})
        by_identity = {place.identity: place for place in findings.places}
        stayed = [file for file in self.files if file.retired_at is None]
        left = [file for file in self.files if self._has_left(file, by_identity.pop(file.identity, None), now)]
        for place in by_identity.values():
            if not place.rotated:  # a rotated file is searched for when a file leaves or takes its path
                self._adopt(place, now)
        self._queue_missed(left, now)
        for file in self.files:
            if file.retired_at is None and file in stayed:
                self._note_new_siblings(file)

    def _close_left_out(self, left_out: Collection[Identity]) -> None:
        for file in [file for file in self.files if file.identity in left_out and file.retired_at is None]:
            self.close(file)

    def _queue_missed(self, left: Iterable[LogFile], now: float) -> None:
        """Search for the rotated files that followed those which ``left`` a path that no file has now."""
        taken = {file.path for file in self.files if file.retired_at is None}
        for file in [file for file in left if file.path not in taken]:
            missed = self._missed(file, now)
            self._counters.rotations += len(missed)
            self._queue([file, *missed])

    def _has_left(self, file: LogFile, place: Place | None, now: float) -> bool:
        """Note where an open file is now; return whether it has just left its path."""
        if place is not None and not place.rotated:
            file.belong(place.path)
            file.retired_at = None
            file.replaced = False
        elif file.retired_at is None:
            file.retired_at = now
            self.moved = True
            return True
        return False

    def cut(self, file: LogFile, now: float) -> None:
        """Handle a ``file`` whose content was cut: read the rest of it from a copy, and the file itself anew."""
        if file.retired_at is not None:
            self.close(file)  # a rotated file is cut only to be replaced by a copy
            return
        self._counters.truncations += 1
        self.moved = True
        self._rotated.refresh()  # the copy may be new
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
        if any(continues(file, log.position()) for log in self._live(file.path)):
            self._place(file, file.size_bytes)

    def _live(self, path: str) -> list[LogFile]:
        return [file for file in self.files if file.path == path and file.retired_at is None]

    def lose(self, file: LogFile, error: OSError) -> None:
        """Close ``file``, which cannot be read any more. If it returns, go on at the same place."""
        self.troubles[file.path] = error.strerror or str(error)
        self._forget(file)

    def close(self, file: LogFile) -> None:
        """Close ``file``, which was read to its end."""
        self._rotated.remember(file.bases, file.identity, file.head)
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
        read_bytes = read_of_copy(before, file)
        past = self._saved_position(file)
        if past and past.offset >= read_bytes:
            self._past.remove(past)
            self.files.append(file)
            self._place(file, past.offset, skipping=past.skipping)
            return
        self.files.append(file)
        missed = self._missed(before or file, now)
        self._counters.rotations += len(missed) + (before is not None)
        if before is not None and read_bytes:
            # A log that was replaced by its copy was not rotated, so the files that were are older.
            skipping = before.cutter.skipping and read_bytes == before.offset
            self._place(file, read_bytes, skipping=skipping, seen=before.seen)
            self._queue([*missed, before, file])
        else:
            unopened = self._unopened.pop(file.identity, None) if before is None and self._start == "end" else None
            if unopened is not None:
                self._place(file, None, size_bytes=min(unopened, file.size_bytes))
            self._queue([*([before] if before else []), *missed, file])
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
            self._rotated.look(base, self._open_heads())

    # --- rotated files -----------------------------------------------------------------------------------------------

    def rotated_paths(self, base: str) -> list[str]:
        """Return the rotated files of the log at ``base``, oldest first, as of the last look."""
        return self._rotated.paths(base)

    def _note_new_siblings(self, file: LogFile) -> None:
        """Note rotated files that appear while ``file`` stays under its path.

        Rotation did not make them: somebody copied, edited or restored a file. A copy may have taken the name of an
        open file that still has another, like the target of a link. A later start would read what was added to it.
        """
        if not self._rotated.directory_changed(file.path, file.bases):
            return
        rotated = self._rotated.of(file.bases, self._open_heads())
        identities = {sibling.identity for sibling in rotated}
        with contextlib.suppress(OSError):
            status = Path(file.path).stat()
            if (status.st_dev, status.st_ino) != file.identity:
                return  # a rotation came in between
            for sibling in rotated:
                if sibling.new:
                    self._rotated.remember(file.bases, sibling.identity, sibling.head)
            for old in self.files:
                if old.retired_at is not None and old.path == file.path:
                    copied = any(begin_alike(sibling.head, old.head) for sibling in rotated)
                    old.replaced = copied and old.identity not in identities

    def _missed(self, file: LogFile, now: float) -> list[LogFile]:
        """Open rotated files of the same log that were never seen under its path, oldest first."""
        all_rotated = self._rotated.of(file.bases, self._open_heads())
        # Files rotated after ``file`` come after it. Somebody edited, restored or copied those before it.
        begin = next((index for index, sibling in enumerate(all_rotated) if sibling.identity == file.identity), 0)
        for sibling in all_rotated[:begin]:
            self._rotated.remember(file.bases, sibling.identity, sibling.head)
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
        for sibling in self._rotated.of(file.bases, self._open_heads()):
            if sibling.identity == file.identity:
                break  # it was cut and then rotated, so newer files are no copies
            if other := self._open_retired(sibling.path, file.path, now):
                rotated.append((sibling, other))
        copy = fullest([other for _, other in rotated if lost.offset and holds(lost, other)])
        copies: list[LogFile] = []
        for sibling, other in rotated:
            if other is copy or (sibling.new and (copies or copy is None)):
                copies.append(other)
            else:
                self._rotated.remember(other.bases, other.identity, other.head)
                other.close()
        if copy is not None:  # otherwise they may be files that were renamed
            for other in copies:
                other.freeze()
            # The scanner moves to the copy, because lines that belong together may stand on both sides of the place.
            copy.cutter.scanner, file.cutter.scanner = file.cutter.scanner, copy.cutter.scanner
            end = lost.offset
            while holds(lost, copy, start=end):  # somebody appended the log to its copy
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

    # --- positions -------------------------------------------------------------------------------------------------

    def _saved_position(self, file: LogFile) -> Position | None:
        """Return where reading of ``file`` stopped, if it was read before."""
        return next((past for past in reversed(self._past) if matching(past, [file])), None)

    def _resume_rotated(self, position: Position, placed: Sequence[LogFile], now: float) -> list[LogFile]:
        """Find the file of ``position`` among the rotated files and queue it; return all files that this places."""
        live = next((file for file in self.files if file.path == position.path and file not in placed), None)
        for base in bases_of(position.path) if position.path in self._paths or live else ():
            if chain := self._resume_chain(position, base, live, now):
                return chain
        for file in placed:
            if live and file.retired_at is not None and continues(file, position):  # the log was truncated then
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

    def _resume_chain(self, position: Position, base: str, live: LogFile | None, now: float) -> list[LogFile]:
        """Go on in the file of ``position``, rotated from ``base``, then in those up to ``live``; none: it is gone."""
        paths = self.rotated_paths(base)
        rotated = [file for path in paths if (file := self._open_retired(path, position.path, now))]
        found = matching(position, rotated, anywhere=True)
        newer = newer_than(position, found, rotated, live) if found and live else []
        for file in rotated:
            if file is not found and file not in newer:
                file.close()
        if not found:
            return []
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
