"""What a predictor did by load: its last intervals, and counters for each bin of concurrency."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field

from specdec_exporter.speculation.acceptance import Counts
from specdec_exporter.speculation.load import Load, bin_of
from specdec_exporter.speculation.policy import CostPolicy, Policy
from specdec_exporter.speculation.steptime import StepTimes
from specdec_exporter.state.windows import Sample

_INTERVALS = 20  # in the shown window, at least
_EARLY = 0.9  # scrapes are not quite regular: every one of a scrape interval as long as an interval ends one


class EngineLoads:
    """The last intervals of one engine. They are kept for ``seconds``."""

    def __init__(self, policy: CostPolicy, seconds: float) -> None:
        # A short window is there to tell soon.
        self._usual = min(policy.interval_seconds, seconds / _INTERVALS)  # seconds of an interval
        self._shortest = self._usual
        self._seconds = max(seconds, policy.window_seconds)
        self._start: Sample | None = None
        self._kept: deque[tuple[float, Load]] = deque()  # by their ends

    @property
    def ended(self) -> Iterable[tuple[float, Load]]:
        """The intervals with their ends, monotonic seconds, in the order of time."""
        return self._kept

    def spread(self, factor: float) -> None:
        """Make intervals so many times as long: many engines keep fewer each."""
        self._shortest = factor * self._usual

    def interrupt(self) -> None:
        """Begin the next interval anew: the last sample was of another process."""
        self._start = None

    def take(self, sample: Sample) -> Load | None:
        """Take in the newest sample; return the interval that it ends, if that is long enough.

        The slow first time after a start is left out. So are long intervals: their mean would hide the load.
        """
        start, load = self._start, None
        if start is None or not start.settled:
            self._start = sample
        elif sample.at - start.at >= _EARLY * self._shortest:
            self._start = sample
            if sample.at - start.at <= self._seconds:
                load = Load(sample.at - start.at, sample.totals - start.totals, sample.at)
                self._kept.append((sample.at, load.compact))
        while self._kept and self._kept[0][0] <= sample.at - self._seconds:
            self._kept.popleft()
        return load


@dataclass(slots=True)
class LoadTotals:
    """One bin. ``compared_seconds``: of its steps at loads and rates of prompts near those of the baseline without
    speculation. ``plain_seconds``: what the same tokens would have taken there.
    """

    load: Load = field(default_factory=lambda: Load(0.0, Counts()))
    compared_seconds: float = 0.0
    plain_seconds: float = 0.0

    def add(self, load: Load, plain: StepTimes | None, policy: Policy) -> None:
        """Add what one engine did in an interval."""
        self.load += load
        if plain is not None and (seconds := plain.seconds(load, policy)) is not None:
            self.compared_seconds += load.step_seconds
            self.plain_seconds += load.tokens * seconds

    @property
    def speedup(self) -> float | None:
        """The speed-up at this load; ``None`` if nothing was compared."""
        return self.plain_seconds / self.compared_seconds if self.compared_seconds > 0 else None


class LoadCounters:
    """The bins of one served model. There are at most as many as bounds, whatever the load does."""

    def __init__(self) -> None:
        self._bins: dict[int, LoadTotals] = {}

    def add(self, load: Load, plain: StepTimes | None, policy: Policy) -> None:
        """Add an interval of one engine that ran steps, unless a preempted request's gap counts as one."""
        if load.ran and not load.counts.preemptions:
            self._bins.setdefault(bin_of(load.concurrency), LoadTotals()).add(load, plain, policy)

    def bins(self) -> list[tuple[int, LoadTotals]]:
        """Return the bins that had load, by the bound of their concurrency."""
        return sorted(self._bins.items())
