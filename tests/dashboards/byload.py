"""What the exporter counts by load, and what drafts cost against a baseline without speculation, for one replica."""

from __future__ import annotations

import functools
from collections import Counter, deque
from collections.abc import Iterator, Sequence

from msgspec.structs import replace

from specdec_exporter.predictor.metrics.exposition import parse_exposition
from specdec_exporter.predictor.metrics.snapshot import EngineSnapshot
from specdec_exporter.simulator.engine import Engine
from specdec_exporter.simulator.exposition import render_metrics
from specdec_exporter.simulator.scenario import ChangeLoad
from specdec_exporter.simulator.settings import SimulatorSettings
from specdec_exporter.speculation.acceptance import Counts
from specdec_exporter.speculation.cost import MeasuredCost, StepTimes, measure, step_times
from specdec_exporter.speculation.estimate import Estimate
from specdec_exporter.speculation.figures import counts_of
from specdec_exporter.speculation.load import Load, LoadBins, bin_of
from specdec_exporter.speculation.policy import load_policy

WINDOW_SECONDS = 900.0  # of the measured figures
RECORDED_LOADS = (1, 2, 4, 8, 16, 32)
SETTLING_SECONDS, RECORDED_SECONDS = 10, 40  # at each of these loads
COST = load_policy().cost

Sample = tuple[str, dict[str, str], float]


@functools.cache
def recorded(plain: SimulatorSettings) -> StepTimes:
    """The step times in a baseline of one engine without speculation, at several loads."""
    span = SETTLING_SECONDS + RECORDED_SECONDS
    loads = tuple(ChangeLoad(at=number * span, load=load) for number, load in enumerate(RECORDED_LOADS))
    engine = Engine(_alone(plain, loads), start_unix=0)
    bins, interval = LoadBins(), int(COST.interval_seconds)
    for _ in RECORDED_LOADS:
        engine.advance(SETTLING_SECONDS)
        (before,) = _counts(engine)
        for _ in range(0, RECORDED_SECONDS, interval):
            engine.advance(interval)
            (now,) = _counts(engine)
            bins.add(Load(interval, now - before))
            before = now
    return step_times(bins.bins(), COST)


def _alone(plain: SimulatorSettings, loads: tuple[ChangeLoad, ...]) -> SimulatorSettings:
    return replace(plain, engines=1, load=RECORDED_LOADS[0], incidents=loads)


def _counts(engine: Engine) -> list[Counts]:
    found = parse_exposition(render_metrics(engine), engine.release.content_type).engines
    return [counts_of(each) for each in found] or [Counts()]


class ByLoad:
    """The counters by load of one replica, and its measured figures where there is a ``plain`` baseline."""

    def __init__(self, settings: SimulatorSettings, plain: StepTimes | None) -> None:
        self._assumed = load_policy().for_method(settings.method).draft_cost_ratio
        self._plain = plain
        self._before: dict[str, Counts] = {}
        self._at = 0.0
        self._totals: Counter[tuple[str, int]] = Counter()
        self._window: deque[tuple[float, Load]] = deque()

    def observe(self, engines: Sequence[EngineSnapshot], at: float) -> None:
        """Take a reading at ``at`` simulated seconds."""
        for engine in engines:
            now, before = counts_of(engine), self._before.get(engine.engine)
            if before is not None and not now.fell_below(before):
                self._add(Load(at - self._at, now - before), at)
            self._before[engine.engine] = now
        self._at = at
        while self._window and self._window[0][0] <= at - WINDOW_SECONDS:
            self._window.popleft()

    def _add(self, load: Load, at: float) -> None:
        if not load.tells_the_cost:
            return
        self._window.append((at, load))
        found = {
            "seconds": load.seconds,
            "steps": load.steps,
            "step_seconds": load.step_seconds,
            "tokens": load.tokens,
            "draft_tokens": load.counts.draft_tokens or 0.0,
        }
        if self._plain is not None:
            like = self._plain.at(load.concurrency)
            found["compared_seconds"] = load.step_seconds if like else 0.0
            found["plain_seconds"] = load.tokens * like.seconds.value if like else 0.0
        for name, value in found.items():
            self._totals[name, bin_of(load.concurrency)] += value

    def samples(self, labels: dict[str, str]) -> Iterator[Sample]:
        """Every family's samples; ``labels`` are those of the model."""
        for (name, bound), value in self._totals.items():
            yield f"specdec_load_{name}_total", {**labels, "concurrency": str(bound)}, value
        drafted = [load.counts for _, load in self._window if load.counts.drafts]
        drafts = sum(counts.drafts or 0.0 for counts in drafted)
        length = sum(counts.draft_tokens or 0.0 for counts in drafted) / drafts if drafts else None
        yield from _costs(labels, "assumed", self._assumed, length)
        cost = measure([load for _, load in self._window], self._plain, COST) if self._plain else None
        if cost is not None:
            yield from _measured(labels, cost, length)


def _costs(labels: dict[str, str], basis: str, cost: float, length: float | None) -> Iterator[Sample]:
    based = {**labels, "basis": basis}
    yield "specdec_draft_cost_ratio", based, cost
    yield "specdec_break_even_acceptance_ratio", based, cost
    if length is not None:
        yield "specdec_break_even_acceptance_length", based, 1.0 + length * cost


def _measured(labels: dict[str, str], found: MeasuredCost, length: float | None) -> Iterator[Sample]:
    if found.draft_cost_ratio is not None:
        yield from _costs(labels, "measured", found.draft_cost_ratio.value, length)
    speedup: Estimate = found.speedup
    yield "specdec_speedup_ratio", {**labels, "basis": "measured"}, speedup.value
    for bound, value in (("low", speedup.low), ("high", speedup.high)):
        if value is not None:
            yield "specdec_speedup_bound_ratio", {**labels, "basis": "measured", "bound": bound}, value
