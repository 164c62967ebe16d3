"""Finding logs: paths and globs -> the regular files that exist now."""

from __future__ import annotations

import contextlib
import dataclasses
import glob
import os
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path

from specdec_exporter import bounds
from specdec_exporter.predictor.sources.logfile import Identity, irregularity
from specdec_exporter.predictor.sources.rotation import COMPRESSED_SUFFIXES, base_of


@dataclasses.dataclass(frozen=True, slots=True)
class Place:
    """A regular file at a path. ``rotated``: a glob matched it, but it is named like a followed log's rotated file."""

    path: str
    identity: Identity
    size_bytes: int
    modified_ns: int
    rotated: bool = False


@dataclasses.dataclass(frozen=True, slots=True)
class Findings:
    """``places`` has every file once, oldest change first. ``problems`` maps a path to what is wrong with it.

    ``left_out`` are the files beyond :data:`~specdec_exporter.bounds.LOG_FILES`.
    """

    places: tuple[Place, ...]
    problems: dict[str, str]
    left_out: tuple[Place, ...] = ()


def look(
    patterns: Sequence[str],
    *,
    ignored: Collection[str] = (),
    bases: Collection[str] = (),
    active: Collection[Identity] = (),
) -> Findings:
    """Look at every pattern. A path that does not exist is no problem, because it may come later.

    Globs match neither ``ignored`` paths nor compressed files. ``bases`` are followed paths, which need not exist now.
    A match is ``rotated`` if it is named like a rotated file of a base or of another match. Rotated files are the first
    to be left out, ``active`` files the last.
    """
    places: dict[Identity, Place] = {}
    unread = _identities(ignored)
    problems: dict[str, str] = {}
    for pattern in patterns:
        explicit = not glob.has_magic(pattern) or os.path.lexists(pattern)
        paths = [pattern] if explicit else _matches(pattern)
        known = {*bases, *paths}
        for path in paths:
            status = _status(path, problems, explicit=explicit)
            if status is None or (not explicit and (status.st_dev, status.st_ino) in unread):
                continue
            identity = (status.st_dev, status.st_ino)
            rotated = not explicit and base_of(path) in known
            if identity not in places or (places[identity].rotated and not rotated):
                places[identity] = Place(path, identity, status.st_size, status.st_mtime_ns, rotated)
    ranked = sorted(places.values(), key=lambda one: (one.rotated, one.identity not in active, -one.modified_ns))
    kept = sorted(ranked[: bounds.LOG_FILES], key=lambda place: place.modified_ns)
    return Findings(tuple(kept), problems, tuple(ranked[bounds.LOG_FILES :]))


def _matches(pattern: str) -> list[str]:
    matches = sorted(glob.glob(pattern, recursive=True))  # noqa: PTH207  Path.glob takes no absolute pattern
    return [path for path in matches if not path.endswith(COMPRESSED_SUFFIXES)]


def _status(path: str, problems: dict[str, str], *, explicit: bool) -> os.stat_result | None:
    """Return the status of a regular file; ``None`` where there is none, perhaps with a problem."""
    try:
        status = os.stat(path)  # noqa: PTH116  a Path for each match would double the time of a look
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        problems[path] = error.strerror or str(error)
        return None
    if (reason := irregularity(status)) is None:
        return status
    if explicit or not Path(path).is_dir():
        problems[path] = reason
    return None


def _identities(paths: Iterable[str]) -> set[Identity]:
    """Return the identities of those ``paths`` that exist."""
    found: set[Identity] = set()
    for path in paths:
        with contextlib.suppress(OSError):
            status = Path(path).stat()
            found.add((status.st_dev, status.st_ino))
    return found
