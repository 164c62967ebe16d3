"""A predictor's log that grows at speed and is rotated, with the truth about what was written."""

from __future__ import annotations

from pathlib import Path

from bench.predictor_log import beginning, make_log
from support.logfiles import Log

_BLOCK_MEGABYTES = 4
_FILE_BYTES = 200_000_000
ROTATED_FILES = 3  # kept beside the one that grows: 0.8 GB at most
_AHEAD_BYTES = 2 * _FILE_BYTES  # the reader must not be further behind, or rotation would delete unread lines


class GrowingLog:
    """Writes the same block of lines again and again, and renames a file that is full."""

    def __init__(self, directory: Path) -> None:
        self.path = directory / "vllm.log"
        self.bytes = self.lines = self.windows = self.accepted_tokens = self.draft_tokens = 0
        self.rotations = 0
        self._log = Log(self.path)
        self._rotated_at = 0  # bytes
        self._made = make_log(directory, _BLOCK_MEGABYTES)
        self._block = self._made.path.read_bytes()[len(beginning()) :]
        self._block_lines = self._block.count(b"\n")
        self._begin()

    def may_grow(self, read_bytes: float) -> bool:
        """Whether the reader keeps up; it has begun a file before that is rotated, as real rotations are far apart."""
        return self.bytes - read_bytes < _AHEAD_BYTES and not (self._is_full and read_bytes <= self._rotated_at)

    def write(self) -> None:
        """Write a block; rotate the file when it is full."""
        if self._is_full:
            self._rotate()
        self._put(self._block, self._block_lines)
        self.windows += self._made.windows
        self.accepted_tokens += self._made.accepted_tokens
        self.draft_tokens += self._made.draft_tokens

    @property
    def _is_full(self) -> bool:
        return self.path.stat().st_size >= _FILE_BYTES

    def _begin(self) -> None:
        # Real files begin with a time, so no two begin alike.
        self._put(b"(APIServer pid=16694) INFO 11-20 21:38:00 [soak.py:1] File %d\n" % self.rotations, 1)

    def _put(self, data: bytes, lines: int) -> None:
        self._log.append(data)
        self.bytes += len(data)
        self.lines += lines

    def _rotate(self) -> None:
        self._rotated_at = self.bytes
        self._log.sibling(f".{ROTATED_FILES}").path.unlink(missing_ok=True)
        self._log.rotate()
        self.rotations += 1
        self._begin()
