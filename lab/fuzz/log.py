"""The predictor's log: however it is cut into pieces, it says the same; and it makes sense."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any

import msgspec

from fuzz.mutation import pieces
from fuzz.target import Target, captured, chosen_by, require_numbers
from specdec_exporter.predictor.log.container import detect_format, unwrap
from specdec_exporter.predictor.log.counters import ReaderCounters
from specdec_exporter.predictor.log.events import EngineStats, Event, LogEvent, Malformed, SpecDecoding
from specdec_exporter.predictor.log.line import read_line
from specdec_exporter.predictor.log.lines import CHUNK_BYTES
from specdec_exporter.predictor.log.scan import LogFormat, LogScanner
from specdec_exporter.predictor.log.start import seconds_between
from specdec_exporter.predictor.sources.stream import Pieces
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
)

MESSAGES = [
    *(SPEC, SPEC_0_9, SPEC_0_8_3, SPEC_V0, STATS, CONFIG, ARGUMENTS),
    f"Received request cmpl-1: prompt: 'it\\'s', params: {PARAMS}, lora_request: None.",
    "WARNING: min_p, logit_bias, and min_tokens parameters won't work with speculative decoding.",
]
HEADERS = [
    *(HEADER, "INFO 11-20 21:44:52 [metrics.py:96] ", "INFO 11-20 21:44:52 metrics.py:489] "),
    *(
        "(EngineCore_DP0 pid=9) WARNING 11-20 21:44:52 [speculative.py:5] ",
        "[2026-11-20 21:44:52,123] [INFO] [vllm.x] ",
    ),
]
WORDS = [
    *(message.encode() for message in (*MESSAGES, *HEADERS)),
    *(field.encode() + b", " for field in EXTRA_FIELDS),
    *(b"Accepted: ", b"Drafted: ", b" tokens, ", b"0.800, ", b"SpecDecoding metrics: ", b"SpeculativeConfig("),
    *(
        b"non-default args: {",
        b"speculative_config=",
        b"\\n",
        b'{"message": "',
        b'", "name": "vllm.v1"}\n',
        b" stdout F ",
    ),
    *(b"2026-11-20T21:44:52.123456789Z stdout P ", b"2026-11-20T21:44:52+01:00 stderr F ", b'{"log":"', b"|"),
    *(
        b'{"body": {"stringValue": "',
        b'[{"jsonPayload": {',
        b'"MESSAGE":[27,',
        b'"content": {',
        b'","',
        b'{app="vllm"} ',
    ),
    *(b" [5001,5001][loggers.py:271,log]", b"loggers.log: ", b" [repeated 2x across cluster]", b"[pod/x/y] "),
    *(b'\\n","stream":"stdout","time":"2026-11-20T21:44:52Z"}\n', b"  5%|#####     | 1/9 [00:01<00:08]\r", b"\n,"),
]


def lines() -> list[bytes]:
    """Single lines: of every wording under every header, and the cases that people wrote."""
    cases = [json.loads(line)["line"] for line in (FIXTURES / "logcases.jsonl").read_text().splitlines()]
    return [(header + message).encode() for header in HEADERS for message in MESSAGES] + [
        case.encode() for case in cases[::5]
    ]


def plain_logs() -> list[bytes]:
    some = lines()
    return [*captured("*.log"), *(b"\n".join(some[start::7]) + b"\n" for start in range(7))]


def framed(log: bytes, kind: str) -> bytes:
    """As a container's runtime writes it."""
    texts = log.decode("utf-8", "replace").split("\n")
    if kind == "docker":
        framed_lines = [
            json.dumps(
                {"log": f"{text}\n", "stream": "stdout", "time": "2026-11-20T21:44:52.1Z"}, separators=(",", ":")
            )
            for text in texts
        ]
    else:
        framed_lines = [f"2026-11-20T21:44:{i % 60:02}.{i:09}Z stderr F {text}" for i, text in enumerate(texts)]
    return "\n".join([*framed_lines, ""]).encode()


def logs() -> list[bytes]:
    plain = plain_logs()
    return [*plain, *(framed(log, kind) for log in plain[-4:] for kind in ("cri", "docker"))]


# --- what must hold ---------------------------------------------------------------------------------------------------


def require_event(event: Event) -> None:
    """Its numbers make sense, and JSON carries it unchanged."""
    assert isinstance(event, LogEvent)
    assert msgspec.json.decode(msgspec.json.encode(event), type=Event) == event
    if event.pid is not None:
        assert event.pid >= 0
    assert seconds_between(event.timestamp, event.timestamp) in (None, 0.0)
    for value in _flat(msgspec.structs.astuple(event)):
        if isinstance(value, float):
            require_numbers([abs(value)])
    if isinstance(event, SpecDecoding):
        assert 0 <= event.accepted_tokens <= event.draft_tokens
        expected = event.accepted_tokens / event.draft_tokens if event.draft_tokens else None
        assert event.acceptance_ratio == expected
        require_numbers([event.mean_acceptance_length, event.accepted_throughput, event.drafted_throughput])
        require_numbers([event.system_efficiency, event.emitted_tokens, event.num_speculative_tokens])
        curve = event.per_position
        assert curve is None or all(0 <= later <= earlier for earlier, later in pairwise((1.0, *curve)))
        assert curve is None or len(curve) == event.num_speculative_tokens
    if isinstance(event, EngineStats):
        require_numbers([event.prompt_throughput, event.generation_throughput, event.running, event.waiting])
        require_numbers([event.kv_cache_usage_ratio, event.prefix_cache_hit_ratio])


def _flat(values: tuple[Any, ...]) -> list[Any]:
    return [each for value in values for each in (value if isinstance(value, tuple) else (value,))]


def check_line(line: bytes) -> None:
    """One line, whoever wrote it: what it says makes sense."""
    for said in read_line(line.replace(b"\n", b" ").decode("utf-8", "replace"), any_writer=True):
        if isinstance(said, Malformed):
            assert said.reason
        else:
            require_event(said)


def check_log(log: bytes) -> None:
    """A log, read whole and in pieces."""
    source = chosen_by(log)
    log_format: LogFormat = source.choice(("plain", "cri", "docker"))
    whole, counted = read([log], log_format)
    assert (whole, counted) == read(pieces(log, source, source.choice((len(log) // 100 + 2, 100, 5000))), log_format)
    for event in whole:
        require_event(event)
    assert counted.matched_lines == len(whole)
    read([log], "auto")


def read(parts: list[bytes], log_format: LogFormat) -> tuple[list[Event], ReaderCounters]:
    counters = ReaderCounters()
    stream = Pieces(LogScanner(counters, log_format=log_format), counters)
    events = [event for part in parts for event in stream.feed(part)]
    events += stream.finish()
    counters.last_line_timestamp = None
    return events, counters


def check_container(line: bytes) -> None:
    """A line of a container's log: what is unwrapped stands in the line."""
    line = line.replace(b"\n", b" ")
    detected = detect_format(line)
    assert detected != "cri" or unwrap(line, "cri") is not None
    assert detected != "docker" or unwrap(line, "docker") is not None
    if (piece := unwrap(line, "cri")) is not None:
        assert line.endswith(piece.payload)
        assert piece.timestamp is not None
        assert line.startswith(f"{piece.timestamp} {piece.stream} {'P' if piece.partial else 'F'}".encode())
    if (piece := unwrap(line, "docker")) is not None:
        try:
            said = json.loads(line)
        except ValueError:  # in a part that is not read, which msgspec does not check
            return
        assert piece.payload == said["log"].removesuffix("\n").encode()
        assert piece.partial is not said["log"].endswith("\n")


TARGETS = (
    Target("log line", check_line, lines, WORDS),
    Target("log", check_log, logs, WORDS, CHUNK_BYTES // 2, share=3),
    Target("container line", check_container, lambda: [*framed_lines()], WORDS),
)


def framed_lines() -> list[bytes]:
    return [line for log in logs() for line in log.splitlines()[:30] if detect_format(line)]
