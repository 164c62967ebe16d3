"""Batch, queue and KV cache: what is a ticket, and its twin that is none. With either source.

The runs have the rules of these alerts alone: hours of all rules take long. So history is no baseline here.
"""

from __future__ import annotations

import dataclasses

from rules.scenario import (
    SLOW_MINUTES,
    Case,
    Pack,
    Phase,
    Series,
    Source,
    evaluated,
    measured,
    pinned,
    replica,
    service,
    slower,
)

TOO_HIGH = "SpecDecodeLoadTooHigh warning"
GOOD, FALLEN, MODEST = (0.9, 0.8, 0.7), (0.82, 0.69, 0.56), (0.75, 0.55, 0.4)  # 0.8, 0.69, 0.57
BEFORE, CHANGED = 140, 80  # minutes: two hours ago all was as usual
LAST = BEFORE + CHANGED - 5
TPOT = {"tpot": ((0.02, 1.0),)}
SLOW = {"tpot": slower(TPOT["tpot"], 1.2)}
USUAL = Phase(minutes=BEFORE, curve=GOOD, kv_cache=0.5, latency=TPOT)


def changed(**different: object) -> tuple[Phase, Phase]:
    """Usual, then otherwise."""
    return USUAL, dataclasses.replace(USUAL, minutes=CHANGED, **different)  # type: ignore[arg-type]


def growing(*queue: float, **different: object) -> tuple[Phase, ...]:
    """No queue, then one of these lengths in turn, in a big batch."""
    long = dataclasses.replace(USUAL, minutes=CHANGED // len(queue), **{"running": 40.0, **different})  # type: ignore[arg-type]
    return (USUAL, *(dataclasses.replace(long, waiting=waiting) for waiting in queue))


def cases(source: Source) -> list[Case]:
    minutes = BEFORE + CHANGED
    file = tuple(pinned(minutes, TPOT))
    with_speculation = Series(
        "specdec_baseline_acceptance_ratio", {**file[0].labels, "le": ""}, [0.8] * minutes
    )  # so that it tells no gain

    def case(
        name: str, expected: str | None, *phases: Phase, more: tuple[Series, ...] = (), speculative: bool = True
    ) -> Case:
        made = service(*phases, source=source, families=("tpot",) if more else (), speculative=speculative)
        return Case(name=name, series=[*made, *more], firing={LAST: {expected} if expected else set()})

    queue, swinging = (6.0, 20.0, 40.0, 80.0), (20.0, 0.0) * 8
    preempted = {"preemptions_per_minute": 1.0}
    baseline = (*file, with_speculation)
    found = [
        case("big batches, modest acceptance", TOO_HIGH, *changed(curve=MODEST, running=40, waiting=6)),
        case("big batches, good acceptance", None, *changed(running=40, waiting=6)),
        case("the queue grows", TOO_HIGH, *growing(*queue)),
        case("the queue grows, modest acceptance", TOO_HIGH, *growing(*queue, curve=MODEST)),
        case("the queue grows, small batch", None, *growing(*queue, running=20)),
        case("the queue empties again and again", None, *growing(*swinging)),
        case("a queue as ever", None, dataclasses.replace(USUAL, minutes=minutes, running=40, waiting=30)),
        case("the queue grows, slow tokens", TOO_HIGH, *growing(*queue, running=20, latency=SLOW), more=baseline),
        case("the queue grows, tokens as ever", None, *growing(*queue), more=baseline),
        case("slow tokens, no queue", None, *growing(0, latency=SLOW), more=baseline),
        case("full and preempted", TOO_HIGH, *changed(kv_cache=0.95, **preempted)),
        case("full", None, *changed(kv_cache=0.95)),
        case("full and preempted without drafts", None, *changed(kv_cache=0.95, **preempted), speculative=False),
        case("preempted more, less accepted", TOO_HIGH, *changed(curve=FALLEN, **preempted)),
        case("preempted more", None, *changed(**preempted)),
        case(
            "preempted as ever, less accepted",
            None,
            *(dataclasses.replace(phase, preemptions_per_minute=1) for phase in changed(curve=FALLEN)),
        ),
        case("the cache fills, less accepted", TOO_HIGH, *changed(kv_cache=0.85, curve=FALLEN)),
        case("the cache fills", None, *changed(kv_cache=0.85)),
        case("less accepted", None, *changed(curve=FALLEN)),
        case("the cache fills, hardly less accepted", None, *changed(kv_cache=0.85, curve=(0.86, 0.74, 0.62))),
    ]
    few = changed(curve=MODEST, running=40, waiting=0.5)
    replicas = [each for n in range(3) for each in service(*few, source=source, families=(), labels=replica(n))]
    found.append(Case(name="hardly a request waits for each of three", series=replicas, firing={LAST: set()}))
    if source == "exporter":
        found.append(case("the queue grows, drafts pay", None, *growing(*queue), more=tuple(measured(minutes, 1.6))))
    return found


def test_load(either_pack: Pack, source: Source) -> None:
    either_pack.alone("SpecDecodeLoadTooHigh").run(*cases(source), every=SLOW_MINUTES)


def test_capacity_and_prefix_cache_without_the_sidecar(vllm_pack: Pack) -> None:
    """Blocks and their size are labels. An engine that does not know its blocks yet is left out."""
    signals = "[mixin._signals[name].expr for name in ['kv_cache_capacity', 'prefix_cache_hits']]"
    capacity, hits = evaluated(signals, "{ source: 'vllm' }")

    def series(name: str, step: int, **labels: str) -> Series:
        own = {"inference_service": "chat", "job": "p", "instance": "10.0.0.1:8000", **labels}
        return Series(f"vllm:{name}", own, [float(not step) + step * minute for minute in range(40)])

    old, new = {"model_name": "m", "instance": "10.0.0.2:8000"}, {"model_name": "m"}
    found = [
        *(
            series("cache_config_info", 0, engine=str(engine), num_gpu_blocks=blocks, block_size="16")
            for engine, blocks in enumerate(("2000", "1500", "None"))
        ),
        series("prefix_cache_queries_total", 100, **new),
        series("prefix_cache_hits_total", 40, **new),
        series("gpu_prefix_cache_queries_total", 100, **old),
        series("gpu_prefix_cache_hits_total", 60, **old),
    ]
    values = {f"count({capacity})": 1, capacity: 24000, f"count({hits})": 1, hits: 0.5}
    vllm_pack.only("speculation").run(Case(name="two engines", series=found, values={35: values}))
