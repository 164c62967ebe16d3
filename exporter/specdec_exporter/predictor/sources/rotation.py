"""Rotated files of a log: their names, their order, and which of them are known."""

from __future__ import annotations

import bisect
import contextlib
import dataclasses
import functools
import os
import re
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

from specdec_exporter import bounds
from specdec_exporter.predictor.sources.logfile import HEAD_BYTES, Identity, open_regular

COMPRESSED_SUFFIXES = (".gz", ".bz2", ".xz", ".zst", ".lz4", ".zip", ".Z")

_MAX_GONE = 64  # remembered files that are gone and may be restored
_CLOCK_TICK_NS = 1_000_000_000  # the coarsest modification times, on some network file systems

# logrotate, RotatingFileHandler: vllm.log.3. More digits are a port or a date.
_NUMBERED = re.compile(r"\.(\d{1,4})")
# logrotate's dateext: vllm.log-20261120; TimedRotatingFileHandler: vllm.log.2026-11-20_21; kubelet:
# 0.log.20261120-214452; lumberjack, before the extension: vllm-2026-11-20T21-44-52.000.log.
_DATED = re.compile(r"[._-]\d{4}-?\d\d-?\d\d[\dTZ:._+-]*")
_ROTATED = tuple(re.compile(f"(.+?){suffix.pattern}") for suffix in (_NUMBERED, _DATED))
_LAST_CHARACTERS = frozenset("0123456789TZ:._+-")  # of a rotated name; spares most names the regular expressions


def base_of(path: str) -> str | None:
    """Return the log that a file of this name was rotated from; None if it is not the name of a rotated file."""
    if path[-1:] not in _LAST_CHARACTERS:
        return None
    directory, slash, name = path.rpartition("/")
    for pattern in _ROTATED:
        if match := pattern.fullmatch(name):
            return f"{directory}{slash}{match[1]}"
    return None


def sorted_names(directory: str) -> list[str]:
    """Return the names in ``directory``; none if it is unreadable."""
    with contextlib.suppress(OSError):
        return sorted(os.listdir(directory))  # noqa: PTH208  a Path for each name would cost ten times as much
    return []


def siblings(path: str, names_in: Callable[[str], Sequence[str]] = sorted_names) -> list[str]:
    """Return the newest uncompressed rotated files of ``path``, oldest first by name.

    ``names_in`` gives the sorted names in a directory; it may remember them.
    """
    directory, slash, base = path.rpartition("/")
    names = names_in(f"{directory}{slash}" or ".")
    beginning = base.rpartition(".")[0] or base
    begin = bisect.bisect_left(names, beginning)
    end = bisect.bisect_right(names, f"{beginning}\U0010ffff")
    aged = sorted((age, name) for name in names[begin:end] if (age := _age(name, base)) is not None)
    return [f"{directory}{slash}{name}" for _, name in aged[-bounds.ROTATED_FILES :]]


def _age(name: str, base: str) -> tuple[int, ...] | None:
    """Return a key that sorts rotated files oldest first; None if ``name`` is no rotated file of ``base``."""
    if name.startswith(base):
        middle = name[len(base) :]
        if number := _NUMBERED.fullmatch(middle):
            return 1, -int(number[1])
    else:
        stem, dot, extension = base.rpartition(".")
        extension = dot + extension
        if not stem or not name.startswith(stem) or not name.endswith(extension):
            return None
        middle = name[len(stem) : len(name) - len(extension)]
    if not _DATED.fullmatch(middle):
        return None
    return 0, *map(int, re.findall(r"\d+", middle))


@dataclasses.dataclass(frozen=True, slots=True)
class Sibling:
    """A rotated file of a log. ``new``: it has content that no known file starts with."""

    path: str
    identity: Identity
    head: bytes
    new: bool


class RotatedFiles:
    """The rotated files of logs, and which of them need no reading: those at the start, and those read to their end.

    Their first bytes identify them. Inodes cannot, because these files are closed: an inode may be reused, and somebody
    may copy or restore a file.
    """

    def __init__(self) -> None:
        self._heads: dict[str, dict[Identity, bytes]] = {}  # by base path
        self._modified: dict[str, list[int]] = {}  # modification times of a log's directories, ns, by its path
        self._names_in = functools.cache(sorted_names)  # many logs may share a directory: it is read once in a look

    def refresh(self) -> None:
        """Read the directories again: files may have been renamed or created."""
        self._names_in.cache_clear()

    def paths(self, base: str) -> list[str]:
        """Return the rotated files of the log at ``base``, oldest first, as of the last :meth:`refresh`."""
        return siblings(base, self._names_in)

    def remember(self, bases: Iterable[str], identity: Identity, head: bytes) -> None:
        """Note that a file rotated from these needs no further reading."""
        for base in bases:
            self._heads.setdefault(base, {})[identity] = head

    def of(self, bases: Iterable[str], held: Mapping[Identity, bytes]) -> list[Sibling]:
        """Return the rotated files of one log, oldest first; each once, even if several paths lead to it."""
        found: dict[Identity, Sibling] = {}
        for base in bases:
            for sibling in self.look(base, held):
                if sibling.identity not in found or not sibling.new:
                    found[sibling.identity] = sibling
        return list(found.values())

    def directory_changed(self, path: str, bases: Iterable[str]) -> bool:
        """Whether files may have been created, renamed or deleted beside the log since this was last asked."""
        modified_ns: list[int] = []
        for base in bases:
            with contextlib.suppress(OSError):
                modified_ns.append(Path(base).parent.stat().st_mtime_ns)
        # The clock of a file system is coarse, so a later change may leave the same time.
        settled = all(time.time_ns() - modified > _CLOCK_TICK_NS for modified in modified_ns)
        if settled and self._modified.get(path) == modified_ns:
            return False
        self._modified[path] = modified_ns
        return True

    def look(self, base: str, held: Mapping[Identity, bytes]) -> list[Sibling]:
        """Return the rotated files of ``base``. ``held`` are the first bytes of the open files.

        A file is not new if it is open or starts like an open or known one. At the first look at ``base``, no file is.
        """
        asked_before = base in self._heads
        known = self._heads.setdefault(base, {})
        # A file with the same bytes and another identity is a copy, perhaps of an open file.
        heads = [*known.values(), *held.values()]
        same = set(heads)  # finds most of them at once
        found: list[Sibling] = []
        for path in self.paths(base):
            if (first := _first_bytes(path)) is None:
                continue
            identity, head = first
            grown = bool(known.get(identity)) and head.startswith(known[identity])
            unheld = asked_before and identity not in held and not grown
            new = unheld and head not in same and head != b"" and not any(begin_alike(head, other) for other in heads)
            found.append(Sibling(path, identity, head, new))
            if new:
                heads.append(head)
            else:
                known.pop(identity, None)  # files that exist come last
                known[identity] = head
        gone = len(known.keys() - {sibling.identity for sibling in found})
        for identity in list(known)[: max(0, gone - _MAX_GONE)]:
            del known[identity]
        return found


def begin_alike(head: bytes, known: bytes) -> bool:
    """Whether the first bytes of a file allow that it is a copy of a known file, or that one is the other's beginning.

    Half a line of a known file tells nothing: many logs begin like that.
    """
    return head != b"" and (known.startswith(head) or (b"\n" in known and head.startswith(known)))


def _first_bytes(path: str) -> tuple[Identity, bytes] | None:
    with contextlib.suppress(OSError):
        fd, status = open_regular(path)
        try:
            return (status.st_dev, status.st_ino), os.pread(fd, HEAD_BYTES, 0)
        finally:
            os.close(fd)
    return None
