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

COUNTERS = {
    "drafts": "spec_decode_num_drafts",
    "draft_tokens": "spec_decode_num_draft_tokens",
    "accepted_tokens": "spec_decode_num_accepted_tokens",
    "generation_tokens": "generation_tokens",
    "prompt_tokens": "prompt_tokens",
    "cached_prompt_tokens": "prompt_tokens_cached",
    "preemptions": "num_preemptions",
}
GAUGES = {
    "requests_running": ("num_requests_running",),
    "requests_waiting": ("num_requests_waiting",),
    "kv_cache_usage_ratio": ("kv_cache_usage_perc", "gpu_cache_usage_perc"),
}
HISTOGRAMS = {
    "time_to_first_token": ("time_to_first_token_seconds",),
    "time_per_output_token": ("request_time_per_output_token_seconds",),
    "step_latency": ("inter_token_latency_seconds", "time_per_output_token_seconds"),
    "request_latency": ("e2e_request_latency_seconds",),
    "request_decode": ("request_decode_time_seconds",),
}

NUMBERS = st.one_of(st.integers(0, 10**15).map(float), st.floats(0, bounds.COUNT))
NAMES = st.one_of(
    st.sampled_from(["tiny", "meta-llama/Llama-3.1-8B", 'q"uo\\te', "a,b}{=", '"} 1', " ", ""]),
    st.text(st.characters(codec="utf-8"), max_size=8).filter(str.isprintable),  # others: test_names.py
)


@dataclasses.dataclass(frozen=True, slots=True)
class Style:
    """How a server writes what it has to say."""

    prefix: str
    total_in_type: bool
    total_in_sample: bool
    old_names: bool
    engine_label: bool
    integers: bool
    created: bool
    types: bool
    repeated: bool
    blank_lines: bool
    timestamps: bool
    eof: bool
    seed: int


PREFIXES = ["vllm:", "vllm_", "ray_vllm:", "kserve_vllm:"]
STYLES = st.builds(Style, prefix=st.sampled_from(PREFIXES), seed=st.integers(0, 5))


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


def escape(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def rotated(items: list[str], by: int) -> list[str]:
    return items[by % len(items) :] + items[: by % len(items)]


def lines(family: str, kind: str, samples: list[tuple[str, dict[str, str], float]], style: Style) -> Iterator[str]:
    """One family's group."""
    if style.types:
        yield f"# HELP {family} What it is; no {{braces}} meant."
        yield f"# TYPE {family} {kind}"
    for name, labels, value in samples:
        pairs = rotated([f'{key}="{escape(text)}"' for key, text in labels.items()], style.seed)
        number = repr(int(value)) if style.integers and value.is_integer() else repr(value)
        stamp = " 1700000000000" if style.timestamps else ""
        line = f"{name}{{{','.join(pairs)}}} {number}{stamp}"
        yield line
        if style.repeated:
            yield line
        if style.blank_lines:
            yield ""
    if style.created and kind != "gauge" and style.types:
        yield f"# TYPE {family.removesuffix('_total')}_created gauge"
        yield f'{family.removesuffix("_total")}_created{{model_name="tiny"}} 1.79e+09'


def render(truth: tuple[EngineSnapshot, ...], style: Style) -> bytes:
    """``truth`` as a server of ``style`` would write it."""
    groups: list[tuple[str, str, list[tuple[str, dict[str, str], float]]]] = []
    own = [
        (one, {"model_name": one.model_name} | ({"engine": one.engine} if style.engine_label else {})) for one in truth
    ]
    total = "_total" if style.total_in_sample else ""
    for field, name in COUNTERS.items():
        samples = [(f"{style.prefix}{name}{total}", labels, getattr(one, field)) for one, labels in own]
        groups.append((name, "counter", [sample for sample in samples if sample[2] is not None]))
    for field, names in GAUGES.items():
        name = names[-1] if style.old_names else names[0]
        samples = [(style.prefix + name, labels, getattr(one, field)) for one, labels in own]
        groups.append((name, "gauge", [sample for sample in samples if sample[2] is not None]))
    name = "spec_decode_num_accepted_tokens_per_pos"
    samples = [
        (f"{style.prefix}{name}{total}", {**labels, "position": str(position)}, value)
        for one, labels in own
        for position, value in reversed((one.accepted_tokens_per_position or {}).items())
    ]
    groups.append((name, "counter", samples))
    samples = [
        (f"{style.prefix}request_success{total}", {**labels, "finished_reason": reason}, value)
        for one, labels in own
        for reason, value in (one.requests_finished or {}).items()
    ]
    groups.append(("request_success", "counter", samples))
    for field, names in HISTOGRAMS.items():
        name = names[-1] if style.old_names else names[0]
        samples = []
        for one, labels in own:
            histogram: Histogram | None = getattr(one, field)
            if histogram is None:
                continue
            for bound, count in zip(histogram.bounds, histogram.counts, strict=True):
                le = "+Inf" if math.isinf(bound) else repr(bound)
                samples.append((f"{style.prefix}{name}_bucket", {**labels, "le": le}, count))
            samples.append((f"{style.prefix}{name}_count", labels, histogram.count))
            samples.append((f"{style.prefix}{name}_sum", labels, histogram.sum))
        groups.append((name, "histogram", samples))

    text = ["# HELP python_info Python", "# TYPE python_info gauge", 'python_info{version="3.12"} 1.0']
    for name, kind, samples in groups[style.seed :] + groups[: style.seed]:
        suffix = "_total" if kind == "counter" and style.total_in_type else ""
        text += lines(f"{style.prefix}{name}{suffix}", kind, samples, style)
    text += ['http_requests_total{handler="/v1/completions"} 3', *(["# EOF"] if style.eof else [])]
    return "\n".join([*text, ""]).encode()


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
