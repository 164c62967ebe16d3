"""The files that a log leaves behind when it is rotated: their names, their order, and which of them are known."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import re
from collections.abc import Mapping

from specdec_exporter.predictor.sources.logfile import HEAD_BYTES, Identity, open_regular

COMPRESSED_SUFFIXES = (".gz", ".bz2", ".xz", ".zst", ".lz4", ".zip", ".Z")

_MAX_GONE = 64  # files remembered that are no longer there, and may be restored

# logrotate, RotatingFileHandler: vllm.log.3. More digits are a port or a date.
_NUMBERED = re.compile(r"\.(\d{1,4})")
# logrotate's dateext: vllm.log-20261120; TimedRotatingFileHandler: vllm.log.2026-11-20_21; kubelet:
# 0.log.20261120-214452; lumberjack, before the extension: vllm-2026-11-20T21-44-52.000.log.
_DATED = re.compile(r"[._-]\d{4}-?\d\d-?\d\d[\dTZ:._+-]*")


def base_of(path: str) -> str | None:
    """The path whose rotation gave a file this name; None where the name does not look like that."""
    directory, slash, name = path.rpartition("/")
    for suffix in (_NUMBERED, _DATED):
        if match := re.fullmatch(f"(.+?){suffix.pattern}", name):
            return f"{directory}{slash}{match[1]}"
    return None


def siblings(path: str) -> list[str]:
    """Paths of the uncompressed rotated files of ``path``, oldest first by name; none in an unreadable directory."""
    directory, slash, base = path.rpartition("/")
    names: list[str] = []
    with contextlib.suppress(OSError):
        names = [entry.name for entry in os.scandir(f"{directory}{slash}" or ".")]
    aged = sorted((age, name) for name in names if (age := _age(name, base)) is not None)
    return [f"{directory}{slash}{name}" for _, name in aged]


def _age(name: str, base: str) -> tuple[int, ...] | None:
    """A key that sorts a log's rotated files oldest first; None for the name of anything else."""
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
    """A rotated file of a log. ``new``: it has content, and no known file starts with the same bytes."""

    path: str
    identity: Identity
    head: bytes
    new: bool


class KnownRotatedFiles:
    """Rotated files that need not be read: they were there at the start, or were read to their end.

    They are recognised by their first bytes. They are not held open, so their inodes may be reused, and somebody may
    copy or restore them.
    """

    def __init__(self) -> None:
        self._heads: dict[str, dict[Identity, bytes]] = {}  # by base path

    def add(self, base: str, identity: Identity, head: bytes) -> None:
        """Remember a file rotated from ``base``."""
        self._heads.setdefault(base, {})[identity] = head

    def look(self, base: str, held: Mapping[Identity, bytes]) -> list[Sibling]:
        """Rotated files of ``base``, oldest first. A file is not new if it is ``held`` open or starts like one that is.

        At the first look at ``base`` no file is new: there is no earlier look to compare with.
        """
        asked_before = base in self._heads
        known = self._heads.setdefault(base, {})
        # The same bytes under another number are a copy, of a file that is being read as well.
        heads = [*known.values(), *held.values()]
        found: list[Sibling] = []
        for path in siblings(base):
            identity, head = _first_bytes(path)
            if identity is None:
                continue
            unheld = asked_before and identity not in held
            new = unheld and head != b"" and not any(begin_alike(head, other) for other in heads)
            found.append(Sibling(path, identity, head, new))
            if new:
                heads.append(head)
            else:
                known.pop(identity, None)  # what is there stands last
                known[identity] = head
        gone = len(known.keys() - {sibling.identity for sibling in found})
        for identity in list(known)[: max(0, gone - _MAX_GONE)]:
            del known[identity]
        return found


def begin_alike(one: bytes, other: bytes) -> bool:
    """Whether one of two files may be a copy of the other, or a part of one, as far as their first bytes tell."""
    length = min(len(one), len(other))
    return length > 0 and one[:length] == other[:length]


def _first_bytes(path: str) -> tuple[Identity | None, bytes]:
    try:
        fd, status = open_regular(path)
    except OSError:
        return None, b""
    try:
        return (status.st_dev, status.st_ino), os.pread(fd, HEAD_BYTES, 0)
    except OSError:
        return None, b""
    finally:
        os.close(fd)
