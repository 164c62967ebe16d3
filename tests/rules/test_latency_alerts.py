"""Alerts about latency, harm and benefit: against history, a baseline file and a live control."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

import pytest

from rules.scenario import (
    CONTROL,
    NOWHERE,
    SECOND,
    STEADY,
    Case,
    Pack,
    Phase,
    Shares,
    pinned,
    replica,
    service,
    slower,
    with_tail,
)

SLIS = ("tpot", "ttft", "e2e")
BODY: Mapping[str, Shares] = {**STEADY, "tpot": slower(STEADY["tpot"], 1.25)}
TAIL: Mapping[str, Shares] = {**STEADY, "tpot": with_tail(STEADY["tpot"], 0.09, 0.03)}
HEAVY_TAIL: Mapping[str, Shares] = {**STEADY, "tpot": with_tail(STEADY["tpot"], 0.06, 0.2)}
MEAN, MEAN_PAGE = "SpecDecodeP99Regression warning mean", "SpecDecodeP99Regression critical mean"
P99 = "SpecDecodeP99Regression warning tail"
P99_PAGE = "SpecDecodeP99Regression critical tail"
DOWN = "SpecDecodeTargetDown warning"
QUIET: set[str] = set()
EVERY = 4  # minutes: the interval of the groups about latency
BASELINE = "inference_service:specdec_latency_seconds:mean_baseline"


def test_the_body_and_the_tail_against_history(pack: Pack) -> None:
    normal = Phase(minutes=180)
    pack.run(
        Case(
            name="a quarter slower, then well again",
            series=service(normal, Phase(minutes=70, latency=BODY), Phase(minutes=70), families=SLIS),
            firing={180: QUIET, 245: {MEAN}, 319: QUIET},
        ),
        Case(
            name="3 % of the requests far slower",
            series=service(normal, Phase(minutes=70, latency=TAIL), families=SLIS, labels=NOWHERE),
            firing={180: QUIET, 245: {P99}},
            values={245: {'inference_service:specdec_latency:tail_shift30m{sli="tpot"}': 0.025}},
        ),
        Case(
            name="every fifth request far slower",
            series=service(normal, Phase(minutes=70, latency=HEAVY_TAIL), families=SLIS),
            firing={180: QUIET, 245: {MEAN, P99_PAGE}},
        ),
        Case(
            name="nothing slower",
            series=service(Phase(minutes=260), families=SLIS),
            firing=dict.fromkeys(range(100, 260, 20), QUIET),
            values={250: {'inference_service:specdec_latency:tail_shift30m{sli="tpot"}': 0.0}},
        ),
        Case(
            name="too few requests to tell",
            series=service(normal, Phase(minutes=70, latency=BODY, requests_per_minute=5), families=SLIS),
            firing={245: QUIET},
        ),
        Case(
            name="no baseline yet",
            series=service(Phase(minutes=30), Phase(minutes=70, latency=BODY), families=SLIS),
            firing={60: QUIET},
        ),
        every=EVERY,
    )


def test_against_a_baseline_from_a_file(pack: Pack) -> None:
    late: Mapping[str, Shares] = {**STEADY, "ttft": with_tail(STEADY["ttft"], 3.0, 0.15)}
    pack.run(
        Case(
            name="the tail of the time to first token, which history does not keep, and which pages nobody",
            series=service(Phase(minutes=90, latency=late), families=SLIS)
            + pinned(90, {sli: slower(shares, 1.1) for sli, shares in STEADY.items()}),
            firing={70: {MEAN}},
        ),
        every=EVERY,
    )


def test_against_a_live_control(pack: Pack) -> None:
    slow = {sli: slower(shares, 1.1) for sli, shares in STEADY.items()}
    busy_and_slow = Phase(minutes=90, latency=slow, requests_per_minute=200)
    pack.run(
        Case(
            name="slower than the control, by too little for a regression",
            series=service(busy_and_slow, families=SLIS)
            + service(Phase(minutes=90, requests_per_minute=200), families=SLIS, speculative=False, labels=CONTROL),
            firing={85: set()},
            values={55: {'inference_service:specdec_latency_seconds:mean_baseline{baseline_source="control"}': 6.25}},
        ),
        Case(
            name="a control that drafts is none",
            series=service(busy_and_slow, families=SLIS)
            + service(Phase(minutes=90, requests_per_minute=200), families=SLIS, labels=CONTROL),
            firing={85: QUIET},
        ),
        Case(
            name="a control with a tenth of the load is faster for that",
            series=service(dataclasses.replace(busy_and_slow, running=30, drafts_per_minute=6000), families=SLIS)
            + service(
                Phase(minutes=90, latency={sli: slower(shares, 0.75) for sli, shares in STEADY.items()}, running=3),
                families=SLIS,
                speculative=False,
                labels=CONTROL,
            ),
            firing={85: QUIET},
        ),
        Case(
            name="the control goes before the file",
            series=service(Phase(minutes=90, requests_per_minute=200), families=SLIS)
            + service(
                busy_and_slow,
                families=SLIS,
                speculative=False,
                labels=CONTROL,
            )
            + pinned(90, {sli: slower(shares, 3.0) for sli, shares in STEADY.items()}),
            values={
                85: {
                    f'{BASELINE}{{sli="tpot",baseline_source="control"}}': 0.027,
                    f'{BASELINE}{{sli="tpot",baseline_source="pinned"}}': None,
                }
            },
        ),
        every=EVERY,
    )


def test_releases_without_time_per_output_token_do_harm_by_whole_requests(pack: Pack) -> None:
    slow, bad = {"e2e": slower(STEADY["e2e"], 1.5)}, (0.5, 0.2, 0.1)
    pack.run(
        Case(
            name="slow and rejected",
            series=service(Phase(minutes=90, latency=slow, curve=bad), families=("e2e",))
            + pinned(90, {"e2e": STEADY["e2e"]}),
            firing={55: {"SpecDecodeAcceptanceLow warning", MEAN, MEAN_PAGE, "SpecDecodeHarmful critical"}},
        ),
        every=EVERY,
    )


def test_a_restart_is_not_a_regression(pack: Pack) -> None:
    cold: Mapping[str, Shares] = {**STEADY, "tpot": slower(STEADY["tpot"], 2.0)}
    rolled_out = Phase(minutes=2, up=False), Phase(minutes=8, latency=cold, restart=True)
    pack.run(
        Case(
            name="the first minutes are slow",
            series=service(
                Phase(minutes=180), Phase(minutes=8, latency=cold, restart=True), Phase(minutes=70), families=SLIS
            ),
            firing=dict.fromkeys((185, 190, 195, 205, 215, 225), QUIET),  # they are in the window for long
            values={
                185: {"inference_service:specdec_warming_replicas:ratio": 1},
                210: {"inference_service:specdec_warming_replicas:ratio": None},
            },
        ),
        Case(
            name="two replicas are rolled out one after the other",
            series=service(Phase(minutes=180), *rolled_out, Phase(minutes=80), families=SLIS)
            + service(
                Phase(minutes=194),
                *rolled_out,
                Phase(minutes=66),
                families=SLIS,
                labels={"pod": "chat-1", "instance": "10.0.0.1:10409"},
            ),
            firing=dict.fromkeys(range(184, 268, 4), QUIET),
        ),
        every=EVERY,
    )


def test_a_tail_without_a_common_boundary_is_not_told(pack: Pack) -> None:
    """All requests are within +Inf, now as then, which says nothing."""
    other = [
        dataclasses.replace(one, labels={**one.labels, "le": f"1{le}"})
        if (le := one.labels.get("le", "+Inf")) != "+Inf"
        else one
        for one in pinned(60, {"tpot": STEADY["tpot"]})
    ]
    shift = 'inference_service:specdec_latency:tail_shift30m{sli="tpot"}'
    usual = service(Phase(minutes=60), families=("tpot",))
    pack.run(
        Case(name="none", series=usual + other, values={50: {shift: None}}),
        Case(name="the same", series=usual + pinned(60, {"tpot": STEADY["tpot"]}), values={50: {shift: 0}}),
    )


# --- What was wrong once ----------------------------------------------------------------------------------------------


def all_slower(times: float, **more: object) -> Phase:
    latency = {sli: slower(shares, times) if sli != "ttft" else shares for sli, shares in STEADY.items()}
    return Phase(minutes=120, latency=latency, **more)  # type: ignore[arg-type]


def within(minutes: int, start: int, found: set[str]) -> dict[int, set[str]]:
    """Quiet before it begins, and told so many minutes later."""
    return {start: QUIET, start + minutes: found}


def test_a_slowdown_of_minutes_that_is_over_pages_nobody(pack: Pack) -> None:
    normal, after = Phase(minutes=180), Phase(minutes=66)
    burst = {"requests_per_minute": 600.0, "drafts_per_minute": 6000.0, "running": 60, "waiting": 100}
    faster = {sli: slower(shares, 0.8) for sli, shares in STEADY.items()}
    late = {**faster, "tpot": with_tail(faster["tpot"], 0.06, 0.12)}
    once = dataclasses.replace(all_slower(3), minutes=4)
    ticket = {184: QUIET, 194: QUIET, 200: {MEAN}, 212: {MEAN}, 226: QUIET, 245: QUIET}
    pack.run(
        Case(name="4 minutes", series=service(normal, once, after, families=SLIS), firing=ticket),
        Case(
            name="3 minutes of a burst",
            series=service(normal, dataclasses.replace(all_slower(2.5, **burst), minutes=3), after, families=SLIS),
            firing=ticket,
        ),
        Case(
            name="most requests faster, every eighth far slower, and so it stays",
            series=service(normal, Phase(minutes=70, latency=late), families=SLIS),
            firing={245: {P99, P99_PAGE}},
        ),
        every=2,
    )


def test_where_no_token_is_slower_nobody_is_woken(pack: Pack) -> None:
    normal = Phase(minutes=60)
    longer = Phase(minutes=110, latency={**STEADY, "e2e": slower(STEADY["e2e"], 2)})
    loading, cold = Phase(minutes=18, up=False), dataclasses.replace(all_slower(2.5, restart=True), minutes=12)
    pages = pack.alone("SpecDecodeP99Regression")
    pages.run(
        Case(
            name="answers twice as long",
            series=service(normal, longer, families=SLIS) + pinned(170, STEADY),
            firing={60: QUIET} | {minute: {MEAN} for minute in range(100, 170, 2)},
        ),
        Case(
            name="the first minutes after a load of 18",
            series=service(normal, loading, cold, Phase(minutes=80), families=SLIS) + pinned(170, STEADY),
            firing=dict.fromkeys(range(60, 170, 2), QUIET),
        ),
    )


@pytest.mark.slow
def test_everybody_slower_is_one_page_soon(pack: Pack) -> None:
    normal, few = Phase(minutes=180), {"requests_per_minute": 5.0}
    again = all_slower(3, restart=True)
    cases = [
        Case(
            name="1.5 times",
            series=service(normal, all_slower(1.5), families=SLIS),
            firing=within(29, 180, {MEAN, MEAN_PAGE}) | {240: {MEAN, MEAN_PAGE}, 299: {MEAN, MEAN_PAGE}},
        ),
        Case(
            name="3 times",
            series=service(normal, all_slower(3), families=SLIS),
            firing=within(25, 180, {MEAN, MEAN_PAGE}),
        ),
        Case(
            name="3 times after a bad rollout",
            series=service(normal, again, families=SLIS),
            firing=within(25, 180, {MEAN_PAGE}) | {240: {MEAN, MEAN_PAGE}},
        ),
        Case(
            name="a bad rollout of new pods",
            series=service(normal, Phase(minutes=120, present=False), families=SLIS)
            + service(Phase(minutes=180, present=False), all_slower(3), families=SLIS, labels=SECOND),
            firing=within(25, 180, {MEAN_PAGE}) | {240: {MEAN, MEAN_PAGE}},
        ),
        Case(
            name="1.6 times, as one of four is dead",
            series=service(normal, Phase(minutes=120, up=False), families=SLIS)
            + [
                each
                for number in range(1, 4)
                for each in service(normal, all_slower(1.6), families=SLIS, labels=replica(number))
            ],
            firing=within(29, 180, {MEAN, MEAN_PAGE, DOWN}) | {240: {MEAN, MEAN_PAGE, DOWN}},
        ),
        Case(
            name="150 requests in 30 minutes, 3 times",
            series=service(dataclasses.replace(normal, **few), all_slower(3, **few), families=SLIS),  # type: ignore[arg-type]
            firing={180: QUIET, 240: {MEAN}},
        ),
        Case(
            name="150 requests in 30 minutes, as ever",
            series=service(dataclasses.replace(normal, **few), Phase(minutes=120, **few), families=SLIS),  # type: ignore[arg-type]
            firing={180: QUIET, 240: QUIET},
        ),
        Case(
            name="longer answers: no token is slower",
            series=service(
                normal, Phase(minutes=120, latency={**STEADY, "e2e": slower(STEADY["e2e"], 1.4)}), families=SLIS
            ),
            firing={180: QUIET, 240: QUIET},
        ),
    ]
    pack.run(*cases, every=1)
