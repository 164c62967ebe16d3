"""Drafts: the incident fires, and what looks like it does not."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

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
RATE = "inference_service:specdec_acceptance:ratio30m"
MINIMUM = "inference_service:specdec_acceptance:min"

Firing = Mapping[int, set[str]]
Cases = Mapping[str, tuple[list[Series], Firing]]
HOUR = Phase(minutes=60, curve=GOOD)


def throughout(minutes: Iterable[int], *alerts: str) -> dict[int, set[str]]:
    return {minute: {*alerts} for minute in minutes}


def but(phase: Phase, **different: Any) -> Phase:
    return dataclasses.replace(phase, **different)


def one(*phases: Phase, **more: Any) -> list[Series]:
    """A replica whose requests are counted."""
    return service(*phases, families=("tpot",), **more)


def replicas(source: Source, *phases: Phase) -> list[Series]:
    return [each for n, phase in enumerate(phases) for each in one(phase, source=source, labels=replica(n))]


def cases(named: Cases, **more: Any) -> Sequence[Case]:
    return [Case(name=name, series=series, firing=firing, **more) for name, (series, firing) in named.items()]


def recent(pack: Pack) -> Pack:
    """Without history, which needs a day."""
    return dataclasses.replace(pack, groups=[group for group in pack.groups if group["name"] != "specdec-history"])


# --- Does it draft? ---------------------------------------------------------------------------------------------------


def test_a_service_that_stops_drafting(either_pack: Pack, source: Source) -> None:
    silent = Phase(minutes=100, drafts_per_minute=0)
    idle = but(silent, requests_per_minute=0, running=0)
    peaks = [but(HOUR, minutes=20), but(silent, minutes=40)]

    def phases(*given: Phase, **more: bool) -> list[Series]:
        return one(*given, source=source, **more)

    named: Cases = {
        "it stops": (phases(HOUR, silent, HOUR), {80: QUIET, 94: {NOT_DRAFTING}, 158: {NOT_DRAFTING}, 176: QUIET}),
        "from its start": (phases(silent), {40: {NOT_DRAFTING}}),
        "idle": (phases(HOUR, idle), throughout(range(4, 160, 4))),
        "speculation is off": (phases(but(HOUR, minutes=100), speculative=False), throughout(range(4, 100, 4))),
        # Dynamic k is 0 in big batches: a short ticket in each peak of 40 minutes.
        "in every peak": (phases(*peaks * 3), {78: QUIET, 88: QUIET, 138: QUIET, 148: QUIET}),
    }
    recent(either_pack).run(*cases(named), every=2)


# --- Is what it drafts accepted? --------------------------------------------------------------------------------------


def test_a_collapse_is_told_within_25_minutes_and_resolves_after_recovery(either_pack: Pack, source: Source) -> None:
    def then(*curve: float, labels: Mapping[str, str] | None = None) -> list[Series]:
        return one(HOUR, but(HOUR, curve=curve), HOUR, source=source, labels=labels)

    both = {PAGE, TICKET}
    half, none = {70: QUIET, 85: {TICKET}, 118: {TICKET}, 160: QUIET}, {72: QUIET, 85: both, 120: both, 160: QUIET}
    named: Cases = {
        "to 30 percent": (then(*POOR), half),
        "to nothing": (then(*REJECTED), none),
        "without cluster and namespace": (then(*POOR, labels=NOWHERE), half),
        "to nothing without them": (then(*REJECTED, labels=NOWHERE), none),
    }
    recent(either_pack).run(*cases(named), every=1)


def test_what_is_no_collapse_stays_silent(pack: Pack) -> None:
    hours = but(HOUR, minutes=120)
    dip = Phase(minutes=3, curve=(0.05, 0.0, 0.0))
    few = but(HOUR, curve=(0.0, 0.0, 0.0), drafts_per_minute=5 / 30, requests_per_minute=0.1)

    def of(*curve: float, **different: float) -> Phase:
        return but(hours, curve=curve, **different)

    def without(name: str) -> list[Series]:
        return [each for each in one(of(*POOR)) if not each.name.startswith(name)]

    told = {
        "normal for n-gram lookup": one(of(*MODEST), method="ngram", minimum=0.3),
        "good at light load": one(of(*MODEST, drafts_per_minute=40, requests_per_minute=0.4), minimum=0.12),
        "five drafts in half an hour": one(HOUR, few),
        "few drafts": one(of(*NOTHING, drafts_per_minute=20, requests_per_minute=2)),
        "a dip of three minutes": one(HOUR, dip, HOUR),
        "a dip of twelve minutes": one(HOUR, but(dip, minutes=12), HOUR),
        "a restart": one(HOUR, but(HOUR, restart=True)),
        "nearly all is accepted": one(of(0.995, 0.99, 0.985)),
        "a cliff after the second of five positions": one(of(0.99, 0.98, 0.6, 0.05, 0.01), minimum=0.3),
        "drafts shorter than k": one(of(1.0, 1.0, 1.0, 0.0, 0.0, draft_length=3.0)),
        "no drafts are counted": without("specdec_drafts_total"),  # 0.8.3 and 0.8.4 without a log
    }
    silent = throughout(range(20, 121, 5))
    recent(pack).run(*cases({name: (series, silent) for name, series in told.items()}), every=2)


def test_nobody_is_woken_without_half_an_hour_of_almost_nothing(pack: Pack) -> None:
    nothing = one(Phase(minutes=150, curve=NOTHING))
    gap = [dataclasses.replace(each, values=[*each.values[:80], *[None] * 15, *each.values[95:]]) for each in nothing]
    soon_well = one(Phase(minutes=10, curve=(0.06, 0.02, 0.01)), HOUR)
    long = one(but(HOUR, curve=(0.7, 0.4, 0.2, 0.1, 0.05, *(0.0,) * 10)), minimum=0.09)
    swinging = [Phase(minutes=12, curve=(1.4 * rate, rate, 0.6 * rate)) for rate in (0.3, 0.44)] * 9
    first, then = throughout(range(12, 29, 4), TICKET), throughout(range(36, 150, 4), PAGE, TICKET)
    named: Cases = {
        "the first 10 minutes of a new service are bad": (soon_well, first | {44: QUIET, 58: QUIET}),
        "a new service that is bad": (nothing, first | then),
        "without samples for 15 minutes of it": (gap, throughout(range(104, 148, 4), PAGE, TICKET)),
        "k 7 with 1.56 tokens a step": (one(but(HOUR, curve=(0.4, 0.1, 0.04, 0.02, 0, 0, 0))), {50: {TICKET}}),
        "k 15 with a tenth of its tokens at light load": (long, throughout(range(4, 60, 4))),
        # It is one incident, and ends.
        "12 minutes low, 12 less": (one(HOUR, *swinging, HOUR), throughout(range(92, 276, 4), TICKET) | {310: QUIET}),
    }
    recent(pack).run(*cases(named), every=1)


def test_one_length_is_a_ticket_in_a_large_batch_and_a_flag_in_a_small_one(either_pack: Pack, source: Source) -> None:
    tokens_3_1, tokens_1_5 = (0.72, 0.5, 0.35, 0.24, 0.15, 0.09, 0.05), (0.4, 0.08, 0.02, 0, 0, 0, 0)

    def batch(curve: tuple[float, ...], requests: float, assumed: float) -> list[Series]:
        return one(but(HOUR, curve=curve, in_decode=requests), minimum=assumed, source=source)

    told = batch(tokens_3_1, 200, 0.5)

    def unknown(series: list[Series]) -> list[Series]:
        return [each for each in series if "policy" not in each.name and not each.name.endswith("latency_seconds_sum")]

    named: Cases = {
        "large batch": (told, {50: {TICKET, FLAG}}),
        "small batch": (batch(tokens_3_1, 3, 0.09), {50: {FLAG}}),
        "in between": (batch(tokens_3_1, 16, 0.295), {50: {FLAG}}),
        "small batch with 1.5 tokens a step": (batch(tokens_1_5, 3, 0.09), {50: {TICKET, FLAG}}),
        "small batch with a good draft": (batch(GOOD, 3, 0.12), {50: QUIET}),
        "a load that nobody knows": (unknown(told), {50: {FLAG}}),
        "1.5 tokens a step, and no level": (unknown(batch(tokens_1_5, 3, 0.09)), {50: {TICKET, FLAG}}),
    }
    recent(either_pack).run(*cases(named, flags=True))


def test_replicas_that_differ_count_together_and_an_idle_one_not_at_all(pack: Pack) -> None:
    phase = Phase(minutes=100, curve=MODEST)
    nothing = one(but(phase, drafts_per_minute=0, requests_per_minute=0, running=0), labels=SECOND)
    idle = [each for each in nothing if "policy" not in each.name]  # the exporter says no level without drafts
    ngram = one(phase, method="ngram", minimum=0.3, labels=SECOND)
    least = measured(100, 1.0, break_even=0.3)
    told = {"two methods": (ngram, QUIET, 0.4), "one is idle": (idle, {TICKET}, 0.5), "measured": (least, QUIET, 0.3)}
    for name, (more, alerts, level) in told.items():
        case = Case(name=name, series=one(phase) + more, firing={60: alerts}, values={60: {MINIMUM: level}})
        recent(pack).run(case)


def test_nothing_about_acceptance_fires_while_speculation_is_measured_to_pay(either_pack: Pack, source: Source) -> None:
    minutes, silent = 100, throughout(range(12, 100, 8))
    poor, nothing = (one(Phase(minutes=minutes, curve=curve), source=source) for curve in (POOR, NOTHING))
    slow = Phase(minutes=minutes, latency={"tpot": slower(STEADY["tpot"], 1.6)})
    control = one(slow, source=source, speculative=False, labels=CONTROL)
    gain = measured(minutes, 1.6, (1.5, 1.7))
    guess = dataclasses.replace(gain[0], labels={**gain[0].labels, "basis": "assumed"})
    collapse = one(HOUR, Phase(minutes=40, curve=REJECTED))
    ending = [dataclasses.replace(each, values=[*each.values[:70], *[0.8] * 30]) for each in gain]  # of 10 minutes
    named: Cases = {
        "poor beside a control": (poor + control, silent),
        "nothing beside a control": (nothing + control, {60: {PAGE}}),  # which cannot be: loads differ
    }
    if source == "exporter":
        named = {
            **named,
            "poor against a file": (poor + gain, silent),
            "nothing against a file": (nothing + gain, silent),
            "without bounds": (poor + measured(minutes, 1.6), silent),
            "only assumed": ([*poor, guess], {60: {TICKET}}),
            "1.04 times": (poor + measured(minutes, 1.04), {60: {TICKET}}),
        }
        ended = Case(name="no longer", series=collapse + ending, firing={68: QUIET, 85: {PAGE}})
        recent(either_pack).alone(LOW).run(ended, every=1)
    recent(either_pack).run(*cases(named), every=SLOW_MINUTES)


# --- Did it fall? -----------------------------------------------------------------------------------------------------


def file(minutes: int, *figures: float) -> list[Series]:
    """Of a baseline file: acceptance rate, and mean acceptance length."""
    names = ("specdec_baseline_acceptance_ratio", "specdec_baseline_mean_acceptance_length")
    return [Series(name, CHAT | replica(0), [value] * minutes) for name, value in zip(names, figures, strict=False)]


def test_a_fall_below_the_baseline_file(pack: Pack) -> None:
    minutes, worse = 240, Phase(minutes=240, curve=WORSE)
    fallen = throughout(range(44, minutes - 4, 8), FELL)

    def against(*phases: Phase, counted: bool = True, **more: Any) -> list[Series]:
        return service(*phases, families=("tpot",) * counted, **more) + file(minutes, 0.72, 3.16)

    def of_few(requests: float) -> Phase:  # 1800 drafts
        return but(worse, drafts_per_minute=60, requests_per_minute=requests)

    named: Cases = {
        "for hours": (against(worse), {12: QUIET, **fallen}),
        "a file without the length": (one(worse) + file(minutes, 0.72), fallen),
        "mended": (against(but(worse, minutes=150), but(HOUR, minutes=90)), {148: {FELL}, 180: QUIET}),
        "hardly": (against(but(worse, curve=(0.8, 0.66, 0.5))), {60: QUIET}),
        "k 3 to 8": (against(but(worse, curve=LONGER), minimum=0.3), {60: QUIET}),
        "of another method": ([*against(worse), problem("baseline_other_method", minutes)], {60: QUIET, 200: QUIET}),
        "of twelve requests": (against(of_few(0.4)), {100: QUIET}),
        "of one that ends later": (against(of_few(0)), {100: QUIET}),
        "of many requests": (against(of_few(60)), {100: {FELL}}),
        "of requests that nobody counts": (against(of_few(60), counted=False), {100: {FELL}}),
    }
    recent(pack).alone(LOW).run(*cases(named), every=SLOW_MINUTES)


STEP = 2  # minutes between two samples of days
Hours = list[tuple[float, ...]]


def at(day: int, hour: int) -> int:
    return 60 * (24 * day + hour)


def test_what_is_usual_after_a_day(either_pack: Pack, source: Source) -> None:
    """Above break-even, a low hour of every day is news once, and a fall for good for a day."""
    well: Hours = [GOOD] * 24
    night: Hours = [WORSE if 2 <= hour < 6 else GOOD for hour in range(24)]

    def days(*hours: tuple[float, ...], requests: float = 60) -> list[Series]:
        phases = [Phase(minutes=60 // STEP, curve=curve, requests_per_minute=requests) for curve in hours]
        return one(*phases, source=source, minimum=0.2)

    def hourly(since: int, until: int, *alerts: str) -> Firing:
        return throughout(range(since, until, 60), *alerts)

    news = {at(2, 1): QUIET, at(2, 4): {FELL}, at(2, 8): QUIET}
    lasting = hourly(at(2, 2), at(2, 18), FELL)
    named: Cases = {
        "a low hour of the day": (days(*well * 2, *night * 3), {**news, **hourly(at(3, 0), at(5, 0))}),
        "from the first day on": (days(*night * 3), hourly(at(0, 1), at(3, 0))),
        "at another hour": (days(*night * 3, *night[:12], *[WORSE] * 12), hourly(at(3, 14), at(4, 0), FELL)),
        "for good": (days(*well * 2, *[WORSE] * 48), {at(1, 23): QUIET, **lasting, **hourly(at(3, 4), at(4, 0))}),
        "k 3 to 8": (days(*well * 2, *[LONGER] * 24), hourly(at(1, 20), at(3, 0))),
        "of few requests": (days(*well * 2, *[WORSE] * 24, requests=0.5), hourly(at(2, 0), at(3, 0))),
        "too young": (days(*well[:20], *[WORSE] * 3), {at(0, 22): QUIET}),
    }
    pack = either_pack.only("drafts", "latency", "history", "alerts-drafts", "alerts-replicas")
    pack.run(*cases(named), every=60, step=STEP)


# --- Drafts of which vLLM verifies a part -----------------------------------------------------------------------------


def busy(minutes: int, first: float = 0.72, **different: float | bool) -> Phase:
    """Big batches, where one position of each draft is verified. All of it counts as drafted."""
    given = {"drafts_per_minute": 2400.0, "requests_per_minute": 240.0, "running": 24.0}
    return but(Phase(minutes=minutes, curve=(first, 0.0, 0.0)), **(given | different))


def test_where_vllm_verifies_a_part_of_each_draft_only_the_length_tells(pack: Pack) -> None:
    minutes = 160
    light, gone = Phase(minutes=80, curve=(0.72, 0.52, 0.37)), Phase(minutes=80, present=False)
    silent = throughout(range(40, minutes - 4, 8))
    adaptive: dict[str, Any] = {"verification": "adaptive"}
    old, restarted = one(busy(80), gone, **adaptive), busy(40, restart=True)
    # The new pod's log is not read at its first scrapes.
    starting = one(gone, busy(80), labels=SECOND)
    (info,) = (each for each in starting if each.name == "specdec_predictor_info")
    starting.remove(info)
    starting += [
        dataclasses.replace(info, values=[*info.values[:84], *[None] * 76]),
        dataclasses.replace(info, values=[*[None] * 84, *info.values[84:]], labels={**info.labels, **adaptive}),
    ]
    few = busy(minutes, 0.05, drafts_per_minute=20, requests_per_minute=2)
    named: Cases = {
        "adaptive": (one(light, busy(80), **adaptive), silent),
        "adaptive and broken": (one(light, busy(80, 0.05), **adaptive), {80: QUIET, 120: {PAGE}, 150: {PAGE}}),
        "broken, of few drafts": (one(few, **adaptive), silent),
        "all of it": (one(light, busy(80), verification="full"), {80: QUIET, 120: {TICKET}}),
        "switched on": (one(light, gone) + one(gone, busy(80), labels=SECOND, **adaptive), silent),
        "one of two": (one(busy(minutes), **adaptive) + one(but(light, minutes=minutes), labels=SECOND), silent),
        "restarts": (one(busy(80), restarted, restarted, **adaptive), silent),
        "a log that is not read yet": (old + starting, silent),
    }
    off = old + one(gone, light, labels=SECOND, verification="full")
    switched = Case(name="off", series=off, firing=silent, values={100: {RATE: None}, 125: {RATE: 0.537}})
    recent(pack).run(*cases(named), switched, every=SLOW_MINUTES)


def test_without_the_sidecar_a_setting_names_the_services_that_verify_a_part(pack: Pack) -> None:
    groups = groups_with("{ source: 'vllm', vllm_adaptive_selector: 'inference_service=~\".*named.*\"' }")
    rising = one(HOUR, busy(60), source="vllm")
    named: Cases = {"named": (rising, {110: QUIET}), "not told": (rising, {60: QUIET, 110: {TICKET}})}
    recent(dataclasses.replace(pack, groups=groups)).run(*cases(named), every=SLOW_MINUTES)


# --- Is one replica unlike the others? --------------------------------------------------------------------------------


def test_a_replica_with_the_wrong_head(either_pack: Pack, source: Source) -> None:
    phase, gone = Phase(minutes=120, curve=GOOD), Phase(minutes=80, present=False)
    wrong, silent = but(phase, curve=MODEST), but(phase, drafts_per_minute=0)
    hours, removed = but(phase, minutes=80), but(phase, minutes=40, removed=True)

    def alike(*curves: tuple[float, ...], **different: float) -> list[Series]:
        return replicas(source, *(but(phase, curve=curve, **different) for curve in curves))

    def beside(*phases: Phase, of: int = 1, number: int = 8, **more: bool) -> list[Series]:
        return alike(*[GOOD] * of) + one(*phases, source=source, labels=replica(number), **more)

    replaced = one(hours, removed, source=source, labels=replica(10))
    replaced += one(gone, but(phase, minutes=40, curve=(0.8, 0.66, 0.5)), source=source, labels=replica(11))
    named: Cases = {
        "one of three": (alike(GOOD, GOOD, MODEST), {16: QUIET, 40: {POOR_DRAFTS}, 110: {POOR_DRAFTS}}),
        "one of two": (alike(GOOD, (0.65, 0.5, 0.38)), {110: {POOR_DRAFTS}}),
        "a small one": (beside(but(wrong, drafts_per_minute=60), of=2), {110: {POOR_DRAFTS}}),
        "three alike": (alike(GOOD, GOOD, (0.8, 0.7, 0.55)), {110: QUIET}),
        "two alike": (alike(GOOD, (0.7, 0.55, 0.45)), {110: QUIET}),
        "of a few requests": (alike(GOOD, GOOD, MODEST, drafts_per_minute=20), {110: QUIET}),
        "alone": (alike(MODEST), {110: {TICKET}}),
        "replaced by one that is hardly worse": (replaced, throughout(range(80, 120, 4))),
        "a longer draft": (alike(GOOD, LONGER), {110: QUIET}),
        "a canary with k 5": (beside(but(phase, curve=LONGER[:5]), of=4), {110: QUIET}),
        "a canary with k 8": (beside(but(phase, curve=LONGER), of=4), {110: {POOR_DRAFTS}}),  # as the text says
        "removed": (beside(but(wrong, minutes=80), removed, of=2, number=9), {76: {POOR_DRAFTS}, 100: QUIET}),
        "no drafts": (beside(but(silent, minutes=80), removed, number=12), {28: QUIET, 44: {NO_DRAFTS}, 100: QUIET}),
        "no counters": (beside(silent, speculative=False), {110: {NO_DRAFTS}}),
        "idle": (beside(but(silent, requests_per_minute=0, running=0)), {110: QUIET}),
        "no drafts in a peak": (beside(hours, but(silent, minutes=40)), {118: QUIET}),
    }
    recent(either_pack).run(*cases(named), every=SLOW_MINUTES)


def test_a_slow_replica(either_pack: Pack, source: Source) -> None:
    minutes = 120

    def by(times: float, minutes: int = minutes, **different: float) -> Phase:
        return but(Phase(minutes=minutes, latency={"tpot": slower(STEADY["tpot"], times)}), **different)

    def in_turn(*phases: Phase, number: int) -> list[Series]:
        return one(*phases, source=source, labels=replica(number))

    starting = in_turn(Phase(minutes=50, present=False), by(5, 10), Phase(minutes=60), number=2)
    step = [each for number in (0, 1) for each in in_turn(by(1, 60), by(5, 60), number=number)]
    ramp = in_turn(*(by(1 + number / 5, 10) for number in range(12)), number=0)
    named: Cases = {
        "of two": (replicas(source, by(1), by(1.7)), {24: QUIET, 44: {SLOW}}),
        "of eight": (replicas(source, *[by(1)] * 7, by(1.7)), {24: QUIET, 44: {SLOW}}),
        "hardly of two": (replicas(source, by(1), by(1.35)), {60: QUIET}),
        "hardly of eight": (replicas(source, *[by(1)] * 7, by(1.4)), {60: QUIET}),
        "alone": (replicas(source, by(3)), {60: QUIET}),
        "of a few requests": (replicas(source, by(1), by(2, requests_per_minute=1)), {60: QUIET}),
        "alone, with more load": (ramp, throughout(range(40, minutes, 4))),
        "both": (step, throughout(range(60, minutes, 4))),
        # Its first minutes are slow.
        "new": (replicas(source, by(1), by(1)) + starting, throughout(range(52, minutes, 4))),
    }
    either_pack.only("drafts", "latency", "alerts-replicas").run(*cases(named), every=SLOW_MINUTES)


# --- What the alerts say ----------------------------------------------------------------------------------------------


def test_the_texts_set_no_figure_of_five_minutes_beside_one_of_thirty(pack: Pack) -> None:
    who = "eu-1/prod/chat (llama)"
    collapsed = one(HOUR, Phase(minutes=40, curve=(0.04, 0.015, 0.005)))
    broken = Case(name="5 percent", series=one(busy(90, 0.05), verification="adaptive"))
    fell, low, page = recent(pack).fired((98, Case(name="2 percent", series=collapsed + file(100, 0.72, 3.16))))[0]
    ((length,),) = recent(pack).fired((88, broken))

    assert page.annotations["summary"] == f"{who} accepts almost no draft token: at most 2% in 15m."
    assert page.annotations["description"] == "Draft and target do not fit. Usually, 72% of draft tokens are accepted."
    assert length.annotations["summary"] == f"{who} accepts almost no draft token: 1.05 tokens a step."
    assert low.annotations["summary"] == f"{who} accepts 2% of its draft tokens; break-even is 50% (assumed)."
    assert fell.annotations["summary"] == f"{who} accepts 2% of its draft tokens; usually 72%."
    assert fell.annotations["description"] == "Over 30m, a step gives 1.06 tokens."
