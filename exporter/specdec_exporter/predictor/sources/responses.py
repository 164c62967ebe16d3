"""Where saved responses come from: files that grow, a pipe, or files read once. The readers are those of logs."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, cast

from specdec_exporter.errors import ConfigError
from specdec_exporter.predictor.log.counters import ReaderCounters
from specdec_exporter.predictor.responses import ResponseScanner, SavedLine
from specdec_exporter.predictor.sources.fileset import Start
from specdec_exporter.predictor.sources.inputs import STDIN, LogInputs
from specdec_exporter.predictor.sources.stdin import StreamFollower
from specdec_exporter.predictor.sources.tail import LogFollower

if TYPE_CHECKING:
    from specdec_exporter.predictor.log.events import Event
    from specdec_exporter.predictor.log.lines import Scanner


def _scanner(counters: ReaderCounters, header: str | None) -> Scanner:
    # The readers pass on what a scanner finds and do not look at it, so it need not be an event of a log.
    return cast("Scanner", ResponseScanner(counters, header=header))


class ResponseFollower:
    """Follows saved responses in files (``paths``: also globs), or on stdin if the only path is ``-``.

    ``header`` as for :func:`parse_response`, ``start`` and ``state_path`` as for :class:`LogFollower`. Raises
    :class:`ConfigError` for stdin together with files.
    """

    def __init__(
        self,
        paths: Sequence[str],
        counters: ReaderCounters,
        *,
        header: str | None = None,
        start: Start = "end",
        state_path: str | None = None,
    ) -> None:
        if STDIN in paths and len(paths) > 1:
            raise ConfigError("stdin ('-') cannot be read together with files")
        self._source: LogFollower | StreamFollower
        if STDIN in paths:
            self._source = StreamFollower(sys.stdin.fileno(), _scanner(counters, header), counters=counters)
        else:
            self._source = LogFollower(
                paths, lambda: _scanner(counters, header), counters=counters, start=start, state_path=state_path
            )

    @property
    def problem(self) -> str | None:
        """Why the responses cannot be read; ``None`` if they can."""
        return self._source.problem

    async def begin(self) -> None:
        """Note what the files hold already."""
        await self._source.begin()

    async def follow(self, sink: Callable[[SavedLine], None], stop: asyncio.Event) -> None:
        """Give each line to ``sink`` until ``stop`` is set, then read to the end."""
        await self._source.follow(cast("Callable[[Event], None]", sink), stop)


class ResponseInputs(LogInputs):
    """Saved responses that are read once from start to end, as :class:`LogInputs` reads logs."""

    def __init__(self, paths: Sequence[str], *, header: str | None = None) -> None:
        super().__init__(paths)
        self._header = header

    def lines(self) -> Iterator[SavedLine]:
        """Yield what the lines of all inputs say, in order."""
        return cast("Iterator[SavedLine]", self.events(None))

    def _new_scanner(self, _kinds: frozenset[type] | None) -> Scanner:
        return _scanner(self.counters, self._header)
