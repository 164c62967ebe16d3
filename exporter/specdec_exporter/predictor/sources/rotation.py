"""Rotated files of a log: their names, their order, and which of them are known."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import re
from collections.abc import Mapping

from specdec_exporter.predictor.sources.logfile import HEAD_BYTES, Identity, open_regular

COMPRESSED_SUFFIXES = (".gz", ".bz2", ".xz", ".zst", ".lz4", ".zip", ".Z")

_MAX_GONE = 64  # remembered files that are gone and may be restored

# logrotate, RotatingFileHandler: vllm.log.3. More digits are a port or a date.
_NUMBERED = re.compile(r"\.(\d{1,4})")
# logrotate's dateext: vllm.log-20261120; TimedRotatingFileHandler: vllm.log.2026-11-20_21; kubelet:
# 0.log.20261120-214452; lumberjack, before the extension: vllm-2026-11-20T21-44-52.000.log.
_DATED = re.compile(r"[._-]\d{4}-?\d\d-?\d\d[\dTZ:._+-]*")


def base_of(path: str) -> str | None:
    """Return the log that a file of this name was rotated from; None if it is not the name of a rotated file."""
    directory, slash, name = path.rpartition("/")
    for suffix in (_NUMBERED, _DATED):
        if match := re.fullmatch(f"(.+?){suffix.pattern}", name):
            return f"{directory}{slash}{match[1]}"
    return None


def siblings(path: str) -> list[str]:
    """Return the uncompressed rotated files of ``path``, oldest first by name; none if the directory is unreadable."""
    directory, slash, base = path.rpartition("/")
    names: list[str] = []
    with contextlib.suppress(OSError):
        names = [entry.name for entry in os.scandir(f"{directory}{slash}" or ".")]
    aged = sorted((age, name) for name in names if (age := _age(name, base)) is not None)
    return [f"{directory}{slash}{name}" for _, name in aged]


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


class KnownRotatedFiles:
    """Rotated files that need no reading: they were there at the start, or were read to their end.

    Their first bytes identify them. Inodes cannot, because these files are closed: an inode may be reused, and somebody
    may copy or restore a file.
    """

    def __init__(self) -> None:
        self._heads: dict[str, dict[Identity, bytes]] = {}  # by base path

    def add(self, base: str, identity: Identity, head: bytes) -> None:
        """Remember a file rotated from ``base``."""
        self._heads.setdefault(base, {})[identity] = head

    def look(self, base: str, held: Mapping[Identity, bytes]) -> list[Sibling]:
        """Return the rotated files of ``base``, oldest first. ``held`` are the first bytes of the open files.

        A file is not new if it is open or starts like an open or known one. At the first look at ``base``, no file is.
        """
        asked_before = base in self._heads
        known = self._heads.setdefault(base, {})
        # A file with the same bytes and another identity is a copy, perhaps of an open file.
        heads = [*known.values(), *held.values()]
        found: list[Sibling] = []
        for path in siblings(base):
            if (first := _first_bytes(path)) is None:
                continue
            identity, head = first
            unheld = asked_before and identity not in held
            new = unheld and head != b"" and not any(begin_alike(head, other) for other in heads)
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


def begin_alike(one: bytes, other: bytes) -> bool:
    """Whether the first bytes of two files allow that one is a copy of the other, or of its beginning."""
    length = min(len(one), len(other))
    return length > 0 and one[:length] == other[:length]


def _first_bytes(path: str) -> tuple[Identity, bytes] | None:
    with contextlib.suppress(OSError):
        fd, status = open_regular(path)
        try:
            return (status.st_dev, status.st_ino), os.pread(fd, HEAD_BYTES, 0)
        finally:
            os.close(fd)
    return None
