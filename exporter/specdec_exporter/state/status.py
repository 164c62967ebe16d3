"""The status of the predictors: the documented, stable shape of ``/api/v1/status``, ``check`` and the page.

Ratios are 0..1, times seconds, timestamps Unix seconds by the exporter's clock, lengths tokens. ``null`` means not
known or not defined (no drafts, no ratio). Missing data never reads 0.
"""

from __future__ import annotations

import msgspec

from specdec_exporter.predictor.facts.failures import FailedStart
from specdec_exporter.predictor.log.start import StartSummary
from specdec_exporter.predictor.versions import KnownPitfall, WarningCount
from specdec_exporter.speculation.benefit import BreakEven
from specdec_exporter.speculation.chance import Estimate
from specdec_exporter.speculation.evidence import StateName
from specdec_exporter.speculation.figures import Figures
from specdec_exporter.speculation.measured import Compared
from specdec_exporter.speculation.verdict import Verdict


class EngineStatus(msgspec.Struct, frozen=True, kw_only=True):
    """One engine (data-parallel rank) of the predictor."""

    model_name: str
    engine: str
    window: Figures | None
    lifetime: Figures | None


class HistoryPoint(msgspec.Struct, frozen=True, kw_only=True):
    """The window that ended then, in the last hour; ``acceptance_ratio`` is null if nothing was drafted.

    The last point is the predictor's ``window``.
    """

    timestamp: float
    acceptance_ratio: float | None
    mean_acceptance_length: float | None


class LogStatus(msgspec.Struct, frozen=True, kw_only=True):
    """The log reader's health. ``problem`` says in words why the log cannot be read; null if it can."""

    windows: int
    lines: int
    parse_errors: int
    bytes_behind: int
    last_line_timestamp: float | None
    problem: str | None = None


class BaselineStatus(msgspec.Struct, frozen=True, kw_only=True):
    """The pinned baseline. ``remarks`` say in words what the recording lacks, and how the running predictor differs."""

    name: str
    recorded_at: str  # RFC 3339, UTC
    recorded_timestamp: float
    duration_seconds: float
    interrupted: bool
    model_name: str | None
    vllm_version: str | None
    served: bool  # false: it does not fit, and its metrics are absent
    refusal: str | None  # why it does not fit, in words
    remarks: tuple[str, ...]
    acceptance_ratio: float | None  # null: recorded without speculation
    mean_acceptance_length: float | None
    mean_latency_seconds: dict[str, float]  # by recorded SLI


class Measurement(msgspec.Struct, frozen=True, kw_only=True):
    """The last 15 minutes (``--window`` if that is longer) against a baseline without speculation.

    ``seconds``: how much of that was seen so far. ``speedup``: seconds of decoding for a token without speculation /
    with it, with its 95 % interval. ``compared`` says of which comparison that is: ``like_load`` (as many requests in
    decode, as many prompt tokens per second), ``closed_loop`` (as many clients), ``same_arrivals`` (as many requests
    per second) or ``unlike_arrivals`` (neither; the requests per second do not explain it).
    ``at_like_load``, ``closed_loop`` and ``same_arrivals`` are the comparisons that hold. All of them are ``null``
    while the speed-up is not known: ``why_unknown`` says why, ``remedy`` what would make it known.
    ``draft_cost_ratio``: cost of one more draft token / cost of a step without drafts; it is the acceptance rate that
    breaks even. ``concurrency``: requests in decode at a time, per engine. ``compared_ratio``: the share of the step
    time at loads near the recorded ones.
    """

    seconds: float
    speedup: Estimate | None
    compared: Compared | None
    why_unknown: str | None
    remedy: str | None
    at_like_load: Estimate | None
    closed_loop: Estimate | None
    same_arrivals: Estimate | None
    draft_cost_ratio: Estimate | None
    concurrency: float | None
    compared_ratio: float | None
    steps: float
    step_seconds: float | None
    plain_step_seconds: float | None
    tokens_per_step: float | None
    draft_tokens_per_step: float | None


class LoadStatus(msgspec.Struct, frozen=True, kw_only=True):
    """What happened since the exporter started while at most ``concurrency`` requests were in decode per engine.

    The bin begins at half of it. ``speedup`` is at the same load as the baseline's; null
    without one, and at loads that it does not have.
    """

    model_name: str
    concurrency: int
    seconds: float
    steps: float
    step_seconds: float
    tokens_per_step: float
    speedup: float | None


class PredictorStatus(msgspec.Struct, frozen=True, kw_only=True):
    """One predictor. The figures are those of the last read, ``age_seconds`` ago.

    ``processes`` answer at ``url``. Counts add up all of them; gauges show one at a time.
    """

    inference_service: str
    url: str
    age_seconds: float | None = None  # since the last read ended, well or not; null before the first
    old: bool = False  # more than two intervals: the read since then does not end
    processes: int = 1
    up: bool
    up_reason: str | None  # why its metrics cannot be read, in words
    failed_start: FailedStart | None = None  # the last start by the log, if it failed
    state: StateName
    model_names: tuple[str, ...]
    inference_engine: str | None = None  # its name, such as "vLLM"; null: not known
    inference_engine_version: str | None = None
    untold: str | None = None  # what this inference engine does not tell, and what that means
    vllm_version: str | None
    engine_generation: str | None
    method: str | None
    draft_model: str | None
    num_speculative_tokens: int | None
    start: StartSummary | None = None  # null: neither log nor metrics tell
    rejection_sampling: str | None  # "synthetic" or a lossy method; null: the usual one, or not known
    adaptive_verification: bool | None = None  # true: part of each draft is verified, which part is not counted
    requests_running: float | None
    requests_waiting: float | None
    kv_cache_usage_ratio: float | None
    acceptance_ratio_min: float  # assumed, for this method, k and load
    mean_acceptance_length_min: float | None
    break_even: BreakEven  # measured where it can be
    measured: Measurement | None  # null: no baseline without speculation
    by_load: tuple[LoadStatus, ...]
    window: Figures | None
    lifetime: Figures | None
    engines: tuple[EngineStatus, ...]
    history: tuple[HistoryPoint, ...]
    warnings: tuple[WarningCount, ...]
    pitfalls: tuple[KnownPitfall, ...] = ()
    log: LogStatus | None
    verdict: Verdict
    verdict_since: float | None = None  # when its code was first said; not before the exporter's start
    verdict_may_be_older: bool = False  # it was never healthy before
    baseline: BaselineStatus | None = None  # null: none is configured


class Status(msgspec.Struct, frozen=True, kw_only=True):
    """The whole exporter."""

    exporter_version: str
    generated_at: float
    window_seconds: float
    predictors: tuple[PredictorStatus, ...]
