"""The pack beside inference engines that do not serve all families: what is absent alarms nobody."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable

from rules.scenario import FAMILIES, SECOND, Case, Pack, Phase, Series, service
from specdec_exporter.predictor.engines.engine import ENGINES, VLLM, InferenceEngine

# Series of a scenario -> the figure that they show.
FIGURES = {
    "drafts": "drafts",
    "draft_tokens": "draft_tokens",
    "accepted_tokens": "accepted_tokens",
    "per_position": "accepted_tokens_per_position",
    "generation_tokens": "generation_tokens",
    "preemptions": "preemptions",
    "running": "requests_running",
    "waiting": "requests_waiting",
    "kv_cache": "kv_cache_usage_ratio",
    "steps": "step_latency",
    "step_seconds": "step_latency",
    "tpot": "time_per_output_token",
    "ttft": "time_to_first_token",
    "e2e": "request_latency",
}
DERIVED = {"by_position": {"drafts", "draft_tokens", "accepted_tokens"}, "from_generation": {"accepted_tokens"}}
OTHERS = [engine for engine in ENGINES.values() if engine.is_read and engine is not VLLM]
HOURS = 6 * 60


def served(series: Iterable[Series], engine: InferenceEngine) -> list[Series]:
    """What the exporter serves of another engine that does the same."""
    shown = {*engine.counters, *engine.gauges, *engine.histograms, *DERIVED.get(engine.derived or "", ())}
    missing = tuple(FAMILIES["exporter"][what] for what, figure in FIGURES.items() if figure not in shown)
    facts = {"inference_engine": engine.code, "vllm_version": "", "engine_generation": ""}
    return [
        dataclasses.replace(one, labels={**one.labels, **facts}) if one.name == "specdec_predictor_info" else one
        for one in series
        if not one.name.startswith(missing)
    ]


def two_replicas(engine: InferenceEngine, *phases: Phase) -> list[Series]:
    families = ("tpot", "ttft", "e2e")
    both = [*service(*phases, families=families), *service(*phases, families=families, labels=SECOND)]
    return served(both, engine)


def test_nobody_is_told_of_what_an_engine_does_not_count(pack: Pack) -> None:
    quiet = {minute: set[str]() for minute in range(30, HOURS, 30)}
    well = Phase(minutes=HOURS)
    pack.run(*(Case(name=engine.code, series=two_replicas(engine, well), firing=quiet) for engine in OTHERS))


def test_an_answer_of_half_an_hour_is_no_hang_where_tokens_count_at_its_end(pack: Pack) -> None:
    long = Phase(minutes=30, drafts_per_minute=0, requests_per_minute=0, running=8, waiting=2)
    phases = [Phase(minutes=60), *([long, Phase(minutes=5, drafts_per_minute=20_000)] * 4)]

    def hangs(engine: InferenceEngine) -> dict[int, set[str]]:
        reasons = ("service", "waiting") if "requests_waiting" in engine.gauges else ("service",)
        stalled = {f"SpecDecodeEngineStalled critical {reason}" for reason in reasons}
        return {84: set() if engine.counts_at_end else stalled}

    pack.only("drafts", "alerts-up").run(
        *(Case(name=engine.code, series=two_replicas(engine, *phases), firing=hangs(engine)) for engine in OTHERS)
    )


def test_what_every_engine_counts_is_told(pack: Pack) -> None:
    before = Phase(minutes=120)
    broken = dataclasses.replace(before, curve=(0.02, 0.01, 0.0))
    silent = dataclasses.replace(before, drafts_per_minute=0)
    page, drafts_nothing = {"SpecDecodeAcceptanceLow critical"}, {"SpecDecodeNotDrafting warning"}
    rates = page | {f"SpecDecodeAcceptanceLow warning {reason}" for reason in ("fell", "low")}
    cases = []
    for engine in OTHERS:
        silence = two_replicas(engine, before, silent)
        told = page if engine.derived == "from_generation" else rates  # of a length there is a page only
        cases += [
            Case(name=f"{engine.code} broken", series=two_replicas(engine, before, broken), firing={165: told}),
            Case(name=f"{engine.code} silent", series=silence, firing={165: drafts_nothing}),
        ]
    pack.only("drafts", "history", "alerts-drafts").run(*cases)
