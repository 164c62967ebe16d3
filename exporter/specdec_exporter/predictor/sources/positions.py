"""The file of read positions (``--predictor.log-state``), so that a restarted exporter goes on where it stopped.

It holds positions, not counts: Prometheus expects counters to restart at 0, but unread lines would be lost. If the file
cannot be used, the exporter starts without it.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Literal

import msgspec

from specdec_exporter import bounds
from specdec_exporter.predictor.log.counters import ReaderCounters
from specdec_exporter.predictor.sources.logfile import LogFile, Position, open_regular
from specdec_exporter.predictor.sources.places import matches

_logger = logging.getLogger(__name__)

_MAX_BYTES = 4 * 1024 * 1024
_TAG = b"specdec_log_positions"
_HEAD_BYTES = 64


class Saved(msgspec.Struct, frozen=True, kw_only=True):
    """What a start can go on from: places in the files of the logs at ``paths``."""

    version: Literal[2] = msgspec.field(name="specdec_log_positions", default=2)
    paths: tuple[str, ...] = ()
    files: tuple[Position, ...] = ()

    def last_places(self, patterns: Sequence[str]) -> dict[str, Position]:
        """Return where reading stopped of each log that ``patterns`` find, by its path."""
        live = [one for one in self.files if not one.rotated and not one.foreign]
        return {one.path: one for one in live if matches(one.path, patterns)}

    def is_older_than(self, file: LogFile) -> bool:
        """Whether a file came after the positions were saved, when all files of its path were known."""
        known = matches(file.path, self.paths)
        return known and file.modified_ns >= max((one.modified_ns for one in self.files), default=0)


class PositionFile:
    """Reads and writes the position file at ``path``. Never raises; counts each failure and logs a problem once."""

    def __init__(self, path: str, counters: ReaderCounters) -> None:
        self.path = path
        self.temporary_path = f"{path}.tmp"
        self._counters = counters
        self._failing = False
        self._written: tuple[Saved, bool] | None = None

    def load(self) -> Saved:
        """Return what was saved; nothing if the file is missing or unusable."""
        try:
            fd, status = open_regular(self.path)
            try:
                content = os.pread(fd, _MAX_BYTES, 0)
            finally:
                os.close(fd)
        except FileNotFoundError:
            return Saved()
        except OSError as error:
            return self._unusable(error.strerror or str(error))
        if status.st_size > len(content):
            return self._unusable(f"it has {status.st_size} bytes, too many for a position file")
        try:
            saved = msgspec.json.decode(content, type=Saved)
        except (msgspec.DecodeError, ValueError, RecursionError) as error:
            return self._unusable(str(error))
        if len(saved.files) > bounds.SAVED_POSITIONS:
            return self._unusable(f"it has {len(saved.files)} positions, more than {bounds.SAVED_POSITIONS}")
        return saved

    def save(self, paths: Iterable[str], positions: Iterable[Position], *, durable: bool = True) -> bool:
        """Replace the whole file at once; ``durable``: safe from a machine crash. Return whether it was saved.

        Beyond the bound, the last positions are kept.
        """
        # JSON cannot hold a path that is not UTF-8; such a file starts anew.
        files = [one for one in positions if _is_utf8(one.path)][-bounds.SAVED_POSITIONS :]
        saved = Saved(paths=tuple(filter(_is_utf8, paths)), files=tuple(files))
        if self._written in ((saved, durable), (saved, True)):
            return True
        content = msgspec.json.encode(saved)
        try:
            self._replace(content, durable=durable)
        except OSError as error:
            self._written = None
            self._counters.read_errors += 1
            with contextlib.suppress(OSError):
                Path(self.temporary_path).unlink()
            if not self._failing:
                self._failing = True
                _logger.warning("cannot save log positions to %s: %s; going on without them", self.path, error.strerror)
            return False
        self._written = (saved, durable)
        if self._failing:
            self._failing = False
            _logger.info("log positions are saved again to %s", self.path)
        return True

    def _replace(self, content: bytes, *, durable: bool) -> None:
        path = Path(self.path)
        if path.exists() and not path.is_file():  # a device or a FIFO is no file of ours
            raise OSError(errno.EINVAL, "it is not a regular file")
        if self._written is None and not _holds_positions(path):
            raise OSError(errno.EINVAL, "it holds something else")
        with contextlib.suppress(FileNotFoundError):
            Path(self.temporary_path).unlink()  # left by a kill, or another name of somebody's file
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        fd = os.open(self.temporary_path, flags, 0o600)
        try:
            rest = memoryview(content)
            while rest:
                rest = rest[os.write(fd, rest) :]
            if durable:
                os.fsync(fd)
        finally:
            os.close(fd)
        Path(self.temporary_path).replace(path)

    def _unusable(self, reason: str) -> Saved:
        self._counters.read_errors += 1
        _logger.warning("ignoring the log positions in %s: %s", self.path, reason)
        return Saved()


def _holds_positions(path: Path) -> bool:
    """Whether ``path`` may be replaced: it is missing, blank, or has positions, if only torn ones."""
    try:
        with path.open("rb") as file:
            head = file.read(_HEAD_BYTES)
    except FileNotFoundError:
        return True
    return _TAG in head or not head.strip(b"\0\r\n\t ")


def _is_utf8(path: str) -> bool:
    return path == path.encode("utf-8", "replace").decode()
