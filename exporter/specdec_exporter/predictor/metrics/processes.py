"""Which process answered, and how its counts add to those that are served: growth by process.

One URL may lead to several processes: a restart, a rollout, a standby, replicas behind a balancer. Each counts on its
own, so that the raw counters jump up and fall in turn, and Prometheus takes every fall for a restart. What is served
here grows only by what a process counted between two of its own answers.
"""

from __future__ import annotations

import math
from collections.abc import Container, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Final, NamedTuple

import msgspec

from specdec_exporter import bounds
from specdec_exporter.histogram import Histogram
from specdec_exporter.predictor.metrics.families import HISTOGRAMS, MAPS, SCALARS
from specdec_exporter.predictor.metrics.reading import EngineKey
from specdec_exporter.predictor.metrics.snapshot import EngineSnapshot, Snapshot

REMEMBERED_SECONDS: Final = 600.0  # after its last answer, a process is remembered
# Start times count from the machine's boot time, which has whole seconds; and an answer is older than its reading.
_COARSE_SECONDS: Final = 2.0
_MUCH_FASTER: Final = 3.0

_Figure = tuple[str, Any]  # a field of EngineSnapshot, and the key within it if it is a map
_Value = float | Histogram
_Values = dict[_Figure, _Value]  # of one engine


class Answer(NamedTuple):
    """One answer. ``snapshot`` has the counts to serve, and the gauges of the process that answered.

    ``new``: this process was not known. ``restarted``: it follows the one before it, so ``snapshot`` has its own counts
    and nothing of earlier ones. ``left_out`` counts the figures that no process can have counted.
    """

    snapshot: Snapshot
    new: bool = False
    restarted: bool = False
    left_out: int = 0


@dataclass(slots=True)
class _Process:
    """One process. ``born`` and ``at`` are monotonic: its start, as far as it tells, and its last answer.

    ``last`` has the highest counts that it showed; ``fallen`` says since when a figure is below.
    """

    start: float | None
    born: float
    at: float
    last: dict[EngineKey, _Values] = field(default_factory=dict)
    fallen: dict[tuple[EngineKey, _Figure], float] = field(default_factory=dict)

    def likely_growth(self, now: float) -> float:
        """Return the most that it has counted since its last answer, if not much faster than in its life before."""
        age = self.at - self.born
        counted = sum(_height(value) for values in self.last.values() for value in values.values())
        return _MUCH_FASTER * counted * (now - self.at) / age if age > 0 else math.inf


class Processes:
    """The processes that answer at one URL, and the counts to serve.

    A process is known by its start time. Without one (several API servers, the Rust frontend), an answer is of the
    nearest known process whose counts it does not fall below; so the first answer of a second process that counted more
    looks like growth, once. The counts of a process that began after the last answer replace those before it: a plain
    restart, shown as vLLM shows it. Of any other new process only the growth from here on is counted.
    """

    def __init__(self) -> None:
        self._known: list[_Process] = []  # the one that answered last is the last
        self._served: dict[EngineKey, _Values] = {}
        self._generation: str | None = None
        self._good_at = 0.0  # Unix time of the last answer
        self._returns = -math.inf, -math.inf  # the last two times that a process answered again after another one

    def count(self, now: float) -> int:
        """Return how many processes answer in turn; 1 after a restart or failover that settled, 0 before the first."""
        # One return may be a failover and back, or a process without start time that has caught up with a dead one.
        if now - self._returns[0] > REMEMBERED_SECONDS:
            return min(len(self._known), 1)
        return sum(now - process.at <= REMEMBERED_SECONDS for process in self._known)

    def take(self, raw: Snapshot, now: float, wall_now: float, *, lost: bool = False) -> Answer:
        """Take in an answer. ``now`` is monotonic and ``wall_now`` Unix time, seconds.

        ``lost``: nothing answered at the URL since the last answer, so its process may be gone.
        """
        if not raw.stats_present or (raw.process_start_time_seconds is None and not raw.engines):
            return Answer(raw)  # says nothing about a process
        values = {(engine.model_name, engine.engine): _values(engine) for engine in raw.engines}
        process = self._process(raw, values, now)
        new, restarted = process is None, False
        if process is None:
            alone = self.count(now) == 1
            restarted = alone and self._is_restart(raw, values, wall_now, lost=lost)
            if restarted:
                self._served = {}
                # Without a start time, a process that is gone could be taken for one that has counted as much.
                self._known = [each for each in self._known if each.start is not None]
            process = _Process(raw.process_start_time_seconds, _born(raw, now, wall_now), now)
        elif process is not self._known[-1]:
            self._returns = self._returns[1], now
        shown, left_out = self._count(process, values, now, new=new)
        self._keep(process, now)
        self._good_at = wall_now
        self._generation = raw.engine_generation or self._generation
        engines = tuple(_shown(engine, shown[engine.model_name, engine.engine]) for engine in raw.engines)
        return Answer(msgspec.structs.replace(raw, engines=engines), new, restarted, left_out)

    # --- Whose answer it is -------------------------------------------------------------------------------------------

    def _process(self, raw: Snapshot, values: Mapping[EngineKey, _Values], now: float) -> _Process | None:
        start = raw.process_start_time_seconds
        same = next((process for process in self._known if process.start == start), None)
        if (start is None or same is None) and self._is_another_generation(raw):
            return None
        like = [
            (distance, process)
            for process in reversed(self._known)
            if _is_near(process.start, start) and (distance := _distance(process, values, now)) is not None
        ]
        if not like:
            return None if start is None else same
        growth, nearest = min(like, key=lambda each: each[0])
        # A start time may jitter, but replicas that started together have nearly the same one. If an answer can follow
        # several of them, they were one.
        jitters = same is not None or len(like) > 1 or growth <= nearest.likely_growth(now)
        return nearest if jitters else None

    def _is_another_generation(self, raw: Snapshot) -> bool:
        return None not in (self._generation, raw.engine_generation) and raw.engine_generation != self._generation

    def _is_restart(self, raw: Snapshot, values: Mapping[EngineKey, _Values], wall_now: float, *, lost: bool) -> bool:
        """Whether a process that is not known took the place of the one before it."""
        if self._is_another_generation(raw):
            return True  # another release, which counts other things
        above = any(
            _is_like(served, value) and _growth(value, served) is None
            for key, found in values.items()
            for figure, value in found.items()
            if (served := self._served.get(key, {}).get(figure)) is not None
        )
        start = raw.process_start_time_seconds
        if start is None:
            return lost and not above
        # A start in the future is of another clock, so it proves nothing. By a wrong clock, an older process may seem
        # to begin just now: it counted more, and the one before it did not go away.
        began = self._good_at - _COARSE_SECONDS <= start <= wall_now + _COARSE_SECONDS
        return began and (lost or not above)

    def _keep(self, process: _Process, now: float) -> None:
        """Remember ``process`` as the last that answered, and forget those that are silent or too many."""
        process.at = now
        recent = (each for each in self._known if now - each.at <= REMEMBERED_SECONDS)
        others = [each for each in recent if each is not process]  # the longest silent first
        while others and (
            len(others) >= bounds.PROCESSES
            or sum(len(each.last) for each in (*others, process)) > bounds.PROCESSES_ENGINES
        ):
            others.pop(0)
        self._known = [*others, process]

    # --- What it adds -------------------------------------------------------------------------------------------------

    def _count(
        self, process: _Process, values: Mapping[EngineKey, _Values], now: float, *, new: bool
    ) -> tuple[dict[EngineKey, _Values], int]:
        """Add what ``process`` counted since its last answer; return the values to show, and how many are left out."""
        shown: dict[EngineKey, _Values] = {}
        left_out = 0
        for key, found in values.items():
            is_first = key not in self._served  # of this engine by any process
            served, last = self._served.setdefault(key, {}), process.last.setdefault(key, {})
            shown[key] = {}
            for figure, value in found.items():
                before = last.get(figure)
                since = process.born if before is None else process.at
                if not _is_possible(before, value, now - since):
                    left_out += 1
                    continue
                if before is not None:
                    self._grow(process, key, figure, value, now)
                else:
                    last[figure] = value
                    if not _is_like(served.setdefault(figure, _zero(value) if new and not is_first else value), value):
                        served[figure] = _zero(value)  # other buckets begin at 0
                if figure in served:
                    shown[key][figure] = served[figure]
            for kept in (served, last):
                _bound(kept, found, bounds.SERIES)
        _bound(self._served, values, bounds.PROCESSES_ENGINES)
        _bound(process.last, values, bounds.ENGINES)
        _bound(process.fallen, {}, bounds.SERIES)
        return shown, left_out

    def _grow(self, process: _Process, key: EngineKey, figure: _Figure, value: _Value, now: float) -> None:
        """Add the growth of one figure.

        A figure that fell is of an old answer: it counts again from the height where it was. If it stays below for
        long, it counts from where it is.
        """
        served, last = self._served[key], process.last[key]
        before = last[figure]
        if (growth := _growth(before, value)) is not None:
            base = served.get(figure, before)
            served[figure] = _sum(base if _is_like(base, value) else _zero(value), before, value, growth)
            last[figure] = value
            process.fallen.pop((key, figure), None)
        elif now - process.fallen.setdefault((key, figure), now) >= REMEMBERED_SECONDS:
            last[figure] = value
            del process.fallen[key, figure]


def _bound(kept: dict[Any, Any], shown: Container[Any], most: int) -> None:
    """Forget what is not shown now, if it is more than ``most``: names may change with every answer."""
    if len(kept) > most:
        for name in [each for each in kept if each not in shown]:
            del kept[name]


def _is_near(one: float | None, other: float | None) -> bool:
    return one is other if one is None or other is None else abs(one - other) <= _COARSE_SECONDS


def _born(raw: Snapshot, now: float, wall_now: float) -> float:
    start = raw.process_start_time_seconds
    return -math.inf if start is None else now - max(wall_now - start, 0.0)


def _values(engine: EngineSnapshot) -> _Values:
    found: _Values = {}
    for name in (*SCALARS, *HISTOGRAMS):
        if (value := getattr(engine, name)) is not None:
            found[name, None] = value
    for name in MAPS:
        found |= {(name, key): value for key, value in (getattr(engine, name) or {}).items()}
    return found


def _shown(engine: EngineSnapshot, values: _Values) -> EngineSnapshot:
    """Return ``engine`` with these counts; those without a value are left out."""
    fields: dict[str, Any] = {name: values.get((name, None)) for name in (*SCALARS, *HISTOGRAMS)}
    for name in MAPS:
        found = {key: value for (field_, key), value in values.items() if field_ == name}
        fields[name] = found or (None if getattr(engine, name) else getattr(engine, name))
    return msgspec.structs.replace(engine, **fields)


def _distance(process: _Process, values: Mapping[EngineKey, _Values], now: float) -> float | None:
    """Return how much a process would have counted to show ``values``; ``None`` if it cannot have."""
    total = 0.0
    for key, found in values.items():
        for figure, value in found.items():
            before = process.last.get(key, {}).get(figure)
            if before is None or not _is_possible(before, value, now - process.at):
                continue
            if (growth := _growth(before, value)) is None:
                return None
            total += _height(growth)
    return total


def _height(value: _Value) -> float:
    return value.count if isinstance(value, Histogram) else value


def _is_possible(before: _Value | None, value: _Value, seconds: float) -> bool:
    """Whether a process can show ``value`` this long after ``before``, or ``None`` before."""
    if before is not None and not _is_like(before, value):
        return False
    most = bounds.COUNT_PER_SECOND * (seconds + 1.0)
    if isinstance(value, Histogram) and value.sum - (before.sum if isinstance(before, Histogram) else 0.0) > most:
        return False
    return _height(value) - (0.0 if before is None else _height(before)) <= most


def _is_like(one: _Value, other: _Value) -> bool:
    return not isinstance(one, Histogram) or not isinstance(other, Histogram) or one.bounds == other.bounds


def _growth(before: _Value, value: _Value) -> _Value | None:
    """Return the growth of a figure; ``None`` if it fell. Of a histogram, the sum may fall when a clock is set back."""
    if not isinstance(before, Histogram) or not isinstance(value, Histogram):
        growth = _height(value) - _height(before)
        return None if growth < 0 else growth
    increase = value - before
    if increase.counts[0] < 0 or any(one > other for one, other in pairwise(increase.counts)):
        return None
    return msgspec.structs.replace(increase, sum=max(increase.sum, 0.0))


def _zero(value: _Value) -> _Value:
    return Histogram(value.bounds, (0.0,) * len(value.bounds), 0.0) if isinstance(value, Histogram) else 0.0


def _sum(served: _Value, before: _Value, value: _Value, growth: _Value) -> _Value:
    """Return ``served`` and ``growth``: exactly ``value`` while it was what this process showed ``before``."""
    if not isinstance(served, Histogram) or not isinstance(value, Histogram) or not isinstance(growth, Histogram):
        return value if served == before else _height(served) + _height(growth)
    return value if served == before and value.sum >= served.sum else served + growth
