"""Snapshots, events and baselines -> the record. Only these functions change it."""

from __future__ import annotations

import math
from operator import itemgetter
from typing import Final

from msgspec.structs import replace

from specdec_exporter import bounds
from specdec_exporter.baseline.pinned import NOT_SEEN, PinnedBaseline, fit
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
from specdec_exporter.speculation.acceptance import Counts, acceptance_ratio
from specdec_exporter.speculation.evidence import DecodingBaseline
from specdec_exporter.speculation.figures import logged_counts_of, timed_counts_of
from specdec_exporter.speculation.measured import Unknown
from specdec_exporter.speculation.policy import Policy
from specdec_exporter.speculation.speedup import measure
from specdec_exporter.speculation.steptime import StepTimes
from specdec_exporter.state.loads import EngineLoads, LoadCounters
from specdec_exporter.state.record import EngineTrack, PredictorState
from specdec_exporter.state.traffic import TrafficWindow
from specdec_exporter.state.view import (
    break_even_of,
    counts_drafts,
    knows_acceptance,
    logged_drafts_of,
    said_of,
    state_name,
    window_of,
)
from specdec_exporter.state.windows import SampleRing

# Upper bounds of specdec_window_acceptance_ratio: even steps resolve every quantile to 0.05.
_WINDOW_RATIO_BOUNDS: Final = tuple(round(0.05 * step, 2) for step in range(1, 21))
# Samples that are kept of one engine's window. Where many engines share the memory, each keeps fewer.
_MOST_SAMPLES, _FEWEST_SAMPLES, _SAMPLES_OF_ALL_ENGINES = 60, 12, 60 * 64


def _samples_each(engines: int) -> int:
    return max(_FEWEST_SAMPLES, min(_MOST_SAMPLES, _SAMPLES_OF_ALL_ENGINES // max(engines, 1)))


# --- The predictor's metrics ------------------------------------------------------------------------------------------


def observe_snapshot(state: PredictorState, snapshot: Snapshot) -> None:
    """Take in a successful fetch."""
    now = state.clock()
    _sample_log(state, now)
    logged = logged_drafts_of(state)
    if state.running.method in NOT_SPECULATIVE:
        snapshot = without_drafts(snapshot)
    answer = state.processes.take(snapshot, now, state.wall_clock(), lost=state.lost)
    state.up, state.up_reason, state.snapshot = True, None, answer.snapshot
    _take_inference_engine(state, answer.snapshot)
    state.failed_start, state.lost = None, False
    state.dropped_figures.update(snapshot.dropped)
    state.dropped_figures["values"] += answer.left_out
    if answer.new:
        state.settled_at = _warm_until(state, snapshot.process_start_time_seconds, now)
        state.version_asked = False
        state.remembered = None  # what runs now may be something else
        state.last_worked.clear()
        for track in state.tracks.values():
            track.loads.interrupt()
    state.restarts += answer.restarted
    _take_engines(state, answer.snapshot, now, restarted=answer.restarted)
    counting = [engine for engine in answer.snapshot.engines if counts_drafts(state, engine)]
    state.draft_sources.take(counting, logged, restarted=answer.restarted)
    state.asked = True
    # The counters of a V0 engine sum lifetime totals, so they give no windows.
    if state.engine_generation != "v0":
        for track in state.tracks.values():
            if knows_acceptance(state, track):
                _close_short_window(track, now, state.policy)
    state.history.keep(now, window_of(state))
    _measure_cost(state)
    state.last_even = break_even_of(state)
    state.remembered = said_of(state)
    if answer.snapshot.engines:
        _take_k(state, answer.snapshot, now)
        state.seen = answer.snapshot
    _fit_baseline(state)


def observe_failure(state: PredictorState, reason: str, *, lost: bool = False) -> None:
    """Take in a failed fetch; ``reason`` is in words. ``lost``: nothing answered at all."""
    state.lost |= lost
    _sample_log(state, state.clock())
    state.asked = True
    state.up, state.up_reason, state.snapshot, state.cost = False, reason, None, None
    state.version_asked = False  # the next answer may come from another release
    state.remembered = said_of(state)


def observe_version(state: PredictorState, version: str | None) -> None:
    """Take in the predictor's version; ``None`` if it gave none."""
    state.version_asked = True
    if state.is_other_engine:
        state.version = version
    else:
        state.running = replace(state.running, api_version=version)
    _fit_baseline(state)


def _take_k(state: PredictorState, snapshot: Snapshot, now: float) -> None:
    """Note when the metrics tell another k than before."""
    before = state.seen.speculator.num_speculative_tokens if state.seen else None
    if before is not None and before != snapshot.speculator.num_speculative_tokens:
        state.k_since = now


def _take_inference_engine(state: PredictorState, snapshot: Snapshot) -> None:
    """Take in what answers. After another inference engine, its release is not known."""
    engine = snapshot.inference_engine
    if engine is not None and engine is not state.inference_engine:
        if state.inference_engine is not None:
            state.running, state.version, state.version_asked = replace(state.running, api_version=None), None, False
        state.inference_engine = engine


def _warm_until(state: PredictorState, start: float | None, now: float) -> float:
    """Return when a process that began at ``start``, Unix time, leaves its slow first time, monotonic."""
    if start is None:
        first = state.processes.count(now) == 1 and not state.tracks
        return -math.inf if first else now + state.policy.cost.warm_up_seconds
    # The wall clock is asked once for each process: somebody may set it later, even to 1970.
    return now + state.policy.cost.warm_up_seconds - max(state.wall_clock() - start, 0.0)


# --- Its engines and models -------------------------------------------------------------------------------------------


def _take_engines(state: PredictorState, snapshot: Snapshot, now: float, *, restarted: bool) -> None:
    """Take in the counters of every engine."""
    engines = snapshot.engines
    if snapshot.stats_present and not engines:
        # V0 shows no engine before the first request: only the names of the earlier engines stay valid.
        engines = tuple(EngineSnapshot(model_name=model, engine=name) for model, name in state.tracks)
    state.engines_told = len(engines) + snapshot.dropped.get("engines", 0)
    positions = (len(engine.accepted_tokens_per_position or ()) for engine in engines)
    state.positions = max(positions, default=0) if state.engine.positions_are_k else 0
    tracks: dict[tuple[str, str], EngineTrack] = {}
    for engine in engines:
        key = (engine.model_name, engine.engine)
        track = state.tracks.get(key)
        if track is not None and not restarted:
            _take_growth(state, track.snapshot, engine, now)
        else:
            ratios = HistogramCounter(_WINDOW_RATIO_BOUNDS) if track is None else track.ratios
            loads = EngineLoads(state.policy.cost, state.window_seconds)
            track = EngineTrack(SampleRing(state.window_seconds), engine, loads, ratios)
        tracks[key] = track
        samples = _samples_each(len(engines))
        track.ring.spacing = state.window_seconds / samples
        track.loads.spread(_MOST_SAMPLES / samples)
        track.snapshot = engine
        track.ring.add(now, timed_counts_of(engine), settled=now >= state.settled_at)
        _take_load(state, track)
    if engines:  # a snapshot without statistics says nothing about the engines: keep the earlier ones
        state.tracks = tracks
        _sample_traffic(state, now)


def _close_short_window(track: EngineTrack, now: float, policy: Policy) -> None:
    """Count the short window of an engine, if it has lasted long enough."""
    if now - track.short_window_start < policy.short_window_seconds:
        return
    before, totals = track.short_window_totals, track.ring.last.totals
    track.short_window_start, track.short_window_totals = now, totals
    if before is None:
        return
    counts = totals - before
    rate = acceptance_ratio(counts.accepted_tokens, counts.judged_tokens)
    if rate is not None and (counts.drafts is None or counts.drafts >= policy.min_drafts):
        track.ratios.observe(rate)


def _take_growth(state: PredictorState, before: EngineSnapshot, engine: EngineSnapshot, now: float) -> None:
    """Take in what an engine did between two answers."""
    if _has_worked(before, engine):
        state.last_worked.pop(engine.engine, None)
        state.last_worked[engine.engine] = now
        if len(state.last_worked) > bounds.ENGINES:
            del state.last_worked[next(iter(state.last_worked))]
    if (traffic := state.traffic.get(engine.model_name)) is not None:
        traffic.count(before, engine)


def _has_worked(before: EngineSnapshot, now: EngineSnapshot) -> bool:
    """Whether an engine generated or drafted between two answers of one process."""
    pairs = ((before.generation_tokens, now.generation_tokens), (before.draft_tokens, now.draft_tokens))
    return any(one is not None and other is not None and other > one for one, other in pairs)


def _sample_traffic(state: PredictorState, now: float) -> None:
    """Sample the traffic of the models that are served."""
    seconds, earlier = state.policy.data.traffic_seconds, state.traffic
    state.traffic = {model: earlier.get(model) or TrafficWindow(seconds) for model in state.model_names}
    for traffic in state.traffic.values():
        traffic.spacing = seconds / _samples_each(len(state.traffic))
        traffic.sample(now)


def _take_load(state: PredictorState, track: EngineTrack) -> None:
    """Sort the interval that has just ended by its concurrency."""
    load = track.loads.take(track.ring.last)
    if load is not None and state.engine_generation != "v0":
        model = track.snapshot.model_name
        if model not in state.loads and len(state.loads) >= bounds.ENGINES:
            shown = set(state.model_names)
            state.loads = {name: loads for name, loads in state.loads.items() if name in shown}
        state.loads.setdefault(model, LoadCounters()).add(load, _step_times(state, model), state.policy)


# --- Its baseline -----------------------------------------------------------------------------------------------------


def pin(state: PredictorState, pinned: PinnedBaseline | None) -> None:
    """Compare with this baseline from now on, or with none. Other settings hold now, so the last verdict does not."""
    state.pinned, state.fit, state.remembered = pinned, NOT_SEEN, None
    observe_baseline(state, None)
    _fit_baseline(state)


def _fit_baseline(state: PredictorState) -> None:
    """Decide again whether the pinned baseline fits what runs."""
    if state.pinned is not None and state.seen is not None:
        state.fit = fit(state.pinned.baseline, state.seen, state.running.vllm_version)
        model = state.fit.model_name
        observe_baseline(state, None if model is None else state.pinned.decoding(model))


def observe_baseline(state: PredictorState, baseline: DecodingBaseline | None) -> None:
    """Take in the baseline that fits what runs now; ``None`` if none fits."""
    if baseline != state.baseline:
        state.remembered = None
        state.baseline = baseline
        _measure_cost(state)


def _step_times(state: PredictorState, model_name: str | None) -> StepTimes | None:
    """Return the step times of the baseline, if it was recorded without speculation and is of this model."""
    baseline = state.baseline
    return baseline.step_times if baseline is not None and baseline.model_name == model_name else None


def _measure_cost(state: PredictorState) -> None:
    """Compare the last intervals of all engines with the baseline's step times."""
    state.cost = None
    model = state.baseline.model_name if state.baseline else None
    plain, tracks = _step_times(state, model), [track for key, track in state.tracks.items() if key[0] == model]
    if plain is None or not tracks or not _is_comparable(state):
        return
    ended = sorted((interval for track in tracks for interval in track.loads.ended), key=itemgetter(0))
    state.cost = measure([load for _, load in ended], plain, state.policy)
    if not ended and state.clock() < state.settled_at + state.policy.cost.interval_seconds:
        warm_up = f"the first {state.policy.cost.warm_up_seconds:g} s after a start are left out as slow"
        state.cost = replace(state.cost, unknown=Unknown(warm_up, "wait for a minute"))
    state.cost_seconds = ended[-1][0] - min(at - load.seconds for at, load in ended) if ended else 0.0


def _is_comparable(state: PredictorState) -> bool:
    """Whether what runs can be compared with a server that does not speculate."""
    if state.snapshot is None or state.engine_generation == "v0" or state_name(state) == "speculation_off":
        return False
    return state.running.deployment.rejection_sampling != SYNTHETIC


# --- The predictor's log ----------------------------------------------------------------------------------------------


def observe_event(state: PredictorState, event: Event) -> None:
    """Take in an event of the predictor's log."""
    if isinstance(event, SpecDecoding):
        if state.running.method not in NOT_SPECULATIVE:
            label = engine_label(event.engine, state.engine_names)
            state.log.add(event, label, event.num_speculative_tokens or state.num_speculative_tokens)
    elif type(event) in START_KINDS:
        state.running = state.running.after(event)
        if event in (state.running.config, state.running.start.arguments):
            state.remembered = None
        if isinstance(event, EngineConfig) and not event.historical:
            state.log.predictor_started()
    elif isinstance(event, PredictorWarning):
        state.warnings[event.warning] += 1
    elif isinstance(event, StartFailure):
        state.failed_start = event
    elif isinstance(event, ServerReady):
        state.failed_start = None


def _sample_log(state: PredictorState, now: float) -> None:
    """Sample the log's totals with each fetch, not with each line, which keeps reading cheap."""
    samples = _samples_each(len(state.log.engines))
    for label, totals in state.log.engines.items():
        ring = state.log_rings.get(label)
        if ring is None:
            ring = state.log_rings[label] = SampleRing(state.window_seconds)
            ring.add(state.born, Counts(drafts=0, draft_tokens=0, accepted_tokens=0))
        ring.spacing = state.window_seconds / samples
        ring.add(now, logged_counts_of(totals))
