"""What a service exposes minute by minute while something known happens to it. Drawn at random from a seed, no clock.

Families and labels are the exporter's; bucket boundaries are those of a real vLLM 0.32.0.
"""

from __future__ import annotations

import bisect
import dataclasses
import itertools
import math
import random
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache

from bench.alert_replay import Samples
from bench.counting import ONE_ENGINE
from rules.scenario import FAMILIES
from specdec_exporter.predictor.metrics.exposition import parse_exposition

# A Monday at noon, on a boundary of Prometheus' blocks.
START = 1_767_571_200 + 12 * 3600
MINUTE = 60
RELEASE = "0.32.0"
_NAMES = FAMILIES["exporter"]


@cache
def bounds(sli: str) -> tuple[float, ...]:
    """Upper bounds of the buckets in seconds, without the infinite one."""
    engine = parse_exposition(ONE_ENGINE.read_bytes()).engines[0]
    histogram = {
        "tpot": engine.time_per_output_token,
        "ttft": engine.time_to_first_token,
        "e2e": engine.request_latency,
    }[sli]
    assert histogram is not None, sli
    return histogram.bounds[:-1]


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


class Observations:
    """A histogram that grows. ``counts`` is not cumulative; its last element lies above every bound."""

    def __init__(self, sli: str) -> None:
        self.bounds = bounds(sli)
        self.counts = [0] * (len(self.bounds) + 1)
        self.sum = 0.0

    def observe(self, requests: int, latency: Latency, rng: random.Random) -> None:
        """Draw so many requests."""
        for seconds in (latency.draw(rng) for _ in range(requests)):
            self.counts[bisect.bisect_left(self.bounds, seconds)] += 1
            self.sum += seconds

    def figures(self) -> dict[str, float]:
        """By suffix of the family: cumulative buckets, count and sum."""
        within = list(itertools.accumulate(self.counts))
        les = [*map(repr, self.bounds), "+Inf"]
        buckets = {f'bucket{{le="{le}"}}': float(count) for le, count in zip(les, within, strict=True)}
        return buckets | {"count": float(within[-1]), "sum": self.sum}


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
    minutes: Iterable[Minute], rng: random.Random, *, labels: Mapping[str, str], method: str = "eagle3"
) -> list[Samples]:
    """The series of one replica that is scraped every minute from :data:`START` on, at a second of its own."""
    offset = rng.randrange(MINUTE)
    found: dict[str, tuple[list[int], list[float]]] = {}
    totals: dict[str, float] = {}
    histograms: dict[str, Observations] = {}
    series = cache(lambda family, name: _series(family, name, labels))
    facts = {"engine_generation": "v1", "method": method, "vllm_version": RELEASE, "draft_model": ""}
    info = "specdec_predictor_info" + _braces({**labels, "engine": "0", **facts})
    up = "specdec_up" + _braces({name: value for name, value in labels.items() if name != "model_name"})

    def sample(one: str, value: float) -> None:
        at, values = found.setdefault(one, ([], []))
        at.append(now)
        values.append(value)

    for number, minute in enumerate(minutes):
        now = START + MINUTE * number + offset
        sample(up, 1.0)
        requests = poisson(minute.requests, rng)
        for name, amount in _counted(minute, requests, rng):
            totals[name] = totals.get(name, 0.0) + amount
        for sli, latency in minute.latency.items():
            histograms.setdefault(sli, Observations(sli)).observe(requests, latency, rng)
        for name, total in totals.items():
            sample(series(_NAMES[name.partition("{")[0]], name), total)
        for sli, histogram in histograms.items():
            for suffix, figure in histogram.figures().items():
                sample(series(f"{_NAMES[sli]}_{suffix.partition('{')[0]}", suffix), figure)
        for name, gauge in (("running", 4.0), ("waiting", 0.0), ("kv_cache", 0.4)):
            sample(series(_NAMES[name], ""), gauge)
        sample(info, 1.0)
        sample(series("specdec_num_speculative_tokens", ""), float(len(minute.curve)))
    return [Samples(one, at, values) for one, (at, values) in found.items()]


def _counted(minute: Minute, requests: int, rng: random.Random) -> Iterator[tuple[str, float]]:
    """What the counters grow by in a minute. Acceptance is nested: a position needs the one before."""
    drafts = poisson(minute.drafts, rng) if minute.drafts else 0
    accepted, before, sum_accepted = drafts, 1.0, 0
    yield "drafts", drafts
    yield "draft_tokens", drafts * len(minute.curve)
    for position, rate in enumerate(minute.curve):
        accepted = binomial(accepted, min(1.0, rate / before) if before else 0.0, rng)
        before = rate
        sum_accepted += accepted
        yield f'per_position{{position="{position}"}}', accepted
    yield "accepted_tokens", sum_accepted
    steps = drafts or requests * 100
    yield "generation_tokens", steps + sum_accepted + requests
    yield "steps", steps


def pinned(
    latency: Mapping[str, Latency], rng: random.Random, *, minutes: int, requests: int, labels: Mapping[str, str]
) -> list[Samples]:
    """The constant series of a baseline from a file that was recorded over so many requests."""
    at = list(range(START, START + MINUTE * minutes + 1, 4 * MINUTE))  # within Prometheus' look-back
    found = []
    for sli, shape in latency.items():
        histogram = Observations(sli)
        histogram.observe(requests, shape, rng)
        stem = _NAMES[sli].replace("specdec_", "specdec_baseline_")
        for suffix, figure in histogram.figures().items():
            series = _series(f"{stem}_{suffix.partition('{')[0]}", suffix, labels, engine=False)
            found.append(Samples(series, at, [figure] * len(at)))
    return found


def history(
    latency: Callable[[], Mapping[str, Latency]],
    rng: random.Random,
    *,
    hours: int,
    requests: int,
    labels: Mapping[str, str],
    acceptance: Callable[[], float] | None = None,
    method: str = "eagle3",
) -> list[Samples]:
    """What the pack has recorded hour by hour before :data:`START`. ``requests`` an hour.

    ``latency`` and ``acceptance`` are asked for every hour. The epoch is that of a replica with three positions.
    """
    labels = {**labels, "epoch": f"3;{method};;{RELEASE}"}
    at = [START - 3600 * hour for hour in range(hours, 0, -1)]
    values: dict[str, list[float]] = {}
    for _ in at:
        for sli, shape in latency().items():
            histogram = Observations(sli)
            histogram.observe(requests, shape, rng)
            figures = histogram.figures()
            count = figures["count"]
            mean = f"inference_service:specdec_latency_seconds:mean1h{_braces({**labels, 'sli': sli})}"
            values.setdefault(mean, []).append(figures["sum"] / count)
            for suffix, within in figures.items():
                if suffix.startswith("bucket") and sli == "tpot":
                    le = suffix.removeprefix("bucket{").removesuffix("}")
                    series = f"inference_service:specdec_latency:cdf1h{_braces({**labels, 'sli': sli}, le)}"
                    values.setdefault(series, []).append(within / count)
        if acceptance is not None:
            series = f"inference_service:specdec_acceptance:ratio_rate1h{_braces(labels)}"
            values.setdefault(series, []).append(acceptance())
    return [Samples(series, at, each) for series, each in values.items()]


def _series(family: str, name: str, labels: Mapping[str, str], *, engine: bool = True) -> str:
    """``name`` may carry a label of its own: ``bucket{le="0.1"}``."""
    extra = name.partition("{")[2].removesuffix("}")
    return family + _braces({**labels, "engine": "0"} if engine else labels, extra)


def _braces(labels: Mapping[str, str], extra: str = "") -> str:
    given = [f'{name}="{value}"' for name, value in labels.items()]
    return "{" + ",".join([*given, extra] if extra else given) + "}"
