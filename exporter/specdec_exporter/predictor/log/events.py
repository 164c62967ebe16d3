"""The events of a predictor's log, one per line. ``None``: the line does not have this figure.

Times are as printed (in most releases without year and zone), throughputs in tokens/s, ratios 0..1. ``engine`` is as
printed (``"000"``; ``"aggregated"`` for a line summed over engines). The spec-decoding line has no engine and no load:
it gets those of the same process's engine-stats line before it. ``gc=False``: events hold no references to each other.
"""

from __future__ import annotations

from typing import Any, Final, Literal, get_args

import msgspec

AGGREGATED: Final = "aggregated"  # the engine of a line that is a sum over engines


class LogEvent(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="kind", gc=False):
    """The fields of every event.

    ``process`` is vLLM's own name for the writer, e.g. ``APIServer``; ``server`` the pod or service that
    ``kubectl logs --prefix`` or Docker Compose names before the line.
    """

    timestamp: str | None = None
    engine: str | None = None
    process: str | None = None
    pid: int | None = None
    server: str | None = None


class SpecDecoding(LogEvent, frozen=True, kw_only=True, omit_defaults=True, tag="spec_decoding", gc=False):
    """A periodic spec-decode line: one interval's counts, or lifetime totals where ``cumulative`` (V0 engine)."""

    accepted_tokens: int
    draft_tokens: int
    # accepted / drafted, exact; None (null in JSON) where nothing was drafted and vLLM prints nan
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
    requests_running: int | None = None  # on its engine, when the line was printed


class EngineStats(LogEvent, frozen=True, kw_only=True, omit_defaults=True, tag="engine_stats", gc=False):
    """The engine's periodic stats line, in any of its wordings."""

    prompt_throughput: float | None = None
    generation_throughput: float | None = None
    running: int | None = None
    waiting: int | None = None
    kv_cache_usage_ratio: float | None = None
    prefix_cache_hit_ratio: float | None = None


class EngineConfig(LogEvent, frozen=True, kw_only=True, omit_defaults=True, tag="engine_config", gc=False):
    """The engine-init line: the best source of method, draft model and k.

    ``settings`` are further ones, by the names of vLLM's arguments, with the values that the engine uses.
    """

    speculative: bool | msgspec.UnsetType = msgspec.UNSET
    vllm_version: str | None = None
    engine_generation: str | None = None  # "v0" or "v1"
    model: str | None = None
    served_model_name: str | None = None
    method: str | None = None
    draft_model: str | None = None
    num_speculative_tokens: int | None = None
    historical: bool = False  # written before reading began, so no sign of a restart
    settings: dict[str, Any] = {}


class ServerArguments(LogEvent, frozen=True, kw_only=True, omit_defaults=True, tag="server_arguments", gc=False):
    """The ``non-default args`` line: what the operator wrote, before any default.

    ``arguments`` has the names of all arguments. Its values are numbers, booleans, text and mappings, and ``None`` for
    an argument that is not kept: it may be a secret.
    """

    arguments: dict[str, Any] = {}


# Parts of a start, in their order. ``load_model`` contains ``load_weights``, and ``init_engine`` all from ``transform``
# to ``capture_graphs``. ``ready``: the server begins to listen.
PhaseName = Literal[
    "load_weights", "load_model", "transform", "compile", "profile", "capture_graphs", "init_engine", "ready"
]
PHASES: tuple[PhaseName, ...] = get_args(PhaseName)


class StartPhase(LogEvent, frozen=True, kw_only=True, omit_defaults=True, tag="start_phase", gc=False):
    """A part of the server's start is over. Every process of the server may print its own.

    ``memory_gib``: what the weights or the graphs take on each GPU.
    """

    phase: PhaseName
    seconds: float | None = None
    memory_gib: float | None = None


class KVCache(LogEvent, frozen=True, kw_only=True, omit_defaults=True, tag="kv_cache", gc=False):
    """The capacity of an engine's KV cache; the lines up to 0.31 have either its tokens or its requests.

    ``concurrency`` is the number of requests of ``tokens_per_request`` tokens, the longest there can be, that fit.
    """

    tokens: int | None = None
    tokens_per_request: int | None = None
    concurrency: float | None = None


class ModelRunner(LogEvent, frozen=True, kw_only=True, omit_defaults=True, tag="model_runner", gc=False):
    """The model runner that a worker uses; ``second``: V2. Silence means V1 up to 0.28.0, V2 for most since 0.29.0."""

    second: bool


class PredictorWarning(LogEvent, frozen=True, kw_only=True, omit_defaults=True, tag="warning", gc=False):
    """One of the warnings in :data:`versions.WARNINGS`; ``warning`` is its code."""

    warning: str
    message: str | None = None


class StartFailure(LogEvent, frozen=True, kw_only=True, omit_defaults=True, tag="start_failure", gc=False):
    """A start that failed; ``failure`` is a code of ``facts/failures.yaml``, ``message`` the line that says why."""

    failure: str
    message: str


class ServerReady(LogEvent, frozen=True, kw_only=True, omit_defaults=True, tag="server_ready", gc=False):
    """The server is ready, after a start that failed."""


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
    """A line of vLLM that cannot be read. It counts as a parse error.

    ``untrusted``: it looks like statistics, but shows no sign that the server wrote it. Then it is no parse error.
    """

    reason: str
    untrusted: bool = False


Event = (
    SpecDecoding
    | EngineStats
    | EngineConfig
    | ServerArguments
    | StartPhase
    | KVCache
    | ModelRunner
    | PredictorWarning
    | RequestParams
    | StartFailure
    | ServerReady
)
ALL_KINDS: frozenset[type] = frozenset(get_args(Event))
# What vLLM prints when it starts, and only then.
START_KINDS: frozenset[type] = frozenset({EngineConfig, ServerArguments, StartPhase, KVCache, ModelRunner})
# What is read of the log of a running server, and for a report on a log.
SERVED_KINDS: frozenset[type] = START_KINDS | {SpecDecoding, PredictorWarning, StartFailure, ServerReady}
REPORT_KINDS: frozenset[type] = SERVED_KINDS | {EngineStats}
