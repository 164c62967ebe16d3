"""A server with continuous batching: requests share every step, so what holds up one of them holds up all."""

from __future__ import annotations

import dataclasses
import heapq
import math
import random
from collections import deque
from collections.abc import Iterator

from bench.compare_counters import POLL_SECONDS, Counters
from bench.compare_traffic import Request, Traffic
from specdec_exporter.predictor.metrics.snapshot import Snapshot

WARM_UP_SECONDS = 120.0
_WANDER_SECONDS = 600.0
_EASE_SIGMA = 0.25  # of the logarithm of a request's accepted tokens per step
_SCATTER = 1.0  # variance of the tokens of one step, over the accepted ones
_STALL_SECONDS = (1.0, 4.0)


def _wandered(level: float, spread: float, rng: random.Random) -> float:
    """Return a level one poll later: it keeps its standard deviation, and forgets within ten minutes."""
    kept = math.exp(-POLL_SECONDS / _WANDER_SECONDS)
    return kept * level + math.sqrt(1.0 - kept * kept) * rng.gauss(0.0, spread)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Server:
    """One engine. A step takes a base time, more for each running request, and more for each prompt token it prefills.

    With ``k`` draft tokens a step gives a request ``tokens_per_step`` on average; drafting itself takes no time, as
    looking up n-grams does not. ``slowdown`` stretches everything. ``wander`` is the standard deviation of the
    logarithm of the steps' time, which drifts and forgets within ten minutes. ``stalls`` come so often an hour.
    """

    traffic: Traffic
    slots: int = 64
    base_seconds: float = 0.020
    request_seconds: float = 0.0004
    prompt_token_seconds: float = 0.00005
    prefill_tokens: int = 2048
    k: int = 0
    tokens_per_step: float = 1.0
    slowdown: float = 1.0
    wander: float = 0.0
    stalls: float = 0.0

    def polls(self, rng: random.Random, seconds: float) -> Iterator[tuple[float, Snapshot]]:
        """Yield what a recorder reads from second 0 to ``seconds``, after a warm-up."""
        counters, traffic, end = Counters(self.k, self.tokens_per_step), self.traffic, WARM_UP_SECONDS + seconds
        coming = deque(traffic.arrivals(rng, end))
        queue: deque[Request] = deque()
        left = 0  # prompt tokens of the first in the queue that are still to be prefilled
        running: list[tuple[int, float, float, Request]] = []  # a heap: last step, time of first token, tokens per step
        now, step, poll, tokens, level = 0.0, 0, 0.0, 0.0, rng.gauss(0.0, self.wander)
        while True:
            while coming and coming[0].arrival <= now:
                queue.append(coming.popleft())
            prefilled = 0
            ready: list[Request] = []
            while queue and prefilled < self.prefill_tokens and len(running) + len(ready) < self.slots:
                left = left or queue[0].prompt
                part = min(left, self.prefill_tokens - prefilled)
                prefilled += part
                left -= part
                if not left:
                    ready.append(queue.popleft())
            busy = bool(running) or prefilled > 0
            if busy:
                decode = self.base_seconds + self.request_seconds * len(running)
                took = self.slowdown * math.exp(level) * (decode + self.prompt_token_seconds * prefilled)
                if self.stalls and rng.random() < took * self.stalls / 3600.0:
                    took += rng.uniform(*_STALL_SECONDS)
                now += took
            else:
                now = coming[0].arrival if coming else math.inf
            while poll < now:
                if poll >= WARM_UP_SECONDS:
                    yield poll - WARM_UP_SECONDS, counters.snapshot()
                if poll >= end:
                    return
                poll += POLL_SECONDS
                level = _wandered(level, self.wander, rng)
            if not busy:
                continue
            step += 1
            counters.stepped(len(running), took, tokens)
            while running and running[0][0] <= step:
                _, first, rate, request = heapq.heappop(running)
                tokens -= rate
                counters.finished(now - request.arrival, now - first, request.prompt, request.answer)
                if traffic.clients:
                    coming.append(traffic.request(rng, now))
            for request in ready:
                counters.first_token(now - request.arrival, request.prompt)
                steps = self._steps(rng, request)
                rate = (request.answer - 1) / steps
                tokens += rate
                heapq.heappush(running, (step + steps, now, rate, request))

    def _steps(self, rng: random.Random, request: Request) -> int:
        """In how many steps a request gets all tokens but the first."""
        tokens = request.answer - 1
        if not self.k:
            return tokens
        accepted = (self.tokens_per_step - 1.0) * math.exp(_EASE_SIGMA * request.ease - _EASE_SIGMA**2 / 2.0)
        rate = 1.0 + min(accepted, self.k)
        steps = round(rng.gauss(tokens / rate, math.sqrt(_SCATTER * (rate - 1.0) * tokens / rate**3)))
        return min(max(steps, math.ceil(tokens / (self.k + 1))), tokens)
