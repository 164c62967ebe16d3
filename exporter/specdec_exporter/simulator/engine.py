"""The simulated engine: requests, ranks, incidents and periodic reports in simulated time. No clock, no I/O.

Equal settings give equal runs; the steps of :meth:`Engine.advance` make no difference.
"""

from __future__ import annotations

import math
import random

import msgspec

from specdec_exporter.errors import ConfigError
from specdec_exporter.simulator.rank import NEVER, OnTokens, Rank, Request
from specdec_exporter.simulator.scenario import DEFAULT_DOWNTIME_SECONDS, Conditions, Drift, Restart, apply_incidents
from specdec_exporter.simulator.settings import SimulatorSettings
from specdec_exporter.simulator.shapes import FIRST_SEVERAL_ENGINES, release

DEFAULT_START_UNIX = 1_790_000_000.0  # a fixed date, so that traces repeat to the byte


class Started(msgspec.Struct, frozen=True):
    """The process started at simulated second ``at``."""

    at: float


class EngineStats(msgspec.Struct, frozen=True):
    """The periodic engine line: throughputs in tokens/s over the interval, ratios 0..1."""

    at: float
    engine: int
    prompt_throughput: float
    generation_throughput: float
    running: int
    waiting: int
    kv_cache_usage: float
    prefix_cache_hit_ratio: float


class SpecStats(msgspec.Struct, frozen=True):
    """The periodic spec-decode line: one window's counts, or a V0 worker's lifetime totals with ``emitted_tokens``."""

    at: float
    engine: int
    seconds: float
    drafts: int
    draft_tokens: int
    accepted_tokens: int
    accepted_per_position: tuple[int, ...]
    emitted_tokens: int = 0


class Accessed(msgspec.Struct, frozen=True):
    """The server answered a request."""

    at: float
    client: str
    request_line: str
    status: str


LogRecord = Started | EngineStats | SpecStats | Accessed


class Engine:
    """The engines of a predictor. :meth:`advance` moves simulated time; :attr:`ranks` hold the figures.

    ``start_unix`` is the Unix time at simulated second 0. Raises :class:`ConfigError` for settings that no vLLM release
    supports.
    """

    def __init__(self, settings: SimulatorSettings, *, start_unix: float = DEFAULT_START_UNIX) -> None:
        self.settings = settings
        self.release = release(
            settings.vllm_version,
            generation=settings.engine_generation,
            frontend=settings.frontend,
            api_servers=settings.api_servers,
        )
        if settings.engines > 1 and self.release.version < FIRST_SEVERAL_ENGINES:
            raise ConfigError(f"engines: vLLM {settings.vllm_version} reports only one; 0.11.0 and later report all")
        self.start_unix = start_unix
        self.now = 0.0
        self.serving = True
        self.started_at = 0.0
        self._random = random.Random(settings.seed)
        self._records: list[LogRecord] = []
        self._base = Conditions(
            rates=settings.rates,
            drafting=settings.speculates,
            latency_factor=1.0,
            tail_share=settings.latency.tail_share,
            tail_factor=settings.latency.tail_factor,
            load=settings.synthetic_load,
            metrics_fault=None,
            metrics_delay_seconds=0.0,
        )
        self._boundaries = _boundaries(settings)
        self._drifts = tuple(i for i in settings.incidents if isinstance(i, Drift))
        self._interval_seconds = settings.log_interval_seconds or self.release.log_interval_seconds
        self.conditions = apply_incidents(self._base, settings.incidents, 0.0)
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
        """Unix time at which the current process says it started, as a scraper sees it: without the speed-up."""
        return self.start_unix + self.started_at / self.settings.speed - self.settings.uptime_seconds

    def advance(self, seconds: float) -> None:
        """Let ``seconds`` of simulated time pass."""
        self.advance_to(self.now + seconds)

    def advance_to(self, until: float) -> None:
        """Let simulated time pass up to and including second ``until``."""
        while (at := self.next_event_at) <= until:
            self.now = at
            self._run_next(at)
        self.now = max(self.now, until)

    def submit(
        self, *, prompt_tokens: int, max_tokens: int, ignore_eos: bool = True, on_tokens: OnTokens | None = None
    ) -> Request:
        """Submit a request from outside. ``on_tokens`` gets its tokens as they come; ``"restart"``: it was lost."""
        request = Request(
            prompt_tokens=prompt_tokens,
            max_tokens=max_tokens,
            stop_after=None if ignore_eos else self._output_length(),
            arrived_at=self.now,
            on_tokens=on_tokens,
        )
        self._place(request)
        return request

    def abort(self, request: Request) -> None:
        """Drop a request whose client went away. A request that is over stays as it is."""
        if not request.over:
            for rank in self.ranks:
                rank.abort(request, self.now, self.conditions)

    def record_access(self, client: str, request_line: str, status: str) -> None:
        """Note an HTTP request for the log."""
        self._records.append(Accessed(self.now, client, request_line, status))

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
        self._reported: list[tuple[int, int, bool]] = [(0, 0, True)] * len(self.ranks)
        self._in_flight = 0
        self._next_report_at = now + self._interval_seconds
        self._records.append(Started(now))
        self._schedule_arrivals()

    def _stop(self) -> None:
        self.serving = False
        self._next_arrival_at = self._next_report_at = NEVER
        lost = [request for rank in self.ranks for request in rank.lose_all()]
        self.ranks = []
        for request in lost:
            if request.on_tokens:
                request.on_tokens(0, "restart")

    def _run_next(self, now: float) -> None:
        """Run the one event due at ``now``. The order for equal times is fixed, so that runs repeat."""
        if self._boundaries and self._boundaries[-1][0] <= now:
            self._cross_boundary(now)
            return
        for rank in self.ranks:
            if rank.next_event_at <= now:
                if self._drifts:
                    self.conditions = apply_incidents(self._base, self.settings.incidents, now)
                finished = rank.run_event(now, self.conditions)
                if finished:
                    self._in_flight -= sum(request.synthetic for request in finished)
                    self._top_up()
                return
        if self._next_arrival_at <= now:
            self._submit_synthetic()
            self._next_arrival_at = now + self._random.expovariate(self.conditions.load.requests_per_second)
        else:
            self._report(now)
            self._next_report_at += self._interval_seconds

    def _cross_boundary(self, now: float) -> None:
        change = self._boundaries.pop()[1]
        before = self.conditions.load
        self.conditions = apply_incidents(self._base, self.settings.incidents, now)
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
            self._submit_synthetic()

    def _submit_synthetic(self) -> None:
        limit = min(4 * self.settings.output_tokens, max(1, self.settings.max_model_len - self.settings.prompt_tokens))
        self._in_flight += 1
        self._place(
            Request(
                prompt_tokens=self._spread(self.settings.prompt_tokens),
                max_tokens=limit,
                stop_after=self._output_length(),
                arrived_at=self.now,
                synthetic=True,
            )
        )

    def _place(self, request: Request) -> None:
        rank = min(self.ranks, key=lambda rank: rank.running + rank.waiting)
        rank.submit(request, self.now, self.conditions)

    def _output_length(self) -> int:
        return self._spread(self.settings.output_tokens)

    def _spread(self, mean: float) -> int:
        sigma = self.settings.output_sigma
        return max(1, round(self._random.lognormvariate(math.log(mean) - sigma**2 / 2, sigma)))

    # -- periodic reports ----------------------------------------------------------------------------------------------

    def _report(self, now: float) -> None:
        silent = self.settings.disable_log_stats or self.settings.api_servers > 1
        for rank in self.ranks:
            if self.release.generation == "v0":
                self._report_v0(rank, now, silent=silent)
            elif not silent:
                self._report_v1(rank, now)

    def _report_v1(self, rank: Rank, now: float) -> None:
        """Log the engine line, then the spec line. After two idle intervals vLLM logs at DEBUG only."""
        idle_before = self._reported[rank.index][2]
        stats = self._stats(rank, now, rank.totals.generation_tokens)
        idle = not stats.prompt_throughput and not stats.generation_throughput
        self._reported[rank.index] = (rank.totals.prompt_tokens, rank.totals.generation_tokens, idle)
        if not (idle and idle_before):
            self._records.append(stats)
        line = self.release.spec_line
        if line is None or not self.settings.speculates:
            return
        if rank.last_step_drafted if line.last_step_gate else rank.window.drafts:
            window = rank.take_window(now)
            self._records.append(
                SpecStats(
                    now,
                    rank.index,
                    now - window.since,
                    window.drafts,
                    window.draft_tokens,
                    window.accepted_tokens,
                    tuple(window.accepted_per_position),
                )
            )

    def _report_v0(self, rank: Rank, now: float, *, silent: bool) -> None:
        """Log as V0 does: only while it steps. Each report adds lifetime totals to its counters (0.6.6 to 0.9.2)."""
        if not rank.stepped:
            return
        rank.stepped = False
        totals = rank.totals
        stats = self._stats(rank, now, totals.v0_generation_steps)
        self._reported[rank.index] = (totals.prompt_tokens, totals.v0_generation_steps, False)
        records: list[LogRecord] = [stats]
        if self.settings.speculates:
            drafted = totals.v0_drafts * self.settings.k
            totals.v0_acceptance_ratio = totals.v0_accepted / drafted if drafted else math.nan
            totals.v0_efficiency = (
                totals.v0_emitted / (totals.v0_drafts * (self.settings.k + 1)) if drafted else math.nan
            )
            totals.v0_summed_accepted = (totals.v0_summed_accepted or 0) + totals.v0_accepted
            totals.v0_summed_drafted = (totals.v0_summed_drafted or 0) + drafted
            records.append(
                SpecStats(now, rank.index, 0.0, totals.v0_drafts, drafted, totals.v0_accepted, (), totals.v0_emitted)
            )
        if not silent:
            self._records += records

    def _stats(self, rank: Rank, now: float, generated: int) -> EngineStats:
        prompt_before, generated_before, _ = self._reported[rank.index]
        totals = rank.totals
        return EngineStats(
            now,
            rank.index,
            (totals.prompt_tokens - prompt_before) / self._interval_seconds,
            (generated - generated_before) / self._interval_seconds,
            rank.running,
            rank.waiting,
            rank.kv_cache_usage,
            totals.prefix_hits / totals.prompt_tokens if totals.prompt_tokens else 0.0,
        )


def _boundaries(settings: SimulatorSettings) -> list[tuple[float, str]]:
    """Seconds at which conditions change, latest first: ``down`` and ``up`` for a restart, else ``change``."""
    found: list[tuple[float, str]] = []
    for incident in settings.incidents:
        if isinstance(incident, Restart):
            downtime = DEFAULT_DOWNTIME_SECONDS if incident.duration is None else incident.duration
            found += [(incident.at, "down"), (incident.at + downtime, "up")]
        else:
            found += [(incident.at, "change"), (incident.end, "change")]
    return sorted((entry for entry in found if entry[0] != math.inf), reverse=True)
