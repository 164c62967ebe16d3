"""Outages, restarts and stalls of four hours, as a person on call would judge them: told once, steadily, until they end."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
import rjsonnet

from promtool import REPOSITORY, Promtool
from rules.conftest import RENDERED
from rules.scenario import CONTROL, NOWHERE, SECOND, STEADY, Case, Pack, Phase, Series, Source, service, slower

QUIET: set[str] = set()
DOWN_PAGE = "SpecDecodeTargetDown critical"
DOWN = "SpecDecodeTargetDown warning"
LOOP_PAGE = "SpecDecodeRestartLoop critical"
LOOP = "SpecDecodeRestartLoop warning"
STALLED = "SpecDecodeEngineStalled critical"
SIDECAR = "SpecDecodeSidecarDown warning"
P99 = "SpecDecodeP99Regression critical tpot"
MEAN = "SpecDecodeLatencyMeanRegression warning tpot"
HARMFUL = "SpecDecodeHarmful critical tpot"

WELL = Phase(minutes=60)
END = 300
HOURS = range(80, END, 20)
VARIANTS: dict[Source, str] = {"exporter": "specdec.rules.yaml", "vllm": "specdec-vllm.rules.yaml"}


@pytest.fixture(params=VARIANTS)
def source(request: pytest.FixtureRequest) -> Source:
    found: Source = request.param
    return found


@pytest.fixture
def either_pack(source: Source, promtool: Promtool, tmp_path: Path) -> Pack:
    return Pack(promtool, RENDERED / VARIANTS[source], tmp_path)


def replica(number: int) -> dict[str, str]:
    return {"pod": f"chat-{number}", "instance": f"10.0.0.{number + 1}:10409"}


def repeated(*phases: Phase, until: int = END) -> list[Phase]:
    """An hour in which all is well, and the phases again and again."""
    whole = sum(phase.minutes for phase in phases)
    return [WELL, *phases * ((until - WELL.minutes) // whole)]


def minutes_of(alert: str, window: str) -> str:
    """For how many minutes of a window an alert fired."""
    name, severity, *_ = alert.split()
    fired = f'ALERTS{{alertname="{name}", severity="{severity}", alertstate="firing"}}'
    return f"max(count_over_time({fired}[{window}]))"


def steady(alert: str, window: str, minutes: int) -> dict[str, float | None]:
    """Without a gap, so it began once."""
    return {f"{minutes_of(alert, window)} >= bool {minutes}": 1}


def test_pages_about_outages_stay_and_end(either_pack: Pack, source: Source) -> None:
    away = Phase(minutes=240, up=False)
    gone = Phase(minutes=240, present=False)
    loop = repeated(Phase(minutes=4, up=False), Phase(minutes=4, restart=True))
    slow = {**STEADY, "tpot": slower(STEADY["tpot"], 3.0)}
    rare = repeated(Phase(minutes=3, up=False), Phase(minutes=37, restart=True, latency=slow))
    hung = Phase(minutes=120, drafts_per_minute=0, requests_per_minute=0, running=8, waiting=40)
    long_gap = [WELL, Phase(minutes=60, latency=slow), Phase(minutes=20, present=False), Phase(minutes=70, latency=slow)]

    def one(*phases: Phase, families: Sequence[str] = (), labels: dict[str, str] | None = None) -> list[Series]:
        return service(*phases, source=source, families=families, labels=labels)

    def beside_control(*phases: Phase) -> list[Series]:
        control = one(Phase(minutes=END), families=("tpot",), labels=CONTROL)
        return one(*phases, families=("tpot",)) + [each for each in control if "draft" not in each.name]

    either_pack.run(
        Case(
            name="all replicas down",
            series=one(WELL, away) + one(WELL, away, labels=SECOND),
            firing={67: {DOWN_PAGE}} | dict.fromkeys(HOURS, {DOWN_PAGE, DOWN}),
            values={END - 1: steady(DOWN_PAGE, "230m", 229)},
        ),
        Case(
            name="back after two hours",
            series=one(WELL, Phase(minutes=120, up=False), Phase(minutes=120, restart=True)),
            firing={175: {DOWN_PAGE, DOWN}, 190: QUIET, 250: QUIET, 290: QUIET},
        ),
        Case(
            name="one of three down",
            series=one(WELL, away) + one(Phase(minutes=END), labels=SECOND) + one(Phase(minutes=END), labels=replica(2)),
            firing={70: QUIET} | dict.fromkeys(HOURS, {DOWN}),
        ),
        Case(
            name="all pods gone",
            series=one(WELL, gone, labels=NOWHERE) + one(WELL, gone, labels=NOWHERE | SECOND),
            firing={60: QUIET} | dict.fromkeys(HOURS, {DOWN_PAGE}),
            values={END - 1: steady(DOWN_PAGE, "225m", 224)},
        ),
        Case(
            name="scaled in",
            series=one(Phase(minutes=END)) + one(WELL, gone, labels=SECOND),
            firing=dict.fromkeys(HOURS, QUIET),
        ),
        Case(
            name="up and down every four minutes",
            series=one(*loop),
            firing=dict.fromkeys(range(100, END, 20), {LOOP_PAGE, LOOP}),
            values={END - 1: steady(LOOP_PAGE, "200m", 199)},
        ),
        Case(
            name="one of eight goes up and down",
            series=one(*loop) + [each for n in range(1, 8) for each in one(Phase(minutes=END), labels=replica(n))],
            firing=dict.fromkeys(range(100, END, 20), {LOOP}),
        ),
        Case(
            name="three minutes down in every forty, and slow",
            series=beside_control(*rare),
            firing={290: {LOOP, P99, MEAN, HARMFUL}},
            values={END - 1: {**steady(LOOP, "2h", 119), **steady(P99, "1h", 59)}},
        ),
        Case(
            name="two deployments",
            series=one(*[WELL, Phase(minutes=30, restart=True), Phase(minutes=210, restart=True)]),
            firing=dict.fromkeys(HOURS, QUIET),
        ),
        Case(
            name="a hung engine",
            series=one(WELL, hung, Phase(minutes=120)) + one(Phase(minutes=END), labels=SECOND),
            firing={66: QUIET, 75: {STALLED}, 179: {STALLED}, 195: QUIET},
            values={179: steady(STALLED, "100m", 99)},
        ),
        Case(
            name="idle",
            series=one(WELL, Phase(minutes=120, drafts_per_minute=0, requests_per_minute=0, running=0)),
            firing={100: QUIET, 170: QUIET},
        ),
        Case(
            name="prometheus was away for 20 minutes",
            series=beside_control(*long_gap),
            values={
                209: steady(P99, "105m", 104)
                | {"max(max_over_time(inference_service:specdec_warming_replicas:ratio[60m]))": None}
            },
        ),
    )
