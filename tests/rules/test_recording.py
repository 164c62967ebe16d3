"""What is recorded: the field's definitions, from either source, for any k."""

from __future__ import annotations

import json

import pytest
import rjsonnet

from promtool import REPOSITORY
from rules.scenario import NOWHERE, SECOND, SLOW_MINUTES, Case, Pack, Phase, Series, Source, pinned, service

RECORD = "inference_service:specdec_"
SCALES = {"tpot": 1.0, "ttft": 0.5, "e2e": 50.0}
EIGHT = (0.9, 0.8, 0.8, 0.6, 0.5, 0.5, 0.2, 0.1)


def expression(signal: str, source: Source = "exporter") -> str:
    """Of a signal that is not recorded, because only panels read it."""
    snippet = f"((import 'mixin.libsonnet') {{ _config+:: {{ source: '{source}' }} }})._signals.{signal}.expr"
    text: str = json.loads(rjsonnet.evaluate_snippet("", snippet, jpathdir=[str(REPOSITORY)]))
    return text


@pytest.mark.parametrize("source", ["exporter", "vllm"])
def test_figures_are_the_same_from_either_source(source: Source, pack: Pack, vllm_pack: Pack) -> None:
    series = service(Phase(minutes=50, curve=(0.8, 0.6, 0.4)), source=source, families=("tpot", "ttft", "e2e"))
    (pack if source == "exporter" else vllm_pack).run(
        Case(
            name=source,
            series=series,
            firing={45: set()},
            values={
                45: {
                    f"{RECORD}drafts:increase30m": 18000,
                    f"{RECORD}acceptance:ratio_rate30m": 0.6,
                    f"{RECORD}acceptance:ratio_rate5m": 0.6,
                    f"{RECORD}acceptance_length:mean30m": 2.8,
                    expression("tokens_per_step", source): 2.8,
                    f"{RECORD}acceptance_min:threshold": 0.5,
                    f"{RECORD}first_position_acceptance:ratio_rate30m": 0.8,
                    f'{RECORD}latency_seconds:mean30m{{sli="tpot"}}': 0.024,
                    f'{RECORD}latency_requests:increase30m{{sli="e2e"}}': 1800,
                    f"{RECORD}verdict:enum": 2,
                }
            },
        ),
    )


def test_the_conditional_curve_of_any_length(pack: Pack) -> None:
    curve = expression("conditional_acceptance")

    def at(position: int) -> str:
        return f'({curve}) and on (position) label_replace(vector(1), "position", "{position}", "", "")'

    expected = {0: 0.9, 1: 0.889, 2: 1.0, 3: 0.75, 4: 0.833, 5: 1.0, 6: 0.4, 7: 0.5}
    long = tuple(0.99 ** (position + 1) for position in range(33))
    pack.run(
        Case(
            name="k = 8, with equal neighbours",
            series=service(Phase(minutes=40, curve=EIGHT)),
            values={38: {at(position): value for position, value in expected.items()} | {f"count({curve})": 8}},
        ),
        Case(
            name="k = 33",
            series=service(Phase(minutes=40, curve=long)),
            values={38: {f"count({curve})": 33, at(32): 0.99}},
        ),
        Case(name="k = 1", series=service(Phase(minutes=40, curve=(0.7,))), values={38: {f"count({curve})": 1}}),
        Case(
            name="nothing reached a position",
            series=service(Phase(minutes=40, curve=(0.5, 0.0, 0.0))),
            values={38: {f"count({curve})": 2, at(1): 0.0}},
        ),
        Case(
            name="adaptive verification",
            series=service(Phase(minutes=40, curve=EIGHT), verification="adaptive"),
            values={38: {at(0): 0.9, f"count({curve})": 1, f"count({expression('position_acceptance')})": 1}},
        ),
    )


def test_idle_services_have_no_ratio(pack: Pack) -> None:
    idle = Phase(minutes=60, drafts_per_minute=0, requests_per_minute=0)
    ratios = ("acceptance:ratio_rate30m", "acceptance:ratio_rate5m", "acceptance_length:mean30m")
    pack.run(
        Case(
            name="idle",
            series=service(idle, families=("tpot",)),
            values={
                55: {f"{RECORD}{name}": None for name in ratios}
                | {f"{RECORD}latency_seconds:mean30m": None}
                | {f"{RECORD}verdict:enum": 0}
            },
        ),
    )


def test_the_log_stands_in_where_metrics_lack_a_figure(pack: Pack) -> None:
    labels = {"inference_service": "chat", "model_name": "llama", "engine": "0", "instance": "a"}
    growing = {
        "specdec_log_drafts_total": 600.0,
        "specdec_log_draft_tokens_total": 1800.0,
        "specdec_log_accepted_tokens_total": 1080.0,
    }
    log = [Series(name, labels, [step * minute for minute in range(40)]) for name, step in growing.items()]
    quadratic = [
        Series("specdec_draft_tokens_total", labels, [minute * minute * 1000.0 for minute in range(40)]),
        Series("specdec_accepted_tokens_total", labels, [minute * minute * 100.0 for minute in range(40)]),
    ]
    info = Series("specdec_predictor_info", labels | {"engine_generation": "v0", "method": ""}, [1.0] * 40)
    gauge = Series("specdec_acceptance_ratio", labels, [0.1] * 40)
    values: dict[str, float | None] = {
        f"{RECORD}acceptance:ratio_rate30m": 0.6,
        f"{RECORD}acceptance_length:mean30m": 2.8,
        f"{RECORD}draft_tokens:increase30m": 54000,
    }
    pack.run(
        Case(name="no counters", series=log, values={38: values}),
        Case(
            name="counters of a V0 engine, which are sums of sums",
            series=[*log, *quadratic, info, gauge],
            values={38: values},
        ),
        Case(
            name="a V0 engine without a log has no acceptance of now",
            series=[*quadratic, info, gauge],
            values={38: dict.fromkeys(values)},
        ),
        Case(
            name="metrics go before the log",
            series=[*log, *service(Phase(minutes=40, curve=(0.9, 0.9, 0.9)), labels=NOWHERE)],
            values={38: {f"{RECORD}acceptance:ratio_rate30m": 0.9}},
        ),
    )


@pytest.mark.parametrize("prefix", ["vllm:", "vllm_", "ray_vllm:", "ray_vllm_"])
def test_every_spelling_of_the_prefix_counts_once(vllm_pack: Pack, prefix: str) -> None:
    series = service(Phase(minutes=40, curve=(0.8, 0.6)), source="vllm")
    spelt = [Series(one.name.replace("vllm:", prefix), one.labels, one.values) for one in series]
    bare = [Series(one.name.removesuffix("_total"), one.labels, one.values) for one in spelt]
    values: dict[str, float | None] = {
        f"{RECORD}drafts:increase30m": 18000,
        f"{RECORD}acceptance:ratio_rate30m": 0.7,
        f"{RECORD}first_position_acceptance:ratio_rate30m": 0.8,
    }
    vllm_pack.run(
        Case(name=prefix, series=spelt, values={38: values}),
        Case(name=f"{prefix} without _total", series=bare, values={38: values}),
        Case(
            name=f"{prefix} with and without, as Ray since 2.10",
            series=[*spelt, *(one for one in bare if one not in spelt)],
            values={38: values},
        ),
    )


def test_both_names_of_the_step_latency_count_once(vllm_pack: Pack) -> None:
    series = service(Phase(minutes=40, curve=(0.8, 0.6)), source="vllm", families=("ttft",))
    old_name = [
        Series("vllm:time_per_output_token_seconds_count", one.labels, one.values)
        for one in series
        if one.name == "vllm:inter_token_latency_seconds_count"
    ]
    assert old_name
    vllm_pack.run(
        Case(
            name="0.10.2 to 0.11.2",
            series=series + old_name,
            values={38: {expression("tokens_per_step", "vllm"): 2.4}},
        ),
    )


def test_counter_resets_do_not_show(pack: Pack) -> None:
    pack.run(
        Case(
            name="a restart in the window",
            series=service(Phase(minutes=25), Phase(minutes=25, restart=True)),
            values={48: {f"{RECORD}acceptance:ratio_rate30m": 0.8}},
        ),
    )


def test_replicas_with_different_buckets_have_no_tail_and_page_nobody(pack: Pack) -> None:
    """As in a rollout of --custom-histogram-buckets: nothing is slower, though no boundary counts all requests."""

    def moved(one: Series) -> Series:
        bound = one.labels.get("le", "+Inf")
        return one if bound == "+Inf" else Series(one.name, {**one.labels, "le": f"{1.1 * float(bound):g}"}, one.values)

    families = tuple(SCALES)
    old = service(Phase(minutes=100), families=families)
    new = service(Phase(minutes=100), families=families, labels=SECOND)
    old_again = service(Phase(minutes=60), Phase(minutes=80, present=False), families=families, labels=SECOND)
    mixed: dict[str, float | None] = {f'{RECORD}latency:tail_longer30m{{sli="tpot"}}': None}
    pack.run(
        Case(
            name="as many, elsewhere",
            series=[*old, *map(moved, new), *pinned(100)],
            firing={
                95: {
                    "SpecDecodeNotPayingOff warning",
                    *(f"SpecDecodeDataUntrusted warning buckets_mixed {sli}" for sli in families),
                }
            },
            values={95: {**mixed, f'{RECORD}latency_seconds:mean30m{{sli="tpot"}}': 0.024}},
        ),
        Case(
            name="until the window holds one kind only",
            series=[*service(Phase(minutes=140), families=families), *map(moved, old_again), *pinned(140)],
            values={
                80: mixed,
                130: {
                    f'{RECORD}latency:tail_shift30m{{sli="tpot"}}': 0.0,
                    f"count({RECORD}latency_buckets:mixed)": None,
                },
            },
        ),
        every=SLOW_MINUTES,
    )


def test_a_service_costs_at_most_64_series(pack: Pack) -> None:
    curve = (0.85, 0.7, 0.6, 0.5, 0.4)
    spread = tuple((0.004 * 1.25**step, 1 / 45) for step in range(45))
    latency = {sli: tuple((seconds * scale, share) for seconds, share in spread) for sli, scale in SCALES.items()}
    pack.run(
        Case(
            name="one replica, k = 5, three histograms, requests in every bucket, a baseline",
            series=[
                *service(Phase(minutes=150, curve=curve, latency=latency), families=tuple(SCALES)),
                *pinned(150, latency),
            ],
            # Of the last hour, for some are recorded by the hour.
            values={149: {'count(last_over_time({__name__=~"inference_service:.+"}[1h])) <= bool 64': 1}},
        ),
        every=SLOW_MINUTES,
    )
