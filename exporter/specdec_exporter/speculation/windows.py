"""Counters over time: totals corrected for resets, and the counts within a window, by the exporter's own clock."""

from __future__ import annotations

import math
from collections import deque
from typing import NamedTuple

from specdec_exporter.speculation.acceptance import Counts

_BURST_SECONDS = 10.0


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

    ``fastest`` is the most that a counter can grow per second. A larger jump is a glitch: it adds nothing, and if the
    counters return to where they were, they go on from there. Set ``samples`` to keep fewer than 60 per window.
    """

    def __init__(self, window_seconds: float, *, fastest: float = math.inf, samples: int = 60) -> None:
        self._window = window_seconds
        self._fastest = fastest
        self.spacing = window_seconds / samples
        self._before_jump: Sample | None = None  # uncorrected
        self.glitches = 0
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
            if not restarted and (before_jump := self._returned_to(now, raw)):
                self._raw, self._before_jump = before_jump.totals, None
            gone = raw == Counts() and self._raw != Counts()
            before = Sample(self._samples[-1].at, self._raw)
            if restarted or gone or raw.fell_below(self._raw):
                self.resets += 1
                self._raw = Counts()  # nothing of the old process may fill gaps of the new one
            raw = raw.or_else(self._raw)
            increase = raw - self._raw
            if self._is_possible(increase, now - before.at):
                self.totals += increase
            else:
                self.glitches += 1
                self._before_jump = self._before_jump or before
        self._raw = raw
        if len(self._samples) > 1 and now - self._samples[-2].at < self.spacing:
            self._samples.pop()
        self._samples.append(Sample(now, self.totals, self.resets, settled and self.resets == resets))
        while len(self._samples) > 2 and self._samples[1].at <= now - self._window:
            self._samples.popleft()

    def _is_possible(self, increase: Counts, seconds: float) -> bool:
        """Whether counters can grow that much; the tokens of a long prompt count all at once."""
        return increase.largest <= self._fastest * (seconds + _BURST_SECONDS)

    def _returned_to(self, now: float, raw: Counts) -> Sample | None:
        """The sample before the last jump, if the counters are back where they would be without the jump."""
        before = self._before_jump
        if before is None or not raw.fell_below(self._raw) or raw.fell_below(before.totals):
            return None
        increase = raw.or_else(before.totals) - before.totals
        return before if self._is_possible(increase, now - before.at) else None

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
