"""Requests that do not share a server: each as fast as it is by itself, and as the hour is."""

from __future__ import annotations

import dataclasses
import heapq
import math
import random
from collections.abc import Iterator

from bench.compare_counters import POLL_SECONDS, Counters
from bench.compare_server import WARM_UP_SECONDS, wandered
from bench.compare_traffic import Request, Traffic
from specdec_exporter.predictor.metrics.snapshot import Snapshot


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Requests:
    """Latencies are lognormal: medians in seconds, standard deviations of the logarithm.

    With a ``pareto`` exponent, time per output token has a tail that falls with this power instead. ``slowdown``
    stretches everything. ``wander`` is the standard deviation of the logarithm of all latencies of one moment, which
    drifts and forgets within ten minutes.
    """

    traffic: Traffic
    token_seconds: float = 0.030
    token_sigma: float = 0.3
    first_seconds: float = 0.2
    first_sigma: float = 0.5
    pareto: float = 0.0
    slowdown: float = 1.0
    wander: float = 0.0
    k: int = 0

    def polls(self, rng: random.Random, seconds: float) -> Iterator[tuple[float, Snapshot]]:
        """Yield what a recorder reads from second 0 to ``seconds``, after a warm-up."""
        counters, end = Counters(), WARM_UP_SECONDS + seconds
        coming = iter([*self.traffic.arrivals(rng, end), Request(math.inf, 1, 2, 0.0)])
        events: list[tuple[float, bool, float, Request]] = []  # a heap: when, whether it finished, decode seconds
        arriving, poll, level = next(coming), 0.0, rng.gauss(0.0, self.wander)
        while True:
            while arriving.arrival < poll:
                speed = self.slowdown * math.exp(level)
                first = speed * self.first_seconds * math.exp(rng.gauss(0.0, self.first_sigma))
                decode = speed * self._token_seconds(rng, arriving) * (arriving.answer - 1)
                heapq.heappush(events, (arriving.arrival + first, False, decode, arriving))
                heapq.heappush(events, (arriving.arrival + first + decode, True, decode, arriving))
                arriving = next(coming)
            while events and events[0][0] <= poll:
                at, finished, decode, request = heapq.heappop(events)
                if finished:
                    counters.stepped(request.answer - 1, decode / (request.answer - 1), request.answer - 1)
                    counters.finished(at - request.arrival, decode, request.prompt, request.answer)
                else:
                    counters.first_token(at - request.arrival, request.prompt)
            if poll >= WARM_UP_SECONDS:
                yield poll - WARM_UP_SECONDS, counters.snapshot()
            if poll >= end:
                return
            poll += POLL_SECONDS
            level = wandered(level, self.wander, rng)

    def _token_seconds(self, rng: random.Random, request: Request) -> float:
        if self.pareto:
            return self.token_seconds * rng.paretovariate(self.pareto) / math.pow(2.0, 1.0 / self.pareto)
        return self.token_seconds * math.exp(self.token_sigma * request.ease)
