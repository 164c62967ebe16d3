"""What one line of a predictor's log said. ``None`` means that the line does not carry the figure.

Times are the line's own words (no year, no zone in most releases), throughputs tokens/s, ratios 0..1. ``engine`` is as
printed (``"000"``; ``"aggregated"`` for a line summed over engines); the spec-decoding line itself carries none and
gets the one of the engine-stats line before it from the same process. Events never hold references to each other, so
the garbage collector need not know them (``gc=False``).
"""

from __future__ import annotations

import msgspec


class LogEvent(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="kind", gc=False):
    """What every recognised line has. ``process`` is vLLM's own name for the writer, e.g. ``APIServer``."""

    timestamp: str | None = None
    engine: str | None = None
    process: str | None = None
    pid: int | None = None


class SpecDecoding(LogEvent, frozen=True, kw_only=True, omit_defaults=True, tag="spec_decoding", gc=False):
    """A periodic spec-decode line: one interval's counts, or lifetime totals where ``cumulative`` (V0 engine)."""

    accepted_tokens: int
    draft_tokens: int
    # accepted / drafted, exact; None (written as null) where nothing was drafted and vLLM prints nan
    acceptance_ratio: float | msgspec.UnsetType | None = msgspec.UNSET
    mean_acceptance_length: float | None = None  # as printed; see bonus_included
    bonus_included: bool | None = None
    accepted_throughput: float | None = None
    drafted_throughput: float | None = None
    per_position: tuple[float, ...] | None = None
    cumulative: bool | msgspec.UnsetType = msgspec.UNSET
    num_speculative_tokens: int | None = None
    emitted_tokens: int | None = None
    system_efficiency: float | None = None


class EngineStats(LogEvent, frozen=True, kw_only=True, omit_defaults=True, tag="engine_stats", gc=False):
    """The engine's periodic stats line, in any of its wordings."""

    prompt_throughput: float | None = None
    generation_throughput: float | None = None
    running: int | None = None
    waiting: int | None = None
    kv_cache_usage_ratio: float | None = None
    prefix_cache_hit_ratio: float | None = None


class EngineConfig(LogEvent, frozen=True, kw_only=True, omit_defaults=True, tag="engine_config", gc=False):
    """The engine-init line: the only source of method, draft model and k."""

    speculative: bool | msgspec.UnsetType = msgspec.UNSET
    vllm_version: str | None = None
    engine_generation: str | None = None  # "v0" or "v1"
    model: str | None = None
    served_model_name: str | None = None
    method: str | None = None
    draft_model: str | None = None
    num_speculative_tokens: int | None = None
    historical: bool = False  # stands before the place where reading began, so that it tells of no start now


class PredictorWarning(LogEvent, frozen=True, kw_only=True, omit_defaults=True, tag="warning", gc=False):
    """A line of the bounded set in :data:`versions.WARNINGS`; ``warning`` is its code."""

    warning: str
    message: str | None = None


class RequestParams(LogEvent, frozen=True, kw_only=True, omit_defaults=True, tag="request_params", gc=False):
    """The sampling parameters of one request (``--enable-log-requests``). Never its text."""

    request_id: str | None = None
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    min_p: float | None = None
    max_tokens: int | None = None
    n: int | None = None


class Malformed(msgspec.Struct, frozen=True, kw_only=True):
    """A line that is certainly one of ours and cannot be read: counted as a parse error, never as a window.

    ``incomplete`` is true where the line is a sound beginning that breaks off, so that the next line may complete it.
    """

    reason: str
    incomplete: bool = False


Event = SpecDecoding | EngineStats | EngineConfig | PredictorWarning | RequestParams
