"""Counters over time: totals corrected for resets, and the counts within a window, by the exporter's own clock."""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

from specdec_exporter.speculation.acceptance import Counts


class Sample(NamedTuple):
    """Totals since the first sample, corrected for resets; ``at`` is seconds of the monotonic clock.

    ``resets`` counts the restarts up to here. ``settled``: the slow time after a start was over.
    """

    at: float
    totals: Counts
    resets: int = 0
    settled: bool = True


class Window(NamedTuple):
    """The counts of the ``seconds`` before the last sample."""

    seconds: float
    counts: Counts


class SampleRing:
    """The samples of one engine's counters for windows of up to ``window_seconds``.

    A falling counter means a restart: its whole value is new, as in Prometheus' ``increase()``. All counters missing
    also means a restart; a running process never drops them. A sample replaces the previous one if less than 1/60 of
    the window lies between them, so that memory does not depend on how often the exporter is scraped.
    """

    def __init__(self, window_seconds: float) -> None:
        self._window = window_seconds
        self._samples: deque[Sample] = deque()
        self._raw = Counts()
        self.totals = Counts()
        self.resets = 0

    def add(self, now: float, raw: Counts, *, restarted: bool = False, settled: bool = True) -> None:
        """Add the counters read at ``now``; times must not go back.

        ``restarted``: another process counts now. ``settled``: it has left its slow first minutes.
        """
        resets = self.resets
        if self._samples:
            gone = raw == Counts() and self._raw != Counts()
            if restarted or gone or raw.fell_below(self._raw):
                self.resets += 1
                self._raw = Counts()  # nothing of the old process may fill gaps of the new one
            raw = raw.or_else(self._raw)
            self.totals += raw - self._raw
        self._raw = raw
        spacing = self._window / 60
        if len(self._samples) > 1 and now - self._samples[-2].at < spacing:
            self._samples.pop()
        self._samples.append(Sample(now, self.totals, self.resets, settled and self.resets == resets))
        while len(self._samples) > 2 and self._samples[1].at <= now - self._window:
            self._samples.popleft()

    @property
    def last(self) -> Sample:
        """The newest sample; there must be one."""
        return self._samples[-1]

    def window(self, seconds: float, now: float) -> Window | None:
        """Return the counts of the ``seconds`` before ``now``; ``None`` without two fitting samples.

        The window starts at the newest sample of at least this age. If sampling paused, and this sample is older than
        1.5 times ``seconds``, the window starts at the first sample within the span.
        """
        start = now - seconds
        if len(self._samples) < 2 or self._samples[-1].at <= start:
            return None
        newest = self._samples[-1]
        first = self._samples[0]
        for sample in self._samples:
            if sample is newest:
                break
            if sample.at <= start or first.at < start - seconds / 2:
                first = sample
        if first.at < start - seconds / 2:
            return None
        return Window(newest.at - first.at, newest.totals - first.totals)
