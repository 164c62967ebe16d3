"""What happens to services that run: outages, changes on purpose, and weeks in which nothing is wrong.

Unlike the other traces, these have replicas with targets of their own, and each kind is there with either source.
"""

from __future__ import annotations

import dataclasses
import math
import random
from collections.abc import Callable, Mapping, Sequence

from bench.alert_replay import Samples
from bench.alert_scenarios import CURVE, Noise, Service, Trace, some_service
from bench.alert_traces import Minute, replica, scaled
from rules.scenario import Source

Make = Callable[[str, random.Random, Source], Trace]
# Changes a minute of a replica; the minute is counted from the beginning of the cause.
Change = Callable[[Minute, int], Minute]

DAY = 1440  # minutes
AFTER = 150  # minutes that are watched after an outage
HISTORY = 27 * 60  # minutes before a change: the pack needs a day for a baseline
TOLD_WITHIN = 30  # hours in which a change may raise a false alert
WEEK = 7 * DAY  # the first day has no history yet


def _series(
    service: Service, replicas: Sequence[Sequence[Minute]], source: Source, *, method: str = "eagle3"
) -> list[Samples]:
    found = []
    for number, minutes in enumerate(replicas):
        target = {"pod": f"{service.name}-{number}", "instance": f"{service.name}-{number}:8000", "job": "predictors"}
        found += replica(minutes, service.rng, labels=service.labels | target, method=method, source=source)
    return found


def _well(
    service: Service, replicas: int, minutes: int, load: Callable[[int], float] = lambda _: 1.0
) -> list[list[Minute]]:
    """The replicas share the load evenly, and what the hour does to all of them."""
    shared = Noise(service.rng)
    whole = [service.minute(shared, load=load(number) / replicas) for number in range(minutes)]
    return [list(whole) for _ in range(replicas)]


# --- Outages ----------------------------------------------------------------------------------------------------------


def _outage(change: Change, *, hours: Sequence[float], replicas: int = 1, broken: int | None = None) -> Make:
    """For some of these hours, ``broken`` of the replicas change (all, without a number)."""

    def make(name: str, rng: random.Random, source: Source) -> Trace:
        service = some_service(name, rng)
        onset, lasts = rng.randrange(60, 90), round(60 * rng.choice(hours))
        minutes = _well(service, replicas, onset + lasts + AFTER)
        for own in minutes[:broken]:
            own[onset : onset + lasts] = [change(minute, at) for at, minute in enumerate(own[onset : onset + lasts])]
            own[onset + lasts] = dataclasses.replace(own[onset + lasts], restart=True)
        return Trace(
            samples=_series(service, minutes, source),
            minutes=onset + lasts + AFTER,
            quiet=onset,
            over=onset + lasts,
        )

    return make


def _again(down: int, up: int, slow: float = 1.0) -> Change:
    """Minutes without an answer, a start, and minutes with one."""

    def change(minute: Minute, at: int) -> Minute:
        since = at % (down + up)
        latency = {sli: each.times(slow) for sli, each in minute.latency.items()}
        return dataclasses.replace(minute, up=since >= down, restart=since == down, latency=latency)

    return change


def _is(**fields: object) -> Change:
    return lambda minute, _: dataclasses.replace(minute, **fields)  # type: ignore[arg-type]  # fields of Minute


HUNG = _is(drafts=0.0, requests=0.0, running=8.0, waiting=40.0)


# --- Changes on purpose -----------------------------------------------------------------------------------------------


def _longer(curve: Sequence[float], positions: int) -> tuple[float, ...]:
    """The same curve with more positions, each of which keeps the last conditional rate."""
    rates = list(curve)
    while len(rates) < positions:
        rates.append(rates[-1] * curve[-1] / curve[-2])
    return tuple(rates)


def _changed(*changes: tuple[int, Change], hours: int = TOLD_WITHIN) -> Make:
    """Two replicas get each change (hours after the history), one a quarter of an hour after the other."""

    def make(name: str, rng: random.Random, source: Source) -> Trace:
        service = dataclasses.replace(some_service(name, rng), acceptance=rng.uniform(0.72, 0.76))
        total = HISTORY + 60 * hours
        replicas = _well(service, 2, total)
        for number, own in enumerate(replicas):
            usual = list(own)
            for hour, change in changes:
                first = HISTORY + 60 * hour + 15 * number
                own[first:] = [change(minute, at) for at, minute in enumerate(usual[first:])]
                own[first : first + 2] = [dataclasses.replace(minute, up=False) for minute in own[first : first + 2]]
                own[first + 2] = dataclasses.replace(own[first + 2], restart=True)
        return Trace(samples=_series(service, replicas, source), minutes=total, quiet=HISTORY)

    return make


def _slower(factor: float) -> Change:
    return lambda minute, _: dataclasses.replace(
        minute, latency={sli: each.times(factor) for sli, each in minute.latency.items()}
    )


def _both(*changes: Change) -> Change:
    def change(minute: Minute, at: int) -> Minute:
        for each in changes:
            minute = each(minute, at)
        return minute

    return change


def _five_positions(minute: Minute, _: int) -> Minute:
    return dataclasses.replace(minute, curve=_longer(minute.curve, 5))


def _drafting(acceptance: float, positions: int, method: str) -> Change:
    """Another draft model, or none."""
    curve = _longer(CURVE, positions)
    return lambda minute, _: dataclasses.replace(
        minute, curve=scaled(curve, acceptance * sum(minute.curve) / len(minute.curve) / 0.74), method=method
    )


OFF = _both(_is(speculative=False, drafts=0.0), _slower(1.6))


def _slower_for_a_day(name: str, rng: random.Random, source: Source) -> Trace:
    """On little more than a day of history: it must not become the new normal within hours."""
    service = some_service(name, rng)
    total, over = HISTORY + DAY + AFTER, HISTORY + DAY
    (minutes,) = _well(service, 1, total)
    minutes[HISTORY:over] = [_slower(1.4)(minute, 0) for minute in minutes[HISTORY:over]]
    return Trace(
        samples=_series(service, [minutes], source),
        minutes=total,
        quiet=HISTORY,
        over=over,
    )


# --- Days in which nothing is wrong -----------------------------------------------------------------------------------


def _nightly(name: str, rng: random.Random, source: Source) -> Trace:
    """A batch job makes everything 1.5 times slower for two hours of every night, give or take a quarter of an hour."""
    service = some_service(name, rng)
    (minutes,) = _well(service, 1, WEEK)
    for day in range(WEEK // DAY):
        first = day * DAY + 13 * 60 + rng.randrange(-15, 16)
        minutes[first : first + 120] = [_slower(1.5)(minute, 0) for minute in minutes[first : first + 120]]
    return Trace(samples=_series(service, [minutes], source), minutes=WEEK, quiet=WEEK)


def _started(minutes: list[Minute], at: int, away: int = 2, cold: int = 8) -> None:
    """A start: minutes without an answer, then slow ones."""
    for number in range(at, min(at + away, len(minutes))):
        minutes[number] = dataclasses.replace(minutes[number], up=False)
    for number in range(at + away, min(at + away + cold, len(minutes))):
        slow = _slower(1.8)(minutes[number], 0)
        minutes[number] = dataclasses.replace(slow, restart=number == at + away)


def _healthy(name: str, rng: random.Random, source: Source, *, to_zero: bool = False) -> Trace:
    """All that is usual at once.

    Day and night; a rollout every day; a third replica at noon; one scrape in 200 lost, and once four minutes without
    Prometheus. With ``to_zero`` no replica at all at night, and a cold start of eight minutes in the morning.
    """
    service = some_service(name, rng)

    def day(number: int) -> float:
        """0 at midnight, 1 at noon; a trace begins at noon."""
        return (1 + math.cos(2 * math.pi * number / DAY)) / 2

    replicas = _well(service, 2, WEEK, lambda number: 0.15 + 0.85 * day(number))
    third = [dataclasses.replace(minute, scraped=day(number) > 0.8) for number, minute in enumerate(replicas[0])]
    for first in range(0, WEEK, DAY):
        rollout, apart = first + rng.randrange(60, DAY - 90), rng.randrange(4, 16)
        for number, own in enumerate(replicas):
            _started(own, rollout + apart * number)
        morning = next(at for at in range(first + DAY // 2, first + DAY) if day(at) > 0.8)
        _started(third, morning)
        if to_zero:
            for own in replicas:
                for number in range(first + 9 * 60, first + 17 * 60):
                    own[number] = dataclasses.replace(own[number], scraped=False)
                _started(own, first + 17 * 60, away=8)
    replicas.append(third)
    blind = rng.randrange(DAY, WEEK - 4)
    for number in range(WEEK):
        if blind <= number < blind + 4:
            for own in replicas:
                own[number] = dataclasses.replace(own[number], scraped=False)
        for own in replicas:
            if rng.random() < 0.005:
                own[number] = dataclasses.replace(own[number], scraped=False)
    return Trace(samples=_series(service, replicas, source), minutes=WEEK, quiet=WEEK)


def _to_zero(name: str, rng: random.Random, source: Source) -> Trace:
    return _healthy(name, rng, source, to_zero=True)


# --- What is wanted ---------------------------------------------------------------------------------------------------

DOWN, LOOP, STALLED = "SpecDecodeTargetDown", "SpecDecodeRestartLoop", "SpecDecodeEngineStalled"
SIDECAR, LOW, MEAN = "SpecDecodeSidecarDown", "SpecDecodeAcceptanceLow", "SpecDecodeLatencyMeanRegression"
EITHER: tuple[Source, ...] = ("exporter", "vllm")
EXPORTER: tuple[Source, ...] = ("exporter",)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """A kind of trace, and what a person on call wants of it.

    ``page`` or ``ticket``: the alert that must come ``within`` so many minutes, once, without a gap until the cause
    ends, and be over ``ends`` minutes later. Without a ``page`` none may come, unless it ``may_page``; without either,
    no ticket. Before ``settled`` minutes nothing is judged. ``recurs``: so is every day, and a few alerts are allowed.
    """

    make: Make
    page: str = ""
    ticket: str = ""
    may_page: bool = False
    within: int = 15
    ends: int = 30
    settled: int = 0
    sources: tuple[Source, ...] = EITHER
    recurs: bool = False


_HOURS = (1.0, 3.0, 6.0)
OUTAGES: Mapping[str, Operation] = {
    "4 min down, 4 min up": Operation(make=_outage(_again(4, 4), hours=(2, 4)), page=LOOP, within=40, ends=120),
    "1 of 3: 4 min down, 4 min up": Operation(
        make=_outage(_again(4, 4), hours=(2, 4), replicas=3, broken=1), ticket=LOOP, within=35, ends=120
    ),
    "3 of 40 min down, then 3x slower": Operation(
        make=_outage(_again(3, 37, slow=3.0), hours=(4, 5)), ticket=LOOP, within=100, ends=120, may_page=True
    ),
    "hung engine": Operation(make=_outage(HUNG, hours=(1, 2)), page=STALLED),
    "1 of 2 engines hung": Operation(make=_outage(HUNG, hours=(1, 2), replicas=2, broken=1), page=STALLED),
    "all pods gone": Operation(make=_outage(_is(scraped=False), hours=_HOURS, replicas=2), page=DOWN, within=20),
    "1 of 3 pods gone": Operation(make=_outage(_is(scraped=False), hours=_HOURS, replicas=3, broken=1)),
    "no pod answers": Operation(make=_outage(_is(up=False), hours=_HOURS, replicas=2), page=DOWN),
    "1 of 3 pods does not answer": Operation(
        make=_outage(_is(up=False), hours=_HOURS, replicas=3, broken=1), ticket=DOWN, within=25
    ),
    "sidecar dead": Operation(make=_outage(_is(sidecar=False), hours=_HOURS), page=DOWN, within=20, sources=EXPORTER),
    "1 of 3 sidecars dead": Operation(
        make=_outage(_is(sidecar=False), hours=_HOURS, replicas=3, broken=1),
        ticket=SIDECAR,
        within=25,
        sources=EXPORTER,
    ),
}
_NGRAM = _both(_drafting(0.42, 5, "ngram"), _slower(1.25))
CHANGES: Mapping[str, Operation] = {
    "k 3 -> 5": Operation(make=_changed((0, _five_positions))),
    "k 3 -> 5, a broken head": Operation(
        make=_changed((0, _drafting(0.05, 5, "eagle3")), hours=6), page=LOW, within=60
    ),
    "eagle3 -> ngram": Operation(make=_changed((0, _NGRAM)), sources=EXPORTER),
    "eagle3 -> ngram, method unknown": Operation(make=_changed((0, _NGRAM)), ticket=LOW, within=60, sources=("vllm",)),
    "speculation off, on after 26 h": Operation(make=_changed((0, OFF), (26, lambda minute, _: minute))),
}
LASTING: Mapping[str, Operation] = {
    "1.4x slower for a day": Operation(make=_slower_for_a_day, ticket=MEAN, may_page=True, within=45, ends=60),
}
DAYS: Mapping[str, Operation] = {
    "2 h at 1.5x every night": Operation(make=_nightly, settled=4 * DAY, recurs=True),
    "all that is usual": Operation(make=_healthy, recurs=True),
}
ZERO: Mapping[str, Operation] = {"all that is usual, to zero at night": Operation(make=_to_zero, recurs=True)}


def named(what: str, source: Source) -> str:
    """The name of a scenario."""
    return f"{what}, source: {source}"


def _trace(make: Make, source: Source) -> Callable[[str, random.Random], Trace]:
    return lambda name, rng: make(name, rng, source)


OPERATIONS: Mapping[str, Callable[[str, random.Random], Trace]] = {
    named(what, source): _trace(operation.make, source)
    for kind in (OUTAGES, CHANGES, LASTING, DAYS, ZERO)
    for what, operation in kind.items()
    for source in operation.sources
}
