"""The files that a log leaves behind when it is rotated: their names, their order, and which of them are known."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Collection

from specdec_exporter.predictor.logfile import HEAD_BYTES, Identity, digest, open_regular

COMPRESSED_SUFFIXES = (".gz", ".bz2", ".xz", ".zst", ".lz4", ".zip", ".Z")

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


class Acquaintances:
    """Rotated files that need not be read: they were there before, or were read to the end and closed.

    They are not held open, so that their inodes may be reused: they are recognised by their first bytes as well.
    """

    def __init__(self) -> None:
        self._known: dict[str, dict[Identity, tuple[int, str]]] = {}  # by base path: what its last look found

    def add(self, base: str, identity: Identity, head: bytes) -> None:
        """Remember a file rotated from ``base``."""
        self._known.setdefault(base, {})[identity] = (len(head), digest(head))

    def strangers(self, base: str, held: Collection[Identity]) -> list[str]:
        """Rotated files of ``base`` that are neither ``held`` open nor known, oldest first.

        Where ``base`` was never asked about, everything is an acquaintance: there is no earlier look to compare with.
        """
        known = self._known.get(base)
        found: list[str] = []
        present: dict[Identity, tuple[int, str]] = {}
        for path in siblings(base):
            identity, head = _first_bytes(path)
            if identity is None:
                continue
            if known is not None and identity not in held:
                length, first = known.get(identity, (0, ""))
                if not 0 < length <= len(head) or digest(head[:length]) != first:
                    found.append(path)
                    continue
            present[identity] = (len(head), digest(head))
        self._known[base] = present
        return found


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
