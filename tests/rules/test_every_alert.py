"""Every alert of the pack can be heard: an incident of hours is delivered once, without a gap, and ends with its cause.

Delivered is what Alertmanager's inhibitions leave of what fires. All incidents of a variant share one run.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

from alertmanager.catalogue import FRAGMENT, document
from alertmanager.inhibition import inhibited
from promtool import promtool
from rules.scenario import (
    CONTROL,
    FLAG,
    SECOND,
    STEADY,
    Case,
    Groups,
    Pack,
    Phase,
    Series,
    Shares,
    Source,
    groups_with,
    pinned,
    processes,
    prompts,
    replica,
    service,
    slower,
)

HEALTHY = (0.85, 0.72, 0.59)
ONSET, MENDED, MINUTES = 40, 280, 364  # four hours
EVERY = 4  # minutes between two evaluations
SLOWEST = 100  # minutes until an alert fires: those of restarts and of acceptance look back an hour
LASTS = 68  # minutes that it may outlast its cause: the window of 30 minutes, and as long without a break
# Of a ruler without samples, see test_outages.py; of many services, see test_fleet.py.
ELSEWHERE = {
    FLAG,  # to nobody
    "SpecDecodeRulesLagging warning samples",
    "SpecDecodeManyServices critical down",
    "SpecDecodeManyServices critical slower",
}


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Incident(Case):
    """What one alert must tell. ``onset`` and ``mended``: the minutes between which something is wrong."""

    onset: int = ONSET
    mended: int = MENDED


def incident(*phases: Phase, onset: int = ONSET, mended: int = MENDED) -> tuple[Phase, ...]:
    """Healthy, then the phases over and over, then healthy again."""
    whole, length = list(phases), sum(phase.minutes for phase in phases)
    rounds, rest = divmod(mended - onset, length)
    assert not rest
    return (
        Phase(minutes=onset, curve=HEALTHY),
        *whole * rounds,
        Phase(minutes=MINUTES - mended, curve=HEALTHY),
    )


def during(minutes: int = MENDED - ONSET, **different: object) -> Phase:
    return dataclasses.replace(Phase(minutes=minutes, curve=HEALTHY), **different)  # type: ignore[arg-type]


def incidents(source: Source) -> Mapping[str, Incident]:
    """By the alert that must tell it: name and severity."""
    well = Phase(minutes=MINUTES, curve=HEALTHY)
    poor, fair, nothing = (0.5, 0.3, 0.2), (0.62, 0.45, 0.22), (0.06, 0.02, 0.01)  # 0.33, 0.43, 0.03
    halted = during(drafts_per_minute=0, requests_per_minute=0, running=8, waiting=40)
    loop = incident(Phase(minutes=4, up=False), during(4, restart=True))
    tpot = STEADY["tpot"]
    few_slow, many_slow = ((*slower(tpot, 0.55)[:2], (0.075, share)) for share in (0.05, 0.15))

    def one(*phases: Phase, **more: object) -> list[Series]:
        return service(*phases, source=source, **more)  # type: ignore[arg-type]

    def beside_control(*phases: Phase, sli: str = "tpot") -> list[Series]:
        control = one(well, families=(sli,), speculative=False, labels=CONTROL)
        return one(*phases, families=(sli,)) + control

    def slow(shares: Shares) -> Phase:
        return during(latency={**STEADY, "tpot": shares})

    def rest_of(shares: Shares) -> Shares:
        """The first share takes what the others leave."""
        return ((shares[0][0], 1 - sum(share for _, share in shares[1:])), *shares[1:])

    def lost(series: Iterable[Series], wanted: Callable[[Series], bool]) -> list[Series]:
        """Some of the series do not arrive during the incident."""
        gaps = [ONSET <= minute < MENDED for minute in range(MINUTES)]
        return [
            dataclasses.replace(each, values=[None if gap else v for gap, v in zip(gaps, each.values, strict=True)])
            if wanted(each)
            else each
            for each in series
        ]

    def boundaries() -> list[Series]:
        other = one(well, families=("tpot",), labels=SECOND)
        return one(well, families=("tpot",)) + lost(other, lambda each: each.labels.get("le") in {"0.075", "0.15"})

    def recorded(values: Sequence[float | None], labels: Mapping[str, str]) -> Series:
        file = next(each for each in pinned(1, recorded=1.0, labels=labels) if "timestamp" in each.name)
        return dataclasses.replace(file, values=values)

    def info(labels: Mapping[str, str]) -> list[Series]:
        """Of the exporter that serves the file."""
        return [each for each in service(well, labels=labels) if each.name == "specdec_predictor_info"]

    old = [-61 * 86400.0 if ONSET <= minute < MENDED else 1.0 for minute in range(MINUTES)]
    another = [2.0 if ONSET <= minute < MENDED else 1.0 for minute in range(MINUTES)]
    group = {"rule_group": "/etc/rules/specdec.rules.yaml;specdec-tails"}
    lasting = [230.0 if ONSET <= minute < MENDED else 20.0 for minute in range(MINUTES)]
    gone = Phase(minutes=MENDED - ONSET, present=False)
    before, after = Phase(minutes=ONSET, curve=HEALTHY), Phase(minutes=MINUTES - MENDED, curve=HEALTHY)
    others = [each for n in range(3, 6) for each in one(well, labels=replica(n))]
    plain = (Phase(minutes=ONSET, present=False), during(), Phase(minutes=MINUTES - MENDED, present=False))
    told = {
        "TargetDown critical": one(*incident(during(up=False))),
        "TargetDown warning": one(*incident(during(up=False))) + one(well, labels=SECOND),
        "EngineStalled critical": one(*incident(halted)) + one(well, labels=SECOND),
        "RestartLoop critical": one(*loop),
        "NotDrafting warning": one(*incident(during(drafts_per_minute=0))),
        "DataUntrusted info counters_missing": one(before, gone, after) + one(*plain, speculative=False, labels=SECOND),
        "AcceptanceLow critical": one(*incident(during(curve=nothing))),
        "AcceptanceLow warning": one(*incident(during(curve=fair))),
        "ReplicaOutlier warning poor_drafts": one(*incident(during(curve=poor))) + others,
        "ReplicaOutlier warning no_drafts": one(*incident(during(drafts_per_minute=0))) + others,
        "P99Regression critical": beside_control(*incident(slow(rest_of(many_slow)))),
        "P99Regression warning": beside_control(*incident(slow(rest_of(few_slow)))),
        "Harmful critical": beside_control(*incident(slow(slower(tpot, 1.5)))),
        "LoadTooHigh warning": one(
            *incident(during(4, kv_cache=0.99, preemptions_per_minute=2), during(2, kv_cache=0.85))
        ),
        "DataUntrusted warning inconsistent": one(*incident(during(accepted_factor=1.1))),
        "DataUntrusted warning buckets_mixed": boundaries(),
        "DataUntrusted warning baselines_differ": [
            recorded(values, labels) for values, labels in (([1.0] * MINUTES, replica(0)), (another, SECOND))
        ]
        + (info(replica(0)) + info(SECOND)),
        "DataUntrusted info baseline_old": [recorded(old, replica(0)), *info(replica(0))],
        "DataUntrusted warning histograms_missing": lost(
            one(well), lambda each: each.name.endswith("_latency_seconds_count")
        ),
        "RulesLagging warning": [
            Series("prometheus_rule_group_last_duration_seconds", group, lasting),
            Series("prometheus_rule_group_interval_seconds", group, [240.0] * MINUTES),
        ],
    }
    if source == "exporter":
        known = [2.0 if ONSET <= minute < MENDED + 10 else 1.0 for minute in range(MINUTES)]
        told["DataUntrusted warning several_processes"] = [*one(well), processes(known)]
        lengths = [1700.0 if ONSET <= minute < MENDED else 1000.0 for minute in range(MINUTES)]
        told["DataUntrusted warning prompts_longer"] = one(well, families=("ttft",)) + prompts(lengths, 1000.0)
    found = {alert: Incident(name=alert, series=series) for alert, series in told.items()}
    # A service without a gain is one all along.
    found["NotPayingOff warning"] = Incident(
        name="NotPayingOff warning",
        series=beside_control(Phase(minutes=MINUTES - 80, curve=HEALTHY), Phase(minutes=80, drafts_per_minute=0)),
        onset=0,
        mended=MINUTES - 80,
    )
    found["RestartLoop warning"] = Incident(
        name="RestartLoop warning",
        series=one(*incident(Phase(minutes=4, up=False), during(36, restart=True), mended=240)) + others,
        mended=240,
    )
    return found


def misheard(groups: Groups, told: Mapping[str, Incident], folder: Path) -> list[str]:
    """The incidents that are not delivered once, from soon after their onset until soon after they are mended."""
    inhibitions = document(FRAGMENT.name)["inhibit_rules"]
    firing = Pack(promtool(), groups, folder).firing(*told.values(), minutes=range(0, MINUTES, EVERY), every=EVERY)
    wrong = []
    for alert, case in told.items():
        name, severity, *reason = alert.split()
        own = {"alertname": f"SpecDecode{name}", "severity": severity, **dict(zip(("reason",), reason, strict=False))}
        heard = [
            minute
            for minute, found in firing[case.name].items()
            for labels in found
            if own.items() <= labels.items() and not inhibited(inhibitions, labels, found)
        ]
        begins, ends = (heard[0], heard[-1]) if heard else (-1, -1)
        once = heard == list(range(begins, ends + 1, EVERY))
        begins_with_it = case.onset < begins <= case.onset + SLOWEST
        ends_with_it = case.mended - EVERY <= ends <= case.mended + LASTS
        if not (once and begins_with_it and ends_with_it):
            wrong.append(f"{alert}: {case.onset} to {case.mended}, heard at {heard}")
    return wrong


def test_every_alert_is_delivered_once(source: Source, tmp_path: Path) -> None:
    """Six hours of nearly all rules."""
    groups = groups_with(f"{{ source: '{source}' }}")
    told = incidents(source)
    alerts = {
        " ".join(filter(None, (rule["alert"], *(rule["labels"].get(label) for label in ("severity", "reason")))))
        for group in groups
        for rule in group["rules"]
        if "alert" in rule
    }
    assert {f"SpecDecode{alert}" for alert in told} == alerts - ELSEWHERE
    assert misheard(groups, told, tmp_path) == []
