"""The engine-init line in the part of a log that was written before the exporter started.

vLLM prints this line once, when it starts. No other line names method, draft model and k. So the exporter searches the
part of the log that it does not count, newest file first, in small steps, until it finds one.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Generator, Iterable

import msgspec

from specdec_exporter.predictor.log.counters import ReaderCounters
from specdec_exporter.predictor.log.events import EngineConfig
from specdec_exporter.predictor.log.lines import LineCutter, Scanner
from specdec_exporter.predictor.sources.logfile import open_regular


def search_config(
    files: Iterable[tuple[str, int | None]], scanner_factory: Callable[[], Scanner], buffer: bytearray
) -> Generator[int, None, EngineConfig | None]:
    """Search files ``(path, bytes from the start to search)`` in the order given. ``None`` bytes: the whole file.

    Yields after each read, with the number of bytes; the caller may use ``buffer`` meanwhile. Returns the last
    configuration of the first file that has one. Skips files that cannot be read: their follower reports them.
    ``scanner_factory`` gives scanners that need recognise nothing but :class:`EngineConfig`.
    """
    view = memoryview(buffer)
    for path, length in files:
        try:
            fd, status = open_regular(path)
        except OSError:
            continue
        end = status.st_size if length is None else length
        cutter = LineCutter(scanner_factory(), ReaderCounters())  # these bytes count in no metric
        found: EngineConfig | None = None
        offset = 0
        more = True
        try:
            while more:
                count = 0
                with contextlib.suppress(OSError):
                    count = os.preadv(fd, [view[: end - offset]], offset)
                events, done = cutter.cut(buffer, count)
                offset += done
                more = done > 0
                if not more:
                    events = cutter.scanner.finish()
                for event in events:
                    if isinstance(event, EngineConfig):
                        found = msgspec.structs.replace(event, historical=True)
                yield count
        finally:
            os.close(fd)
        if found is not None:
            return found
    return None
