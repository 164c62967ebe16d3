"""What is known of one predictor, as families, status and the judgement read it. Nothing here changes it."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import reduce
from operator import add
from typing import Literal

from specdec_exporter.predictor.log.counters import ReaderCounters
from specdec_exporter.predictor.log.events import StartFailure
from specdec_exporter.predictor.log.start import StartSummary, summarise
from specdec_exporter.predictor.log.totals import EngineLogTotals, LogTotals
from specdec_exporter.predictor.metrics.processes import Processes
from specdec_exporter.predictor.metrics.snapshot import EngineSnapshot, Snapshot
from specdec_exporter.serving.departures import Departures
from specdec_exporter.serving.drafts import Drafted, DraftSources, drafts_of_log
from specdec_exporter.serving.history import History
from specdec_exporter.serving.loads import LoadCounters
from specdec_exporter.serving.running import Running
from specdec_exporter.serving.status import HistoryPoint
from specdec_exporter.serving.tracks import EngineTrack
from specdec_exporter.serving.traffic import Traffic, TrafficWindow
from specdec_exporter.serving.windows import SampleRing, Window, concurrency
from specdec_exporter.speculation.acceptance import Counts
from specdec_exporter.speculation.benefit import BreakEven, break_even
from specdec_exporter.speculation.facts import DecodingBaseline, Evidence, StateName
from specdec_exporter.speculation.figures import Figures, figures, timed_counts_of, without_length
from specdec_exporter.speculation.measured import Measured
from specdec_exporter.speculation.policy import Policy, load_policy


@dataclass(frozen=True, slots=True)
class EngineView:
    """One engine. ``track`` has its counters and short windows; ``snapshot`` is ``None`` when the last fetch failed."""

    model_name: str
    engine: str
    track: EngineTrack
    snapshot: EngineSnapshot | None
    window: Figures | None  # for a V0 engine without a log: the lifetime
    lifetime: Figures | None
    state: StateName
    has_windows: bool
    kv_cache_tokens: float | None  # capacity


class PredictorView:
    """Everything known about one predictor. Not thread-safe: it lives in the event loop.

    ``clock`` gives monotonic seconds, ``wall_clock`` Unix seconds, both of the exporter's machine.
    """

    def __init__(
        self,
        name: str,
        url: str = "",
        *,
        window_seconds: float = 300.0,
        policy: Policy | None = None,
        reader: ReaderCounters | None = None,
        clock: Callable[[], float] = time.monotonic,
        wall_clock: Callable[[], float] = time.time,
    ) -> None:
        self.name = name
        self.url = url
        self.window_seconds = window_seconds
        self.policy = policy or load_policy()
        self.reader = reader
        self.up = False
        self.up_reason: str | None = "not read yet"
        self.restarts = 0
        self.snapshot: Snapshot | None = None  # None if the last fetch failed
        self.running = Running()
        self.version_asked = False  # since the last known restart
        self.failed_start: StartFailure | None = None  # the last one, while nothing shows that a later start succeeded
        self.log = LogTotals()
        self.warnings: Counter[str] = Counter()
        self.history = History()
        self.baseline: DecodingBaseline | None = None
        self.cost: Measured | None = None  # of the last minutes, for the baseline's model
        self.cost_seconds = 0.0  # of those minutes, what was seen
        self.loads: dict[str, LoadCounters] = {}  # by served model
        self._clock = clock
        self._wall_clock = wall_clock
        self._born = clock()
        self._dropped: Counter[str] = Counter()  # what the metrics held beyond a bound
        self._processes = Processes()
        self._tracks: dict[tuple[str, str], EngineTrack] = {}
        self._engine_names: tuple[str, ...] = ()
        self._engines_found = 0  # in the last snapshot, with those that were left out
        self._positions = 0  # of the last snapshot
        self._log_rings: dict[str, SampleRing] = {}
        self._asked = False  # a fetch has ended, well or not
        self._sources = DraftSources()
        self._departures = Departures(self.policy.data.engine_left_seconds)
        self._traffic: dict[str, TrafficWindow] = {}  # by served model

    # --- What runs ---

    @property
    def dropped(self) -> Counter[str]:
        """What metrics and log held beyond a bound, by what (see :mod:`specdec_exporter.bounds`)."""
        of_reader = dict(self.reader.dropped) if self.reader else {}  # a copy: its thread goes on counting
        return self._dropped + self.log.dropped + Counter(of_reader)

    @property
    def processes(self) -> int:
        """How many processes answer in turn; 0 before the first answer."""
        return self._processes.count(self._clock())

    @property
    def too_many_engines(self) -> str | None:
        """How many engines there are and how many are shown, in words; ``None`` if all are."""
        shown = len(self._tracks)
        return f"{self._engines_found:,} engines; {shown:,} are shown" if self._engines_found > shown else None

    @property
    def model_names(self) -> tuple[str, ...]:
        """Served models by the metrics; until the first metrics, by the log's init line."""
        named = self.running.model_name
        return tuple(sorted({model for model, _ in self._tracks})) or ((named,) if named else ())

    @property
    def engine_generation(self) -> str | None:
        """``"v0"`` or ``"v1"``."""
        if self.snapshot is not None and self.snapshot.engine_generation:
            return self.snapshot.engine_generation
        return self.running.config.engine_generation if self.running.config else None

    @property
    def num_speculative_tokens(self) -> int | None:
        """K by the log's start, the positions in the last metrics, or those in the log's lines."""
        return self.running.speculator(self._positions or self.log.num_positions).num_speculative_tokens

    @property
    def start(self) -> StartSummary | None:
        """How the predictor was started, with the capacity of the engine that has the least."""
        capacities = (self._kv_cache_tokens(track.snapshot) for track in self._tracks.values())
        return summarise(self.running.start, min(filter(None, capacities), default=None))

    def _kv_cache_tokens(self, snapshot: EngineSnapshot) -> float | None:
        """Return the capacity of an engine's KV cache. The log knows kinds of layers; the number of blocks does not."""
        return snapshot.kv_cache_tokens or self.running.start.kv_cache_tokens or snapshot.kv_cache_block_tokens

    # --- Figures ---

    @property
    def snapshots(self) -> list[EngineSnapshot]:
        """The engines by the last fetch; empty if it failed or had no statistics."""
        return [track.snapshot for track in self._tracks.values()] if self._counted else []

    @property
    def _counted(self) -> bool:
        return self.snapshot is not None and self.snapshot.stats_present

    def _has_windows(self, track: EngineTrack) -> bool:
        """Whether the counters give windows: they exist, and do not sum lifetime totals as V0's do."""
        return self._counted and self.engine_generation != "v0" and track.snapshot.draft_tokens is not None

    def window(self) -> Figures | None:
        """Return the figures of the last window, summed over engines."""
        return self._window(self._tracks.values(), self._log_rings)

    def _window(self, tracks: Iterable[EngineTrack], log_engines: Iterable[str]) -> Figures | None:
        countable = [track.ring for track in tracks if self._has_windows(track)]
        windows = self._windows(countable or self._logged(log_engines), self.window_seconds)
        if not windows:
            return None
        counts = reduce(add, (window.counts for window in windows))
        if not countable and not counts.draft_tokens:
            return None  # without lines in the window the log says nothing
        seconds = max(window.seconds for window in windows)
        result = self._figures(counts, "metrics" if countable else "log", seconds, concurrency(windows))
        return without_length(result) if self.engine_generation == "v0" else result

    def _logged(self, engines: Iterable[str]) -> list[SampleRing]:
        return [self._log_rings[engine] for engine in engines if engine in self._log_rings]

    def _windows(self, rings: Iterable[SampleRing], seconds: float) -> list[Window]:
        now = self._clock()
        return [window for ring in rings if (window := ring.window(seconds, now))]

    def lifetime(self) -> Figures | None:
        """Return the figures since the predictor started, summed over engines."""
        return self._lifetime(list(self._tracks.values()))

    def _lifetime(self, tracks: list[EngineTrack]) -> Figures | None:
        if not self._counted or not tracks:
            return None
        if self.engine_generation == "v0":
            rates = [rate for track in tracks if (rate := track.snapshot.lifetime_acceptance_ratio) is not None]
            if len(rates) != 1:  # V0 runs one engine; several ratios cannot be averaged without counts
                return None
            return figures(Counts(), None, "metrics", None, acceptance_ratio=rates[0])
        counts = reduce(add, (timed_counts_of(track.snapshot) for track in tracks))
        if counts.draft_tokens is None:
            return None
        return self._figures(counts, "metrics", None)

    def _figures(
        self, counts: Counts, source: Literal["metrics", "log"], seconds: float | None, load: float | None = None
    ) -> Figures:
        return figures(
            counts,
            self.num_speculative_tokens,
            source,
            seconds,
            adaptive_verification=self.running.deployment.adaptive_verification,
            concurrency=load,
        )

    def shown_history(self, window: Figures | None) -> tuple[HistoryPoint, ...]:
        """Return the windows of the last hour, with ``window`` as the newest."""
        return self.history.shown(self._clock(), window, self._wall_clock() - self._clock())

    # --- Whether the figures can be believed ---

    def counts(self) -> Counts | None:
        """Return the counts of the last window by the metrics, summed over engines; a V0 engine's are no counts."""
        windows = self._windows((track.ring for track in self._tracks.values()), self.window_seconds)
        return reduce(add, (window.counts for window in windows)) if windows else None

    @property
    def engines_left(self) -> tuple[str, ...]:
        """The engines that worked lately and left the last answer; empty where several processes answer in turn."""
        told = self._counted and self.processes == 1
        return self._departures.left(self._engine_names, self._clock()) if told else ()

    # --- Beside the baseline ---

    def traffic(self, model_name: str) -> Traffic | None:
        """Return what a model had to do lately; ``None`` if that was not seen."""
        found = self._traffic.get(model_name)
        return found.lately(self._clock()) if found else None

    def load(self, model_name: str) -> tuple[float, float] | None:
        """Return its requests per second and in flight; ``None`` if not known for long, or if the last fetch failed."""
        found = self._traffic.get(model_name) if self._counted else None
        return found.load(self._clock(), self.policy.data.traffic_seconds_min) if found else None

    # --- State ---

    @property
    def state(self) -> StateName:
        """The state of the whole predictor."""
        return self._state(list(self._tracks.values()), self._log_rings)

    def _state(self, tracks: list[EngineTrack], log_engines: Iterable[str]) -> StateName:
        if self.snapshot is None:
            return "unreachable"
        if not self.snapshot.stats_present or self._contradicts(tracks):
            return "stats_disabled"
        if not self._speculates(tracks):
            return "speculation_off"
        stepped, drafted = self._activity(tracks)
        if not drafted and self.engine_generation == "v0":  # its counters move once a log interval; the log tells more
            logged = self._windows(self._logged(log_engines), self.policy.state_window_seconds)
            drafted = any(window.counts.draft_tokens for window in logged)
        if drafted:
            return "drafting"
        return "not_drafting" if stepped else "idle"

    def _contradicts(self, tracks: list[EngineTrack]) -> bool:
        """Whether nothing can be used, as where the series of several processes have the same labels."""
        unusable = self.snapshot is not None and bool(self.snapshot.dropped.keys() & {"values", "series", "labels"})
        return unusable and all(track.snapshot.generation_tokens is None for track in tracks)

    def _activity(self, tracks: list[EngineTrack]) -> tuple[bool, bool]:
        """Return whether the engines decode, and whether they draft. A single answer tells it by what runs."""
        windows = self._windows((track.ring for track in tracks), self.policy.state_window_seconds)
        if not windows:
            stepped = any(track.snapshot.requests_running for track in tracks)
            return stepped, stepped and any(track.snapshot.draft_tokens for track in tracks)
        counts = reduce(add, (window.counts for window in windows))
        return bool(counts.generation_tokens if counts.steps is None else counts.steps), bool(counts.draft_tokens)

    def _speculates(self, tracks: Iterable[EngineTrack]) -> bool:
        """Whether speculation is on by the log's init line; without it, whether metrics prove it."""
        configured = self.running.speculative
        return any(_drafts(track.snapshot) for track in tracks) if configured is None else configured

    # --- What speculation gives ---

    @property
    def assumed_break_even(self) -> BreakEven:
        """Break-even by published services, for this method, k and load."""
        return break_even(self.window(), self.num_speculative_tokens, self.running.method, self.policy)

    @property
    def break_even(self) -> BreakEven:
        """Break-even against the baseline without speculation; the assumed one where that does not tell."""
        return break_even(self.window(), self.num_speculative_tokens, self.running.method, self.policy, self.cost)

    # --- Engine by engine ---

    def engines(self) -> list[EngineView]:
        """Return every known engine in order; without snapshots if the last fetch failed."""
        return [self._engine(*key, track) for key, track in sorted(self._tracks.items())]

    def _engine(self, model_name: str, engine: str, track: EngineTrack) -> EngineView:
        window, lifetime = self._window([track], [engine]), self._lifetime([track])
        if window is None and self.engine_generation == "v0":
            window = lifetime
        return EngineView(
            model_name=model_name,
            engine=engine,
            track=track,
            snapshot=track.snapshot if self._counted else None,
            window=window,
            lifetime=lifetime,
            state=self._state([track], [engine]),
            has_windows=self._has_windows(track) and not self.running.deployment.adaptive_verification,
            kv_cache_tokens=self._kv_cache_tokens(track.snapshot) if self._counted else None,
        )

    def log_engines(self) -> list[tuple[str, EngineLogTotals]]:
        """Return the log's totals of every engine; empty if no log is read.

        Engines known only from the metrics have zeros, unless speculation is off: a counter that stays at zero means
        that drafts are missing.
        """
        config = self.running.config
        if self.reader is None or (config is not None and config.speculative is False):
            return []
        silent = () if self.state == "speculation_off" else self._engine_names
        return sorted({**{engine: EngineLogTotals() for engine in silent}, **self.log.engines}.items())

    # --- Counts of drafts ---

    def drafts(self) -> Drafted:
        """Return the counts of drafts to serve, by the metrics or the log."""
        by_metrics = {
            key: self._sources.served(track.snapshot)
            for key, track in self._tracks.items()
            if self._counted and (self.reader is None or self._sources.are_metrics(key[1]))
        }
        return dict(sorted((by_metrics | self._logged_drafts()).items()))

    def _logged_drafts(self) -> Drafted:
        """Return the counts of the log, for engines whose metrics count no drafts; none before the first fetch ended.

        Beside metrics that count, lines of an engine that they do not name may be of all of them. An engine without a
        line has zeros if it is known to speculate.
        """
        if self.reader is None or not self._asked or self.running.speculative is False:
            return {}
        silent = self._engine_names if self.running.speculative else ()
        spoken = {engine: totals for engine, totals in self.log.engines.items() if totals.windows}
        return {
            (self._model_of(engine), engine): drafts_of_log(totals)
            for engine, totals in {**dict.fromkeys(silent, EngineLogTotals()), **spoken}.items()
            if not self._sources.are_metrics(engine)
            and (engine in self._engine_names or not self._sources.have_metrics())
        }

    def _model_of(self, engine: str) -> str:
        """Return the model for the lines of an engine, which name none: the log's, unless the metrics know others."""
        models = [model for model, name in self._tracks if name == engine] or self.model_names
        return min(models, key=lambda model: (model != self.running.model_name, model), default="")

    # --- For the judgement ---

    def evidence(self) -> Evidence:
        """Return the evidence for a judgement of this predictor."""
        windows = {engine: totals.windows for engine, totals in self.log.engines.items() if totals.windows}
        # Lines come at intervals: their absence proves nothing at first.
        watched = self.reader is not None and self._clock() - self._born >= self.window_seconds
        return Evidence(
            state=self.state,
            figures=self.window() or self.lifetime(),
            vllm_version=self.running.vllm_version,
            engine_generation=self.engine_generation,
            method=self.running.method,
            num_speculative_tokens=self.num_speculative_tokens,
            engines=len(self._engine_names) or len(windows),
            log_windows=sum(windows.values()) if watched or windows else None,
            warnings=frozenset(self.warnings),
            baseline=self.baseline,
            cost=self.cost,
            deployment=self.running.deployment,
        )


def _drafts(engine: EngineSnapshot) -> bool:
    """Whether the metrics alone prove that speculation is on.

    From 0.8.5 on the counters exist only with speculation. 0.8.3 and 0.8.4 have no drafts counter and always register
    the others, so only a count proves it. A V0 engine shows its gauge only after it has drafted.
    """
    if engine.drafts is not None:
        return True
    return bool(engine.draft_tokens) or engine.lifetime_acceptance_ratio is not None
