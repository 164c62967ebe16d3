"""The lines of vLLM's start in the part of a log that was written before the exporter started.

vLLM prints its arguments and the engine-init line once, when it starts. No other line names method, draft model and k.
So the exporter searches the part of the log that it does not count, newest file first, in small steps, until it finds
them.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Generator, Iterable

import msgspec

from specdec_exporter.predictor.log.counters import ReaderCounters
from specdec_exporter.predictor.log.events import EngineConfig, Event
from specdec_exporter.predictor.log.lines import Scanner
from specdec_exporter.predictor.log.start import Start
from specdec_exporter.predictor.sources.places import open_regular
from specdec_exporter.predictor.sources.stream import Pieces


def search_start(
    files: Iterable[tuple[str, int | None]], scanner_factory: Callable[[], Scanner]
) -> Generator[int, None, list[Event]]:
    """Search files ``(path, bytes from the start to search)`` in the order given. ``None`` bytes: the whole file.

    Yields after each read, with the number of bytes. Returns the events of the last start in the first file that has
    arguments or an engine-init line, in the file's order. Skips files that cannot be read: their follower reports them.
    ``scanner_factory`` gives scanners that need recognise nothing but :data:`events.START_KINDS`.
    """
    for path, length in files:
        try:
            fd, status = open_regular(path)
        except OSError:
            continue
        left = status.st_size if length is None else length
        pieces = Pieces(scanner_factory(), ReaderCounters())  # these bytes count in no metric
        found = Start()
        count = 1
        try:
            while count:
                count = 0
                with contextlib.suppress(OSError):
                    count = os.readv(fd, [pieces.space[:left]])
                left -= count
                for event in pieces.take(count) if count else pieces.finish(ended=False):
                    historical = isinstance(event, EngineConfig)
                    found = found.after(msgspec.structs.replace(event, historical=True) if historical else event)
                yield count
        finally:
            os.close(fd)
        if found.config is not None or found.arguments is not None:
            return list(found.events)
    return []
