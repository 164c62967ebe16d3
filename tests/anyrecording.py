"""Any recordings, for property tests."""

from __future__ import annotations

import itertools
from typing import Any

from hypothesis import strategies as st
from msgspec.structs import replace

from recordings import INF
from specdec_exporter.baseline.file import SLIS, Baseline, Block, Context
from specdec_exporter.histogram import Histogram
from specdec_exporter.speculation.acceptance import Counts
from specdec_exporter.speculation.load import Load

counts = st.one_of(st.none(), st.just(0.0), st.floats(0.0, 1e12))
texts = st.one_of(st.none(), st.text(max_size=30))


@st.composite
def histograms(draw: st.DrawFn) -> Histogram | None:
    """Any that a file may hold, in a few sets of buckets."""
    bounds = draw(st.sampled_from([(INF,), (0.01, INF), (0.01, 0.5, INF), (0.02, 0.5, 1.0, INF), (1e-300, 1e300, INF)]))
    return draw(histograms_in(bounds)) if draw(st.booleans()) else None


@st.composite
def histograms_in(draw: st.DrawFn, bounds: tuple[float, ...]) -> Histogram:
    within = draw(st.lists(st.floats(0.0, 1e300), min_size=len(bounds), max_size=len(bounds)))
    return Histogram(bounds=bounds, counts=tuple(itertools.accumulate(within)), sum=draw(st.floats(0.0, 1e300)))


@st.composite
def intervals(draw: st.DrawFn) -> tuple[Load, ...]:
    """Any intervals that a file may hold, half of them at a usual load."""
    drafted = draw(st.booleans())
    number = draw(st.sampled_from([0, 1, 4, 9, 24]))
    return tuple(draw(_interval(drafted=drafted)) for _ in range(number))


@st.composite
def _interval(draw: st.DrawFn, *, drafted: bool) -> Load:
    wild = draw(st.booleans())
    few = counts if wild else st.floats(1.0, 1e4)
    seconds = draw(st.floats(1e-3, 1e6) if wild else st.just(15.0))
    step_seconds = draw(counts if wild else st.floats(0.6, 8.0).map(lambda load: load * seconds))
    names = ["steps", "generation_tokens", "first_tokens", "prompt_tokens", "preemptions"]
    names += ["drafts", "draft_tokens", "accepted_tokens"] if drafted else []
    values = {name: draw(few) for name in names} | {"step_seconds": step_seconds}
    return Load(seconds, replace(Counts(), **values))


@st.composite
def time_blocks(draw: st.DrawFn, recorded: dict[str, Histogram | None]) -> tuple[Block, ...]:
    """Any blocks of time that a file may hold, in the buckets of the recording."""
    known = draw(st.sets(st.sampled_from(["drafts", "draft_tokens", "accepted_tokens", "steps", "generation_tokens"])))
    blocks = []
    for _ in range(draw(st.sampled_from([0, 1, 3, 12]))):
        found: dict[str, Any] = {
            sli: draw(histograms_in(each.bounds)) for sli, each in recorded.items() if each is not None
        }
        values = {name: draw(st.just(0.0) | st.floats(0.0, 1e12)) for name in sorted(known)}
        blocks.append(Block(seconds=draw(st.floats(1e-6, 1e6)), counts=replace(Counts(), **values), **found))
    return tuple(blocks)


@st.composite
def recordings(draw: st.DrawFn) -> Baseline:
    """Any recording that a file may hold."""
    drafts = draw(counts)
    draft_tokens = draw(counts)
    accepted = None if draft_tokens is None else draw(st.floats(0.0, 1.0)) * draft_tokens
    curve = draw(st.lists(st.floats(0.0, 1e12), max_size=4)) if drafts is not None else []
    latency: dict[str, Any] = {sli: draw(histograms()) for sli in SLIS}
    return Baseline(
        name=draw(st.text(max_size=30)),
        recorded_at="2026-11-21T02:00:00Z",
        duration_seconds=draw(st.floats(1e-3, 1e9)),
        context=Context(**{key: draw(texts) for key in ("hardware", "runtime", "request_parameters", "command")}),
        method=draw(st.one_of(st.none(), st.sampled_from(["eagle3", "ngram", "unheard of"]))),
        num_speculative_tokens=draw(st.one_of(st.none(), st.integers(1, 8))),
        **latency,
        prompt_length=draw(histograms()),
        generation_length=draw(histograms()),
        blocks=draw(time_blocks(latency)),
        counts=Counts(
            drafts=drafts,
            draft_tokens=draft_tokens,
            accepted_tokens=accepted,
            accepted_per_position=tuple(sorted(curve, reverse=True)),
            generation_tokens=draw(counts),
            first_tokens=draw(counts),
            steps=draw(counts),
            step_seconds=draw(counts),
            prompt_tokens=draw(counts),
            preemptions=draw(counts),
        ),
        intervals=draw(intervals()),
        old=draw(st.booleans()),
        requests_finished=draw(counts),
        interrupted=draw(st.booleans()),
    )
