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
from operator import itemgetter
from typing import Any, Final, NamedTuple

import msgspec

from specdec_exporter import bounds
from specdec_exporter.histogram import Histogram
from specdec_exporter.predictor.engines.engine import InferenceEngine
from specdec_exporter.predictor.metrics.families import COUNTED
from specdec_exporter.predictor.metrics.reading import EngineKey
from specdec_exporter.predictor.metrics.snapshot import EngineSnapshot, Snapshot

REMEMBERED_SECONDS: Final = 600.0  # after its last answer, a process is remembered
# Start times count from the machine's boot time, which has whole seconds; and an answer is older than its reading.
_COARSE_SECONDS: Final = 2.0
_MUCH_FASTER: Final = 3.0

_Value = float | Histogram | dict[Any, float]
_Values = dict[str, _Value]  # of one engine, by the field of EngineSnapshot


class Answer(NamedTuple):
    """One answer. ``snapshot`` has the counts to serve, and the gauges of the process that answered.

    ``new``: this process was not known. ``restarted``: it follows the one before it, so ``snapshot`` has its own counts
    and nothing of earlier ones. ``left_out`` counts the fields that no process can have counted.
    """

    snapshot: Snapshot
    new: bool = False
    restarted: bool = False
    left_out: int = 0


@dataclass(slots=True)
class _Process:
    """One process. ``born`` and ``at`` are monotonic: its start, as far as it tells, and its last answer.

    ``last`` has the highest counts that it showed; ``fallen`` says since when a field is below.
    """

    start: float | None
    born: float
    at: float
    last: dict[EngineKey, _Values] = field(default_factory=dict)
    fallen: dict[tuple[EngineKey, str], float] = field(default_factory=dict)

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
        self._engine: InferenceEngine | None = None
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
        telling = _telling(raw, values)
        process = self._process(raw, telling, now)
        new, restarted = process is None, False
        if process is None:
            alone = self.count(now) == 1
            restarted = alone and self._is_restart(raw, telling, wall_now, lost=lost)
            if restarted:
                self._served = {}
                # Without a start time, a process that is gone could be taken for one that has counted as much.
                self._known = [one for one in self._known if one.start is not None]
            process = _Process(raw.process_start_time_seconds, _born(raw, now, wall_now), now)
        elif process is not self._known[-1]:
            self._returns = self._returns[1], now
        served, left_out = self._count(process, values, now, new=new)
        self._keep(process, now)
        self._good_at = wall_now
        self._generation = raw.engine_generation or self._generation
        self._engine = raw.inference_engine or self._engine
        engines = tuple(_shown(engine, served[engine.model_name, engine.engine]) for engine in raw.engines)
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
        growth, nearest = min(like, key=itemgetter(0))
        # A start time may jitter, but replicas that started together have nearly the same one. If an answer can follow
        # several of them, they were one.
        jitters = same is not None or len(like) > 1 or growth <= nearest.likely_growth(now)
        return nearest if jitters else None

    def _is_another_generation(self, raw: Snapshot) -> bool:
        """Whether another inference engine answers, or another generation of vLLM."""
        before, now = (self._engine, self._generation), (raw.inference_engine, raw.engine_generation)
        return any(None not in pair and pair[0] != pair[1] for pair in zip(before, now, strict=True))

    def _is_restart(self, raw: Snapshot, values: Mapping[EngineKey, _Values], wall_now: float, *, lost: bool) -> bool:
        """Whether a process that is not known took the place of the one before it."""
        if self._is_another_generation(raw):
            return True  # another release, which counts other things
        above = any(
            _is_like(served, value) and _growth(value, served) is None
            for key, fields in values.items()
            for name, value in fields.items()
            if (served := self._served.get(key, {}).get(name)) is not None
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
        recent = (other for other in self._known if now - other.at <= REMEMBERED_SECONDS)
        others = [other for other in recent if other is not process]  # the longest silent first
        while others and (
            len(others) >= bounds.PROCESSES
            or sum(len(other.last) for other in (*others, process)) > bounds.PROCESSES_ENGINES
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
        for key, fields in values.items():
            is_first = key not in self._served  # of this engine by any process
            served, last = self._served.setdefault(key, {}), process.last.setdefault(key, {})
            shown[key] = {}
            for name, value in fields.items():
                before = last.get(name)
                since = process.born if before is None else process.at
                if not _is_possible(before, value, now - since):
                    left_out += 1
                    continue
                if before is not None:
                    self._grow(process, key, name, value, now)
                else:
                    last[name] = value
                    served[name] = _begun(served.get(name), _zero(value) if new and not is_first else value)
                if name in served:
                    shown[key][name] = _restricted(served[name], value)
        _bound(self._served, values, bounds.PROCESSES_ENGINES)
        _bound(process.last, values, bounds.ENGINES)
        _bound(process.fallen, {}, bounds.SERIES)
        return shown, left_out

    def _grow(self, process: _Process, key: EngineKey, name: str, value: _Value, now: float) -> None:
        """Add the growth of one field.

        A field that fell is of an old answer: it counts again from the height where it was. If it stays below for
        long, it counts from where it is.
        """
        served, last = self._served[key], process.last[key]
        before = last[name]
        if (growth := _growth(before, value)) is not None:
            base = served.get(name, before)
            served[name] = _sum(base if _is_like(base, value) else _zero(value), before, value, growth)
            last[name] = _joined(value, before)
            process.fallen.pop((key, name), None)
        elif now - process.fallen.setdefault((key, name), now) >= REMEMBERED_SECONDS:
            last[name] = value
            del process.fallen[key, name]


def _telling(raw: Snapshot, values: dict[EngineKey, _Values]) -> Mapping[EngineKey, _Values]:
    """Return the counts that tell one process from another: a difference of counters may fall in any."""
    if raw.inference_engine is None or raw.inference_engine.derived != "from_generation":
        return values
    return {
        key: {name: value for name, value in fields.items() if name != "accepted_tokens"}
        for key, fields in values.items()
    }


def _bound(kept: dict[Any, Any], shown: Container[Any], most: int) -> None:
    """Forget what is not shown now, if it is more than ``most``: names may change with every answer."""
    if len(kept) > most:
        for name in [name for name in kept if name not in shown]:
            del kept[name]


def _is_near(one: float | None, other: float | None) -> bool:
    return one is other if one is None or other is None else abs(one - other) <= _COARSE_SECONDS


def _born(raw: Snapshot, now: float, wall_now: float) -> float:
    start = raw.process_start_time_seconds
    return -math.inf if start is None else now - max(wall_now - start, 0.0)


def _values(engine: EngineSnapshot) -> _Values:
    return {name: value for name in COUNTED if (value := getattr(engine, name)) is not None}


def _shown(engine: EngineSnapshot, values: _Values) -> EngineSnapshot:
    """Return ``engine`` with these counts, and without others. Where one process answers, they are its own."""
    differing = {name: values.get(name) for name, value in _values(engine).items() if values.get(name) is not value}
    return msgspec.structs.replace(engine, **differing) if differing else engine


def _distance(process: _Process, values: Mapping[EngineKey, _Values], now: float) -> float | None:
    """Return how much a process would have counted to show ``values``; ``None`` if it cannot have."""
    total = 0.0
    for key, fields in values.items():
        for name, value in fields.items():
            before = process.last.get(key, {}).get(name)
            if before is None or not _is_possible(before, value, now - process.at):
                continue
            if (growth := _growth(before, value)) is None:
                return None
            total += _height(growth)
    return total


# --- Arithmetic of one field: a count, a histogram, or counts by name -------------------------------------------------


def _height(value: _Value) -> float:
    if isinstance(value, dict):
        return sum(value.values())
    return value.count if isinstance(value, Histogram) else value


def _is_possible(before: _Value | None, value: _Value, seconds: float) -> bool:
    """Whether a process can show ``value`` this long after ``before``, or ``None`` before."""
    if before is not None and not _is_like(before, value):
        return False
    most = bounds.COUNT_PER_SECOND * (seconds + 1.0)
    if isinstance(value, dict):
        earlier = before if isinstance(before, dict) else {}
        return all(count - earlier.get(name, 0.0) <= most for name, count in value.items())
    if isinstance(value, Histogram) and value.sum - (before.sum if isinstance(before, Histogram) else 0.0) > most:
        return False
    return _height(value) - (0.0 if before is None else _height(before)) <= most


def _is_like(one: _Value, other: _Value) -> bool:
    return not isinstance(one, Histogram) or not isinstance(other, Histogram) or one.bounds == other.bounds


def _growth(before: _Value, value: _Value) -> _Value | None:
    """Return the growth of a field; ``None`` if it fell. Of a histogram, the sum may fall when a clock is set back."""
    if isinstance(before, dict) and isinstance(value, dict):
        grown = {name: count - before.get(name, 0.0) for name, count in value.items()}
        return None if any(growth < 0 for growth in grown.values()) else grown
    if not isinstance(before, Histogram) or not isinstance(value, Histogram):
        growth = _height(value) - _height(before)
        return None if growth < 0 else growth
    increase = value - before
    if increase.counts[0] < 0 or any(one > other for one, other in pairwise(increase.counts)):
        return None
    return msgspec.structs.replace(increase, sum=max(increase.sum, 0.0))


def _zero(value: _Value) -> _Value:
    if isinstance(value, dict):
        return dict.fromkeys(value, 0.0)
    return Histogram(value.bounds, (0.0,) * len(value.bounds), 0.0) if isinstance(value, Histogram) else 0.0


def _begun(served: _Value | None, value: _Value) -> _Value:
    """Return what is served once a process has shown ``value`` for the first time. Other buckets begin at 0."""
    if isinstance(served, dict) and isinstance(value, dict):
        return _joined({name: served.get(name, count) for name, count in value.items()}, served)
    return value if served is None else served if _is_like(served, value) else _zero(value)


def _sum(served: _Value, before: _Value, value: _Value, growth: _Value) -> _Value:
    """Return ``served`` and ``growth``: exactly ``value`` while it was what this process showed ``before``."""
    if isinstance(served, dict) and isinstance(growth, dict):
        if served == before:
            return _joined(value, served)
        return _joined({name: served.get(name, 0.0) + count for name, count in growth.items()}, served)
    if not isinstance(served, Histogram) or not isinstance(value, Histogram) or not isinstance(growth, Histogram):
        return value if served == before else _height(served) + _height(growth)
    return value if served == before and value.sum >= served.sum else served + growth


def _joined(value: _Value, earlier: _Value) -> _Value:
    """Return ``value`` with the names that were there ``earlier``, unless they are too many."""
    if not isinstance(value, dict) or not isinstance(earlier, dict) or earlier.keys() <= value.keys():
        return value
    both = earlier | value
    return both if len(both) <= bounds.SERIES else value


def _restricted(served: _Value, value: _Value) -> _Value:
    """Return what is served of the names that ``value`` has."""
    if not isinstance(served, dict) or not isinstance(value, dict) or served.keys() == value.keys():
        return served
    return {name: served[name] for name in value if name in served}
