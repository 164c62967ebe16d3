"""What speculation gives, where it is measured; and load."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

from rules.scenario import SECOND, STEADY, Case, Pack, Phase, Series, Source, measured, service

HARM, LOSS = "SpecDecodeHarmful critical", "SpecDecodeNotPayingOff warning"
QUIET: set[str] = set()
EVERY = 4  # minutes between two evaluations


@pytest.fixture(name="pack")
def _pack(pack: Pack) -> Pack:
    return pack.only("drafts", "latency", "alerts-latency")


# --- Does speculation help? -------------------------------------------------------------------------------------------

FLAT = {"tpot": ((0.02, 1.0),), "ttft": STEADY["ttft"]}
MINUTES = 100


def drafting(requests_per_minute: float = 60.0) -> list[Series]:
    phase = Phase(minutes=MINUTES, requests_per_minute=requests_per_minute, latency=FLAT)
    return service(phase, families=("tpot", "ttft"))


def test_a_measured_loss_pages_whatever_is_accepted(pack: Pack) -> None:
    few = service(Phase(minutes=MINUTES, drafts_per_minute=20, latency=FLAT), families=("tpot",))
    pack.run(
        Case(
            name="at like load",
            series=drafting() + measured(MINUTES, 0.8, (0.75, 0.86), break_even=0.95),
            firing={8: QUIET, 50: {HARM}, 95: {HARM, LOSS}},
        ),
        Case(name="without bounds", series=drafting() + measured(MINUTES, 0.8), firing={50: {HARM}}),
        Case(
            name="perhaps",
            series=drafting() + measured(MINUTES, 0.8, (0.6, 1.1)),
            firing=dict.fromkeys(range(10, MINUTES, 5), QUIET),
        ),
        Case(
            name="a small loss",
            series=drafting() + measured(MINUTES, 0.95, (0.92, 0.98)),
            firing={60: QUIET, 95: {LOSS}},
        ),
        Case(name="hardly any drafts", series=few + measured(MINUTES, 0.8), firing={95: QUIET}),
        Case(
            name="of two replicas, the mean",
            series=[
                *drafting(),
                *measured(MINUTES, 1.7, (1.5, 1.9)),
                *measured(MINUTES, 1.5, (1.3, 1.7), labels=SECOND),
            ],
            values={60: {"inference_service:specdec_speedup:ratio30m": 1.6}},
        ),
        every=EVERY,
    )


# --- Does the load fit? -----------------------------------------------------------------------------------------------


def test_load(either_pack: Pack, source: Source) -> None:
    def case(name: str, reason: str, more: Iterable[Series] = (), *, speculative: bool = True, **phase: Any) -> Case:
        one = Phase(minutes=90, **{"kv_cache": 0.5, **phase})
        found = {f"SpecDecodeLoadTooHigh warning {reason}"} if reason else QUIET
        return Case(
            name=name, series=[*service(one, source=source, speculative=speculative), *more], firing={85: found}
        )

    cases = [
        case("a queue before a large batch", "queue", running=40, waiting=6),
        case("a queue before a small batch", "", running=20, waiting=6),
        case("a large batch without a queue", "", running=40, waiting=0.5),
        case("full and preempted", "kv_cache", kv_cache=0.95, preemptions_per_minute=1),
        case("full", "", kv_cache=0.95),
        case("preempted", "", kv_cache=0.8, preemptions_per_minute=1),
        case("without drafts", "", speculative=False, kv_cache=0.95, preemptions_per_minute=1, running=40, waiting=6),
    ]
    if source == "exporter":
        cases.append(case("a queue, and drafts pay", "", measured(90, 1.2, (1.1, 1.3)), running=40, waiting=6))
    either_pack.alone("SpecDecodeLoadTooHigh").run(*cases, every=EVERY)
