"""What speculation really gives a service: beside it, a plain server of the same machine at the same load.

The shadow has no line and no noise. It steps, one by one, what was running at each moment and the prompts that came.
"""

from __future__ import annotations

import dataclasses
import math
import random
from collections import deque
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import NamedTuple

from bench.compare_machine import PREFILL_TOKENS, WARM_UP_SECONDS, Machine, Server, Trace
from specdec_exporter.predictor.metrics.snapshot import Snapshot

INTERVAL_SECONDS = 15.0


class Interval(NamedTuple):
    """Request-steps, their seconds and the tokens that they gave, in :data:`INTERVAL_SECONDS`."""

    steps: float
    step_seconds: float
    tokens: float

    @property
    def load(self) -> float:
        """Requests in decode at a time."""
        return self.step_seconds / INTERVAL_SECONDS


class Truth(NamedTuple):
    """The speed-up of decoding at the load that a service has, and the seconds of decoding for each token.

    ``closed_loop``: these seconds without speculation, over those with it; ``None`` unless clients wait for answers.
    """

    speedup: float
    token_seconds: float
    closed_loop: float | None


def truth_of(server: Server, seed: str, seconds: float) -> Truth:
    """Run a server without the machine's noise for ``seconds``, and beside it what it is compared with."""
    calm = dataclasses.replace(server, wander=0.0, stalls=0.0)
    trace = Trace([], [])
    found = intervals(calm.polls(random.Random(seed), seconds, trace))
    took, closed = token_seconds(found), None
    if server.traffic.clients:
        closed = mean_token_seconds(dataclasses.replace(server, k=0), seed, seconds) / took
    return Truth(speedup(calm, trace, found), took, closed)


def mean_token_seconds(server: Server, seed: str, seconds: float) -> float:
    """Return what a token takes in the long run, without the machine's noise."""
    calm = dataclasses.replace(server, wander=0.0, stalls=0.0)
    return token_seconds(intervals(calm.polls(random.Random(seed), seconds)))


def intervals(polls: Iterable[tuple[float, Snapshot]]) -> list[Interval]:
    """Cut what was counted."""
    totals = [_decoding(snapshot) for at, snapshot in polls if at % INTERVAL_SECONDS == 0.0]
    return [Interval(*(after - before for before, after in zip(*both, strict=True))) for both in pairwise(totals)]


def _decoding(snapshot: Snapshot) -> tuple[float, float, float]:
    engine = snapshot.engines[0]
    steps, first = engine.step_latency, engine.time_to_first_token
    assert steps is not None
    assert first is not None
    assert engine.generation_tokens is not None
    return steps.count, steps.sum, engine.generation_tokens - first.count


def token_seconds(found: Sequence[Interval]) -> float:
    """Return the seconds of decoding for each token."""
    return math.fsum(each.step_seconds for each in found) / math.fsum(each.tokens for each in found)


def speedup(
    server: Server, trace: Trace, found: Sequence[Interval], loads: tuple[float, float] = (0.0, math.inf)
) -> float:
    """Return how much faster a run decoded than without drafts, at the loads of a range."""
    plain, drafting = (step_seconds(server.machine, k, trace, len(found)) for k in (0, server.k))
    near = [loads[0] <= each.load <= loads[1] for each in found]
    rows = [row for row, is_near in zip(zip(found, plain, drafting, strict=True), near, strict=True) if is_near]
    took = math.fsum(each.steps * step for each, _, step in rows)
    return math.fsum(each.tokens * step for each, step, _ in rows) / took if took else math.nan


def step_seconds(machine: Machine, k: int, trace: Trace, number: int) -> list[float]:
    """Step what was running at each moment with ``k`` drafts, and read the prompts that came; return mean steps.

    They are of each interval; a step counts once for each request in decode.
    """
    changes, prompts = deque(trace.running), deque(trace.prompts)
    running, left, now, end = 0, 0, 0.0, WARM_UP_SECONDS + INTERVAL_SECONDS * number
    sums = [[0.0, 0.0] for _ in range(number)]
    while now < end:
        while changes and changes[0][0] <= now:
            running = changes.popleft()[1]
        while prompts and prompts[0][0] <= now:
            left += prompts.popleft()[1]
        read = min(left, PREFILL_TOKENS)
        left -= read
        until = min(changes[0][0] if changes else end, prompts[0][0] if prompts else end, end)
        if not running and not read:
            now = until
            continue
        took, steps = machine.step(running, k, read), 1
        place = int((now - WARM_UP_SECONDS) // INTERVAL_SECONDS)
        if not read:
            until = min(until, WARM_UP_SECONDS + INTERVAL_SECONDS * (place + 1))
            steps = max(1, int((until - now) / took))
        now += took * steps
        if place >= 0:
            sums[place][0] += running * steps
            sums[place][1] += running * steps * took
    return [taken / steps if steps else 0.0 for steps, taken in sums]
