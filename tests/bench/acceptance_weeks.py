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
TOKENS = 200  # of a request
BETWEEN = 2.0  # minutes between the requests of a session, on average


@dataclasses.dataclass(frozen=True, slots=True)
class Requests:
    """``per_window`` requests in half an hour, each with an acceptance of its own (beta-binomial).

    ``correlation``: of two draft tokens of a request. ``session``: so many requests in a row share their acceptance.
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
        """The acceptance of a request. A bad one needs more drafts, so it is rarer than its drafts are."""
        size = (1 - self.correlation) / self.correlation if self.correlation else 0.0
        while size:
            own = rng.betavariate(mean * size, (1 - mean) * size)
            if rng.random() < draft_length(own) / draft_length(1.0):
                return own
        return mean


def draft_length(acceptance: float) -> float:
    """Tokens that a draft gives, the bonus token included."""
    return 1 + len(CURVE) * acceptance


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
            drafts = round(TOKENS / draft_length(acceptance))
            accepted, before = drafts, 1.0
            for rate in _curve(round(100 * acceptance)):
                accepted, before = binomial(accepted, rate / before, rng), rate
                sums["accepted_tokens"] += accepted
            sums["drafts"] += drafts
            sums["draft_tokens"] += drafts * len(CURVE)
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


LOW, HIGH = 20, 200  # requests in half an hour
KINDS = (
    Requests(LOW, 0.6, 0.0),
    Requests(LOW, 0.6, 0.1),
    Requests(LOW, 0.6, 0.15),
    Requests(LOW, 0.6, 0.1, session=5),
    Requests(LOW, 0.6, 0.15, session=5),
    Requests(LOW, 0.72, 0.1),
    Requests(LOW, 0.72, 0.15, session=5),
    Requests(HIGH, 0.6, 0.15),
    Requests(HIGH, 0.6, 0.15, session=5),
)
FALLS = (
    Requests(LOW, 0.72, 0.0),
    Requests(LOW, 0.72, 0.1),
    Requests(LOW, 0.72, 0.15),
    Requests(LOW, 0.72, 0.1, session=5),
    Requests(LOW, 0.72, 0.15, session=5),
    Requests(HIGH, 0.72, 0.15),
    Requests(HIGH, 0.72, 0.15, session=5),
)


def usual(kind: Requests) -> str:
    """The name of the scenario in which nothing happens until the last two hours."""
    return f"acceptance {kind}"


def fall(kind: Requests) -> str:
    """The name of the scenario that is soon to fall."""
    return f"fall to {FALLEN:.2f} from {kind}"


def _scenario(requests: Requests, quiet: int) -> Callable[[str, random.Random], Trace]:
    return lambda name, rng: _trace(name, rng, requests, quiet=quiet)


ACCEPTANCE_WEEKS: Mapping[str, Callable[[str, random.Random], Trace]] = {
    **{usual(kind): _scenario(kind, DAYS * 1440) for kind in KINDS},
    **{fall(kind): _scenario(kind, 90) for kind in FALLS},
}
