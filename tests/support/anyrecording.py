"""Any recordings, for property tests."""

from __future__ import annotations

import itertools
from typing import Any

from hypothesis import strategies as st
from msgspec.structs import replace

from specdec_exporter.baseline.file import SLIS, Baseline, Block, Context
from specdec_exporter.histogram import Histogram
from specdec_exporter.speculation.acceptance import SCALARS, Counts
from specdec_exporter.speculation.load import Load
from support.recordings import INF

BOUNDS = [(INF,), (0.01, INF), (0.01, 0.5, INF), (0.02, 0.5, 1.0, INF), (1e-300, 1e300, INF)]
DRAFTED = ("drafts", "draft_tokens", "accepted_tokens")
amounts = st.just(0.0) | st.floats(0.0, 1e12)
counts = st.none() | amounts
texts = st.none() | st.text(max_size=30)


def histograms_in(bounds: tuple[float, ...]) -> st.SearchStrategy[Histogram]:
    within = st.lists(st.floats(0.0, 1e300), min_size=len(bounds), max_size=len(bounds))
    cumulative = within.map(lambda found: tuple(itertools.accumulate(found)))
    return st.builds(Histogram, st.just(bounds), cumulative, st.floats(0.0, 1e300))


histograms = st.none() | st.sampled_from(BOUNDS).flatmap(histograms_in)


@st.composite
def intervals(draw: st.DrawFn) -> tuple[Load, ...]:
    """Any intervals that a file may hold, half of them at a usual load."""
    names = ["steps", "generation_tokens", "first_tokens", "prompt_tokens", "cached_prompt_tokens", "preemptions"]
    names += DRAFTED if draw(st.booleans()) else ()

    timed = draw(st.booleans())

    def interval(number: int) -> Load:
        wild = draw(st.booleans())
        seconds = draw(st.floats(1e-3, 1e6) if wild else st.just(15.0))
        values = {name: draw(counts if wild else st.floats(1.0, 1e4)) for name in names}
        values["step_seconds"] = draw(counts if wild else st.floats(0.6 * seconds, 8.0 * seconds))
        return Load(seconds, replace(Counts(), **values), 15.0 * number if timed else None)

    return tuple(interval(number) for number in range(draw(st.sampled_from([0, 1, 4, 9, 24]))))


@st.composite
def time_blocks(draw: st.DrawFn, recorded: dict[str, Histogram | None]) -> tuple[Block, ...]:
    """Any blocks of time that a file may hold, in the buckets of the recording."""
    known = sorted(draw(st.sets(st.sampled_from([*DRAFTED, "steps", "generation_tokens"]))))

    def block() -> Block:
        found: dict[str, Any] = {sli: draw(histograms_in(each.bounds)) for sli, each in recorded.items() if each}
        values = {name: draw(amounts) for name in known}
        return Block(seconds=draw(st.floats(1e-6, 1e6)), counts=replace(Counts(), **values), **found)

    return tuple(block() for _ in range(draw(st.sampled_from([0, 1, 3, 12]))))


@st.composite
def recordings(draw: st.DrawFn) -> Baseline:
    """Any recording that a file may hold."""
    drafts, draft_tokens = draw(counts), draw(counts)
    curve = draw(st.lists(st.floats(0.0, 1e12), max_size=4)) if drafts is not None else []
    others = (name for name in SCALARS if name not in {*DRAFTED, "timed_requests", "output_token_seconds"})
    counted: dict[str, Any] = {name: draw(counts) for name in others}
    latency: dict[str, Any] = {sli: draw(histograms) for sli in SLIS}
    return Baseline(
        name=draw(st.text(max_size=30)),
        recorded_at="2026-11-21T02:00:00Z",
        duration_seconds=draw(st.floats(1e-3, 1e9)),
        context=Context(**{key: draw(texts) for key in ("hardware", "runtime", "request_parameters", "command")}),
        method=draw(st.sampled_from([None, "eagle3", "ngram", "unheard of"])),
        num_speculative_tokens=draw(st.none() | st.integers(1, 8)),
        **latency,
        prompt_length=draw(histograms),
        generation_length=draw(histograms),
        blocks=draw(time_blocks(latency)),
        counts=Counts(
            drafts=drafts,
            draft_tokens=draft_tokens,
            accepted_tokens=None if draft_tokens is None else draw(st.floats(0.0, 1.0)) * draft_tokens,
            accepted_per_position=tuple(sorted(curve, reverse=True)),
            **counted,
        ),
        intervals=draw(intervals()),
        requests_finished=draw(counts),
        interrupted=draw(st.booleans()),
    )
