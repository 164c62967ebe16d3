"""What a person on call reads: numbers of the service, and no gap where one is missing."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from rules.scenario import (
    CHAT,
    NOWHERE,
    SECOND,
    SLOW_MINUTES,
    STEADY,
    Case,
    Pack,
    Phase,
    Series,
    Shares,
    measured,
    pinned,
    processes,
    replica,
    service,
    slower,
    with_tail,
)

EXPORTER = {"cluster": "eu-1", "namespace": "prod", "inference_service": "chat", "instance": "10.0.0.1:10409"}
EXPECTED = Path(__file__).parent / "descriptions.txt"
SLIS = ("tpot", "ttft", "e2e")
# No share of 1 %: where P99 is the edge of a bucket, releases of Prometheus round to either side.
USUAL: Mapping[str, Shares] = {sli: with_tail(shares, 3 * shares[-1][0], 0.02) for sli, shares in STEADY.items()}


def replicas() -> list[Series]:
    curves = ((0.85, 0.72, 0.59), (0.85, 0.72, 0.59), (0.3, 0.2, 0.1))
    return [
        one
        for number, curve in enumerate(curves)
        for one in service(Phase(minutes=70, curve=curve), labels=replica(number))
    ]


CASES: tuple[tuple[int, Case], ...] = (
    (
        55,
        Case(
            name="harm",
            series=service(
                Phase(
                    minutes=60,
                    curve=(0.5, 0.2, 0.1),
                    latency={**USUAL, "tpot": slower(USUAL["tpot"], 1.5)},
                    running=40,
                    waiting=6,
                    kv_cache=0.95,
                    preemptions_per_minute=1,
                ),
                families=SLIS,
            )
            + pinned(60, USUAL),
        ),
    ),
    (
        245,
        Case(
            name="tail, without cluster and namespace",
            series=[
                *service(
                    Phase(minutes=180, latency=USUAL),
                    Phase(minutes=70, latency={**USUAL, "tpot": with_tail(USUAL["tpot"], 0.19, 0.2)}),
                    families=SLIS,
                    labels=NOWHERE,
                ),
                # Samples of the other cluster arrive, though its services have ended here.
                Series("up", {"cluster": "eu-1", "job": "node", "instance": "10.0.0.7:9100"}, [1.0] * 250),
            ],
        ),
    ),
    (
        245,
        Case(
            name="a tail alone",
            series=service(
                Phase(minutes=180, latency=USUAL),
                Phase(minutes=70, latency={**USUAL, "tpot": with_tail(USUAL["tpot"], 0.09, 0.03)}),
                families=SLIS,
            ),
        ),
    ),
    (
        60,
        Case(
            name="a loss at like load",
            series=service(Phase(minutes=70, curve=(0.85, 0.72, 0.59)), families=SLIS)
            + measured(70, 0.8, (0.75, 0.86), break_even=0.95),
        ),
    ),
    (
        60,
        Case(name="a method that nobody tells", series=service(Phase(minutes=70, curve=(0.5, 0.3, 0.2)), method=None)),
    ),
    (
        215,
        Case(
            name="the queue grows and the cache fills, less accepted",
            series=[
                *service(
                    Phase(minutes=140),
                    Phase(minutes=40, curve=(0.82, 0.69, 0.56), running=40, waiting=30, kv_cache=0.85),
                    Phase(minutes=40, curve=(0.82, 0.69, 0.56), running=40, waiting=60, kv_cache=0.85),
                    families=("ttft",),
                ),
                Series("specdec_kv_cache_capacity_tokens", CHAT, [48000.0] * 30 + [32000.0] * 190),
            ],
        ),
    ),
    (
        200,
        Case(
            name="nothing accepted",
            series=service(Phase(minutes=160, curve=(0.85, 0.72, 0.59)), Phase(minutes=50, curve=(0.06, 0.02, 0.01))),
        ),
    ),
    (65, Case(name="one replica", series=replicas())),
    (95, Case(name="silent", series=service(Phase(minutes=60), Phase(minutes=40, drafts_per_minute=0)))),
    (
        50,
        Case(
            name="down",
            series=[
                *service(Phase(minutes=20), Phase(minutes=40, up=False)),
                *(
                    Series("specdec_fetch_failures_total", EXPORTER | {"reason": reason}, values)
                    for reason, values in {
                        "timeout": [2.0] * 25 + [4.0] * 35,
                        "http_status": [0.0] * 20 + [2.0 * minute for minute in range(40)],
                    }.items()
                ),
            ],
        ),
    ),
    (50, Case(name="gone", series=service(Phase(minutes=20), Phase(minutes=40, present=False)))),
    (
        50,
        Case(
            name="stalled",
            series=service(
                Phase(minutes=20), Phase(minutes=40, drafts_per_minute=0, requests_per_minute=0, running=8, waiting=40)
            ),
        ),
    ),
    (105, Case(name="loop", series=service(*[Phase(minutes=4, restart=True), Phase(minutes=4, up=False)] * 14))),
    (50, Case(name="several", series=[*service(Phase(minutes=60)), processes([2.0] * 60)])),
    (
        50,
        Case(
            name="sidecar",
            series=[
                *service(Phase(minutes=20), Phase(minutes=40, present=False)),
                Series("up", {"job": "predictors", "instance": "10.0.0.1:10409"}, [1.0] * 20 + [0.0] * 40),
                *service(Phase(minutes=60), labels=SECOND),
            ],
        ),
    ),
)


def test_alerts_speak_in_numbers(pack: Pack, pytestconfig: pytest.Config) -> None:
    lines: list[str] = []
    for (_, case), alerts in zip(CASES, pack.fired(*CASES, every=SLOW_MINUTES), strict=True):
        lines += [f"# {case.name}", *sorted(map(str, alerts)), ""]
    if pytestconfig.getoption("--update-golden"):
        EXPECTED.write_text("\n".join(lines), encoding="utf-8")
    text = "\n".join(lines)
    assert "unknown" not in text.replace("The method is unknown", "")
    assert "error" not in text.lower().replace("specdecodeerror", "")
    assert text == EXPECTED.read_text(encoding="utf-8")
