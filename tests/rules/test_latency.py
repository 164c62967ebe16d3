"""Latency against history, a baseline file and a live control."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import pytest

from rules.scenario import (
    CONTROL,
    NOWHERE,
    SECOND,
    STEADY,
    Case,
    Pack,
    Phase,
    Series,
    Shares,
    pinned,
    replica,
    service,
    slower,
    with_tail,
)

SLIS = ("tpot", "ttft", "e2e")
SLOW, PAGE = "SpecDecodeP99Regression warning", "SpecDecodeP99Regression critical"
HARM, LOSS = "SpecDecodeHarmful critical", "SpecDecodeNotPayingOff warning"
QUIET: set[str] = set()
EVERY = 4  # minutes between two evaluations, where no `for` is tested to the minute
# promtool evaluates the hourly group as often as all others, so 24 hours of history take less than three.
NORMAL = Phase(minutes=180)
REPLACED = {"pod": "chat-9", "instance": "10.0.0.9:10409"}


@pytest.fixture(name="pack")
def _pack(pack: Pack) -> Pack:
    return pack.only("drafts", "latency", "history", "alerts-latency", "alerts-load")


def late(sli: str, shares: Shares) -> Mapping[str, Shares]:
    return {**STEADY, sli: shares}


def all_slower(times: float, minutes: int = 120, **more: Any) -> Phase:
    """Decoding and whole requests, not the first token."""
    latency = {sli: slower(shares, times) if sli != "ttft" else shares for sli, shares in STEADY.items()}
    return Phase(minutes=minutes, latency=latency, **more)


# --- Against the last week --------------------------------------------------------------------------------------------


def test_the_body_and_the_tail_against_history(pack: Pack) -> None:
    def then(shares: Shares, **more: Any) -> Phase:
        return Phase(minutes=70, latency=late("tpot", shares), **more)

    quarter, tail = slower(STEADY["tpot"], 1.25), with_tail(STEADY["tpot"], 0.09, 0.03)
    pack.run(
        Case(
            name="a quarter slower, then well again",
            series=service(NORMAL, then(quarter), Phase(minutes=70), families=SLIS),
            firing={180: QUIET, 245: {SLOW}, 319: QUIET},
        ),
        Case(
            name="3 % of the requests far slower",
            series=service(NORMAL, then(tail), families=SLIS, labels=NOWHERE),
            firing={180: QUIET, 245: {SLOW}},
            values={245: {"inference_service:specdec_latency:tail30m": 0.019}},
        ),
        Case(
            name="every fifth request far slower",
            series=service(NORMAL, then(with_tail(STEADY["tpot"], 0.06, 0.2)), families=SLIS),
            firing={180: QUIET, 245: {SLOW, PAGE}},
        ),
        Case(
            name="nothing slower",
            series=service(Phase(minutes=260), families=SLIS),
            firing=dict.fromkeys(range(100, 260, 20), QUIET),
            values={250: {"inference_service:specdec_latency:tail30m": -0.005}},
        ),
        Case(
            name="too few requests to tell",
            series=service(NORMAL, then(quarter, requests_per_minute=5), families=SLIS),
            firing={245: QUIET},
        ),
        Case(
            name="no history yet",
            series=service(Phase(minutes=30), then(quarter), families=SLIS),
            firing={60: QUIET},
        ),
        Case(
            name="most requests faster, every eighth far slower, and so it stays",
            series=service(NORMAL, then(with_tail(slower(STEADY["tpot"], 0.8), 0.06, 0.12)), families=SLIS),
            firing={245: {SLOW, PAGE}},
        ),
        every=EVERY,
    )


def test_everybody_slower_is_one_page_soon(pack: Pack) -> None:
    few: dict[str, Any] = {"requests_per_minute": 5.0}
    one_of_four = [
        each for n in range(1, 4) for each in service(NORMAL, all_slower(1.6), families=SLIS, labels=replica(n))
    ]
    pack.run(
        Case(
            name="1.5 times",
            series=service(NORMAL, all_slower(1.5), families=SLIS),
            firing={180: QUIET, 209: {SLOW, PAGE}, 240: {SLOW, PAGE}, 299: {SLOW, PAGE}},
        ),
        Case(
            name="3 times",
            series=service(NORMAL, all_slower(3), families=SLIS),
            firing={180: QUIET, 205: {SLOW, PAGE}},
        ),
        Case(
            name="3 times after a bad rollout",
            series=service(NORMAL, all_slower(3, restart=True), families=SLIS),
            firing={180: QUIET, 212: {SLOW, PAGE}, 240: {SLOW, PAGE}},
        ),
        Case(
            name="a bad rollout of new pods",
            series=service(NORMAL, Phase(minutes=120, present=False), families=SLIS)
            + service(Phase(minutes=180, present=False), all_slower(3), families=SLIS, labels=SECOND),
            firing={180: QUIET, 214: {SLOW, PAGE}, 240: {SLOW, PAGE}},
        ),
        Case(
            name="1.6 times, as one of four is dead",
            series=service(NORMAL, Phase(minutes=120, up=False), families=SLIS) + one_of_four,
            firing={180: QUIET, 212: {SLOW, PAGE}},
        ),
        Case(
            name="150 requests in 30 minutes, 3 times",
            series=service(dataclasses.replace(NORMAL, **few), all_slower(3, **few), families=SLIS),
            firing={180: QUIET, 240: {SLOW}},
        ),
        Case(
            name="150 requests in 30 minutes, as ever",
            series=service(Phase(minutes=300, **few), families=SLIS),
            firing={180: QUIET, 240: QUIET},
        ),
        every=1,
    )


def test_where_no_token_is_slower_nobody_is_woken(pack: Pack) -> None:
    longer = Phase(minutes=110, latency=late("e2e", slower(STEADY["e2e"], 2)))
    pack.run(
        Case(
            name="answers twice as long",
            series=service(NORMAL, longer, families=SLIS),
            firing=dict.fromkeys(range(180, 290, 4), QUIET),
        ),
        Case(
            name="4 minutes 3 times slower, long over",
            series=service(NORMAL, all_slower(3, minutes=4), Phase(minutes=66), families=SLIS),
            firing={184: QUIET, 190: QUIET, 245: QUIET},
        ),
        Case(
            name="3 minutes of a burst",
            series=service(
                NORMAL,
                all_slower(2.5, minutes=3, requests_per_minute=600.0, drafts_per_minute=6000.0),
                Phase(minutes=66),
                families=SLIS,
            ),
            firing={190: QUIET, 200: {SLOW}, 212: QUIET, 245: QUIET},
        ),
        every=2,
    )


def test_a_start_is_not_a_regression(pack: Pack) -> None:
    cold: dict[str, Any] = {"latency": late("tpot", slower(STEADY["tpot"], 2.0)), "restart": True}
    rolled = Phase(minutes=2, up=False), Phase(minutes=8, **cold)
    loading = Phase(minutes=18, up=False), Phase(minutes=12, **cold)
    never = dict.fromkeys(range(184, 268, 4), QUIET)
    pages = pack.alone("SpecDecodeP99Regression")
    both = service(NORMAL, *rolled, Phase(minutes=80), families=SLIS)
    both += service(Phase(minutes=194), *rolled, Phase(minutes=66), families=SLIS, labels=SECOND)
    cases = [
        Case(name="two replicas, one after the other", series=both, firing=never),
        Case(
            name="slow for 8 minutes",
            series=service(NORMAL, Phase(minutes=8, **cold), Phase(minutes=82), families=SLIS),
            firing=dict.fromkeys((185, 190, 195, 225), QUIET),
        ),
        Case(name="a load of 18 minutes", series=service(NORMAL, *loading, Phase(minutes=60), families=SLIS)),
    ]
    found = pages.firing(*cases, minutes=range(184, 268, 4), every=4)

    assert not [
        each for by in found.values() for alerts in by.values() for each in alerts if each["severity"] == "critical"
    ]


def test_replicas_with_different_boundaries_have_no_tail(pack: Pack) -> None:
    """A boundary would count the requests of some replicas only."""
    other = [
        dataclasses.replace(one, labels={**one.labels, "le": f"1{le}"})
        if (le := one.labels.get("le", "+Inf")) != "+Inf"
        else one
        for one in service(Phase(minutes=240), families=("tpot",), labels=SECOND)
    ]
    tail = "inference_service:specdec_latency:tail30m"
    usual = service(Phase(minutes=240), families=("tpot",))
    pack.run(
        Case(name="mixed", series=usual + other, values={230: {tail: None}}),
        Case(name="alike", series=usual, values={230: {tail: -0.005}}),
        every=EVERY,
    )


# --- Hours of days ----------------------------------------------------------------------------------------------------

STEP = 15  # minutes between two samples: too few for the five minutes that a page looks at
USUAL = STEADY["tpot"]
PEAK = with_tail(slower(USUAL, 1.5), 0.12, 0.15)
PEAK_HOURS = range(9, 12)


def hours(tpot: Iterable[Shares], **more: Any) -> list[Series]:
    """A service by its time per output token, hour by hour: 3,600 requests in each."""
    phases = [
        Phase(minutes=60 // STEP, latency={"tpot": shares}, requests_per_minute=900, drafts_per_minute=9000)
        for shares in tpot
    ]
    return service(*phases, families=("tpot",), **more)


def days(count: int, peak: Shares = USUAL) -> Iterator[Shares]:
    """Days that are alike."""
    for hour in range(24 * count):
        yield peak if hour % 24 in PEAK_HOURS else USUAL


def at(day: int, hour: int) -> int:
    """The minute at which an hour of a day has begun; the first day is 0."""
    return 1440 * day + 60 * hour


def test_a_daily_peak_is_usual_from_the_second_day_on(pack: Pack) -> None:
    """Today's rules before these paged it on days two and three."""
    peak = range(PEAK_HOURS.start - 1, PEAK_HOURS.stop + 3)
    pack.run(
        Case(
            name="every day",
            series=hours(days(4, PEAK)),
            firing={at(day, hour): QUIET for day in (1, 2, 3) for hour in peak},
        ),
        Case(
            name="a peak that is slower than on other days",
            series=hours([*days(3, PEAK), *days(1, with_tail(slower(USUAL, 2.0), 0.12, 0.4))]),
            firing={at(3, 8): QUIET, at(3, 11): {SLOW}},
        ),
        Case(
            name="an incident, at an hour that was never slow",
            series=hours([*days(3), *days(1, PEAK)]),
            firing={at(3, 8): QUIET, at(3, 11): {SLOW}},
        ),
        every=60,
        step=STEP,
    )


def test_a_slower_release_is_told_against_the_hours_of_the_one_before(pack: Pack) -> None:
    """A release is no new beginning: then nobody would hear of one that is slower."""

    def rollout(times: float, *, speculative: bool = True) -> list[Series]:
        before, slow = [USUAL] * 30, [slower(USUAL, times)] * 6
        gone = Phase(minutes=6 * 60 // STEP, present=False)
        old = Phase(minutes=30 * 60 // STEP, present=False)
        first = service(*(_hour(each) for each in before), gone, families=("tpot",))
        then = service(
            old,
            *(_hour(each, drafts=speculative) for each in slow),
            families=("tpot",),
            labels=REPLACED,
            speculative=speculative,
        )
        newer = [
            dataclasses.replace(one, labels={**one.labels, "vllm_version": "0.33.0"})
            if one.name == "specdec_predictor_info"
            else one
            for one in then
        ]
        return first + newer

    pack.run(
        Case(name="1.5 times", series=rollout(1.5), firing={at(1, 6): QUIET, at(1, 9): {SLOW}}),
        Case(
            name="speculation was switched off, as the runbook says",
            series=rollout(1.5, speculative=False),
            firing=dict.fromkeys(range(at(1, 6), at(1, 12), STEP), QUIET),
        ),
        every=60,
        step=STEP,
    )


def _hour(shares: Shares, *, drafts: bool = True) -> Phase:
    return Phase(
        minutes=60 // STEP, latency={"tpot": shares}, requests_per_minute=900, drafts_per_minute=9000 if drafts else 0
    )


# --- Against a file, and against a live control -----------------------------------------------------------------------


def test_against_a_baseline_file(pack: Pack) -> None:
    shares = ((0.03, 0.6), (0.04, 0.39), (0.06, 0.01))  # within the same buckets: only the mean tells
    slow = service(Phase(minutes=100, latency=late("tpot", shares)), families=SLIS)
    tail = service(Phase(minutes=100, latency=late("tpot", with_tail(USUAL, 0.09, 0.05))), families=SLIS)
    first = service(Phase(minutes=100, latency=late("ttft", with_tail(STEADY["ttft"], 3.0, 0.15))), families=SLIS)
    pack.run(
        Case(name="slower at its load", series=slow + pinned(100, load=1.0), firing={55: {SLOW, PAGE}}),
        Case(name="a file that tells no load", series=slow + pinned(100), firing={55: {SLOW, PAGE}}),
        Case(
            name="slower at twice its load, which it does not know",
            series=slow + pinned(100, load=2.0),
            firing=dict.fromkeys(range(15, 100, 10), QUIET),
        ),
        Case(name="a longer tail", series=tail + pinned(100, load=1.0), firing={55: {SLOW}}),
        Case(name="later first tokens page nobody", series=first + pinned(100), firing={70: {SLOW}}),
        Case(
            name="each of two replicas at its load",
            series=slow
            + service(Phase(minutes=100, latency=late("tpot", shares)), families=SLIS, labels=SECOND)
            + pinned(100, load=1.0)
            + pinned(100, load=1.2, labels=SECOND),
            firing={55: {SLOW, PAGE}},
        ),
        every=EVERY,
    )


def test_against_a_live_control(pack: Pack) -> None:
    tenth = Phase(
        minutes=90, latency={sli: slower(shares, 1.1) for sli, shares in STEADY.items()}, requests_per_minute=200
    )
    plain = Phase(minutes=90, requests_per_minute=200)
    baseline = 'inference_service:specdec_latency:baseline{sli="tpot",stat="mean",'
    pack.run(
        Case(
            name="slower than the control, by too little for a regression",
            series=service(tenth, families=SLIS) + service(plain, families=SLIS, speculative=False, labels=CONTROL),
            firing={55: QUIET, 85: {LOSS}},
        ),
        Case(
            name="a control that drafts is none",
            series=service(tenth, families=SLIS) + service(plain, families=SLIS, labels=CONTROL),
            firing={85: QUIET},
        ),
        Case(
            name="the control goes before the file",
            series=service(plain, families=SLIS)
            + service(tenth, families=SLIS, speculative=False, labels=CONTROL)
            + pinned(90, {sli: slower(shares, 3.0) for sli, shares in STEADY.items()}),
            values={85: {f'{baseline}source="control"}}': 0.027, f'{baseline}source="file"}}': None}},
        ),
        Case(
            name="a fifth of the requests three times slower than on the control",
            series=service(Phase(minutes=90, latency=late("tpot", with_tail(USUAL, 0.09, 0.2))), families=SLIS)
            + service(Phase(minutes=90), families=SLIS, speculative=False, labels=CONTROL),
            firing={60: {SLOW, PAGE, HARM}},
        ),
        every=EVERY,
    )
