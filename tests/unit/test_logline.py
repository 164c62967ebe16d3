"""One log line -> event: what every wording of every release says."""

from __future__ import annotations

import json
import math
from typing import Any

import msgspec
import msgspec.yaml
import pytest

from specdec_exporter.predictor.facts.deployment import of_arguments
from specdec_exporter.predictor.log.events import (
    EngineConfig,
    EngineStats,
    Malformed,
    ModelRunner,
    PredictorWarning,
    RequestParams,
    ServerArguments,
    SpecDecoding,
)
from specdec_exporter.predictor.versions import WARNINGS, parse_release
from support.builders import FIXTURES
from support.loglines import (
    ARGUMENTS,
    CONFIG,
    EXTRA_FIELDS,
    HEADER,
    PARAMS,
    SPEC,
    SPEC_0_8_3,
    SPEC_0_9,
    SPEC_V0,
    STATS,
    malformed,
    parse,
    parse_line,
    spec,
    without_place,
)

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
# the fixture's word for a field of ours, where it has another, and what ours is multiplied by to give it
OTHER_WORDS = {
    "accepted": "accepted_tokens",
    "drafted": "draft_tokens",
    "prompt_tps": "prompt_throughput",
    "gen_tps": "generation_throughput",
    "kv_pct": "kv_cache_usage_ratio",
    "prefix_hit_pct": "prefix_cache_hit_ratio",
    "num_spec_tokens": "num_speculative_tokens",
    "version": "vllm_version",
}
SAME_WORDS = {"mean_acceptance_length", "accepted_throughput", "drafted_throughput", "running", "waiting"}
WORDS = OTHER_WORDS | {word: word for word in SAME_WORDS | {"process", "pid", "timestamp", "method"}}


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case['version']}-{case['scenario']}")
def test_a_line_of_a_real_release_gives_what_it_says(case: dict[str, Any]) -> None:
    expected = case["expect"]
    event = parse_line(case["line"].encode())
    kind = KINDS[expected["kind"]]
    if kind is None:
        assert event is None
        return
    assert type(event) is kind
    for theirs in WORDS.keys() & expected.keys():
        if not (expected.get("json") and theirs == "timestamp"):
            said = expected[theirs] / 100 if theirs.endswith("_pct") else expected[theirs]
            assert getattr(event, WORDS[theirs]) == pytest.approx(said, abs=1e-12), theirs
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


# --- wordings ---


NOTHING_DRAFTED = SPEC.replace("9 tokens", "0 tokens").replace("15 tokens", "0 tokens").replace("60.0%", "nan%")


@pytest.mark.parametrize("nan", ["nan", "NaN"])
@pytest.mark.parametrize("length", ["1.00", "nan", "NaN"])
@pytest.mark.parametrize("message", [SPEC, SPEC_0_9])
def test_shares_of_nothing_are_no_shares(message: str, length: str, nan: str) -> None:
    text = message.replace("9 tokens", "0 tokens").replace("15 tokens", "0 tokens").replace("60.0%", f"{nan}%")
    text = text.replace("2.80", length).replace("0.800, 0.600, 0.400", f"{nan}, {nan}, {nan}")
    text = text.replace("0.90 tokens/s", f"{nan} tokens/s")
    event = spec(HEADER + text)
    assert (event.accepted_tokens, event.draft_tokens, event.acceptance_ratio) == (0, 0, None)
    assert (event.per_position, event.num_speculative_tokens) == (None, None)
    assert b"nan" not in msgspec.json.encode(event).lower()
    assert not any(isinstance(figure, float) and math.isnan(figure) for figure in msgspec.structs.astuple(event))


@pytest.mark.parametrize(
    ("message", "shares"),
    [(SPEC, "nan, nan, nan"), (NOTHING_DRAFTED, "nan, 0.000, nan"), (NOTHING_DRAFTED, "nan, nan, nano")],
)
def test_shares_of_nothing_where_something_was_drafted_are_an_error(message: str, shares: str) -> None:
    malformed(HEADER + message.replace("0.800, 0.600, 0.400", shares))


def test_the_rust_frontends_curve_need_not_agree_with_its_counters() -> None:
    text = SPEC.replace("0.800, 0.600, 0.400", "0.790, 0.570, 0.390")
    malformed(HEADER + text)
    assert spec("(RustFrontend pid=1) INFO 11-20 21:54:07 [log_stats.rs:302] " + text).accepted_tokens == 9


def test_words_of_an_unknown_release_are_an_error() -> None:
    malformed(HEADER + "SpecDecoding metrics: acceptance=0.6 accepted=9")
    malformed(HEADER + "SpecDecoding metrics: Acceptance: 0.6")
    malformed(HEADER + "Speculative metrics: Acceptance: 0.6.")


def test_later_releases_may_add_and_reorder_fields() -> None:
    event = spec(HEADER + SPEC + ", Draft steps: 5, Draft time: 1.25 ms")
    assert without_place(event) == without_place(parse(SPEC))
    name, _, fields = SPEC.partition(": ")
    *others, first, second, third, rate = fields.split(", ")
    reordered = [rate, f"{first}, {second}, {third}", *reversed(others)]
    assert without_place(parse(f"{name}: {', '.join(reordered)}")) == without_place(event)


@pytest.mark.parametrize(
    "extra",
    [
        "Free slots: 7(EngineCore pid=2) Capturing graphs",  # another process wrote into the line
        "KV fetch: 3 waiting, 2 run(EngineCore pid=2) Capturing graphs",
        "Free slots: 7INFO:     10.0.0.1:5",
        "Free slots: 'x'",
        "Free slots: ",
        "Free slots",
        "ree slots: 7",  # torn
    ],
)
def test_what_is_no_field_is_not_passed_over(extra: str) -> None:
    malformed(HEADER + SPEC.replace(", Drafted: ", f", {extra}, Drafted: "))
    malformed(HEADER + STATS.replace(", GPU", f", {extra}, GPU"))


@pytest.mark.parametrize("extra", EXTRA_FIELDS)
def test_statistics_that_break_off_in_or_before_a_new_field_are_an_error(extra: str) -> None:
    line = HEADER + STATS.replace(", GPU", f", {extra}, GPU")
    for end in range(line.index("Running: "), line.index("25.1%") + len("25.1")):
        malformed(line[:end])


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


def test_an_engine_without_speculation_says_so() -> None:
    event = parse(CONFIG[: CONFIG.index("SpeculativeConfig")] + "None, tokenizer='t'")
    assert isinstance(event, EngineConfig)
    assert (event.speculative, event.method, event.engine_generation) == (False, None, "v1")


def test_an_engine_that_only_extracts_hidden_states_does_not_speculate() -> None:
    event = parse(CONFIG.replace("draft_model', model='/models/draft', num_spec_tokens=3", "extract_hidden_states'"))
    assert isinstance(event, EngineConfig)
    assert (event.speculative, event.method) == (False, "extract_hidden_states")


def test_arguments_give_the_keys_of_the_speculative_config_and_nothing_else() -> None:
    event = parse(HEADER + ARGUMENTS.replace("'host'", "'api_key': ['secret'], 'host'"))
    assert isinstance(event, ServerArguments)
    deployment = of_arguments(event.arguments)
    assert (deployment.method, deployment.draft_model, deployment.num_speculative_tokens) == (
        "draft_model", "/models/draft", 3,
    )  # fmt: skip
    assert (deployment.rejection_sampling, deployment.adaptive_verification) == ("synthetic", False)
    assert b"secret" not in msgspec.json.encode(event)


@pytest.mark.parametrize(
    "arguments",
    [
        "{'model': 'speculative_config', 'x': \"{'method': 'eagle'}\"}",
        "{'speculative_config': None}",
        "{'speculative_config': '{\"method\": \"eagle\"}'}",
        "{'speculative_config': {'num_speculative_tokens': 99999999999999999999, 'method': None}}",
        "{'speculative_config': {'num_speculative_tokens': [3], 'more': {'method': 'eagle'}}}",
    ],
)
def test_arguments_without_speculation_of_a_known_shape_say_nothing_of_it(arguments: str) -> None:
    event = parse(f"{HEADER}non-default args: {arguments}")
    assert isinstance(event, ServerArguments)
    deployment = of_arguments(event.arguments)
    assert (deployment.method, deployment.draft_model, deployment.num_speculative_tokens) == (None, None, None)


def test_a_configuration_that_breaks_off_never_gives_half_a_value() -> None:
    full = parse(CONFIG)
    for end in range(len("Initializing a V1 LLM engine (v0.32.0) with config: "), len(CONFIG)):
        said = parse(CONFIG[:end])
        if isinstance(said, EngineConfig):
            assert said.served_model_name in (None, "tiny")
            assert msgspec.structs.replace(said, served_model_name="tiny") == full
        else:
            assert isinstance(said, Malformed)


@pytest.mark.parametrize(
    ("message", "code"),
    [
        ("Async scheduling not supported with ngram-based speculative decoding and will be disabled.",
         "async_scheduling_disabled"),
        ("min_p, logit_bias, and min_tokens parameters won't work with speculative decoding.",
         "sampling_params_unsupported"),
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


def test_a_disabled_async_scheduling_that_has_nothing_to_do_with_speculation_is_none_of_ours() -> None:
    said = "Async scheduling is disabled because the V1 model runner does not support it with pipeline parallelism."
    assert parse(f"WARNING 11-20 21:44:52 [vllm.py:1639] {said}") is None


class Logged(msgspec.Struct, forbid_unknown_fields=True):
    release: str
    place: str
    level: str
    text: str


FROM_SOURCES = [
    (code, logged)
    for code, texts in msgspec.yaml.decode(
        (FIXTURES / "facts" / "warnings.yaml").read_bytes(), type=dict[str, list[Logged]]
    ).items()
    for logged in texts
]


@pytest.mark.parametrize(("code", "logged"), FROM_SOURCES)
def test_a_warning_counts_from_its_own_file_and_release(code: str, logged: Logged) -> None:
    header = f"(EngineCore pid=7) {logged.level} 11-20 21:44:52 [{logged.place.rpartition('/')[2]}] "
    event = parse_line(f"{header}{logged.text}".encode())
    assert isinstance(event, PredictorWarning)
    assert event.warning == code
    since, release = (parse_release(version or "0.0") for version in (WARNINGS[code].since, logged.release))
    assert since is not None
    assert release is not None
    assert since <= release
    assert parse_line(f"{header}the user said: {logged.text}".replace("jit_monitor", "vllm").encode()) is None
    told_at_info = parse_line(f"{header.replace('WARNING', 'INFO')}{logged.text}".encode())
    assert (told_at_info is not None) == (logged.level == "INFO")


@pytest.mark.parametrize(
    ("said", "second"),
    [
        ("INFO 11-20 21:44:52 [gpu_worker.py:513] Using V2 Model Runner", True),
        ("WARNING 11-20 21:44:52 [vllm.py:510] Model runner v2 does not yet support X; using the v1 runner", False),
        ("WARNING 11-20 21:44:52 [vllm.py:761] Model Runner V2 does not yet support X; using the V1 runner", False),
        ("WARNING 11-20 21:44:52 [vllm.py:1] Defaulting to V1 model runner on ROCm for model architectures: X", False),
        ("INFO 11-20 21:44:52 [logger.py:1] Using V2 Model Runner", None),
    ],
)  # fmt: skip
def test_the_log_tells_the_model_runner(said: str, second: bool | None) -> None:
    event = parse(said)
    assert (event.second if isinstance(event, ModelRunner) else None) is second


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
    assert parse(HEADER + "Received request cmpl-1: params: SamplingParams(n=1, temper") is None


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
        ("length: 2.80", "length: 2.90"),  # more than its positions
        ("Drafted: 15 tokens", "Drafted: 15 tokens, Drafted: 15 tokens"),
        ("Drafted: 15 tokens", "Drafted: 15(EngineCore pid=2) INFO 11-20 21:44:52 [core.py:1] up tokens"),
        ("Accepted: 9 tokens", "Accepted: 9 reqs"),
        ("60.0%", '60.0%" 200 OK'),
    ],
)
def test_a_line_that_contradicts_itself_is_an_error(old: str, new: str) -> None:
    assert old in SPEC
    malformed(HEADER + SPEC.replace(old, new))


@pytest.mark.parametrize("message", [SPEC, SPEC_0_9, SPEC_0_8_3, SPEC_V0, STATS])
def test_a_line_cut_short_gives_its_own_numbers_or_is_an_error(message: str) -> None:
    whole = parse(HEADER + message)
    for end in range(len("SpecDecoding metrics: A"), len(message)):
        said = parse(HEADER + message[:end])
        if isinstance(said, EngineStats):
            assert message[:end].endswith("GPU KV cache usage: 25.1%")
        elif said is None:
            assert message is STATS  # cut before its first field ends
        else:
            assert isinstance(said, Malformed)
    assert isinstance(whole, SpecDecoding | EngineStats)


@pytest.mark.parametrize(
    "noise", ["a, ", "A", "1,", ", a b: 1", "Foo: 1, ", "nan, ", "[", "[a] ", "[2026-11-20 ", "vllm.", "I "]
)
def test_a_long_line_of_anything_is_read_in_time(noise: str) -> None:
    crowd = noise * (1_000_000 // len(noise))
    for line in (f"{HEADER}{SPEC}, {crowd}", f"{HEADER}{STATS}, {crowd}", crowd + SPEC, crowd + HEADER + SPEC):
        parse(line)


def test_digits_beyond_any_count_do_no_harm() -> None:
    malformed(HEADER + SPEC.replace("Accepted: 9", "Accepted: " + "9" * 5000))
    assert parse(f"(A pid={'9' * 5000}) " + SPEC) is None
    assert parse(json.dumps({"message": SPEC, "pid": "9" * 5000})) is not None


@pytest.mark.parametrize(("pid", "read"), [(7, 7), ("7", 7), (0, 0), (-1, None), ("-1", None), (True, None)])
def test_the_process_of_a_line_of_json(pid: object, read: int | None) -> None:
    said = parse(json.dumps({"message": SPEC, "pid": pid}))
    assert isinstance(said, SpecDecoding)
    assert said.pid == read
