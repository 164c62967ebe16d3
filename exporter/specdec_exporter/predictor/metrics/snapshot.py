"""The figures of one successful fetch of a predictor's ``/metrics``, under our own names.

The values are the predictor's own, neither rebased nor summed. ``None``: the predictor does not expose the figure, or
its value is unusable (NaN, a conflicting duplicate, half a histogram).
"""

from __future__ import annotations

from typing import Final, Literal

import msgspec

from specdec_exporter.histogram import Histogram
from specdec_exporter.predictor.engines.engine import VLLM, InferenceEngine

EngineGeneration = Literal["v0", "v1"]


class Speculator(msgspec.Struct, frozen=True, kw_only=True):
    """What drafts, by the metrics of engines that tell it there; ``None``: not told. k: the most tokens of a draft."""

    method: str | None = None
    draft_model: str | None = None
    num_speculative_tokens: int | None = None


class EngineSnapshot(msgspec.Struct, frozen=True, kw_only=True):
    """One engine (data-parallel rank) of one served model.

    ``engine`` is the label's value, and ``"0"`` in releases without the label, which run one engine.
    Counters are totals since the predictor started, times are seconds, ratios are 0..1.
    """

    model_name: str
    engine: str

    drafts: float | None = None
    draft_tokens: float | None = None
    accepted_tokens: float | None = None
    accepted_tokens_per_position: dict[int, float] | None = None
    # Proposed, see families.py: of the draft tokens, those that the target verified; and the draft tokens by position.
    verified_tokens: float | None = None
    draft_tokens_per_position: dict[int, float] | None = None
    # Mean acceptance length of the engine's last interval, by its own gauge.
    interval_acceptance_length: float | None = None
    # V0 engine only: a lifetime gauge. Its three counters sum lifetime totals, so they grow quadratically.
    lifetime_acceptance_ratio: float | None = None

    generation_tokens: float | None = None
    prompt_tokens: float | None = None
    cached_prompt_tokens: float | None = None  # of them, those that a cache held; V1 since 0.9.2
    preemptions: float | None = None
    requests_finished: dict[str, float] | None = None

    requests_running: float | None = None
    requests_waiting: float | None = None
    kv_cache_usage_ratio: float | None = None
    # Seconds of drafting / seconds of an iteration, by the engine, of one of its last iterations.
    draft_overhead_ratio: float | None = None
    # Capacity, tokens: as the engine computes it (0.24.0 and later), or its blocks times their size. The latter is too
    # large for models with several kinds of layers, and too small with context parallelism.
    kv_cache_tokens: float | None = None
    kv_cache_block_tokens: float | None = None
    # In tokens; before 0.9.2 in blocks.
    prefix_cache_queries: float | None = None
    prefix_cache_hits: float | None = None

    time_to_first_token: Histogram | None = None
    time_per_output_token: Histogram | None = None  # per finished request; never inter-token latency
    step_latency: Histogram | None = None  # inter-token latency: one sample per engine step
    request_latency: Histogram | None = None  # end to end
    request_decode: Histogram | None = None
    request_acceptance: Histogram | None = None  # proposed: acceptance rates of finished requests, 0..1

    # Tokens per finished request; only in snapshots for a recording.
    prompt_length: Histogram | None = None
    generation_length: Histogram | None = None


OF_DRAFTS: Final = (
    "drafts",
    "draft_tokens",
    "accepted_tokens",
    "accepted_tokens_per_position",
    "verified_tokens",
    "draft_tokens_per_position",
    "request_acceptance",
)


class Snapshot(msgspec.Struct, frozen=True, kw_only=True):
    """One fetch. ``engines`` is sorted by ``(model_name, engine)``.

    ``stats_present`` is false when the body is a sound exposition without a single family of an inference engine that
    is read (``--disable-log-stats``, or the wrong port). ``inference_engine`` may be known even so, by its families.
    Only vLLM has an ``engine_generation``.
    ``process_start_time_seconds`` is Unix time, if the predictor exposes it. ``dropped`` counts what the body held
    beyond a bound (see :mod:`specdec_exporter.bounds`), by what. ``unusable``: by field, which
    sample is no count, and why.
    """

    engines: tuple[EngineSnapshot, ...]
    engine_generation: EngineGeneration | None
    stats_present: bool
    process_start_time_seconds: float | None = None
    dropped: dict[str, int] = {}
    unusable: dict[str, str] = {}
    inference_engine: InferenceEngine | None = None
    speculator: Speculator = Speculator()

    @property
    def is_vllm(self) -> bool:
        """Whether vLLM answered, or nobody that is known."""
        return self.inference_engine in (None, VLLM)


def without_drafts(snapshot: Snapshot) -> Snapshot:
    """Return the snapshot without the counters of drafts, for a server whose drafts are none."""
    nothing = dict.fromkeys(OF_DRAFTS)
    engines = (msgspec.structs.replace(engine, **nothing) for engine in snapshot.engines)
    return msgspec.structs.replace(snapshot, engines=tuple(engines))


def with_model(snapshot: Snapshot, model_name: str) -> Snapshot:
    """Return the snapshot with this name wherever its engines name no model."""
    engines = (
        engine if engine.model_name else msgspec.structs.replace(engine, model_name=model_name)
        for engine in snapshot.engines
    )
    return msgspec.structs.replace(snapshot, engines=tuple(engines))
