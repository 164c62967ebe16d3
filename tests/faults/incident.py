"""An incident: faults one after the other, and what Prometheus must and must not have of them afterwards."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import NamedTuple

from faults import predictor as broken
from faults.predictor import COUNTERS, GOOD, IN_GZIP, Answer, Fault, FaultyPredictor, World, current, whole

TIMES = 3  # how often each fault comes
SLOW = (
    Fault("no answer in time", broken.never, current),
    Fault("byte by byte", broken.drip, current),
)
FAULTS = (
    Fault("connection reset at once", broken.nothing, current, requests=2),
    Fault("cut in the head", broken.half_a_head, current, requests=2),
    Fault("no HTTP", broken.no_http, current),
    Fault("cut in the body", broken.half, current),
    Fault("reset in the body", broken.half_then_reset, current),
    Fault("cut in mid-line, no length", broken.in_mid_line, current),
    Fault("cut before the last newline, no length", broken.before_the_last_newline, current),
    Fault("cut between two counters, no length", broken.between_two_counters, current),
    Fault("cut before the first counter, no length", broken.before_the_first_counter, current),
    Fault("cut in mid-gzip, no length", broken.in_mid_gzip, current),
    Fault("damaged gzip", broken.damaged_gzip, current),
    Fault("status 503 with a good body", broken.server_error, current),
    Fault("redirect to another port", broken.redirected, current),
    Fault("an empty 200", whole, broken.empty),
    Fault("a web page", whole, broken.web_page),
    Fault("statistics missing", whole, broken.without_statistics),
    Fault("letters for digits", whole, broken.letters_for_digits),
    Fault("damaged labels", whole, broken.damaged_labels),
    Fault("a digit less in a counter", whole, broken.a_digit_less),
    Fault("an old answer", whole, broken.old),
    Fault("another predictor's answer", whole, broken.stranger),
)
LOST = FAULTS[0]
OF_THE_TWIN = Fault("twin", whole, broken.twin)


class Step(NamedTuple):
    """A part of the incident. ``event`` comes first."""

    name: str
    faults: Sequence[Fault]
    event: Callable[[World], None] | None = None


def _restarts(**changes: object) -> Callable[[World], None]:
    return lambda world: world.restart(**changes)


def steps() -> list[Step]:
    """The incident."""
    return [
        *(Step(fault.name, [fault] * TIMES) for fault in FAULTS),
        Step("all faults, one after the other", FAULTS),
        Step("old answers in between", [Fault("old", whole, broken.old), GOOD] * TIMES),
        Step("two predictors answer in turn", [OF_THE_TWIN, GOOD] * TIMES),
        Step("gzip of several members", [IN_GZIP] * TIMES),
        Step("restart between two scrapes", [], _restarts()),
        Step("restart, and nothing answers meanwhile", [LOST] * TIMES, _restarts()),
        Step("restart with an earlier start time, for the clock was set back", [LOST], World.restart_in_the_past),
        Step("restart: V0 engine of 0.6.6", [LOST], _restarts(vllm_version="0.6.6.post1")),
        Step("restart: V1 engine of 0.8.5", [LOST], _restarts(vllm_version="0.8.5", engine_generation="v1")),
        Step("restart: 0.20.2", [LOST], _restarts(vllm_version="0.20.2")),
        Step("restart: a process that tells no start time", [LOST], _restarts(start_time=False)),
        # Old enough that its own old answers do not look like a restart.
        Step("old answers in between, no start time", [*[GOOD] * 12, *[Fault("old", whole, broken.old), GOOD] * TIMES]),
        Step("two predictors answer in turn, no start time", [OF_THE_TWIN, GOOD] * TIMES),
        Step("restart: 0.32.0", [LOST], _restarts()),
    ]


def play(predictor: FaultyPredictor, step: Step) -> None:
    """Begin a step; its faults come with the next fetches."""
    predictor.step = step.name
    if step.event:
        step.event(predictor.world)
    for fault in step.faults:
        predictor.plan.extend([fault] * fault.requests)


class Scrape(NamedTuple):
    """What Prometheus has of one scrape: ``values`` by name (with ``{position}`` where it has one)."""

    at: float
    values: Mapping[str, float]


@dataclass(slots=True)
class Judgement:
    """The table's figures, by step; ``wrong`` says what is wrong."""

    scrapes: Counter[str] = field(default_factory=Counter)
    failed: Counter[str] = field(default_factory=Counter)
    gaps: Counter[str] = field(default_factory=Counter)  # scrapes without data where the answer was sound
    wrong: list[tuple[str, str]] = field(default_factory=list)  # step, words
    good: list[tuple[Scrape, Answer]] = field(default_factory=list)  # with the predictor up


def judge(scrapes: Iterable[Scrape], answers: Sequence[Answer]) -> Judgement:
    """Compare each scrape with the last answer within it. The scrapes are in order; none may be missing."""
    found = Judgement()
    good = found.good
    ordered = list(scrapes)
    for scrape, answer in _paired(ordered, answers):
        step, up = answer.step, scrape.values.get("specdec_up")
        found.scrapes[step] += 1
        found.failed[step] += up == 0
        found.gaps[step] += answer.sound and up != 1
        problems = list(_problems(scrape, answer))
        if up == 1:
            good.append((scrape, answer))
        found.wrong += ((step, f"{scrape.at}, {answer.fault}: {problem}") for problem in problems)
    for (before, one), (now, other) in pairwise(good):
        for problem in _increase_problems(before, one, now, other):
            found.wrong.append((other.step, f"{now.at}, {other.fault}: {problem}"))
    return found


def _paired(scrapes: Sequence[Scrape], answers: Sequence[Answer]) -> Iterator[tuple[Scrape, Answer]]:
    """A fetch that is cut before its answer is tried a second time within the scrape: the last one counts."""
    times = [scrape.at for scrape in scrapes]
    last: dict[int, Answer] = {}
    for answer in answers:
        last[bisect_right(times, answer.at + 0.005) - 1] = answer  # Prometheus rounds its times
    yield from ((scrapes[index], answer) for index, answer in sorted(last.items()) if index >= 0)


def _problems(scrape: Scrape, answer: Answer) -> Iterator[str]:
    if odd := [name for name, value in scrape.values.items() if not math.isfinite(value)]:
        yield f"not finite: {odd}"
    up = scrape.values.get("specdec_up")
    if up is None and scrape.values.get("up") != 0:  # 0: the exporter did not answer Prometheus in time
        yield "specdec_up is missing"
    if up == 1 and not answer.sound:
        yield "up with an unsound answer"
    wanted = answer.totals if up == 1 else {}
    shown = {name: scrape.values[name] for name in COUNTERS if name in scrape.values}
    if shown != wanted:
        yield f"counters {shown}, expected {wanted}"


def _increase_problems(before: Scrape, one: Answer, now: Scrape, other: Answer) -> Iterator[str]:
    """Prometheus takes a fall for a restart. It may miss what a dying process did last, and may add nothing."""
    for name in COUNTERS:
        if name not in before.values or name not in now.values or one.v0 != other.v0:
            continue
        was, value = before.values[name], now.values[name]
        counted = value - was if value >= was else value
        happened = other.happened[name] - one.happened[name]
        if counted > happened or (one.process == other.process and counted != happened):
            yield f"{name} increased by {counted:g}, in truth by {happened:g}"


class Increase(NamedTuple):
    """Prometheus' ``increase(name[seconds])`` at a time."""

    name: str
    at: float
    seconds: float
    value: float


def increase_problems(increases: Iterable[Increase], scrapes: Iterable[Scrape]) -> Iterator[str]:
    """Prometheus extrapolates what it saw to the window, never beyond; it must be no less either."""
    ordered = list(scrapes)
    times = [scrape.at for scrape in ordered]
    for name, at, seconds, value in increases:
        inside = ordered[bisect_right(times, at - seconds - 1e-6) : bisect_right(times, at + 1e-6)]
        seen = [(scrape.at, scrape.values[name]) for scrape in inside if name in scrape.values]
        counted = sum(now - was if now >= was else now for (_, was), (_, now) in pairwise(seen))
        most = counted * seconds / (seen[-1][0] - seen[0][0])
        if not counted * (1 - 1e-6) <= value <= most * (1 + 1e-6):
            yield f"increase({name}[{seconds:g}s]) at {at} is {value}, expected {counted} to {most}"
