"""Drafts: the incident fires, and what looks like it does not."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping

import pytest

from rules.scenario import (
    CHAT,
    CONTROL,
    FLAG,
    NOWHERE,
    SECOND,
    SLOW_MINUTES,
    STEADY,
    Case,
    Pack,
    Phase,
    Series,
    Source,
    groups_with,
    measured,
    problem,
    replica,
    service,
    slower,
)

GOOD = (0.85, 0.72, 0.59)  # acceptance 0.72
LONGER = (0.85, 0.72, 0.59, 0.47, 0.37, 0.28, 0.2, 0.14)  # the same head with k 8: 0.45
WORSE = (0.75, 0.55, 0.38)  # 0.56
MODEST = (0.6, 0.4, 0.26)  # 0.42
POOR = (0.5, 0.25, 0.15)  # 0.30
REJECTED = (0.05, 0.03, 0.01)  # 0.03
NOTHING = (0.03, 0.01, 0.005)  # 0.015

LOW = "SpecDecodeAcceptanceLow"
PAGE, TICKET, FELL = f"{LOW} critical", f"{LOW} warning low", f"{LOW} warning fell"
NOT_DRAFTING = "SpecDecodeNotDrafting warning"
OUTLIER = "SpecDecodeReplicaOutlier warning"
POOR_DRAFTS, NO_DRAFTS, SLOW = f"{OUTLIER} poor_drafts", f"{OUTLIER} no_drafts", f"{OUTLIER} slow"
QUIET: set[str] = set()
Firing = Mapping[int, set[str]]


def throughout(minutes: Iterable[int], *alerts: str) -> dict[int, set[str]]:
    return {minute: {*alerts} for minute in minutes}


def one(
    *phases: Phase, source: Source = "exporter", labels: Mapping[str, str] | None = None, **more: object
) -> list[Series]:
    """A replica whose requests are counted."""
    return service(*phases, families=("tpot",), source=source, labels=labels, **more)  # type: ignore[arg-type]


def recently(pack: Pack) -> Pack:
    """Without history, which is days of it."""
    return dataclasses.replace(pack, groups=[group for group in pack.groups if group["name"] != "specdec-history"])


# --- Does it draft? ---------------------------------------------------------------------------------------------------


def test_a_service_that_stops_drafting(either_pack: Pack, source: Source) -> None:
    well, silent = Phase(minutes=60), Phase(minutes=100, drafts_per_minute=0)
    idle = dataclasses.replace(silent, requests_per_minute=0, running=0)
    peak, between = dataclasses.replace(silent, minutes=40), dataclasses.replace(well, minutes=20)

    def case(name: str, firing: Firing, *phases: Phase, **more: object) -> Case:
        return Case(name=name, series=one(*phases, source=source, **more), firing=firing)

    recently(either_pack).run(
        case(
            "it stops", {60: QUIET, 80: QUIET, 94: {NOT_DRAFTING}, 158: {NOT_DRAFTING}, 176: QUIET}, well, silent, well
        ),
        case("from its start", {40: {NOT_DRAFTING}}, silent),
        case("idle", throughout(range(4, 160, 4)), well, idle),
        case("speculation is off", throughout(range(4, 100, 4)), Phase(minutes=100), speculative=False),
        # Dynamic k is 0 in big batches. After three hours, this is how the service is.
        case("in every peak", throughout(range(196, 480, 4)), *[between, peak] * 8),
        case(
            "in every peak and then for good",
            {340: QUIET, 540: QUIET, 584: {NOT_DRAFTING}, 640: {NOT_DRAFTING}},
            *[between, peak] * 5,
            *[well, silent, silent, silent],
        ),
        every=2,
    )


# --- Is what it drafts accepted? --------------------------------------------------------------------------------------


@pytest.mark.parametrize("labels", [None, NOWHERE], ids=["everywhere", "without cluster and namespace"])
def test_a_collapse_is_told_within_25_minutes_and_resolves_after_recovery(
    either_pack: Pack, source: Source, labels: Mapping[str, str] | None
) -> None:
    def then(*curve: float) -> list[Series]:
        well = Phase(minutes=60, curve=GOOD)
        return one(well, dataclasses.replace(well, curve=curve), well, source=source, labels=labels)

    recently(either_pack).run(
        Case(name="to 30 percent", series=then(*POOR), firing={70: QUIET, 85: {TICKET}, 118: {TICKET}, 160: QUIET}),
        Case(
            name="to nothing",
            series=then(*REJECTED),
            firing={72: QUIET, 85: {PAGE, TICKET}, 120: {PAGE, TICKET}, 136: {TICKET}, 160: QUIET},
        ),
        every=1,
    )


def test_what_is_no_collapse_stays_silent(pack: Pack) -> None:
    well, hour = Phase(minutes=60, curve=GOOD), Phase(minutes=120)

    def case(name: str, *phases: Phase, **more: object) -> Case:
        return Case(name=name, series=one(*phases, **more), firing=throughout(range(20, 121, 5)))

    def other(**different: object) -> Phase:
        return dataclasses.replace(hour, **different)  # type: ignore[arg-type]

    few = other(curve=(0.0, 0.0, 0.0), drafts_per_minute=5 / 30, requests_per_minute=0.1)
    unknown = ("specdec_drafts_total", "specdec_policy")
    recently(pack).run(
        case("0.42 is normal for n-gram lookup", other(curve=MODEST), method="ngram", minimum=0.3),
        case(
            "0.42 is good at light load",
            other(curve=MODEST, drafts_per_minute=40, requests_per_minute=0.4),
            minimum=0.12,
        ),
        case("five drafts in half an hour", well, few),
        case("few drafts", other(curve=NOTHING, drafts_per_minute=20, requests_per_minute=2)),
        case("a dip of three minutes", well, Phase(minutes=3, curve=(0.05, 0.0, 0.0)), well),
        case("a dip of twelve minutes", well, Phase(minutes=12, curve=(0.05, 0.0, 0.0)), well),
        case("a restart", well, dataclasses.replace(well, restart=True)),
        case("nearly all is accepted", other(curve=(0.995, 0.99, 0.985))),
        case("a cliff after the second of five positions", other(curve=(0.99, 0.98, 0.6, 0.05, 0.01)), minimum=0.3),
        case("drafts shorter than k", other(curve=(1.0, 1.0, 1.0, 0.0, 0.0), draft_length=3.0)),
        # 0.8.3 and 0.8.4, without a log that has them.
        *(
            Case(
                name=f"without {name}",
                series=[one for one in service(other(curve=POOR)) if not one.name.startswith(name)],
                firing=throughout([119]),
            )
            for name in unknown
        ),
        every=2,
    )


def test_nobody_is_woken_without_half_an_hour_of_almost_nothing(pack: Pack) -> None:
    nothing = one(Phase(minutes=150, curve=NOTHING))
    gap = [dataclasses.replace(s, values=[*s.values[:80], *[None] * 15, *s.values[95:]]) for s in nothing]
    bad, well = Phase(minutes=10, curve=(0.06, 0.02, 0.01)), Phase(minutes=50, curve=GOOD)
    recently(pack).run(
        Case(
            name="the first 10 minutes of a new service are bad",
            series=one(bad, well),
            firing=throughout(range(12, 30, 4), TICKET) | {44: QUIET, 58: QUIET},
        ),
        Case(
            name="a new service that is bad",
            series=nothing,
            firing=throughout(range(12, 29, 4), TICKET) | throughout(range(36, 150, 4), PAGE, TICKET),
        ),
        Case(
            name="without samples for 15 minutes of it", series=gap, firing=throughout(range(104, 148, 4), PAGE, TICKET)
        ),
        Case(
            name="k 7 with 1.56 tokens a step",
            series=one(Phase(minutes=60, curve=(0.4, 0.1, 0.04, 0.02, 0, 0, 0))),
            firing={50: {TICKET}},
        ),
        Case(
            name="k 15 with a tenth of its tokens at light load",
            series=one(Phase(minutes=60, curve=(0.7, 0.4, 0.2, 0.1, 0.05, *(0.0,) * 10)), minimum=0.09, watch=0.25),
            firing=throughout(range(4, 60, 4)),
        ),
        every=1,
    )


def test_one_length_is_a_ticket_in_a_large_batch_and_a_flag_in_a_small_one(either_pack: Pack, source: Source) -> None:
    tokens_3_1, tokens_1_5 = (0.72, 0.5, 0.35, 0.24, 0.15, 0.09, 0.05), (0.4, 0.08, 0.02, 0, 0, 0, 0)
    told = {  # requests in decode, curve, what the exporter assumes, what fires
        "large batch": (200.0, tokens_3_1, 0.5, {TICKET, FLAG}),
        "small batch": (3.0, tokens_3_1, 0.09, {FLAG}),
        "in between": (16.0, tokens_3_1, 0.295, {FLAG}),
        "small batch with 1.5 tokens a step": (3.0, tokens_1_5, 0.09, {TICKET, FLAG}),
        "small batch with a good draft": (3.0, GOOD, 0.12, QUIET),
    }
    recently(either_pack).run(
        *(
            Case(
                name=name,
                series=one(Phase(minutes=60, curve=curve, in_decode=load), minimum=level, source=source),
                firing={50: alerts},
                flags=True,
            )
            for name, (load, curve, level, alerts) in told.items()
        ),
        every=2,
    )


def test_replicas_that_differ_count_together_and_an_idle_one_not_at_all(pack: Pack) -> None:
    phase, minimum = Phase(minutes=100, curve=MODEST), "inference_service:specdec_acceptance:min"
    nothing = service(dataclasses.replace(phase, drafts_per_minute=0, requests_per_minute=0), labels=SECOND)
    idle = [one for one in nothing if "policy" not in one.name]  # the exporter says no level without drafts
    busy = one(phase)
    ngram = one(phase, method="ngram", minimum=0.3, labels=SECOND)
    recently(pack).run(
        Case(name="two methods", series=busy + ngram, firing={95: QUIET}, values={60: {minimum: 0.4}}),
        Case(name="one is idle", series=busy + idle, firing={95: {TICKET}}, values={60: {minimum: 0.5}}),
        Case(
            name="measured",
            series=busy + measured(100, 1.0, break_even=0.3),
            firing={60: QUIET},
            values={60: {minimum: 0.3}},
        ),
    )


def test_an_incident_with_pauses_is_one(pack: Pack) -> None:
    """Acceptance swings: what fired goes on firing, and ends with the incident."""
    swinging = [Phase(minutes=12, curve=(1.4 * rate, rate, 0.6 * rate)) for rate in (0.3, 0.44)] * 9
    series = one(Phase(minutes=60, curve=GOOD), *swinging, Phase(minutes=72, curve=GOOD))
    steady = throughout(range(92, 60 + 9 * 24, 4), TICKET)
    recently(pack).run(Case(name="12 minutes low, 12 less low", series=series, firing={**steady, 310: QUIET}))


def test_nothing_about_acceptance_fires_at_a_measured_speed_up(either_pack: Pack, source: Source) -> None:
    minutes = 100

    def drafting(curve: tuple[float, ...]) -> list[Series]:
        return one(Phase(minutes=minutes, curve=curve), source=source)

    def beside_control(curve: tuple[float, ...], times: float) -> list[Series]:
        plain = Phase(minutes=minutes, latency={"tpot": slower(STEADY["tpot"], times)})
        return drafting(curve) + one(plain, source=source, speculative=False, labels=CONTROL)

    curves = {"30 percent": POOR, "almost nothing": NOTHING}
    silent = throughout(range(12, minutes, 8))
    cases = [
        Case(name=f"control {name}", series=beside_control(curve, 1.6), firing=silent) for name, curve in curves.items()
    ]
    if source == "exporter":
        cases += [
            Case(name=f"file {name}", series=drafting(curve) + measured(minutes, 1.6, (1.5, 1.7)), firing=silent)
            for name, curve in curves.items()
        ]
        guess = dataclasses.replace(measured(minutes, 1.6)[0], labels={**CHAT, **replica(0), "basis": "assumed"})
        cases += [
            Case(name="without bounds", series=drafting(POOR) + measured(minutes, 1.6), firing=silent),
            Case(name="only assumed", series=[*drafting(POOR), guess], firing={60: {TICKET}}),
            Case(name="1.04 times", series=drafting(POOR) + measured(minutes, 1.04), firing={60: {TICKET}}),
        ]
    recently(either_pack).run(*cases, every=SLOW_MINUTES)


# --- Did it fall? -----------------------------------------------------------------------------------------------------


def file(minutes: int, *figures: float) -> list[Series]:
    """Of a baseline file: acceptance rate, and mean acceptance length."""
    names = ("specdec_baseline_acceptance_ratio", "specdec_baseline_mean_acceptance_length")
    return [Series(name, CHAT | replica(0), [value] * minutes) for name, value in zip(names, figures, strict=False)]


def test_a_fall_below_the_baseline_file(pack: Pack) -> None:
    minutes = 240
    phase = Phase(minutes=minutes, curve=WORSE)
    fallen = throughout(range(44, minutes - 4, 8), FELL)
    of_few = dataclasses.replace(phase, drafts_per_minute=60, requests_per_minute=0.4)
    longer, hardly = (dataclasses.replace(phase, curve=curve) for curve in (LONGER, (0.8, 0.66, 0.5)))
    well = Phase(minutes=90, curve=GOOD)
    recently(pack).run(
        Case(name="for hours", series=[*one(phase), *file(minutes, 0.72, 3.16)], firing={12: QUIET, **fallen}),
        Case(name="a file without the length", series=[*one(phase), *file(minutes, 0.72)], firing=fallen),
        Case(
            name="mended",
            series=[*one(dataclasses.replace(phase, minutes=150), well), *file(minutes, 0.72, 3.16)],
            firing={148: {FELL}, 180: QUIET},
        ),
        Case(name="hardly", series=[*one(hardly), *file(minutes, 0.72, 3.16)], firing={60: QUIET}),
        Case(name="k 3 to 8", series=[*one(longer, minimum=0.3), *file(minutes, 0.72, 3.16)], firing={60: QUIET}),
        Case(
            name="a file of another method",
            series=[*one(phase), *file(minutes, 0.72, 3.16), problem("baseline_other_method", minutes)],
            firing={20: QUIET},
            values={60: {f'count(ALERTS{{alertname="{LOW}"}})': None}},
        ),
        # 1800 drafts of twelve requests, as many of one that ends later, and of as many short ones.
        Case(name="few requests", series=[*one(of_few), *file(minutes, 0.72, 3.16)], firing={100: QUIET}),
        Case(
            name="one request",
            series=[*one(dataclasses.replace(of_few, requests_per_minute=0)), *file(minutes, 0.72, 3.16)],
            firing={100: QUIET},
        ),
        Case(
            name="many requests",
            series=[*one(dataclasses.replace(of_few, requests_per_minute=60)), *file(minutes, 0.72, 3.16)],
            firing={100: {FELL}},
        ),
        Case(
            name="requests that nobody counts",
            series=[*service(dataclasses.replace(of_few, requests_per_minute=60)), *file(minutes, 0.72, 3.16)],
            firing={100: {FELL}},
        ),
        every=SLOW_MINUTES,
    )


STEP = 2  # minutes between two samples of days
Hours = list[tuple[float, ...]]


def at(day: int, hour: int) -> int:
    return 60 * (24 * day + hour)


def test_what_is_usual_after_a_day(either_pack: Pack, source: Source) -> None:
    """Five days; what is usual needs one."""

    def days(name: str, hours: Hours, firing: Firing, requests: float = 60) -> Case:
        phases = [Phase(minutes=60 // STEP, curve=curve, requests_per_minute=requests) for curve in hours]
        return Case(name=name, series=one(*phases, source=source, minimum=0.2), firing=firing)

    def between(*hours: int) -> range:
        return range(at(*hours[:2]), at(*hours[2:]), 60)

    well: Hours = [GOOD] * 24
    night: Hours = [WORSE if 2 <= hour < 6 else GOOD for hour in range(24)]
    either_pack.only("drafts", "latency", "history", "alerts-drafts").run(
        days(
            "a low hour of the day",
            [*well * 2, *night * 3],
            {at(2, 1): QUIET, at(2, 4): {FELL}, at(2, 8): QUIET}
            | throughout([at(day, hour) for day in (3, 4) for hour in range(24)]),
        ),
        days("from the first day on", night * 3, throughout(between(0, 1, 3, 0))),
        days(
            "at another hour",
            [*night * 3, *night[:12], *[WORSE] * 12],
            throughout([at(3, 8)]) | throughout(between(3, 14, 4, 0), FELL),
        ),
        days(
            "for good",
            [*well * 2, *[WORSE] * 48],
            {at(1, 23): QUIET} | throughout(between(2, 2, 2, 18), FELL) | throughout([at(3, 4), at(3, 12)]),
        ),
        days("k 3 to 8", [*well * 2, *[LONGER] * 24], throughout(between(1, 20, 3, 0))),
        days("few requests", [*well * 2, *[WORSE] * 24], throughout(between(2, 0, 3, 0)), requests=0.5),
        days("too young", [*well[:20], *[WORSE] * 3], throughout([at(0, 22)])),
        every=60,
        step=STEP,
    )


# --- Drafts of which vLLM verifies a part -----------------------------------------------------------------------------


def test_where_vllm_verifies_a_part_of_each_draft_only_the_length_tells(pack: Pack) -> None:
    """The whole draft is verified at light load, one position of it in big batches; all of it counts as drafted."""
    minutes, change = 160, 60
    curve = (0.72, 0.52, 0.37)
    rate = "inference_service:specdec_acceptance:ratio30m"

    def busy(minutes: int, first: float = 0.72, **different: object) -> Phase:
        given = {"drafts_per_minute": 2400.0, "requests_per_minute": 240.0, "running": 24.0}
        return Phase(minutes=minutes, curve=(first, 0.0, 0.0), **(given | different))  # type: ignore[arg-type]

    def light(minutes: int) -> Phase:
        return Phase(minutes=minutes, curve=curve)

    def gone(minutes: int) -> Phase:
        return Phase(minutes=minutes, present=False)

    def rising(first: float, verification: str) -> list[Series]:
        return one(light(change), busy(minutes - change, first), verification=verification)

    silent = throughout(range(40, minutes - 4, 8))
    old = one(busy(80), gone(80), verification="adaptive")
    restarted = busy(40, restart=True)
    # The new pod's log is not read at its first scrapes.
    starting = one(gone(80), busy(80), labels=SECOND)
    (info,) = (each for each in starting if each.name == "specdec_predictor_info")
    starting.remove(info)
    starting += [
        dataclasses.replace(info, values=[*info.values[:84], *[None] * 76]),
        dataclasses.replace(
            info, values=[*[None] * 84, *info.values[84:]], labels={**info.labels, "verification": "adaptive"}
        ),
    ]
    recently(pack).run(
        Case(name="adaptive", series=rising(0.72, "adaptive"), firing=silent, values={100: {rate: None}}),
        Case(name="adaptive and broken", series=rising(0.05, "adaptive"), firing={60: QUIET, 100: {PAGE}, 150: {PAGE}}),
        Case(name="all of it", series=rising(0.72, "full"), firing={60: QUIET, 100: {TICKET}}),
        Case(
            name="broken, of few drafts",
            series=one(busy(minutes, 0.05, drafts_per_minute=20, requests_per_minute=2), verification="adaptive"),
            firing=silent,
        ),
        Case(
            name="switched off",
            series=old + one(gone(80), light(80), labels=SECOND, verification="full"),
            firing=silent,
            values={100: {rate: None}, 125: {rate: 0.537}},
        ),
        Case(
            name="switched on",
            series=one(light(80), gone(80)) + one(gone(80), busy(80), labels=SECOND, verification="adaptive"),
            firing=silent,
        ),
        Case(
            name="one of two",
            series=one(busy(minutes), verification="adaptive") + one(light(minutes), labels=SECOND),
            firing=silent,
        ),
        Case(name="restarts", series=one(busy(80), restarted, restarted, verification="adaptive"), firing=silent),
        Case(name="a log that is not read yet", series=old + starting, firing=silent),
        every=SLOW_MINUTES,
    )


def test_without_the_sidecar_a_setting_names_the_services_that_verify_a_part(pack: Pack) -> None:
    groups = groups_with("{ source: 'vllm', vllm_adaptive_selector: 'inference_service=~\".*named.*\"' }")
    load = Phase(minutes=60), Phase(minutes=60, curve=(0.72, 0.0, 0.0), drafts_per_minute=2400, requests_per_minute=240)
    recently(dataclasses.replace(pack, groups=groups)).run(
        Case(name="named", series=one(*load, source="vllm"), firing={60: QUIET, 110: QUIET}),
        Case(name="not told", series=one(*load, source="vllm"), firing={60: QUIET, 110: {TICKET}}),
        every=SLOW_MINUTES,
    )


# --- Is one replica unlike the others? --------------------------------------------------------------------------------


def test_a_replica_with_the_wrong_head(either_pack: Pack, source: Source) -> None:
    minutes = 120

    def replicas(*curves: tuple[float, ...], **different: float) -> list[Series]:
        phase = Phase(minutes=minutes, **different)  # type: ignore[arg-type]
        return [
            each
            for number, curve in enumerate(curves)
            for each in one(dataclasses.replace(phase, curve=curve), source=source, labels=replica(number))
        ]

    def beside(*phases: Phase, of: int = 1, number: int = 8, **more: object) -> list[Series]:
        return replicas(*[GOOD] * of) + one(*phases, source=source, labels=replica(number), **more)

    hour = Phase(minutes=80, curve=MODEST)
    removed = dataclasses.replace(hour, minutes=40, removed=True)
    silent = Phase(minutes=minutes, drafts_per_minute=0)
    small = Phase(minutes=minutes, curve=(0.1, 0.0, 0.0), drafts_per_minute=60)
    cases: dict[str, tuple[list[Series], Firing]] = {
        "one of three": (replicas(GOOD, GOOD, MODEST), {16: QUIET, 40: {POOR_DRAFTS}, 110: {POOR_DRAFTS}}),
        "one of two": (replicas(GOOD, (0.65, 0.5, 0.38)), {110: {POOR_DRAFTS}}),
        "a small one": (beside(small, of=2), {110: {POOR_DRAFTS}}),
        "three alike": (replicas(GOOD, GOOD, (0.8, 0.7, 0.55)), {110: QUIET}),
        "two alike": (replicas(GOOD, (0.7, 0.55, 0.45)), {110: QUIET}),
        "of a few requests": (replicas(GOOD, GOOD, MODEST, drafts_per_minute=20), {110: QUIET}),
        "alone": (replicas(MODEST), {110: {TICKET}}),
        "a longer draft": (replicas(GOOD, LONGER), {110: QUIET}),
        "a canary with k 5": (beside(Phase(minutes=minutes, curve=LONGER[:5]), of=4), {110: QUIET}),
        # A larger part of the service would be judged by its own mean; the text names the canary.
        "a canary with k 8": (beside(Phase(minutes=minutes, curve=LONGER), of=4), {110: {POOR_DRAFTS}}),
        "removed": (beside(hour, removed, of=2, number=9), {76: {POOR_DRAFTS}, 100: QUIET}),
        "no drafts": (beside(silent), {28: QUIET, 44: {NO_DRAFTS}, 110: {NO_DRAFTS}}),
        "no counters": (beside(silent, speculative=False), {110: {NO_DRAFTS}}),
        "idle": (beside(dataclasses.replace(silent, requests_per_minute=0)), {110: QUIET}),
        "no drafts in a peak": (beside(Phase(minutes=80), dataclasses.replace(silent, minutes=40)), {118: QUIET}),
    }
    recently(either_pack).run(
        *(Case(name=name, series=series, firing=firing) for name, (series, firing) in cases.items()), every=SLOW_MINUTES
    )


def test_a_slow_replica(either_pack: Pack, source: Source) -> None:
    minutes = 120

    def by(phase: Phase, times: float) -> Phase:
        return dataclasses.replace(phase, latency={"tpot": slower(STEADY["tpot"], times)})

    def replicas(*times: float, **phases: float) -> list[Series]:
        every = [Phase(minutes=minutes, latency={"tpot": slower(STEADY["tpot"], factor)}, **phases) for factor in times]  # type: ignore[arg-type]
        return [
            each for number, phase in enumerate(every) for each in one(phase, source=source, labels=replica(number))
        ]

    # The first minutes after a start are slow.
    starting = Phase(minutes=50, present=False), by(Phase(minutes=8), 5), Phase(minutes=62)
    step = Phase(minutes=60), by(Phase(minutes=60), 5)
    ramp = [by(Phase(minutes=10), 1 + number / 5) for number in range(12)]
    both = [each for number in (0, 1) for each in one(*step, source=source, labels=replica(number))]
    either_pack.only("drafts", "latency", "alerts-drafts").run(
        Case(name="of two", series=replicas(1, 1.7), firing={24: QUIET, 44: {SLOW}}),
        Case(name="of eight", series=replicas(*[1.0] * 7, 1.7), firing={24: QUIET, 44: {SLOW}}),
        Case(name="hardly", series=replicas(1, 1.35), firing={60: QUIET}),
        Case(name="hardly of eight", series=replicas(*[1.0] * 7, 1.4), firing={60: QUIET}),
        Case(name="alone", series=replicas(3), firing={60: QUIET}),
        Case(name="alone, with more load", series=one(*ramp, source=source), firing=throughout(range(40, minutes, 4))),
        Case(name="of a few requests", series=replicas(1, 2, requests_per_minute=1), firing={60: QUIET}),
        Case(
            name="new",
            series=replicas(1, 1) + one(*starting, source=source, labels=replica(9)),
            firing=throughout(range(52, minutes, 4)),
        ),
        Case(name="all of them", series=both, firing=throughout(range(60, minutes, 4))),
        every=SLOW_MINUTES,
    )


# --- What the alerts say ----------------------------------------------------------------------------------------------


def test_the_texts_name_the_service_and_figures_of_one_window(pack: Pack) -> None:
    """Those of half an hour, and what was accepted at most since it broke."""
    well, bad = Phase(minutes=60, curve=GOOD), Phase(minutes=30, curve=(0.04, 0.015, 0.005))
    collapse = Case(name="2 percent", series=[*one(well, bad), *file(90, 0.72, 3.16)])
    page, low, fell = sorted(recently(pack).fired((88, collapse))[0], key=lambda alert: str(alert.labels))

    print(page, low, fell)
