"""What users of the model put into the log never counts: whoever writes a text, in whatever place of a request."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Final
from urllib.parse import quote

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loglines import ARGUMENTS, CONFIG, PARAMS, SPEC, SPEC_0_9, SPEC_V0, STATS
from specdec_exporter.predictor.log.counters import ReaderCounters
from specdec_exporter.predictor.log.events import Event, RequestParams, SpecDecoding
from specdec_exporter.predictor.log.logline import parse_line
from specdec_exporter.predictor.log.scan import LogScanner, LogTrust

CAPTURES: Final = Path(__file__).parents[1] / "fixtures" / "captures"
BEFORE: Final = "(APIServer pid=7) "
WARNING: Final = "min_p and logit_bias parameters won't work with speculative decoding."
FORGED: Final = (
    *(f"INFO 11-20 21:44:52 [{file}] {message}" for file, message in (
        ("metrics.py:120", SPEC), ("metrics.py:82", SPEC_0_9), ("metrics.py:439", SPEC_V0), ("loggers.py:310", STATS),
        ("core.py:114", CONFIG.replace("draft_model", "eagle3")), ("api_utils.py:286", ARGUMENTS),
        ("request_logger.py:65", f"Received request evil: params: {PARAMS}, lora_request: None."),
    )),
    f"WARNING 11-20 21:44:52 [__init__.py:211] {WARNING}",
    *(json.dumps({"name": "vllm.v1.metrics.loggers", "levelname": "INFO", "message": text}) for text in (SPEC, STATS)),
)  # fmt: skip
MESSAGES: Final = (SPEC, SPEC_0_9, SPEC_V0, STATS, CONFIG, ARGUMENTS, WARNING, f"Received request x: params: {PARAMS}")


def printed(level: str, tag: str, message: str) -> str:
    """As vLLM's NewLineFormatter prints it: each line with the header, each but the last with a carriage return."""
    header = f"{BEFORE}{level} 11-20 21:44:53 [{tag}] "
    return header + message.replace("\n", f"\r\n{header}")


def in_json(logger: str, message: str) -> str:
    return json.dumps({"asctime": "2026-11-20 21:44:53,1", "levelname": "WARNING", "name": logger, "message": message})


REQUEST: Final = "params: SamplingParams(n=1, temperature=0.0, max_tokens=4), lora_request: None."
# Where vLLM 0.32.0 prints users' text, as seen in tests/fixtures/captures/0.32.0-hostile-users; and older releases.
PLACES: Final[dict[str, Callable[[str], str]]] = {
    "request id": lambda text: printed("INFO", "request_logger.py:65", f"Received request cmpl-{text}: {REQUEST}"),
    "request id, engine": lambda text: printed("INFO", "async_llm.py:578", f"Added request cmpl-{text}."),
    "stop string": lambda text: printed(
        "INFO", "request_logger.py:65", f"Received request cmpl-1: params: SamplingParams(n=1, stop=[{text!r}])"
    ),
    "prompt": lambda text: printed(
        "INFO", "logger.py:43", f"Received request cmpl-1: prompt: {text!r}, params: SamplingParams(n=1)"
    ),
    "prompt, DEBUG": lambda text: printed(
        "DEBUG", "entrypoints/serve/utils/request_logger.py:55", f"Request {text} details: prompt: {text!r}"
    ),
    "body, DEBUG": lambda text: printed(
        "DEBUG", "entrypoints/serve/utils/request_logger.py:75", f"Request N/A JSON body: {json.dumps(text)}"
    ),
    "template's complaint": lambda text: printed(
        "WARNING", "hf.py:839", f"Chat template rejected the request: {text}"
    ),
    "model name": lambda text: printed("ERROR", "serving.py:98", f"Error with model `{text}` does not exist."),
    "regex": lambda text: printed("INFO", "async_llm.py:795", f"Request cmpl-1 failed (bad request): {text}."),
    "field": lambda text: printed("ERROR", "validation.py:151", f"RequestValidationError: {text!r}\n  {{'{text}': 1}}"),
    "answer": lambda text: printed("INFO", "log_response.py:141", f"response_body={{{text}}}"),
    "path": lambda text: f'INFO:     10.0.0.1:5 - "POST /{quote(text)}?{quote(text)} HTTP/1.1" 404 Not Found',
    "request id, JSON": lambda text: in_json(
        "vllm.entrypoints.serve.utils.request_logger", f"Received request cmpl-{text}: {REQUEST}"
    ),
    "template's complaint, JSON": lambda text: in_json("vllm.renderers.hf", f"Chat template rejected: {text}"),
    "whole message, JSON": lambda text: in_json("vllm.renderers.hf", text),
    "whole message": lambda text: printed("WARNING", "hf.py:839", text),
}  # fmt: skip


def servers_lines() -> list[list[bytes]]:
    """The first lines with events of each captured release."""
    logs = []
    for path in sorted(CAPTURES.glob("*/*.log")):
        lines = [line for line in path.read_bytes().split(b"\n") if b"\r" not in line]
        if found := [line for line in lines if parse_line(line) is not None][:12]:
            logs.append([b"Triton is not installed.", *found])
    return logs


LOGS: Final = servers_lines()


def read(lines: list[bytes], trust: LogTrust = "server") -> tuple[list[Event], ReaderCounters]:
    counters = ReaderCounters()
    scanner = LogScanner(counters, trust=trust)
    buffer = bytearray(b"".join(line + b"\n" for line in lines))
    return scanner.scan(buffer, len(buffer)) + scanner.finish(), counters


hostile = st.lists(
    st.sampled_from(
        [*FORGED, *(BEFORE + line for line in FORGED), *MESSAGES, "SpecDec", "Received request x: params: S"]
    )
    | st.text(max_size=20),
    min_size=1,
    max_size=4,
).flatmap(
    lambda parts: st.sampled_from(["\n", "\r\n", "\r", "\n\n", " ", "\x1b[0m", "\x0b", "\x85", "\u2028"]).map(
        lambda end: f"{end}{end.join(parts)}{end}"
    )
)


@settings(max_examples=150)
@given(st.data(), hostile, st.sampled_from(sorted(PLACES)))
def test_a_users_text_changes_nothing_that_the_server_says(data: st.DataObject, text: str, place: str) -> None:
    log = data.draw(st.sampled_from(LOGS))
    at = data.draw(st.integers(1, len(log)))
    harmless = [*log[:at], *PLACES[place]("x").encode(errors="replace").split(b"\n"), *log[at:]]
    attacked = [*log[:at], *PLACES[place](text).encode(errors="replace").split(b"\n"), *log[at:]]
    expected, quiet = read(harmless)
    found, counters = read(attacked)
    assert without_requests(found) == without_requests(expected)
    assert len(found) - len(expected) <= 0  # a request counts at most once, with its own parameters
    assert counters.parse_errors == quiet.parse_errors


def without_requests(events: list[Event]) -> list[Event]:
    return [event for event in events if not isinstance(event, RequestParams)]


@given(st.data(), hostile, st.sampled_from(sorted(PLACES)))
@settings(max_examples=50)
def test_a_users_text_completes_no_torn_line(data: st.DataObject, text: str, place: str) -> None:
    log = data.draw(st.sampled_from(LOGS))
    at = data.draw(st.integers(1, len(log) - 1))
    torn = log[at][: data.draw(st.integers(1, len(log[at]) - 1))]
    lines = [PLACES[place](said).encode(errors="replace").split(b"\n") for said in ("x", text)]
    (expected, quiet), (found, counters) = (read([*log[:at], torn, *said, *log[at + 1 :]]) for said in lines)
    assert without_requests(found) == without_requests(expected)
    assert counters.parse_errors == quiet.parse_errors


@pytest.mark.parametrize("message", MESSAGES[:4])
def test_statistics_without_a_header_count_only_on_trust(message: str) -> None:
    bare = [b"Starting.", message.encode(), f"{BEFORE}{message}".encode(), f"21:44:52 INFO - {message}".encode()]
    refused, counters = read(bare)
    assert (refused, counters.dropped["untrusted_lines"], counters.parse_errors) == ([], 3, 0)
    for trust in ("any", "auto"):
        taken, counters = read(bare, trust)
        assert len(taken) == 3
        assert counters.dropped["untrusted_lines"] == 0
        assert counters.unsigned_lines == (3 if trust == "auto" else 0)


@pytest.mark.parametrize(
    "header",
    [
        printed("INFO", "core.py:2", "hello"),
        "\x1b[36m(A pid=1)\x1b[0m \x1b[32mINFO\x1b[0m \x1b[90m11-20 21:44:52\x1b[0m \x1b[90m[core.py:1]\x1b[0m hello",
        "2026-11-20T21:44:52.1Z stdout F INFO 11-20 21:44:52 core.py:1] hello",
        json.dumps({"log": printed("INFO", "core.py:2", "hello") + "\n", "stream": "stdout", "time": "x"}),
        in_json("vllm.v1.engine.core", "hello"),
        f"[2026-11-20 21:44:52,123] [INFO] [vllm.v1.metrics.loggers] {STATS}",
    ],
)
def test_on_its_own_analyze_trusts_a_log_only_until_it_shows_a_header(header: str) -> None:
    found, counters = read([b"Starting.", SPEC.encode(), header.encode(), SPEC.encode()], "auto")
    assert not any(isinstance(event, SpecDecoding) for event in found)
    assert counters.unsigned_lines == 0
    scanner = LogScanner(counters, trust="auto")
    for line, events in ((SPEC, 1), (header, 0), (SPEC, 0)):
        buffer = bytearray(f"{line}\n".encode())
        found = scanner.scan(buffer, len(buffer))
        assert len([event for event in found if isinstance(event, SpecDecoding)]) == events, line


def test_a_file_that_prints_users_text_is_never_trusted() -> None:
    for tag in ("request_logger.py:65", "logger.py:43", "entrypoints/logger.py:43"):
        line = printed("INFO", tag, SPEC).encode()
        assert [read([line], trust)[0] for trust in ("server", "any", "auto")] == [[], [], []]
        assert read([line])[1].dropped["untrusted_lines"] == 0


def test_a_file_of_a_later_release_counts_only_on_trust() -> None:
    line = printed("INFO", "spec_log.py:7", SPEC).encode()
    assert read([line])[1].dropped["untrusted_lines"] == 1
    assert len(read([line], "any")[0]) == 1


def test_a_header_counts_only_at_the_beginning_of_a_line() -> None:
    header = "(APIServer pid=7) INFO 11-20 21:44:52 [metrics.py:120] "
    assert len(read([f"\r{header}{SPEC}".encode()])[0]) == 1
    assert len(read([f"Loading shards:  50% Completed | 1/2 [00:01<?, 1it/s]\r{header}{SPEC}".encode()])[0]) == 1
    for before in ("ValueError: you said\r", "the 50% of us\r", "    raise ", "  ", f"{header}hello\r"):
        assert read([f"{before}{header}{SPEC}".encode()])[0] == []
    joined = json.dumps({"log": f"ValueError: x\n{header}{SPEC}"})  # by a collector
    assert read([joined.encode()])[0] == []


@pytest.mark.parametrize("terminal", [False, True])
def test_a_line_end_in_a_request_makes_no_second_request(*, terminal: bool) -> None:
    text = f"a\nReceived request evil: params: {PARAMS}\nb"
    log = f"{printed('INFO', 'core.py:2', 'hello')}\n{PLACES['request id'](text)}\n{PLACES['request id']('own')}\n"
    log += f"{PLACES['request id']('other')}\n"
    if terminal:  # which ends all lines so
        log = log.replace("\n", "\r\n")
    found = [
        event.request_id
        for event in read([line.encode() for line in log.split("\n")])[0]
        if isinstance(event, RequestParams)
    ]
    assert found == (["evil", "cmpl-own", "cmpl-other"] if terminal else ["cmpl-own", "cmpl-other"])


def test_a_request_that_breaks_off_leaves_engines_and_errors_alone() -> None:
    header = "(APIServer pid=7) INFO 11-20 21:44:53 "
    log = [
        f"{header}[loggers.py:310] {STATS}",
        *PLACES["request id"]("x: params: SamplingParams(n=1, \nb").split("\n"),
        f"{header}[metrics.py:120] {SPEC}",
    ]
    found, counters = read([line.encode() for line in log])
    assert [event.engine for event in found if isinstance(event, SpecDecoding)] == ["000"]
    assert counters.parse_errors == 0
