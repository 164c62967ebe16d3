"""Whether an answer of ``/metrics`` continues the answers before it.

Counters of one process never fall and never vanish. An answer that breaks this is old (a cache), cut off between two
lines, or of another predictor behind the same URL. To Prometheus a fall is a restart: it would count everything twice.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from operator import lt
from typing import Final

from specdec_exporter import bounds
from specdec_exporter.errors import FetchError
from specdec_exporter.formatting import plain
from specdec_exporter.predictor.metrics.snapshot import EngineSnapshot, Snapshot

# Start times count from the machine's boot time, which has whole seconds; and an answer is older than its reading.
_COARSE_SECONDS: Final = 2.0

SCALARS: Final = (
    *("drafts", "draft_tokens", "accepted_tokens", "generation_tokens", "prompt_tokens", "preemptions"),
    *("prefix_cache_queries", "prefix_cache_hits"),
)
MAPS: Final = ("accepted_tokens_per_position", "requests_finished")
HISTOGRAMS: Final = (
    "time_to_first_token",
    "time_per_output_token",
    "step_latency",
    "request_latency",
    "request_decode",
    "prompt_length",
    "generation_length",
)


def fallen(before: EngineSnapshot, now: EngineSnapshot) -> str | None:
    """Return in words the first counter of an engine that fell, or the first histogram with other buckets."""
    for name in SCALARS:
        one, other = getattr(before, name), getattr(now, name)
        if one is not None and other is not None and other < one:
            return f"{name} fell from {one:g} to {other:g}"
    for name in MAPS:
        was, is_now = getattr(before, name) or {}, getattr(now, name) or {}
        for key in was.keys() & is_now.keys():
            if is_now[key] < was[key]:
                return f"{name} {plain(str(key))} fell from {was[key]:g} to {is_now[key]:g}"
    return _fallen_histogram(before, now)


def _fallen_histogram(before: EngineSnapshot, now: EngineSnapshot) -> str | None:
    for name in HISTOGRAMS:
        histogram, later = getattr(before, name), getattr(now, name)
        if histogram is None or later is None:
            continue
        if histogram.bounds != later.bounds:
            return f"the buckets of {name} changed"
        if later.sum < histogram.sum or any(map(lt, later.counts, histogram.counts)):
            return f"{name} fell"
    return None


def _vanished(before: EngineSnapshot, now: EngineSnapshot) -> str | None:
    for name in (*SCALARS, *MAPS, *HISTOGRAMS):
        was, is_now = getattr(before, name), getattr(now, name)
        if was is not None and (is_now is None or (name in MAPS and was.keys() - is_now.keys())):
            return f"{name} is missing"
    return None


def _break(before: Snapshot, now: Snapshot) -> str | None:
    """Return in words why ``now`` cannot come from the process of ``before``, later."""
    engines = {(engine.model_name, engine.engine): engine for engine in now.engines}
    for engine in before.engines:
        later = engines.get((engine.model_name, engine.engine))
        found = "it is missing" if later is None else fallen(engine, later) or _vanished(engine, later)
        if found:
            return f"of engine {plain(engine.engine)}, {found}"
    if before.stats_present and not now.stats_present:
        return "the engine's statistics are missing"
    return None


def _begins_anew(before: Snapshot, now: Snapshot) -> bool:
    """Whether every counter is at half or less of what it was, as after a restart."""
    engines = {(engine.model_name, engine.engine): engine for engine in now.engines}
    counted = False
    for engine in before.engines:
        later = engines.get((engine.model_name, engine.engine))
        for name in SCALARS:
            if was := getattr(engine, name):
                counted = True
                if later is None or (getattr(later, name) or 0.0) > was / 2:
                    return False
    return counted


def _figures(snapshot: Snapshot) -> set[str]:
    """Return the names of the counters that there are: replicas of one deployment have the same."""
    names = (*SCALARS, *MAPS, *HISTOGRAMS)
    return {name for name in names for engine in snapshot.engines if getattr(engine, name) is not None}


def _another_process(before: Snapshot, now: Snapshot) -> str | None:
    if before.engines and now.engines and _figures(before) != _figures(now):
        return None  # another release
    return "another process answered when this one was already running"


class Continuity:
    """Compares each answer of one predictor with the last good one.

    A process that started after that answer proves a restart. So does, after a time without answer, one that started
    later than the process before, or that tells no start time (several API servers, the Rust frontend). Counters that
    all begin anew are taken for a restart too, unless another process that was already running shows them. Other breaks
    are refused until they have lasted for ``bounds.DOUBT_SECONDS``; then they count as a restart. ``clock`` gives
    monotonic seconds, ``wall_clock`` Unix seconds.
    """

    def __init__(
        self, clock: Callable[[], float] = time.monotonic, wall_clock: Callable[[], float] = time.time
    ) -> None:
        self._clock = clock
        self._wall_clock = wall_clock
        self._good: Snapshot | None = None
        self._good_at = 0.0  # Unix time
        self._doubted: Snapshot | None = None  # refused; no other fetch since
        self._doubted_since = 0.0  # monotonic
        self._lost = False  # nothing answered since the last good answer

    def failed(self, *, lost: bool) -> None:
        """Note a failed fetch. ``lost``: nothing answered, so the predictor may be restarting."""
        self._lost |= lost
        self._doubted = None

    def check(self, now: Snapshot) -> None:
        """Take an answer for good, or raise :class:`FetchError` with the reason ``went_back``."""
        problem = self._problem(now)
        if problem and not self._lasts(now):
            raise FetchError(
                "went_back",
                f"the answer does not continue the one before: {problem}. It may be an old one, or several predictors "
                f"answer at this URL. If it stays so for {bounds.DOUBT_SECONDS} s, it counts as a restart",
            )
        self._good, self._good_at, self._doubted, self._lost = now, self._wall_clock(), None, False

    def _problem(self, now: Snapshot) -> str | None:
        good = self._good
        if good is None:
            return None
        if good.engines and now.engines and good.engine_generation != now.engine_generation:
            return None  # another release
        before, start = good.process_start_time_seconds, now.process_start_time_seconds
        anew = _begins_anew(good, now)
        if before is None or start is None:
            return None if self._lost or anew else _break(good, now)
        if before == start:
            return None if anew else _break(good, now)
        if start > self._good_at - _COARSE_SECONDS or (self._lost and (start > before or anew)):
            return None
        return _another_process(good, now)

    def _lasts(self, now: Snapshot) -> bool:
        """Whether the answers have been refused for long enough, and each follows from the one before it."""
        before, self._doubted = self._doubted, now
        follows = (
            before is not None
            and before.process_start_time_seconds == now.process_start_time_seconds
            and _break(before, now) is None
        )
        if not follows:
            self._doubted_since = self._clock()
        return self._clock() - self._doubted_since >= bounds.DOUBT_SECONDS
