"""Baselines and their file: written for people, read back exactly, and refused wherever they cannot be true."""

from __future__ import annotations

import math
import re
from functools import reduce
from operator import add
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from specdec_exporter.baseline.file import Baseline, Block, Context
from specdec_exporter.baseline.reading import parse_baseline, read_baseline
from specdec_exporter.baseline.remarks import remarks
from specdec_exporter.baseline.writing import to_document, to_yaml, write_baseline
from specdec_exporter.errors import BaselineError
from specdec_exporter.histogram import Histogram
from specdec_exporter.speculation.acceptance import Counts
from specdec_exporter.speculation.load import Load
from support import yamltext

INF = math.inf


def part(*counts: Any, step_seconds: float, prompt_tokens: float, cached: float) -> Counts:
    more = {"step_seconds": step_seconds, "prompt_tokens": prompt_tokens, "cached_prompt_tokens": cached}
    return replace(Counts(*counts), **more)


CURVE = (90.0, 60.0, 30.0)
EXAMPLE = Baseline(
    name="no speculation",
    recorded_at="2026-01-31T12:00:00Z",
    duration_seconds=1800.25,
    context=Context(hardware="1x L4", model="org/model: 8b # fp8", runtime="vLLM 0.32.0"),
    vllm_version="0.32.0",
    method="draft_model",
    num_speculative_tokens=3,
    model_name="tiny",
    time_to_first_token_seconds=Histogram((0.05, 0.1, INF), (5.0, 9.0, 10.0), 0.75),
    request_latency_seconds=Histogram((0.5, 1.0, INF), (0.0, 10.0, 10.0), 7.5),
    counts=replace(
        part(100.0, 300.0, 180.0, CURVE, 300.0, 10.0, 110.0, step_seconds=4.4, prompt_tokens=80.0, cached=24.0),
        preemptions=0.0,
    ),
    requests_finished=10.0,
    prompt_length=Histogram((5.0, 10.0, INF), (2.0, 10.0, 10.0), 80.0),
    generation_length=Histogram((20.0, 50.0, INF), (1.0, 10.0, 10.0), 300.0),
    blocks=(
        Block(
            seconds=900.0,
            counts=part(60.0, 180.0, 110.0, (), 170.0, 4.0, 60.0, step_seconds=2.2, prompt_tokens=32.0, cached=8.0),
            time_to_first_token_seconds=Histogram((0.05, 0.1, INF), (5.0, 5.0, 6.0), 0.5),
            request_latency_seconds=Histogram((0.5, 1.0, INF), (0.0, 7.0, 7.0), 5.5),
        ),
        Block(
            seconds=900.25,
            counts=part(40.0, 120.0, 70.0, (), 130.0, 6.0, 50.0, step_seconds=2.2, prompt_tokens=48.0, cached=16.0),
            time_to_first_token_seconds=Histogram((0.05, 0.1, INF), (0.0, 4.0, 4.0), 0.25),
            request_latency_seconds=Histogram((0.5, 1.0, INF), (0.0, 3.0, 3.0), 2.0),
        ),
    ),
    intervals=(
        Load(
            20.0,
            part(60.0, 180.0, 110.0, (), 170.0, 4.0, 60.0, step_seconds=66.0, prompt_tokens=32.0, cached=8.0),
            20.0,
        ),
        Load(
            25.0,
            part(40.0, 120.0, 70.0, (), 130.0, 6.0, 50.0, step_seconds=55.5, prompt_tokens=48.0, cached=16.0),
            1790.5,
        ),
    ),
)
TEXT = to_yaml(EXAMPLE)


# --- what is written is what is read ---

names = st.text(st.characters(exclude_categories=("C", "Z")), min_size=1, max_size=20)
amounts = st.integers(1, 10**9).map(float) | st.floats(1e-6, 1e9)


@given(names, st.none() | names, names, st.floats(0.001, 1e7), amounts, amounts)
def test_a_file_gives_back_the_baseline_it_was_written_from(  # noqa: PLR0917
    name: str, hardware: str | None, command: str, seconds: float, drafts: float, steps: float
) -> None:
    load, *more = EXAMPLE.intervals
    changed = msgspec.structs.replace(load, counts=msgspec.structs.replace(load.counts, steps=steps))
    baseline = msgspec.structs.replace(
        EXAMPLE,
        name=name,
        context=Context(hardware=hardware, command=command),
        duration_seconds=seconds,
        counts=Counts(drafts, drafts * 3, drafts * 2, (drafts, drafts / 2)),
        intervals=(changed, *more),
    )
    assert parse_baseline(to_yaml(baseline).encode()) == baseline


def test_a_file_is_plain_yaml_with_the_keys_of_the_format() -> None:
    data = yamltext.load(TEXT)
    changed = ("latency", "lengths", "blocks")  # YAML has numbers as keys, JSON has none
    assert data == {**to_document(EXAMPLE), **{key: data[key] for key in changed}}
    assert {"name", "recorded_at", "duration_seconds", *Context.__struct_fields__} <= set(data)
    assert data["latency"]["request_latency_seconds"] == {
        "count": 10,
        "sum": 7.5,
        "buckets": {0.5: 0, 1.0: 10, "+Inf": 10},
    }


def test_a_key_that_may_be_missing_reads_as_null() -> None:
    lines = [line for line in TEXT.splitlines() if not re.match(r"(command|method|interrupted|hardware):", line)]
    read = parse_baseline("\n".join(lines).encode())
    assert (read.method, read.context.hardware, read.interrupted) == (None, None, False)


def test_a_file_without_intervals_blocks_and_lengths_is_read() -> None:
    old = TEXT[: TEXT.index("\nlengths:")].replace("  step_seconds: 4.4\n", "")
    read = parse_baseline(old.encode())
    assert (read.blocks, read.prompt_length, read.generation_length) == ((), None, None)
    assert (read.intervals, read.counts.step_seconds, read.counts.steps) == ((), None, 110.0)


def test_a_file_without_cached_prompt_tokens_and_ends_is_read() -> None:
    kept = [line for line in TEXT.splitlines() if not re.match(r"  (cached_prompt_tokens|ends):", line)]
    read = parse_baseline("\n".join(kept).encode())
    assert [load.ends for load in read.intervals] == [None, None]
    assert [load.prompt_rate for load in read.intervals] == [32.0 / 20.0, 48.0 / 25.0]
    assert (read.counts.cached_prompt_ratio, EXAMPLE.counts.cached_prompt_ratio) == (None, 0.3)
    told = "cached prompt tokens were not counted, so all prompt tokens are taken for computed ones"
    assert [told in remarks(each) for each in (read, EXAMPLE)] == [True, False]


def plain(*steps: float, stall: float = 0.0) -> Baseline:
    """A recording without drafts: so many steps of 20 ms in each interval of 15 s; the first one stalls."""
    counts = [Counts(steps=each, step_seconds=each * 0.02 + (0.0 if i else stall)) for i, each in enumerate(steps)]
    total = reduce(add, counts, Counts(steps=0.0, step_seconds=0.0))
    return replace(EXAMPLE, counts=total, intervals=tuple(Load(15.0, each) for each in counts))


@pytest.mark.parametrize(
    ("baseline", "why"),
    [
        (plain(*[100.0] * 8), None),
        (plain(*[100.0] * 3), "3 intervals with decoding steps, 4 are needed; record for longer"),
        (plain(*[20.0] * 8), "160 decoding steps, 200 are needed; record for longer"),
        (plain(20.0, *[100.0] * 7, stall=10.0), "one stall took most of the time of all steps; record again"),
        (EXAMPLE, "2 intervals with decoding steps, 4 are needed; record for longer"),
        (replace(EXAMPLE, counts=Counts(steps=9.0)), "V0 engines do not count step_seconds; with another engine, rec"),
        (replace(EXAMPLE, counts=Counts(generation_tokens=5.0)), "the predictor does not expose its step latency"),
    ],
)
def test_a_recording_that_cannot_tell_what_a_draft_costs_says_why(baseline: Baseline, why: str | None) -> None:
    found = [remark for remark in remarks(baseline) if "what a draft costs" in remark]
    assert [why is not None and f": {why}" in remark for remark in found] == ([True] if why else [])


@pytest.mark.parametrize(
    ("blocks", "said"),
    [(0, "no blocks of time, "), (7, "only 7 blocks of time: "), (8, None)],
)
def test_a_recording_says_if_its_blocks_tell_little(blocks: int, said: str | None) -> None:
    baseline = msgspec.structs.replace(EXAMPLE, blocks=EXAMPLE.blocks[:1] * blocks)
    found = [remark for remark in remarks(baseline) if "blocks" in remark]
    assert [remark.startswith(said or "") for remark in found] == ([True] if said else [])


@pytest.mark.parametrize("zone", ["2026-01-31T13:00:00+01:00", '"2026-01-31 12:00:00.75Z"'])
def test_times_of_other_zones_are_the_same_moment(zone: str) -> None:
    text = re.sub(r"^recorded_at: .*", f"recorded_at: {zone}", TEXT, flags=re.MULTILINE)
    assert parse_baseline(text.encode()).recorded_at == "2026-01-31T12:00:00Z"


# --- what cannot be true is refused, by file, line and key ---


@pytest.mark.parametrize(
    ("change", "by", "said"),
    [
        ("0.1: 9", "0.01: 9", "time_to_first_token_seconds.buckets.0.01: expected a bound above 0.05"),
        ("0.1: 9", "100ms: 9", "buckets.100ms: expected a bound"),
        ("      +Inf: 10\n  request", "  request", "buckets: expected +Inf as the last bucket, found 0.1"),
        ("0.1: 9", "0.1: 4", "buckets.0.1: expected a cumulative count of at least 5, found 4"),
        ("0.05: 5", "0.05: -5", "buckets[...]: expected a number of at least 0"),
        ("count: 10\n    sum: 0.75", "count: 11\n    sum: 0.75", "count: expected the count of +Inf, 10"),
        ("sum: 7.5", "sum: 10.1", "request_latency_seconds.sum: expected 5 to 10, as the buckets allow, found 10.1"),
        ("duration_seconds: 1800.25", "duration_seconds: 0", "duration_seconds: expected a duration above 0"),
        ("duration_seconds: 1800.25\n", "", "top level: expected the key duration_seconds, found none"),
        ('name: "no speculation"', 'name: "a\\nb"', "name: expected 1 to 4096 printable characters on one line"),
        ('"2026-01-31T12:00:00Z"', "yesterday", "recorded_at: expected a time such as"),
        ('"2026-01-31T12:00:00Z"', '"2026-02-31T12:00:00Z"', "recorded_at: expected a time such as"),
        ("interrupted: false", "interrupted: maybe", "interrupted: expected true or false"),
        ("accepted_tokens: 180", "accepted_tokens: 301", "accepted_tokens: expected at most the 300 draft_tokens"),
        ("accepted_tokens: 180", "accepted_tokens: null", "acceptance: expected draft_tokens and accepted_tokens"),
        ("[90, 60, 30]", "[90, 95, 30]", "acceptance.accepted_per_position[1]: expected at most 90"),
        ("  drafts: 100", "  drafts: null", "accepted_per_position: expected drafts beside the positions"),
        ("seconds: [20, 25]", "seconds: [20, 0]", "intervals.seconds[1]: expected a time above 0 seconds, found 0"),
        ("  steps: [60, 50]", "  steps: [60]", "intervals.steps: expected 2 values, as many as seconds, found 1"),
        ("  steps: [60, 50]", "  steps: [60, -1]", "intervals.steps[1]: expected a number of at least 0"),
        ("  ends: [20, 1790.5]", "  ends: [20]", "intervals.ends: expected 2 values, as many as seconds, found 1"),
        ("ends: [20, 1790.5]", "ends: [20, 5]", "ends[1]: expected at least 20, in the order of time, found 5"),
        ("blocks:  #", "blocks:\n  ends: [1]  #", "blocks.ends: unknown key"),
        ("sum: 80", "sum: 9", "lengths.prompt_length.sum: expected 40 to 90, as the buckets allow, found 9"),
        ("seconds: [900, 900.25]", "seconds: [900, 0]", "blocks.seconds[1]: expected a time above 0 seconds, found 0"),
        (
            "  seconds: [900, 900.25]",
            f"  seconds: {[1] * 1001}",
            "blocks.seconds: expected at most 1000 values, found 1001",
        ),
        ("sum: [0.5, 0.25]", "sum: [0.5, 0.5]", "seconds.sum[1]: expected 0.2 to 0.4, as the buckets allow, found 0.5"),
        ("0.1: [5, 4]", "0.1: [4, 4]", "buckets.0.1: expected a cumulative count of at least 5, found 4"),
        ("0.1: [5, 4]", "0.2: [5, 4]", "seconds.buckets.0.2: expected a bound of the whole recording, found 0.2"),
        (
            "      +Inf: [7, 3]\n",
            "",
            "request_latency_seconds.buckets: expected +Inf as the last bucket, found 1",
        ),
    ],
)
def test_a_wrong_file_is_named_with_key_and_expectation(change: str, by: str, said: str, tmp_path: Path) -> None:
    assert change in TEXT
    path = tmp_path / "base.yaml"
    path.write_text(TEXT.replace(change, by, 1))
    with pytest.raises(BaselineError) as caught:
        read_baseline(str(path))
    words = str(caught.value)
    assert words.startswith(f"{path}")
    assert said in words
    assert "\n" not in words


def test_blocks_in_another_latency_than_the_recording_are_refused() -> None:
    text = TEXT.replace("  request_latency_seconds:", "  time_per_output_token_seconds:", 1)
    with pytest.raises(BaselineError, match=r"blocks.request_latency_seconds: expected none, as in latency.request_la"):
        parse_baseline(text.encode())


@pytest.mark.parametrize("content", [b"", b"# nothing\n", b"null"])
def test_an_empty_file_is_no_baseline(content: bytes) -> None:
    with pytest.raises(BaselineError, match="expected a baseline, found nothing"):
        parse_baseline(content)


# --- writing ---


def test_a_recording_that_found_its_place_taken_is_kept_beside_it(tmp_path: Path) -> None:
    path = tmp_path / "base.yaml"
    path.write_text("mine")
    with pytest.raises(BaselineError, match=r"exists already.*remove it first.*the recording is in (.*)") as caught:
        write_baseline(str(path), EXAMPLE)
    kept = str(caught.value).rpartition(" ")[2]
    assert (path.read_text(), read_baseline(kept)) == ("mine", EXAMPLE)


@pytest.mark.parametrize("name", ["", "missing/base.yaml"])
def test_a_place_that_cannot_be_written_is_one_clear_line(name: str, tmp_path: Path) -> None:
    with pytest.raises(BaselineError):
        write_baseline(str(tmp_path / name), EXAMPLE)
    assert list(tmp_path.rglob("*.yaml")) == []
