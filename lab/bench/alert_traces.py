"""What a service exposes minute by minute while something known happens to it. Drawn at random from a seed, no clock.

The series are those of tests/rules/scenario.py; here is what chance makes of them.
"""

from __future__ import annotations

import bisect
import dataclasses
import math
import random
from collections.abc import Callable, Iterator, Mapping, Sequence

from bench.alert_replay import HOUR, Samples
from rules.scenario import BOUNDS, Phase, Series, Shares, service

# A Monday at noon, on a boundary of Prometheus' blocks.
START = 1_767_571_200 + 12 * HOUR
MINUTE = 60
HISTORY_BOUNDS = {0.01, 0.025, 0.05, 0.075, 0.1, 0.2}  # seconds, of which the pack records shares


@dataclasses.dataclass(frozen=True, slots=True)
class Latency:
    """Lognormal: ``median`` in seconds, ``sigma`` of its logarithm; ``tail_share`` of it is ``tail_factor`` slower."""

    median: float
    sigma: float
    tail_share: float = 0.0
    tail_factor: float = 1.0

    def times(self, factor: float) -> Latency:
        """All requests slower by a factor."""
        return dataclasses.replace(self, median=self.median * factor)

    def draw(self, rng: random.Random) -> float:
        """The latency of one request, seconds."""
        seconds = self.median * math.exp(rng.gauss(0.0, self.sigma))
        return seconds * self.tail_factor if self.tail_share and rng.random() < self.tail_share else seconds

    def shares(self, requests: int, rng: random.Random) -> Shares:
        """So many requests, one by one."""
        return tuple((self.draw(rng), 1 / requests) for _ in range(requests))


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Minute:
    """One minute of one replica. ``curve`` is accepted at the position / drafts; its length is k."""

    drafts: float = 600.0
    curve: tuple[float, ...] = (0.85, 0.72, 0.59)
    requests: float = 40.0
    latency: Mapping[str, Latency] = dataclasses.field(default_factory=dict)


def scaled(curve: Sequence[float], acceptance: float) -> tuple[float, ...]:
    """The curve of the same shape whose mean is ``acceptance``, by powers, so that it neither rises nor leaves 0..1."""
    low, high = 0.0, 64.0
    for _ in range(40):
        power = (low + high) / 2
        mean = sum(rate**power for rate in curve) / len(curve)
        low, high = (power, high) if mean > acceptance else (low, power)
    return tuple(rate**high for rate in curve)


def wander(rng: random.Random, spread: float, memory: float) -> Iterator[float]:
    """Factors around 1: a lognormal autoregressive walk of that spread; ``memory`` of it survives a step."""
    state = rng.gauss(0.0, spread)
    while True:
        yield math.exp(state)
        state = memory * state + rng.gauss(0.0, spread * math.sqrt(1 - memory**2))


def poisson(mean: float, rng: random.Random) -> int:
    """How many of independent events happen."""
    if mean > 50:
        return max(0, round(rng.gauss(mean, math.sqrt(mean))))
    limit, count, product = math.exp(-mean), 0, rng.random()
    while product > limit:
        count += 1
        product *= rng.random()
    return count


def binomial(trials: int, chance: float, rng: random.Random) -> int:
    """How many of the trials succeed."""
    spread = math.sqrt(trials * chance * (1 - chance))
    if spread > 5:
        return min(trials, max(0, round(rng.gauss(trials * chance, spread))))
    return sum(rng.random() < chance for _ in range(trials))


def replica(
    minutes: Sequence[Minute], rng: random.Random, *, labels: Mapping[str, str], method: str = "eagle3"
) -> list[Samples]:
    """The series of one replica that is scraped every minute from :data:`START` on, at a second of its own."""
    offset = rng.randrange(MINUTE)
    phases = [_drawn(minute, rng) for minute in minutes]
    return [
        samples(each, offset)
        for each in service(
            *phases,
            families=minutes[0].latency,
            method=method,
            minimum=0.3 if method == "ngram" else 0.5,  # as the exporter assumes
            labels=labels,
        )
    ]


def _drawn(minute: Minute, rng: random.Random) -> Phase:
    """What happens in a minute. Acceptance is nested: a position needs the one before."""
    drafts, requests = poisson(minute.drafts, rng), poisson(minute.requests, rng)
    accepted, before, curve = drafts, 1.0, []
    for rate in minute.curve:
        accepted = binomial(accepted, min(1.0, rate / before) if before else 0.0, rng)
        before = rate
        curve.append(accepted / drafts if drafts else 0.0)
    return Phase(
        minutes=1,
        drafts_per_minute=drafts,
        curve=tuple(curve),
        requests_per_minute=requests,
        latency={sli: latency.shares(requests, rng) for sli, latency in minute.latency.items()},
    )


def samples(series: Series, offset: int = 0) -> Samples:
    """A series of which every minute is known."""
    values = [value for value in series.values if value is not None]
    at = [START + MINUTE * number + offset for number in range(len(values))]
    return Samples(named(series.name, series.labels), at, values)


def history(
    latency: Callable[[], Latency],
    acceptance: Callable[[], float],
    rng: random.Random,
    *,
    hours: int,
    requests: int,
    labels: Mapping[str, str],
) -> list[Samples]:
    """What the pack has recorded of ``tpot`` and acceptance, hour by hour before :data:`START`. ``requests`` an hour.

    ``latency`` and ``acceptance`` are asked for every hour.
    """
    values: dict[str, dict[int, float]] = {}
    for at in range(START - HOUR * hours, START, HOUR):
        shape = latency()
        seconds = sorted(shape.draw(rng) for _ in range(requests))
        rate = acceptance()

        def keep(name: str, value: float, *, hour: int = at, **more: str) -> None:
            values.setdefault(named(f"inference_service:specdec_{name}:hour", {**labels, **more}), {})[hour] = value

        keep("latency", sum(seconds) / requests, sli="tpot", stat="mean")
        keep("acceptance", rate, what="ratio")
        keep("acceptance", 1 + 3 * rate, what="length")
        for bound in BOUNDS["tpot"]:
            beyond = 1 - bisect.bisect_right(seconds, bound) / requests
            if bound in HISTORY_BOUNDS and beyond < 0.5:
                keep("latency", beyond, sli="tpot", stat="beyond", le=repr(bound))
    return [Samples(series, list(each), list(each.values())) for series, each in values.items()]


def named(name: str, labels: Mapping[str, str]) -> str:
    """A series as its exposition has it."""
    return name + "{" + ",".join(f'{label}="{value}"' for label, value in labels.items()) + "}"
