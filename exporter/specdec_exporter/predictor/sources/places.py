"""Finding logs: paths and globs -> the regular files that exist now."""

from __future__ import annotations

import errno
import glob
import os
import re
import stat
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple

from specdec_exporter import bounds

_COMPRESSED: Final = (".gz", ".bz2", ".xz", ".zst", ".lz4", ".zip", ".Z")
# What rotation adds to a log's name: a number or a date.
AGE: Final = re.compile(r"[.-](\d[\dT:_.-]*)(?:\.gz)?", re.ASCII)

Identity = tuple[int, int]  # device and inode; unique only while the file is open


class Place(NamedTuple):
    """A regular file at a path."""

    path: str
    identity: Identity
    size_bytes: int
    modified_ns: int


class Findings(NamedTuple):
    """``places`` has every file once, oldest change first. ``problems`` maps a path to what is wrong with it.

    ``left_out`` are the files beyond :data:`~specdec_exporter.bounds.LOG_FILES`, those that changed longest ago.
    """

    places: tuple[Place, ...]
    problems: dict[str, str]
    left_out: tuple[Place, ...]


def look(patterns: Sequence[str]) -> Findings:
    """Look at every pattern. A path that does not exist is no problem, because it may come later.

    Globs match no compressed files.
    """
    places: dict[Identity, Place] = {}
    problems: dict[str, str] = {}
    for pattern in patterns:
        explicit = not is_glob(pattern)
        for path in [pattern] if explicit else _matches(pattern):
            if (place := _place(path, problems, explicit=explicit)) is not None:
                places.setdefault(place.identity, place)
    by_time = sorted(places.values(), key=lambda place: (place.modified_ns, place.path))
    surplus = max(len(by_time) - bounds.LOG_FILES, 0)
    return Findings(tuple(by_time[surplus:]), problems, tuple(by_time[:surplus]))


def is_glob(pattern: str) -> bool:
    """Whether ``pattern`` is a glob now: a path that exists is a path, whatever is in its name."""
    return glob.has_magic(pattern) and not os.path.lexists(pattern)


def rotated(path: str) -> list[str]:
    """Return what is left of the log at ``path`` under names that rotation gave, newest change first.

    At most :data:`~specdec_exporter.bounds.ROTATED_FILES`; compressed files are left out.
    """
    directory, name = os.path.split(path)
    try:
        names = os.listdir(directory or ".")  # noqa: PTH208  a Path for each name would cost ten times as much
    except OSError:
        return []
    # svlogd, multilog and s6-log name the file that they write to `current`, and the others by their time.
    aged = [
        other
        for other in names
        if (other.startswith(name) and AGE.fullmatch(other, len(name)) and not other.endswith(_COMPRESSED))
        or (name == "current" and other.startswith("@"))
    ]
    found = [_place(os.path.join(directory, other), {}, explicit=False) for other in aged]  # noqa: PTH118
    by_time = sorted((place for place in found if place is not None), key=lambda place: -place.modified_ns)
    return [place.path for place in by_time[: bounds.ROTATED_FILES]]


def open_regular(path: str) -> tuple[int, os.stat_result]:
    """Open a regular file for reading; return descriptor and status. Raises OSError, also for other kinds of files.

    A FIFO stays closed: its writer would block, or die of SIGPIPE, when the exporter ends.
    """
    if kind := _irregularity(Path(path).stat()):
        raise OSError(errno.EINVAL, kind)
    fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    status = os.fstat(fd)
    if kind := _irregularity(status):  # replaced between the two calls
        os.close(fd)
        raise OSError(errno.EINVAL, kind)
    return fd, status


def _irregularity(status: os.stat_result) -> str | None:
    """Say why a file of this kind cannot be read; None for a regular file."""
    if stat.S_ISREG(status.st_mode):
        return None
    if stat.S_ISDIR(status.st_mode):
        return "it is a directory; name the file, or a glob such as DIR/*.log"
    if stat.S_ISFIFO(status.st_mode):
        return "it is a FIFO, which kills the predictor when the exporter ends; pipe it to the exporter's stdin instead"
    return "it is not a regular file"


def _matches(pattern: str) -> list[str]:
    matches = sorted(glob.glob(pattern, recursive=True))  # noqa: PTH207  Path.glob takes no absolute pattern
    return [path for path in matches if not path.endswith(_COMPRESSED)]


def _place(path: str, problems: dict[str, str], *, explicit: bool) -> Place | None:
    """Return the regular file at ``path``; ``None`` where there is none, perhaps with a problem."""
    try:
        status = os.stat(path)  # noqa: PTH116  a Path for each match would double the time of a look
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        problems[path] = error.strerror or str(error)
        return None
    if (reason := _irregularity(status)) is None:
        return Place(path, (status.st_dev, status.st_ino), status.st_size, status.st_mtime_ns)
    if explicit or not Path(path).is_dir():
        problems[path] = reason
    return None
