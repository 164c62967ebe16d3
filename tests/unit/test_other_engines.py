"""What commands, sentences and recordings say where another inference engine than vLLM answers."""

from __future__ import annotations

import contextlib
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, get_args

import pytest
from aiohttp import web
from msgspec.structs import replace

from specdec_exporter.baseline.file import Baseline
from specdec_exporter.baseline.live import record
from specdec_exporter.baseline.pinned import fit
from specdec_exporter.baseline.reading import parse_baseline
from specdec_exporter.baseline.remarks import remarks
from specdec_exporter.baseline.writing import to_yaml
from specdec_exporter.commands.doctor import doctor
from specdec_exporter.comparison.compare import compare
from specdec_exporter.doctor.reports import Given
from specdec_exporter.errors import BaselineError
from specdec_exporter.inspection.livecheck import examined
from specdec_exporter.predictor.engines.engine import ENGINES, VLLM, InferenceEngine
from specdec_exporter.predictor.metrics.exposition import parse_exposition
from specdec_exporter.speculation.evidence import Evidence, StateName
from specdec_exporter.speculation.judging import judge
from specdec_exporter.speculation.policy import load_policy
from specdec_exporter.web.page import PAGE
from support.builders import CAPTURES, FIXTURES
from support.running import listening, printed
from unit.test_verdict import drafted

ENGINE_CAPTURES = FIXTURES / "engines"
LLAMA = ENGINE_CAPTURES / "llamacpp" / "b11434-draft-k4"
TENSORRT = ENGINE_CAPTURES / "tensorrt_llm" / "main-050f80de-driven"
OTHERS = [engine for engine in ENGINES.values() if engine.is_read and engine is not VLLM]


@contextlib.asynccontextmanager
async def serving(*bodies: bytes, path: str = "/metrics", **answers: Any) -> AsyncIterator[str]:
    """A server that gives ``bodies`` one after the other, the last one for ever; JSON at each other path."""
    left = list(bodies)

    async def metrics(_request: web.Request) -> web.StreamResponse:
        return web.Response(body=left.pop(0) if len(left) > 1 else left[0])

    async def answer(request: web.Request) -> web.StreamResponse:
        return web.json_response(answers[request.path.strip("/")])

    app = web.Application()
    app.add_routes([web.get(path, metrics), *(web.get(f"/{name}", answer) for name in answers)])
    async with listening(app) as port:
        yield f"http://127.0.0.1:{port}{path}"


# --- Sentences -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("engine", OTHERS, ids=lambda engine: engine.code)
@pytest.mark.parametrize("state", get_args(StateName))
def test_no_sentence_speaks_of_vllm_its_flags_or_its_log(engine: InferenceEngine, state: StateName) -> None:
    verdict = judge(Evidence(state=state, inference_engine=engine), load_policy()).verdict
    said = " ".join((verdict.headline, *verdict.reasons, verdict.action))
    for words in ("vLLM", " log ", "--speculative-config", "--disable-log-stats"):
        assert words not in said


def test_counters_at_zero_and_no_counters_are_told_in_words_that_hold_for_both() -> None:
    evidence = Evidence(state="speculation_off", inference_engine=ENGINES["llamacpp"])
    verdict = judge(evidence, load_policy()).verdict
    assert verdict.headline == "No draft was counted since the predictor started"
    assert verdict.reasons == ("speculation is off, drafts nothing, or the release does not count drafts",)


def test_the_cost_of_one_iteration_is_told_as_such_and_changes_no_word() -> None:
    without = Evidence(state="drafting", figures=drafted(0.6), inference_engine=ENGINES["tensorrt_llm"])
    dear = replace(without, draft_overhead_ratio=0.8)
    judged, same = judge(dear, load_policy()), judge(without, load_policy())
    (cost,) = (finding for finding in judged.findings if finding.subject == "Draft cost")
    assert cost.level == "PASS"
    assert cost.found.endswith(" in one iteration, which proves nothing alone")
    assert judged.verdict.code == same.verdict.code


def test_the_page_leaves_it_to_the_verdict_how_speculation_is_switched_on() -> None:
    assert b"tart vLLM" not in PAGE


# --- Check and doctor -------------------------------------------------------------------------------------------------


async def test_a_router_that_asks_for_a_model_is_told_how_to_give_it() -> None:
    async def refuse(_request: web.Request) -> web.StreamResponse:
        return web.json_response({"error": {"code": 400, "message": "model name is missing"}}, status=400)

    app = web.Application()
    app.add_routes([web.get("/metrics", refuse)])
    async with listening(app) as port:
        ((examination, _),) = await examined(f"http://127.0.0.1:{port}")
    (finding,) = examination.findings
    assert finding.level == "FAIL"
    assert finding.action is not None
    assert finding.action.endswith("give /metrics?model=NAME&autoload=false.")


async def test_doctor_says_once_that_facts_are_of_vllm() -> None:
    body = (LLAMA / "metrics-2-after-all.txt").read_bytes()
    async with serving(body, props={"build_info": "b11434-5e54abb"}) as url:
        with printed() as out:
            await doctor(Given(url=url, window_seconds=0.05), output="json")
    told = json.loads(out.out)
    said = [(each["level"], each["found"]) for each in told["findings"] if each["subject"] in ("Release", "Facts")]
    assert [level for level, _ in said] == ["PASS", "PASS"]
    assert said[1][1] == "known of vLLM only, and llama.cpp answers"
    assert not [each for each in (*told["findings"], *told["notes"]) if each["code"]]
    assert "Release" not in told["looked_at"]


# --- Recordings ------------------------------------------------------------------------------------------------------


async def recorded(folder: Path, *names: str, **answers: Any) -> Baseline:
    async with serving(*((folder / name).read_bytes() for name in names), **answers) as url:
        return await record(url, duration_seconds=0.1)


async def test_an_engine_without_latencies_is_refused_at_once() -> None:
    async with serving((LLAMA / "metrics-2-after-all.txt").read_bytes()) as url:
        with pytest.raises(BaselineError, match=r"^llama.cpp tells no latencies, so .*: compare results of vllm bench"):
            await record(url, duration_seconds=60)


async def test_an_engine_that_is_named_and_not_read_is_named() -> None:
    body = b"# TYPE nv_inference_count counter\nnv_inference_count 1\n# TYPE nv_inference_exec_count counter\n"
    async with serving(body + b"nv_inference_exec_count 1\n") as url:
        with pytest.raises(BaselineError, match=r"^this is Triton, which cannot be recorded: its metrics tell nothing"):
            await record(url, duration_seconds=60)


async def test_a_recording_keeps_what_the_engine_tells_of_itself_and_of_its_drafts() -> None:
    names = ("metrics-0-fresh.txt", "metrics-3-later.txt")
    found = await recorded(TENSORRT, *names, path="/prometheus/metrics", version={"version": "1.3.0rc24"})
    kept = parse_baseline(to_yaml(found).encode())
    assert (kept.engine, kept.context.runtime, kept.vllm_version) == (
        ENGINES["tensorrt_llm"],
        "TensorRT-LLM 1.3.0rc24",
        None,
    )
    assert (kept.method, kept.draft_model, kept.num_speculative_tokens) == ("eagle3", "/models/tiny-eagle3", 3)


async def test_a_release_without_time_per_output_token_is_recorded_and_says_so() -> None:
    found = await recorded(ENGINE_CAPTURES / "sglang" / "0.5.13-driven", "metrics-1-traffic.txt", "metrics-3-later.txt")
    assert found.requests_finished
    assert "no time per output token was recorded" in remarks(found)


async def test_a_log_of_vllm_is_not_taken_for_that_of_another_engine() -> None:
    log = str(CAPTURES / "0.25.1-draft_model-k3" / "server.log")
    async with serving((TENSORRT / "metrics-3-later.txt").read_bytes()) as url:
        with pytest.raises(BaselineError, match=r"the log comes from vLLM, and TensorRT-LLM answers"):
            await record(url, duration_seconds=60, log_paths=[log])


async def test_a_recording_of_another_engine_does_not_fit_and_a_comparison_tells() -> None:
    snapshot = parse_exposition((TENSORRT / "metrics-3-later.txt").read_bytes())
    found = await recorded(TENSORRT, "metrics-0-fresh.txt", "metrics-3-later.txt")
    assert fit(found, snapshot, None).refusal is None
    of_vllm = replace(found, inference_engine=None)  # as in files of before
    assert fit(of_vllm, snapshot, None).refusal == "it is of vLLM, the predictor runs TensorRT-LLM"
    flags = {flag.code: flag.message for flag in compare(of_vllm, found, load_policy()).flags}
    assert "inference engine: vLLM in the baseline, TensorRT-LLM in the candidate" in flags["settings_differ"]


async def test_a_file_of_an_engine_that_is_not_known_is_refused() -> None:
    found = await recorded(TENSORRT, "metrics-0-fresh.txt", "metrics-3-later.txt")
    text = to_yaml(found).replace('inference_engine: "tensorrt_llm"', 'inference_engine: "mystery"')
    with pytest.raises(BaselineError, match=r"inference_engine: expected null, or one of .*vllm, found 'mystery'"):
        parse_baseline(text.encode())
