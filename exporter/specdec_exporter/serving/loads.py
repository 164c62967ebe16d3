"""What a predictor did by load, since the exporter runs: counters for each bin of concurrency."""

from __future__ import annotations

from dataclasses import dataclass, field

from specdec_exporter.speculation.acceptance import Counts
from specdec_exporter.speculation.cost import StepTimes
from specdec_exporter.speculation.load import Load, bin_of


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
