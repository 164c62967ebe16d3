"""Kinds of predictors: who answers each scrape, and what the exporter may make of it."""

from __future__ import annotations

import dataclasses
import math
import random
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from faults.processes import Engine, Process
from faults.wire import CUTS, REFUSED, SLOW, Fault, wrong


@dataclasses.dataclass(frozen=True, slots=True)
class Kind:
    """``order`` has a letter for each scrape: the process of ``who`` that answers it, or "-" for nobody.

    In the end ``processes`` have answered, and never more than ``most``. Of the growth between two answers of a
    process, at least the share ``least`` is counted in the end, apart from figures whose names begin with one of
    ``loses``. Never is more counted than ``over`` intervals' growth above the truth. ``exact``: what is shown is what
    the process counted, to the digit. ``faults`` and ``age`` (seconds) of an answer, and how far the exporter's wall
    clock is ahead (``set_clock``), are by the number of the scrape.
    """

    name: str
    order: str
    who: Mapping[str, Process]
    interval: int = 15
    processes: int = 1
    most: int = 0
    faults: Mapping[int, Fault] = dataclasses.field(default_factory=dict)
    age: Callable[[int], float] = lambda _: 0.0
    set_clock: Mapping[int, float] = dataclasses.field(default_factory=dict)
    least: float = 0.98
    over: float = 1.0
    loses: tuple[str, ...] = ()
    exact: bool = False
    timeout_seconds: float = 5.0

    def least_of(self, name: str) -> float:
        """The share that is counted of a series."""
        return 0.0 if self.loses and name.startswith(self.loses) else self.least


OLD, YOUNGER, YOUNGEST = -100_000.0, -40_000.0, -16_000.0  # each has counted less than half of the one before
SECRET: dict[str, Any] = {"clock": None}  # tells no start time


def ages(*began: float, **more: Any) -> dict[str, Process]:
    """Processes A, B ... that began at these times."""
    return {letter: Process(at, **more) for letter, at in zip("ABCDEFGHIJ", began, strict=False)}


def one_process() -> Iterator[Kind]:
    """Nobody else answers."""
    alone, secret = ages(OLD), ages(OLD, clock=None)
    yield Kind("one process", "A" * 24, alone, exact=True)
    yield Kind("one process, at scrapes of 60 s", "A" * 24, ages(-7), interval=60, exact=True)
    yield Kind("one process, no start time", "A" * 24, secret, exact=True)
    yield Kind("a V0 engine", "A" * 24, ages(OLD, v0=True), exact=True)
    for what, who in (("", alone), (", no start time", secret)):
        yield Kind(f"not reachable for a while{what}", "A" * 9 + "-" * 9 + "A" * 9, who, exact=True)
        yield Kind(f"a cache of 40 s{what}", "A" * 24, who, age=lambda n: n * 15 % 40, exact=True)
        # Without start times, old answers look like those of a second process: what happened may count twice.
        alike: dict[str, Any] = {"over": 24.0, "processes": 2} if what else {}
        then = Kind(f"an old answer now and then{what}", "A" * 24, who, age=lambda n: 120.0 * (n % 5 == 4), **alike)
        yield then
        yield dataclasses.replace(then, name=f"two caches in turn{what}", age=lambda n: (5.0, 65.0)[n % 2])
    broken = {2 * n + 1: fault for n, fault in enumerate(REFUSED)}
    yield Kind("every broken answer", "A" * 30, alone, faults=broken, exact=True)
    yield Kind("slow answers", "A" * 6, alone, faults={2: SLOW[0], 4: SLOW[1]}, timeout_seconds=0.3, exact=True)
    for fault in CUTS:
        loses = ("specdec_accepted",) if fault is CUTS[0] else ()
        yield Kind(fault.name, "A" * 16, alone, faults={5: fault, 9: fault, 10: fault}, over=2.0, loses=loses)
    moved = ages(OLD, wander=lambda at: 37.0 if at > 200 else 0.0)
    yield Kind("a start time that moves once by 37 s", "A" * 32, moved, interval=30, most=2, least=0.95)
    jitter = ages(OLD, wander=lambda at: (0.0, 1.0, 0.0, -0.99)[int(at / 15) % 4])
    yield Kind("a start time that jitters by 1 s", "A" * 24, jitter, exact=True)
    busy = {"A": dataclasses.replace(jitter["A"], began=-10.0, rate=100.0, wander=lambda at: OLD + 0.31 * at % 2)}
    yield Kind("a start time that always jitters, of a process that was idle for long", "A" * 24, busy, least=0.95)
    ranks = Process(engines=(Engine("0"), Engine("1", until=100), Engine("2", since=150), Engine("1", since=250)))
    yield Kind("engines that appear and vanish", "A" * 30, {"A": ranks})
    for hours in (-1, 1):
        turned = {12: hours * 3600.0}
        yield Kind(f"the exporter's clock is set by {hours} h", "A" * 24, alone, set_clock=turned, exact=True)


def wrong_figures() -> Iterator[Kind]:
    """One figure is wrong in some answers: only that one may suffer."""
    name, loses, alone = "spec_decode_num_draft_tokens_total", ("specdec_draft_tokens_total",), ages(OLD)
    for what, value in (("NaN", math.nan), ("negative", -5.0), ("1e308", 1e308)):
        fault = wrong(name, lambda _, value=value: value)  # type: ignore[misc]
        yield Kind(f"a counter that is {what}", "A" * 24, alone, faults=dict.fromkeys((7, 8, 15), fault), over=3.0)
    far = wrong(name, lambda value: value + 1e15)
    yield Kind("a counter that jumps by 1e15 and back", "A" * 24, alone, faults={7: far, 15: far}, over=2.0)
    stays = dict.fromkeys(range(7, 24), far)
    yield Kind("a counter that jumps by 1e15 and stays", "A" * 24, alone, faults=stays, loses=loses, over=2.0)
    less = wrong(name, lambda value: value % 100_000)
    yield Kind("a digit less in a counter", "A" * 24, alone, faults={7: less, 15: less}, loses=loses, over=2.0)
    # Nothing tells this from growth.
    more, once = wrong(name, lambda value: value + 10_000), 1 + 10_000 / 450
    yield Kind("a digit more in a counter", "A" * 24, alone, faults={7: more}, loses=loses, over=once)
    fallen = dict.fromkeys(range(7, 24), wrong("inter_token_latency_seconds_sum", lambda value: value - 30.0))
    yield Kind("a latency sum that falls", "A" * 24, alone, faults=fallen, loses=("specdec_step_latency",))


def restarts() -> Iterator[Kind]:
    """One process after the other, at scrapes of 30 s."""

    def kind(name: str, order: str, who: Mapping[str, Process], **more: Any) -> Kind:
        return Kind(name, order, who, interval=30, **more)

    between, gap, settled = "A" * 8 + "B" * 8, "A" * 8 + "--" + "B" * 8, "B" * 18
    for what, more in (("", {}), (", no start time", SECRET)):
        yield kind(f"restart between two scrapes{what}", between, ages(OLD, 213, **more), exact=not more)
        yield kind(f"restart, and nothing answers meanwhile{what}", gap, ages(OLD, 290, **more), exact=True)
        idle = {"A": Process(level=5000, rate=0, **more), "B": Process(290, rate=0, **more)}
        yield kind(f"restart of an idle predictor{what}", gap, idle)
        faster = {"A": Process(-20.0, **more), "B": Process(230.0, 1000.0, **more)}
        yield kind(f"restart with higher counters after{what}", between + settled, faster, most=2)
        yield kind(f"a pod replaced behind a stable name{what}", between + settled, ages(OLD, 180, **more), most=2)
    for ahead in (-3600, -300, -10, 10, 300, 3600):
        node = f"on a node whose clock is {ahead:+} s"
        yield kind(f"restart between two scrapes {node}", between + settled, ages(OLD, 213, clock=ahead), most=2)
        yield kind(f"restart, and nothing answers, {node}", gap + settled, ages(OLD, 290, clock=ahead), most=2)
    last = {"A": Process(), "C": Process(453)}
    for what, changed in (
        ("with other buckets", {"bounds": (0.02, 0.2, 2.0)}),
        ("with another model", {"model": "other"}),
    ):
        yield kind(f"restart {what}", between, {**last, "B": Process(213, **changed)}, exact=True)
    back = between + "C" * 8
    yield kind("restart as a V0 engine, and back", back, {**last, "B": Process(213, v0=True)}, exact=True)
    yield kind("restart without a start time, and with one again", back, {**last, "B": Process(213, clock=None)})
    # What falls may be an old answer: it counts anew after ten minutes.
    anew = {**last, "B": Process(213, wander=lambda _: OLD - 213)}
    yield kind("counters that begin anew in the same process", between + settled * 2, anew, least=0.4)
    past = {**last, "B": Process(290, clock=-3600)}
    yield kind("restart after the predictor's clock was set back", gap + settled, past, most=2)
    who, turned = ages(OLD, 290), {4: -3600.0}
    yield kind("restart after the exporter's clock was set back", gap + settled, who, set_clock=turned, most=2)


def several() -> Iterator[Kind]:
    """Several processes answer at one URL."""

    def kind(name: str, order: str, who: Mapping[str, Process], **more: Any) -> Kind:
        return Kind(name, order, who, **{"processes": len(set(order)), **more})

    def looks_grown(who: Mapping[str, Process], order: str, interval: float = 15) -> float:
        """The one exception: without start time, the first answer of a process that counted more looks like growth."""
        found = [who[letter] for letter in sorted(set(order))]
        counts = [each.rate * -each.began for each in found]
        return 1 + sum(count - min(counts) for count in counts) / sum(each.rate * interval for each in found)

    for what, more in (("", {}), (", no start time", SECRET)):
        for age, began in (("old", (OLD, YOUNGER, YOUNGEST)), ("fresh", (-80.0, -20.0, -3.0))):
            who = ages(*began, **more)
            yield kind(f"two {age} replicas in turn{what}", "AB" * 12, who)
            yield kind(f"three {age} replicas in turn{what}", "ABC" * 8, who)
            for number, order in (("two", "BA" * 12), ("three", "CBA" * 8)):
                loose = {"over": looks_grown(who, order), "least": 0.7} if more else {}
                if more and age == "fresh" and number == "three":
                    loose |= {"processes": 2, "most": 3}
                yield kind(f"{number} {age} replicas in turn, the lowest first{what}", order, who, **loose)
        three = ages(OLD, YOUNGER, YOUNGEST, **more)
        yield kind(f"A, A, B, B, A, A, B at scrapes of 60 s{what}", "AABBAAB" * 4, three, interval=60)
        for name, order, processes, settings in (
            ("three in random order", "".join(random.Random(5).choices("ABC", k=36)), 3, {}),
            ("failover to an older standby and back", "B" * 8 + "A" * 8 + "B" * 8, 1, {}),
            ("back after it was forgotten", "B" * 6 + "A" * 12 + "B" * 6, 1, {"interval": 60, "least": 0.6}),
        ):
            over = looks_grown(three, order, settings.get("interval", 15)) if more else 1.0
            yield kind(f"{name}{what}", order, three, processes=processes, over=over, **settings)
        rates = {"A": Process(-1000.0, **more), "B": Process(-10.0, 100.0, **more)}
        loose = {"least": 0.5, "over": 2.0} if more else {}
        yield kind(f"the lower counts faster and passes the other{what}", "AB" * 15, rates, **loose)
        rollout, one = "A" * 6 + "AB" * 3 + "B" * 24, ages(OLD, 160.0, **more)
        yield kind(f"rollout of one replica{what}", rollout, one, interval=30, processes=1, most=2)
        surge, four = "AB" * 5 + "ABCD" * 3 + "CD" * 12, ages(OLD, YOUNGER, 290.0, 275.0, **more)
        # Without start times, two that began at once may count as one.
        loose = {"least": 0.4, "over": 3.0, "processes": 1} if more else {"processes": 2}
        yield kind(f"surge rollout of two replicas{what}", surge, four, interval=30, most=4, **loose)
        ten = ages(*(OLD / 2.3**n for n in range(10)), **more)
        yield kind(f"ten replicas in turn{what}", "ABCDEFGHIJ" * 4, ten)
    for ahead in (-300, 10, 300, 3600):
        for age, two in (("old", (OLD, YOUNGER)), ("fresh", (-80.0, -20.0))):
            yield kind(f"two {age} replicas whose clock is {ahead:+} s", "AB" * 12, ages(*two, clock=ahead))
    for name, other in (
        ("of almost the same counts", Process(0.95 * OLD)),
        ("that started within a second", Process(OLD + 0.7, level=50_000)),
        ("of which one tells no start time", Process(YOUNGER, clock=None)),
        ("of which one seems to begin just now, by its clock", Process(2 * OLD, clock=10 - 2 * OLD)),
        ("of two models", Process(YOUNGER, model="other")),
    ):
        yield kind(f"two replicas {name}", "AB" * 12, {"A": Process(), "B": other})
        yield kind(f"two replicas {name}, in the other order", "BA" * 12, {"A": Process(), "B": other})


KINDS = {kind.name: kind for kinds in (one_process, wrong_figures, restarts, several) for kind in kinds()}
