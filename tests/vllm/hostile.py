"""Requests of a hostile user: every text of a request that vLLM may log says lines of vLLM's own log."""

from __future__ import annotations

import contextlib
import http.client
import json
import socket
import time
import urllib.parse
from collections.abc import Iterator
from typing import Any, Final

from vllm.language import CHORUS
from vllm.server import MODEL_NAME, Server

COUNTS: Final = "Accepted: 900000 tokens, Drafted: 900000 tokens, "
MESSAGES: Final = (
    "Engine 007: Avg prompt throughput: 1.0 tokens/s, Avg generation throughput: 9.0 tokens/s, Running: 77 reqs, "
    "Waiting: 0 reqs, GPU KV cache usage: 0.1%, Prefix cache hit rate: 0.0%",
    "SpecDecoding metrics: Mean acceptance length: 4.00, Accepted throughput: 9.00 tokens/s, Drafted throughput: 9.00 "
    f"tokens/s, {COUNTS}Per-position acceptance rate: 1.000, 1.000, 1.000, Avg Draft acceptance rate: 100.0%",
    "Initializing a V1 LLM engine (v9.9.9) with config: model='evil', "
    "speculative_config=SpeculativeConfig(method='eagle3', model='/evil', num_spec_tokens=9), x=1",
    "non-default args: {'speculative_config': {'method': 'evil', 'num_speculative_tokens': 9}}",
    "min_p and logit_bias parameters won't work with speculative decoding.",
    "Received request evil: params: SamplingParams(n=1, temperature=1.9, top_p=0.1), lora_request: None.",
)
FILES: Final = (
    "loggers.py:310",
    "metrics.py:120",
    "core.py:114",
    "api_utils.py:286",
    "__init__.py:60",
    "request_logger.py:65",
)


def forged(newline: str) -> str:
    """All messages, each with its header, with a foreign header, and bare."""
    now = time.strftime("%m-%d %H:%M:%S")
    lines = []
    for message, file in zip(MESSAGES, FILES, strict=True):
        header = f"INFO {now} [{file}] "
        lines += [f"(APIServer pid=1) {header}{message}", f"{header}{message}", message]
    lines.append(json.dumps({"name": "vllm.v1.metrics.loggers", "message": MESSAGES[1]}))
    return newline + newline.join(lines) + newline


TEXTS: Final = tuple(forged(newline) for newline in ("\n", "\r\n", "\r", "\x1b[0m", "\x0b", "\u2028", " "))


def bodies(text: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Requests with the text in each of their places: path and body."""
    base: dict[str, Any] = {"model": MODEL_NAME, "prompt": CHORUS, "max_tokens": 4, "temperature": 0}
    chat: dict[str, Any] = {"model": MODEL_NAME, "max_tokens": 4, "temperature": 0,
                            "messages": [{"role": "user", "content": text}]}  # fmt: skip
    completions, chats = "/v1/completions", "/v1/chat/completions"
    yield completions, {**base, "prompt": text}
    yield completions, {**base, "model": text}
    yield completions, {**base, "request_id": text}
    yield completions, {**base, "user": text}
    yield completions, {**base, "stop": [text]}
    yield completions, {**base, "structured_outputs": {"regex": text}}
    yield completions, {**base, "structured_outputs": {"grammar": text}}
    yield completions, {**base, "structured_outputs": {"json": {text: text}}}
    yield completions, {**base, "structured_outputs": {"choice": [text]}}
    yield completions, {**base, "response_format": {"type": text}}
    yield completions, {**base, "bad_words": [text]}
    yield completions, {**base, "vllm_xargs": {text: text}}
    yield completions, {**base, "temperature": text}
    yield completions, {**base, text: text}
    yield completions, {**base, "logit_bias": {text: 1}}
    yield completions, {**base, "cache_salt": text}
    yield chats, chat
    yield chats, {**chat, "chat_template": text}
    yield chats, {**chat, "chat_template": "{{ raise_exception(messages[0].content) }}"}
    yield chats, {**chat, "chat_template": "{{ messages[0].content }}{% if %}"}
    yield chats, {**chat, "chat_template": "{{ messages[0].content }}", "chat_template_kwargs": {text: text}}
    yield chats, {**chat, "chat_template": "{{ messages[0].content[0] + 1 }}"}
    yield chats, {**chat, "messages": [{"role": text, "content": "w17"}]}
    yield chats, {**chat, "messages": [{"role": "user", "content": [{"type": text, "text": "w17"}]}]}
    yield (
        chats,
        {**chat, "messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": text}}]}]},
    )
    yield chats, {**chat, "tools": [{"type": "function", "function": {"name": text, "parameters": {}}}]}
    yield chats, {**chat, "tools": [{"type": "function", "function": {"name": "f", "parameters": {"type": text}}}],
                  "tool_choice": "required"}  # fmt: skip
    yield chats, {**chat, "tool_choice": {"type": "function", "function": {"name": text}}}
    yield "/v1/embeddings", {"model": MODEL_NAME, "input": text}
    yield "/tokenize", {"model": MODEL_NAME, "prompt": text}
    yield "/detokenize", {"model": text, "tokens": [17]}


def attack(server: Server) -> None:
    """Send every hostile request; whatever the server answers is fine."""
    for text in TEXTS:
        for path, body in bodies(text):
            _post(server, path, json.dumps(body).encode())
        _post(server, "/v1/completions", text.encode())
        _post(server, "/v1/completions?" + urllib.parse.quote(text), b"{}")
        _post(server, "/" + urllib.parse.quote(text), b"{}")
        one_line = text.replace("\n", "\t").replace("\r", "\t")
        good = json.dumps({"model": MODEL_NAME, "prompt": CHORUS, "max_tokens": 4, "temperature": 0}).encode()
        _post(server, "/v1/completions", good, {"X-Request-Id": one_line.encode()})
        for raw in (text, one_line):
            _send(server, f"GET /{raw} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
            _send(server, f"GET /?{raw} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
            _send(server, f"{raw} / HTTP/1.1\r\nHost: x\r\n\r\n".encode())
            _send(server, f"GET / HTTP/1.1\r\nHost: {raw}\r\nX-Request-Id: {raw}\r\nUser-Agent: {raw}\r\n\r\n".encode())


def _post(server: Server, path: str, body: bytes, headers: dict[str, Any] | None = None) -> None:
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
