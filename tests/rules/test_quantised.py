"""A quantised target against a baseline file of one that is not: five points less acceptance are a ticket."""

from __future__ import annotations

from rules.scenario import CHAT, SLOW_MINUTES, Case, Pack, Phase, Series, Source, service

DROPPED = "SpecDecodeAcceptanceLow warning"
MINUTES, LAST = 80, 75
FALLEN, HARDLY, FAR = (0.85, 0.72, 0.62), (0.88, 0.77, 0.66), (0.75, 0.6, 0.45)  # 0.73, 0.77 and 0.6, of 0.8


def test_a_drop_of_a_quantised_target(either_pack: Pack, source: Source) -> None:
    def case(name: str, expected: str | None, curve: tuple[float, ...], runs: str, recorded: str) -> Case:
        series = service(
            Phase(minutes=MINUTES, curve=curve), source=source, families=("ttft",), labels={"model_name": runs}
        )
        place = {**CHAT, "model_name": runs}
        series.append(Series("specdec_baseline_acceptance_ratio", place, [0.8] * MINUTES))
        series.append(Series("specdec_baseline_info", {**place, "model": recorded, "method": ""}, [1.0] * MINUTES))
        return Case(name=name, series=series, firing={LAST: {expected} if expected else set()})

    either_pack.alone("SpecDecodeAcceptanceLow").run(
        case("quantised since", DROPPED, FALLEN, "llama-8b-AWQ", "meta/llama-8b"),
        case("quantised since, hardly less", None, HARDLY, "llama-8b-AWQ", "meta/llama-8b"),
        case("quantised before", None, FALLEN, "llama-8b-AWQ", "meta/llama-8b-awq"),
        case("not quantised", None, FALLEN, "llama-8b", "meta/llama-8b"),
        case("what was recorded is not known", None, FALLEN, "llama-8b-fp8", ""),
        case("not quantised, far less", DROPPED, FAR, "llama-8b", "meta/llama-8b"),
        every=SLOW_MINUTES,
    )
