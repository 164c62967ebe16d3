"""Counters over time: reset-corrected totals and what happened within a window, by the exporter's own clock."""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

from specdec_exporter.speculation.acceptance import Counts


class Sample(NamedTuple):
    """Reset-corrected totals (since the first sample) at a moment of the monotonic clock, seconds."""

    at: float
    totals: Counts


class Window(NamedTuple):
    """What happened in the ``seconds`` up to the last sample."""

    seconds: float
    counts: Counts


class SampleRing:
    """The samples of one engine's counters that windows of up to ``window_seconds`` need.

    A counter that falls means that the predictor restarted: what it shows now happened since then (Prometheus counts
    increases the same way). So do counters that are all gone: those of a running process stay. Samples closer than 1/60
    of the window replace each other, so that memory does not depend on how often, or by how many servers, the exporter
    is scraped.
    """

    def __init__(self, window_seconds: float) -> None:
        self._window = window_seconds
        self._samples: deque[Sample] = deque()
        self._raw = Counts()
        self.totals = Counts()
        self.resets = 0

    def add(self, now: float, raw: Counts, *, restarted: bool = False) -> None:
        """Take the counters as read at ``now``; times must not go back.

        ``restarted`` says that another process counted them than those before, whatever they show.
        """
        if self._samples:
            gone = raw == Counts() and self._raw != Counts()
            if restarted or gone or raw.fell_below(self._raw):
                self.resets += 1
                self._raw = Counts()  # figures not shown now too: they must not fill gaps in the new process' ones
            raw = raw.or_else(self._raw)
            self.totals += raw - self._raw
        self._raw = raw
        spacing = self._window / 60
        if len(self._samples) > 1 and now - self._samples[-2].at < spacing:
            self._samples.pop()
        self._samples.append(Sample(now, self.totals))
        while len(self._samples) > 2 and self._samples[1].at <= now - self._window:
            self._samples.popleft()

    def window(self, seconds: float, now: float) -> Window | None:
        """What happened in the ``seconds`` up to ``now``; ``None`` where no two samples tell.

        Starts at the newest sample that is at least that old; if sampling paused and that one is more than half as old
        again, at the first sample within the span.
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
