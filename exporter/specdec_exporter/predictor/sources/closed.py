"""The files that are closed: how far each was read, or that nothing of it is to be read."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator

from specdec_exporter import bounds
from specdec_exporter.predictor.sources.logfile import Identity, LogFile, Position, open_regular
from specdec_exporter.predictor.sources.places import Place

_MOST = 8 * bounds.LOG_FILES


class ClosedFiles:
    """Places in files that are not open, by device and inode. A ``foreign`` one ends where nothing is to be read."""

    def __init__(self) -> None:
        self._known: dict[Identity, Position] = {}

    def __iter__(self) -> Iterator[Position]:
        """Give the places, those that were added last at the end."""
        return iter(self._known.values())

    def get(self, identity: Identity) -> Position | None:
        """Return the place in a file. Another file may have its inode by now."""
        return self._known.get(identity)

    def add(self, position: Position) -> None:
        """Remember a place, and forget the oldest if there are too many."""
        self.forget(position.identity)
        self._known[position.identity] = position
        while len(self._known) > _MOST:
            del self._known[next(iter(self._known))]

    def forget(self, identity: Identity) -> None:
        """Forget a file, which is open now."""
        self._known.pop(identity, None)

    def is_read(self, place: Place) -> bool:
        """Whether a file needs no reading; forgets what another file with its inode was."""
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

    def is_own(self, place: Place) -> bool:
        """Whether a file was read before."""
        self.is_read(place)
        known = self._known.get(place.identity)
        return known is not None and not known.foreign

    def names_of_others(self, places: Iterable[Place]) -> set[str]:
        """Return the names of other logs: a foreign file had such a name before it grew, or before its rotation."""
        read = [(place, self._known[place.identity]) for place in places if self.is_read(place)]
        return {
            known.path
            for place, known in read
            if known.foreign and (place.size_bytes > known.offset or _is_rotated(place.path, known.path))
        }

    def has_copy_of(self, file: LogFile) -> bool:
        """Whether a file of which nothing is to be read is a copy of an open one."""
        return any(known.foreign and known.offset and known.holds_in(file.fd) for known in self)


def _is_rotated(path: str, log: str) -> bool:
    """Whether rotation added something to the name of a log."""
    return path.startswith((f"{log}.", f"{log}-", f"{log}_"))
