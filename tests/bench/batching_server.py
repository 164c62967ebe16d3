"""A server whose requests share a batch: the more of them run, the longer each step takes, for all of them."""

from __future__ import annotations

import heapq
import math
import random
from collections.abc import Callable, Iterator

SLOTS = 64
STEP_SECONDS, STEP_SECONDS_PER_REQUEST = 0.02, 0.0008
MEAN_TOKENS, SIGMA_TOKENS = 2000.0, 0.5  # lognormal
STALL_EVERY, STALL_SECONDS = 900.0, (2.0, 6.0)  # on average, and from the shortest to the longest


def batching_server(
    rng: random.Random, rate: Callable[[float], float], *, until: float
) -> Iterator[tuple[float, float]]:
    """Yield when each request has finished (seconds from 0), and its time per output token in seconds.

    ``rate``: requests per second at a time. Every quarter of an hour or so the server stands still for some seconds.
    """
    now, made = 0.0, 0.0  # tokens that a request would have which runs from the start
    running: list[tuple[float, float, float]] = []  # at how many made tokens it ends, its start, its tokens
    waiting: list[float] = []
    arrives, stalls = rng.expovariate(rate(0.0)), rng.expovariate(1 / STALL_EVERY)

    def begin(tokens: float) -> None:
        heapq.heappush(running, (made + tokens, now, tokens))

    while now < until:
        step = STEP_SECONDS + STEP_SECONDS_PER_REQUEST * len(running)
        finishes = now + (running[0][0] - made) * step if running else math.inf
        event = min(arrives, finishes, stalls)
        made += (event - now) / step
        now = event
        if event == stalls:
            now += rng.uniform(*STALL_SECONDS)
            stalls = now + rng.expovariate(1 / STALL_EVERY)
        elif event == arrives:
            tokens = MEAN_TOKENS * math.exp(rng.gauss(-(SIGMA_TOKENS**2) / 2, SIGMA_TOKENS))
            if len(running) < SLOTS:
                begin(tokens)
            else:
                waiting.append(tokens)
            arrives = event + rng.expovariate(rate(event))
        else:
            _, since, tokens = heapq.heappop(running)
            yield now, (now - since) / tokens
            if waiting:
                begin(waiting.pop(0))
