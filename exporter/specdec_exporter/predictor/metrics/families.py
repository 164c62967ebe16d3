"""vLLM's names for the figures of :class:`EngineSnapshot`, 0.6.6 to 0.33.0, as data.

No release has those of "proposed"; they are read where a build has them (vllm-project/vllm#58340, #44487).
"""

from __future__ import annotations

from typing import Literal, NamedTuple

from specdec_exporter.predictor.metrics.snapshot import EngineGeneration

# vLLM writes "vllm:". Collectors that allow no colon write "vllm_". Ray Serve adds "ray_" in front, and
# KServe's monitors of an LLMInferenceService add "kserve_".
PREFIXES = tuple(f"{added}vllm{separator}" for added in ("", "ray_", "kserve_") for separator in ":_")

# The values of an "info" are in its labels: a fact about an engine, whatever model it serves.
Shape = Literal["scalar", "map", "histogram", "info"]


class Meaning(NamedTuple):
    """The meaning of a sample's name.

    ``field`` is an attribute of :class:`EngineSnapshot`. The label ``key_label`` identifies the sample within its
    figure; without one, the word ``key`` does. ``rank`` orders the names of one figure, prefix included: the first
    usable one wins. ``also``: another figure of the same value, where no name of its own gives it.
    """

    field: str
    shape: Shape
    key_label: str | None
    key: str
    rank: int
    also: Meaning | None = None


# Field -> its names, the newest first; a release that has two names for a figure writes the same data under both.
_COUNTERS: dict[str, tuple[str, ...]] = {
    "drafts": ("spec_decode_num_drafts",),
    "draft_tokens": ("spec_decode_num_draft_tokens",),
    "accepted_tokens": ("spec_decode_num_accepted_tokens",),
    "accepted_tokens_per_position": ("spec_decode_num_accepted_tokens_per_pos",),
    "verified_tokens": ("spec_decode_num_verified_draft_tokens",),  # proposed
    "draft_tokens_per_position": ("spec_decode_num_draft_tokens_per_pos",),  # proposed; counted since 0.24.0
    "generation_tokens": ("generation_tokens",),
    "prompt_tokens": ("prompt_tokens",),
    # Since 0.16.0; counted with the prompt, and with the tokens that a connector brought from another cache.
    "cached_prompt_tokens": ("prompt_tokens_cached",),
    "preemptions": ("num_preemptions",),
    "requests_finished": ("request_success",),
    # Renamed in 0.9.2; both until 0.10.2.
    "prefix_cache_queries": ("prefix_cache_queries", "gpu_prefix_cache_queries"),
    "prefix_cache_hits": ("prefix_cache_hits", "gpu_prefix_cache_hits"),
}
# Name -> another field that it stands in for. Before 0.16.0, only hits of the prefix cache tell cached prompt tokens;
# they count when a prompt is scheduled. Under the old name, they were blocks before 0.9.2.
_STANDS_IN = {"prefix_cache_hits": "cached_prompt_tokens"}
_KEY_LABELS = {
    "accepted_tokens_per_position": "position",
    "draft_tokens_per_position": "position",
    "requests_finished": "finished_reason",
}
_GAUGES: dict[str, tuple[str, ...]] = {
    "requests_running": ("num_requests_running",),
    "requests_waiting": ("num_requests_waiting",),
    "kv_cache_usage_ratio": ("kv_cache_usage_perc", "gpu_cache_usage_perc"),  # as above
    "lifetime_acceptance_ratio": ("spec_decode_draft_acceptance_rate",),
}
_HISTOGRAMS: dict[str, tuple[str, ...]] = {
    "time_to_first_token": ("time_to_first_token_seconds",),
    "time_per_output_token": ("request_time_per_output_token_seconds",),
    # Under both names, both engines write one sample per engine step, not per token: 0.9.2 (V0) counted 108 for 480
    # tokens. 0.10.2 to 0.11.2 have both names.
    "step_latency": ("inter_token_latency_seconds", "time_per_output_token_seconds"),
    "request_latency": ("e2e_request_latency_seconds",),
    "request_decode": ("request_decode_time_seconds",),
    "request_acceptance": ("request_spec_decode_acceptance_rate",),  # proposed
}
# Only recordings read these, so that scrapes need not.
_LENGTHS: dict[str, tuple[str, ...]] = {
    "prompt_length": ("request_prompt_tokens",),
    "generation_length": ("request_generation_tokens",),
}

# Families of only one engine generation, without "_total".
_V0_ONLY = frozenset(
    {
        "spec_decode_draft_acceptance_rate",
        "spec_decode_efficiency",
        "spec_decode_num_emitted_tokens",
        "num_requests_swapped",
        "cpu_cache_usage_perc",
        "cpu_prefix_cache_hit_rate",
        "gpu_prefix_cache_hit_rate",
        "avg_prompt_throughput_toks_per_s",
        "avg_generation_throughput_toks_per_s",
        "time_in_queue_requests",
        "model_forward_time_milliseconds",
        "model_execute_time_milliseconds",
        "tokens",
    }
)
_V1_ONLY = frozenset(
    {
        "spec_decode_num_drafts",
        "spec_decode_num_accepted_tokens_per_pos",
        "kv_cache_usage_perc",
        "prefix_cache_queries",
        "prefix_cache_hits",
        "gpu_prefix_cache_queries",
        "gpu_prefix_cache_hits",
        "inter_token_latency_seconds",
        "request_time_per_output_token_seconds",
    }
)
# Every real server has such a family (V0: both; V1: the first); a filtered exposition may not.
_ALWAYS_THERE = frozenset({"cache_config_info", "lora_requests_info"})
TELLING_FAMILIES = _V0_ONLY | _V1_ONLY | _ALWAYS_THERE  # all that :func:`engine_generation` looks for


def _meanings() -> dict[str, Meaning]:
    by_name = {"cache_config_info": Meaning("kv_cache_tokens", "info", None, "", 0)}
    for field, names in _COUNTERS.items():
        key_label = _KEY_LABELS.get(field)
        for rank, name in enumerate(names):
            other = _STANDS_IN.get(name)
            also = Meaning(other, "scalar", None, "", len(_COUNTERS[other])) if other else None
            meaning = Meaning(field, "map" if key_label else "scalar", key_label, "", rank, also)
            by_name[name] = by_name[f"{name}_total"] = meaning
    for field, names in _GAUGES.items():
        by_name |= {name: Meaning(field, "scalar", None, "", rank) for rank, name in enumerate(names)}
    return _prefixed(by_name | _of_histograms(_HISTOGRAMS))


def _of_histograms(histograms: dict[str, tuple[str, ...]]) -> dict[str, Meaning]:
    by_name: dict[str, Meaning] = {}
    for field, names in histograms.items():
        for rank, name in enumerate(names):
            by_name[f"{name}_bucket"] = Meaning(field, "histogram", "le", "", rank)
            by_name[f"{name}_sum"] = Meaning(field, "histogram", None, "sum", rank)
            by_name[f"{name}_count"] = Meaning(field, "histogram", None, "count", rank)
    return by_name


def _prefixed(by_name: dict[str, Meaning]) -> dict[str, Meaning]:
    return {
        prefix + name: _at(place, meaning) for place, prefix in enumerate(PREFIXES) for name, meaning in by_name.items()
    }


def _at(place: int, meaning: Meaning) -> Meaning:
    also = meaning.also and _at(place, meaning.also)
    return meaning._replace(rank=meaning.rank * len(PREFIXES) + place, also=also)


MEANINGS = _meanings()  # by full sample name
LENGTH_MEANINGS = _prefixed(_of_histograms(_LENGTHS))
# The fields that only grow, by their shapes.
MAPS = tuple(_KEY_LABELS)
SCALARS = tuple(field for field in _COUNTERS if field not in MAPS)
COUNTED = (*SCALARS, *MAPS, *_HISTOGRAMS, *_LENGTHS)


def engine_generation(families: set[str], *, engine_labels: bool) -> EngineGeneration:
    """Return which engine declared ``families`` (names without prefix and ``_total``, from HELP, TYPE or samples).

    ``engine_labels``: a sample has the label ``engine``, which V1 writes since 0.8.3 and V0 never. The label decides
    while V0 shows none of its own families, in multiprocess mode before the first draft (seen in 0.9.2).
    """
    if families & _V0_ONLY:
        return "v0"
    if engine_labels or families & _V1_ONLY:
        return "v1"
    return "v0" if families & _ALWAYS_THERE else "v1"
