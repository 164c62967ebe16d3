"""What speculation really gives a service: long runs, beside a plain server of the same machine at the same load."""

from __future__ import annotations

import dataclasses
import math
import random
from collections import deque
from typing import NamedTuple

from bench.compare_machine import PREFILL_TOKENS, WARM_UP_SECONDS, Machine, Server, Trace

INTERVAL_SECONDS = 15.0


class Interval(NamedTuple):
    """Requests in decode, tokens and request-seconds of decoding, and seconds of a step that no drafts would have taken."""

    load: float
    tokens: float
    held: float
    plain_step: float


class Truth(NamedTuple):
    """What the service does in the long run; ``token_seconds`` are of decoding, for each token of a request.

    ``closed_loop``: those without speculation, over these.
    """

    intervals: tuple[Interval, ...]
    token_seconds: float
    closed_loop: float | None

    def speedup(self, least: float = 0.0, most: float = math.inf) -> float:
        """Return the speed-up of decoding at the loads that the service has, of those in a range."""
        near = [each for each in self.intervals if least <= each.load <= most] or self.intervals
        return math.fsum(each.tokens * each.plain_step for each in near) / math.fsum(each.held for each in near)


def truth_of(server: Server, seed: str, seconds: float) -> Truth:
    """Run a server without the machine's noise for ``seconds``, and beside it what it is compared with."""
    calm = dataclasses.replace(server, wander=0.0, stalls=0.0)
    trace = Trace([], [])
    spans = _spans(calm, seed, seconds, trace)
    shadow = plain_step_seconds(calm.machine, trace, WARM_UP_SECONDS, seconds)
    took = _token_seconds(spans)
    closed = None
    if server.traffic.clients:
        closed = _token_seconds(_spans(dataclasses.replace(calm, k=0), seed, seconds, None)) / took
    found = (Interval(held / INTERVAL_SECONDS, tokens, held, plain) for (tokens, held), plain in zip(spans, shadow, strict=True))
    return Truth(tuple(found), took, closed)


def _spans(server: Server, seed: str, seconds: float, trace: Trace | None) -> list[tuple[float, float]]:
    """Return tokens and request-seconds of decoding, by interval."""
    totals = [
        (counters.decoded_tokens, counters.step_seconds)
        for at, counters in server.polls(random.Random(seed), seconds, trace)
        if at % INTERVAL_SECONDS == 0.0
    ]
    return [(now[0] - was[0], now[1] - was[1]) for was, now in zip(totals, totals[1:], strict=False)]


def _token_seconds(spans: list[tuple[float, float]]) -> float:
    return math.fsum(held for _, held in spans) / math.fsum(tokens for tokens, _ in spans)


def plain_step_seconds(machine: Machine, trace: Trace, start: float, seconds: float) -> list[float]:
    """Step without drafts what was running at each moment, with the prompts that came: the mean step of each interval.

    A step counts once for each request in decode.
    """
    running, prompts = deque(trace.running), deque(trace.prompts)
    number, now, left = 0, 0.0, 0
    held = [[0.0, 0.0] for _ in range(round(seconds / INTERVAL_SECONDS))]
    while now < start + seconds:
        while running and running[0][0] <= now:
            number = running.popleft()[1]
        while prompts and prompts[0][0] <= now:
            left += prompts.popleft()[1]
        read = min(left, PREFILL_TOKENS)
        left -= read
        until = min(running[0][0] if running else math.inf, prompts[0][0] if prompts else math.inf, start + seconds)
        if not number and not read:
            now = until
            continue
        took, steps = machine.step(number, 0, read), 1
        place = int((now - start) // INTERVAL_SECONDS)
        if not left and not read:
            until = min(until, start + INTERVAL_SECONDS * (place + 1))
            steps = max(1, int((until - now) / took))
        now += took * steps
        if 0 <= place < len(held):
            held[place][0] += number * steps
            held[place][1] += number * steps * took
    return [taken / steps if steps else 0.0 for steps, taken in held]
