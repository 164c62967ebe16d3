"""Counters over time: the counts within a window, by the exporter's own clock."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import NamedTuple

from specdec_exporter.speculation.acceptance import Counts, ratio


class Sample(NamedTuple):
    """Totals at ``at``, monotonic seconds. ``settled``: the slow time after a start was over.

    ``load_seconds``: a total too; see :class:`Window`.
    """

    at: float
    totals: Counts
    settled: bool = True
    load_seconds: float = 0.0


class Window(NamedTuple):
    """The counts of the ``seconds`` before the last sample.

    ``load_seconds``: the seconds of request-steps between samples x the requests in decode there, summed. Divided by
    the seconds of all request-steps, the concurrency that a step met: an idle time between bursts counts nothing.
    """

    seconds: float
    counts: Counts
    load_seconds: float = 0.0


def concurrency(windows: Iterable[Window]) -> float | None:
    """Return the requests in decode at a time, per engine, as steps met them; ``None`` if steps are not timed."""
    known = list(windows)
    timed = sum(window.counts.step_seconds or 0.0 for window in known)
    return ratio(sum(window.load_seconds for window in known), timed)


class SampleRing:
    """The samples of one engine's counters for windows of up to ``window_seconds``. Counters never fall here.

    A sample replaces the previous one if less than ``spacing`` seconds lie between them (1/60 of the window, unless set
    otherwise), so that memory does not depend on how often the exporter is scraped.
    """

    def __init__(self, window_seconds: float) -> None:
        self._window = window_seconds
        self.spacing = window_seconds / 60
        self._samples: deque[Sample] = deque()

    def add(self, now: float, totals: Counts, *, settled: bool = True) -> None:
        """Add the totals at ``now``; times must not go back. A figure that is missing stays as it was."""
        samples = self._samples
        if samples:
            totals = totals.or_else(samples[-1].totals)
        if len(samples) > 1 and now - samples[-2].at < self.spacing:
            samples.pop()
        load_seconds = samples[-1].load_seconds + _load_seconds(samples[-1], now, totals) if samples else 0.0
        samples.append(Sample(now, totals, settled, load_seconds))
        while len(samples) > 2 and samples[1].at <= now - self._window:
            samples.popleft()

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
        load_seconds = newest.load_seconds - first.load_seconds
        return Window(newest.at - first.at, newest.totals - first.totals, load_seconds)


def _load_seconds(before: Sample, now: float, totals: Counts) -> float:
    seconds = (totals.step_seconds or 0.0) - (before.totals.step_seconds or 0.0)
    return seconds * (ratio(seconds, now - before.at) or 0.0)
