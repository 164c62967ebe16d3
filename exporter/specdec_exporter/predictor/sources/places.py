"""Finding logs: paths and globs -> the regular files that exist now, and the files beside a log."""

from __future__ import annotations

import contextlib
import dataclasses
import glob
import os
import re
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path

from specdec_exporter import bounds
from specdec_exporter.predictor.sources.logfile import Identity, irregularity

COMPRESSED_SUFFIXES = (".gz", ".bz2", ".xz", ".zst", ".lz4", ".zip", ".Z")


@dataclasses.dataclass(frozen=True, slots=True)
class Place:
    """A regular file at a path."""

    path: str
    identity: Identity
    size_bytes: int
    modified_ns: int


@dataclasses.dataclass(frozen=True, slots=True)
class Findings:
    """``places`` has every file once, oldest change first. ``problems`` maps a path to what is wrong with it.

    ``left_out`` are the files beyond :data:`~specdec_exporter.bounds.LOG_FILES`.
    """

    places: tuple[Place, ...]
    problems: dict[str, str]
    left_out: tuple[Place, ...] = ()


def look(patterns: Sequence[str], *, ignored: Collection[str] = (), active: Collection[Identity] = ()) -> Findings:
    """Look at every pattern. A path that does not exist is no problem, because it may come later.

    Globs match neither ``ignored`` paths nor compressed files. ``active`` files are the last to be left out.
    """
    places: dict[Identity, Place] = {}
    unread = identities(ignored)
    problems: dict[str, str] = {}
    for pattern in patterns:
        explicit = not is_glob(pattern)
        for path in [pattern] if explicit else _matches(pattern):
            place = _place(path, problems, explicit=explicit)
            if place is not None and (explicit or place.identity not in unread):
                places.setdefault(place.identity, place)
    ranked = sorted(places.values(), key=lambda one: (one.identity not in active, -one.modified_ns))
    return Findings(_by_time(ranked[: bounds.LOG_FILES]), problems, tuple(ranked[bounds.LOG_FILES :]))


def is_glob(pattern: str) -> bool:
    """Whether ``pattern`` is a glob now: a path that exists is a path, whatever is in its name."""
    return glob.has_magic(pattern) and not os.path.lexists(pattern)


@dataclasses.dataclass(frozen=True, slots=True)
class Beside:
    """The files beside a log that it may have been rotated to: the newest ``places``, oldest change first.

    ``packed`` are the names of compressed ones.
    """

    places: tuple[Place, ...] = ()
    packed: frozenset[str] = frozenset()


class Directories:
    """The directories of logs, each read once in a look, because many logs may share one.

    ``olddir`` is where rotation moves the files of all logs, if not beside them; ``ignored`` paths are none of a log.
    """

    def __init__(self, olddir: str | None = None, ignored: Collection[str] = ()) -> None:
        self._olddir = olddir
        self._ignored = ignored
        self._names: dict[str, list[str]] = {}

    def refresh(self) -> None:
        """Read the directories again when they are asked for."""
        self._names.clear()

    def times(self, path: str) -> tuple[int, ...]:
        """Return when the directories of the log at ``path`` last changed, ns."""
        found: list[int] = []
        for directory in self._of(path):
            with contextlib.suppress(OSError):
                found.append(Path(directory).stat().st_mtime_ns)
        return tuple(found)

    def _of(self, path: str) -> list[str]:
        """Return the directories to which rotation may move the log at ``path``, or the file that it links to."""
        near = [os.path.dirname(path), os.path.dirname(os.path.realpath(path))]  # noqa: PTH120
        return list(dict.fromkeys([*(each or "." for each in near), *([self._olddir] if self._olddir else [])]))

    def beside(self, path: str) -> Beside:
        """Return the files beside the log at ``path``, itself included. Raises OSError if a directory is unreadable."""
        stems, ignored = _stems(path), identities(self._ignored)
        found: dict[Identity, Place] = {}
        packed: set[str] = set()
        for directory in self._of(path):
            if directory not in self._names:
                self._names[directory] = _names(directory)
            for name in self._names[directory]:
                if not name.startswith(stems):
                    continue
                if name.endswith(COMPRESSED_SUFFIXES):
                    packed.add(name)
                elif (place := _place(os.path.join(directory, name), {}, explicit=False)) is not None:  # noqa: PTH118
                    if place.identity in ignored:
                        continue
                    found.setdefault(place.identity, place)
        return Beside(_by_time(found.values())[-bounds.ROTATED_FILES :], frozenset(packed))


def _names(directory: str) -> list[str]:
    try:
        return os.listdir(directory)  # noqa: PTH208  a Path for each name would cost ten times as much
    except (FileNotFoundError, NotADirectoryError):
        return []


def _stems(path: str) -> tuple[str, ...]:
    """Return how the names begin that rotation gives to the log at ``path``, whatever it adds."""
    name, target = os.path.basename(path), os.path.basename(os.path.realpath(path))  # noqa: PTH119
    stems = [name.rpartition(".")[0] or name]
    if target != name:  # perhaps a link to the newest of several files: vllm-0001.log
        stems.append(re.split(r"\d", target.rpartition(".")[0] or target)[0])
    if name == "current":  # of svlogd, multilog and s6-log, which rename it to its time
        stems.append("@")
    return tuple(stems)


def _by_time(places: Iterable[Place]) -> tuple[Place, ...]:
    return tuple(sorted(places, key=lambda place: (place.modified_ns, place.path)))


def _matches(pattern: str) -> list[str]:
    matches = sorted(glob.glob(pattern, recursive=True))  # noqa: PTH207  Path.glob takes no absolute pattern
    return [path for path in matches if not path.endswith(COMPRESSED_SUFFIXES)]


def _place(path: str, problems: dict[str, str], *, explicit: bool) -> Place | None:
    """Return the regular file at ``path``; ``None`` where there is none, perhaps with a problem."""
    try:
        status = os.stat(path)  # noqa: PTH116  a Path for each match would double the time of a look
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        problems[path] = error.strerror or str(error)
        return None
    if (reason := irregularity(status)) is None:
        return Place(path, (status.st_dev, status.st_ino), status.st_size, status.st_mtime_ns)
    if explicit or not Path(path).is_dir():
        problems[path] = reason
    return None


def identities(paths: Iterable[str]) -> set[Identity]:
    """Return the identities of those ``paths`` that exist."""
    found: set[Identity] = set()
    for path in paths:
        with contextlib.suppress(OSError):
            status = Path(path).stat()
            found.add((status.st_dev, status.st_ino))
    return found
