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

from specdec_exporter.baseline.file import HISTOGRAMS, LENGTHS, Baseline, Block, context_by_counters
from specdec_exporter.errors import BaselineError
from specdec_exporter.histogram import Histogram
from specdec_exporter.predictor.metrics.admission import EngineKey
from specdec_exporter.predictor.metrics.processes import Answer, Processes
from specdec_exporter.predictor.metrics.snapshot import EngineSnapshot, Snapshot
from specdec_exporter.speculation.acceptance import SCALARS, Counts, ratio
from specdec_exporter.speculation.blocks import Blocks
from specdec_exporter.speculation.figures import counts_of
from specdec_exporter.speculation.load import BLOCK_COUNTS, Load, LoadBin, LoadBins

# A sum may contradict its buckets by this share: the counters of several processes are not read at one instant, and
# Prometheus extrapolates each series separately.
_TOLERANCE = 0.05
_DIGITS = 6


class Contexts(msgspec.Struct, frozen=True):
    """Finished requests, and their prompt and generated tokens together; 0 if the predictor does not tell."""

    requests: float
    tokens: float

    def __add__(self, other: Contexts) -> Contexts:
        """Sum of two neighbours."""
        return Contexts(self.requests + other.requests, self.tokens + other.tokens)

    @property
    def mean(self) -> float | None:
        """Tokens per request; ``None`` without requests."""
        return ratio(self.tokens, self.requests)


class Increases(NamedTuple):
    """The measured part of a :class:`Baseline`: what happened over the span, ``None`` if not known."""

    histograms: dict[str, Histogram]  # by field of a baseline: SLIs and lengths; cumulative counts
    counts: Counts
    requests_finished: float | None = None
    by_load: tuple[LoadBin, ...] = ()
    blocks: tuple[Block, ...] = ()
    contexts: tuple[Contexts, ...] = ()  # of each block


class Recorder:
    """Records one served model of a predictor; times are seconds of a monotonic clock.

    ``model`` chooses among several served models. Raises :class:`BaselineError` if there is nothing to record, or if
    the predictor restarted since the previous snapshot.
    """

    def __init__(self, first: Snapshot, at: float, model: str | None = None) -> None:
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
        self._loads = LoadBins()
        self._blocks: Blocks[Block] = Blocks()
        self._contexts: Blocks[Contexts] = Blocks()
        # Engines that just preempted a request: its wait will count as one step when it goes on.
        self._waiting: set[str] = set()

    @property
    def seconds(self) -> float:
        """From the first snapshot to the last."""
        return self._at - self._started

    @property
    def num_positions(self) -> int | None:
        """Positions in the last snapshot's curve: k, if no other source tells it."""
        shown = max((len(engine.accepted_tokens_per_position or ()) for engine in self._engines(self._last)), default=0)
        return shown or None

    def observe(self, snapshot: Snapshot, at: float) -> None:
        """Take the next snapshot."""
        answer = self._take(snapshot, at)
        snapshot = answer.snapshot
        if self._last.engines and (answer.new or _engines(snapshot) != _engines(self._last)):
            found = "another process answered" if answer.new else "other engines answered"
            raise BaselineError(
                f"{found} {at - self._started:.0f} s into the recording: the predictor restarted, or several answer at "
                "this URL. Record again, from one of them"
            )
        self.model_name = self.model_name or _choose(snapshot, self._wanted)
        waiting = set()
        pairs = self._pairs(self._last, snapshot)
        self._blocks.add(_block(at - self._at, pairs))
        self._contexts.add(_contexts(pairs))
        for before, now in pairs:
            load = Load(at - self._at, counts_of(now) - counts_of(before))
            if now.engine not in self._waiting:
                self._loads.add(load)
            if load.counts.preemptions:
                waiting.add(now.engine)
        self._waiting = waiting
        self._last, self._at = snapshot, at

    def _take(self, snapshot: Snapshot, at: float) -> Answer:
        # Whether a new process took the place of the old one does not matter: no recording goes on over it.
        return self._processes.take(snapshot, at, math.inf)

    def increases(self) -> Increases:
        """What happened between the first snapshot and the last, summed over engines."""
        pairs = self._pairs(self._first, self._last)
        found = Increases(
            histograms={
                field: total
                for field, source in (*HISTOGRAMS.items(), *zip(LENGTHS, LENGTHS, strict=True))
                if (total := total_of(field, _increases_of(pairs, source))) is not None
            },
            counts=_counts(pairs),
            requests_finished=_increase(pairs, _finished),
            by_load=self._loads.bins(),
            blocks=tuple(self._blocks.sums),
            contexts=tuple(self._contexts.sums),
        )
        return of_v0(found) if self._v0 else found

    def _pairs(self, before: Snapshot, now: Snapshot) -> list[tuple[EngineSnapshot, EngineSnapshot]]:
        """Each engine at two moments. An engine that appears has counted from zero."""
        known = {engine.engine: engine for engine in self._engines(before)}
        return [
            (known.get(engine.engine) or EngineSnapshot(model_name=engine.model_name, engine=engine.engine), engine)
            for engine in self._engines(now)
        ]

    def _engines(self, snapshot: Snapshot) -> list[EngineSnapshot]:
        return [engine for engine in snapshot.engines if engine.model_name == self.model_name]


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
    found = [now - (read(a) or 0.0) for a, b in pairs if (now := read(b)) is not None]
    return sum(found) if found else None


def _finished(engine: EngineSnapshot) -> float | None:
    return None if engine.requests_finished is None else sum(engine.requests_finished.values())


def _counts(pairs: _Pairs) -> Counts:
    return reduce(add, (counts_of(b) - counts_of(a) for a, b in pairs), Counts())


def _block(seconds: float, pairs: _Pairs) -> Block:
    counts = msgspec.structs.replace(_counts(pairs), accepted_per_position=())
    found: dict[str, Any] = {field: _sum(field, _increases_of(pairs, source)) for field, source in HISTOGRAMS.items()}
    return Block(seconds=seconds, counts=counts, **found)


def _contexts(pairs: _Pairs) -> Contexts:
    prompts, answers = (_increases_of(pairs, name) for name in LENGTHS)
    if not prompts or not answers:
        return Contexts(0.0, 0.0)
    return Contexts(sum(each.count for each in prompts), sum(each.sum for each in (*prompts, *answers)))


def _increases_of(pairs: _Pairs, name: str) -> list[Histogram]:
    sides: list[tuple[Histogram | None, Histogram | None]] = [(getattr(a, name), getattr(b, name)) for a, b in pairs]
    return [now if before is None else now - before for before, now in sides if now is not None]


def total_of(name: str, histograms: Sequence[Histogram]) -> Histogram | None:
    """Sum histograms of one figure, or ``None`` if they are empty.

    Raises :class:`BaselineError` if their bounds differ, or if the sum contradicts the buckets.
    """
    total = _sum(name, histograms)
    if total is None or not (found := _possible(total)).count:
        return None
    low, high = found.sum_bounds()
    if not low * (1 - _TOLERANCE) <= total.sum <= high * (1 + _TOLERANCE):
        raise BaselineError(
            f"the sum of {name}, {total.sum:g}, contradicts the buckets of its {found.count:g} requests: expected "
            f"{low:g} to {high:g}. Record for longer"
        )
    return found


def _sum(name: str, histograms: Sequence[Histogram]) -> Histogram | None:
    if len({histogram.bounds for histogram in histograms}) > 1:
        raise BaselineError(
            f"the engines use different buckets for {name}, which cannot be summed: give all engines the same "
            "--custom-histogram-buckets"
        )
    return reduce(add, histograms) if histograms else None


def _possible(found: Histogram) -> Histogram:
    """Remove small contradictions, which rounding and reads at different moments cause."""
    counts = tuple(itertools.accumulate((_rounded(count) for count in found.counts), max))
    low, high = Histogram(found.bounds, counts, 0.0).sum_bounds()
    return Histogram(found.bounds, counts, min(max(round(found.sum, _DIGITS + 3), low), high))


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
        found = (values["drafts"], *map(_rounded, counts.accepted_per_position))
        positions = itertools.islice(itertools.accumulate(found, min), 1, None)
    return Counts(accepted_per_position=tuple(positions), **values)


def _rounded(value: float) -> float:
    return round(max(value, 0.0), _DIGITS)


def _mean(tokens: float | None) -> float | None:
    return None if tokens is None else round(tokens, 1)


def _rounded_bins(bins: Sequence[LoadBin]) -> Iterator[LoadBin]:
    """Round the bins; a block that rounds to nothing would make the file unreadable, so it is left out."""
    for found in map(_rounded_bin, bins):
        if blocks := tuple(block for block in found.blocks if block.tells_the_cost):
            yield msgspec.structs.replace(found, blocks=blocks)


def _rounded_bin(found: LoadBin) -> LoadBin:
    blocks = []
    for block in found.blocks:
        values = {name: getattr(block.counts, name) for name in BLOCK_COUNTS}
        counts: dict[str, Any] = {name: None if value is None else _rounded(value) for name, value in values.items()}
        blocks.append(Load(_rounded(block.seconds), Counts(**counts)))
    positions = tuple(map(_rounded, found.accepted_per_position))
    return LoadBin(found.bound, found.intervals, tuple(blocks), positions)


def _rounded_blocks(found: Increases) -> Iterator[Block]:
    """Round the blocks. They know what the whole recording knows; what has not counted yet in a block is 0."""
    known = [name for name in SCALARS if getattr(found.counts, name) is not None]
    bounds = {sli: whole.bounds for sli, whole in found.histograms.items() if sli in HISTOGRAMS}
    empty = {sli: Histogram(each, (0.0,) * len(each), 0.0) for sli, each in bounds.items()}
    contexts = [each.mean for each in found.contexts]
    finished = any(contexts)
    for i, block in enumerate(found.blocks):
        values: dict[str, Any] = {name: getattr(block.counts, name) or 0.0 for name in known}
        counts = consistent_counts(Counts(**values))
        yield Block(
            seconds=_rounded(block.seconds) or 10.0**-_DIGITS,
            counts=counts,
            mean_prompt_tokens=_mean(ratio(counts.prompt_tokens, counts.first_tokens)),
            mean_context_tokens=_mean(contexts[i] if finished else context_by_counters(counts)),
            **{sli: _possible(getattr(block, sli) or nothing) for sli, nothing in empty.items()},
        )


def of_v0(found: Increases) -> Increases:
    """Remove the counts that a V0 engine (up to 0.9.2) gets wrong.

    Its draft counters add up lifetime totals again and again, and its generation tokens count steps.
    """
    kept = ("first_tokens", "steps", "prompt_tokens", "preemptions")
    counts = Counts(**{name: getattr(found.counts, name) for name in kept})
    return found._replace(counts=counts, by_load=())


def with_increases(baseline: Baseline, found: Increases) -> Baseline:
    """Add what was measured to ``baseline``. Raises :class:`BaselineError` if no request finished."""
    finished = found.requests_finished
    if finished is None and "request_latency_seconds" in found.histograms:
        finished = found.histograms["request_latency_seconds"].count
    if not finished or not found.histograms.keys() & HISTOGRAMS.keys():
        raise BaselineError(
            f"no request finished in the recorded {baseline.duration_seconds:g} s, so there is no latency to keep. "
            "Send requests to the predictor, or record for longer"
        )
    return msgspec.structs.replace(
        baseline,
        counts=consistent_counts(found.counts),
        requests_finished=_rounded(finished),
        by_load=tuple(_rounded_bins(found.by_load)),
        blocks=tuple(_rounded_blocks(found)),
        **found.histograms,
    )
