"""Texts of a hostile user, and how vLLM prints them in each place of its log."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Final, get_args
from urllib.parse import quote

from specdec_exporter.predictor.log.counters import ReaderCounters
from specdec_exporter.predictor.log.events import Event, RequestParams, StartFailure
from specdec_exporter.predictor.log.scan import LogScanner, LogTrust
from support.builders import CAPTURES
from support.loglines import ARGUMENTS, CONFIG, PARAMS, SPEC, SPEC_0_9, SPEC_V0, STATS, parse_line

BEFORE: Final = "(APIServer pid=7) "
WARNING: Final = "min_p and logit_bias parameters won't work with speculative decoding."
START: Final = (
    "GPU KV cache size: 1 tokens",
    "init engine (profile, create kv cache, warmup model) took 1.00 s",
    "Starting vLLM server on http://evil",
)
KV_CACHE, INIT_ENGINE, READY = START
FORGED: Final = (
    *(f"INFO 11-20 21:44:52 [{file}] {message}" for file, message in (
        ("metrics.py:120", SPEC), ("metrics.py:82", SPEC_0_9), ("metrics.py:439", SPEC_V0), ("loggers.py:310", STATS),
        ("core.py:114", CONFIG.replace("draft_model", "eagle3")), ("api_utils.py:286", ARGUMENTS),
        ("kv_cache_utils.py:2327", KV_CACHE), ("core.py:402", INIT_ENGINE), ("entry.py:140", READY),
        ("request_logger.py:65", f"Received request evil: params: {PARAMS}, lora_request: None."),
    )),
    f"WARNING 11-20 21:44:52 [__init__.py:211] {WARNING}",
    *(json.dumps({"name": "vllm.v1.metrics.loggers", "levelname": "INFO", "message": text}) for text in (SPEC, STATS)),
)  # fmt: skip
MESSAGES: Final = (
    SPEC,
    SPEC_0_9,
    SPEC_V0,
    STATS,
    CONFIG,
    ARGUMENTS,
    WARNING,
    f"Received request x: params: {PARAMS}",
)
PARTS: Final = (
    *START,
    *FORGED,
    *(BEFORE + line for line in FORGED),
    *MESSAGES,
    "SpecDec",
    "Received request x: params: S",
)
LINE_ENDS: Final = ("\n", "\r\n", "\r", "\n\n", " ", "\x1b[0m", "\x0b", "\x85", "\u2028")


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
    for path in sorted(CAPTURES.glob("*/server.log")):
        lines = [line for line in path.read_bytes().split(b"\n") if b"\r" not in line]
        if found := [line for line in lines if parse_line(line) is not None][:12]:
            logs.append([b"Triton is not installed.", *found])
    return logs


def read(lines: list[bytes], trust: LogTrust = "server") -> tuple[list[Event], ReaderCounters]:
    counters = ReaderCounters()
    # Users' text before the server is ready cannot be: test_failedstart.py has what comes after.
    scanner = LogScanner(counters, trust=trust, kinds=frozenset(get_args(Event)) - {StartFailure})
    buffer = bytearray(b"".join(line + b"\n" for line in lines))
    return scanner.scan(buffer, len(buffer)) + scanner.finish(), counters


def without_requests(events: list[Event]) -> list[Event]:
    """The events that no single request may change."""
    return [event for event in events if not isinstance(event, RequestParams)]
