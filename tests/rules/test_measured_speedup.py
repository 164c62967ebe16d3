"""A measured speed-up outweighs acceptance: it silences alerts, and a measured loss pages whatever is accepted.

It is measured by the exporter at like load, against a live control, or against a baseline file.
"""

from __future__ import annotations

import dataclasses

from bench.alert_times import ONSET, rolled_out_and_back
from rules.scenario import (
    CHAT,
    CONTROL,
    SECOND,
    SLOW_MINUTES,
    STEADY,
    Case,
    Pack,
    Phase,
    Series,
    measured,
    pinned,
    replica,
    service,
    slower,
)

MINUTES = 100
FAIR = (0.85, 0.72, 0.59)  # acceptance 0.72
LOW = (0.5, 0.3, 0.2)  # 0.33
POOR = (0.35, 0.15, 0.1)  # 0.2
REJECTED = (0.12, 0.04, 0.02)  # 0.06: below broken, and the head is rejected
NOTHING = (0.03, 0.01, 0.005)  # 0.015

TICKET = "SpecDecodeAcceptanceLow warning"
HARM, LOSS = "SpecDecodeHarmful critical", "SpecDecodeNotPayingOff warning"
MEAN, MEAN_PAGE = "SpecDecodeP99Regression warning mean", "SpecDecodeP99Regression critical mean"
SATURATED = "SpecDecodeLoadTooHigh warning"
# Within one bucket, so that only the mean tells a small difference.
FLAT = {"tpot": ((0.02, 1.0),), "ttft": STEADY["ttft"]}
SILENT: dict[int, set[str]] = {minute: set() for minute in range(10, MINUTES, 5)}

SPEEDUP = "inference_service:specdec_speedup:ratio30m"
BOUND = "inference_service:specdec_speedup:bound30m"
BREAK_EVEN = "inference_service:specdec_acceptance_min:threshold"
VERDICT = "inference_service:specdec_verdict:enum"
HEALTHY, WATCH, NOT_PAYING, HARMFUL, BROKEN, SLOWER = 1, 2, 3, 4, 5, 6


def drafting(curve: tuple[float, ...], requests_per_minute: float = 60.0) -> list[Series]:
    """A service with this curve; without baselines nobody knows whether it pays."""
    phase = Phase(minutes=MINUTES, curve=curve, requests_per_minute=requests_per_minute, latency=FLAT)
    return service(phase, families=("tpot", "ttft"))


def beside_control(curve: tuple[float, ...], speedup: float, requests_per_minute: float = 60.0) -> list[Series]:
    """The same with a live control without speculation, so many times as slow."""
    phase = Phase(minutes=MINUTES, curve=curve, requests_per_minute=requests_per_minute, latency=FLAT)
    plain = Phase(minutes=MINUTES, latency={"tpot": slower(FLAT["tpot"], speedup)})
    return service(phase, families=("tpot",)) + service(plain, families=("tpot",), speculative=False, labels=CONTROL)


def against_file(curve: tuple[float, ...], speedup: float, requests_per_minute: float = 60.0) -> list[Series]:
    """The same with a baseline file without speculation."""
    return drafting(curve, requests_per_minute) + pinned(MINUTES, {"tpot": slower(FLAT["tpot"], speedup)})


def test_a_measured_loss_pages_whatever_is_accepted(pack: Pack) -> None:
    quiet = {60: set[str](), 95: {LOSS}}
    pack.run(
        Case(
            name="at like load",
            series=drafting(FAIR) + measured(MINUTES, 0.8, (0.75, 0.86), break_even=0.95),
            firing={15: set(), 50: {HARM}, 95: {HARM, LOSS}},
            values={50: {VERDICT: HARMFUL, SPEEDUP: 0.8, f'{BOUND}{{bound="high"}}': 0.86}},
        ),
        Case(
            name="without bounds",
            series=drafting(FAIR) + measured(MINUTES, 0.8),
            firing={50: {HARM}},
        ),
        Case(
            name="few long requests",
            series=drafting(FAIR, 2) + measured(MINUTES, 0.8, (0.75, 0.86)),
            firing={50: {HARM}, 95: {HARM, LOSS}},
        ),
        Case(
            name="perhaps",
            series=drafting(FAIR) + measured(MINUTES, 0.8, (0.6, 1.1)),
            firing=SILENT,
            values={50: {VERDICT: WATCH}},
        ),
        Case(name="a small loss", series=drafting(FAIR) + measured(MINUTES, 0.95, (0.92, 0.98)), firing=quiet),
        Case(
            name="a live control",
            series=beside_control(FAIR, 0.8),
            firing={60: {HARM, MEAN}},
            values={50: {VERDICT: HARMFUL}},
        ),
        Case(
            name="a control that is hardly faster",
            series=beside_control(FAIR, 0.95),
            firing={95: {LOSS}},
        ),
        Case(
            name="a control, too few requests to tell",
            series=beside_control(FAIR, 0.88, 2),
            firing={95: set()},
        ),
        Case(
            name="a file: a busy hour is slower with good drafts",
            series=against_file(FAIR, 0.8),
            firing={50: {MEAN}, 95: {MEAN, LOSS}},
        ),
        Case(
            name="hardly any drafts",
            series=service(Phase(minutes=MINUTES, curve=FAIR, drafts_per_minute=20)) + measured(MINUTES, 0.8),
            firing={95: set()},
        ),
        every=SLOW_MINUTES,
    )


def test_a_blip_that_is_over_does_no_harm(pack: Pack) -> None:
    blip = {"tpot": slower(FLAT["tpot"], 5)}

    def phases(curve: tuple[float, ...], minutes: int) -> list[Phase]:
        well = Phase(minutes=60, curve=curve, latency=FLAT)
        return [well, dataclasses.replace(well, minutes=minutes, latency=blip), dataclasses.replace(well, minutes=46)]

    plain = Phase(minutes=150, latency={"tpot": slower(FLAT["tpot"], 1.3)})
    control = service(plain, families=("tpot",), speculative=False, labels=CONTROL)
    short, lasting = phases(FAIR, 4), phases(FAIR, 40)
    guessed = service(*phases(LOW, 4), families=("tpot",)) + pinned(150, {"tpot": FLAT["tpot"]})
    over: dict[int, set[str]] = {minute: set() for minute in range(61, 110, 2)}
    pack.alone("SpecDecodeHarmful").run(
        Case(name="beside a control", series=service(*short, families=("tpot",)) + control, firing=over),
        Case(name="by acceptance", series=guessed, firing=over),
        Case(name="one that lasts", series=service(*lasting, families=("tpot",)) + control, firing={90: {HARM}}),
        every=1,
    )


def test_like_load_goes_before_any_other_comparison(pack: Pack) -> None:
    """In a busy hour, the service is half as fast as its file, and faster than it would be without speculation."""
    busy = Phase(minutes=MINUTES, curve=LOW, latency={"tpot": ((0.03, 0.6), (0.045, 0.4))})
    slow = service(busy, families=("tpot",)) + pinned(MINUTES, {"tpot": STEADY["tpot"]})
    pack.run(
        Case(
            name="slower than the file",
            series=slow,
            firing={50: {TICKET, HARM, MEAN, MEAN_PAGE}},
            values={50: {VERDICT: HARMFUL}},
        ),
        Case(
            name="but faster at like load",
            series=slow + measured(MINUTES, 1.2, (1.1, 1.3), break_even=0.2),
            firing={50: {MEAN, MEAN_PAGE}, 95: {MEAN, MEAN_PAGE}},
            values={50: {f'{SPEEDUP}{{speedup_source="like_load"}}': 1.2, f"count({SPEEDUP})": 1, VERDICT: SLOWER}},
        ),
        Case(
            name="undecided at like load",
            series=slow + measured(MINUTES, 1.0, (0.9, 1.1)),
            firing={50: {TICKET, MEAN, MEAN_PAGE}},
            values={50: {VERDICT: WATCH}},
        ),
        every=SLOW_MINUTES,
    )


def test_where_step_times_do_not_tell_the_speed_up_nothing_else_does(pack: Pack) -> None:
    """For instance at a load that the baseline does not have: it may be faster or slower for that alone."""
    unknown = Series("specdec_speedup_known", CHAT | replica(0), [0.0] * MINUTES)
    values: dict[str, float | None] = {VERDICT: WATCH, SPEEDUP: None}
    pack.run(
        Case(name="good acceptance", series=[*drafting(FAIR), unknown], values={50: values}),
        Case(name="faster than its file", series=[*against_file(FAIR, 1.6), unknown], values={50: values}),
        Case(name="slower than its file", series=[*against_file(FAIR, 0.6), unknown], values={50: values}),
        Case(name="rejected", series=[*against_file(NOTHING, 1.6), unknown], values={50: {VERDICT: BROKEN}}),
        every=SLOW_MINUTES,
    )


def test_two_replicas_measure_one_speed_up(pack: Pack) -> None:
    both = [
        *service(Phase(minutes=MINUTES, curve=LOW)),
        *service(Phase(minutes=MINUTES, curve=LOW), labels=SECOND),
        *measured(MINUTES, 1.7, (1.5, 1.9), break_even=0.12),
        *measured(MINUTES, 1.5, (1.3, 1.7), break_even=0.1, labels=SECOND),
    ]
    values: dict[str, float | None] = {SPEEDUP: 1.6, f'{BOUND}{{bound="low"}}': 1.4, BREAK_EVEN: 0.1}
    pack.run(Case(name="the mean of the two", series=both, firing=SILENT, values={60: values}), every=SLOW_MINUTES)


def test_a_rollout_that_harms_is_told_as_harm_from_the_first_page_on(pack: Pack) -> None:
    """The old pod's speed-up hides nothing: it is in the window for long."""
    worse, much_worse = (Case(name=f"{gain}x", series=rolled_out_and_back(gain)) for gain in (0.75, 0.5))
    found = pack.firing(worse, much_worse, minutes=range(ONSET, ONSET + 50, 2), every=2)

    for by_minute in found.values():
        pages = {
            minute: {alert["alertname"] for alert in alerts if alert["severity"] == "critical"}
            for minute, alerts in by_minute.items()
        }
        first = min(minute for minute, names in pages.items() if names)
        assert first <= ONSET + 22
        assert all("SpecDecodeHarmful" in names for minute, names in pages.items() if minute >= first)


def test_big_batches_that_pay_are_not_saturated(pack: Pack) -> None:
    busy = service(Phase(minutes=MINUTES, curve=(0.75, 0.55, 0.4), running=40, waiting=6))
    pack.run(
        Case(name="faster", series=busy + measured(MINUTES, 1.2, (1.1, 1.3)), firing=SILENT),
        Case(name="not faster", series=busy + measured(MINUTES, 1.0, (0.97, 1.02)), firing={50: {SATURATED}}),
        every=SLOW_MINUTES,
    )


def test_the_verdict_asks_the_measurement_first(pack: Pack) -> None:
    """Speed-up with its bounds; where they decide nothing, nothing is good, and only what is broken is bad."""
    verdicts = {
        (NOTHING, 1.6, (1.5, 1.7)): HEALTHY,
        (NOTHING, 0.8, (0.7, 0.9)): HARMFUL,
        (NOTHING, 0.97, (0.95, 1.0)): NOT_PAYING,
        (NOTHING, 1.0, (0.9, 1.1)): BROKEN,
        (LOW, 1.06, (1.01, 1.1)): HEALTHY,
        (LOW, 1.06, (0.99, 1.1)): WATCH,
        ((0.7, 0.6, 0.5), 1.2, (0.8, 1.6)): WATCH,
        (FAIR, 0.92, (0.9, 0.94)): NOT_PAYING,
        (FAIR, 1.0, (0.8, 1.2)): WATCH,
    }
    pack.run(
        *(
            Case(
                name=f"case {number}",
                series=drafting(curve) + measured(MINUTES, speedup, bounds),
                values={40: {VERDICT: verdict}},
            )
            for number, ((curve, speedup, bounds), verdict) in enumerate(verdicts.items())
        ),
        every=SLOW_MINUTES,
    )
