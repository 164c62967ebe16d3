"""What is true of the predictors now: the documented, stable shape of ``/api/v1/status``, ``check`` and the page.

Ratios are 0..1, times seconds, timestamps Unix seconds by the exporter's clock, lengths tokens. ``null`` means not
known or not defined (no drafts, no ratio); a figure is never 0 for want of data.
"""

from __future__ import annotations

from typing import Literal

import msgspec

StateName = Literal["unreachable", "stats_disabled", "speculation_off", "idle", "not_drafting", "drafting"]
VerdictCode = Literal["healthy", "watch", "not_paying", "harmful", "broken", "idle", "off", "unknown"]


class Figures(msgspec.Struct, frozen=True, kw_only=True):
    """Speculation's figures over one span of time, summed over engines before dividing."""

    source: Literal["metrics", "log"]
    seconds: float | None  # the span; null for a lifetime
    drafts: float | None
    draft_tokens: float | None
    accepted_tokens: float | None
    generation_tokens: float | None
    acceptance_ratio: float | None
    mean_acceptance_length: float | None
    mean_draft_length: float | None
    tokens_per_step: float | None
    per_position: tuple[float, ...]  # unconditional: accepted at i / drafts
    conditional: tuple[float | None, ...]  # accepted at i / accepted at i-1
    short_drafts: bool  # drafts shorter than k: the curve's tail reads too low
    time_per_output_token_seconds: float | None = None  # mean over the requests that finished
    timed_requests: float | None = None  # how many these are


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """One word, one sentence, why, and what to do next."""

    code: VerdictCode
    headline: str
    reasons: tuple[str, ...]
    action: str


class EngineStatus(msgspec.Struct, frozen=True, kw_only=True):
    """One engine (data-parallel rank) of the predictor."""

    model_name: str
    engine: str
    window: Figures | None
    lifetime: Figures | None


class HistoryPoint(msgspec.Struct, frozen=True, kw_only=True):
    """One minute or so of the last hour; ``acceptance_ratio`` is null where nothing was drafted."""

    timestamp: float
    acceptance_ratio: float | None
    mean_acceptance_length: float | None


class WarningCount(msgspec.Struct, frozen=True, kw_only=True):
    """How often a known warning stood in the log, what it means, which releases log it and what to do."""

    code: str
    count: int
    meaning: str
    releases: str = ""
    action: str = ""


class KnownPitfall(msgspec.Struct, frozen=True, kw_only=True):
    """A known trait of the releases in a range (in words) that concerns this predictor, and what to do.

    ``costly``: requests suffer from it; otherwise only figures do.
    """

    code: str
    releases: str
    meaning: str
    action: str
    costly: bool


class LogStatus(msgspec.Struct, frozen=True, kw_only=True):
    """The log reader's health."""

    windows: int
    lines: int
    parse_errors: int
    bytes_behind: int
    last_line_timestamp: float | None


class BaselineStatus(msgspec.Struct, frozen=True, kw_only=True):
    """The pinned baseline. ``remarks`` say in words where it and what runs now are not like for like."""

    name: str
    recorded_at: str  # RFC 3339, UTC
    recorded_timestamp: float
    duration_seconds: float
    interrupted: bool
    model_name: str | None
    vllm_version: str | None
    served: bool  # false: it does not fit, and its metrics are absent
    refusal: str | None  # why not, in words
    remarks: tuple[str, ...]
    acceptance_ratio: float | None  # null: recorded without speculation
    mean_acceptance_length: float | None
    mean_latency_seconds: dict[str, float]  # by SLI, of those that were recorded


class PredictorStatus(msgspec.Struct, frozen=True, kw_only=True):
    """One predictor."""

    inference_service: str
    url: str
    up: bool
    up_reason: str | None  # why not, in words
    state: StateName
    model_names: tuple[str, ...]
    vllm_version: str | None
    engine_generation: str | None
    method: str | None
    draft_model: str | None
    num_speculative_tokens: int | None
    recommended_num_speculative_tokens: int | None  # 0: better switched off
    requests_running: float | None
    requests_waiting: float | None
    kv_cache_usage_ratio: float | None
    acceptance_ratio_min: float  # policy for this method
    mean_acceptance_length_min: float | None
    window: Figures | None
    lifetime: Figures | None
    engines: tuple[EngineStatus, ...]
    history: tuple[HistoryPoint, ...]
    warnings: tuple[WarningCount, ...]
    pitfalls: tuple[KnownPitfall, ...] = ()
    log: LogStatus | None
    verdict: Verdict
    baseline: BaselineStatus | None = None  # null: none is configured


class Status(msgspec.Struct, frozen=True, kw_only=True):
    """The whole exporter."""

    exporter_version: str
    generated_at: float
    window_seconds: float
    predictors: tuple[PredictorStatus, ...]
