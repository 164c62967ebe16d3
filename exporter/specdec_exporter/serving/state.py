"""The state of one predictor: snapshots and log events in. Only this module changes it; ``view.py`` reads it."""

from __future__ import annotations

import math
from operator import itemgetter

import msgspec
from msgspec.structs import replace

from specdec_exporter import bounds
from specdec_exporter.histogram import HistogramCounter
from specdec_exporter.predictor.log.events import (
    START_KINDS,
    EngineConfig,
    Event,
    PredictorWarning,
    ServerReady,
    SpecDecoding,
    StartFailure,
)
from specdec_exporter.predictor.log.totals import engine_label
from specdec_exporter.predictor.metrics.snapshot import EngineSnapshot, Snapshot, without_drafts
from specdec_exporter.predictor.versions import NOT_SPECULATIVE, SYNTHETIC
from specdec_exporter.serving.departures import has_worked
from specdec_exporter.serving.lastword import Remembered, remembered
from specdec_exporter.serving.loads import EngineLoads, LoadCounters
from specdec_exporter.serving.predictorstatus import status_of
from specdec_exporter.serving.status import PredictorStatus
from specdec_exporter.serving.tracks import MOST_SAMPLES, WINDOW_RATIO_BOUNDS, EngineTrack, samples_each
from specdec_exporter.serving.traffic import TrafficWindow
from specdec_exporter.serving.view import PredictorView
from specdec_exporter.serving.windows import SampleRing
from specdec_exporter.speculation.acceptance import Counts
from specdec_exporter.speculation.facts import DecodingBaseline
from specdec_exporter.speculation.figures import logged_counts_of, timed_counts_of
from specdec_exporter.speculation.judging import judge
from specdec_exporter.speculation.measured import Unknown
from specdec_exporter.speculation.speedup import measure
from specdec_exporter.speculation.steptime import StepTimes
from specdec_exporter.speculation.verdict import Verdict, VerdictCode


class PredictorState(PredictorView):
    """What is known of one predictor, while it changes."""

    _lost = False  # nothing answered since the last answer
    _settled_at = -math.inf  # monotonic: until then the process is in its slow first time
    _verdict: Remembered | None = None  # None: nothing is remembered

    # --- The predictor's metrics ---

    def observe_snapshot(self, snapshot: Snapshot) -> None:
        """Take in a successful fetch."""
        now = self._clock()
        self._sample_log(now)
        logged = self._logged_drafts()
        if self.running.method in NOT_SPECULATIVE:
            snapshot = without_drafts(snapshot)
        answer = self._processes.take(snapshot, now, self._wall_clock(), lost=self._lost)
        self.up, self.up_reason, self.snapshot = True, None, answer.snapshot
        self.failed_start, self._lost = None, False
        self._dropped.update(snapshot.dropped)
        self._dropped["values"] += answer.left_out
        if answer.new:
            self._settled_at = self._warm_until(snapshot.process_start_time_seconds, now)
            self.version_asked = False
            self.forget_verdict()  # what runs now may be something else
            self._departures.forget()
            for track in self._tracks.values():
                track.loads.interrupt()
        self.restarts += answer.restarted
        self._take_engines(answer.snapshot, now, restarted=answer.restarted)
        self._sources.take(answer.snapshot.engines, logged, restarted=answer.restarted)
        self._asked = True
        # The counters of a V0 engine sum lifetime totals, so they give no windows.
        if self.engine_generation != "v0" and not self.running.deployment.adaptive_verification:
            for track in self._tracks.values():
                track.close_short_window(now, self.policy)
        self.history.keep(now, self.window())
        self._measure_cost()
        self._verdict = self._said(judge(self.evidence(), self.policy).verdict)

    def _warm_until(self, start: float | None, now: float) -> float:
        """Return when a process that began at ``start``, Unix time, leaves its slow first time, monotonic."""
        if start is None:
            first = self._processes.count(now) == 1 and not self._tracks
            return -math.inf if first else now + self.policy.cost.warm_up_seconds
        # The wall clock is asked once for each process: somebody may set it later, even to 1970.
        return now + self.policy.cost.warm_up_seconds - max(self._wall_clock() - start, 0.0)

    def _take_engines(self, snapshot: Snapshot, now: float, *, restarted: bool) -> None:
        """Take in the counters of every engine."""
        engines = snapshot.engines
        if snapshot.stats_present and not engines:
            # V0 shows no engine before the first request: only the names of the earlier engines stay valid.
            engines = tuple(EngineSnapshot(model_name=model, engine=name) for model, name in self._tracks)
        self._engines_found = len(engines) + snapshot.dropped.get("engines", 0)
        self._positions = max((len(engine.accepted_tokens_per_position or ()) for engine in engines), default=0)
        tracks: dict[tuple[str, str], EngineTrack] = {}
        for engine in engines:
            key = (engine.model_name, engine.engine)
            track = self._tracks.get(key)
            if track is not None and not restarted:
                self._take_growth(track.snapshot, engine, now)
            else:
                ratios = HistogramCounter(WINDOW_RATIO_BOUNDS) if track is None else track.ratios
                loads = EngineLoads(self.policy.cost, self.window_seconds)
                track = EngineTrack(SampleRing(self.window_seconds), engine, loads, ratios)
            tracks[key] = track
            samples = samples_each(len(engines))
            track.ring.spacing = self.window_seconds / samples
            track.loads.spread(MOST_SAMPLES / samples)
            track.snapshot = engine
            track.ring.add(now, timed_counts_of(engine), settled=now >= self._settled_at)
            self._take_load(track)
        if engines:  # a snapshot without statistics says nothing about the engines: keep the earlier ones
            self._tracks = tracks
            self._engine_names = tuple(sorted({engine for _, engine in tracks}))
            self._sample_traffic(now)

    def _take_growth(self, before: EngineSnapshot, engine: EngineSnapshot, now: float) -> None:
        """Take in what an engine did between two answers."""
        if has_worked(before, engine):
            self._departures.worked(engine.engine, now)
        if (traffic := self._traffic.get(engine.model_name)) is not None:
            traffic.count(before, engine)

    def _sample_traffic(self, now: float) -> None:
        """Sample the traffic of the models that are served."""
        seconds, known = self.policy.data.traffic_seconds, self._traffic
        self._traffic = {model: known.get(model) or TrafficWindow(seconds) for model in self.model_names}
        for traffic in self._traffic.values():
            traffic.spacing = seconds / samples_each(len(self._traffic))
            traffic.sample(now)

    def _take_load(self, track: EngineTrack) -> None:
        """Sort the interval that has just ended by its concurrency."""
        load = track.loads.take(track.ring.last)
        if load is not None and self.engine_generation != "v0":
            model = track.snapshot.model_name
            if model not in self.loads and len(self.loads) >= bounds.ENGINES:
                shown = set(self.model_names)
                self.loads = {name: loads for name, loads in self.loads.items() if name in shown}
            self.loads.setdefault(model, LoadCounters()).add(load, self._step_times(model), self.policy)

    def _step_times(self, model_name: str | None) -> StepTimes | None:
        """Return the step times of the baseline, if it was recorded without speculation and is of this model."""
        baseline = self.baseline
        return baseline.step_times if baseline is not None and baseline.model_name == model_name else None

    def _measure_cost(self) -> None:
        """Compare the last intervals of all engines with the baseline's step times."""
        self.cost = None
        model = self.baseline.model_name if self.baseline else None
        plain, tracks = self._step_times(model), [track for key, track in self._tracks.items() if key[0] == model]
        if plain is None or not tracks or not self._is_comparable():
            return
        ended = sorted((each for track in tracks for each in track.loads.ended), key=itemgetter(0))
        self.cost = measure([load for _, load in ended], plain, self.policy)
        if not ended and self._clock() < self._settled_at + self.policy.cost.interval_seconds:
            warm_up = f"the first {self.policy.cost.warm_up_seconds:g} s after a start are left out as slow"
            self.cost = replace(self.cost, unknown=Unknown(warm_up, "wait for a minute"))
        self.cost_seconds = ended[-1][0] - min(at - load.seconds for at, load in ended) if ended else 0.0

    def _is_comparable(self) -> bool:
        """Whether what runs can be compared with a server that does not speculate."""
        if self.snapshot is None or self.engine_generation == "v0" or self.state == "speculation_off":
            return False
        return self.running.deployment.rejection_sampling != SYNTHETIC

    def observe_failure(self, reason: str, *, lost: bool = False) -> None:
        """Take in a failed fetch; ``reason`` is in words. ``lost``: nothing answered at all."""
        self._lost |= lost
        self._sample_log(self._clock())
        self._asked = True
        self.up, self.up_reason, self.snapshot, self.cost = False, reason, None, None
        self.version_asked = False  # the next answer may come from another release
        self._verdict = self._said(judge(self.evidence(), self.policy).verdict)

    def observe_version(self, version: str | None) -> None:
        """Take in the predictor's version; ``None`` if it gave none."""
        self.running.api_version, self.version_asked = version, True

    # --- The baseline ---

    def observe_baseline(self, baseline: DecodingBaseline | None) -> None:
        """Take in the baseline that fits what runs now; ``None`` if none fits."""
        if baseline != self.baseline:
            self.forget_verdict()
            self.baseline = baseline
            self._measure_cost()

    # --- The predictor's log ---

    def observe_event(self, event: Event) -> None:
        """Take in an event of the predictor's log."""
        if isinstance(event, SpecDecoding):
            if self.running.method not in NOT_SPECULATIVE:
                label = engine_label(event.engine, self._engine_names)
                self.log.add(event, label, event.num_speculative_tokens or self.num_speculative_tokens)
        elif type(event) in START_KINDS:
            if self.running.observe(event):
                self.forget_verdict()
            if isinstance(event, EngineConfig) and not event.historical:
                self.log.predictor_started()
        elif isinstance(event, PredictorWarning):
            self.warnings[event.warning] += 1
        elif isinstance(event, StartFailure):
            self.failed_start = event
        elif isinstance(event, ServerReady):
            self.failed_start = None

    def _sample_log(self, now: float) -> None:
        """Sample the log's totals with each fetch, not with each line, which keeps reading cheap."""
        samples = samples_each(len(self.log.engines))
        for label, totals in self.log.engines.items():
            ring = self._log_rings.get(label)
            if ring is None:
                ring = self._log_rings[label] = SampleRing(self.window_seconds)
                ring.add(self._born, Counts(drafts=0, draft_tokens=0, accepted_tokens=0))
            ring.spacing = self.window_seconds / samples
            ring.add(now, logged_counts_of(totals))

    # --- The verdict ---

    def forget_verdict(self) -> None:
        """Forget the last verdict: other settings hold now."""
        self._verdict = None

    def _said(self, verdict: Verdict) -> Remembered:
        """Return what to say now that this is the verdict on the last figures."""
        before, now = self._verdict, self._clock()
        said = remembered(before, verdict, now, self.policy)
        if before is None:
            return msgspec.structs.replace(said, shown_since=now)
        if before.shown.code == said.shown.code:
            return msgspec.structs.replace(said, shown_since=before.shown_since, first=before.first)
        first = before.first and before.shown.code != "healthy"
        return msgspec.structs.replace(said, shown_since=now, first=first)

    @property
    def verdict(self) -> VerdictCode:
        """The word of the verdict that :meth:`status` has."""
        return self._said(judge(self.evidence(), self.policy).verdict).shown.code

    def status(self) -> PredictorStatus:
        """Return the whole status, with figures summed over engines."""
        judgement = judge(self.evidence(), self.policy)
        said = self._said(judgement.verdict)
        return status_of(self, said, self._wall_clock() - self._clock(), judgement.pitfalls)
