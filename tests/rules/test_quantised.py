"""A quantised target against a baseline file of one that is not: five points less acceptance are a ticket."""

from __future__ import annotations

from pathlib import Path

import pytest

from rules.conftest import RENDERED
from rules.scenario import SLOW_MINUTES, Case, Pack, Phase, Series, Source, alone, service

DROPPED = "SpecDecodeAcceptanceLow warning"
MINUTES, LAST = 80, 75
FALLEN, HARDLY, FAR = (0.85, 0.72, 0.62), (0.88, 0.77, 0.66), (0.75, 0.6, 0.45)  # 0.73, 0.77 and 0.6, of 0.8


@pytest.mark.parametrize(("file", "source"), [("specdec.rules.yaml", "exporter"), ("specdec-vllm.rules.yaml", "vllm")])
def test_a_drop_of_a_quantised_target(file: str, source: Source, pack: Pack, tmp_path: Path) -> None:
    def case(name: str, expected: str | None, curve: tuple[float, ...], runs: str, recorded: str) -> Case:
        series = service(
            Phase(minutes=MINUTES, curve=curve), source=source, families=("ttft",), labels={"model_name": runs}
        )
        place = {"cluster": "eu-1", "namespace": "prod", "inference_service": "chat", "model_name": runs}
        series.append(Series("specdec_baseline_acceptance_ratio", place, [0.8] * MINUTES))
        series.append(Series("specdec_baseline_info", {**place, "model": recorded, "method": ""}, [1.0] * MINUTES))
        return Case(name=name, series=series, firing={LAST: {expected} if expected else set()})

    rules = alone(RENDERED / file, tmp_path, DROPPED.split(maxsplit=1)[0])
    Pack(pack.promtool, rules, tmp_path).run(
        case("quantised since", DROPPED, FALLEN, "llama-8b-AWQ", "meta/llama-8b"),
        case("quantised since, hardly less", None, HARDLY, "llama-8b-AWQ", "meta/llama-8b"),
        case("quantised before", None, FALLEN, "llama-8b-AWQ", "meta/llama-8b-awq"),
        case("not quantised", None, FALLEN, "llama-8b", "meta/llama-8b"),
        case("what was recorded is not known", None, FALLEN, "llama-8b-fp8", ""),
        case("not quantised, far less", DROPPED, FAR, "llama-8b", "meta/llama-8b"),
        every=SLOW_MINUTES,
    )
