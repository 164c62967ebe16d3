"""Series as KServe's own scrape jobs label them: another prefix, prefill pods, and revisions."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from pathlib import Path

import pytest

from promtool import Promtool
from rules.scenario import SECOND, SLOW_MINUTES, STEADY, Case, Pack, Phase, Series, Source, groups_with, service

RECORD = "inference_service:specdec_"
OUTLIER = "SpecDecodeReplicaOutlier warning"
ENGINE_JOB, RENAMED_JOB = "prod/chat-kserve-llmisvc-engine-default", "prod/chat-kserve-llmisvc-engine"
CURVE = (0.8, 0.6)
SLIS = ("tpot", "ttft")
QUIET: set[str] = set()
FIGURES = {
    f"{RECORD}drafts:increase30m": 18000,
    f"{RECORD}acceptance:ratio_rate30m": 0.7,
    f"{RECORD}generation_tokens:rate5m": 25,
    f'{RECORD}latency_requests:increase30m{{sli="tpot"}}': 1800,
    f'{RECORD}latency_seconds:mean30m{{sli="tpot"}}': 0.024,
    f"count({RECORD}replica:up)": 1,
}


@pytest.fixture
def kserve_pack(promtool: Promtool, tmp_path: Path) -> Pack:
    """The rules as the documentation configures them for KServe's own monitors that know one prefix only."""
    config = "{ source: 'vllm', vllm_prefix: 'kserve_vllm:', vllm_service_label: 'llm_isvc_name' }"
    return Pack(promtool, groups_with(config), tmp_path)


def scraped_twice(series: Iterable[Series]) -> list[Series]:
    """Both scrape jobs of one pod."""
    return [
        dataclasses.replace(one, name=name, labels={**one.labels, "job": job})
        for one in series
        for name, job in ((one.name, ENGINE_JOB), (one.name.replace("vllm:", "kserve_vllm:"), RENAMED_JOB))
    ]


def test_kserves_own_labels_and_prefix(kserve_pack: Pack) -> None:
    labels = {"inference_service": "", "llm_isvc_name": "kserve.chat", "llm_isvc_role": "both"}
    series = scraped_twice(service(Phase(minutes=46, curve=CURVE), source="vllm", families=SLIS, labels=labels))
    kserve_pack.run(Case(name="kserve", series=series, values={44: FIGURES}, firing={44: QUIET}), every=SLOW_MINUTES)


def test_prefill_pods_are_no_part_of_the_service_nor_is_the_second_scrape(either_pack: Pack, source: Source) -> None:
    def pods(role_label: str) -> list[Series]:
        decode = service(
            Phase(minutes=60, curve=CURVE), source=source, families=SLIS, labels={"llm_isvc_role": "decode"}
        )
        # One token per request, and vLLM observes a time per output token of 0 for it.
        prefill = Phase(
            minutes=60, drafts_per_minute=0, requests_per_minute=120, latency={**STEADY, "tpot": ((0.0, 1.0),)}
        )
        more = service(prefill, source=source, families=SLIS, labels={**SECOND, role_label: "prefill"})
        return scraped_twice([*decode, *more]) if source == "vllm" else [*decode, *more]

    either_pack.run(
        Case(name="with its role", series=pods("llm_isvc_role"), values={56: FIGURES}, firing={56: QUIET}),
        Case(name="with a role that nobody knows", series=pods("role"), firing={56: {f"{OUTLIER} no_drafts"}}),
        every=SLOW_MINUTES,
    )


def test_a_bad_canary_is_named_by_its_revision(either_pack: Pack, source: Source) -> None:
    """One request in twenty goes to it, so the figures of the service hardly move."""

    def revisions(**labels: str) -> list[Series]:
        stable = Phase(minutes=60, curve=(0.9, 0.8, 0.7), requests_per_minute=57, drafts_per_minute=570)
        canary = Phase(minutes=60, curve=(0.06, 0.02, 0.01), requests_per_minute=3, drafts_per_minute=30)
        return [
            *service(stable, source=source, families=SLIS, labels={key: f"{text}-1" for key, text in labels.items()}),
            *service(
                canary,
                source=source,
                families=SLIS,
                labels={**SECOND, **{key: f"{text}-2" for key, text in labels.items()}},
            ),
        ]

    told = either_pack.fired(
        (56, Case(name="with revisions", series=revisions(revision="chat-predictor"))),
        (56, Case(name="without", series=revisions())),
        every=SLOW_MINUTES,
    )

    assert [str(one).partition(" accepts ")[0] for alerts in told for one in alerts] == [
        f"{OUTLIER}: Replica chat-1 (engine 0, revision chat-predictor-2) of eu-1/prod/chat (llama)",
        f"{OUTLIER}: Replica chat-1 (engine 0) of eu-1/prod/chat (llama)",
    ]
