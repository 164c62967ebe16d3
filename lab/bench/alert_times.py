"""When an on-call hears of the commonest incidents, and when it ends: minutes after onset and after mending.

    PYTHONPATH=lab:tests .venv/bin/python -m bench.alert_times

Two hours of each incident, minute by minute, through ``promtool test rules``; what Alertmanager silences is left out.
docs/evidence/alert-times.md has the figures.
"""

from __future__ import annotations

import dataclasses
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from alertmanager.inhibition import inhibited
from rules.scenario import (
    SECOND,
    STEADY,
    Case,
    Pack,
    Phase,
    Series,
    measured,
    pinned,
    rule_groups,
    service,
    slower,
)
from support import yamltext
from support.fieldtools import ROOT
from support.promtool import promtool

RULES = ROOT / "rules" / "rendered" / "specdec.rules.yaml"
FRAGMENT = ROOT / "alertmanager" / "rendered" / "specdec.fragment.yaml"
ONSET, MENDED, MINUTES = 60, 180, 300
WELL = (0.85, 0.72, 0.59)


def _phases(*during: Phase) -> list[Phase]:
    """Well, the phases over and over for two hours, and well again."""
    rounds = (MENDED - ONSET) // sum(phase.minutes for phase in during)
    return [Phase(minutes=ONSET, curve=WELL), *during * rounds, Phase(minutes=MINUTES - MENDED, curve=WELL)]


def _lasting(**different: object) -> list[Phase]:
    whole = Phase(minutes=MENDED - ONSET, curve=WELL)
    return _phases(dataclasses.replace(whole, **different))  # type: ignore[arg-type]


def _late(factor: float) -> list[Phase]:
    return _lasting(latency={**STEADY, "tpot": slower(STEADY["tpot"], factor)})


def rolled_out_and_back(harm: float) -> list[Series]:
    """A draft model that makes decoding ``harm`` times as fast, measured, between two of 1.5 times."""
    found: list[Series] = []
    plain, begin = {"tpot": slower(STEADY["tpot"], 1.5)}, 0
    for number, (end, speedup, curve) in enumerate(
        [(ONSET, 1.5, WELL), (MENDED, harm, (0.35, 0.15, 0.1)), (MINUTES, 1.5, WELL)]
    ):
        own = {"pod": f"chat-{number}", "instance": f"10.0.0.{number + 1}:10409"}
        latency, minutes = {"tpot": slower(STEADY["tpot"], 1.5 / speedup)}, end - begin
        phases = (
            Phase(minutes=begin, present=False),
            Phase(minutes=minutes, curve=curve, latency=latency),
            Phase(minutes=MINUTES - end, present=False, removed=True),
        )
        found += service(*(phase for phase in phases if phase.minutes), families=("tpot",), labels=own)
        bounds = (speedup - 0.05, speedup + 0.05)
        gauges = [*pinned(minutes, plain, labels=own), *measured(minutes, speedup, bounds, labels=own)]
        found += [dataclasses.replace(one, values=[*[None] * begin, *one.values]) for one in gauges]
        begin = end
    return found


def incidents() -> Mapping[str, list[Series]]:
    """The series of each, by its name."""
    all_along = Phase(minutes=MINUTES, curve=WELL)
    fast = slower(STEADY["tpot"], 0.55)
    tail = (*fast[:1], (fast[1][0], fast[1][1] - 0.15), *fast[2:], (0.075, 0.15))

    def with_file(phases: Sequence[Phase]) -> list[Series]:
        """Its baseline was recorded with drafts."""
        file = pinned(MINUTES, {"tpot": STEADY["tpot"]})
        accepted = dataclasses.replace(file[-1], name="specdec_baseline_acceptance_ratio", values=[0.72] * MINUTES)
        return [*service(*phases, families=("tpot",)), *file, accepted]

    other = service(all_along, labels=SECOND)
    return {
        "no replica can be read": service(*_lasting(up=False)),
        "one replica of two cannot be read": service(*_lasting(up=False)) + other,
        "crash loop, 4 minutes up and 4 down": service(
            *_phases(Phase(minutes=4, up=False), Phase(minutes=4, curve=WELL, restart=True))
        ),
        "an engine of two hangs, requests wait": service(
            *_lasting(drafts_per_minute=0, requests_per_minute=0, running=8, waiting=40)
        )
        + other,
        "nothing is drafted": service(*_lasting(drafts_per_minute=0)),
        "acceptance falls to 0.03": service(*_lasting(curve=(0.06, 0.02, 0.01))),
        "acceptance falls to 0.33": service(*_lasting(curve=(0.5, 0.3, 0.2))),
        "a draft model that harms is rolled out, with a baseline": rolled_out_and_back(0.75),
        "everybody 1.5 times slower": with_file(_late(1.5)),
        "everybody 3 times slower": with_file(_late(3.0)),
        "15 % of the requests three times slower": with_file(_lasting(latency={**STEADY, "tpot": tail})),
        "the KV cache runs out": service(
            *_phases(
                Phase(minutes=4, curve=WELL, kv_cache=0.99, preemptions_per_minute=2),
                Phase(minutes=2, curve=WELL, kv_cache=0.85),
            )
        ),
    }


def heard() -> Iterator[tuple[str, str, str, str, str]]:
    """By incident: minutes to the first page and to the first ticket, minutes to the end, and what fired."""
    rows = yamltext.load(FRAGMENT.read_text(encoding="utf-8"))["inhibit_rules"]
    cases = [Case(name=name, series=series) for name, series in incidents().items()]
    with tempfile.TemporaryDirectory() as folder:
        # promtool would evaluate the hourly group each minute: an hour of service would be days of history.
        groups = [group for group in rule_groups(RULES) if group["name"] != "specdec-history"]
        pack = Pack(promtool(), groups, Path(folder))
        for case in cases:
            minutes = range(ONSET, MINUTES)
            firing = pack.firing(case, minutes=minutes, every=1)[case.name]
            spoken = {
                minute: [labels for labels in found if not inhibited(rows, labels, found)]
                for minute, found in firing.items()
            }

            def first(severity: str, spoken: Mapping[int, list[dict[str, str]]] = spoken) -> str:
                at = [minute for minute, found in spoken.items() if severity in {each["severity"] for each in found}]
                return f"{at[0] - ONSET}" if at else "-"

            any_at = [
                minute
                for minute, found in spoken.items()
                if {each["severity"] for each in found} & {"critical", "warning"}
            ]
            names = {
                f"{each['alertname'].removeprefix('SpecDecode')} ({each['severity']})"
                for found in spoken.values()
                for each in found
                if each["severity"] != "info"
            }
            ends = f"{any_at[-1] + 1 - MENDED}" if any_at else "-"
            yield case.name, first("critical"), first("warning"), ends, ", ".join(sorted(names))


if __name__ == "__main__":
    print("| Incident | page | ticket | over | what fires now |\n| --- | --- | --- | --- | --- |")
    for row in heard():
        print("| " + " | ".join(row) + " |", flush=True)
