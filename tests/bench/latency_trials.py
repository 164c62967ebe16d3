"""Is a slower service told from one that is as fast as ever? Services by the hundred, each with a latency of its own.

Each is watched for three quarters of an hour with a full window behind it. Its median lies anywhere between two bucket
boundaries, since that decides what its histogram can show.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
import random
import statistics
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path
from typing import Literal, get_args

from bench.alert_replay import HOUR, NAIVE_P99, RULES, Samples, replay
from bench.alert_traces import CONFIGURATION, MINUTE, START, Latency, Minute, history, pinned, replica

MEAN = "SpecDecodeLatencyMeanRegression"
TAIL = "SpecDecodeP99Regression"
ALERTS = (MEAN, TAIL)

WINDOW_MINUTES = 30
WATCHED_MINUTES = 45
PINNED_REQUESTS = 5000  # about what half an hour of a load test gives
HISTORY_HOURS = 26
SERVICES_AT_ONCE = 1000

# Medians (seconds) and sigmas of lognormal latencies, from a small fast model to a big slow one.
SHAPES: Mapping[str, tuple[tuple[float, float], tuple[float, float]]] = {
    "tpot": ((0.008, 0.08), (0.2, 0.35)),
    "ttft": ((0.05, 2.0), (0.3, 0.6)),
    "e2e": ((2.0, 30.0), (0.4, 0.7)),
}
Source = Literal["pinned", "history", "control"]
SOURCES: tuple[Source, ...] = get_args(Source)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """Services alike: how much slower than at baseline, over how many requests in half an hour."""

    trials: int
    requests: int
    body: float = 1.0
    tail_share: float = 0.0
    tail_factor: float = 2.5
    sli: str = "tpot"
    source: Source = "pinned"

    @property
    def nothing_slower(self) -> bool:
        """Whether every alarm is false."""
        return self.body == 1.0 and not self.tail_share

    def __str__(self) -> str:
        if self.nothing_slower:
            return "nothing slower"
        body = f"all {self.body:g}x slower" if self.body != 1 else ""
        tail = f"{100 * self.tail_share:g} % {self.tail_factor:g}x slower" if self.tail_share else ""
        return " and ".join(filter(None, (body, tail)))


@dataclasses.dataclass(frozen=True, slots=True)
class Trial:
    """One service: its median at baseline (seconds), and when each alert first fired, minutes from a full window on."""

    median: float
    fired: Mapping[str, float]


@dataclasses.dataclass(frozen=True, slots=True)
class Outcome:
    """What came of a case."""

    case: Case
    trials: Sequence[Trial]

    def caught(self, *alerts: str) -> int:
        """Trials in which at least one of the alerts fired."""
        return sum(not trial.fired.keys().isdisjoint(alerts) for trial in self.trials)

    def worst_place(self, *alerts: str, parts: int = 10) -> float:
        """Share caught in the worst tenth of the range of medians."""
        ordered = sorted(self.trials, key=lambda trial: trial.median)
        size = max(1, len(ordered) // parts)
        groups = [ordered[at : at + size] for at in range(0, size * parts, size)]
        return min(Outcome(self.case, group).caught(*alerts) / len(group) for group in groups if group)

    def delays(self, *alerts: str) -> list[float]:
        """Minutes to the first of the alerts, where one fired."""
        firsts = ([trial.fired[alert] for alert in alerts if alert in trial.fired] for trial in self.trials)
        return [min(each) for each in firsts if each]

    def median_delay(self, *alerts: str) -> float:
        """Median of :meth:`delays`; NaN where none fired."""
        found = self.delays(*alerts)
        return statistics.median(found) if found else math.nan


def run_cases(cases: Sequence[Case], *, seed: int, rules: Path = RULES) -> list[Outcome]:
    """Make the services of all cases, replay the pack over them, and tell what fired."""
    services = [(index, case) for index, case in enumerate(cases) for _ in range(case.trials)]
    named = [(f"s{number}", case) for number, (_, case) in enumerate(services)]
    batches = [named[first : first + SERVICES_AT_ONCE] for first in range(0, len(named), SERVICES_AT_ONCE)]
    trials: list[list[Trial]] = [[] for _ in cases]
    with ProcessPoolExecutor() as pool:
        found = itertools.chain.from_iterable(pool.map(partial(_run, seed=seed, rules=rules), batches))
        for (index, _), trial in zip(services, found, strict=True):
            trials[index].append(trial)
    return [Outcome(case, each) for case, each in zip(cases, trials, strict=True)]


def _run(some: Sequence[tuple[str, Case]], *, seed: int, rules: Path) -> list[Trial]:
    medians: dict[str, float] = {}
    begin, end = (START + MINUTE * minutes for minutes in (WINDOW_MINUTES, WINDOW_MINUTES + WATCHED_MINUTES))
    with tempfile.TemporaryDirectory(prefix="alert-quality-") as directory:
        samples = itertools.chain.from_iterable(_samples(name, case, medians, seed) for name, case in some)
        past = HISTORY_HOURS * HOUR
        alerts = (*ALERTS, NAIVE_P99)
        fired = replay(samples, Path(directory), (begin, end), past=past, alerts=alerts, rules=rules)
    trials = []
    for name, case in some:
        firsts: dict[str, float] = {}
        for episode in fired.get(name, []):
            if episode.sli == case.sli:
                firsts[episode.alert] = min((episode.since - begin) / MINUTE, firsts.get(episode.alert, math.inf))
        trials.append(Trial(medians[name], firsts))
    return trials


def _samples(name: str, case: Case, medians: dict[str, float], seed: int) -> Iterator[Samples]:
    """The series of one service and of its baseline; its median goes into ``medians``."""
    rng = random.Random(f"{seed} {name} {case}")
    (low, high), sigmas = SHAPES[case.sli]
    medians[name] = low * (high / low) ** rng.random()
    usual = Latency(medians[name], rng.uniform(*sigmas))
    now = dataclasses.replace(usual.times(case.body), tail_share=case.tail_share, tail_factor=case.tail_factor)
    labels = {"inference_service": name, "model_name": "m"}
    minutes = WINDOW_MINUTES + WATCHED_MINUTES + 1
    rate = case.requests / WINDOW_MINUTES
    yield from _only_latency(replica([Minute(requests=rate, latency={case.sli: now})] * minutes, rng, labels=labels))
    if case.source == "pinned":
        yield from pinned({case.sli: usual}, rng, minutes=minutes, requests=PINNED_REQUESTS, labels=labels)
    elif case.source == "history":
        hourly = 2 * case.requests
        yield from history(lambda: {case.sli: usual}, rng, hours=HISTORY_HOURS, requests=hourly, labels=labels)
    else:
        control = labels | {"inference_service": f"{name}-control"}
        same = [Minute(requests=rate, latency={case.sli: usual})] * minutes
        yield from _only_latency(replica(same, rng, labels=control))


def _only_latency(samples: Sequence[Samples]) -> Iterator[Samples]:
    """Without the counters: what they say does not matter here."""
    return (each for each in samples if "_seconds_" in each.series or each.series.startswith(CONFIGURATION))
