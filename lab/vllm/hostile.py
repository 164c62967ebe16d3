"""Requests of a hostile user: every text of a request that vLLM may print says lines of vLLM's own log."""

from __future__ import annotations

import contextlib
import http.client
import json
import socket
import time
from collections.abc import Iterator, Sequence
from typing import Any, Final
from urllib.parse import quote

from vllm.language import CHORUS
from vllm.server import MODEL_NAME, Server

ARGUMENTS: Final = (
    "--enable-log-requests",
    "--enable-log-outputs",
    "--trust-request-chat-template",
    "--log-error-stack",
)
# Of no real server here: whatever counts one of these was misled.
FORGED: Final = {
    "loggers.py:310": (
        "Engine 007: Avg prompt throughput: 1.0 tokens/s, Avg generation throughput: 9.0 tokens/s, Running: 77 reqs, "
        "Waiting: 0 reqs, GPU KV cache usage: 0.1%, Prefix cache hit rate: 0.0%"
    ),
    "metrics.py:120": (
        "SpecDecoding metrics: Mean acceptance length: 4.00, Accepted throughput: 9.00 tokens/s, Drafted throughput: "
        "9.00 tokens/s, Accepted: 900000 tokens, Drafted: 900000 tokens, "
        "Per-position acceptance rate: 1.000, 1.000, 1.000, Avg Draft acceptance rate: 100.0%"
    ),
    "core.py:114": (
        "Initializing a V1 LLM engine (v9.9.9) with config: model='evil', "
        "speculative_config=SpeculativeConfig(method='eagle3', model='/evil', num_spec_tokens=9), x=1"
    ),
    "api_utils.py:286": "non-default args: {'speculative_config': {'method': 'evil', 'num_speculative_tokens': 9}}",
    "__init__.py:211": "Enabling num_speculative_tokens > 1 will run multiple times of forward",
    "request_logger.py:65": (
        "Received request evil: params: SamplingParams(n=1, temperature=1.9, top_p=0.1), lora_request: None."
    ),
}


def forged(newline: str) -> str:
    """All forged messages, each with its header and bare."""
    now = time.strftime("%m-%d %H:%M:%S")
    headed = [f"(APIServer pid=1) INFO {now} [{file}] {message}" for file, message in FORGED.items()]
    return newline + newline.join([*headed, *FORGED.values()]) + newline


def attack(server: Server, newlines: Sequence[str] = ("\n", "\r")) -> None:
    """Send a forged text with each of these line ends in every place of a request. The server may answer anything."""
    for newline in newlines:
        text = forged(newline)
        for path, body in _requests(text):
            _post(server, path, json.dumps(body).encode())
        _post(server, "/v1/completions", text.encode())
        _post(server, f"/{quote(text)}?{quote(text)}", b"{}")
        one_line = text.replace("\n", "\t").replace("\r", "\t")
        sound = {"model": MODEL_NAME, "prompt": CHORUS, "max_tokens": 4, "temperature": 0}
        _post(server, "/v1/completions", json.dumps(sound).encode(), {"X-Request-Id": one_line.encode()})
        for raw in (text, one_line):
            for request in (
                f"GET /{raw}?{raw} HTTP/1.1\r\nHost: x\r\n\r\n",
                f"{raw} / HTTP/1.1\r\nHost: x\r\n\r\n",
                f"GET / HTTP/1.1\r\nHost: {raw}\r\nX-Request-Id: {raw}\r\nUser-Agent: {raw}\r\n\r\n",
            ):
                _send(server, request.encode())


def _requests(text: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Path and body of each request that has a place for a text."""
    sound: dict[str, Any] = {"model": MODEL_NAME, "prompt": CHORUS, "max_tokens": 4, "temperature": 0}
    completions: list[dict[str, Any]] = [
        *({key: text} for key in ("prompt", "model", "request_id", "user", "temperature", "cache_salt", text)),
        *({"structured_outputs": {key: text}} for key in ("regex", "grammar")),
        {"structured_outputs": {"json": {text: text}}},
        {"structured_outputs": {"choice": [text]}},
        {"response_format": {"type": text}},
        {"stop": [text]},
        {"bad_words": [text]},
        {"vllm_xargs": {text: text}},
        {"logit_bias": {text: 1}},
    ]
    for fields in completions:
        yield "/v1/completions", sound | fields
    says = {"role": "user", "content": text}
    chat: dict[str, Any] = {"model": MODEL_NAME, "max_tokens": 4, "temperature": 0, "messages": [says]}
    chats: list[dict[str, Any]] = [
        {},
        {"chat_template": text},
        {"chat_template": "{{ raise_exception(messages[0].content) }}"},
        {"chat_template": "{{ messages[0].content }}{% if %}"},
        {"chat_template": "{{ messages[0].content }}", "chat_template_kwargs": {text: text}},
        {"messages": [{"role": text, "content": "w17"}]},
        {"messages": [{"role": "user", "content": [{"type": text, "text": "w17"}]}]},
        {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": text}}]}]},
        {"tools": [{"type": "function", "function": {"name": text, "parameters": {"type": text}}}]},
        {"tool_choice": {"type": "function", "function": {"name": text}}},
    ]
    for fields in chats:
        yield "/v1/chat/completions", chat | fields
    yield "/v1/embeddings", {"model": MODEL_NAME, "input": text}
    yield "/tokenize", {"model": MODEL_NAME, "prompt": text}
    yield "/detokenize", {"model": text, "tokens": [17]}


def _post(server: Server, path: str, body: bytes, headers: dict[str, bytes] | None = None) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
    with contextlib.closing(connection), contextlib.suppress(OSError, http.client.HTTPException, ValueError):
        connection.request("POST", path, body, {"Content-Type": "application/json", **(headers or {})})
        connection.getresponse().read()


def _send(server: Server, request: bytes) -> None:
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", server.port), timeout=10) as connection:
        connection.sendall(request)
        connection.shutdown(socket.SHUT_WR)
        while connection.recv(65536):
            pass
