"""What holds for every exposition: the figures written are the figures read, and nothing is ever made up."""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Iterator

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from specdec_exporter import bounds
from specdec_exporter.errors import ExpositionError
from specdec_exporter.histogram import Histogram
from specdec_exporter.predictor.metrics.exposition import parse_exposition
from specdec_exporter.predictor.metrics.snapshot import EngineSnapshot, Snapshot
from support.builders import CAPTURES
from support.exposition import COUNTERS, GAUGES, HISTOGRAMS, Style, render

DUMPS = [
    (CAPTURES / name).read_bytes()
    for name in (
        "0.32.0-draft_model-k3/metrics-9-temp1.txt",
        "0.32.0-draft_model-dp2-api1/metrics-1-after.txt",
        "0.9.2-v0-ngram-k5/metrics-2-mid.txt",
        "0.8.3-driven/metrics-1-after.txt",
        "0.32.0-draft_model-disable-log-stats/metrics-1-after.txt",
    )
]

NUMBERS = st.one_of(st.integers(0, 10**15).map(float), st.floats(0, bounds.COUNT))
NAMES = st.one_of(
    st.sampled_from(["tiny", "meta-llama/Llama-3.1-8B", 'q"uo\\te', "a,b}{=", '"} 1', " ", ""]),
    st.text(st.characters(codec="utf-8"), max_size=8).filter(str.isprintable),  # others: test_names.py
)


PREFIXES = ["vllm:", "vllm_", "ray_vllm:", "kserve_vllm:"]
CHOSEN = {field.name: st.booleans() for field in dataclasses.fields(Style) if field.type == "bool"}
STYLES = st.builds(Style, prefix=st.sampled_from(PREFIXES), seed=st.integers(0, 5), **CHOSEN)


@st.composite
def histograms(draw: st.DrawFn) -> Histogram:
    bounds = sorted(draw(st.sets(st.floats(0.001, 1e4), min_size=0, max_size=4)))
    steps = draw(st.lists(st.integers(0, 1000), min_size=len(bounds) + 1, max_size=len(bounds) + 1))
    counts = tuple(float(sum(steps[: index + 1])) for index in range(len(steps)))
    return Histogram((*bounds, math.inf), counts, draw(NUMBERS))


@st.composite
def engines(draw: st.DrawFn, model_name: str, engine: str) -> EngineSnapshot:
    figures: dict[str, object] = {name: draw(st.none() | NUMBERS) for name in [*COUNTERS, *GAUGES]}
    figures["kv_cache_usage_ratio"] = draw(st.none() | st.floats(0, 1))
    figures |= {name: draw(st.none() | histograms()) for name in HISTOGRAMS}
    positions = draw(st.lists(NUMBERS, max_size=5))
    reasons = draw(st.dictionaries(st.sampled_from(["stop", "length", "abort", "error"]), NUMBERS))
    figures["accepted_tokens_per_position"] = dict(enumerate(positions)) or None
    figures["requests_finished"] = reasons or None
    if all(value is None for value in figures.values()):
        figures["requests_running"] = 0.0
    return EngineSnapshot(model_name=model_name, engine=engine, **figures)  # type: ignore[arg-type]


@st.composite
def snapshots(draw: st.DrawFn) -> tuple[EngineSnapshot, ...]:
    models = draw(st.sets(NAMES, min_size=1, max_size=2))
    ranks = draw(st.sets(st.sampled_from(["0", "1", "2"]), min_size=1, max_size=2))
    return tuple(draw(engines(model, rank)) for model in sorted(models) for rank in sorted(ranks))


@settings(deadline=None, max_examples=60)
@given(snapshots(), STYLES)
def test_what_is_written_is_read(truth: tuple[EngineSnapshot, ...], style: Style) -> None:
    if not style.engine_label:
        truth = tuple(one for one in truth if one.engine == truth[0].engine)
    body = render(truth, style)
    content_type = "application/openmetrics-text; version=1.0.0" if style.eof else "text/plain"
    expected = truth if style.engine_label else tuple(replace(one, engine="0") for one in truth)
    assert parse_exposition(body, content_type).engines == expected


def _numbers(snapshot: Snapshot) -> Iterator[float]:
    for one in snapshot.engines:
        for name in one.__struct_fields__:
            value = getattr(one, name)
            if isinstance(value, float):
                yield value
            elif isinstance(value, dict):
                yield from value.values()
            elif isinstance(value, Histogram):
                yield from (*value.counts, value.sum, value.count)


# What stands at a place (a share of the body) gives way, for so many bytes, to something else.
MUTATIONS = st.lists(
    st.tuples(
        st.floats(0, 1, exclude_max=True),
        st.integers(0, 80),
        st.binary(max_size=8)
        | st.sampled_from(
            [b"\n", b'"', b"}", b" ", b"NaN", b"# EOF\n", b"\\", b"_total", b"1e5", b"-", b"\x00", b"\r\n"]
        ),
    ),
    max_size=4,
)


def mutate(body: bytes, changes: list[tuple[float, int, bytes]]) -> bytes:
    for where, size, text in changes:
        at = int(where * len(body))
        body = body[:at] + text + body[at + size :]
    return body


@settings(deadline=None, max_examples=60)
@given(st.integers(0, len(DUMPS) - 1), MUTATIONS, st.sampled_from([None, "text/plain", "application/openmetrics-text"]))
def test_a_damaged_dump_is_refused_or_gives_numbers_that_stand_in_it(
    which: int, changes: list[tuple[float, int, bytes]], content_type: str | None
) -> None:
    dump = DUMPS[which]
    body = mutate(dump, changes)
    try:
        snapshot = parse_exposition(body, content_type)
    except ExpositionError as error:
        assert error.reason in ("not_metrics", "truncated", "encoding")  # noqa: PT017  either outcome is right
        return
    written = {
        float(number) for number in re.findall(rb"(?<![\w.])[0-9]+(?:\.[0-9]*)?(?:e[+-]?[0-9]+)?|\.[0-9]+", body)
    }
    # The capacity of a KV cache may be a product of two numbers, for several engines.
    engines = (msgspec.structs.replace(engine, kv_cache_block_tokens=None) for engine in snapshot.engines)
    assert set(_numbers(msgspec.structs.replace(snapshot, engines=tuple(engines)))) <= written


@settings(deadline=None, max_examples=60)
@given(st.integers(0, len(DUMPS) - 1), st.floats(0, 1, exclude_max=True))
def test_a_dump_cut_off_anywhere_is_truncated_or_ends_with_a_line(which: int, where: float) -> None:
    dump = DUMPS[which]
    body = dump[: 1 + int(where * (len(dump) - 1))]
    try:
        parse_exposition(body)
    except ExpositionError as error:
        assert error.reason == "truncated"  # noqa: PT017
    else:
        assert body.endswith(b"\n")
