"""The state of one predictor: snapshots and log events in, its status out. Only this module changes it."""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import reduce
from operator import add

import msgspec

from specdec_exporter import bounds
from specdec_exporter.histogram import HistogramCounter
from specdec_exporter.predictor.facts.deployment import Deployment
from specdec_exporter.predictor.facts.failures import explained
from specdec_exporter.predictor.log.counters import ReaderCounters
from specdec_exporter.predictor.log.events import (
    START_KINDS,
    EngineConfig,
    Event,
    PredictorWarning,
    RequestParams,
    ServerArguments,
    ServerReady,
    SpecDecoding,
    StartFailure,
)
from specdec_exporter.predictor.log.start import Start, StartSummary, summarise
from specdec_exporter.predictor.metrics.snapshot import (
    EngineGeneration,
    EngineSnapshot,
    Snapshot,
    started_later,
    without_drafts,
)
from specdec_exporter.predictor.versions import NOT_SPECULATIVE, SYNTHETIC, KnownPitfall, special_rejection_sampling
from specdec_exporter.serving.loads import EngineLoads, LoadCounters, LoadTotals
from specdec_exporter.serving.status import (
    EngineStatus,
    HistoryPoint,
    LoadStatus,
    LogStatus,
    Measurement,
    PredictorStatus,
)
from specdec_exporter.speculation import acceptance
from specdec_exporter.speculation.acceptance import Counts
from specdec_exporter.speculation.benefit import BreakEven, assumed_break_even, k_choice, measured_break_even
from specdec_exporter.speculation.cost import KChoice, MeasuredCost, StepTimes, measure
from specdec_exporter.speculation.facts import DecodingBaseline, Evidence, StateName, warning_counts
from specdec_exporter.speculation.figures import Figures, figures, timed_counts_of, without_length
from specdec_exporter.speculation.logtotals import EngineLogTotals, LogTotals, engine_label
from specdec_exporter.speculation.policy import Policy, ResolvedPolicy, load_policy
from specdec_exporter.speculation.verdict import Remembered, Verdict, judge, remembered
from specdec_exporter.speculation.windows import SampleRing, Window

HISTORY_SECONDS = 3600.0
HISTORY_POINTS = 121  # at most; beyond it every second one is dropped
# Upper bounds of specdec_window_acceptance_ratio and its twin by drafts: even steps resolve every quantile to 0.05.
WINDOW_RATIO_BOUNDS = tuple(round(0.05 * step, 2) for step in range(1, 21))
# Upper bounds of specdec_request_temperature. At 0 (greedy) only the likeliest token is accepted.
TEMPERATURE_BOUNDS = (0.0, 0.2, 0.4, 0.6, 0.8, 1.0, 1.2, 1.5, 2.0)
# Samples that are kept of one engine's window. Where many engines share the memory, each keeps fewer.
MOST_SAMPLES, FEWEST_SAMPLES, SAMPLES_OF_ALL_ENGINES = 60, 12, 60 * 64


@dataclass(slots=True)
class EngineTrack:
    """What the state keeps of one engine between fetches."""

    ring: SampleRing
    snapshot: EngineSnapshot
    short_window_start: float
    loads: EngineLoads
    short_window_totals: Counts = field(default_factory=Counts)
    ratios: HistogramCounter = field(default_factory=lambda: HistogramCounter(WINDOW_RATIO_BOUNDS))
    ratios_by_draft: HistogramCounter = field(default_factory=lambda: HistogramCounter(WINDOW_RATIO_BOUNDS))


@dataclass(frozen=True, slots=True)
class ModelBenefit:
    """What speculation gives one served model; ``measured`` and ``cost`` only with a baseline without speculation."""

    assumed: BreakEven | None
    measured: BreakEven | None
    cost: MeasuredCost | None
    loads: list[tuple[int, LoadTotals]]


@dataclass(frozen=True, slots=True)
class EngineView:
    """One engine as the collector shows it. ``snapshot`` is ``None`` when the last fetch failed."""

    model_name: str
    engine: str
    snapshot: EngineSnapshot | None
    window: Figures | None  # for a V0 engine without a log: the lifetime
    recommended_num_speculative_tokens: int | None
    state: StateName
    ratios: HistogramCounter | None  # of short windows
    ratios_by_draft: HistogramCounter | None
    kv_cache_tokens: float | None  # capacity


class PredictorState:
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
        self.up_reason: str | None = "not asked yet"
        self.restarts = 0
        self.log = LogTotals()
        self.warnings: Counter[str] = Counter()
        self.start_failures: Counter[str] = Counter()  # by code
        self._failed_start: StartFailure | None = None  # the last one, while nothing shows that a later start succeeded
        self._dropped: Counter[str] = Counter()  # what the metrics held beyond a bound
        self.temperatures: HistogramCounter | None = None  # of requests; None until the log shows one
        self.baseline: DecodingBaseline | None = None
        self._clock = clock
        self._wall_clock = wall_clock
        self.snapshot: Snapshot | None = None  # None if the last fetch failed
        self.cost: MeasuredCost | None = None  # of the window, for the baseline's model
        self._loads: dict[str, LoadCounters] = {}  # by served model
        self._tracks: dict[tuple[str, str], EngineTrack] = {}
        self._generation: EngineGeneration | None = None  # of the last engines
        self._process_start: float | None = None  # the latest that came with statistics, Unix time
        self._settled_at = -math.inf  # monotonic: until then the process is in its slow first time
        self._engine_names: tuple[str, ...] = ()
        self._engines_found = 0  # in the last snapshot, with those that were left out
        self._positions = 0  # of the last snapshot
        self._log_rings: dict[str, SampleRing] = {}
        self._born = clock()
        self._config: EngineConfig | None = None
        self._arguments: ServerArguments | None = None
        self._start = Start()
        self._started = Deployment()  # what the start says; a scrape must not work it out again
        self._api_version: str | None = None
        self.version_asked = False  # since the last known restart
        self._history: list[HistoryPoint] = []  # their timestamps are monotonic: the wall clock may be set
        self._history_spacing = 0.0  # seconds between two points, at least
        self._verdict: Remembered | None = None  # None: nothing is remembered

    # --- Changes ---

    def observe_snapshot(self, snapshot: Snapshot) -> None:
        """Take in a successful fetch."""
        now = self._clock()
        self._sample_log(now)
        if self.method in NOT_SPECULATIVE:
            snapshot = without_drafts(snapshot)
        self.up, self.up_reason, self.snapshot = True, None, snapshot
        self._failed_start = None
        self._dropped.update(snapshot.dropped)
        tracks: dict[tuple[str, str], EngineTrack] = {}
        engines = snapshot.engines
        if snapshot.stats_present and not engines:
            # V0 shows no engine before the first request: only the names of the earlier engines stay valid.
            engines = tuple(EngineSnapshot(model_name=model, engine=name) for model, name in self._tracks)
        restarted = another_process = self._is_another_process(snapshot, now)
        if snapshot.engines:
            if self._generation not in (None, snapshot.engine_generation):
                restarted, self._tracks = True, {}  # V0 counts something else, so nothing of it may stay in a window
            self._generation = snapshot.engine_generation
        self._engines_found = len(engines) + snapshot.dropped.get("engines", 0)
        self._positions = max((len(engine.accepted_tokens_per_position or ()) for engine in engines), default=0)
        samples = _samples_each(len(engines))
        for engine in engines:
            key = (engine.model_name, engine.engine)
            track = self._tracks.get(key) or self._new_track(engine, now)
            track.snapshot = engine
            track.ring.spacing = self.window_seconds / samples
            track.loads.shortest = self.policy.cost.interval_seconds * MOST_SAMPLES / samples
            resets, glitches = track.ring.resets, track.ring.glitches
            settled = now >= self._settled_at
            track.ring.add(now, timed_counts_of(engine), restarted=another_process, settled=settled)
            if track.ring.glitches > glitches:
                self._dropped["values"] += 1
            if track.ring.resets > resets:
                restarted = True
                if self._process_start is None:
                    self._settled_at = now + self.policy.cost.warm_up_seconds
            self._take_load(track)
            tracks[key] = track
        if engines:  # a snapshot without statistics says nothing about the engines: keep the earlier ones
            self._tracks = tracks
            self._engine_names = tuple(sorted({engine for _, engine in tracks}))
        if restarted:
            self.restarts += 1
            self.version_asked = False
            self.forget_verdict()  # what runs now may be something else
        self._close_short_windows(now)
        self._keep_history()
        self._measure_cost()
        self._verdict = self._judged(judge(self.evidence(), self.policy).verdict)

    def _judged(self, verdict: Verdict) -> Remembered:
        return remembered(self._verdict, verdict, self._clock(), self.policy)

    def _new_track(self, engine: EngineSnapshot, now: float) -> EngineTrack:
        loads = EngineLoads(self.policy.cost, self.window_seconds)
        # V0 adds up lifetime totals, ever faster.
        fastest = math.inf if self.engine_generation == "v0" else bounds.COUNT_PER_SECOND
        return EngineTrack(SampleRing(self.window_seconds, fastest=fastest), engine, now, loads)

    def _take_load(self, track: EngineTrack) -> None:
        """Sort the interval that has just ended by its concurrency."""
        load = track.loads.take(track.ring.last)
        if load is not None and self.engine_generation != "v0":
            model = track.snapshot.model_name
            if model not in self._loads and len(self._loads) >= bounds.ENGINES:
                shown = set(self.model_names)
                self._loads = {name: loads for name, loads in self._loads.items() if name in shown}
            self._loads.setdefault(model, LoadCounters()).add(load, self._step_times(model))

    def _step_times(self, model_name: str) -> StepTimes | None:
        """Return the step times of the baseline, if it was recorded without speculation and is of this model."""
        baseline = self.baseline
        return baseline.step_times if baseline is not None and baseline.model_name == model_name else None

    def _measure_cost(self) -> None:
        """Compare the last intervals with the baseline at like load."""
        baseline, self.cost = self.baseline, None
        if baseline is None or baseline.step_times is None or self.engine_generation == "v0":
            return
        if self.snapshot is None or self.state == "speculation_off" or self.rejection_sampling == SYNTHETIC:
            return
        loads = [
            load
            for (model, _), track in self._tracks.items()
            if model == baseline.model_name
            for load in track.loads.loads
        ]
        self.cost = measure(loads, baseline.step_times, self.policy.cost)

    def _is_another_process(self, snapshot: Snapshot, now: float) -> bool:
        """Whether the process started later than the one before; processes without statistics are ignored."""
        start = snapshot.process_start_time_seconds
        if not snapshot.stats_present or start is None:
            return False
        later = started_later(self._process_start, start)
        if later or self._process_start is None:
            self._process_start = start
            # The wall clock is asked once for each process: somebody may set it later, even to 1970.
            age = max(self._wall_clock() - start, 0.0)
            self._settled_at = now + self.policy.cost.warm_up_seconds - age
        return later

    def observe_failure(self, reason: str) -> None:
        """Take in a failed fetch; ``reason`` is in words."""
        self._sample_log(self._clock())
        self.up, self.up_reason, self.snapshot, self.cost = False, reason, None, None
        self.version_asked = False  # the next answer may come from another release

    def observe_version(self, version: str | None) -> None:
        """Take in the predictor's version; ``None`` if it gave none."""
        self._api_version, self.version_asked = version, True

    def observe_baseline(self, baseline: DecodingBaseline | None) -> None:
        """Take in the baseline that fits what runs now; ``None`` if none fits."""
        if baseline != self.baseline:
            self.forget_verdict()
        self.baseline = baseline
        self._measure_cost()

    def forget_verdict(self) -> None:
        """Forget the last verdict: other settings hold now."""
        self._verdict = None

    def observe_event(self, event: Event) -> None:
        """Take in an event of the predictor's log."""
        if isinstance(event, SpecDecoding):
            if self.method in NOT_SPECULATIVE:
                return
            label = engine_label(event.engine, self._engine_names)
            self.log.add(event, label, event.num_speculative_tokens or self.num_speculative_tokens)
        elif type(event) in START_KINDS:
            self._observe_start(event)
        elif isinstance(event, PredictorWarning):
            self.warnings[event.warning] += 1
        elif isinstance(event, StartFailure):
            self.start_failures[event.failure] += 1
            self._failed_start = event
        elif isinstance(event, ServerReady):
            self._failed_start = None
        elif isinstance(event, RequestParams) and event.temperature is not None:
            if self.temperatures is None:
                self.temperatures = HistogramCounter(TEMPERATURE_BOUNDS)
            self.temperatures.observe(event.temperature)

    def _observe_start(self, event: Event) -> None:
        self._start = self._start.after(event)
        self._started = self._start.deployment
        self._config, self._arguments = self._start.config, self._start.arguments
        if event in (self._config, self._arguments):
            self.forget_verdict()
        if isinstance(event, EngineConfig) and not event.historical:
            self.log.predictor_started()

    def _sample_log(self, now: float) -> None:
        """Sample the log's totals with each fetch, not with each line, which keeps reading cheap."""
        samples = _samples_each(len(self.log.engines))
        for label, totals in self.log.engines.items():
            ring = self._log_rings.get(label)
            if ring is None:
                ring = self._log_rings[label] = SampleRing(self.window_seconds)
                ring.add(self._born, Counts(drafts=0, draft_tokens=0, accepted_tokens=0))
            ring.spacing = self.window_seconds / samples
            ring.add(now, totals.counts())

    def _close_short_windows(self, now: float) -> None:
        if self.engine_generation == "v0":  # its counters sum lifetime totals, so they give no windows
            return
        for track in self._tracks.values():
            if now - track.short_window_start < self.policy.short_window_seconds:
                continue
            counts = track.ring.totals - track.short_window_totals
            track.short_window_start, track.short_window_totals = now, track.ring.totals
            rate = acceptance.acceptance_ratio(counts.accepted_tokens, counts.draft_tokens)
            enough = counts.drafts is None or counts.drafts >= self.policy.min_drafts
            if rate is not None and enough:
                track.ratios.observe(rate)
                # 0.8.3 and 0.8.4 count no drafts. The limit keeps sums of absurd counters finite.
                track.ratios_by_draft.observe(rate, int(min(counts.drafts or counts.draft_tokens or 0.0, 2.0**53)))

    def _keep_history(self) -> None:
        """Keep the window's figures as the newest point of the last hour. It replaces a point that is too close."""
        point, kept = self._point(self.window()), self._history
        if point is None:
            return
        if len(kept) > 1 and point.timestamp - kept[-2].timestamp < self._history_spacing:
            kept.pop()
        kept = [each for each in kept if each.timestamp >= point.timestamp - HISTORY_SECONDS] + [point]
        if len(kept) > HISTORY_POINTS:
            kept = kept[::-2][::-1]  # the newest stays
            # A little less than their mean distance: scrapes are never quite even.
            self._history_spacing = 0.9 * (kept[-1].timestamp - kept[0].timestamp) / (len(kept) - 1)
        self._history = kept

    def _point(self, window: Figures | None) -> HistoryPoint | None:
        if window is None:
            return None
        return HistoryPoint(
            timestamp=self._clock(),
            acceptance_ratio=window.acceptance_ratio,
            mean_acceptance_length=window.mean_acceptance_length,
        )

    def _shown_history(self, window: Figures | None) -> tuple[HistoryPoint, ...]:
        """Return the history with Unix times, with the window as it is now as its newest point."""
        point, ahead = self._point(window), self._wall_clock() - self._clock()
        points = (*self._history[:-1], point) if point else self._history
        return tuple(msgspec.structs.replace(each, timestamp=each.timestamp + ahead) for each in points)

    # --- Status ---

    @property
    def dropped(self) -> Counter[str]:
        """What metrics and log held beyond a bound, by what (see :mod:`specdec_exporter.bounds`)."""
        of_reader = dict(self.reader.dropped) if self.reader else {}  # a copy: its thread goes on counting
        return self._dropped + self.log.dropped + Counter(of_reader)

    @property
    def too_many_engines(self) -> str | None:
        """How many engines there are and how many are shown, in words; ``None`` if all are."""
        shown = len(self._tracks)
        return f"{self._engines_found:,} engines; {shown:,} are shown" if self._engines_found > shown else None

    @property
    def model_names(self) -> tuple[str, ...]:
        """Served models by the metrics; until the first metrics, by the log's init line."""
        names = tuple(sorted({model for model, _ in self._tracks}))
        if names or self._config is None:
            return names
        named = self._config.served_model_name or self._config.model
        return (named,) if named else ()

    @property
    def log_model_name(self) -> str:
        """The ``model_name`` of the log's series; empty while no source names a model."""
        return next(iter(self.model_names), "")

    @property
    def method(self) -> str | None:
        """Speculation method by the log's init line."""
        return self._config.method if self._config else None

    @property
    def draft_model(self) -> str | None:
        """Draft model by the log's init line."""
        return self._config.draft_model if self._config else None

    @property
    def vllm_version(self) -> str | None:
        """The release by ``/version``, else by the log's init line."""
        return self._api_version or (self._config.vllm_version if self._config else None)

    @property
    def engine_generation(self) -> str | None:
        """``"v0"`` or ``"v1"``."""
        if self.snapshot is not None and self.snapshot.engine_generation:
            return self.snapshot.engine_generation
        return self._config.engine_generation if self._config else None

    @property
    def num_speculative_tokens(self) -> int | None:
        """K by the log's init line, else the number of positions in the metrics or in the log's lines."""
        if self._config is not None:
            return self._config.num_speculative_tokens
        if self.snapshot is not None and self._positions:
            return self._positions
        logged = max((totals.num_speculative_tokens or 0 for totals in self.log.engines.values()), default=0)
        return logged or None

    @property
    def rejection_sampling(self) -> str | None:
        """The method of rejection sampling by the log's line of arguments, if it is synthetic or lossy."""
        return special_rejection_sampling(self._arguments.rejection_sample_method if self._arguments else None)

    @property
    def resolved_policy(self) -> ResolvedPolicy:
        """The thresholds for this predictor's method."""
        return self.policy.for_method(self.method)

    @property
    def assumed_break_even(self) -> BreakEven:
        """Break-even by the policy."""
        return assumed_break_even(self.window(), self.num_speculative_tokens, self.resolved_policy)

    @property
    def measured_break_even(self) -> BreakEven | None:
        """Break-even against the baseline without speculation at like load."""
        return measured_break_even(self.window(), self.num_speculative_tokens, self.cost)

    def benefits(self) -> list[tuple[str, ModelBenefit]]:
        """Return what speculation gives each served model."""
        off = self.state == "speculation_off" or self.rejection_sampling == SYNTHETIC
        measured_model = self.baseline.model_name if self.baseline and not off else None
        assumed = None if off else self.assumed_break_even
        found = []
        for model in self.model_names:
            measured = model == measured_model
            loads = self._loads.get(model)
            found.append(
                (
                    model,
                    ModelBenefit(
                        assumed=assumed,
                        measured=self.measured_break_even if measured else None,
                        cost=self.cost if measured else None,
                        loads=loads.bins() if loads else [],
                    ),
                )
            )
        return found

    def engines(self) -> list[EngineView]:
        """Return every known engine in order; without snapshots if the last fetch failed."""
        views = []
        for (model_name, engine), track in sorted(self._tracks.items()):
            window = self._window([track], [engine])
            if window is None and self.engine_generation == "v0":
                window = self._lifetime([track])
            views.append(
                EngineView(
                    model_name=model_name,
                    engine=engine,
                    snapshot=track.snapshot if self._counted else None,
                    window=window,
                    recommended_num_speculative_tokens=self._recommended(window),
                    state=self._state([track], [engine]),
                    ratios=track.ratios if self._has_windows(track) else None,
                    ratios_by_draft=track.ratios_by_draft if self._has_windows(track) else None,
                    kv_cache_tokens=self._kv_cache_tokens(track.snapshot) if self._counted else None,
                )
            )
        return views

    def _kv_cache_tokens(self, snapshot: EngineSnapshot) -> float | None:
        """Return the capacity of an engine's KV cache. The log knows kinds of layers; the number of blocks does not."""
        return snapshot.kv_cache_tokens or self._start.kv_cache_tokens or snapshot.kv_cache_block_tokens

    @property
    def _least_kv_cache_tokens(self) -> float | None:
        """The capacity of the engine that has the least, as far as metrics or log tell."""
        snapshots = [track.snapshot for track in self._tracks.values()]
        found = [tokens for snapshot in snapshots if (tokens := self._kv_cache_tokens(snapshot)) is not None]
        return min(found, default=self._start.kv_cache_tokens)

    @property
    def start(self) -> StartSummary | None:
        """How the predictor was started."""
        return summarise(self._start, self._least_kv_cache_tokens)

    def _k_choice(self, window: Figures | None) -> KChoice | None:
        return k_choice(window, self.num_speculative_tokens, self.cost, self.resolved_policy)

    def _recommended(self, window: Figures | None) -> int | None:
        """Return the best k by the measured cost."""
        choice = self._k_choice(window)
        return choice.recommended if choice else None

    def log_engines(self) -> list[tuple[str, EngineLogTotals]]:
        """Return the log's totals of every engine; empty if no log is read.

        Engines known only from the metrics have zeros, unless speculation is off: a counter that stays at zero means
        that drafts are missing.
        """
        if self.reader is None or (self._config is not None and self._config.speculative is False):
            return []
        silent = () if self.state == "speculation_off" else self._engine_names
        return sorted({**{engine: EngineLogTotals() for engine in silent}, **self.log.engines}.items())

    @property
    def state(self) -> StateName:
        """The state of the whole predictor."""
        return self._state(list(self._tracks.values()), list(self._log_rings))

    @property
    def _counted(self) -> bool:
        return self.snapshot is not None and self.snapshot.stats_present

    def _has_windows(self, track: EngineTrack) -> bool:
        """Whether the counters give windows: they exist, and do not sum lifetime totals as V0's do."""
        return self._counted and self.engine_generation != "v0" and track.snapshot.draft_tokens is not None

    def window(self) -> Figures | None:
        """Return the figures of the last window, summed over engines."""
        return self._window(list(self._tracks.values()), list(self._log_rings))

    def _window(self, tracks: Iterable[EngineTrack], log_engines: Iterable[str]) -> Figures | None:
        countable = [track.ring for track in tracks if self._has_windows(track)]
        windows = self._windows(countable or self._logged(log_engines), self.window_seconds)
        if not windows:
            return None
        counts = reduce(add, (window.counts for window in windows))
        if not countable and not counts.draft_tokens:
            return None  # without lines in the window the log says nothing
        seconds = max(window.seconds for window in windows)
        result = figures(counts, self.num_speculative_tokens, "metrics" if countable else "log", seconds)
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
        return figures(counts, self.num_speculative_tokens, "metrics", None)

    def _state(self, tracks: list[EngineTrack], log_engines: list[str]) -> StateName:
        if self.snapshot is None:
            return "unreachable"
        if not self.snapshot.stats_present:
            return "stats_disabled"
        configured = self._config.speculative is True if self._config else None
        if configured is False or (configured is None and not any(_speculates(track.snapshot) for track in tracks)):
            return "speculation_off"
        span = self.policy.state_window_seconds
        if windows := self._windows((track.ring for track in tracks), span):
            counts = reduce(add, (window.counts for window in windows))
            drafted = bool(counts.draft_tokens)
            stepped = bool(counts.generation_tokens if counts.steps is None else counts.steps)
        else:
            stepped = any(track.snapshot.requests_running for track in tracks)
            drafted = stepped and any(track.snapshot.draft_tokens for track in tracks)
        if not drafted and self.engine_generation == "v0":  # its counters move once a log interval; the log tells more
            drafted = any(window.counts.draft_tokens for window in self._windows(self._logged(log_engines), span))
        if drafted:
            return "drafting"
        return "not_drafting" if stepped else "idle"

    def status(self) -> PredictorStatus:
        """Return the whole status, with figures summed over engines."""
        window = self.window()
        snapshots = [track.snapshot for track in self._tracks.values()] if self._counted else []
        judgement = judge(self.evidence(), self.policy)
        failed = self._failed_start
        return PredictorStatus(
            inference_service=self.name,
            url=self.url,
            up=self.up,
            up_reason=self.up_reason,
            failed_start=explained(failed.failure, failed.message, failed.timestamp) if failed else None,
            state=self.state,
            model_names=self.model_names,
            vllm_version=self.vllm_version,
            engine_generation=self.engine_generation,
            method=self.method,
            draft_model=self.draft_model,
            num_speculative_tokens=self.num_speculative_tokens,
            rejection_sampling=self.rejection_sampling,
            start=self.start,
            recommended_num_speculative_tokens=self._recommended(window),
            requests_running=_total(snapshot.requests_running for snapshot in snapshots),
            requests_waiting=_total(snapshot.requests_waiting for snapshot in snapshots),
            kv_cache_usage_ratio=max(
                (usage for snapshot in snapshots if (usage := snapshot.kv_cache_usage_ratio) is not None), default=None
            ),
            acceptance_ratio_min=self.resolved_policy.acceptance_ratio_min,
            mean_acceptance_length_min=self.assumed_break_even.mean_acceptance_length,
            break_even=self.measured_break_even or self.assumed_break_even,
            measured=_measurement(self.cost, self._k_choice(window)) if self.cost else None,
            by_load=tuple(
                LoadStatus(
                    model_name=model,
                    concurrency=bound,
                    seconds=totals.load.seconds,
                    steps=totals.load.steps,
                    step_seconds=totals.load.step_seconds / totals.load.steps,
                    tokens_per_step=totals.load.tokens / totals.load.steps,
                    speedup=totals.speedup,
                )
                for model, counters in sorted(self._loads.items())
                for bound, totals in counters.bins()
            ),
            window=window,
            lifetime=self.lifetime(),
            engines=tuple(
                EngineStatus(
                    model_name=view.model_name,
                    engine=view.engine,
                    window=view.window,
                    lifetime=self._lifetime([self._tracks[view.model_name, view.engine]]),
                )
                for view in self.engines()
            ),
            history=self._shown_history(window),
            warnings=warning_counts(self.warnings),
            pitfalls=judgement.pitfalls
            if self.too_many_engines is None
            else (_left_out(self.too_many_engines), *judgement.pitfalls),
            log=self._log_status(),
            verdict=self._judged(judgement.verdict).shown,
        )

    def evidence(self) -> Evidence:
        """Return the evidence for a judgement of this predictor."""
        windows = {engine: totals.windows for engine, totals in self.log.engines.items() if totals.windows}
        # Lines come at intervals: their absence proves nothing at first.
        watched = self.reader is not None and self._clock() - self._born >= self.window_seconds
        return Evidence(
            state=self.state,
            figures=self.window() or self.lifetime(),
            vllm_version=self.vllm_version,
            engine_generation=self.engine_generation,
            method=self.method,
            num_speculative_tokens=self.num_speculative_tokens,
            rejection_sampling=self.rejection_sampling,
            engines=len(self._engine_names) or len(windows),
            log_windows=sum(windows.values()) if watched or windows else None,
            warnings=frozenset(self.warnings),
            baseline=self.baseline,
            cost=self.cost,
            deployment=self._deployment,
        )

    @property
    def _deployment(self) -> Deployment:
        tokens = self._least_kv_cache_tokens
        return msgspec.structs.replace(self._started, kv_cache_tokens=None if tokens is None else int(tokens))

    def _log_status(self) -> LogStatus | None:
        if self.reader is None:
            return None
        return LogStatus(
            windows=sum(totals.windows for totals in self.log.engines.values()),
            lines=self.reader.lines,
            parse_errors=self.reader.parse_errors,
            bytes_behind=self.reader.bytes_behind,
            last_line_timestamp=self.reader.last_line_timestamp,
        )


def _measurement(cost: MeasuredCost, choice: KChoice | None) -> Measurement:
    return Measurement(
        speedup=cost.speedup,
        draft_cost_ratio=cost.draft_cost_ratio,
        concurrency=cost.concurrency,
        compared_ratio=cost.compared_ratio,
        steps=cost.steps,
        step_seconds=cost.step_seconds,
        plain_step_seconds=cost.plain_step_seconds,
        tokens_per_step=cost.tokens_per_step,
        draft_tokens_per_step=cost.draft_tokens_per_step,
        k=choice,
    )


def _left_out(engines: str) -> KnownPitfall:
    return KnownPitfall(
        code="too_many_engines",
        releases="all",
        meaning=f"{engines}. Every figure is about these alone",
        action="Run one exporter for each predictor; it shows more engines. If there should be fewer, see who answers.",
        costly=False,
    )


def _samples_each(engines: int) -> int:
    """Return how many samples of a window to keep of each engine."""
    return max(FEWEST_SAMPLES, min(MOST_SAMPLES, SAMPLES_OF_ALL_ENGINES // max(engines, 1)))


def _speculates(engine: EngineSnapshot) -> bool:
    """Whether the metrics alone prove that speculation is on.

    From 0.8.5 on the counters exist only with speculation. 0.8.3 and 0.8.4 have no drafts counter and always register
    the others, so only a count proves it. A V0 engine shows its gauge only after it has drafted.
    """
    if engine.drafts is not None:
        return True
    return bool(engine.draft_tokens) or engine.lifetime_acceptance_ratio is not None


def _total(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) if known else None
