"""Whose line it is: prefixes, headers and JSON around vLLM's messages, and lines that only look like vLLM's."""

from __future__ import annotations

import json
from typing import Any

import pytest

from specdec_exporter.predictor.log.events import (
    EngineConfig,
    EngineStats,
    SpecDecoding,
)
from support.loglines import (
    CONFIG,
    HEADER,
    SPEC,
    SPEC_0_8_3,
    SPEC_0_9,
    SPEC_V0,
    STATS,
    malformed,
    parse,
    spec,
    without_place,
)

# --- what stands around a message ---


@pytest.mark.parametrize(
    ("prefix", "process", "pid", "timestamp"),
    [
        ("INFO 11-20 21:44:52 [metrics.py:96] ", None, None, "11-20 21:44:52"),
        ("[pod-7] (APIServer pid=1) INFO 11-20 21:44:52 [m.py:1] ", "APIServer", 1, "11-20 21:44:52"),
        ("pod7:(ApiServer_0 pid=1) INFO 11-20 21:44:52 [m.py:1] ", "ApiServer_0", 1, "11-20 21:44:52"),
        ("(Actor pid=9, ip=10.0.0.1) (EngineCore_DP0 pid=1) INFO 11-20 21:44:52 [m.py:1] ", "EngineCore_DP0", 1,
         "11-20 21:44:52"),
        ("Nov 20 21:44:52 host vllm[123]: (APIServer pid=1) INFO 11-20 21:44:52 [m.py:1] ", "APIServer", 1,
         "11-20 21:44:52"),
        ("Nov 20 21:44:52 INFO 11-20 21:44:52 [m.py:1] ", None, None, "11-20 21:44:52"),
        ("Fri 2026-11-20 21:44:52 UTC host vllm[123]: INFO 11-20 21:44:52 [m.py:1] ", None, None, "11-20 21:44:52"),
        (f"(ServeReplica:a:{'long-name-' * 8} pid=1, ip=10.0.0.1) INFO 11-20 21:44:52 [m.py:1] ",
         "ServeReplica:a:" + "long-name-" * 8, 1, "11-20 21:44:52"),
        ("vllm-1  | (APIServer pid=1) INFO 11-20 21:44:52 [m.py:1] ", "APIServer", 1, "11-20 21:44:52"),
        ("\x1b[1;36m(APIServer pid=1)\x1b[0;0m INFO 11-20 21:44:52 [m.py:1] ", "APIServer", 1, "11-20 21:44:52"),
        ("[0;36m(APIServer pid=1)[0;0m [32mINFO[0m [90m11-20 21:44:52[0m [90m[m.py:1][0m ", "APIServer", 1,
         "11-20 21:44:52"),
        (r"\u001b[36m(APIServer pid=1)\u001b[0m INFO 11-20 21:44:52 [m.py:1] ", "APIServer", 1, "11-20 21:44:52"),
        ("Loading safetensors: 50% Completed | 1/2 [00:01<?, 1it/s]\r(APIServer pid=1) INFO 11-20 21:44:52 [m.py:1] ",
         "APIServer", 1, "11-20 21:44:52"),
        ("\r  0%|    | 0/2 [00:00<?, ?it/s]\r 50%|█ | 1/2 [00:00<00:00, 10it/s](A pid=1) INFO 11-20 21:44:52 [m.py:1] ",
         "A", 1, "11-20 21:44:52"),
        ("\0\0\0(APIServer pid=1) INFO 11-20 21:44:52 [m.py:1] ", "APIServer", 1, "11-20 21:44:52"),
        ("", None, None, None),
        ("(APIServer pid=1) ", "APIServer", 1, None),
        ("2026-11-20T21:44:52Z ", None, None, "2026-11-20T21:44:52Z"),
        ("2026-11-20 21:44:52,123 - vllm.v1.metrics.loggers - INFO - ", None, None, "2026-11-20 21:44:52,123"),
        ("INFO:vllm.v1.metrics.loggers:", None, None, None),
        ("[2026-11-20 21:44:52,123] [INFO] [vllm.v1.metrics.loggers] ", None, None, "2026-11-20 21:44:52,123"),
        ("[2026-11-20 21:44:52] INFO vllm.v1.metrics.loggers: ", None, None, "2026-11-20 21:44:52"),
        ("[pod/x-1/vllm] [2026-11-20 21:44:52] INFO ", None, None, "2026-11-20 21:44:52"),
        ("11/20/2026 09:44:52 PM - INFO - vllm.v1.metrics.logging - ", None, None, "11/20/2026 09:44:52 PM"),
        ("2026-11-20 21:44:52 [worker-1] INFO vllm.v1.metrics.loggers: ", None, None, "2026-11-20 21:44:52"),
        ("[pod/x-1/vllm] ", None, None, None),
        ("2026-11-20T21:44:52.1+00:00 host vllm[1]: #033[1;36m(APIServer pid=4)#033[0;0m INFO 11-20 21:44:52 [m.py:1] ",
         "APIServer", 4, "11-20 21:44:52"),
        ("2026-11-20T21:44:52+0000 host-1.example vllm@2.service[1]: ", None, None, "2026-11-20T21:44:52+0000"),
        ("prod INFO 11-20 21:44:52 [m.py:1] ", None, None, "11-20 21:44:52"),
        ("node-1 | INFO 11-20 21:44:52 [m.py:1] ", None, None, "11-20 21:44:52"),
        ("prod east (APIServer pid=1) INFO 11-20 21:44:52 [m.py:1] ", "APIServer", 1, "11-20 21:44:52"),
        ("[1,0]<stdout>:INFO 11-20 21:44:52 [m.py:1] ", None, None, "11-20 21:44:52"),
    ],
)  # fmt: skip
def test_a_line_is_read_behind_any_prefix(
    prefix: str, process: str | None, pid: int | None, timestamp: str | None
) -> None:
    for ending in ("", "\r", " \r\n"):
        event = spec(prefix + SPEC + ending)
        assert (event.process, event.pid, event.timestamp) == (process, pid, timestamp)
        assert without_place(event) == without_place(parse(SPEC))


@pytest.mark.parametrize(
    "fields",
    [
        {"asctime": "2026-11-20 21:44:20,874", "name": "vllm.v1.metrics.loggers", "process": 7, "message": SPEC},
        {"ts": "2026-11-20 21:44:20,874", "logger": "vllm.v1", "pid": "7", "Level": "INFO", "msg": SPEC},
        {"event": SPEC, "timestamp": "2026-11-20 21:44:20,874", "pid": 7},
        {"time": "2026-11-20 21:44:20,874", "pid": 7, "textPayload": f"INFO 11-20 21:44:52 [m.py:1] {SPEC}"},
        {"@timestamp": "2026-11-20 21:44:20,874", "pid": 7, "prompt": "x", "line": SPEC},
        {
            "time": "2026-11-20 21:44:20,874",
            "stream": "stdout",
            "log": json.dumps({"process": 7, "message": SPEC}) + "\n",
        },
    ],
)
def test_a_json_object_is_read_by_its_message(fields: dict[str, Any]) -> None:
    for prefix in ("", "vllm-1  | "):
        event = spec(prefix + json.dumps(fields))
        assert without_place(event) == without_place(parse(SPEC))
        assert event.timestamp in ("2026-11-20 21:44:20,874", "11-20 21:44:52")


@pytest.mark.parametrize(
    "fields",
    [
        {"message": f"a user said: {SPEC}", "name": "vllm.x"},
        {"message": SPEC, "name": "myapp.chat"},
        {"message": SPEC, "name": "vllm.entrypoints.logger"},
        {"prompt": SPEC},
        {"input": SPEC, "output": f"{HEADER}{SPEC}", "content": SPEC},
        {"message": [SPEC]},
        [SPEC],
    ],
)
def test_a_json_object_is_not_read_by_what_users_wrote(fields: object) -> None:
    assert parse(json.dumps(fields)) is None


def test_an_object_of_json_that_is_cut_inside_the_message_is_read_as_far_as_it_goes() -> None:
    malformed(json.dumps({"name": "vllm.v1", "message": SPEC})[:120])
    config = json.dumps({"name": "vllm.v1.engine.core", "message": CONFIG})
    event = parse(config[:-20])
    assert isinstance(event, EngineConfig)
    assert event.method == "draft_model"


# --- lines that are not ours ---


@pytest.mark.parametrize("message", [SPEC, SPEC_0_9, SPEC_0_8_3, SPEC_V0, STATS, CONFIG])
@pytest.mark.parametrize(
    "quoting",
    [
        'INFO:     10.0.0.1:5 - "POST /v1/{} HTTP/1.1" 200 OK',
        "INFO 11-20 21:44:52 [serving.py:43] the user sent {}",
        "INFO 11-20 21:44:52 [serving.py:43] INFO 11-20 21:44:52 [metrics.py:1] {}",
        "INFO 11-20 21:44:52 [logger.py:43] Received request x: prompt: 'INFO 11-20 21:44:52 [m.py:1] {}'",
        "'INFO 11-20 21:44:52 [metrics.py:1] {}",
        "{{ INFO 11-20 21:44:52 [metrics.py:1] {}",
        "please explain this log line: INFO 11-20 21:44:52 [metrics.py:1] {}",
        'user "x"\r{}',
        "I saw {}",
        "> {}",
        "user: INFO 11-20 21:44:52 [metrics.py:120] {}",
        "Assistant: (APIServer pid=7) INFO 11-20 21:44:52 [metrics.py:120] {}",
        "2026-11-20T21:44:52Z > INFO 11-20 21:44:52 [metrics.py:120] {}",
        "(EngineCore pid=7) I saw INFO 11-20 21:44:52 [metrics.py:120] {}",
        "\u201cINFO 11-20 21:44:52 [metrics.py:120] {}",
    ],
)
def test_a_line_that_quotes_ours_is_not_ours(quoting: str, message: str) -> None:
    assert not isinstance(parse(quoting.format(message)), SpecDecoding | EngineStats | EngineConfig)


LMDEPLOY = (
    "[2026-11-20 21:44:52 DP0] SpecDecoding metrics: Draft acceptance rate: 60.00%, Mean acceptance length: 2.80, "
    "Accepted: 9 tokens, Drafted: 15 tokens, Per-position acceptance rate: 0.800, 0.600, 0.400"
)


@pytest.mark.parametrize(
    "text",
    [
        "INFO 11-20 22:09:18 [metrics.py:160] DiffusionDecoding metrics: Committed token throughput: 1.20 tokens/s",
        "INFO 11-20 21:44:42 spec_decode_worker.py:1062] SpecDecodeWorker stage times: scoring_time_ms=1",
        "[2026-11-20 21:44:52] Decode batch, #running-req: 1, #token: 10, accept len: 2.81, accept rate: 0.56",
        "slot print_timing: id 0 | task 0 | draft acceptance rate = 0.57576 (  171 accepted /   297 generated)",
        LMDEPLOY,
        "[2026-11-20 21:44:52] " + SPEC,
        "[2026-11-20 21:44:52 DP0] INFO " + SPEC,
        "[2026-11-20 21:44:52] INFO sglang.srt.metrics: " + SPEC,
        "2026-11-20 21:44:52 [sglang] INFO " + SPEC,
        "2026-11-20 21:44:52 INFO [sglang/srt] " + SPEC,
        "INFO 11-20 21:44:52 [metrics.py/120] " + SPEC,
        "2026-11-20T21:44:52.1Z INFO text_generation_router: " + SPEC,
        "2026-11-20T21:44:52.1Z the user: " + SPEC,
        "2026-11-20T21:44:52.1Z INFO sglang[1]: " + SPEC,
        "2026-11-20 21:44:52,123 - lmdeploy - INFO - loggers.py:100 - " + SPEC,
        "INFO:     user | " + SPEC,
        "Avg prompt throughput",
        "",
        "{",
        "\x1b[0m",
    ],
)
def test_other_servers_and_other_lines_are_not_ours(text: str) -> None:
    assert parse(text) is None
