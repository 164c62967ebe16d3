"""Inference engines other than vLLM, by what their own code wrote of numbers that were fed to it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from msgspec.structs import replace

from specdec_exporter.config import PredictorSettings
from specdec_exporter.predictor.engines.engine import ENGINES, VLLM
from specdec_exporter.predictor.metrics.exposition import parse_exposition
from specdec_exporter.predictor.metrics.snapshot import Snapshot
from specdec_exporter.speculation.acceptance import Counts
from specdec_exporter.speculation.figures import timed_counts_of
from specdec_exporter.state.observing import observe_snapshot
from specdec_exporter.state.record import PredictorState
from specdec_exporter.state.report import status_of
from specdec_exporter.state.view import state_name, window_of
from support.builders import FIXTURES, Clock, known, started
from support.running import listening

ENGINE_CAPTURES = FIXTURES / "engines"
RECORDED = sorted(path.parent for path in ENGINE_CAPTURES.glob("*/*/truth.json"))


def truth(capture: Path) -> dict[str, Any]:
    told: dict[str, Any] = json.loads((capture / "truth.json").read_text(encoding="utf-8"))
    return told


def dumps() -> Iterator[Any]:
    for capture in RECORDED:
        for name, fed in truth(capture)["dumps"].items():
            yield pytest.param(capture, name, fed, id=f"{capture.parent.name}-{capture.name}-{name}")


def read(capture: Path, name: str) -> Snapshot:
    return parse_exposition((capture / name).read_bytes())


def told(snapshot: Snapshot) -> Counts:
    """The counts of the one engine of a dump."""
    (engine,) = snapshot.engines
    return timed_counts_of(engine)


def test_every_engine_that_is_read_has_a_capture() -> None:
    assert {path.parent.name for path in RECORDED} == {
        code for code, engine in ENGINES.items() if engine.is_read and engine is not VLLM
    }


@pytest.mark.parametrize(("capture", "name", "fed"), list(dumps()))
def test_an_engine_counts_what_it_was_fed(capture: Path, name: str, fed: dict[str, Any]) -> None:
    snapshot = read(capture, name)
    assert known(snapshot.inference_engine).code == capture.parent.name
    assert not snapshot.dropped
    if not any(fed.values()):
        assert not any(engine.draft_tokens or engine.generation_tokens for engine in snapshot.engines)
        return
    counts = told(snapshot)
    for field, value in fed.items():
        counted = getattr(counts, field)
        if isinstance(value, list):
            assert counted in ((), tuple(value))
            assert counted or not any(value)
        elif counted is not None or value:
            assert counted == pytest.approx(value)


@pytest.mark.parametrize("capture", RECORDED, ids=lambda path: f"{path.parent.name}-{path.name}")
def test_what_is_served_of_an_engine_follows_from_its_counts(
    capture: Path, state: PredictorState, clock: Clock
) -> None:
    fed = truth(capture)["dumps"]
    for name in fed:
        observe_snapshot(state, read(capture, name))
        clock.advance(60)
    clock.advance(-60)
    last, engine, status = list(fed.values())[-1], ENGINES[capture.parent.name], status_of(state)
    assert status.inference_engine == engine.name
    assert known(status.untold).startswith(engine.untold)
    assert not status.pitfalls  # those are vLLM's
    if "drafts" not in last:  # SGLang before 0.5.13
        assert (status.state, status.verdict.code, status.lifetime) == ("drafting", "unknown", None)
        assert "tokens a draft in the last interval" in status.verdict.reasons[0]
        return
    if not last["drafts"]:
        assert status.state == "speculation_off"
        assert status.verdict.code == ("unknown" if engine.counts_without_speculation else "off")
        return
    assert status.state == "drafting"
    assert status.num_speculative_tokens in (truth(capture)["num_speculative_tokens"], None)
    lifetime = known(status.lifetime)
    assert lifetime.mean_acceptance_length == pytest.approx(1 + last["accepted_tokens"] / last["drafts"])
    drafted = last.get("draft_tokens")
    assert lifetime.acceptance_ratio == (pytest.approx(last["accepted_tokens"] / drafted) if drafted else None)
    if positions := last.get("accepted_per_position"):
        reached = last.get("drafted_per_position") or [last["drafts"]] * len(positions)
        assert lifetime.per_position == pytest.approx([a / d for a, d in zip(positions, reached, strict=True)])


def at_work(snapshot: Snapshot, requests: float) -> Snapshot:
    running = (replace(engine, requests_running=requests) for engine in snapshot.engines)
    return replace(snapshot, engines=tuple(running))


LATE = [code for code, engine in ENGINES.items() if engine.counts_at_end and "requests_running" in engine.gauges]


@pytest.mark.parametrize("code", LATE)
def test_a_long_answer_is_not_idle_where_it_counts_at_its_end(code: str, state: PredictorState, clock: Clock) -> None:
    captures = [path for path in RECORDED if path.parent.name == code]
    drafting = next(path for path in captures if list(truth(path)["dumps"].values())[-1]["drafts"])
    last = read(drafting, list(truth(drafting)["dumps"])[-1])
    for _ in range(20):
        observe_snapshot(state, at_work(last, 1.0))
        clock.advance(60)
    assert state_name(state) == "drafting"
    assert status_of(state).verdict.code != "idle"
    for _ in range(20):
        observe_snapshot(state, at_work(last, 0.0))
        clock.advance(60)
    assert state_name(state) == "idle"


async def test_an_engine_whose_metrics_name_no_model_is_asked_for_it() -> None:
    body = (ENGINE_CAPTURES / "llamacpp" / "b11434-draft-k4" / "metrics-2-after-all.txt").read_bytes()
    answers = {
        "/metrics": web.Response(body=body),
        "/v1/models": web.json_response({"data": [{"id": "tiny.gguf"}]}),
        "/props": web.json_response({"build_info": "b11434-5e54abb"}),
    }

    async def answer(request: web.Request) -> web.StreamResponse:
        return answers[request.path]

    app = web.Application()
    app.add_routes([web.get(path, answer) for path in answers])
    async with listening(app) as port, started(PredictorSettings(url=f"http://127.0.0.1:{port}")) as runtime:
        await runtime.refresh(5)
        status = runtime.predictors[0].status()
    assert (status.model_names, status.inference_engine_version) == (("tiny.gguf",), "b11434-5e54abb")
    assert status.vllm_version is None


async def test_a_release_beside_the_folder_of_the_metrics_is_found() -> None:
    body = (ENGINE_CAPTURES / "tensorrt_llm" / "main-050f80de-driven" / "metrics-3-later.txt").read_bytes()

    async def metrics(_request: web.Request) -> web.StreamResponse:
        return web.Response(body=body)

    async def version(_request: web.Request) -> web.StreamResponse:
        return web.json_response({"version": "1.3.0rc24"})

    app = web.Application()
    app.add_routes([web.get("/prometheus/metrics", metrics), web.get("/version", version)])
    async with listening(app) as port:
        url = f"http://127.0.0.1:{port}/prometheus/metrics"
        async with started(PredictorSettings(url=url)) as runtime:
            await runtime.refresh(5)
            status = runtime.predictors[0].status()
    assert (status.inference_engine, status.inference_engine_version) == ("TensorRT-LLM", "1.3.0rc24")
    assert (status.method, status.num_speculative_tokens) == ("eagle3", 3)


def test_another_program_may_speak_of_an_engine() -> None:
    vllm = "# TYPE vllm:num_requests_running gauge\nvllm:num_requests_running 1\nvllm:generation_tokens_total 3\n"
    others = "sglang:num_running_reqs 1\nllamacpp:requests_processing 2\n"
    assert known(parse_exposition((others + vllm).encode()).inference_engine) is VLLM
    assert parse_exposition(b"sglang:num_running_reqs 1\n").inference_engine is None
    both = "sglang:num_running_reqs 1\nsglang:num_queue_reqs 0\nvllm:num_requests_running 1\n"
    assert known(parse_exposition(both.encode()).inference_engine).code == "sglang"


# --- What real servers do ---------------------------------------------------------------------------------------------

SGLANG = """\
sglang:generation_tokens_total{{model_name="m",priority="1"}} {generated}
sglang:generation_tokens_total{{model_name="m",priority="2"}} 1000
sglang:num_requests_total{{model_name="m",priority="1"}} {requests}
sglang:spec_verify_calls_total{{model_name="m"}} {drafts}
sglang:num_running_reqs{{model_name="m",pp_rank="0"}} 3
sglang:num_running_reqs{{model_name="m",pp_rank="1"}} 2
sglang:num_running_reqs{{model_name="m",pp_rank="0",priority="1"}} 1
sglang:spec_num_steps{{model_name="m"}} {k}
"""


def sglang(generated: int, requests: int, drafts: int, k: int = 3) -> Snapshot:
    return parse_exposition(SGLANG.format(generated=generated, requests=requests, drafts=drafts, k=k).encode())


def test_counters_are_summed_over_what_an_operator_adds_and_ranks_count_once() -> None:
    snapshot = sglang(4000, 20, 2000)
    (engine,) = snapshot.engines
    assert (engine.generation_tokens, engine.requests_running, snapshot.dropped) == (5000.0, 3.0, {})


def test_a_request_without_a_token_is_no_other_process(state: PredictorState, clock: Clock) -> None:
    for requests in (20, 21):
        observe_snapshot(state, sglang(4000, requests, 2000))
        clock.advance(15)
    assert state.process_count == 1


def test_k_now_does_not_judge_drafts_of_another_k(state: PredictorState, clock: Clock) -> None:
    words = []
    for second, k in ((0, 1), (60, 1), (120, 7), (300, 7), (600, 7)):
        clock.advance(second - (clock.now - 1000.0))
        observe_snapshot(state, sglang(30 * second, second, 10 * second, k))
        words.append(status_of(state).verdict.code)
    assert words[2:4] == ["unknown", "unknown"]
    assert words[4] not in ("unknown", "broken")


def test_a_gauge_of_the_last_interval_proves_drafting_as_long_as_requests_run(
    state: PredictorState, clock: Clock
) -> None:
    old = 'sglang:generation_tokens_total{model_name="m"} 90\nsglang:num_running_reqs{model_name="m"} 1\n'
    for _ in range(30):
        observe_snapshot(state, parse_exposition(f'{old}sglang:spec_accept_length{{model_name="m"}} 2.5\n'.encode()))
        clock.advance(30)
        assert state_name(state) == "drafting"


@pytest.mark.parametrize("code", ["llamacpp", "sglang"])
def test_a_long_answer_is_judged_by_those_before(code: str, state: PredictorState, clock: Clock) -> None:
    capture = ENGINE_CAPTURES / "llamacpp" / "b11434-draft-k4"
    first = sglang(0, 0, 0) if code == "sglang" else read(capture, "metrics-0-fresh.txt")
    last = sglang(4000, 20, 2000) if code == "sglang" else read(capture, "metrics-2-after-all.txt")
    observe_snapshot(state, first)
    for _ in range(40):
        clock.advance(30)
        observe_snapshot(state, at_work(last, 1.0))
    assert state_name(state) == "drafting"
    assert status_of(state).verdict.code in ("watch", "not_measured")


def test_another_engine_at_one_url_counts_anew(state: PredictorState, clock: Clock) -> None:
    names = ("generation_tokens", "spec_decode_num_draft_tokens")
    vllm = "".join(f'vllm:{name}_total{{model_name="m"}} 900\n' for name in names)
    observe_snapshot(state, parse_exposition(vllm.encode()))
    clock.advance(15)
    observe_snapshot(state, sglang(4000, 20, 2000))
    (track,) = state.tracks.values()
    assert (track.snapshot.generation_tokens, track.snapshot.draft_tokens) == (5000.0, None)
    assert (state.restarts, status_of(state).inference_engine) == (1, "SGLang")


def test_numbers_of_six_digits_give_no_figures_of_few_drafts(state: PredictorState, clock: Clock) -> None:
    def llama(drafts: int) -> Snapshot:
        counts = {"draft_tokens": 4 * drafts, "accepted_tokens": 2 * drafts, "drafts": drafts}
        lines = [f"llamacpp:spec_decode_num_{name}_total {count:g}" for name, count in counts.items()]
        lines += [f'llamacpp:spec_decode_num_accepted_tokens_per_pos_total{{position="{i}"}} {drafts}' for i in (0, 1)]
        lines += [f"llamacpp:tokens_predicted_total {3 * drafts:g}", "llamacpp:requests_processing 0"]
        return parse_exposition("\n".join([*lines, ""]).encode())

    for step in range(10):
        observe_snapshot(state, llama(30_000_000 + 20 * step))
        clock.advance(15)
        assert window_of(state) is None
    assert state_name(state) == "drafting"  # the counts by position are exact
    assert known(status_of(state).lifetime).acceptance_ratio == pytest.approx(0.5, abs=0.001)


def test_triton_may_serve_vllm() -> None:
    body = "".join(f"nv_inference_{name} 1\n" for name in ("count", "exec_count", "queue_duration_us"))
    body += "vllm:num_requests_running 1\nvllm:generation_tokens_total 3\n"
    assert known(parse_exposition(body.encode()).inference_engine) is VLLM


async def models_of(path: str, *names: str, hang: bool = False) -> tuple[str, ...]:
    """The models of a llama.cpp whose metrics are read at ``path``."""
    body = (ENGINE_CAPTURES / "llamacpp" / "b11434-draft-k4" / "metrics-2-after-all.txt").read_bytes()

    async def metrics(_request: web.Request) -> web.StreamResponse:
        return web.Response(body=body)

    async def models(_request: web.Request) -> web.StreamResponse:
        if hang:
            await asyncio.Event().wait()
        return web.json_response({"data": [{"id": name} for name in names]})

    app = web.Application()
    app.add_routes([web.get("/metrics", metrics), web.get("/v1/models", models)])
    async with listening(app) as port:
        async with started(PredictorSettings(url=f"http://127.0.0.1:{port}{path}")) as runtime:
            await runtime.refresh(1.0)
            (predictor,) = runtime.predictors
            assert predictor.state.up, predictor.state.up_reason
            return predictor.state.model_names


async def test_the_model_of_a_router_is_the_one_that_is_asked_for() -> None:
    assert await models_of("/metrics?model=b&autoload=false", "a", "b") == ("b",)
    assert await models_of("", "a", "b") == ("",)  # nobody knows which one


async def test_a_server_that_does_not_name_its_model_holds_up_no_scrape() -> None:
    assert await models_of("", hang=True) == ("",)
