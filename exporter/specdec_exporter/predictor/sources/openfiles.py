"""The files that are open, in the order of reading."""

from __future__ import annotations

import contextlib
import itertools
import logging
import math
from collections.abc import Callable, Sequence

import msgspec

from specdec_exporter.predictor.log.counters import ReaderCounters
from specdec_exporter.predictor.log.lines import LineCutter, Scanner
from specdec_exporter.predictor.sources.closed import ClosedFiles
from specdec_exporter.predictor.sources.logfile import LogFile, Position, open_regular
from specdec_exporter.predictor.sources.places import Place

_logger = logging.getLogger(__name__)

_SAY_AGAIN_SECONDS = 60.0


class OpenFiles:
    """``files`` are in the order of reading: each after its predecessor. ``moved`` says that they have changed.

    ``troubles`` maps each unreadable path to the reason. Problems with files raise nothing.
    """

    def __init__(self, scanner_factory: Callable[[], Scanner], counters: ReaderCounters) -> None:
        self.files: list[LogFile] = []
        self.troubles: dict[str, str] = {}
        self.moved = False
        self._scanner_factory = scanner_factory
        self._counters = counters
        self._closed = ClosedFiles()
        self._said_gap_at = -math.inf

    @property
    def positions(self) -> list[Position]:
        """Where reading stands in each file that a later start can find, the open ones last."""
        return [*self._closed, *(file.position() for file in self.files if file.links)]

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

    def lose(self, file: LogFile, error: OSError) -> None:
        """Close ``file``, which cannot be read any more. If it returns, go on at the same place."""
        self.troubles[file.path] = error.strerror or str(error)
        self.close(file)

    def close(self, file: LogFile) -> None:
        """Close ``file``, and remember how far it was read."""
        self._closed.add(file.position())
        file.close()
        if file in self.files:
            self.files.remove(file)
        self.moved = True

    def _is_copy(self, file: LogFile, *, of_another: bool = False) -> bool:
        """Whether ``file`` is a copy of an open log, perhaps while it is made; ``of_another``: with another path."""
        with contextlib.suppress(OSError):
            return file.is_copy_of(each for each in self.files if not of_another or each.path != file.path)
        return False

    def _take_up(self, file: LogFile, position: Position) -> None:
        self._closed.forget(position.identity)
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

    def _is_replaced(self, before: LogFile, file: LogFile) -> bool:
        """Whether an editor, rsync or overlayfs replaced the log by a copy of itself, which then goes on."""
        with contextlib.suppress(OSError):
            if same := before.end_in(file):
                self._place(file, same, skipping=before.cutter.skipping and same == before.offset, seen=before.seen)
                return True
        return False

    def _was(self, live: LogFile, file: LogFile) -> bool:
        """Whether ``live`` was ``file`` at the last look, and was cut since. Its beginning may still be the same."""
        return file.size_bytes > 0 and live.position().holds_in(file.fd) and not self._is_copy(file)

    def _ignore(self, file: LogFile, place: Place) -> None:
        """Close a file that is not of this log, or was before we came; nothing of it is to be read."""
        with contextlib.suppress(OSError):
            file.place(file.size_bytes)
            self._closed.add(msgspec.structs.replace(file.position(), path=place.path, foreign=True))
        file.close()

    def _note_gap(self, path: str, why: str, now: float) -> None:
        self._counters.gaps += 1
        if now - self._said_gap_at >= _SAY_AGAIN_SECONDS:
            self._said_gap_at = now
            _logger.warning("lines of the log %s may be missing: %s", path, why)

    def _queue(self, chain: Sequence[LogFile]) -> None:
        """Make each file of ``chain`` wait for the one before it."""
        for older, newer in itertools.pairwise(chain):
            newer.predecessor = older
        self.files += [file for file in chain if file not in self.files]
