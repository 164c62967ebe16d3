"""The engine-init line in what was written before the exporter came.

It is printed once, when the predictor starts, and it is the only source of method, draft model and k. So the part of a
log that is not counted is still searched for it: newest file first, in bounded steps, until one is found.
"""

from __future__ import annotations

import contextlib
import os
from collections import deque
from collections.abc import Callable, Iterable

import msgspec

from specdec_exporter.predictor.log.counters import ReaderCounters
from specdec_exporter.predictor.log.events import EngineConfig
from specdec_exporter.predictor.log.lines import LineCutter, Scanner
from specdec_exporter.predictor.sources.logfile import open_regular


class ConfigSearch:
    """Searches files ``(path, bytes from the start to search)`` in the order given. ``None`` bytes: the whole file.

    ``scanner_factory`` gives scanners that need recognise nothing but :class:`EngineConfig`. Files that cannot be
    read are passed over: who follows them complains.
    """

    def __init__(self, files: Iterable[tuple[str, int | None]], scanner_factory: Callable[[], Scanner]) -> None:
        self._files = deque(files)
        self._scanner_factory = scanner_factory
        self._fd = -1
        self._offset = 0
        self._end = 0
        self._found: EngineConfig | None = None
        self._cutter: LineCutter | None = None

    @property
    def done(self) -> bool:
        """Nothing left to search."""
        return self._fd < 0 and not self._files

    def close(self) -> None:
        """Give up."""
        self._files.clear()
        self._close_file()

    def step(self, buffer: bytearray, view: memoryview, max_bytes: int) -> EngineConfig | None:
        """Search about ``max_bytes``; return the last configuration of the first file that has one, then be done."""
        while max_bytes > 0 and not self.done:
            if self._fd < 0 and not self._open_next():
                continue
            count, done = self._read(buffer, view)
            max_bytes -= count
            if done:
                continue
            self._close_file()
            if self._found is not None:
                self.close()
                return self._found
        return None

    def _open_next(self) -> bool:
        path, length = self._files.popleft()
        try:
            self._fd, status = open_regular(path)
        except OSError:
            return False
        self._offset = 0
        self._end = status.st_size if length is None else length
        # What is skipped here is not skipped of what is counted.
        self._cutter = LineCutter(self._scanner_factory(), ReaderCounters())
        return True

    def _read(self, buffer: bytearray, view: memoryview) -> tuple[int, int]:
        """Bytes read and bytes done with; none are done with at the end of the part to search."""
        count = done = 0
        if self._cutter is None:
            return count, done
        with contextlib.suppress(OSError):
            count = os.preadv(self._fd, [view[: self._end - self._offset]], self._offset)
        events, done = self._cutter.cut(buffer, count)
        self._offset += done
        if not done:
            events = self._cutter.scanner.finish()
        for event in events:
            if isinstance(event, EngineConfig):
                self._found = msgspec.structs.replace(event, historical=True)
        return count, done

    def _close_file(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
        self._cutter = None
