"""What is recorded: the field's definitions, from either source, and few series of it."""

from __future__ import annotations

import pytest

from rules.scenario import CHAT, SECOND, Case, Pack, Phase, Series, Source, measured, pinned, replica, service

RECORD = "inference_service:specdec_"
SCALES = {"tpot": 1.0, "ttft": 0.5, "e2e": 50.0}


@pytest.mark.parametrize("source", ["exporter", "vllm"])
def test_figures_are_the_same_from_either_source(source: Source, either_pack: Pack) -> None:
    phase = Phase(minutes=50, curve=(0.8, 0.6, 0.4), in_decode=16)
    latency = f'{RECORD}latency:seconds30m{{sli="tpot",stat='
    either_pack.run(
        Case(
            name=source,
            series=service(phase, source=source, families=tuple(SCALES), minimum=0.31),
            firing={45: set()},
            values={
                45: {
                    f"{RECORD}drafts:increase30m": 18000,
                    f"{RECORD}generation_tokens:rate5m": 29,
                    f"{RECORD}acceptance:ratio30m": 0.6,
                    f"{RECORD}acceptance:ratio5m": 0.6,
                    f"{RECORD}acceptance:length30m": 2.8,
                    f"{RECORD}acceptance:min": 0.31,  # halfway, by the logarithm, from 8 requests in decode to 32
                    f"{RECORD}requests:increase30m": 1800,
                    f'{latency}"mean"}}': 0.024,
                    f'{RECORD}latency:beyond30m{{le=~"0.050?"}}': 0.01,
                    f"{RECORD}engines:settled": 1,
                    f"{RECORD}up:max": 1,
                }
            },
        ),
    )


def test_a_guess_is_called_one_until_the_speedup_of_its_service_is_measured(pack: Pack) -> None:
    def said(verdict: str) -> Series:
        return Series("specdec_verdict", {**CHAT, **replica(0), "verdict": verdict}, [1.0] * 50)

    def tokens(**by_verdict: float | None) -> dict[int, dict[str, float | None]]:
        return {45: {f'{RECORD}verdict:tokens{{verdict="{word}"}}': rate for word, rate in by_verdict.items()}}

    busy = service(Phase(minutes=50))
    pack.run(
        Case(
            name="a guess",
            series=[*busy, said("not_measured")],
            values=tokens(not_measured=35.001, healthy=None),
        ),
        Case(
            name="measured beside another replica, or a live control",
            series=[*busy, said("not_measured"), *measured(50, 1.5, labels=SECOND)],
            values=tokens(not_measured=None, healthy=35.001),
        ),
        Case(
            name="a replica without metrics has no tokens to judge",
            series=[*busy, said("no_metrics")],
            values=tokens(no_metrics=None),
        ),
    )


def test_idle_services_have_no_ratio(pack: Pack) -> None:
    idle = Phase(minutes=60, drafts_per_minute=0, requests_per_minute=0)
    ratios = ("acceptance:ratio30m", "acceptance:ratio5m", "acceptance:length30m", "latency:seconds30m")
    pack.run(
        Case(
            name="idle",
            series=service(idle, families=("tpot",)),
            values={55: {f"{RECORD}{name}": None for name in ratios} | {f"{RECORD}latency:beyond30m": None}},
        ),
        Case(
            name="a restart in the window does not show",
            series=service(Phase(minutes=25), Phase(minutes=35, restart=True)),
            values={55: {f"{RECORD}acceptance:ratio30m": 0.8}},
        ),
    )


@pytest.mark.parametrize("prefix", ["vllm:", "vllm_", "ray_vllm:", "ray_vllm_"])
def test_every_spelling_of_the_prefix_counts_once(vllm_pack: Pack, prefix: str) -> None:
    """Ray writes its counters without the suffix, too."""
    series = service(Phase(minutes=40, curve=(0.8, 0.6)), source="vllm")
    spelt = [Series(one.name.replace("vllm:", prefix), one.labels, one.values) for one in series]
    bare = [Series(one.name.removesuffix("_total"), one.labels, one.values) for one in spelt]
    values: dict[str, float | None] = {
        f"{RECORD}drafts:increase30m": 18000,
        f"{RECORD}acceptance:ratio30m": 0.7,
    }
    vllm_pack.run(
        Case(name=prefix, series=spelt, values={38: values}),
        Case(
            name=f"{prefix} with and without",
            series=[*spelt, *(one for one in bare if one not in spelt)],
            values={38: values},
        ),
    )


def test_a_service_costs_at_most_50_series(pack: Pack) -> None:
    spread = tuple((0.004 * 1.25**step, 1 / 45) for step in range(45))
    latency = {sli: tuple((seconds * scale, share) for seconds, share in spread) for sli, scale in SCALES.items()}
    phase = Phase(minutes=200, curve=(0.85, 0.7, 0.6, 0.5, 0.4), latency=latency)
    of_file = [*pinned(200, latency, load=1.0)]
    for name, value in {"acceptance_ratio": 0.6, "mean_acceptance_length": 4.0}.items():
        of_file.append(Series(f"specdec_baseline_{name}", of_file[0].labels, [value] * 200))
    # Of the last hour, for some are recorded by the hour.
    few = {'count(last_over_time({__name__=~"inference_service:.+"}[1h])) <= bool 50': 1.0}
    two = [one for labels in (None, SECOND) for one in service(phase, families=tuple(SCALES), labels=labels)]
    pack.run(
        Case(name="two replicas with history", series=two, values={199: few}),
        Case(name="and with a file", series=[*service(phase, families=tuple(SCALES)), *of_file], values={199: few}),
        every=4,
    )
