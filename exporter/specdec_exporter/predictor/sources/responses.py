"""Saved responses from files or a pipe, read once. The readers are those of logs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, cast

from specdec_exporter.predictor.log.counters import ReaderCounters
from specdec_exporter.predictor.responses import ResponseScanner, SavedLine
from specdec_exporter.predictor.sources.inputs import LogInputs

if TYPE_CHECKING:
    from specdec_exporter.predictor.log.lines import Scanner


def _scanner(counters: ReaderCounters, header: str | None) -> Scanner:
    # The readers pass on what a scanner finds and do not look at it, so it need not be an event of a log.
    return cast("Scanner", ResponseScanner(counters, header=header))


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
