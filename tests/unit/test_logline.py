"""One log line -> event: every wording of every release, and everything that only looks like one."""

from __future__ import annotations

import json
import math
from decimal import Decimal
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from builders import CAPTURES, FIXTURES
from specdec_exporter.predictor.events import (
    EngineConfig,
    EngineStats,
    Event,
    Malformed,
    PredictorWarning,
    RequestParams,
    SpecDecoding,
)
from specdec_exporter.predictor.fastline import read_engine_stats, read_spec_decoding
from specdec_exporter.predictor.logline import parse_line

HEADER = "(APIServer pid=7) INFO 11-20 21:44:52 [metrics.py:120] "
SPEC = (
    "SpecDecoding metrics: Mean acceptance length: 2.80, Accepted throughput: 0.90 tokens/s, "
    "Drafted throughput: 1.50 tokens/s, Accepted: 9 tokens, Drafted: 15 tokens, "
    "Per-position acceptance rate: 0.800, 0.600, 0.400, Avg Draft acceptance rate: 60.0%"
)
SPEC_0_9 = (
    "SpecDecoding metrics: Draft acceptance rate: 60.0%, Mean acceptance length: 2.80, Accepted: 9 tokens, "
    "Drafted: 15 tokens, Per-position acceptance rate: 0.800, 0.600, 0.400"
)
SPEC_0_8_3 = "SpecDecoding metrics: Draft acceptance rate: 60.0%, Accepted: 9 tokens, Drafted: 15 tokens"
SPEC_V0 = (
    "Speculative metrics: Draft acceptance rate: 0.600, System efficiency: 0.700, Number of speculative tokens: 3, "
    "Number of accepted tokens: 9, Number of draft tokens: 15, Number of emitted tokens: 14."
)
STATS = (
    "Engine 000: Avg prompt throughput: 2.7 tokens/s, Avg generation throughput: 4.7 tokens/s, Running: 2 reqs, "
    "Waiting: 1 reqs, GPU KV cache usage: 25.1%, Prefix cache hit rate: 12.5%"
)
CONFIG = (
    "Initializing a V1 LLM engine (v0.32.0) with config: model='/models/target', speculative_config="
    "SpeculativeConfig(method='draft_model', model='/models/draft', num_spec_tokens=3), tokenizer='/models/target', "
    "served_model_name=tiny, enable_prefix_caching=True"
)
PARAMS = "SamplingParams(n=1, temperature=0.7, top_p=0.9, top_k=40, min_p=0.05, seed=None, stop=[], max_tokens=40)"

Parsed = Event | Malformed | None


def parse(text: str) -> Parsed:
    return parse_line(text.encode())


def spec(text: str) -> SpecDecoding:
    event = parse(text)
    assert isinstance(event, SpecDecoding), event
    return event


def malformed(text: str) -> Malformed:
    said = parse(text)
    assert isinstance(said, Malformed), said
    return said


def without_place(said: Parsed) -> Parsed:
    if said is None or isinstance(said, Malformed):
        return said
    return msgspec.structs.replace(said, timestamp=None, process=None, pid=None)


# --- what real releases printed ---

CASES = [json.loads(line) for line in (FIXTURES / "logcases.jsonl").read_text().splitlines()]
KINDS: dict[str, type | None] = {
    "spec_decoding": SpecDecoding,
    "speculative_v0": SpecDecoding,
    "engine_stats": EngineStats,
    "spec_config": EngineConfig,
    "spec_warning": PredictorWarning,
    "request": RequestParams,
    "diffusion": None,
    "ignore": None,
}
# the fixture's word for a field of ours, and what ours is multiplied by to give it
FIELDS = {
    "accepted": ("accepted_tokens", 1),
    "drafted": ("draft_tokens", 1),
    "mean_acceptance_length": ("mean_acceptance_length", 1),
    "accepted_throughput": ("accepted_throughput", 1),
    "drafted_throughput": ("drafted_throughput", 1),
    "prompt_tps": ("prompt_throughput", 1),
    "gen_tps": ("generation_throughput", 1),
    "running": ("running", 1),
    "waiting": ("waiting", 1),
    "kv_pct": ("kv_cache_usage_ratio", 100),
    "prefix_hit_pct": ("prefix_cache_hit_ratio", 100),
    "num_spec_tokens": ("num_speculative_tokens", 1),
}
SAME_FIELDS = {
    "process": "process",
    "pid": "pid",
    "timestamp": "timestamp",
    "method": "method",
    "version": "vllm_version",
}


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case['version']}-{case['scenario']}")
def test_a_line_of_a_real_release_gives_what_it_says(case: dict[str, Any]) -> None:
    expected = case["expect"]
    event = parse(case["line"])
    kind = KINDS[expected["kind"]]
    if kind is None:
        assert event is None
        return
    assert type(event) is kind
    for theirs, (ours, scale) in FIELDS.items():
        if theirs in expected:
            assert getattr(event, ours) == pytest.approx(expected[theirs] / scale, abs=1e-12), theirs
    for theirs, ours in SAME_FIELDS.items():
        if theirs in expected and not (expected.get("json") and theirs == "timestamp"):
            assert getattr(event, ours) == expected[theirs], theirs
    if isinstance(event, EngineStats) and "engine" in expected:
        assert event.engine == expected["engine"]
    if isinstance(event, EngineConfig):
        assert event.draft_model == expected["model"]
        assert event.speculative is True
    if isinstance(event, SpecDecoding):
        check_spec_decoding(event, expected)


def check_spec_decoding(event: SpecDecoding, expected: dict[str, Any]) -> None:
    assert event.cumulative is (expected["kind"] == "speculative_v0")
    assert event.per_position == (tuple(expected["per_position"]) if "per_position" in expected else None)
    if "bonus_included" in expected and event.mean_acceptance_length is not None:
        assert event.bonus_included is expected["bonus_included"]
    truth = expected.get("truth", {})
    for name in ("accepted", "drafted"):
        if truth.get(name) is not None:
            assert getattr(event, {"accepted": "accepted_tokens", "drafted": "draft_tokens"}[name]) == truth[name]
    if expected.get("nan"):
        assert event.acceptance_ratio is None
    elif truth.get("acceptance_rate") is not None:
        assert event.acceptance_ratio == pytest.approx(truth["acceptance_rate"])


def test_a_whole_real_log_holds_no_line_that_is_ours_but_unreadable() -> None:
    for log in CAPTURES.glob("*/server.log"):
        for line in log.read_bytes().split(b"\n"):
            assert not isinstance(parse_line(line), Malformed), line


# --- what is served as JSON ---


WINDOW_KEYS = {"kind", "accepted_tokens", "draft_tokens", "acceptance_ratio", "cumulative"}


@pytest.mark.parametrize(
    ("text", "keys"),
    [
        (
            HEADER + SPEC,
            WINDOW_KEYS
            | {"timestamp", "process", "pid", "mean_acceptance_length", "bonus_included", "accepted_throughput"}
            | {"drafted_throughput", "per_position", "num_speculative_tokens"},
        ),
        (SPEC_0_8_3, WINDOW_KEYS),
        (SPEC_V0, WINDOW_KEYS | {"num_speculative_tokens", "emitted_tokens", "system_efficiency"}),
        (
            STATS,
            {"kind", "engine", "prompt_throughput", "generation_throughput", "running", "waiting"}
            | {"kv_cache_usage_ratio", "prefix_cache_hit_ratio"},
        ),
        (
            CONFIG,
            {"kind", "speculative", "vllm_version", "engine_generation", "model", "served_model_name", "method"}
            | {"draft_model", "num_speculative_tokens"},
        ),
    ],
)
def test_json_has_a_key_for_what_the_line_carries_and_no_other(text: str, keys: set[str]) -> None:
    assert set(msgspec.json.decode(msgspec.json.encode(parse(text)))) == keys


def test_json_says_null_for_a_ratio_of_nothing() -> None:
    text = SPEC_0_8_3.replace("60.0%", "nan%").replace("9 tokens", "0 tokens").replace("15 tokens", "0 tokens")
    assert b'"acceptance_ratio":null' in msgspec.json.encode(spec(text))
    assert b'"accepted_tokens":0' in msgspec.json.encode(spec(text))


# --- wordings ---


@pytest.mark.parametrize(("length", "included"), [("1.80", False), ("2.80", True)])
def test_the_bonus_token_is_told_from_the_list_of_positions(length: str, included: object) -> None:
    assert spec(SPEC_0_9.replace("2.80", length)).bonus_included is included


def test_the_rust_frontend_may_print_no_positions_and_its_own_nan() -> None:
    text = SPEC.replace("Per-position acceptance rate: 0.800, 0.600, 0.400, ", "")
    event = spec(text)
    assert (event.per_position, event.num_speculative_tokens, event.bonus_included) == (None, None, True)
    text = text.replace("9 tokens", "0 tokens").replace("15 tokens", "0 tokens").replace("60.0%", "NaN%")
    assert spec(text).acceptance_ratio is None


def test_the_rust_frontends_curve_need_not_agree_with_its_counters() -> None:
    text = SPEC.replace("0.800, 0.600, 0.400", "0.810, 0.630, 0.410")
    malformed(HEADER + text)
    assert spec("(RustFrontend pid=1) INFO 11-20 21:54:07 [log_stats.rs:302] " + text).accepted_tokens == 9


def test_later_releases_may_add_and_reorder_fields() -> None:
    event = spec(HEADER + SPEC + ", Draft steps: 5, Draft time: 1.25 ms")
    assert without_place(event) == without_place(parse(SPEC))
    name, _, fields = SPEC.partition(": ")
    *others, first, second, third, rate = fields.split(", ")
    reordered = [rate, f"{first}, {second}, {third}", *reversed(others)]
    assert without_place(parse(f"{name}: {', '.join(reordered)}")) == without_place(event)


def test_engine_statistics_of_all_wordings() -> None:
    v0 = parse(
        "INFO 11-20 22:04:46 metrics.py:488] Avg prompt throughput: 2.7 tokens/s, "
        "Avg generation throughput: 4.7 tokens/s, Running: 2 reqs, Swapped: 3 reqs, Pending: 4 reqs, "
        "GPU KV cache usage: 25.0%, CPU KV cache usage: 1.0%."
    )
    assert isinstance(v0, EngineStats)
    assert (v0.engine, v0.waiting, v0.kv_cache_usage_ratio, v0.prefix_cache_hit_ratio) == (None, 4, 0.25, None)
    rust = parse(
        "Avg prompt tput: 3.2 toks/s, Avg generation tput: 43.3 toks/s, Reqs Running: 4, Waiting: 2, Deferred: 1 reqs, "
        "Preemptions: 3, GPU KV cache used: 0.1%, Prefix cache hit rate: 0.0%, External prefix cache hit rate: 5.0%"
    )
    assert isinstance(rust, EngineStats)
    assert (rust.prompt_throughput, rust.running, rust.waiting, rust.kv_cache_usage_ratio) == (3.2, 4, 2, 0.001)
    newest = parse(
        HEADER
        + STATS.replace("Engine 000", "2 Engines Aggregated").replace(
            ", GPU", ", Deferred: 1 reqs, KV fetch: 3.5 GB/s (2 reqs), Corrupted: 0 reqs, XPU"
        )
        + ", MM cache hit rate: 50.0%"
    )
    assert isinstance(newest, EngineStats)
    assert (newest.engine, newest.kv_cache_usage_ratio, newest.prefix_cache_hit_ratio) == ("aggregated", 0.251, 0.125)


@pytest.mark.parametrize(
    ("printed", "method", "draft_model", "tokens"),
    [
        ("SpeculativeConfig(draft_model='[ngram]', num_spec_tokens=5)", "ngram", None, 5),
        ("SpeculativeConfig(draft_model='org/draft', num_spec_tokens=5)", None, "org/draft", 5),
        ("SpeculativeConfig(method='ngram', model=None, num_spec_tokens=5)", "ngram", None, 5),
        ("SpeculativeConfig(method='mtp', model=\"/it's (a), [b\", num_spec_tokens=2)", "mtp", "/it's (a), [b", 2),
        (r"SpeculativeConfig(method='eagle3', model='/a\'b, num_spec_tokens=9', num_spec_tokens=2)", "eagle3",
         "/a'b, num_spec_tokens=9", 2),
        ("SpeculativeConfig(method='mtp', hf={'a': [1, (2, 3)]}, model='m', num_spec_tokens=2)", "mtp", "m", 2),
    ],
)  # fmt: skip
def test_an_engines_configuration_in_both_spellings(
    printed: str, method: str | None, draft_model: str | None, tokens: int
) -> None:
    event = parse(
        "INFO 11-20 21:44:42 llm_engine.py:234] Initializing an LLM engine (v0.6.6.post1) with config: "
        f"model='speculative_config=None, x', speculative_config={printed}, tokenizer='t', "
        "served_model_name=['a', 'b'], x=1"
    )
    assert isinstance(event, EngineConfig)
    assert (event.speculative, event.method, event.draft_model, event.num_speculative_tokens) == (
        True, method, draft_model, tokens,
    )  # fmt: skip
    assert (event.model, event.served_model_name, event.engine_generation, event.vllm_version) == (
        "speculative_config=None, x", "a", "v0", "0.6.6.post1",
    )  # fmt: skip


def test_a_configuration_without_header_is_read_past_its_braces() -> None:
    event = parse(CONFIG.replace("tokenizer=", "compilation_config={'level': 0}, tokenizer="))
    assert isinstance(event, EngineConfig)
    assert (event.method, event.served_model_name) == ("draft_model", "tiny")


def test_an_engine_without_speculation_says_so() -> None:
    event = parse(CONFIG[: CONFIG.index("SpeculativeConfig")] + "None, tokenizer='t'")
    assert isinstance(event, EngineConfig)
    assert (event.speculative, event.method, event.engine_generation) == (False, None, "v1")


def test_a_configuration_that_breaks_off_never_gives_half_a_value() -> None:
    full = parse(CONFIG)
    for end in range(len("Initializing a V1 LLM engine (v0.32.0) with config: "), len(CONFIG)):
        said = parse(CONFIG[:end])
        if isinstance(said, EngineConfig):
            assert said.served_model_name in (None, "tiny")
            assert msgspec.structs.replace(said, served_model_name="tiny") == full
        else:
            assert isinstance(said, Malformed)
            assert said.incomplete


@pytest.mark.parametrize(
    ("message", "code"),
    [
        ("Async scheduling not supported with ngram-based speculative decoding and will be disabled.",
         "async_scheduling_disabled"),
        ("Async scheduling is not yet supported with speculative decoding and will be disabled.",
         "async_scheduling_disabled"),
        ("Async scheduling is disabled because the V1 model runner does not support it with ngram.",
         "async_scheduling_disabled"),
        ("min_p, logit_bias, and min_tokens parameters won't work with speculative decoding.",
         "sampling_params_unsupported"),
        ("min_p and logit_bias parameters won't work with speculative decoding.", "sampling_params_unsupported"),
        ("Enabling num_speculative_tokens > 1 will run multiple times of forward on same MTP", "mtp_layer_reused"),
        ("Defaulted num_speculative_tokens to 32 for suffix decoding.", "suffix_tokens_defaulted"),
        ("EAGLE trailing prefix-cache block dropping is disabled. This is experimental", "prefix_block_kept"),
        ("method `deepseek_mtp` is deprecated and replaced with mtp.", "method_renamed"),
        ("AsyncLLM created with api_server_count more than 1; disabling stats logging to avoid incomplete stats.",
         "stats_logging_disabled"),
        ("Triton kernel JIT compilation during inference: _topk. This causes a latency spike", "jit_compilation"),
    ],
)  # fmt: skip
def test_a_known_warning_gives_its_code(message: str, code: str) -> None:
    event = parse(f"(APIServer pid=7) WARNING 11-20 21:44:52 [x.py:1] {message}")
    assert isinstance(event, PredictorWarning)
    assert (event.warning, event.message, event.pid) == (code, message, 7)


def test_the_compilation_monitor_only_warns_at_warning_level() -> None:
    assert parse("INFO 11-20 21:44:52 [jit_monitor.py:54] Kernel JIT monitor activated") is None
    event = parse("WARNING 11-20 21:44:52 [jit_monitor.py:54] In words of a later release")
    assert isinstance(event, PredictorWarning)
    assert event.warning == "jit_compilation"


def test_an_unknown_warning_is_none_of_ours() -> None:
    assert parse("WARNING 11-20 21:44:52 [speculative.py:1] Something new about speculative decoding") is None


# --- requests ---


@pytest.mark.parametrize(
    "prompt",
    [
        "",
        "prompt: 'hello', ",
        "prompt: None, ",
        r"prompt: 'it\'s, params: SamplingParams(temperature=9.0)', ",
        f'prompt: "\'{SPEC}", ',
        "prompt: [1, params: SamplingParams(temperature=9.0), 2], ",
    ],
)
def test_sampling_parameters_are_read_past_any_prompt(prompt: str) -> None:
    event = parse(
        f"INFO 11-20 22:49:07 [logger.py:43] Received request cmpl-1: {prompt}params: {PARAMS}, lora_request: None."
    )
    assert isinstance(event, RequestParams)
    assert (event.request_id, event.temperature, event.top_p, event.top_k, event.min_p, event.max_tokens, event.n) == (
        "cmpl-1", 0.7, 0.9, 40, 0.05, 40, 1,
    )  # fmt: skip


def test_other_requests_have_no_sampling_parameters() -> None:
    assert (
        parse(HEADER + "Received request cmpl-1: params: PoolingParams(dimensions=None), lora_request: None.") is None
    )
    assert malformed(HEADER + "Received request cmpl-1: params: SamplingParams(n=1, temper").incomplete


# --- what stands around a message ---


@pytest.mark.parametrize(
    ("prefix", "process", "pid", "timestamp"),
    [
        ("INFO 11-20 21:44:52 [metrics.py:96] ", None, None, "11-20 21:44:52"),
        ("INFO 11-20 21:44:52 metrics.py:489] ", None, None, "11-20 21:44:52"),
        ("DEBUG 11-20 21:44:52 [v1/spec_decode/metrics.py:96] ", None, None, "11-20 21:44:52"),
        ("[pod-7] (APIServer pid=1) INFO 11-20 21:44:52 [m.py:1] ", "APIServer", 1, "11-20 21:44:52"),
        ("(APIServer pid=1) [pod-7] INFO 11-20 21:44:52 [m.py:1] ", "APIServer", 1, "11-20 21:44:52"),
        ("pod7:(ApiServer_0 pid=1) INFO 11-20 21:44:52 [m.py:1] ", "ApiServer_0", 1, "11-20 21:44:52"),
        ("(Actor pid=9, ip=10.0.0.1) (EngineCore_DP0 pid=1) INFO 11-20 21:44:52 [m.py:1] ", "EngineCore_DP0", 1,
         "11-20 21:44:52"),
        ("Nov 20 21:44:52 host vllm[123]: (APIServer pid=1) INFO 11-20 21:44:52 [m.py:1] ", "APIServer", 1,
         "11-20 21:44:52"),
        ("2026-11-20T21:44:52.123456789Z (APIServer pid=1) INFO 11-20 21:44:52 [m.py:1] ", "APIServer", 1,
         "11-20 21:44:52"),
        ("[pod/x-1/kserve-container] INFO 11-20 21:44:52 [m.py:1] ", None, None, "11-20 21:44:52"),
        ("vllm-1  | (APIServer pid=1) INFO 11-20 21:44:52 [m.py:1] ", "APIServer", 1, "11-20 21:44:52"),
        ("\x1b[1;36m(APIServer pid=1)\x1b[0;0m INFO 11-20 21:44:52 [m.py:1] ", "APIServer", 1, "11-20 21:44:52"),
        ("[0;36m(APIServer pid=1)[0;0m [32mINFO[0m [90m11-20 21:44:52[0m [90m[m.py:1][0m ", "APIServer", 1,
         "11-20 21:44:52"),
        ("^[[36m(APIServer pid=1)^[[0m INFO 11-20 21:44:52 [m.py:1] ", "APIServer", 1, "11-20 21:44:52"),
        (r"\u001b[36m(APIServer pid=1)\u001b[0m INFO 11-20 21:44:52 [m.py:1] ", "APIServer", 1, "11-20 21:44:52"),
        ("Loading safetensors: 50% Completed | 1/2 [00:01<?, 1it/s]\r(APIServer pid=1) INFO 11-20 21:44:52 [m.py:1] ",
         "APIServer", 1, "11-20 21:44:52"),
        ("\0\0\0(APIServer pid=1) INFO 11-20 21:44:52 [m.py:1] ", "APIServer", 1, "11-20 21:44:52"),
        ("", None, None, None),
        ("(APIServer pid=1) ", "APIServer", 1, None),
        ("2026-11-20T21:44:52Z ", None, None, "2026-11-20T21:44:52Z"),
        ("2026-11-20 21:44:52,123 - vllm.v1.metrics.loggers - INFO - ", None, None, "2026-11-20 21:44:52,123"),
        ("INFO:vllm.v1.metrics.loggers:", None, None, None),
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
        {"message": "chat", "text": SPEC},
        {"prompt": SPEC},
        {"input": SPEC, "output": f"{HEADER}{SPEC}", "content": SPEC},
        {"fields": {"message": SPEC}},
        {"message": [SPEC]},
        [SPEC],
    ],
)
def test_a_json_object_is_not_read_by_what_users_wrote(fields: object) -> None:
    assert parse(json.dumps(fields)) is None


def test_a_broken_json_object_of_ours_may_go_on() -> None:
    whole = json.dumps({"name": "vllm.v1", "message": SPEC, "x": 1})
    assert malformed(whole[:120]).incomplete
    assert malformed(whole[:-1]).incomplete
    assert not malformed(whole.replace('"x": 1', '"x" 1')).incomplete
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
        "INFO 11-20 21:44:52 [logger.py:43] {}",
        "INFO 11-20 21:44:52 [v1/entrypoints/request_logger.py:43] {}",
        "INFO 11-20 21:44:52 [serving.py:43] the user sent {}",
        "INFO 11-20 21:44:52 [serving.py:43] INFO 11-20 21:44:52 [metrics.py:1] {}",
        "INFO 11-20 21:44:52 [logger.py:43] Received request x: prompt: 'INFO 11-20 21:44:52 [m.py:1] {}'",
        "'INFO 11-20 21:44:52 [metrics.py:1] {}",
        "`INFO 11-20 21:44:52 [metrics.py:1] {}`",
        "{{ INFO 11-20 21:44:52 [metrics.py:1] {}",
        "please explain this log line: INFO 11-20 21:44:52 [metrics.py:1] {}",
        "INFO:     said INFO 11-20 21:44:52 [metrics.py:1] {}",
        'user "x"\r{}',
        "I saw {}",
        "> {}",
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
        HEADER + "SpecDecoding metrics: acceptance=0.6 accepted=9",
        HEADER + "SpecDecoding metrics: Acceptance: 0.6, Window: 10",
        "Avg prompt throughput",
        "",
        "{",
        "{}",
        "\x1b[0m",
    ],
)
def test_other_servers_and_other_lines_are_not_ours(text: str) -> None:
    assert parse(text) is None


# --- lines of ours that cannot be true, or break off ---


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("Accepted: 9 ", "Accepted: 16 "),  # more than drafted
        ("Accepted: 9 ", "Accepted: 8 "),  # the rate disagrees
        ("60.0%", "60.1%"),
        ("60.0%", "nan%"),
        ("0.600, 0.400", "0.400, 0.600"),  # rising
        ("0.800, 0.600, 0.400", "1.100, 0.400, 0.300"),
        ("0.800, 0.600, 0.400", "0.800, 0.600"),  # the length disagrees
        ("length: 2.80", "length: 2.70"),
        ("Drafted: 15 tokens", "Drafted: 15 tokens, Drafted: 15 tokens"),
        ("Drafted: 15 tokens", "Drafted: 15(EngineCore pid=2) INFO 11-20 21:44:52 [core.py:1] up tokens"),
        ("Accepted: 9 tokens", "Accepted: 9 reqs"),
        ("60.0%", '60.0%" 200 OK'),
    ],
)
def test_a_line_that_contradicts_itself_is_an_error(old: str, new: str) -> None:
    assert old in SPEC
    assert not malformed(HEADER + SPEC.replace(old, new)).incomplete


@pytest.mark.parametrize("message", [SPEC, SPEC_0_9, SPEC_0_8_3, SPEC_V0, STATS])
def test_a_line_cut_short_gives_its_own_numbers_or_may_go_on(message: str) -> None:
    whole = parse(HEADER + message)
    for end in range(len("SpecDecoding metrics: "), len(message)):
        said = parse(HEADER + message[:end])
        if isinstance(said, EngineStats):
            assert message[:end].endswith("GPU KV cache usage: 25.1%")
        elif not isinstance(said, Malformed):
            assert message is STATS
            assert said is None  # cut before its first field ends
        else:
            assert said.incomplete, message[:end]
    assert isinstance(whole, SpecDecoding | EngineStats)


@pytest.mark.parametrize("noise", ["'", '"', "\\'", "'\"", "([{", "a=1,", "\\", "'\\"])
def test_reading_time_grows_with_the_line_not_with_its_square(noise: str) -> None:
    # A line of 1 MiB would take hours if each quote looked for its partner to the end.
    malformed(f"Received request x: prompt: params: SamplingParams(n=1, stop='{noise * (1_000_000 // len(noise))}")
    malformed(f'{CONFIG.partition("speculative")[0]}x="{noise * (1_000_000 // len(noise))}')


def test_digits_beyond_any_count_do_no_harm() -> None:
    malformed(HEADER + SPEC.replace("Accepted: 9", "Accepted: " + "9" * 5000))
    assert parse(f"(A pid={'9' * 5000}) " + SPEC) is None
    assert parse(json.dumps({"message": SPEC, "pid": "9" * 5000})) is not None


# --- properties ---


@given(st.binary(max_size=400))
def test_any_bytes_are_read_without_harm(line: bytes) -> None:
    parse_line(line)


@given(
    st.sampled_from([SPEC, SPEC_0_9, SPEC_0_8_3, SPEC_V0, STATS, CONFIG, f"Received request x: params: {PARAMS}"]),
    st.sampled_from([HEADER, "", "{", '{"message": "']),
    st.integers(0, 400),
    st.binary(max_size=40),
)
def test_damaged_lines_are_read_without_harm(message: str, header: str, place: int, noise: bytes) -> None:
    line = (header + message).encode()
    parse_line(line[:place] + noise + line[place + len(noise) :])


@st.composite
def drafts(draw: st.DrawFn) -> tuple[int, list[int], int]:
    """The number of drafts, how many of them accepted each position, and the tokens drafted."""
    count = draw(st.integers(1, 100_000))
    tokens = draw(st.integers(1, 12))
    accepted: list[int] = []
    for _ in range(tokens):
        accepted.append(draw(st.integers(0, accepted[-1] if accepted else count)))
    return count, accepted, draw(st.integers(sum(accepted), max(sum(accepted), count * tokens)))


def rendered(wording: str, count: int, positions: list[int], drafted: int) -> str:
    """As vLLM's own format strings write it."""
    accepted = sum(positions)
    rate = accepted / drafted if drafted else math.nan
    curve = ", ".join(f"{position / count:.3f}" for position in positions)
    length = accepted / count
    if wording == "v0":
        return (
            f"Speculative metrics: Draft acceptance rate: {rate:.3f}, System efficiency: 0.500, "
            f"Number of speculative tokens: {len(positions)}, Number of accepted tokens: {accepted}, "
            f"Number of draft tokens: {drafted}, Number of emitted tokens: {accepted}."
        )
    if wording == "0.8.3":
        return (
            f"SpecDecoding metrics: Draft acceptance rate: {100 * rate:.1f}%, Accepted: {accepted} tokens, "
            f"Drafted: {drafted} tokens"
        )
    if wording in ("0.8.5", "0.9.0"):
        return (
            f"SpecDecoding metrics: Draft acceptance rate: {100 * rate:.1f}%, "
            f"Mean acceptance length: {length + (wording == '0.9.0'):.2f}, Accepted: {accepted} tokens, "
            f"Drafted: {drafted} tokens, Per-position acceptance rate: {curve}"
        )
    return (
        f"SpecDecoding metrics: Mean acceptance length: {1 + length:.2f}, "
        f"Accepted throughput: {accepted / 10:.2f} tokens/s, "
        f"Drafted throughput: {drafted / 10:.2f} tokens/s, Accepted: {accepted} tokens, Drafted: {drafted} tokens, "
        f"Per-position acceptance rate: {curve}, Avg Draft acceptance rate: {100 * rate:.1f}%"
    )


@given(drafts(), st.sampled_from(["v0", "0.8.3", "0.8.5", "0.9.0", "0.10.2"]))
def test_what_a_release_writes_is_read_back(counts: tuple[int, list[int], int], wording: str) -> None:
    count, positions, drafted = counts
    event = spec(HEADER + rendered(wording, count, positions, drafted))
    assert (event.accepted_tokens, event.draft_tokens) == (sum(positions), drafted)
    assert event.acceptance_ratio == (sum(positions) / drafted if drafted else None)
    if wording in ("0.8.5", "0.9.0", "0.10.2"):
        assert event.num_speculative_tokens == len(positions)
        assert event.bonus_included is (wording != "0.8.5")


@given(
    drafts(),
    st.sampled_from(["", "(APIServer pid=16694) ", "[pod-7] ", "\x1b[0m"]),
    st.sampled_from(["metrics.py", "v1/metrics.py", "request_logger.py", "entrypoints/logger.py", "log_stats.rs"]),
    st.sampled_from(["", "\r"]),
    st.sampled_from([("tokens, ", "tokens, "), ("0.0%", "0.1%"), ("Drafted: ", "Drafted: 1"), ("%", " %")]),
)
def test_the_fast_lane_reads_as_the_general_way(
    counts: tuple[int, list[int], int], prefix: str, tag: str, ending: str, damage: tuple[str, str]
) -> None:
    line = f"{prefix}INFO 11-20 21:44:52 [{tag}:120] {rendered('0.10.2', *counts)}{ending}".replace(*damage).encode()
    if (fast := read_spec_decoding(bytearray(line + b"\nnext"), 0, len(line) + 5, {})) is not None:
        assert fast == (parse_line(line), len(line) + 1)
    else:
        assert prefix in ("[pod-7] ", "\x1b[0m") or "metrics.py" not in tag or damage[0] != damage[1] or not counts[2]


@given(
    st.lists(st.decimals(0, 100, places=1), min_size=4, max_size=4),
    st.integers(0, 10**6),
    st.sampled_from(["GPU", "CPU", "XPU"]),
    st.booleans(),
)
def test_the_fast_lane_reads_engine_statistics_as_the_general_way(
    figures: list[Decimal], running: int, device: str, with_hits: bool
) -> None:
    prompt, generation, usage, hits = figures
    line = (
        f"{HEADER}Engine {running % 1000:03d}: Avg prompt throughput: {prompt} tokens/s, Avg generation throughput: "
        f"{generation} tokens/s, Running: {running} reqs, Waiting: 0 reqs, {device} KV cache usage: {usage}%"
        + (f", Prefix cache hit rate: {hits}%" if with_hits else "")
    ).encode()
    fast = read_engine_stats(line, 0, len(line))
    assert (fast is None) == (device == "XPU")
    if fast is not None:
        assert fast == (parse_line(line), len(line))
    else:
        assert isinstance(parse_line(line), EngineStats)


@given(
    st.text(max_size=60), st.text(max_size=60), st.sampled_from([SPEC, SPEC_V0, STATS, HEADER + SPEC, HEADER + CONFIG])
)
def test_quoting_a_line_in_a_request_never_counts(before: str, after: str, quoted: str) -> None:
    text = f"{before}{quoted}{after}"
    for line in (
        f"INFO 11-20 22:49:07 [logger.py:43] Received request x: prompt: {text!r}, params: {PARAMS}, x: None",
        f"DEBUG 11-20 22:49:07 [request_logger.py:43] Request x details: prompt: {text!r}",
        f'INFO:     127.0.0.1:1 - "GET /?q={text.encode("unicode_escape").decode()} HTTP/1.1" 200 OK',
        json.dumps({"name": "vllm.entrypoints.logger", "message": text}),
        json.dumps({"name": "vllm.serving", "message": f"request {text!r}"}),
        json.dumps({"prompt": text}),
    ):
        assert not isinstance(parse(line), SpecDecoding | EngineStats | EngineConfig | Malformed), line
