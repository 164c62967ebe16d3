"""The simulated engine: requests, ranks, incidents and periodic reports in simulated time. No clock, no I/O.

Equal settings give equal runs; the steps of :meth:`Engine.advance` make no difference.
"""

from __future__ import annotations

import math
import random

import msgspec

from demo.simulator.rank import NEVER, Rank, Request
from demo.simulator.scenario import Conditions, Load, Restart, apply_incidents
from demo.simulator.settings import SimulatorSettings
from demo.simulator.shapes import release
from demo.simulator.totals import Window

DEFAULT_START_UNIX = 1_790_000_000.0  # a fixed date, so that traces repeat to the byte
_LENGTH_SIGMA = 0.5  # of the lognormal lengths of prompts and outputs


class Started(msgspec.Struct, frozen=True):
    """The process started at simulated second ``at``."""

    at: float


class EngineStats(msgspec.Struct, frozen=True):
    """The periodic engine line: throughputs in tokens/s over the interval, usage 0..1."""

    at: float
    engine: int
    prompt_throughput: float
    generation_throughput: float
    running: int
    waiting: int
    kv_cache_usage: float


class SpecStats(msgspec.Struct, frozen=True):
    """The periodic spec-decode line: one window's counts, or a V0 worker's lifetime totals with ``emitted_tokens``."""

    at: float
    counts: Window
    emitted_tokens: int = 0


LogRecord = Started | EngineStats | SpecStats


class Engine:
    """The engines of a predictor. :meth:`advance` moves simulated time; :attr:`ranks` hold the figures.

    ``start_unix`` is the Unix time at simulated second 0. Raises :class:`ValueError` for a release that is not known.
    """

    def __init__(self, settings: SimulatorSettings, *, start_unix: float = DEFAULT_START_UNIX) -> None:
        self.settings = settings
        self.release = release(settings.vllm_version, settings.engine_generation)
        self.start_unix = start_unix
        self.now = 0.0
        self._random = random.Random(settings.seed)
        self._records: list[LogRecord] = []
        self._usual = Conditions(
            rates=settings.rates,
            load=Load.of(settings.load),
            tail_share=settings.latency.tail_share,
            tail_factor=settings.latency.tail_factor,
        )
        self._boundaries = _boundaries(settings)
        self.conditions = apply_incidents(self._usual, settings.incidents, 0.0)
        self._start(0.0)

    @property
    def next_event_at(self) -> float:
        """Simulated second of the next event. It is never in the past."""
        soonest = min(self._next_arrival_at, self._next_report_at)
        if self._boundaries:
            soonest = min(soonest, self._boundaries[-1][0])
        for rank in self.ranks:  # no generator: this is asked before every step
            if (at := rank.next_event_at) < soonest:
                soonest = at
        return soonest

    @property
    def process_start_unix(self) -> float:
        """Unix time at which the current process says it started, as a scraper sees it: without the speed-up.

        Only the first process may have run before the simulation began; one that follows starts when it starts.
        """
        if self.started_at == 0:
            return self.start_unix - self.settings.uptime_seconds
        return self.start_unix + self.started_at / self.settings.speed

    def advance(self, seconds: float) -> None:
        """Let ``seconds`` of simulated time pass."""
        self.advance_to(self.now + seconds)

    def advance_to(self, until: float) -> None:
        """Let simulated time pass up to and including second ``until``."""
        while (at := self.next_event_at) <= until:
            self.now = at
            self._run_next(at)
        self.now = max(self.now, until)

    def take_records(self) -> list[LogRecord]:
        """Return the events for the log since the last call, in order."""
        records, self._records = self._records, []
        return records

    # -- life of the process -------------------------------------------------------------------------------------------

    def _start(self, now: float) -> None:
        self.serving = True
        self.started_at = now
        seeds = random.Random(self._random.random())
        self.ranks = [
            Rank(index, self.settings, self.release, random.Random(seeds.random()), now)
            for index in range(self.settings.engines)
        ]
        self._reported: list[tuple[int, int]] = [(0, 0)] * len(self.ranks)
        self._in_flight = 0
        self._next_report_at = now + self.release.log_interval_seconds
        self._records.append(Started(now))
        self._schedule_arrivals()

    def _stop(self) -> None:
        self.serving = False
        self._next_arrival_at = self._next_report_at = NEVER
        self.ranks = []

    def _run_next(self, now: float) -> None:
        """Run the one event due at ``now``. The order for equal times is fixed, so that runs repeat."""
        if self._boundaries and self._boundaries[-1][0] <= now:
            self._cross_boundary(now)
            return
        for rank in self.ranks:
            if rank.next_event_at <= now:
                self._in_flight -= rank.run_event(now, self.conditions)
                self._top_up()
                return
        if self._next_arrival_at <= now:
            self._submit()
            self._next_arrival_at = now + self._random.expovariate(self.conditions.load.requests_per_second)
        else:
            self._report(now)
            self._next_report_at += self.release.log_interval_seconds

    def _cross_boundary(self, now: float) -> None:
        change = self._boundaries.pop()[1]
        before = self.conditions.load
        self.conditions = apply_incidents(self._usual, self.settings.incidents, now)
        if change == "down" and self.serving:
            self._stop()
        elif change == "up" and not self.serving:
            self._start(now)
        elif self.serving and self.conditions.load != before:
            self._schedule_arrivals()

    # -- load ----------------------------------------------------------------------------------------------------------

    def _schedule_arrivals(self) -> None:
        rate = self.conditions.load.requests_per_second
        self._next_arrival_at = self.now + self._random.expovariate(rate) if rate else NEVER
        self._top_up()

    def _top_up(self) -> None:
        while self._in_flight < self.conditions.load.concurrency:
            self._submit()

    def _submit(self) -> None:
        """Give a request to the rank with the fewest."""
        settings = self.settings
        limit = min(4 * settings.output_tokens, max(1, settings.max_model_len - settings.prompt_tokens))
        self._in_flight += 1
        prompt_tokens, output_tokens = self._length(settings.prompt_tokens), self._length(settings.output_tokens)
        rank = min(self.ranks, key=lambda rank: rank.running + rank.waiting)
        reason = "stop" if output_tokens <= limit else "length"
        rank.submit(Request(prompt_tokens, min(output_tokens, limit), reason, self.now), self.now, self.conditions)

    def _length(self, mean: float) -> int:
        return max(1, round(self._random.lognormvariate(math.log(mean) - _LENGTH_SIGMA**2 / 2, _LENGTH_SIGMA)))

    # -- periodic reports ----------------------------------------------------------------------------------------------

    def _report(self, now: float) -> None:
        for rank in self.ranks:
            if self.release.generation == "v0":
                self._report_v0(rank, now)
            else:
                self._report_v1(rank, now)

    def _report_v1(self, rank: Rank, now: float) -> None:
        """Log the engine line, then the spec line. What is idle logs at DEBUG only."""
        stats = self._stats(rank, now, rank.totals.generation_tokens)
        if stats.prompt_throughput or stats.generation_throughput:
            self._records.append(stats)
        if self.settings.speculates and rank.window.drafts:
            self._records.append(SpecStats(now, rank.take_window(now)))

    def _report_v0(self, rank: Rank, now: float) -> None:
        """Log as V0 does: only while it steps. Each report adds lifetime totals to its counters (0.6.6 to 0.9.2)."""
        totals = rank.totals
        stats = self._stats(rank, now, totals.v0_generation_steps)
        if not stats.generation_throughput:
            return
        self._records.append(stats)
        if self.settings.speculates:
            drafted = totals.v0_drafts * self.settings.k
            totals.v0_acceptance_ratio = totals.v0_accepted / drafted if drafted else math.nan
            totals.v0_summed_accepted = (totals.v0_summed_accepted or 0) + totals.v0_accepted
            totals.v0_summed_drafted = (totals.v0_summed_drafted or 0) + drafted
            counts = Window(now, totals.v0_drafts, drafted, totals.v0_accepted)
            self._records.append(SpecStats(now, counts, totals.v0_emitted))

    def _stats(self, rank: Rank, now: float, generated: int) -> EngineStats:
        totals, seconds = rank.totals, self.release.log_interval_seconds
        prompt_before, generated_before = self._reported[rank.index]
        self._reported[rank.index] = (totals.prompt_tokens, generated)
        return EngineStats(
            now,
            rank.index,
            (totals.prompt_tokens - prompt_before) / seconds,
            (generated - generated_before) / seconds,
            rank.running,
            rank.waiting,
            rank.kv_cache_usage,
        )


def _boundaries(settings: SimulatorSettings) -> list[tuple[float, str]]:
    """Seconds at which conditions change, latest first: ``down`` and ``up`` for a restart, else ``change``."""
    found: list[tuple[float, str]] = []
    for incident in settings.incidents:
        begin, end = ("down", "up") if isinstance(incident, Restart) else ("change", "change")
        found += [(incident.at, begin), (incident.end, end)]
    return sorted((entry for entry in found if entry[0] != math.inf), reverse=True)
