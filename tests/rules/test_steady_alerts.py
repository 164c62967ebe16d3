"""One incident is one alert: it begins once, stays while the cause lasts, and ends with it. For hours, not minutes.

All cases of a variant share one run, by one promtool, of the groups that they need: hours of all rules take long. So
most of it is for the night.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from promtool import promtool
from rules.conftest import RENDERED
from rules.scenario import (
    CONTROL,
    NOWHERE,
    STEADY,
    Case,
    Pack,
    Phase,
    Series,
    Source,
    measured,
    pinned,
    rule_groups,
    service,
    slower,
)

HEALTHY = (0.85, 0.72, 0.59)  # 0.72
LOW = (0.55, 0.28, 0.16)  # 0.33
NGRAM = (0.5, 0.33, 0.22)  # 0.35
NOTHING = (0.06, 0.02, 0.01)  # 0.03

PAGE, TICKET = "SpecDecodeAcceptanceLow critical", "SpecDecodeAcceptanceLow warning"
OUTLIER = "SpecDecodeReplicaOutlier warning"
FALLEN = (PAGE, TICKET)
HARM, LOSS = "SpecDecodeHarmful critical tpot", "SpecDecodeNotPayingOff warning tpot"
BEFORE, INCIDENT, AFTER = 60, 228, 72  # the incident takes 3.8 hours
ONSET, MENDED, MINUTES = BEFORE, BEFORE + INCIDENT, BEFORE + INCIDENT + AFTER
SLOWEST = 100  # minutes until all alerts of an incident fire
EVERY = 4  # minutes between two evaluations
NOT_NEEDED = {
    f"specdec-{name}"
    for name in (
        "tails",
        "error-budgets",
        "alerts-latency",
        "alerts-error-budgets",
        "alerts-pack",
    )
}

# promtool evaluates every group every time, so an hour of history is four minutes long: what an incident is compared
# with changes while it lasts. Against a recorded baseline it does not, see test_acceptance_alerts.py.
ASIDE = ("SpecDecodeBaselineMissing", "SpecDecodeAcceptanceDropped")


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Fleet(Case):
    """Many cases that are asked about together: hundreds of questions by name take most of a minute."""

    cases: Sequence[Case]

    def input_series(self) -> Iterator[Series]:
        for case in self.cases:
            yield from case.input_series()

    def checks(self) -> Iterator[dict[str, object]]:
        fired = f'ALERTS{{alertstate="firing", alertname!~"{"|".join(ASIDE)}"}}'
        expression = f"group by (inference_service, alertname, severity, sli) ({fired})"
        for minute in self.cases[0].firing:
            samples = []
            for case in self.cases:
                for alert in sorted(case.firing[minute]):
                    name, severity, *sli = alert.split()
                    service = f'inference_service="{case.prefix}chat"'
                    labels = f'alertname="{name}", severity="{severity}"' + (f', sli="{sli[0]}"' if sli else "")
                    samples.append({"labels": f"{{{service}, {labels}}}", "value": 1})
            yield {"expr": expression, "eval_time": f"{minute}m", "exp_samples": samples}


def once(name: str, series: list[Series], *alerts: str, over: bool = True) -> Case:
    """These alerts, and no others, fire without a gap to the end of the incident, and not an hour later.

    Not ``over``: what is wrong is wrong from the first minute to the last.
    """
    firing = {minute: set(alerts) for minute in range(ONSET + SLOWEST, MENDED, EVERY)}
    firing[MINUTES - EVERY] = set() if over else set(alerts)
    return Case(name=name, series=series, firing=firing)


def incident(*during: Phase) -> tuple[Phase, ...]:
    """A service that is well, then is not, and then is well again."""
    return (Phase(minutes=BEFORE, curve=HEALTHY), *during, Phase(minutes=AFTER, curve=HEALTHY))


def all_along(curve: tuple[float, ...]) -> Phase:
    return Phase(minutes=MINUTES, curve=curve)


def swinging(low: float, high: float, minutes: int) -> tuple[Phase, ...]:
    """Acceptance changes every so many minutes."""
    rates = [low, high] * (INCIDENT // minutes)
    phases = [Phase(minutes=minutes, curve=(1.4 * rate, rate, 0.6 * rate)) for rate in rates]
    return incident(*phases[: INCIDENT // minutes])


def replicas(source: Source, *phases: tuple[Phase, ...], without: int | None = None) -> list[Series]:
    """Replicas of one service; the number ``without`` has no draft counters."""
    return [
        one
        for number, own in enumerate(phases)
        for one in service(
            *own,
            source=source,
            speculative=number != without,
            labels={"pod": f"chat-{number}", "instance": f"10.0.0.{number}:10409"},
        )
    ]


def faster_than_control(source: Source) -> list[Series]:
    """1.6 times; hardly any requests for an hour, and then a restart."""
    plain = Phase(minutes=MINUTES, latency={"tpot": slower(STEADY["tpot"], 1.6)})
    return service(*faster(), source=source, families=("tpot",)) + service(
        plain, source=source, families=("tpot",), speculative=False, labels=CONTROL
    )


def faster() -> tuple[Phase, ...]:
    return (
        Phase(minutes=150, curve=LOW),
        Phase(minutes=60, curve=LOW, requests_per_minute=2),
        Phase(minutes=150, curve=LOW, restart=True),
    )


def run(folder: Path, name: str, cases: Sequence[Case], every: int = EVERY) -> None:
    groups = rule_groups(RENDERED / name)
    rules = folder / name
    rules.write_text(json.dumps({"groups": [group for group in groups if group["name"] not in NOT_NEEDED]}))
    Pack(promtool(), rules, folder).run(Fleet(name="all", series=(), cases=cases), every=every)


def of_either(source: Source) -> list[Case]:
    """What both variants of the rules see."""
    well = (all_along(HEALTHY),)
    bad = incident(Phase(minutes=INCIDENT, curve=(0.2, 0.1, 0.06)))
    broken = incident(Phase(minutes=INCIDENT, curve=NOTHING))
    silent = incident(Phase(minutes=INCIDENT, drafts_per_minute=0))
    canary = tuple(dataclasses.replace(phase, drafts_per_minute=30, requests_per_minute=3) for phase in broken)
    return [
        once("8 minutes each", service(*swinging(0.3, 0.44, 8), source=source), *FALLEN),
        once("about break-even", service(*swinging(0.3, 0.55, 12), source=source), *FALLEN),
        once("faster than the control", faster_than_control(source)),
        once("n-gram, and nobody knows", service(all_along(NGRAM), source=source, method=None), TICKET, over=False),
        once("one of 8 does not draft", replicas(source, *[well] * 7, silent), OUTLIER),
        once("2, one of them bad", replicas(source, well, bad), OUTLIER, TICKET),
        once("a canary", replicas(source, well, canary), OUTLIER),
        once("3 alike", replicas(source, *[well] * 3)),
    ]


@pytest.mark.nightly
def test_with_the_exporter(tmp_path: Path) -> None:
    low, broken = Phase(minutes=INCIDENT, curve=LOW), Phase(minutes=INCIDENT, curve=NOTHING)
    slow = Phase(minutes=INCIDENT, curve=LOW, latency={"tpot": slower(STEADY["tpot"], 1.5)})
    at_first = pinned(MINUTES, {"tpot": slower(STEADY["tpot"], 1.1)})
    file = pinned(MINUTES, {"tpot": slower(STEADY["tpot"], 1.6)})
    losing = measured(MINUTES, 0.95, (0.92, 0.98), break_even=0.4)
    cases = [
        *of_either("exporter"),
        once("collapse", service(*incident(low)), *FALLEN),
        once("collapse, unlabelled", service(*incident(low), labels=NOWHERE), *FALLEN),
        once("nothing accepted", service(*incident(broken)), *FALLEN),
        once("slower with poor drafts", service(*incident(slow), families=("tpot",)) + at_first, HARM, LOSS, *FALLEN),
        once("28 minutes each", service(*swinging(0.3, 0.44, 28)), *FALLEN),
        once("hardly below break-even", service(*swinging(0.4, 0.47, 12)), TICKET),
        once("faster than a file", service(*faster(), families=("tpot",)) + file),
        once("n-gram, and everybody knows", service(all_along(NGRAM), method="ngram")),
        once("n-gram, and no series tells", without_info(service(all_along(NGRAM))), TICKET, over=False),
        once("no known method accepts so little", service(all_along(NOTHING), method=None), PAGE, TICKET, over=False),
        once("a measured loss", service(all_along(NOTHING)) + losing, TICKET, LOSS, over=False),
        once("no speculation", replicas("exporter", *[(all_along(HEALTHY),)] * 7, rolled_out(), without=7), OUTLIER),
    ]
    run(tmp_path, "specdec.rules.yaml", cases)


def rolled_out() -> tuple[Phase, ...]:
    """A replica that comes at the onset, and goes when it is mended."""
    gone = Phase(minutes=BEFORE, present=False)
    return gone, Phase(minutes=INCIDENT, drafts_per_minute=0), Phase(minutes=AFTER, present=False)


def without_info(series: list[Series]) -> list[Series]:
    return [one for one in series if one.name != "specdec_predictor_info"]


@pytest.mark.nightly
def test_without_it(tmp_path: Path) -> None:
    run(tmp_path, "specdec-vllm.rules.yaml", of_either("vllm"))


def test_every_two_minutes(tmp_path: Path) -> None:
    """Looked at less often, a pause of 12 minutes seems to be shorter than ``keep_firing_for``."""
    case = once("12 minutes low, 12 less low", service(*swinging(0.3, 0.44, 12)), *FALLEN)
    run(tmp_path, "specdec.rules.yaml", [case], every=2)
