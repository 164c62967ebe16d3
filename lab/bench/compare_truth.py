"""What speculation really gives a service: beside it, a plain server of the same machine.

At the same load: a shadow without line or noise steps, one by one, what was running at each moment and the prompts that
came. With the same traffic: the plain server gets the same requests, or the same clients.
"""

from __future__ import annotations

import math
import random
from collections import deque
from collections.abc import Iterable, Sequence
from itertools import pairwise
from statistics import fmean
from typing import NamedTuple

from bench.compare_machine import PREFILL_TOKENS, WARM_UP_SECONDS, Machine, Server, Trace
from specdec_exporter.predictor.metrics.snapshot import EngineSnapshot, Snapshot

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


class Run(NamedTuple):
    """An engine, what it met, and its intervals."""

    server: Server
    trace: Trace
    found: Sequence[Interval]


class Truth(NamedTuple):
    """The speed-up of decoding at the load that a service has, and the seconds of decoding for each token.

    ``same_traffic``: these seconds without speculation, over those with it, where both get the same requests or the
    same clients; ``None`` if one of them cannot keep up.
    """

    speedup: float
    token_seconds: float
    same_traffic: float | None


def truth_of(engines: Sequence[Server], seed: str, seconds: float) -> Truth:
    """Run engines without the machine's noise for ``seconds``, and beside them what they are compared with."""
    drafting = calm_runs(engines, seed, seconds)
    return Truth(speedup(drafting), token_seconds(drafting), same_traffic(drafting, seed, seconds))


def same_traffic(drafting: Sequence[Run], seed: str, seconds: float) -> float | None:
    """Return how much faster a token came in calm runs than it does from plain engines; ``None``: some are too slow."""
    plain = calm_runs([run.server.plain for run in drafting], seed, seconds)
    if any(overloaded(run) for run in (*plain, *drafting)):
        return None
    return token_seconds(plain) / token_seconds(drafting)


def calm_runs(engines: Sequence[Server], seed: str, seconds: float) -> list[Run]:
    """Run engines without the machine's noise. The same seed gives the same requests, whatever ``k`` is."""
    found = []
    for number, server in enumerate(engines):
        trace = Trace.empty()
        polls = server.calm.polls(random.Random(f"{seed} {number}"), seconds, trace)
        found.append(Run(server, trace, intervals(polls)))
    return found


def overloaded(run: Run) -> bool:
    """Whether requests came faster than they were answered: in the end more of them wait than are in decode."""
    last = run.trace.waiting[-len(run.trace.waiting) // 4 :]
    return fmean(last) > fmean(each.load for each in run.found)


def intervals(polls: Iterable[tuple[float, Snapshot]], engine: int = 0) -> list[Interval]:
    """Cut what an engine counted."""
    totals = [_decoding(snapshot.engines[engine]) for at, snapshot in polls if at % INTERVAL_SECONDS == 0.0]
    return [Interval(*(after - before for before, after in zip(*both, strict=True))) for both in pairwise(totals)]


def _decoding(engine: EngineSnapshot) -> tuple[float, float, float]:
    steps, first = engine.step_latency, engine.time_to_first_token
    assert steps is not None
    assert first is not None
    assert engine.generation_tokens is not None
    return steps.count, steps.sum, engine.generation_tokens - first.count


def token_seconds(runs: Sequence[Run]) -> float:
    """Return the seconds of decoding for each token."""
    found = [each for run in runs for each in run.found]
    return math.fsum(each.step_seconds for each in found) / math.fsum(each.tokens for each in found)


def speedup(runs: Sequence[Run], loads: tuple[float, float] = (0.0, math.inf)) -> float:
    """Return how much faster engines decoded than without drafts, at the loads of a range.

    It is the time of all their tokens without drafts, over that with drafts. Neither has the machine's noise: of the
    run itself only the loads, the steps and the tokens count.
    """
    without, took = 0.0, 0.0
    for server, trace, found in runs:
        plain, drafting = (step_seconds(server.machine, k, trace, len(found)) for k in (0, server.k))
        for each, before, after in zip(found, plain, drafting, strict=True):
            if loads[0] <= each.load <= loads[1]:
                without += each.tokens * before
                took += each.steps * after
    return without / took if took else math.nan


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
