"""What the record says now: figures, state, counts to serve, evidence and the last word. Pure: nothing changes it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import reduce
from operator import add
from typing import Final, Literal

from msgspec.structs import replace

from specdec_exporter.predictor.log.start import StartSummary, summarise
from specdec_exporter.predictor.log.totals import EngineLogTotals
from specdec_exporter.predictor.metrics.reading import EngineKey
from specdec_exporter.predictor.metrics.snapshot import EngineSnapshot, Speculator
from specdec_exporter.speculation.acceptance import Counts, ratio
from specdec_exporter.speculation.benefit import BreakEven, break_even
from specdec_exporter.speculation.evidence import Evidence, StateName
from specdec_exporter.speculation.figures import Figures, counts_of, figures, timed_counts_of, without_length
from specdec_exporter.speculation.measured import Measured
from specdec_exporter.speculation.verdict import GOOD
from specdec_exporter.speculation.weighing import weigh
from specdec_exporter.state.drafts import Drafted, drafts_of_log
from specdec_exporter.state.lastword import Remembered, remembered
from specdec_exporter.state.record import EngineTrack, PredictorState
from specdec_exporter.state.windows import SampleRing, Window, concurrency

_STEPS = 100.0  # of a counter, so that a window is right to a percent


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


def engines_of(state: PredictorState) -> list[EngineView]:
    """Return every engine in order; without snapshots if the last fetch failed."""
    return [_engine(state, key, track) for key, track in sorted(state.tracks.items())]


def _engine(state: PredictorState, key: EngineKey, track: EngineTrack) -> EngineView:
    window, lifetime = window_of(state, key), lifetime_of(state, key)
    if window is None and state.engine_generation == "v0":
        window = lifetime
    return EngineView(
        model_name=key[0],
        engine=key[1],
        track=track,
        snapshot=track.snapshot if state.counted else None,
        window=window,
        lifetime=lifetime,
        state=state_name(state, key),
        has_windows=_has_windows(state, track) and knows_acceptance(state, track),
        kv_cache_tokens=_kv_cache_tokens(state, track.snapshot) if state.counted else None,
    )


# --- What runs --------------------------------------------------------------------------------------------------------


def start_of(state: PredictorState) -> StartSummary | None:
    """Return how the predictor was started, with the capacity of the engine that has the least."""
    capacities = (_kv_cache_tokens(state, track.snapshot) for track in state.tracks.values())
    return summarise(state.running.start, min(filter(None, capacities), default=None))


def _kv_cache_tokens(state: PredictorState, engine: EngineSnapshot) -> float | None:
    """Return the capacity of an engine's KV cache. The log knows kinds of layers; the number of blocks does not."""
    return engine.kv_cache_tokens or state.running.start.kv_cache_tokens or engine.kv_cache_block_tokens


def engines_left(state: PredictorState) -> tuple[str, ...]:
    """Return the engines that worked lately and left the last answer; none where several processes answer in turn."""
    if not state.counted or state.process_count != 1:
        return ()
    since, shown = state.clock() - state.policy.data.engine_left_seconds, state.engine_names
    return tuple(engine for engine, at in state.last_worked.items() if at >= since and engine not in shown)


# --- Figures ----------------------------------------------------------------------------------------------------------


def window_of(state: PredictorState, only: EngineKey | None = None) -> Figures | None:
    """Return the figures of the last window, summed over engines, or of ``only`` one."""
    countable = [track.ring for track in _tracks(state, only) if _has_windows(state, track)]
    windows = _windows(state, countable or _log_rings(state, only), state.window_seconds)
    if not windows:
        return None
    counts = _total(windows)
    if state.engine.digits is not None and _is_coarse(counts, countable, state.engine.digits):
        return None
    if not countable and not counts.drafted:
        return None  # without lines in the window the log says nothing
    seconds = max(window.seconds for window in windows)
    load = concurrency(windows) or _running_now(state)
    result = _figures(state, counts, "metrics" if countable else "log", seconds, load)
    return without_length(result) if state.engine_generation == "v0" else result


def _is_coarse(counts: Counts, rings: Iterable[SampleRing], digits: int) -> bool:
    """Whether numbers of so many digits are too coarse for the drafts of a window."""
    total = max((ring.last.totals.draft_tokens or 0.0 for ring in rings), default=0.0)
    step = 10.0 ** (len(f"{total:.0f}") - digits)
    return step > 1.0 and 0.0 < max(counts.draft_tokens or 0.0, sum(counts.accepted_per_position)) < _STEPS * step


def _running_now(state: PredictorState) -> float | None:
    """Return the requests that run now, per engine, where no steps tell how many were in decode."""
    if "step_latency" in state.engine.histograms:
        return None
    running = sum(track.snapshot.requests_running or 0.0 for track in state.tracks.values())
    return ratio(running, len(state.tracks)) or None


def _has_windows(state: PredictorState, track: EngineTrack) -> bool:
    """Whether the counters give windows: they exist, and do not sum lifetime totals as V0's do."""
    return state.counted and state.engine_generation != "v0" and counts_drafts(state, track.snapshot)


def counts_drafts(state: PredictorState, engine: EngineSnapshot) -> bool:
    """Whether the tokens of drafts are counted; where the inference engine never does that, the drafts."""
    return (engine.draft_tokens if state.engine.counts_draft_tokens else engine.drafts) is not None


def knows_acceptance(state: PredictorState, track: EngineTrack) -> bool:
    """Whether the engine's counts tell how much of what was verified was accepted."""
    return not state.running.deployment.adaptive_verification or track.snapshot.verified_tokens is not None


def _tracks(state: PredictorState, only: EngineKey | None) -> list[EngineTrack]:
    return list(state.tracks.values()) if only is None else [state.tracks[only]]


def _log_rings(state: PredictorState, only: EngineKey | None) -> list[SampleRing]:
    names = state.log_rings.keys() if only is None else {only[1]} & state.log_rings.keys()
    return [state.log_rings[name] for name in names]


def _windows(state: PredictorState, rings: Iterable[SampleRing], seconds: float) -> list[Window]:
    now = state.clock()
    return [window for ring in rings if (window := ring.window(seconds, now))]


def _total(windows: Iterable[Window]) -> Counts:
    return reduce(add, (window.counts for window in windows), Counts())


def lifetime_of(state: PredictorState, only: EngineKey | None = None) -> Figures | None:
    """Return the figures since the predictor started, summed over engines, or of ``only`` one."""
    tracks = _tracks(state, only)
    if not state.counted or not tracks:
        return None
    if state.engine_generation == "v0":
        rates = [rate for track in tracks if (rate := track.snapshot.lifetime_acceptance_ratio) is not None]
        if len(rates) != 1:  # V0 runs one engine; several ratios cannot be averaged without counts
            return None
        return figures(Counts(), None, "metrics", None, acceptance_ratio=rates[0])
    counts = reduce(add, (timed_counts_of(track.snapshot) for track in tracks))
    counted = any(counts_drafts(state, track.snapshot) for track in tracks)
    return _figures(state, counts, "metrics", None) if counted else None


def _figures(
    state: PredictorState,
    counts: Counts,
    source: Literal["metrics", "log"],
    seconds: float | None,
    load: float | None = None,
) -> Figures:
    return figures(
        counts,
        state.num_speculative_tokens,
        source,
        seconds,
        adaptive_verification=state.running.deployment.adaptive_verification,
        concurrency=load,
    )


def counts_of_window(state: PredictorState) -> Counts | None:
    """Return the counts of the last window by the metrics, summed over engines; a V0 engine's are no counts."""
    windows = _windows(state, (track.ring for track in state.tracks.values()), state.window_seconds)
    return _total(windows) if windows else None


def break_even_of(state: PredictorState, cost: Measured | None = None) -> BreakEven:
    """Return the break-even by published services, for this method, k and load; the measured one, if ``cost`` tells.

    While the predictor cannot be read, it is that of the last reading.
    """
    if not state.up and state.last_even is not None:
        return state.last_even
    return break_even(window_of(state), state.num_speculative_tokens, state.method, state.policy, cost)


# --- State ------------------------------------------------------------------------------------------------------------


def state_name(state: PredictorState, only: EngineKey | None = None) -> StateName:
    """Return the state of the whole predictor, or of ``only`` one engine."""
    tracks = _tracks(state, only)
    if state.snapshot is None:
        return "unreachable"
    if not state.snapshot.stats_present or _contradicts(state.snapshot.dropped, tracks):
        return "stats_disabled"
    if not _speculates(state, tracks):
        return "speculation_off"
    stepped, drafted = _activity(state, tracks)
    if not drafted and state.engine_generation == "v0":  # its counters move once a log interval; the log tells more
        logged = _windows(state, _log_rings(state, only), state.policy.state_window_seconds)
        drafted = any(window.counts.drafted for window in logged)
    if drafted:
        return "drafting"
    return "not_drafting" if stepped else "idle"


def _contradicts(dropped: dict[str, int], tracks: list[EngineTrack]) -> bool:
    """Whether nothing can be used, as where the series of several processes have the same labels."""
    unusable = bool(dropped.keys() & {"values", "series", "labels"})
    return unusable and all(track.snapshot.generation_tokens is None for track in tracks)


def _activity(state: PredictorState, tracks: list[EngineTrack]) -> tuple[bool, bool]:
    """Return whether the engines decode, and whether they draft."""
    late = state.engine.counts_at_end
    seconds = state.window_seconds if late else state.policy.state_window_seconds
    windows = _windows(state, (track.ring for track in tracks), seconds)
    counts = _total(windows)
    stepped = bool(counts.generation_tokens if counts.steps is None else counts.steps)
    if windows and (stepped or not late):
        return stepped, counts.drafted or (stepped and _gauge_drafts(state, tracks))
    return _by_what_runs(state, tracks)


def _by_what_runs(state: PredictorState, tracks: list[EngineTrack]) -> tuple[bool, bool]:
    """Return the same by a single answer, and where a request counts at its end: as long as one runs, as before."""
    if not any(track.snapshot.requests_running for track in tracks):
        return False, False
    if any(counts_of(track.snapshot).drafted for track in tracks) or _gauge_drafts(state, tracks):
        return True, True
    return True, state.engine.counts_at_end and not any(track.snapshot.generation_tokens for track in tracks)


def _speculates(state: PredictorState, tracks: Iterable[EngineTrack]) -> bool:
    """Whether speculation is on by the start in the log; if that does not tell, whether metrics prove it."""
    if state.running.speculative is not None:
        return state.running.speculative
    if state.seen is not None and state.seen.speculator != Speculator():
        return True
    return any(_drafts(track.snapshot) for track in tracks)


def _drafts(engine: EngineSnapshot) -> bool:
    """Whether the metrics alone prove that speculation is on.

    From 0.8.5 on vLLM has the counters only with speculation. 0.8.3 and 0.8.4 have no drafts counter and always
    register the others, so only a count proves it. A V0 engine shows its gauge only after it has drafted.
    """
    if engine.drafts is not None:
        return True
    return (
        bool(engine.draft_tokens or engine.interval_acceptance_length) or engine.lifetime_acceptance_ratio is not None
    )


def _gauge_drafts(state: PredictorState, tracks: Iterable[EngineTrack]) -> bool:
    """Whether a gauge of an engine shows drafts, and no counter."""
    engines = (track.snapshot for track in tracks)
    return any(engine.interval_acceptance_length and not counts_drafts(state, engine) for engine in engines)


# --- Counts to serve --------------------------------------------------------------------------------------------------


def log_engines_of(state: PredictorState) -> list[tuple[str, EngineLogTotals]]:
    """Return the log's totals of every engine; empty if no log is read.

    Engines that only the metrics name have zeros, unless speculation is off: a counter that stays at zero means that
    drafts are missing.
    """
    if state.reader is None or state.running.speculative is False:
        return []
    silent = () if state_name(state) == "speculation_off" else state.engine_names
    return sorted({**{engine: EngineLogTotals() for engine in silent}, **state.log.engines}.items())


def drafts_of(state: PredictorState) -> Drafted:
    """Return the counts of drafts to serve, by the metrics or the log."""
    by_metrics = {
        key: state.draft_sources.served(track.snapshot)
        for key, track in state.tracks.items()
        if state.counted and (state.reader is None or state.draft_sources.are_metrics(key[1]))
    }
    return dict(sorted((by_metrics | logged_drafts_of(state)).items()))


def logged_drafts_of(state: PredictorState) -> Drafted:
    """Return the counts of the log, for engines whose metrics count no drafts; none before the first fetch ended.

    Beside metrics that count, lines of an engine that they do not name may be of all of them. An engine without a
    line has zeros if its configuration says that it speculates.
    """
    if state.reader is None or not state.asked or state.running.speculative is False:
        return {}
    silent = state.engine_names if state.running.speculative else ()
    spoken = {engine: totals for engine, totals in state.log.engines.items() if totals.windows}
    return {
        (_model_of(state, engine), engine): drafts_of_log(totals)
        for engine, totals in {**dict.fromkeys(silent, EngineLogTotals()), **spoken}.items()
        if not state.draft_sources.are_metrics(engine)
        and (engine in state.engine_names or not state.draft_sources.have_metrics())
    }


def _model_of(state: PredictorState, engine: str) -> str:
    """Return the model for the lines of an engine, which name none: the log's, unless the metrics know others."""
    models = [model for model, name in state.tracks if name == engine] or state.model_names
    return min(models, key=lambda model: (model != state.running.model_name, model), default="")


# --- The last word ----------------------------------------------------------------------------------------------------


def evidence_of(state: PredictorState) -> Evidence:
    """Return the evidence for a judgement of this predictor."""
    windows = {engine: totals.windows for engine, totals in state.log.engines.items() if totals.windows}
    # Lines come at intervals: their absence proves nothing at first.
    watched = state.reader is not None and state.clock() - state.born >= state.window_seconds
    return Evidence(
        state=state_name(state),
        figures=_judged(state),
        vllm_version=state.running.vllm_version,
        engine_generation=state.engine_generation,
        method=state.method,
        num_speculative_tokens=None if _k_changed(state) else state.num_speculative_tokens,
        generated=any(track.snapshot.generation_tokens for track in state.tracks.values()),
        engines=len(state.engine_names) or len(windows),
        log_windows=sum(windows.values()) if watched or windows else None,
        warnings=frozenset(state.warnings),
        baseline=state.baseline,
        cost=state.cost,
        deployment=state.running.deployment,
        inference_engine=state.engine,
        unusable=tuple(why for field, why in unusable_of(state).items() if field in _DECIDING),
        draft_overhead_ratio=_mean(state, "draft_overhead_ratio"),
        interval_acceptance_length=_mean(state, "interval_acceptance_length"),
    )


_DECIDING: Final = frozenset({"generation_tokens", "drafts", "draft_tokens", "accepted_tokens"})


def unusable_of(state: PredictorState) -> dict[str, str]:
    """Return which samples of the last answer are no counts, and why, by field."""
    return state.snapshot.unusable if state.snapshot else {}


def _mean(state: PredictorState, field: Literal["draft_overhead_ratio", "interval_acceptance_length"]) -> float | None:
    """Return the mean of a gauge over the engines that measure it; 0 is not measured."""
    told = [value for track in state.tracks.values() if (value := getattr(track.snapshot, field))]
    return sum(told) / len(told) if told and state.counted else None


def _judged(state: PredictorState) -> Figures | None:
    """Return the figures to judge. Where a request counts at its end, a window without one says nothing."""
    window = window_of(state)
    if window is None or (state.engine.counts_at_end and not window.drafted):
        return lifetime_of(state) or window
    return window


def _k_changed(state: PredictorState) -> bool:
    """Whether drafts of the window may have had another k, where only k tells how many tokens were drafted."""
    return not state.engine.counts_draft_tokens and state.clock() - state.k_since < state.window_seconds


def said_of(state: PredictorState) -> Remembered:
    """Return what to say of the predictor now: what the last figures say, unless the last word stands."""
    before, now = state.remembered, state.clock()
    said = remembered(before, weigh(evidence_of(state), state.policy), now, state.policy)
    if before is None:
        return replace(said, shown_since=now)
    if before.shown.code == said.shown.code:
        return replace(said, shown_since=before.shown_since, first=before.first)
    return replace(said, shown_since=now, first=before.first and before.shown.code not in GOOD)
