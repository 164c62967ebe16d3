"""Statuses of exporters, as a page can meet them."""

from __future__ import annotations

import time

import msgspec

from specdec_exporter.predictor.versions import KnownPitfall, WarningCount
from specdec_exporter.speculation.benefit import Basis, BreakEven
from specdec_exporter.speculation.chance import Estimate
from specdec_exporter.speculation.figures import Figures
from specdec_exporter.speculation.verdict import Verdict, VerdictCode
from specdec_exporter.state.status import (
    EngineStatus,
    HistoryPoint,
    LoadStatus,
    LogStatus,
    Measurement,
    PredictorStatus,
    Status,
)

NOW = time.time()


def figures(*, rate: float = 0.612, seconds: float | None = 300, source: str = "metrics", **changes: object) -> Figures:
    drafts = 12_345.0
    whole = Figures(
        source="metrics",
        seconds=seconds,
        drafts=drafts,
        draft_tokens=3 * drafts,
        accepted_tokens=3 * drafts * rate,
        generation_tokens=4 * drafts * rate,
        acceptance_ratio=rate,
        mean_acceptance_length=1 + 3 * rate,
        mean_draft_length=3.0,
        tokens_per_step=2.71,
        per_position=(0.793, 0.611, 0.432),
        conditional=(0.793, 0.770, 0.707),
        short_drafts=False,
    )
    return msgspec.structs.replace(whole, **({"source": source} | changes))


def an_hour(*, rate: float = 0.61) -> tuple[HistoryPoint, ...]:
    """A reading a minute, with ten minutes in which nothing was drafted."""
    ratios = [
        None if 20 <= minute < 30 else rate + 0.06 * ((minute * 7) % 11 - 5) / 5 - (0.2 if minute > 50 else 0)
        for minute in range(60)
    ]
    return tuple(
        HistoryPoint(
            timestamp=NOW - 3600 + 60 * minute,
            acceptance_ratio=ratio,
            mean_acceptance_length=None if ratio is None else 1 + 3 * ratio,
        )
        for minute, ratio in enumerate(ratios)
    )


def verdict(code: VerdictCode = "healthy", basis: Basis | None = "measured") -> Verdict:
    return Verdict(
        code=code,
        basis=basis,
        headline=f"A headline for {code}",
        reasons=("acceptance 61.2% (break-even 50%, assumed)", "mean acceptance length 2.84 (break-even 1.21)"),
        action="Nothing to do.",
    )


def predictor(name: str = "llama-70b", **changes: object) -> PredictorStatus:
    return msgspec.structs.replace(
        PredictorStatus(
            inference_service=name,
            url="http://127.0.0.1:8080",
            up=True,
            up_reason=None,
            state="drafting",
            model_names=("meta-llama/Llama-3.3-70B-Instruct",),
            inference_engine="vLLM",
            inference_engine_version="0.32.0",
            vllm_version="0.32.0",
            engine_generation="v1",
            method="eagle3",
            draft_model="yuhuili/EAGLE3-LLaMA3.3-Instruct-70B",
            num_speculative_tokens=3,
            rejection_sampling=None,
            requests_running=7.0,
            requests_waiting=2.0,
            kv_cache_usage_ratio=0.43,
            acceptance_ratio_min=0.5,
            mean_acceptance_length_min=2.5,
            break_even=BreakEven(basis="assumed", acceptance_ratio=0.5, mean_acceptance_length=1.21, concurrency=3.5),
            measured=None,
            by_load=(),
            window=figures(),
            lifetime=figures(rate=0.583, seconds=None),
            engines=(
                EngineStatus(model_name="Llama", engine="0", window=figures(rate=0.65), lifetime=figures(rate=0.6)),
                EngineStatus(model_name="Llama", engine="1", window=figures(rate=0.57), lifetime=figures(rate=0.56)),
            ),
            history=an_hour(),
            warnings=(WarningCount(code="async_scheduling_off", count=3, meaning="Steps are scheduled one by one."),),
            pitfalls=(
                KnownPitfall(
                    code="data_parallel_disables_log",
                    releases="since 0.15.1",
                    meaning="Several API servers log no statistics.",
                    action="Read the metrics.",
                    costly=False,
                ),
            ),
            log=LogStatus(windows=1234, lines=120_000, parse_errors=0, bytes_behind=0, last_line_timestamp=NOW - 4),
            verdict=verdict(),
        ),
        **changes,
    )


MEASURED = Measurement(
    seconds=180.0,
    speedup=Estimate(1.84, 1.79, 1.90),
    compared="like_load",
    why_unknown=None,
    remedy=None,
    at_like_load=Estimate(1.84, 1.79, 1.90),
    closed_loop=Estimate(1.71, 1.66, 1.77),
    same_arrivals=None,
    draft_cost_ratio=Estimate(0.07, 0.06, 0.08),
    concurrency=6.4,
    compared_ratio=1.0,
    steps=48_000.0,
    step_seconds=0.0225,
    plain_step_seconds=0.0186,
    tokens_per_step=2.23,
    draft_tokens_per_step=3.0,
)
UNKNOWN = msgspec.structs.replace(
    MEASURED,
    speedup=None,
    compared=None,
    why_unknown="only 30 decoding steps so far",
    remedy="wait for more traffic",
    at_like_load=None,
    closed_loop=None,
    draft_cost_ratio=None,
    compared_ratio=None,
    plain_step_seconds=None,
)
LOADS = (
    LoadStatus(
        model_name="Llama",
        concurrency=4,
        seconds=130.0,
        steps=9_000.0,
        step_seconds=0.0203,
        tokens_per_step=2.2,
        speedup=None,
    ),
    LoadStatus(
        model_name="Llama",
        concurrency=8,
        seconds=3600.0,
        steps=1e6,
        step_seconds=0.0225,
        tokens_per_step=2.23,
        speedup=1.84,
    ),
)


def status(*predictors: PredictorStatus, generated_at: float = NOW) -> Status:
    return Status(exporter_version="9.8.7", generated_at=generated_at, window_seconds=300, predictors=predictors)
