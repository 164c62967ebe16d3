"""The simulated log reads like the captured ones: every line, its numbers aside, is one the release wrote."""

from __future__ import annotations

import json
import pathlib
import re
from typing import Any

import pytest

from specdec_exporter.simulator.engine import Engine, SpecStats
from specdec_exporter.simulator.log import NOTICE, init_message, log_lines, spec_message
from specdec_exporter.simulator.scenario import parse_incident
from specdec_exporter.simulator.settings import SimulatorSettings
from specdec_exporter.simulator.shapes import release

FIXTURES = pathlib.Path(__file__).parent.parent / "fixtures"
CAPTURES = FIXTURES / "captures"
PERIODIC = re.compile(r"SpecDecoding metrics|Speculative metrics|Avg prompt")


def simulated_lines(seconds: float = 60, **settings: Any) -> list[str]:
    engine = Engine(SimulatorSettings(**settings))
    engine.advance(seconds)
    return log_lines(engine)


def normalized(line: str) -> str:
    """A line without its numbers, file names and device; a list of numbers is one number."""
    line = re.sub(r"\x1b\[[0-9;]*m", lambda code: f"<{code[0][2:-1].replace(';', ',')}>", line)
    line = re.sub(r"[a-z_]+\.(py|rs):\d+", "FILE", line).replace("CPU KV cache usage: 0.0%.", "SWAP")
    line = re.sub(r"(?<![\w<,])\d+(\.\d+)?", "N", line)
    return re.sub(r"N(, N)+", "N", line).replace("CPU KV", "GPU KV")


CAPTURED = (
    ("0.6.6.post1-driven", {"vllm_version": "0.6.6.post1"}),
    ("0.8.5-driven", {"vllm_version": "0.8.5"}),
    ("0.9.2-driven", {"vllm_version": "0.9.2"}),
    ("0.9.2-v0-ngram-k5", {"vllm_version": "0.9.2", "engine_generation": "v0", "k": 5, "method": "ngram"}),
    ("0.25.1-draft_model-k3", {"vllm_version": "0.25.1", "method": "draft_model"}),
    ("0.25.1-ngram-k5", {"vllm_version": "0.25.1", "method": "ngram", "k": 5}),
    ("0.32.0-draft_model-k3", {"vllm_version": "0.32.0", "method": "draft_model"}),
    ("0.32.0-draft_model-dp2-api1", {"vllm_version": "0.32.0", "engines": 2}),
    ("0.32.0-baseline-nospec", {"vllm_version": "0.32.0", "method": None}),
)


@pytest.mark.parametrize(("capture", "settings"), CAPTURED, ids=[capture for capture, _ in CAPTURED])
def test_periodic_lines_are_those_of_the_release(capture: str, settings: dict[str, Any]) -> None:
    real = {normalized(line) for line in (CAPTURES / capture / "server.log").read_text().splitlines()}
    ours = {normalized(line) for line in simulated_lines(**settings) if PERIODIC.search(line)}
    assert len(ours) == (1 if settings.get("method", "") is None else 2)
    assert ours <= real


# 0.10.2 to 0.15.1 write their prefix only with a process name, which the driven captures lack: the line cases have it
@pytest.mark.parametrize("version", ["0.10.2", "0.11.0", "0.14.1", "0.20.2"])
def test_prefixes_are_those_of_the_release(version: str) -> None:
    cases = map(json.loads, (FIXTURES / "logcases.jsonl").read_text().splitlines())
    real = {
        normalized(case["line"])
        for case in cases
        if case["version"] == version and case["scenario"] == "prefix:not-a-tty"
    }
    ours = {normalized(line) for line in simulated_lines(vllm_version=version) if "SpecDecoding" in line}
    assert real
    assert ours == real


def test_the_rust_front_end_words_and_colours_its_own_lines() -> None:
    cases = map(json.loads, (FIXTURES / "logcases.jsonl").read_text().splitlines())
    real = {normalized(case["line"]) for case in cases if "RustFrontend" in case["line"]}
    ours = {normalized(line) for line in simulated_lines(frontend="rust") if "RustFrontend" in line}
    assert ours == real


def test_access_lines_carry_the_prefix_of_the_release() -> None:
    for capture, version in (("0.25.1-draft_model-k3", "0.25.1"), ("0.32.0-draft_model-k3", "0.32.0")):
        engine = Engine(SimulatorSettings(vllm_version=version))
        engine.record_access("127.0.0.1:1234", "POST /v1/completions HTTP/1.1", "200 OK")
        real = {normalized(line) for line in (CAPTURES / capture / "server.log").read_text().splitlines()}
        assert normalized(log_lines(engine)[-1]) in real


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"vllm_version": "0.6.6.post1", "method": "ngram"}, "Initializing an LLM engine (v0.6.6.post1) with config: "),
        (
            {"vllm_version": "0.6.6.post1", "method": "ngram"},
            "SpeculativeConfig(draft_model='[ngram]', num_spec_tokens=3)",
        ),
        ({"vllm_version": "0.9.2", "engine_generation": "v0"}, "Initializing a V0 LLM engine (v0.9.2) with config: "),
        ({"method": "ngram"}, "SpeculativeConfig(method='ngram', model=None, num_spec_tokens=3)"),
        ({"method": "mtp", "model": "m"}, "SpeculativeConfig(method='mtp', model='m', num_spec_tokens=3)"),
        ({"method": None}, "speculative_config=None,"),
        ({"draft_model": "/d"}, "SpeculativeConfig(method='eagle3', model='/d', num_spec_tokens=3)"),
    ],
)
def test_the_engine_init_line_says_method_model_and_k(settings: dict[str, Any], says: str) -> None:
    assert says in init_message(Engine(SimulatorSettings(**settings)))


def test_a_window_without_draft_tokens_reads_nan() -> None:
    line = release("0.8.3").spec_line
    assert line is not None
    assert spec_message(line, SpecStats(0, 0, 10, 0, 0, 0, ()), 3).startswith(
        "SpecDecoding metrics: Draft acceptance rate: nan%, Accepted: 0 tokens, Drafted: 0 tokens"
    )


def test_an_idle_engine_falls_silent_after_one_line() -> None:
    lines = simulated_lines(100, load="0")
    assert lines[0] == NOTICE
    assert not any(PERIODIC.search(line) for line in lines)
    engine = Engine(SimulatorSettings(load="0"))
    engine.submit(prompt_tokens=10, max_tokens=20)
    engine.advance(100)
    lines = [line for line in log_lines(engine) if PERIODIC.search(line)]
    assert [("Avg prompt" in line, "generation throughput: 0.0" in line) for line in lines] == [
        (True, False),  # the interval with the request, then its spec line, then one line of zeros
        (False, False),
        (True, True),
    ]


def test_several_api_servers_log_a_warning_and_no_statistics() -> None:
    lines = simulated_lines(api_servers=2)
    assert sum("disabling stats logging" in line for line in lines) == 2
    assert not any(PERIODIC.search(line) for line in lines)


def test_each_engine_has_its_pair_of_lines() -> None:
    lines = [line for line in simulated_lines(11, engines=2) if PERIODIC.search(line)]
    assert [re.search(r"Engine \d+|SpecDecoding", line)[0] for line in lines] == [  # type: ignore[index]
        *("Engine 000", "SpecDecoding"),
        *("Engine 001", "SpecDecoding"),
    ]


def test_0_8_5_carries_a_window_over_when_the_last_step_did_not_draft() -> None:
    engine = Engine(
        SimulatorSettings(vllm_version="0.8.5", load=4, incidents=(parse_incident("stop_drafting at=5 for=8"),))
    )
    engine.advance(25)
    spec = [record for record in engine.take_records() if isinstance(record, SpecStats)]
    assert [record.at for record in spec] == [20]  # at 10 the last step had no draft; nothing is lost
    assert spec[0].drafts == engine.ranks[0].totals.drafts - engine.ranks[0].window.drafts
    assert spec[0].seconds == 20
