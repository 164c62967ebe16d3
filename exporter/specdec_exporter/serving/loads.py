"""What a predictor did by load: its last intervals, and counters for each bin of concurrency."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from specdec_exporter.speculation.acceptance import Counts
from specdec_exporter.speculation.cost import StepTimes
from specdec_exporter.speculation.load import Load, bin_of
from specdec_exporter.speculation.policy import CostPolicy
from specdec_exporter.speculation.windows import Sample


class EngineLoads:
    """The last intervals of one engine. They are kept for ``seconds``."""

    def __init__(self, policy: CostPolicy, seconds: float) -> None:
        self.shortest = policy.interval_seconds  # of an interval
        self._seconds = max(seconds, policy.window_seconds)
        self._start: Sample | None = None
        self._kept: deque[tuple[float, Load]] = deque()  # by their ends

    @property
    def loads(self) -> list[Load]:
        """The intervals, in the order of time."""
        return [load for _, load in self._kept]

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
        elif sample.at - start.at >= self.shortest:
            self._start = sample
            if sample.at - start.at <= self._seconds:
                load = Load(sample.at - start.at, sample.totals - start.totals)
                self._kept.append((sample.at, load.compact))
        while self._kept and self._kept[0][0] <= sample.at - self._seconds:
            self._kept.popleft()
        return load


@dataclass(slots=True)
class LoadTotals:
    """One bin. ``compared_seconds`` are the seconds of steps at a load that the baseline without speculation has too;
    ``plain_seconds`` are those that the same tokens would have taken there.
    """

    load: Load = field(default_factory=lambda: Load(0.0, Counts()))
    compared_seconds: float = 0.0
    plain_seconds: float = 0.0

    def add(self, load: Load, plain: StepTimes | None) -> None:
        """Add what one engine did in an interval."""
        self.load += load
        if plain is not None and (like := plain.at(load.concurrency)) is not None:
            self.compared_seconds += load.step_seconds
            self.plain_seconds += load.tokens * like.seconds.value

    @property
    def speedup(self) -> float | None:
        """The speed-up at like load; ``None`` if nothing was compared."""
        return self.plain_seconds / self.compared_seconds if self.compared_seconds > 0 else None


class LoadCounters:
    """The bins of one served model. There are at most as many as bounds, whatever the load does."""

    def __init__(self) -> None:
        self._bins: dict[int, LoadTotals] = {}

    def add(self, load: Load, plain: StepTimes | None) -> None:
        """Add an interval of one engine, unless it tells nothing about the cost of steps."""
        if load.tells_the_cost:
            self._bins.setdefault(bin_of(load.concurrency), LoadTotals()).add(load, plain)

    def bins(self) -> list[tuple[int, LoadTotals]]:
        """Return the bins that had load, by the bound of their concurrency."""
        return sorted(self._bins.items())
