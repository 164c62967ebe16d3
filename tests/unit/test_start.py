"""What a server prints at its start: lines -> events -> the last start -> page, ``analyze`` and metrics."""

from __future__ import annotations

import re
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from specdec_exporter import bounds
from specdec_exporter.predictor.log.counters import ReaderCounters
from specdec_exporter.predictor.log.events import (
    START_KINDS,
    EngineConfig,
    Event,
    KVCache,
    PhaseName,
    ServerArguments,
    StartPhase,
)
from specdec_exporter.predictor.log.scan import LogScanner
from specdec_exporter.predictor.log.start import Start, seconds_between, summarise
from specdec_exporter.predictor.metrics.exposition import parse_exposition
from specdec_exporter.state.observing import observe_event, observe_failure, observe_snapshot
from specdec_exporter.state.record import PredictorState
from specdec_exporter.state.report import status_of
from specdec_exporter.state.view import engines_of, evidence_of
from support.builders import CAPTURES, Clock, engine, snapshot
from support.loglines import ARGUMENTS_HEADER, CONFIG, HEADER, SPEC, STATS, Parsed, parse, parse_line, without_place


def line(source: str, message: str, time: str = "21:44:52") -> str:
    return f"(EngineCore pid=7) INFO 11-20 {time} [{source}] {message}"


def phase(name: PhaseName, seconds: float | None = None, memory_gib: float | None = None) -> StartPhase:
    return StartPhase(phase=name, seconds=seconds, memory_gib=memory_gib)


# From the sources named in startline.py; those of the CPU also from captures.
LINES: list[tuple[str, str, StartPhase | KVCache]] = [
    ("default_loader.py:501", "Loading weights took 94.71 seconds", phase("load_weights", 94.71)),
    (
        "gpu_model_runner.py:5150",
        "Model loading took 14.99 GiB memory and 97.514862 seconds",
        phase("load_model", 97.514862, 14.99),
    ),
    ("model_runner.py:1146", "Model loading took 14.98 GiB and 9.514862 seconds", phase("load_model", 9.514862, 14.98)),
    ("model_runner.py:1099", "Loading model weights took 14.9888 GB", phase("load_model", None, 14.9888)),
    ("backends.py:426", "Dynamo bytecode transform time: 8.30 s", phase("transform", 8.3)),
    ("backends.py:1167", "[eagle_head] Dynamo bytecode transform time: 0.30 s", phase("transform", 0.3)),
    ("monitor.py:62", "torch.compile took 31.05 s in total", phase("compile", 31.05)),
    (
        "monitor.py:62",
        "torch.compile and initial profiling/warmup run together took 40.10 s in total",
        phase("compile", 40.1),
    ),
    ("monitor.py:91", "Initial profiling/warmup run took 2.00 s", phase("profile", 2.0)),
    ("model_runner.py:6582", "Graph capturing finished in 21 secs, took 0.52 GiB", phase("capture_graphs", 21.0, 0.52)),
    (
        "llm_engine.py:428",
        "init engine (profile, create kv cache, warmup model) took 3.68 seconds",
        phase("init_engine", 3.68),
    ),
    (
        "core.py:402",
        "init engine (profile, create kv cache, warmup model) took 63.20 s (compilation: 3.05 s — encoder: 1.05 s)",
        phase("init_engine", 63.2),
    ),
    ("api_server.py:958", "Starting vLLM API server on http://0.0.0.0:8000", phase("ready")),
    ("entry.py:140", "Starting vLLM server on http://127.0.0.1:18001", phase("ready")),
    ("kv_cache_utils.py:578", "GPU KV cache size: 699,008 tokens", KVCache(tokens=699_008)),
    (
        "kv_cache_utils.py:2327",
        "CPU KV cache size: 699,008 tokens, Maximum concurrency for 1,024 tokens per request: 682.62x",
        KVCache(tokens=699_008, tokens_per_request=1024, concurrency=682.62),
    ),
    (
        "executor_base.py:118",
        "Maximum concurrency for 1024 tokens per request: 1024.00x",
        KVCache(tokens_per_request=1024, concurrency=1024.0),
    ),
]


@pytest.mark.parametrize(("source", "message", "expected"), LINES, ids=[message[:30] for _, message, _ in LINES])
def test_a_line_about_the_start_counts_only_from_the_file_that_prints_it(
    source: str, message: str, expected: StartPhase | KVCache
) -> None:
    def read(text: str) -> Parsed:
        return without_place(parse_line(text.encode()))

    assert read(line(source, message)) == expected
    assert parse(line("request_logger.py:65", message)) is None
    assert read(line("async_llm.py:578", message)) is None
    assert read(message) is None
    assert read(line(source, f"Added request cmpl-x: {message}")) is None
    for end in range(len(message)):
        cut = read(line(source, message[:end]))
        if isinstance(cut, StartPhase | KVCache):  # the rest of the line says more
            figures = msgspec.structs.asdict(cut).items()
            assert {name for name, figure in figures if figure not in (None, getattr(expected, name))} == set()


def arguments(text: str) -> ServerArguments:
    event = parse(f"{ARGUMENTS_HEADER}non-default args: {text}")
    assert isinstance(event, ServerArguments)
    return event


def test_arguments_keep_what_a_deployment_needs_and_only_the_names_of_the_rest() -> None:
    event = arguments(
        "{'model_tag': '/models/target', 'api_key': ['sk-secret'], 'quantization': 'fp8', 'tensor_parallel_size': 4, "
        "'max_num_seqs': 8, 'gpu_memory_utilization': 0.85, 'enforce_eager': True, 'enable_lora': False, "
        "'compilation_config': CompilationConfig(level=3, custom_ops=['none'], x={'a': (1, 2)}), "
        "'kv_transfer_config': KVTransferConfig(kv_connector='NixlConnector', kv_role='kv_producer', "
        "kv_connector_extra_config={'password': 'sk-secret'}), "
        "'attention_config': AttentionConfig(backend=<AttentionBackendEnum.FLASH_ATTN: 'x.y'>, more=None), "
        "'speculative_config': {'method': 'eagle3', 'model': '/models/draft', 'num_speculative_tokens': 3, "
        "'parallel_drafting': True, 'draft_tensor_parallel_size': 1, 'sizes': [[1, 2, 4]], 'moe_backend': None}}"
    )
    assert "sk-secret" not in msgspec.json.encode(event).decode()
    assert event.arguments["api_key"] is None
    deployment = Start().after(event).deployment
    assert deployment.arguments == frozenset(event.arguments)
    assert deployment.speculative_config.keys() >= {"method", "parallel_drafting", "sizes", "moe_backend"}
    assert (deployment.model, deployment.quantization, deployment.tensor_parallel_size) == ("/models/target", "fp8", 4)
    assert (deployment.max_num_seqs, deployment.gpu_memory_utilization) == (8, 0.85)
    assert (deployment.enforce_eager, deployment.enable_lora) == (True, False)
    assert (deployment.kv_connector, deployment.kv_role) == ("NixlConnector", "kv_producer")
    assert deployment.attention_backend == "FLASH_ATTN"
    assert (deployment.method, deployment.draft_model, deployment.num_speculative_tokens) == (
        "eagle3",
        "/models/draft",
        3,
    )
    assert deployment.speculative_config["draft_tensor_parallel_size"] == 1


@given(
    st.sampled_from(["model", "quantization", "speculative_config", "kv_transfer_config", "tensor_parallel_size", "x"]),
    st.text("ab1.-e'\"\\{}[](),=: <>_TrueNone", max_size=60) | st.integers(1, 9000).map(lambda n: "{'a':" * n),
)
def test_no_printed_value_makes_the_reader_raise(name: str, value: str) -> None:
    event = parse(f"{ARGUMENTS_HEADER}non-default args: {{'{name}': {value}, 'max_num_seqs': 8}}")
    if isinstance(event, ServerArguments):
        assert len(msgspec.json.encode(event)) < 2000
        assert isinstance(Start().after(event).deployment.arguments, frozenset)


def test_arguments_beyond_a_bound_are_left_out() -> None:
    many = ", ".join(f"'a{number}': 1" for number in range(2 * bounds.ARGUMENTS))
    long = arguments(f"{{'model': '{'m' * (bounds.LABEL_CHARACTERS + 1)}', {many}}}")
    assert long.arguments["model"] is None
    assert len(long.arguments) == bounds.ARGUMENTS


def test_the_engines_own_values_count_over_the_arguments() -> None:
    printed = CONFIG.replace("served_model_name", (
        "dtype=torch.bfloat16, max_seq_len=1024, tensor_parallel_size=2, pipeline_parallel_size=1, quantization=fp8, "
        "enforce_eager=True, kv_cache_dtype=auto, structured_outputs_config=StructuredOutputsConfig(backend='auto', "
        "x=False), enable_chunked_prefill=True, served_model_name"
    ))  # fmt: skip
    config = parse(HEADER.replace("metrics.py", "core.py") + printed)
    assert isinstance(config, EngineConfig)
    start = Start().after(arguments("{'dtype': 'auto', 'max_num_seqs': 8}")).after(config)
    deployment = start.deployment
    assert deployment.arguments == {"dtype", "max_num_seqs"}
    assert (deployment.dtype, deployment.max_model_len, deployment.max_num_seqs) == ("bfloat16", 1024, 8)
    assert (deployment.tensor_parallel_size, deployment.quantization, deployment.enforce_eager) == (2, "fp8", True)
    assert (deployment.structured_outputs_backend, deployment.enable_chunked_prefill) == ("auto", True)
    assert (deployment.speculative, deployment.method, deployment.num_speculative_tokens) == (True, "draft_model", 3)


def start_of(path: Path) -> Start:
    start = Start()
    for event in scan(path.read_bytes()):
        start = start.after(event)
    return start


def scan(log: bytes, chunk: int = 1 << 20) -> list[Event]:
    """Read a log in parts of whole lines."""
    scanner = LogScanner(ReaderCounters())
    events: list[Event] = []
    rest = log
    while rest:
        end = rest.find(b"\n", chunk) + 1 or len(rest)
        part, rest = rest[:end], rest[end:]
        events += scanner.scan(bytearray(part), len(part))
    return events + scanner.finish()


# Capacity, and whether weights were loaded; read by hand.
REAL: dict[str, tuple[int, bool]] = {
    "0.9.2-v0-ngram-k5": (1_048_576, True),
    "0.25.1-draft_model-k3": (699_008, True),
    "0.32.0-draft_model-dp2-api1": (699_008, True),
    "0.32.0-draft_model-jsonlog": (699_008, True),
    "0.32.0-draft_model-log-requests-color-prefix": (699_008, True),
    "0.32.0-mtp-k2-dummy": (699_008, False),
}


@pytest.mark.parametrize("capture", REAL)
def test_a_real_log_tells_capacity_phases_and_readiness(capture: str) -> None:
    tokens, loaded = REAL[capture]
    start = start_of(CAPTURES / capture / "server.log")
    assert start.kv_cache_tokens == tokens
    assert set(start.phase_seconds) == ({"load_weights", "init_engine"} if loaded else {"init_engine"})
    assert start.ready_seconds is not None
    assert 5 < start.ready_seconds < 120
    assert start.deployment.enforce_eager is True
    bodies = [path.read_bytes() for path in (CAPTURES / capture).glob("metrics-*.txt")]
    for body in bodies:
        engines = parse_exposition(body).engines if b"cache_config_info{" in body else ()
        assert [each.kv_cache_tokens or each.kv_cache_block_tokens for each in engines] == [tokens] * len(engines)
    summary = summarise(start)
    assert summary is not None
    assert f"not quantized, KV cache of {tokens:,} tokens" in re.sub(r"(DP|max_num_seqs) \d+, ", "", summary.text)


@pytest.mark.parametrize(
    ("earlier", "later", "seconds"),
    [
        ("11-20 23:59:30", "11-21 00:00:15", 45.0),
        ("02-29 12:00:00", "02-29 12:01:00", 60.0),
        ("2026-11-20 12:00:00,500", "2026-11-20 12:00:01,000", 0.5),
        ("2026-11-20T12:00:00.25Z", "2026-11-20T13:00:00.25+01:00", 0.0),
        ("1795179600", "1795179612000", 12.0),
        ("11-20 12:00:00", "11-20 11:59:59", None),  # the clock was set back
        ("11-20 12:00:00", "2026-11-20 12:00:01", None),
        ("yesterday", "11-20 12:00:00", None),
        (None, "11-20 12:00:00", None),
    ],
)
def test_the_seconds_between_two_printed_times(earlier: str | None, later: str, seconds: float | None) -> None:
    assert seconds_between(earlier, later) == seconds


def test_what_a_start_prints_is_found_in_parts_of_any_size_and_after_statistics() -> None:
    capture = (CAPTURES / "0.32.0-draft_model-k3" / "server.log").read_bytes()
    usual = "\n".join([HEADER.replace("metrics", "loggers") + STATS, HEADER + SPEC, ""]).encode() * 50
    expected = [event for event in scan(capture) if type(event) in START_KINDS]
    assert len(expected) > 5
    for chunk in (1, 700, 5000, 1 << 20):
        found = [event for event in scan(usual + capture + usual + capture, chunk) if type(event) in START_KINDS]
        assert found == expected * 2


def test_a_new_start_replaces_the_last_one_and_of_several_processes_the_slowest_counts() -> None:
    start = Start()
    events: list[Event] = [
        ServerArguments(timestamp="11-20 21:00:00", arguments={"max_num_seqs": 8}),
        EngineConfig(method="eagle3", speculative=True),
        phase("load_weights", 10.0), phase("load_weights", 30.0), phase("load_weights", 20.0),
        KVCache(tokens=900), KVCache(tokens_per_request=100, concurrency=9.0), KVCache(tokens=800),
        phase("init_engine", 50.0),
        StartPhase(phase="ready", timestamp="11-20 21:01:30"),
    ]  # fmt: skip
    for event in events:
        start = start.after(event)
    assert start.phase_seconds == {"load_weights": 30.0, "init_engine": 50.0}
    assert (start.kv_cache_tokens, start.ready_seconds) == (800, 90.0)
    again = start.after(ServerArguments(timestamp="11-20 22:00:00", arguments={"max_num_seqs": 9}))
    assert (again.phase_seconds, again.kv_cache, again.ready_seconds) == ({}, None, None)
    assert again.config == start.config  # what runs, until the new server says otherwise
    without_arguments = start.after(EngineConfig(method="ngram"))
    assert (without_arguments.phase_seconds, without_arguments.kv_cache) == ({}, None)
    assert len(start.events) <= 12


@given(st.lists(st.sampled_from([event for _, _, event in LINES]), max_size=30))
def test_a_start_is_bounded_and_its_summary_has_no_absurd_number(events: list[StartPhase | KVCache]) -> None:
    start = Start()
    for event in events:
        start = start.after(event)
    assert len(start.events) <= 9
    summary = summarise(start)
    if summary is not None:
        assert not re.search(r"nan|inf\b|None", summary.text)


@pytest.mark.parametrize(
    ("labels", "expected"),
    [
        (['block_size="16",engine="0",num_gpu_blocks="100"'], [1600]),
        (['block_size="16",num_gpu_blocks="100"'], [1600]),  # before 0.9.0
        # Each engine shows the blocks of all.
        ([f'block_size="16",engine="{engine}",num_gpu_blocks="200"' for engine in (0, 1)], [1600, 1600]),
        # 0.24.0 and later: as computed, by kinds of layers
        (['block_size="16",engine="0",kv_cache_size_tokens="777",num_gpu_blocks="100"'], [777]),
        (['block_size="16",engine="0",kv_cache_size_tokens="None",num_gpu_blocks="100"'], [1600]),
        (['block_size="16",engine="0",num_gpu_blocks="None"'], [None]),
        (['block_size="9999999999",engine="0",num_gpu_blocks="99999999999999"'], [None]),
    ],
)
def test_the_capacity_of_a_kv_cache_comes_from_labels(labels: list[str], expected: list[float | None]) -> None:
    body = "".join(
        f'vllm:generation_tokens_total{{engine="{engine}",model_name="m"}} 5.0\n' for engine in range(len(expected))
    ) + "".join(f"vllm:cache_config_info{{{each}}} 1.0\n" for each in labels)
    engines = parse_exposition(body.encode()).engines
    assert [each.kv_cache_tokens or each.kv_cache_block_tokens for each in engines] == expected


def test_too_many_infos_are_left_out_and_counted() -> None:
    infos = "".join(
        f'vllm:cache_config_info{{block_size="16",engine="{engine}",num_gpu_blocks="9"}} 1.0\n'
        for engine in range(bounds.ENGINES + 3)
    )
    found = parse_exposition(f'vllm:generation_tokens_total{{engine="0",model_name="m"}} 5.0\n{infos}'.encode())
    assert found.dropped == {"series": 3}


def test_the_status_tells_how_the_predictor_was_started() -> None:
    clock = Clock()
    state = PredictorState("svc", clock=clock.monotonic, wall_clock=clock.wall)
    assert status_of(state).start is None
    for event in start_of(CAPTURES / "0.32.0-draft_model-k3" / "server.log").events:
        observe_event(state, event)
    observe_snapshot(state, snapshot(msgspec.structs.replace(engine(), kv_cache_block_tokens=5.0)))
    told = status_of(state).start
    assert told is not None
    assert (told.max_num_seqs, told.kv_cache_tokens, told.dtype) == (8, 699_008, "bfloat16")
    assert told.text.startswith("not quantized, max_num_seqs 8, KV cache of 699,008 tokens, weights loaded in ")
    assert evidence_of(state).deployment.max_num_seqs == 8
    (view,) = engines_of(state)
    assert view.kv_cache_tokens == 699_008  # the log knows kinds of layers, blocks x size does not
    observe_snapshot(state, snapshot(msgspec.structs.replace(engine(), kv_cache_tokens=400_000.0)))
    assert engines_of(state)[0].kv_cache_tokens == 400_000
    observe_failure(state, "gone")
    assert engines_of(state)[0].kv_cache_tokens is None
