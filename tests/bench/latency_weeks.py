"""Weeks of latency that is not the same every hour, with nothing wrong in them, and a slowdown at their end.

A wander is a factor that all requests of a moment share: a lognormal autoregressive walk that forgets two thirds of
where it was within an hour. A service has served for eight days before its week, so that its history is a full one.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
import random
from collections.abc import Callable, Iterator, Mapping, Sequence

from bench.alert_replay import Samples
from bench.alert_scenarios import MEAN_TICKET, TAIL_TICKET, Trace
from bench.alert_traces import CONFIGURATION, MINUTE, START, Latency, Minute, pinned, replica, wander
from bench.batching_server import batching_server
from bench.latency_trials import SHAPES, SOURCES, Source

DAY = 1440  # minutes
PAST_DAYS, COUNTED_DAYS, SLOW_HOURS = 8, 7, 6
STEP = 4  # minutes from scrape to scrape; the latency rules look at half an hour
PAST_STEPS, QUIET_STEPS, SLOW_STEPS = PAST_DAYS * DAY // STEP, COUNTED_DAYS * DAY // STEP, SLOW_HOURS * 60 // STEP
RARELY = 7  # before the week, of which only hours are kept, a scrape of so many is enough
REQUESTS = 10.0  # per minute
RECORDED = 30  # minutes that a baseline file covers
SLOWER = 1.3
HOUR_MEMORY = math.exp(-STEP / 60)
USUAL_WANDER = 0.03  # where something else is looked at

WANDERS = (0.025, 0.05, 0.075, 0.1, 0.15, 0.2)
PEAKS, HIGH_PEAKS = "3 h a day at 1.3x", "3 h a day at 1.5x"
JOB, BATCHING = "2 h batch job every night", "batching server"


def week(what: str, source: Source) -> str:
    """The name of a scenario."""
    return f"{what}, baseline: {source}"


# Steps of a service, from the first day of its past to the end: factors of its latency.
Factors = list[float]


def _steady(rng: random.Random, spread: float) -> Factors:
    return list(itertools.islice(wander(rng, spread, HOUR_MEMORY), PAST_STEPS + QUIET_STEPS + SLOW_STEPS))


def _daily(rng: random.Random, hours: float, change: Callable[[Minute], Minute]) -> Callable[[int, Minute], Minute]:
    """Something that happens every day at about the same time, give or take a quarter of an hour."""
    usual = rng.randrange(DAY)
    starts = [usual + rng.uniform(-15, 15) for _ in range(PAST_DAYS + COUNTED_DAYS + 2)]

    def at(step: int, minute: Minute) -> Minute:
        number = step * STEP
        days = range(max(0, number // DAY - 1), number // DAY + 1)
        now = any(starts[day] <= number - day * DAY < starts[day] + 60 * hours for day in days)
        return change(minute) if now else minute

    return at


def _slower(minute: Minute, factor: float) -> Minute:
    return dataclasses.replace(minute, latency={s: each.times(factor) for s, each in minute.latency.items()})


def _with_job(minute: Minute) -> Minute:
    """Half of the requests are those of a batch job, and twice as slow."""
    latency = {s: dataclasses.replace(each, tail_share=0.5, tail_factor=2.0) for s, each in minute.latency.items()}
    return dataclasses.replace(minute, latency=latency)


def _service(rng: random.Random) -> Latency:
    (low, high), sigmas = SHAPES["tpot"]
    return Latency(low * (high / low) ** rng.random(), rng.uniform(*sigmas))


def _scrapes(minutes: Sequence[Minute], source: Source, rng: random.Random, labels: Mapping[str, str]) -> list[Samples]:
    """The series of a service. Beside a live control the past does not matter."""
    minutes = [
        dataclasses.replace(minute, scraped=number >= PAST_STEPS or number % RARELY == 0)
        for number, minute in enumerate(minutes)
    ]
    skipped = PAST_STEPS if source == "control" else 0
    start = START - MINUTE * STEP * (PAST_STEPS - skipped)
    found = replica(minutes[skipped:], rng, labels=labels, start=start, every=MINUTE * STEP)
    wanted = ("specdec_time_per_output_token_seconds_", *CONFIGURATION)
    return [each for each in found if each.series.startswith(wanted)]


def _trace(samples: Sequence[Samples]) -> Trace:
    quiet = QUIET_STEPS * STEP
    return Trace(
        samples=samples, minutes=quiet + SLOW_STEPS * STEP, quiet=quiet, due={MEAN_TICKET: quiet, TAIL_TICKET: quiet}
    )


def _week(
    name: str,
    rng: random.Random,
    source: Source,
    spread: float,
    daily: Callable[[random.Random], Callable[[int, Minute], Minute]] | None = None,
) -> Trace:
    usual, factors = _service(rng), _steady(rng, spread)
    labels = {"inference_service": name, "model_name": "m"}
    change = daily(rng) if daily else None

    def minutes(slower: float) -> Iterator[Minute]:
        for step, factor in enumerate(factors):
            slow = slower if step >= PAST_STEPS + QUIET_STEPS else 1.0
            minute = Minute(drafts=0, curve=(), requests=REQUESTS * STEP, latency={"tpot": usual.times(factor * slow)})
            yield change(step, minute) if change else minute

    samples = _scrapes(list(minutes(SLOWER)), source, rng, labels)
    if source == "control":
        samples += _scrapes(list(minutes(1.0)), source, rng, labels | {"inference_service": f"{name}-control"})
    if source == "pinned":
        steps = RECORDED // STEP
        level = sum(itertools.islice(wander(rng, spread, HOUR_MEMORY), steps)) / steps
        samples += pinned(
            {"tpot": usual.times(level)},
            rng,
            minutes=STEP * (QUIET_STEPS + SLOW_STEPS),
            requests=round(REQUESTS * RECORDED),
            labels=labels,
        )
    return _trace(samples)


def _wandering(spread: float, source: Source) -> Callable[[str, random.Random], Trace]:
    return lambda name, rng: _week(name, rng, source, spread)


def _peaks(factor: float, hours: float) -> Callable[[str, random.Random], Trace]:
    def peak(rng: random.Random) -> Callable[[int, Minute], Minute]:
        return _daily(rng, hours, lambda minute: _slower(minute, factor))

    return lambda name, rng: _week(name, rng, "history", USUAL_WANDER, peak)


def _nightly_job(name: str, rng: random.Random) -> Trace:
    return _week(name, rng, "history", USUAL_WANDER, lambda rng: _daily(rng, 2, _with_job))


def _batching(name: str, rng: random.Random) -> Trace:
    """A quarter of a request a second into a batch of about 17; the rate wanders by a tenth."""
    rates = _steady(rng, 0.1)
    every = 60.0 * STEP
    steps: list[list[float]] = [[] for _ in rates]
    slow_from = every * (PAST_STEPS + QUIET_STEPS)
    until = every * len(rates)
    for at, latency in batching_server(rng, lambda at: 0.25 * rates[min(len(rates) - 1, int(at / every))], until=until):
        if at < until:
            steps[int(at / every)].append(latency * (SLOWER if at >= slow_from else 1.0))
    minutes = [Minute(drafts=0, curve=(), requests=0, finished={"tpot": latencies}) for latencies in steps]
    return _trace(_scrapes(minutes, "history", rng, {"inference_service": name, "model_name": "m"}))


# By what differs from hour to hour, and by the source of the baseline.
LATENCY_WEEKS: Mapping[str, Callable[[str, random.Random], Trace]] = {
    **{
        week(f"{100 * spread:g} % wander", source): _wandering(spread, source)
        for source in SOURCES
        for spread in WANDERS
    },
    week(PEAKS, "history"): _peaks(1.3, 3),
    week(HIGH_PEAKS, "history"): _peaks(1.5, 3),
    week(JOB, "history"): _nightly_job,
    week(BATCHING, "history"): _batching,
}
