"""The OpenAI API of the simulated predictor: ``/v1/completions``, ``/v1/chat/completions`` and ``/v1/models``.

Every answer is filler text with one word per token. ``n`` must be 1; sampling parameters have no effect.
"""

from __future__ import annotations

import asyncio
import dataclasses
import functools
import itertools
import json
from collections.abc import AsyncIterator, Callable
from typing import Any

from aiohttp import web

from specdec_exporter.simulator.engine import Engine

OWNED_BY = "specdec-exporter simulator"
_WORDS = ("simulated", "token", "draft", "accept", "reject", "verify", "step", "bonus")
_DEFAULT_COMPLETION_TOKENS = 16  # OpenAI's default for completions; chat has none

Now = Callable[[], Engine]
"""Returns the engine, advanced to this moment."""


class OpenAIApi:
    """The handlers. ``now`` gives the engine; ``wake`` tells its owner that it has new work."""

    def __init__(self, now: Now, wake: Callable[[], None], *, created: int) -> None:
        self._now = now
        self._wake = wake
        self._created = created
        self._ids = itertools.count(1)

    def routes(self) -> list[web.RouteDef]:
        """Return the routes of this API."""
        return [
            web.get("/v1/models", self._models),
            web.post("/v1/completions", functools.partial(self._generate, chat=False)),
            web.post("/v1/chat/completions", functools.partial(self._generate, chat=True)),
        ]

    async def _models(self, _: web.Request) -> web.Response:
        settings = self._now().settings
        model = {
            "id": settings.model_name,
            "object": "model",
            "created": self._created,
            "owned_by": OWNED_BY,
            "root": settings.model,
            "parent": None,
            "max_model_len": settings.max_model_len,
        }
        return web.json_response({"object": "list", "data": [model]})

    async def _generate(self, request: web.Request, *, chat: bool) -> web.StreamResponse:
        body = await _json_object(request)
        engine = self._now()
        if (model := body.get("model", engine.settings.model_name)) != engine.settings.model_name:
            raise _error(web.HTTPNotFound, f"The model `{model}` does not exist.", "NotFoundError")
        prompt_tokens = _count_prompt_tokens(body, chat=chat)
        room = engine.settings.max_model_len - prompt_tokens
        asked = body.get("max_completion_tokens") if chat else None
        asked = body.get("max_tokens") if asked is None else asked
        max_tokens = asked if asked is not None else (room if chat else min(room, _DEFAULT_COMPLETION_TOKENS))
        if not isinstance(max_tokens, int) or not 1 <= max_tokens <= room:
            raise _bad_request(
                f"max_tokens: expected 1 to {room} (max_model_len {engine.settings.max_model_len} "
                f"minus {prompt_tokens} prompt tokens), found {max_tokens!r}"
            )
        if body.get("n", 1) != 1:
            raise _bad_request("n: expected 1, because the simulator gives one choice")
        include_usage = bool((body.get("stream_options") or {}).get("include_usage"))
        answer = _Answer(
            f"{'chatcmpl' if chat else 'cmpl'}-simulated-{next(self._ids)}",
            self._created,
            engine.settings.model_name,
            prompt_tokens,
            chat=chat,
        )
        queue: asyncio.Queue[tuple[int, str | None]] = asyncio.Queue()
        submitted = engine.submit(
            prompt_tokens=prompt_tokens,
            max_tokens=max_tokens,
            ignore_eos=bool(body.get("ignore_eos")),
            on_tokens=lambda tokens, reason: queue.put_nowait((tokens, reason)),
        )
        self._wake()
        try:
            if body.get("stream"):
                return await _stream(request, answer, _pieces(queue), include_usage=include_usage)
            async for tokens, reason in _pieces(queue):
                answer.add(tokens, reason)
            return web.json_response(answer.whole())
        except (_LostError, ConnectionResetError):  # the predictor restarts, or the client went away
            if request.transport:
                request.transport.abort()
            return web.Response(status=503)
        finally:
            self._now().abort(submitted)


@dataclasses.dataclass
class _Answer:
    """The answer to one request of either API, whole or in pieces."""

    identifier: str
    created: int
    model: str
    prompt_tokens: int
    chat: bool
    tokens: int = 0
    reason: str | None = None

    def add(self, tokens: int, reason: str | None) -> str:
        """Take new tokens; return their text."""
        first, self.tokens, self.reason = self.tokens, self.tokens + tokens, reason
        return _text(first, self.tokens)

    def whole(self) -> dict[str, Any]:
        """Return the answer to a request without ``stream``."""
        text = _text(0, self.tokens)
        content = {"message": {"role": "assistant", "content": text}} if self.chat else {"text": text}
        return self._frame([self._choice(content)], stream=False) | {"usage": self.usage()}

    def opening(self) -> dict[str, Any] | None:
        """Return the first piece of a chat stream, which names the role."""
        if not self.chat:
            return None
        return self._frame([self._choice({"delta": {"role": "assistant", "content": ""}})], stream=True)

    def piece(self, text: str) -> dict[str, Any]:
        """Return one piece of a stream."""
        content = {"delta": {"content": text}} if self.chat else {"text": text}
        return self._frame([self._choice(content)], stream=True)

    def closing(self) -> dict[str, Any]:
        """Return the last piece for ``stream_options.include_usage``: the usage without a choice."""
        return self._frame([], stream=True) | {"usage": self.usage()}

    def usage(self) -> dict[str, int]:
        """Return the token counts."""
        total = self.prompt_tokens + self.tokens
        return {"prompt_tokens": self.prompt_tokens, "completion_tokens": self.tokens, "total_tokens": total}

    def _choice(self, content: dict[str, Any]) -> dict[str, Any]:
        return {"index": 0, **content, "logprobs": None, "finish_reason": self.reason}

    def _frame(self, choices: list[dict[str, Any]], *, stream: bool) -> dict[str, Any]:
        kind = "text_completion"
        if self.chat:
            kind = "chat.completion.chunk" if stream else "chat.completion"
        return {"id": self.identifier, "object": kind, "created": self.created, "model": self.model, "choices": choices}


async def _stream(
    request: web.Request, answer: _Answer, pieces: AsyncIterator[tuple[int, str | None]], *, include_usage: bool
) -> web.StreamResponse:
    response = web.StreamResponse(headers={"Content-Type": "text/event-stream; charset=utf-8"})
    await response.prepare(request)
    if opening := answer.opening():
        await response.write(_event(opening))
    async for tokens, reason in pieces:
        await response.write(_event(answer.piece(answer.add(tokens, reason))))
    if include_usage:
        await response.write(_event(answer.closing()))
    await response.write(b"data: [DONE]\n\n")
    await response.write_eof()
    return response


class _LostError(Exception):
    """The predictor restarted under the request."""


async def _pieces(queue: asyncio.Queue[tuple[int, str | None]]) -> AsyncIterator[tuple[int, str | None]]:
    """Yield tokens as they come, up to the last. Raises :class:`_LostError` when the predictor restarts."""
    while True:
        tokens, reason = await queue.get()
        if reason == "restart":
            raise _LostError
        yield tokens, reason
        if reason:
            return


def _count_prompt_tokens(body: dict[str, Any], *, chat: bool) -> int:
    """Count token ids; of text, four characters are a token. Raises HTTP 400 for anything else."""
    if chat:
        messages = body.get("messages")
        if not isinstance(messages, list) or not messages or not all(isinstance(m, dict) for m in messages):
            raise _bad_request("messages: expected a list of messages")
        return sum(_tokens_of_text(json.dumps(message.get("content", ""))) for message in messages)
    prompt = body.get("prompt")
    if isinstance(prompt, list) and len(prompt) == 1 and isinstance(prompt[0], (str, list)):
        prompt = prompt[0]
    if isinstance(prompt, str) and prompt:
        return _tokens_of_text(prompt)
    if isinstance(prompt, list) and prompt and all(isinstance(token, int) for token in prompt):
        return len(prompt)
    raise _bad_request("prompt: expected a text or a list of token ids that is not empty")


def _tokens_of_text(text: str) -> int:
    return -(-len(text) // 4)


def _text(first: int, end: int) -> str:
    return "".join(f" {_WORDS[index % len(_WORDS)]}" for index in range(first, end))


def _event(data: dict[str, Any]) -> bytes:
    return b"data: " + json.dumps(data).encode() + b"\n\n"


async def _json_object(request: web.Request) -> dict[str, Any]:
    try:
        body = await request.json()
    except (json.JSONDecodeError, UnicodeDecodeError):
        raise _bad_request("the body is not JSON") from None
    if not isinstance(body, dict):
        raise _bad_request("the body is not a JSON object")
    return body


def _bad_request(message: str) -> web.HTTPException:
    return _error(web.HTTPBadRequest, message, "BadRequestError")


def _error(kind: type[web.HTTPClientError], message: str, name: str) -> web.HTTPException:
    error = {"message": message, "type": name, "param": None, "code": kind.status_code}
    return kind(text=json.dumps({"error": error}), content_type="application/json")
