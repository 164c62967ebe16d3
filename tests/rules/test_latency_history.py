"""The history of a service as a baseline: its hours of the day, and how far it wanders by itself."""

from __future__ import annotations

import dataclasses
import math
import random
import re
from collections.abc import Iterable, Iterator, Mapping
from statistics import NormalDist

import pytest

from rules.conftest import FILES, RENDERED
from rules.scenario import (
    CONTROL,
    STEADY,
    Case,
    Pack,
    Phase,
    Series,
    Shares,
    Source,
    pinned,
    service,
    slower,
    with_tail,
)

STEP = 15  # minutes between two samples
HOUR = 60 // STEP
DAY = 24 * 60
MEAN = "SpecDecodeP99Regression warning mean"
P99 = "SpecDecodeP99Regression warning tail"
P99_PAGE = "SpecDecodeP99Regression critical tail"
QUIET: set[str] = set()
WANDER = 'inference_service:specdec_latency:wander1h{sli="tpot"}'

USUAL = STEADY["tpot"]
PEAK = with_tail(slower(USUAL, 1.5), 0.12, 0.15)
SLOWER_PEAK = with_tail(slower(USUAL, 2.0), 0.12, 0.4)
PEAK_HOURS = range(9, 12)


@pytest.fixture(name="pack")
def _pack(pack: Pack) -> Pack:
    """The groups that these alerts need: days of the whole pack would take too long."""
    return pack.only("epoch", "history", "latency", "baselines", "regression", "tails", "alerts-latency")


def hours(tpot: Iterable[Shares], **more: Mapping[str, str] | bool) -> list[Series]:
    """A service by its time per output token, hour by hour: 3,600 requests in each."""
    phases = [Phase(minutes=HOUR, latency={"tpot": shares}, requests_per_minute=900) for shares in tpot]
    return service(*phases, families=("tpot",), **more)  # type: ignore[arg-type]  # labels and speculative


def days(count: int, peak: Shares = USUAL) -> Iterator[Shares]:
    """Days that are alike."""
    for hour in range(24 * count):
        yield peak if hour % 24 in PEAK_HOURS else USUAL


def wandering(count: int, spread: float = 0.1) -> list[Shares]:
    """Days whose hours differ by chance."""
    rng = random.Random(14)
    return [slower(USUAL, 1 + rng.gauss(0, spread)) for _ in range(24 * count)]


def at(day: int, hour: int) -> int:
    """The minute at which an hour of a day has begun; the first day is 0."""
    return DAY * day + 60 * hour


def test_a_daily_peak_is_usual_after_some_days(pack: Pack) -> None:
    edges_and_peak = range(PEAK_HOURS.start - 1, PEAK_HOURS.stop + 3)
    pack.run(
        Case(
            name="every day",
            series=hours(days(5, PEAK)),
            firing={at(1, 12): {MEAN, P99_PAGE}} | {at(4, hour): QUIET for hour in edges_and_peak},
        ),
        Case(
            name="a peak that is slower than on other days",
            series=hours([*days(4, PEAK), *days(1, SLOWER_PEAK)]),
            firing={at(4, 8): QUIET, at(4, 12): {MEAN}},
        ),
        Case(
            name="at the hour of an incident of the day before",
            series=hours([*days(3), *days(2, PEAK)]),
            firing={at(4, 8): QUIET, at(4, 12): {MEAN, P99_PAGE}},
        ),
        every=60,
        step=STEP,
    )


@pytest.mark.slow
def test_four_days_of_seven_are_usual_and_three_are_not(pack: Pack) -> None:
    """Else a holiday would page working days, and three incidents would hide the fourth."""
    to_thursday = [*days(4, PEAK), *days(3)]
    pack.run(
        Case(
            name="a Friday off",
            series=hours([*to_thursday, *days(3, PEAK)]),
            firing={at(day, hour): QUIET for day in (7, 8, 9) for hour in range(8, 15)},
        ),
        Case(
            name="incidents",
            series=hours([*days(5), *days(3, PEAK), *days(2), *days(1, PEAK)]),
            firing={at(10, 8): QUIET, at(10, 12): {MEAN, P99_PAGE}},
        ),
        every=60,
        step=STEP,
    )


@pytest.mark.slow
def test_the_same_hour_of_the_week_is_usual_once_it_was_seen_twice(pack: Pack) -> None:
    """Three weeks of hours."""

    def weeks(*mondays: Shares) -> Iterator[Shares]:
        for monday in mondays:
            yield from days(1, monday)
            yield from days(6)

    job_hours = range(PEAK_HOURS.start, PEAK_HOURS.stop + 2)
    pack.run(
        Case(
            name="every Monday",
            series=hours([*weeks(PEAK, PEAK), *days(1, PEAK)]),
            firing={at(7, 8): QUIET, at(7, 12): {MEAN, P99_PAGE}} | {at(14, hour): QUIET for hour in job_hours},
        ),
        Case(
            name="one Monday was an incident",
            series=hours([*weeks(USUAL, PEAK), *days(1, PEAK)]),
            firing={at(14, 8): QUIET, at(14, 12): {MEAN, P99_PAGE}},
        ),
        Case(
            name="slower than on other Mondays",
            series=hours([*weeks(PEAK, PEAK), *days(1, SLOWER_PEAK)]),
            firing={at(14, 8): QUIET, at(14, 12): {MEAN}},
        ),
        every=60,
        step=STEP,
    )


def test_a_service_that_wanders_gets_a_wider_margin(pack: Pack) -> None:
    wander = wandering(3)
    now = [slower(shares, 1.25) for shares in [USUAL] * 3]
    tail = [with_tail(USUAL, 0.07, 0.03)] * 3
    level = {sli: shares for sli, shares in STEADY.items() if sli == "tpot"}
    steps = HOUR * (len(wander) + len(now))
    pack.run(
        Case(
            name="steady",
            series=hours([*days(3), *now]),
            firing={at(3, 3): {MEAN}},
            values={at(3, 0): {WANDER: 0}},
        ),
        Case(
            name="wandering",
            series=hours([*wander, *now]),
            firing={at(3, 3): QUIET},
            values={at(3, 0): {f"{WANDER} > bool 0.05": 1, f"{WANDER} < bool 0.15": 1}},
        ),
        Case(
            name="steady, with a tail",
            series=hours([*days(3), *tail]),
            firing={at(3, 3): {P99}},
        ),
        Case(
            name="wandering, with a tail",
            series=hours([*wander, *tail]),
            firing={at(3, 3): QUIET},
        ),
        Case(
            name="wandering, twice as slow",
            series=hours([*wander, *(slower(shares, 2) for shares in [USUAL] * 3)]),
            firing={at(3, 3): {MEAN, P99_PAGE}},
        ),
        Case(
            name="wandering, against a file",
            series=hours([*wander, *now]) + pinned(steps, level),
            firing={at(3, 3): QUIET},
        ),
        Case(
            name="wandering, and a control with it",
            series=hours([*wander, *now]) + hours([*wander, *[USUAL] * 3], speculative=False, labels=CONTROL),
            firing={at(3, 3): {MEAN}},
        ),
        every=60,
        step=STEP,
    )


@pytest.mark.parametrize("wander", [0.02, 0.05, 0.1])
@pytest.mark.parametrize("share", [0.002, 0.01, 0.05, 0.1])
def test_the_tail_gets_the_room_that_a_wandering_lognormal_needs(wander: float, share: float) -> None:
    """Spread of the logarithm 0.6 and z-score 3.1, as configured."""
    rules = (RENDERED / FILES["exporter"]).read_text(encoding="utf-8")
    (factor,) = set(re.findall(r"exp\(-([\d.]+) \* inference_service:specdec_latency:wander30m", rules))
    normal = NormalDist()
    moved = 1 - normal.cdf(normal.inv_cdf(1 - share) - 3.1 * wander / 0.6)

    assert share ** math.exp(-float(factor) * wander) == pytest.approx(moved, abs=0.03)


def test_slower_than_its_own_past_is_the_verdict_where_drafts_are_fine(either_pack: Pack, source: Source) -> None:
    def then(curve: tuple[float, ...], now: Shares, requests: float = 900) -> list[Series]:
        usual = Phase(minutes=HOUR, latency={"tpot": USUAL}, requests_per_minute=900, in_decode=40.0 * STEP)
        now_phase = dataclasses.replace(usual, latency={"tpot": now}, requests_per_minute=requests, curve=curve)
        return service(*[usual] * 30, *[now_phase] * 3, families=("tpot",), source=source)

    slow, tail = slower(USUAL, 1.25), with_tail(USUAL, 0.07, 0.15)
    good, poor = (0.9, 0.8, 0.7), (0.5, 0.3, 0.1)
    told: dict[str, tuple[list[Series], float]] = {
        "as before": (then(good, USUAL), 1),
        "slower": (then(good, slow), 6),
        "a tail": (then(good, tail), 6),
        "a tail of few requests": (then(good, with_tail(USUAL, 0.052, 0.12), 75), 6),
        "slower with poor drafts": (then(poor, slow), 2),
    }
    either_pack.recording().run(
        *(
            Case(name=name, series=series, values={at(1, 8): {"inference_service:specdec_verdict:enum": verdict}})
            for name, (series, verdict) in told.items()
        ),
        every=60,
        step=STEP,
    )
