"""Finding logs: paths and globs -> the regular files that exist now."""

from __future__ import annotations

import dataclasses
import glob
import os
from collections.abc import Collection, Sequence
from pathlib import Path

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
    """``places`` has every file once, oldest change first. ``problems`` maps a path to what is wrong with it."""

    places: tuple[Place, ...]
    problems: dict[str, str]


def look(patterns: Sequence[str], *, ignored: Collection[str] = (), bases: Collection[str] = ()) -> Findings:
    """Look at every pattern. A path that does not exist is no problem, because it may come later.

    Globs match neither ``ignored`` paths nor compressed files. ``bases`` are followed paths, which need not exist now.
    A match is ``rotated`` if it is named like a rotated file of a base or of another match.
    """
    places: dict[Identity, Place] = {}
    problems: dict[str, str] = {}
    for pattern in patterns:
        explicit = not glob.has_magic(pattern) or os.path.lexists(pattern)
        paths = [pattern]
        if not explicit:
            matches = sorted(glob.glob(pattern, recursive=True))  # noqa: PTH207  Path.glob takes no absolute pattern
            uncompressed = [path for path in matches if not path.endswith(COMPRESSED_SUFFIXES)]
            paths = [path for path in uncompressed if os.path.realpath(path) not in ignored]
        known = {*bases, *paths}
        for path in paths:
            try:
                status = Path(path).stat()
            except (FileNotFoundError, NotADirectoryError):
                continue
            except OSError as error:
                problems[path] = error.strerror or str(error)
                continue
            if reason := irregularity(status):
                if explicit or not Path(path).is_dir():
                    problems[path] = reason
                continue
            rotated = not explicit and base_of(path) in known
            identity = (status.st_dev, status.st_ino)
            if identity not in places or (places[identity].rotated and not rotated):
                places[identity] = Place(path, identity, status.st_size, status.st_mtime_ns, rotated)
    return Findings(tuple(sorted(places.values(), key=lambda place: place.modified_ns)), problems)
