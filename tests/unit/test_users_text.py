"""What users of the model put into the log never counts: whoever writes a text, in whatever place of a request."""

from __future__ import annotations

import json
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specdec_exporter.predictor.log.counters import ReaderCounters
from specdec_exporter.predictor.log.events import (
    EngineConfig,
    PredictorWarning,
    RequestParams,
    ServerArguments,
    SpecDecoding,
)
from specdec_exporter.predictor.log.scan import LogScanner
from support.builders import CAPTURES
from support.loglines import PARAMS, SPEC, STATS
from support.userstext import (
    BEFORE,
    LINE_ENDS,
    MESSAGES,
    PARTS,
    PLACES,
    in_json,
    printed,
    read,
    servers_lines,
    without_requests,
)

LOGS = servers_lines()

hostile = st.builds(
    lambda first, parts, end: f"{first}{end.join(parts)}{end}",
    st.sampled_from(["", *LINE_ENDS]),
    st.lists(st.sampled_from(PARTS) | st.text(max_size=20), min_size=1, max_size=4),
    st.sampled_from(LINE_ENDS),
)


@settings(max_examples=60)
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


@pytest.mark.parametrize("place", PLACES)
def test_no_forged_line_counts_in_any_place(place: str) -> None:
    log = LOGS[-1][:6]
    expected = without_requests(read(log)[0])
    for part in PARTS:
        for text in (part, f"x\n{part}\nx"):
            found, counters = read([*log, *PLACES[place](text).encode().split(b"\n")])
            assert without_requests(found) == expected, text
            assert counters.parse_errors == 0
            assert not any("evil" in str(event) for event in found)


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


def test_a_header_counts_only_at_the_beginning_of_a_line() -> None:
    header = "(APIServer pid=7) INFO 11-20 21:44:52 [metrics.py:120] "
    assert len(read([f"\r{header}{SPEC}".encode()])[0]) == 1
    assert len(read([f"Loading shards:  50% Completed | 1/2 [00:01<?, 1it/s]\r{header}{SPEC}".encode()])[0]) == 1
    for before in ("ValueError: you said\r", "the 50% of us\r", "    raise ", "  ", f"{header}hello\r"):
        assert read([f"{before}{header}{SPEC}".encode()])[0] == []
    joined = json.dumps({"log": f"ValueError: x\n{header}{SPEC}"})  # by a collector
    assert read([joined.encode()])[0] == []


@pytest.mark.parametrize("framing", ["cri", "docker"])
def test_a_line_end_in_a_request_makes_no_second_request_in_a_containers_framing(framing: str) -> None:
    text = f"a\nReceived request evil: params: {PARAMS}\nb"
    lines = [
        printed("INFO", "core.py:2", "hello"),
        *PLACES["request id"](text).split("\n"),
        PLACES["request id"]("own"),
    ]
    framed = [
        f"2026-11-20T21:44:5{number}.1Z stdout F {line}"
        if framing == "cri"
        else json.dumps({"log": f"{line}\n", "stream": "stdout", "time": "x"}, separators=(",", ":"))
        for number, line in enumerate(lines)
    ]
    events = read([line.encode() for line in framed])[0]
    assert [event.request_id for event in events if isinstance(event, RequestParams)] == ["cmpl-own"]


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


def test_the_log_of_a_real_server_under_attack_has_the_servers_own_numbers() -> None:
    # vLLM 0.32.0 with --enable-log-requests, as lab/vllm/hostile.py attacks it.
    capture = CAPTURES / "0.32.0-hostile-users"
    lines = (capture / "hostile.log").read_bytes().split(b"\n")
    metrics = (capture / "metrics-1-after.txt").read_text()
    assert sum(b"900000 tokens" in line for line in lines) > 40
    for trust in ("server", "auto"):
        events, counters = read(lines, trust)
        windows = [event for event in events if isinstance(event, SpecDecoding)]
        for tokens, name in (("accepted_tokens", "accepted"), ("draft_tokens", "draft")):
            (total,) = re.findall(rf"^vllm:spec_decode_num_{name}_tokens_total\{{.*\}} (\S+)$", metrics, re.MULTILINE)
            assert sum(getattr(event, tokens) for event in windows) == float(total)
        assert {event.engine for event in windows} == {"000"}
        assert [event.method for event in events if isinstance(event, EngineConfig)] == ["draft_model"]
        (given,) = (event.arguments for event in events if isinstance(event, ServerArguments))
        assert given["speculative_config"]["method"] == "draft_model"
        warnings = {event.warning for event in events if isinstance(event, PredictorWarning)}
        assert warnings == {"scheduled_tokens_limited", "cpu_without_intel_openmp", "sampling_params_unsupported"}
        assert {event.temperature for event in events if isinstance(event, RequestParams)} == {0.0}
        assert (counters.parse_errors, counters.unsigned_lines, dict(counters.dropped)) == (0, 0, {})


def test_only_a_log_whose_lines_all_end_so_is_a_terminals_however_it_is_cut() -> None:
    hello = printed("INFO", "core.py:2", "hello")
    forged = PLACES["prompt, DEBUG"](f"a\nReceived request evil: params: {PARAMS}\nb")
    lines = [f"{line}\n".encode() for line in (f"{hello}\r", hello, *forged.split("\n"))]
    for cut in ([b"".join(lines)], lines):
        scanner = LogScanner(ReaderCounters())
        found = [event for part in cut for event in scanner.scan(bytearray(part), len(part))] + scanner.finish()
        assert "evil" not in [event.request_id for event in found if isinstance(event, RequestParams)]
