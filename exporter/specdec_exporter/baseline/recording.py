"""Two snapshots of a predictor -> the baseline between them. Pure; :mod:`live` fetches the snapshots.

The difference is valid only if no counter restarted in between, so every snapshot of the span is checked for a restart.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from functools import reduce
from operator import add
from typing import Any, NamedTuple

import msgspec

from specdec_exporter.baseline.file import HISTOGRAMS, MAX_BLOCKS, RECORDED, Baseline, Block
from specdec_exporter.baseline.intervals import Moment, thinned
from specdec_exporter.errors import BaselineError
from specdec_exporter.histogram import Histogram
from specdec_exporter.predictor.engines.engine import VLLM, InferenceEngine
from specdec_exporter.predictor.metrics.processes import Answer, Processes
from specdec_exporter.predictor.metrics.reading import EngineKey
from specdec_exporter.predictor.metrics.snapshot import EngineSnapshot, Snapshot, Speculator
from specdec_exporter.speculation.acceptance import SCALARS, Counts
from specdec_exporter.speculation.blocks import Blocks
from specdec_exporter.speculation.figures import counts_of
from specdec_exporter.speculation.load import LOAD_COUNTS, Load
from specdec_exporter.speculation.policy import load_policy

# A sum may contradict its buckets by this share: the counters of several processes are not read at one instant, and
# Prometheus extrapolates each series separately.
_TOLERANCE = 0.05
_DIGITS = 6


class Increases(NamedTuple):
    """The measured part of a :class:`Baseline`: what happened over the span, ``None`` if not known."""

    histograms: dict[str, Histogram]  # by field of a baseline: SLIs and lengths; cumulative counts
    counts: Counts
    requests_finished: float | None = None
    moments: tuple[Moment, ...] = ()  # in the order of time: the intervals of all engines that end together
    blocks: tuple[Block, ...] = ()


class Recorder:
    """Records one served model of a predictor; times are seconds of a monotonic clock.

    ``model`` chooses among several served models. An interval ends with the snapshot nearest to ``interval_seconds``;
    with 0 each snapshot ends one. Raises :class:`BaselineError` if there is nothing to record, or if
    the predictor restarted since the previous snapshot.
    """

    def __init__(self, first: Snapshot, at: float, model: str | None = None, *, interval_seconds: float = 0.0) -> None:
        refuse_without_latencies(first.inference_engine or VLLM)
        if not first.stats_present:
            raise BaselineError(
                "expected engine statistics in the predictor's metrics, found none: start vLLM without "
                "--disable-log-stats, and give the port of vLLM itself"
            )
        self._wanted = model
        self.model_name = _choose(first, model)
        self._v0 = first.engine_generation == "v0"
        self._processes = Processes()
        self._first = self._last = self._take(first, at).snapshot
        self._started = self._at = at
        self._blocks: Blocks[Block] = Blocks(MAX_BLOCKS)
        self._interval_seconds = interval_seconds
        self._moments: list[Moment] = []
        self._open: dict[str, Load] = {}  # by engine
        self._opened = at

    @property
    def seconds(self) -> float:
        """From the first snapshot to the last."""
        return self._at - self._started

    @property
    def engine(self) -> InferenceEngine:
        """The inference engine that answers."""
        return self._last.inference_engine or VLLM

    @property
    def speculator(self) -> Speculator:
        """What drafts, by the last snapshot."""
        return self._last.speculator

    @property
    def num_positions(self) -> int:
        """The positions that a draft can have, by the last snapshot's curve; 0 if it does not tell."""
        if not self.engine.positions_are_k:
            return 0
        return max((len(engine.accepted_tokens_per_position or ()) for engine in self._engines(self._last)), default=0)

    def observe(self, snapshot: Snapshot, at: float) -> None:
        """Take the next snapshot."""
        answer = self._take(snapshot, at)
        snapshot = answer.snapshot
        if self._last.engines and (answer.new or _engines(snapshot) != _engines(self._last)):
            who = "another process answered" if answer.new else "other engines answered"
            raise BaselineError(
                f"{who} {at - self._started:.0f} s into the recording: the predictor restarted, or several answer at "
                "this URL. Record again, from one of them"
            )
        self.model_name = self.model_name or _choose(snapshot, self._wanted)
        seconds, pairs = at - self._at, self._pairs(self._last, snapshot)
        self._blocks.add(_block(seconds, pairs))
        for before, now in pairs:
            load = Load(seconds, counts_of(now) - counts_of(before)).compact
            self._open[now.engine] = self._open[now.engine] + load if now.engine in self._open else load
        if at - self._opened + seconds / 2.0 >= self._interval_seconds:
            ends = at - self._started
            self._moments.append(tuple(msgspec.structs.replace(load, ends=ends) for load in self._open.values()))
            self._open, self._opened = {}, at
        self._last, self._at = snapshot, at

    def _take(self, snapshot: Snapshot, at: float) -> Answer:
        # Whether a new process took the place of the old one does not matter: no recording goes on over it.
        return self._processes.take(snapshot, at, math.inf)

    def increases(self) -> Increases:
        """What happened between the first snapshot and the last, summed over engines."""
        pairs = self._pairs(self._first, self._last)
        increases = Increases(
            histograms={
                field: total
                for field, source in RECORDED.items()
                if (total := total_of(field, _increases_of(pairs, source))) is not None
            },
            counts=_counts(pairs),
            requests_finished=_increase(pairs, _finished),
            moments=tuple(self._moments),
            blocks=tuple(self._blocks.sums),
        )
        return of_v0(increases) if self._v0 else increases

    def _pairs(self, before: Snapshot, now: Snapshot) -> list[tuple[EngineSnapshot, EngineSnapshot]]:
        """Each engine at two moments. An engine that appears has counted from zero."""
        known = {engine.engine: engine for engine in self._engines(before)}
        return [
            (known.get(engine.engine) or EngineSnapshot(model_name=engine.model_name, engine=engine.engine), engine)
            for engine in self._engines(now)
        ]

    def _engines(self, snapshot: Snapshot) -> list[EngineSnapshot]:
        return [engine for engine in snapshot.engines if engine.model_name == self.model_name]


def refuse_without_latencies(engine: InferenceEngine) -> None:
    """Raise :class:`BaselineError` for an inference engine that tells no latency of decoding."""
    if not engine.is_read:
        raise BaselineError(f"this is {engine.name}, which cannot be recorded: {engine.untold}")
    if not engine.histograms.keys() & {"time_per_output_token", "step_latency"}:
        raise BaselineError(f"{engine.name} tells no latencies, so no baseline can be recorded: {engine.measure_by}")


def _choose(snapshot: Snapshot, model: str | None) -> str | None:
    """Return the served model to record; ``None`` while the predictor shows no series."""
    names = sorted({engine.model_name for engine in snapshot.engines})
    if len(names) < 2:
        return names[0] if names else None
    if model in names:
        return model
    raise BaselineError(f"the predictor serves {len(names)} models: choose one with --model from {', '.join(names)}")


def _engines(snapshot: Snapshot) -> set[EngineKey]:
    return {(engine.model_name, engine.engine) for engine in snapshot.engines}


_Pairs = Sequence[tuple[EngineSnapshot, EngineSnapshot]]


def _increase(pairs: _Pairs, read: Callable[[EngineSnapshot], float | None]) -> float | None:
    grown = [now - (read(a) or 0.0) for a, b in pairs if (now := read(b)) is not None]
    return sum(grown) if grown else None


def _finished(engine: EngineSnapshot) -> float | None:
    return None if engine.requests_finished is None else sum(engine.requests_finished.values())


def _counts(pairs: _Pairs) -> Counts:
    return reduce(add, (counts_of(b) - counts_of(a) for a, b in pairs), Counts())


def _block(seconds: float, pairs: _Pairs) -> Block:
    counts = msgspec.structs.replace(_counts(pairs), accepted_per_position=())
    histograms: dict[str, Any] = {
        field: _sum(field, _increases_of(pairs, source)) for field, source in HISTOGRAMS.items()
    }
    return Block(seconds=seconds, counts=counts, **histograms)


def _increases_of(pairs: _Pairs, name: str) -> list[Histogram]:
    sides: list[tuple[Histogram | None, Histogram | None]] = [(getattr(a, name), getattr(b, name)) for a, b in pairs]
    return [now if before is None else now - before for before, now in sides if now is not None]


def total_of(name: str, histograms: Sequence[Histogram]) -> Histogram | None:
    """Sum histograms of one figure, or ``None`` if they are empty.

    Raises :class:`BaselineError` if their bounds differ, or if the sum contradicts the buckets.
    """
    total = _sum(name, histograms)
    if total is None or not (corrected := _possible(total)).count:
        return None
    low, high = corrected.sum_bounds()
    if not low * (1 - _TOLERANCE) <= total.sum <= high * (1 + _TOLERANCE):
        raise BaselineError(
            f"the sum of {name}, {total.sum:g}, contradicts the buckets of its {corrected.count:g} requests: expected "
            f"{low:g} to {high:g}. Record for longer"
        )
    return corrected


def _sum(name: str, histograms: Sequence[Histogram]) -> Histogram | None:
    if len({histogram.bounds for histogram in histograms}) > 1:
        raise BaselineError(
            f"the engines use different buckets for {name}, which cannot be summed: give all engines the same "
            "--custom-histogram-buckets"
        )
    return reduce(add, histograms) if histograms else None


def _possible(histogram: Histogram) -> Histogram:
    """Remove small contradictions, which rounding and reads at different moments cause."""
    counts = tuple(itertools.accumulate((_rounded(count) for count in histogram.counts), max))
    low, high = Histogram(histogram.bounds, counts, 0.0).sum_bounds()
    return Histogram(histogram.bounds, counts, min(max(round(histogram.sum, _DIGITS + 3), low), high))


def consistent_counts(counts: Counts) -> Counts:
    """Correct counts read at slightly different moments: never more accepted than drafted."""
    values: dict[str, Any] = {
        name: None if (value := getattr(counts, name)) is None else _rounded(value) for name in SCALARS
    }
    if values["draft_tokens"] is None or values["accepted_tokens"] is None:
        values["draft_tokens"] = values["accepted_tokens"] = values["drafts"] = None
    else:
        values["accepted_tokens"] = min(values["accepted_tokens"], values["draft_tokens"])
    positions: Iterator[float] = iter(())
    if values["drafts"] is not None:
        limits = (values["drafts"], *map(_rounded, counts.accepted_per_position))
        positions = itertools.islice(itertools.accumulate(limits, min), 1, None)
    return Counts(accepted_per_position=tuple(positions), **values)


def _rounded(value: float) -> float:
    return round(max(value, 0.0), _DIGITS)


def _part(counts: Counts, whole: Counts) -> Counts:
    """Round the counts of a part. It knows what the whole recording knows; what has not counted yet in it is 0."""
    known = [name for name in LOAD_COUNTS if getattr(whole, name) is not None]
    values: dict[str, Any] = {name: getattr(counts, name) or 0.0 for name in known}
    return consistent_counts(Counts(**values))


def _kept_intervals(increases: Increases) -> tuple[Load, ...]:
    """Return the intervals that ran steps, or those that a file keeps of them."""
    ran = ([load for load in moment if load.ran] for moment in increases.moments)
    kept = thinned([moment for moment in ran if moment], load_policy().cost.most_intervals)
    return tuple(rounded for load in kept if (rounded := _rounded_load(load, increases.counts)).ran)


def _rounded_load(load: Load, whole: Counts) -> Load:
    ends = None if load.ends is None else _rounded(load.ends)
    return Load(_rounded(load.seconds), _part(load.counts, whole), ends)


def _rounded_blocks(increases: Increases) -> Iterator[Block]:
    bounds = {sli: whole.bounds for sli, whole in increases.histograms.items() if sli in HISTOGRAMS}
    empty = {sli: Histogram(of_sli, (0.0,) * len(of_sli), 0.0) for sli, of_sli in bounds.items()}
    for block in increases.blocks:
        yield Block(
            seconds=_rounded(block.seconds) or 10.0**-_DIGITS,
            counts=_part(block.counts, increases.counts),
            **{sli: _possible(getattr(block, sli) or nothing) for sli, nothing in empty.items()},
        )


def of_v0(increases: Increases) -> Increases:
    """Remove the counts that a V0 engine (up to 0.9.2) gets wrong.

    Its draft counters add up lifetime totals again and again, and its generation tokens count steps.
    """
    kept = ("first_tokens", "steps", "prompt_tokens", "preemptions")
    counts = Counts(**{name: getattr(increases.counts, name) for name in kept})
    return increases._replace(counts=counts, moments=())


def with_increases(baseline: Baseline, increases: Increases) -> Baseline:
    """Add what was measured to ``baseline``. Raises :class:`BaselineError` without a request and its latency."""
    finished = increases.requests_finished
    if finished is None and "request_latency_seconds" in increases.histograms:
        finished = increases.histograms["request_latency_seconds"].count
    span = f"in the recorded {baseline.duration_seconds:g} s"
    if not finished:
        raise BaselineError(
            f"no request finished {span}, so there is no latency to keep. "
            "Send requests to the predictor, or record for longer"
        )
    if not increases.histograms.keys() & HISTOGRAMS.keys():
        raise BaselineError(f"requests finished {span}, and the predictor told no latency of theirs")
    return msgspec.structs.replace(
        baseline,
        counts=consistent_counts(increases.counts),
        requests_finished=_rounded(finished),
        intervals=_kept_intervals(increases),
        blocks=tuple(_rounded_blocks(increases)),
        **increases.histograms,
    )
