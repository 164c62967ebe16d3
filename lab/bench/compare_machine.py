"""A server with continuous batching: requests share every step, so what holds up one of them holds up all."""

from __future__ import annotations

import dataclasses
import heapq
import math
import random
from collections import deque
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import msgspec

from bench.compare_counters import POLL_SECONDS, Counters
from bench.compare_traffic import Request, Traffic, tokens_per_step
from specdec_exporter.predictor.metrics.snapshot import Snapshot

WARM_UP_SECONDS = 120.0
PREFILL_TOKENS = 2048
_STALL_SECONDS = (1.0, 4.0)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """Seconds of a step. Memory takes ``base`` and ``request`` for each in decode, arithmetic ``token`` for each token.

    They add up where ``sharpness`` is 1: a line. From 2 on the larger one counts more, a soft roofline; at infinity it
    counts alone. A draft token costs ``draft``, and ``draft_request`` for each request in decode.
    """

    base: float = 0.020
    request: float = 0.0
    token: float = 0.0001
    sharpness: float = 1.0
    draft: float = 0.0
    draft_request: float = 0.0

    def step(self, running: int, k: int, prompt_tokens: float) -> float:
        """Seconds of a step that decodes ``running`` requests with ``k`` draft tokens each, and reads prompts."""
        memory = self.base + self.request * running
        arithmetic = self.token * (running * (k + 1) + prompt_tokens)
        drafting = k * (self.draft + self.draft_request * running)
        if self.sharpness == math.inf:
            return drafting + max(memory, arithmetic)
        return drafting + math.pow(memory**self.sharpness + arithmetic**self.sharpness, 1.0 / self.sharpness)


class Trace(NamedTuple):
    """What a run met: from when on so many decoded, when which prompts were begun, and how many waited at each poll."""

    running: list[tuple[float, int]]
    prompts: list[tuple[float, int]]
    waiting: list[int]

    @classmethod
    def empty(cls) -> Trace:
        """Return one to fill."""
        return cls([], [], [])


class _Queue:
    """The requests that are to come, and those that wait for their prompts to be read, in their order."""

    def __init__(self, requests: Sequence[Request], trace: Trace | None) -> None:
        self.coming = deque(requests)
        self._waiting: deque[Request] = deque()
        self._left = 0  # prompt tokens of the first one that are still to be read
        self._trace = trace

    @property
    def next_arrival(self) -> float:
        """When the next request comes, in seconds."""
        return self.coming[0].arrival if self.coming else math.inf

    def read(self, now: float, slots: int) -> tuple[int, list[Request]]:
        """Return how many tokens of prompts the next step reads, and the requests whose prompt ends in it."""
        while self.coming and self.coming[0].arrival <= now:
            self._waiting.append(self.coming.popleft())
        read, ready = 0, list[Request]()
        while self._waiting and read < PREFILL_TOKENS and len(ready) < slots:
            if not self._left:
                self._left = self._waiting[0].computed
                if self._trace:
                    self._trace.prompts.append((now, self._left))
            part = min(self._left, PREFILL_TOKENS - read)
            read += part
            self._left -= part
            if not self._left:
                ready.append(self._waiting.popleft())
        return read, ready

    def polled(self) -> None:
        """Note how many wait."""
        if self._trace:
            self._trace.waiting.append(len(self._waiting))


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Server:
    """One engine; ``k`` is 0 without speculation.

    ``wander`` is the standard deviation of the logarithm of the steps' time, which drifts and forgets within
    ``wander_seconds``. ``stalls`` come so often an hour.
    """

    traffic: Traffic
    machine: Machine = Machine()
    slots: int = 128
    k: int = 0
    wander: float = 0.0
    wander_seconds: float = 60.0
    stalls: float = 0.0

    @property
    def calm(self) -> Server:
        """The same without the machine's noise."""
        return dataclasses.replace(self, wander=0.0, stalls=0.0)

    @property
    def plain(self) -> Server:
        """The same without drafts."""
        return dataclasses.replace(self, k=0)

    def polls(
        self,
        rng: random.Random,
        seconds: float,
        trace: Trace | None = None,
        *,
        engine: str = "0",
        requests: Sequence[Request] | None = None,
    ) -> Iterator[tuple[float, Snapshot]]:
        """Yield what a recorder reads at each poll from second 0 to ``seconds``, after a warm-up.

        ``requests``: in place of those that the traffic draws. Steps between two events are alike, so they are taken at
        once.
        """
        traffic, end = self.traffic, WARM_UP_SECONDS + seconds
        counters = Counters(self.k, traffic.acceptance, engine)
        queue = _Queue(traffic.arrivals(rng, end) if requests is None else requests, trace)
        running: list[tuple[int, float, float, Request]] = []  # a heap: last step, time of first token, tokens per step
        now, step, poll, tokens, level = 0.0, 0, 0.0, 0.0, rng.gauss(0.0, self.wander)
        stall = rng.expovariate(self.stalls / 3600.0) if self.stalls else math.inf
        factor = math.exp(level)
        alone = [self.machine.step(number, self.k, 0) for number in range(self.slots + 1)]
        while True:
            read, ready = queue.read(now, self.slots - len(running))
            number, steps = len(running), 1
            if read:
                took = factor * self.machine.step(number, self.k, read)
            elif number:
                took = factor * alone[number]
                until = min(poll, stall, queue.next_arrival)
                steps = max(1, min(running[0][0] - step, int((until - now) / took)))
                took *= steps
            else:
                took, steps = min(queue.next_arrival, end) - now + 1e-9, 0
            if now >= stall and steps:
                took += rng.uniform(*_STALL_SECONDS)
                stall = now + rng.expovariate(self.stalls / 3600.0)
            if trace:
                trace.running.append((now, number))
            now += took
            while poll < now:
                queue.polled()
                if poll >= WARM_UP_SECONDS:
                    yield poll - WARM_UP_SECONDS, counters.snapshot()
                if poll >= end:
                    return
                poll += POLL_SECONDS
                level = self._wandered(level, rng)
                factor = math.exp(level)
            step += steps
            counters.stepped(number * steps, took * number, tokens * steps)
            while running and running[0][0] <= step:
                _, first, rate, request = heapq.heappop(running)
                tokens = tokens - rate if running else 0.0
                counters.finished(now - request.arrival, now - first, request.prompt, request.answer)
                if traffic.clients:
                    queue.coming.append(traffic.request(rng, now))
            for request in ready:
                counters.first_token(now - request.arrival, request.prompt, request.cached)
                needed = self._steps(rng, request)
                rate = (request.answer - 1) / needed
                tokens += rate
                heapq.heappush(running, (step + needed, now, rate, request))

    def _steps(self, rng: random.Random, request: Request) -> int:
        """In how many steps a request gets all tokens but the first."""
        tokens = request.answer - 1
        if not self.k:
            return tokens
        rate = tokens_per_step(request.acceptance, self.k)
        scatter = (rate - 1.0) * tokens / rate**3  # variance of the steps: tokens of one step vary by about rate - 1
        return min(max(round(rng.gauss(tokens / rate, math.sqrt(scatter))), math.ceil(tokens / (self.k + 1))), tokens)

    def _wandered(self, level: float, rng: random.Random) -> float:
        """Return a level one poll later: it keeps its standard deviation, and forgets."""
        if not self.wander:
            return 0.0
        kept = math.exp(-POLL_SECONDS / self.wander_seconds)
        return kept * level + math.sqrt(1.0 - kept * kept) * rng.gauss(0.0, self.wander)


def side_by_side(
    engines: Sequence[Server],
    seed: str,
    seconds: float,
    traces: Sequence[Trace | None] = (),
    *,
    requests: Sequence[Request] | None = None,
) -> Iterator[tuple[float, Snapshot]]:
    """Yield the polls of a server of several engines, each with its own traffic; of one engine also by ``requests``."""
    polls = [
        server.polls(
            random.Random(f"{seed} {number}"),
            seconds,
            traces[number] if traces else None,
            engine=str(number),
            requests=requests,
        )
        for number, server in enumerate(engines)
    ]
    for each in zip(*polls, strict=True):
        found = tuple(engine for _, snapshot in each for engine in snapshot.engines)
        yield each[0][0], msgspec.structs.replace(each[0][1], engines=found)
