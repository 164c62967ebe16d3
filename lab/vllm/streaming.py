"""Clients that stream their answers and keep their own clock: what users get, whatever a server counts of itself."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import itertools
import json
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from statistics import fmean
from typing import Final, NamedTuple

import aiohttp

from vllm.language import Prompt
from vllm.server import MODEL_NAME, Server

_EVENT: Final = b"data: "
_DONE: Final = b"[DONE]"
_REQUEST_SECONDS: Final = 120.0
_SETTLED: Final = 6  # answers, after which as many requests as later are in decode


@dataclasses.dataclass(frozen=True, slots=True)
class Traffic:
    """Requests of ``max_tokens`` output tokens: of ``clients`` in closed loops, or ``per_second``, evenly spaced."""

    prompts: Sequence[Prompt]
    max_tokens: int
    clients: int = 0
    per_second: float = 0.0


class Piece(NamedTuple):
    """Tokens that came at once; ``at`` on the monotonic clock."""

    at: float
    tokens: int


@dataclasses.dataclass(slots=True)
class Answer:
    """What has come of one answer so far."""

    pieces: list[Piece] = dataclasses.field(default_factory=list)
    ended: bool = False

    def seconds_per_token(self) -> float:
        """The time per output token of an answer that has ended: from the first token to the last one."""
        first, *others = self.pieces
        return (others[-1].at - first.at) / sum(piece.tokens for piece in others)


@dataclasses.dataclass(frozen=True, slots=True)
class Truth:
    """What clients got in a span. The time per output token is a mean over the ``requests`` that ended in it.

    ``requests_in_decode`` are in the mean between their first token and their last one; they wait for
    ``decode_seconds_per_token`` for each token of the span that is not a first one.
    """

    seconds: float
    requests: int
    tokens_per_second: float
    time_per_output_token_seconds: float
    decode_seconds_per_token: float
    requests_in_decode: float


def truth(answers: Sequence[Answer], begin: float, end: float) -> Truth:
    """What came from ``begin`` to ``end``, on the monotonic clock."""
    ended = [answer for answer in answers if answer.ended and begin <= answer.pieces[-1].at <= end]
    tokens = sum(piece.tokens for answer in answers for piece in answer.pieces if begin <= piece.at <= end)
    decoded, waited = 0, 0.0
    for before, piece in itertools.chain.from_iterable(itertools.pairwise(answer.pieces) for answer in answers):
        if begin <= piece.at <= end:
            decoded += piece.tokens
            waited += piece.at - before.at
    return Truth(
        seconds=end - begin,
        requests=len(ended),
        tokens_per_second=tokens / (end - begin),
        time_per_output_token_seconds=fmean(answer.seconds_per_token() for answer in ended),
        decode_seconds_per_token=waited / decoded,
        requests_in_decode=waited / (end - begin),
    )


@contextlib.contextmanager
def streaming(server: Server, traffic: Traffic) -> Iterator[list[Answer]]:
    """Send ``traffic`` until the block ends, which begins when the load has settled; all answers are in the list."""
    answers: list[Answer] = []
    settled, ended = threading.Event(), threading.Event()
    with ThreadPoolExecutor(1) as pool:
        sending = pool.submit(lambda: asyncio.run(_send(server, traffic, answers, settled, ended)))
        sending.add_done_callback(lambda _: settled.set())  # it failed: nobody waits for ever
        try:
            settled.wait()
            if sending.done():
                sending.result()
            yield answers
        finally:
            ended.set()
    sending.result()


async def _send(
    server: Server, traffic: Traffic, answers: list[Answer], settled: threading.Event, ended: threading.Event
) -> None:
    waiting = itertools.cycle(traffic.prompts)
    timeout = aiohttp.ClientTimeout(total=_REQUEST_SECONDS)
    async with aiohttp.ClientSession(server.url, timeout=timeout) as session, asyncio.TaskGroup() as requests:

        async def ask() -> None:
            answers.append(answer := Answer())
            await _stream(session, next(waiting), traffic.max_tokens, answer)
            if sum(each.ended for each in answers) >= _SETTLED:
                settled.set()

        async def ask_again() -> None:
            while not ended.is_set():
                await ask()

        for _ in range(traffic.clients):
            requests.create_task(ask_again())
        if traffic.per_second:
            began = time.monotonic()
            for number in itertools.count():
                await asyncio.sleep(began + number / traffic.per_second - time.monotonic())
                if ended.is_set():
                    break
                requests.create_task(ask())


async def _stream(session: aiohttp.ClientSession, prompt: Prompt, max_tokens: int, answer: Answer) -> None:
    """Send one request and note when its tokens come."""
    asked = {"prompt": prompt, "max_tokens": max_tokens, "temperature": 0, "ignore_eos": True}
    body = {"model": MODEL_NAME, "stream": True, "return_token_ids": True} | asked
    async with session.post("/v1/completions", json=body) as response:
        response.raise_for_status()
        async for line in response.content:
            if line.startswith(_EVENT) and not line.startswith(_EVENT + _DONE):
                event, at = json.loads(line.removeprefix(_EVENT)), time.monotonic()
                if tokens := sum(len(choice["token_ids"] or ()) for choice in event["choices"]):
                    answer.pieces.append(Piece(at, tokens))
    assert sum(piece.tokens for piece in answer.pieces) == max_tokens, answer
    answer.ended = True
