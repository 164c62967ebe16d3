"""Weeks of acceptance where the drafts of a request are alike, and the requests of a session. Then it falls."""

from __future__ import annotations

import collections
import dataclasses
import random
from collections.abc import Callable, Iterator, Mapping
from functools import cache

from bench.alert_replay import Samples
from bench.alert_scenarios import CURVE, LOW_PAGE, LOW_TICKET, Trace
from bench.alert_traces import MINUTE, START, binomial, poisson, scaled
from rules.scenario import FAMILIES

DAYS = 7
FALLEN, FALL_MINUTES = 0.30, 120
DRAFTS = 71  # of a request: about 200 tokens at an acceptance of 0.6
BETWEEN = 2.0  # minutes between the requests of a session, on average


@dataclasses.dataclass(frozen=True, slots=True)
class Requests:
    """``per_window`` requests in half an hour. Each has its own acceptance, beta-binomial: ``correlation`` is that of two
    draft tokens of a request. The requests of a session, ``session`` of them, share one acceptance.
    """

    per_window: int
    acceptance: float
    correlation: float
    session: int = 1

    def minutes(self, rng: random.Random, minutes: int, fall_from: int) -> Iterator[list[float]]:
        """The acceptance of each request, minute by minute."""
        coming: dict[int, list[float]] = collections.defaultdict(list)
        for minute in range(minutes):
            mean = self.acceptance if minute < fall_from else FALLEN
            for _ in range(poisson(self.per_window / 30 / self.session, rng)):
                own, at = self._own(mean, rng), float(minute)
                for _ in range(self.session):
                    coming[int(at)].append(own)
                    at += rng.expovariate(1 / BETWEEN)
            yield coming.pop(minute, [])

    def __str__(self) -> str:
        session = f", sessions of {self.session}" if self.session > 1 else ""
        return f"{self.acceptance:.2f}, {self.per_window} requests, correlation {self.correlation:g}{session}"

    def _own(self, mean: float, rng: random.Random) -> float:
        if not self.correlation:
            return mean
        size = (1 - self.correlation) / self.correlation
        return rng.betavariate(mean * size, (1 - mean) * size)


@cache
def _curve(percent: int) -> tuple[float, ...]:
    return scaled(CURVE, min(0.995, max(0.005, percent / 100)))


def _trace(name: str, rng: random.Random, requests: Requests, *, quiet: int) -> Trace:
    total = quiet + FALL_MINUTES
    labels = f'{{inference_service="{name}",model_name="m",engine="0"}}'
    at: list[int] = []
    sums: dict[str, float] = dict.fromkeys(("drafts", "draft_tokens", "accepted_tokens", "ttft"), 0.0)
    values: dict[str, list[float]] = {family: [] for family in sums}
    offset = rng.randrange(MINUTE)
    for minute, each in enumerate(requests.minutes(rng, total, quiet)):
        for acceptance in each:
            accepted, before = DRAFTS, 1.0
            for rate in _curve(round(100 * acceptance)):
                accepted, before = binomial(accepted, rate / before, rng), rate
                sums["accepted_tokens"] += accepted
        sums["drafts"] += DRAFTS * len(each)
        sums["draft_tokens"] += DRAFTS * len(CURVE) * len(each)
        sums["ttft"] += len(each)
        at.append(START + MINUTE * minute + offset)
        for family, total_so_far in sums.items():
            values[family].append(total_so_far)
    names = FAMILIES["exporter"]
    samples = [
        Samples(names[family] + ("_count" if family == "ttft" else "") + labels, at, found)
        for family, found in values.items()
    ]
    return Trace(samples=samples, minutes=total, quiet=quiet, due={LOW_PAGE: quiet, LOW_TICKET: quiet})


def _scenario(requests: Requests, quiet: int) -> Callable[[str, random.Random], Trace]:
    return lambda name, rng: _trace(name, rng, requests, quiet=quiet)


LOW, HIGH = 20, 200  # requests in half an hour
KINDS = (
    *(Requests(LOW, 0.6, correlation, session) for correlation, session in ((0.0, 1), (0.1, 1), (0.15, 1), (0.1, 5), (0.15, 5))),
    *(Requests(LOW, 0.72, correlation, session) for correlation, session in ((0.1, 1), (0.15, 5))),
    *(Requests(HIGH, 0.6, correlation, session) for correlation, session in ((0.15, 1), (0.15, 5))),
)
FALLS = tuple(Requests(rate, 0.72, 0.15, session) for rate in (LOW, HIGH) for session in (1, 5))
ACCEPTANCE_WEEKS: Mapping[str, Callable[[str, random.Random], Trace]] = {
    **{f"week: {kind}": _scenario(kind, DAYS * 1440) for kind in KINDS},
    **{f"fall: {kind}": _scenario(kind, 90) for kind in FALLS},
}
