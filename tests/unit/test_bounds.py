"""What a predictor and its log say beyond a bound is left out or summed, counted, and harms no figure."""

from __future__ import annotations

import asyncio
import contextlib
import math
import re
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from prometheus_client.exposition import generate_latest

from specdec_exporter import bounds
from specdec_exporter.config import PredictorSettings
from specdec_exporter.errors import ExpositionError
from specdec_exporter.predictor.log.events import SpecDecoding
from specdec_exporter.predictor.metrics.exposition import parse_exposition
from specdec_exporter.predictor.metrics.snapshot import Snapshot
from specdec_exporter.serving.collector import SpecdecCollector
from specdec_exporter.serving.runtime import ExporterRuntime
from specdec_exporter.state.observing import observe_event, observe_snapshot
from specdec_exporter.state.record import PredictorState
from specdec_exporter.web.server import _Taken
from support.builders import Clock, engine, numbers, snapshot, started

RUNNING = 'vllm:num_requests_running{{model_name="{}",engine="{}"}} 1\n'


def dropped(*lines: str) -> dict[str, int]:
    return parse_exposition("".join(lines).encode()).dropped


def histogram(buckets: int) -> str:
    labels = 'model_name="m",engine="0"'
    lines = [f'vllm:e2e_request_latency_seconds_bucket{{{labels},le="{n}"}} 1\n' for n in [*range(buckets - 1), "+Inf"]]
    return "".join(lines) + "".join(
        f"vllm:e2e_request_latency_seconds_{part}{{{labels}}} 1\n" for part in ("sum", "count")
    )


@pytest.mark.parametrize(
    ("lines", "counted"),
    [
        pytest.param([RUNNING.format("m", n) for n in range(600)], {"engines": 88}, id="engines"),
        pytest.param([RUNNING.format(f"m{n}", 0) for n in range(5000)], {"engines": 4488}, id="models"),
        pytest.param([RUNNING.format("m" * 257, 0), RUNNING.format("m", 0)], {"labels": 1}, id="a long name"),
        pytest.param([RUNNING.format("m" * (1 << 20), 0), RUNNING.format("m", 0)], {"labels": 1}, id="a long line"),
        pytest.param(
            [f'vllm:request_success_total{{engine="0",finished_reason="{n}"}} 1\n' for n in range(510)],
            {"series": 10},
            id="finished reasons",
        ),
        pytest.param(
            [f'vllm:spec_decode_num_accepted_tokens_per_pos_total{{position="{n}"}} 1\n' for n in range(9999)],
            {"positions": 9999 - 64},
            id="positions",
        ),
        pytest.param([histogram(100)], {}, id="as many buckets as may be"),
        pytest.param([histogram(101)], {"histograms": 1}, id="buckets"),
        *(
            pytest.param([f"vllm:generation_tokens_total {value}\n"], {"values": 1}, id=value)
            for value in ("9007199254740994", "1e308", "+Inf", "-1", "NaN")
        ),
        pytest.param(["vllm:generation_tokens_total 9007199254740992\n"], {}, id="the last exact count"),
        pytest.param(["vllm:gpu_cache_usage_perc NaN\n"], {}, id="a gauge without a value yet"),
        pytest.param(["vllm:kv_cache_usage_perc 1.5\n"], {"values": 1}, id="a share above one"),
    ],
)
def test_what_a_body_holds_beyond_a_bound_is_counted(lines: list[str], counted: dict[str, int]) -> None:
    assert dropped(*lines) == counted
    assert set(counted) <= set(bounds.DROPPED)


def test_a_body_of_too_many_lines_is_refused() -> None:
    with pytest.raises(ExpositionError, match="at most 200000 lines, found 200001"):
        parse_exposition(b"# x\n" * 200_001)


# -- a log -----------------------------------------------------------------------------------------------------------


def line(number: int) -> SpecDecoding:
    return SpecDecoding(
        engine=f"{number:06}",
        accepted_tokens=2,
        draft_tokens=3,
        mean_acceptance_length=3.0,
        bonus_included=True,
        per_position=(1.0, 1.0, 0.0),
        num_speculative_tokens=3,
    )


def test_no_draft_of_a_log_is_lost_however_many_engines_it_names() -> None:
    state = PredictorState("svc")
    for number in [*range(2000), 3]:
        observe_event(state, line(number))
    totals = state.log.engines
    assert len(totals) == bounds.LOG_ENGINES + 1
    assert sum(each.draft_tokens for each in totals.values()) == 2001 * 3
    assert (totals["3"].windows, totals["other"].windows) == (2, 2000 - 512)
    assert state.dropped["log_engines"] == 2000 - 512


def test_a_line_of_many_positions_keeps_its_tokens() -> None:
    state = PredictorState("svc")
    observe_event(
        state,
        SpecDecoding(
            accepted_tokens=100,
            draft_tokens=100,
            mean_acceptance_length=101.0,
            bonus_included=True,
            per_position=(1.0,) * 100,
            num_speculative_tokens=100,
        ),
    )
    (totals,) = state.log.engines.values()
    assert (totals.accepted_tokens, len(totals.accepted_per_position)) == (100, 64)
    assert state.dropped["log_positions"] == 36


# -- what is served --------------------------------------------------------------------------------------------------


@contextlib.asynccontextmanager
async def serving(*states: list[Snapshot]) -> AsyncIterator[ExporterRuntime]:
    clock = Clock()
    async with started(*(PredictorSettings(name=f"svc{n}") for n in range(len(states)))) as runtime:
        for predictor, snapshots in zip(runtime.predictors, states, strict=True):
            predictor.state.clock, predictor.state.wall_clock = clock.monotonic, clock.wall
            for each in snapshots:
                predictor.observe(each)
                clock.advance(15)
        yield runtime


async def test_it_says_once_that_engines_are_left_out_and_the_page_shows_it(caplog: pytest.LogCaptureFixture) -> None:
    body = "".join(RUNNING.format("m", n) for n in range(600)).encode()
    async with serving([parse_exposition(body)] * 2) as runtime:
        status, dropped = runtime.status(), runtime.dropped
    assert [record.reason for record in caplog.records if "left out" in record.message] == [  # type: ignore[attr-defined]
        "600 engines; 512 are shown. Every figure is about these alone."
    ]
    (pitfall,) = [each for each in status.predictors[0].pitfalls if each.code == "too_many_engines"]
    assert pitfall.meaning.startswith("600 engines; 512 are shown")
    assert dropped["engines"] == 2 * 88


def of_process(start: float, steps: float) -> Snapshot:
    return msgspec.structs.replace(snapshot(engine(steps)), process_start_time_seconds=start)


async def test_it_says_once_that_several_processes_answer(caplog: pytest.LogCaptureFixture) -> None:
    turns = [of_process(1e9 + 1000 * (turn % 2), turn) for turn in range(8)]
    async with serving(turns) as runtime:
        (status,) = runtime.status().predictors
    (said,) = [record for record in caplog.records if record.message == "several processes answer"]
    (pitfall,) = status.pitfalls
    assert (status.up, status.processes, pitfall.code) == (True, 2, "several_processes")
    assert f"{pitfall.meaning} {pitfall.action}" == (
        "2 processes answer at this URL. Counts add up both; gauges show one at a time. Point each exporter at one pod."
    )
    assert said.reason == pitfall.meaning  # type: ignore[attr-defined]


async def test_predictors_share_the_engines() -> None:
    for predictors, share in ((1, 512), (2, 256), (64, 8), (100, 8)):
        async with serving(*[[]] * predictors) as runtime:
            found = {(each.fetcher.most_engines, each.state.log.most_engines) for each in runtime.predictors}
        assert found == {(share, share)}


@pytest.mark.parametrize("with_log", [False, True])
async def test_all_that_can_be_dropped_is_zero_from_the_start(tmp_path: Path, *, with_log: bool) -> None:
    log = tmp_path / "vllm.log"
    log.touch()
    async with started(PredictorSettings(log_paths=(str(log),) if with_log else ())) as runtime:
        text = generate_latest(SpecdecCollector(runtime)).decode()
    wanted = {*bounds.DROPPED, *(bounds.DROPPED_OF_LOGS if with_log else ())}
    assert set(re.findall(r'specdec_exporter_dropped_total\{what="(\w+)"\} 0\.0', text)) == wanted


async def test_rendering_in_another_thread_shows_the_moment_when_it_was_asked() -> None:
    async with serving([snapshot(*(engine(10, name=str(n)) for n in range(100)))]) as runtime:
        (state,) = (each.state for each in runtime.predictors)
        before = generate_latest(SpecdecCollector(runtime))
        taken = _Taken(SpecdecCollector(runtime).collect())
        observe_snapshot(state, snapshot(engine(20, name="new")))
        after = await asyncio.to_thread(generate_latest, taken)
    about_itself = re.compile(rb"^(?:# \w+ )?(?:process|python)_.*\n", re.MULTILINE)
    assert about_itself.sub(b"", after) == about_itself.sub(b"", before)


VALUES = st.sampled_from(["0", "5", "1e2", "5e-324", "1e12", "1e30", "1e308", "NaN", "+Inf", "-1"]) | st.integers(
    0, 10**7
).map(str)
NAMES = (
    *("spec_decode_num_drafts_total", "spec_decode_num_draft_tokens_total", "spec_decode_num_accepted_tokens_total"),
    *("generation_tokens_total", "inter_token_latency_seconds_sum", "time_to_first_token_seconds_sum"),
    *("kv_cache_usage_perc", "request_time_per_output_token_seconds_sum", "spec_decode_draft_acceptance_rate"),
)
COUNTED = ("inter_token_latency_seconds", "time_to_first_token_seconds", "request_time_per_output_token_seconds")
BODIES = st.tuples(
    st.dictionaries(st.sampled_from(NAMES), VALUES),
    st.dictionaries(st.sampled_from(COUNTED), VALUES),
    st.lists(VALUES, max_size=3),
)


def body_of(figures: dict[str, str], counts: dict[str, str], positions: list[str]) -> bytes:
    lines = [f"vllm:{name} {value}" for name, value in figures.items()]
    for name, value in counts.items():
        lines += [f'vllm:{name}_bucket{{le="+Inf"}} {value}', f"vllm:{name}_count {value}"]
    lines += [
        f'vllm:spec_decode_num_accepted_tokens_per_pos_total{{position="{n}"}} {v}' for n, v in enumerate(positions)
    ]
    return ("\n".join(["# HELP vllm:num_requests_running R.", *lines]) + "\n").encode()


@settings(max_examples=50)
@given(st.lists(BODIES, min_size=2, max_size=6))
async def test_no_figure_is_ever_without_sense(bodies: list[tuple[dict[str, str], dict[str, str], list[str]]]) -> None:
    async with serving([parse_exposition(body_of(*each)) for each in bodies]) as runtime:
        text, status = generate_latest(SpecdecCollector(runtime)).decode(), runtime.status()
    for series, value in re.findall(r"^(specdec_\S+?)(?:\{.*\})? (\S+)$", text, re.MULTILINE):
        assert math.isfinite(float(value)), (series, value)
        assert float(value) >= 0, (series, value)
        assert not series.endswith("_ratio") or float(value) <= 1, (series, value)
    assert all(map(math.isfinite, numbers(msgspec.to_builtins(status))))
