"""How each vLLM release from 0.6.6 to 0.33.0 spells its metrics and its log, as data; read from servers and sources.

Rows hold ``since`` a release (inclusive) and ``until`` a release (exclusive).
"""

from __future__ import annotations

import re
from typing import Literal, TypeVar

import msgspec

Version = tuple[int, int, int]
Generation = Literal["v0", "v1"]

OLDEST: Version = (0, 6, 6)
NEWEST: Version = (0, 33, 0)
_NEVER: Version = (99, 0, 0)
_T = TypeVar("_T")

FIRST_V1: Version = (0, 8, 3)  # the first V1 that tells of speculation; before it the V0 engine is simulated
LAST_V0: Version = (0, 9, 2)

_TTFT = (0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0)
_TOKEN = (0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5)
_REQUEST = (0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 50.0, 60.0)
# Bounds of a kind of latency, in seconds: (since, bounds).
_BOUNDS: dict[str, tuple[tuple[Version, tuple[float, ...]], ...]] = {
    "ttft": ((OLDEST, _TTFT), ((0, 8, 4), (*_TTFT, 20.0, 40.0, 80.0, 160.0, 640.0, 2560.0))),
    "token": ((OLDEST, _TOKEN), ((0, 8, 4), (*_TOKEN, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0))),
    "request": ((OLDEST, _REQUEST), ((0, 8, 4), (*_REQUEST, 120.0, 240.0, 480.0, 960.0, 1920.0, 7680.0))),
}
# Finished reasons that a V1 engine shows from the start.
_REASONS = ((OLDEST, ("stop", "length", "abort")), ((0, 25, 1), ("stop", "length", "abort", "error", "repetition")))


class Family(msgspec.Struct, frozen=True):
    """One metric family. ``name`` is what the samples are called (histograms: without ``_bucket``).

    ``source`` is an attribute of :class:`~.totals.Totals` or a gauge of :class:`~.rank.Rank`. If ``generation`` is set,
    the other one lacks the family. A ``speculative`` family exists only with a speculative configuration.
    """

    name: str
    kind: Literal["counter", "gauge", "histogram"]
    source: str
    generation: Generation | None = None
    since: Version = OLDEST
    until: Version = _NEVER
    speculative: bool = False


# The exporter or the rule pack reads these; a real vLLM has more.
FAMILIES: tuple[Family, ...] = (
    Family("vllm:spec_decode_num_drafts_total", "counter", "drafts", "v1", (0, 8, 5), speculative=True),
    Family("vllm:spec_decode_num_draft_tokens_total", "counter", "draft_tokens", "v1", speculative=True),
    Family("vllm:spec_decode_num_accepted_tokens_total", "counter", "accepted_tokens", "v1", speculative=True),
    Family(
        "vllm:spec_decode_num_accepted_tokens_per_pos_total",
        "counter",
        "accepted_per_position",
        "v1",
        (0, 8, 5),
        speculative=True,
    ),
    Family("vllm:spec_decode_num_accepted_tokens_total", "counter", "v0_summed_accepted", "v0", speculative=True),
    Family("vllm:spec_decode_num_draft_tokens_total", "counter", "v0_summed_drafted", "v0", speculative=True),
    Family("vllm:spec_decode_draft_acceptance_rate", "gauge", "v0_acceptance_ratio", "v0", speculative=True),
    Family("vllm:num_requests_running", "gauge", "running"),
    Family("vllm:num_requests_waiting", "gauge", "waiting"),
    Family("vllm:gpu_cache_usage_perc", "gauge", "kv_cache_usage", until=(0, 11, 0)),
    Family("vllm:kv_cache_usage_perc", "gauge", "kv_cache_usage", "v1", (0, 9, 2)),
    Family("vllm:num_preemptions_total", "counter", "preemptions"),
    Family("vllm:prompt_tokens_total", "counter", "prompt_tokens"),
    Family("vllm:generation_tokens_total", "counter", "generation_tokens", "v1"),
    Family("vllm:generation_tokens_total", "counter", "v0_generation_steps", "v0"),  # V0 counts steps
    Family("vllm:request_success_total", "counter", "finished"),
    Family("vllm:time_to_first_token_seconds", "histogram", "time_to_first_token"),
    Family("vllm:time_per_output_token_seconds", "histogram", "inter_token", until=(0, 12, 0)),
    Family("vllm:inter_token_latency_seconds", "histogram", "inter_token", since=(0, 10, 2)),
    Family("vllm:request_time_per_output_token_seconds", "histogram", "request_tpot", since=(0, 11, 0)),
    Family("vllm:e2e_request_latency_seconds", "histogram", "request_latency"),
    Family("vllm:request_decode_time_seconds", "histogram", "request_decode"),
    Family("vllm:request_prompt_tokens", "histogram", "prompt_length"),
    Family("vllm:request_generation_tokens", "histogram", "generation_length"),
    Family("vllm:prefix_cache_queries_total", "counter", "prompt_tokens", "v1", (0, 9, 2)),
    Family("vllm:prefix_cache_hits_total", "counter", "prefix_hits", "v1", (0, 9, 2)),
    Family("vllm:prompt_tokens_cached_total", "counter", "prefix_hits", "v1", (0, 16, 0)),
    Family("vllm:cache_config_info", "gauge", "cache_config", "v1", (0, 9, 0)),
)

# The engine's periodic line. Fields: those of EngineStats.
V1_STATS_LINE = (
    "Engine {engine:03d}: Avg prompt throughput: {prompt_throughput:.1f} tokens/s, "
    "Avg generation throughput: {generation_throughput:.1f} tokens/s, Running: {running:d} reqs, "
    "Waiting: {waiting:d} reqs, GPU KV cache usage: {kv_cache_usage:.1%}, Prefix cache hit rate: 25.0%"
)
V0_STATS_LINE = (
    "Avg prompt throughput: {prompt_throughput:.1f} tokens/s, "
    "Avg generation throughput: {generation_throughput:.1f} tokens/s, Running: {running:d} reqs, Swapped: 0 reqs, "
    "Pending: {waiting:d} reqs, GPU KV cache usage: {kv_cache_usage:.1%}, CPU KV cache usage: 0.0%."
)


class SpecLine(msgspec.Struct, frozen=True):
    """Wording of the periodic spec-decode line.

    Fields: rate (0..1), percent, length, accepted, drafted, emitted, efficiency, k, positions, accepted_throughput,
    drafted_throughput.
    """

    text: str
    bonus_included: bool = True


V0_SPEC_LINE = SpecLine(
    "Speculative metrics: Draft acceptance rate: {rate:.3f}, System efficiency: {efficiency:.3f}, "
    "Number of speculative tokens: {k:d}, Number of accepted tokens: {accepted:d}, "
    "Number of draft tokens: {drafted:d}, Number of emitted tokens: {emitted:d}."
)
_LENGTH_FIRST = (
    "SpecDecoding metrics: Draft acceptance rate: {percent:.1f}%, Mean acceptance length: {length:.2f}, "
    "Accepted: {accepted:d} tokens, Drafted: {drafted:d} tokens, Per-position acceptance rate: {positions}"
)
V1_SPEC_LINES: tuple[tuple[Version, SpecLine], ...] = (
    (
        (0, 8, 3),
        SpecLine(
            "SpecDecoding metrics: Draft acceptance rate: {percent:.1f}%, "
            "Accepted: {accepted:d} tokens, Drafted: {drafted:d} tokens",
        ),
    ),
    ((0, 8, 5), SpecLine(_LENGTH_FIRST, bonus_included=False)),
    ((0, 9, 0), SpecLine(_LENGTH_FIRST)),
    (
        (0, 10, 2),
        SpecLine(
            "SpecDecoding metrics: Mean acceptance length: {length:.2f}, "
            "Accepted throughput: {accepted_throughput:.2f} tokens/s, "
            "Drafted throughput: {drafted_throughput:.2f} tokens/s, "
            "Accepted: {accepted:d} tokens, Drafted: {drafted:d} tokens, "
            "Per-position acceptance rate: {positions}, Avg Draft acceptance rate: {percent:.1f}%"
        ),
    ),
)

# The prefix of a message. Fields: process, pid, level, time (%m-%d %H:%M:%S), file, line. 0.10.1 to 0.15.1
# colour the process even in a file.
PREFIXES: tuple[tuple[Version, str], ...] = (
    (OLDEST, "{level} {time} {file}:{line}] "),
    ((0, 8, 0), "{level} {time} [{file}:{line}] "),
    ((0, 10, 1), "\x1b[1;36m({process} pid={pid})\x1b[0;0m {level} {time} [{file}:{line}] "),
    ((0, 12, 0), "\x1b[0;36m({process} pid={pid})\x1b[0;0m {level} {time} [{file}:{line}] "),
    ((0, 16, 0), "({process} pid={pid}) {level} {time} [{file}:{line}] "),
)
# The beginning of the engine-init line; {engine} is V0 or V1.
INIT_LINES: tuple[tuple[Version, str], ...] = (
    (OLDEST, "Initializing an LLM engine (v{version}) with config: "),
    ((0, 7, 3), "Initializing a {engine} LLM engine (v{version}) with config: "),
)
SPECULATIVE_CONFIGS: tuple[tuple[Version, str], ...] = (
    (OLDEST, "SpeculativeConfig(draft_model='{draft_or_method}', num_spec_tokens={k})"),
    ((0, 8, 0), "SpeculativeConfig(method='{method}', model={draft_repr}, num_spec_tokens={k})"),
)


class Release(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that depends on the release and the engine generation."""

    text: str
    generation: Generation
    families: tuple[Family, ...]
    finished_reasons: tuple[str, ...]
    bounds: dict[str, tuple[float, ...]]
    content_type: str
    log_interval_seconds: float
    stats_line: str
    spec_line: SpecLine
    prefix: str
    init_line: str
    speculative_config: str


def length_bounds(max_model_len: int) -> tuple[float, ...]:
    """Return the bounds of the lengths of requests, in tokens: 1, 2, 5, 10, 20 and so on, up to the longest."""
    steps = (step * 10**power for power in range(len(str(max_model_len))) for step in (1, 2, 5))
    return tuple(float(step) for step in steps if step <= max_model_len)


def release(text: str, generation: Generation | None = None) -> Release:
    """Return the shapes of vLLM release ``text``, by default with its usual engine. Raises :class:`ValueError`."""
    version = _version(text)
    generation = generation or ("v1" if version >= FIRST_V1 else "v0")
    if version < FIRST_V1 if generation == "v1" else version > LAST_V0:
        raise ValueError(f"engine_generation: the simulated vLLM {text} has no {generation.upper()} engine")
    v0 = generation == "v0"
    return Release(
        text=text,
        generation=generation,
        families=tuple(
            family
            for family in FAMILIES
            if family.since <= version < family.until and family.generation in (None, generation)
        ),
        finished_reasons=() if v0 else _latest(_REASONS, version),
        bounds={name: _latest(rows, version) for name, rows in _BOUNDS.items()},
        content_type=f"text/plain; version={'1.0.0' if version >= (0, 11, 2) else '0.0.4'}; charset=utf-8",
        log_interval_seconds=5.0 if v0 else 10.0,
        stats_line=V0_STATS_LINE if v0 else V1_STATS_LINE,
        spec_line=V0_SPEC_LINE if v0 else _latest(V1_SPEC_LINES, version),
        prefix=_latest(PREFIXES, version),
        init_line=_latest(INIT_LINES, version),
        speculative_config=_latest(SPECULATIVE_CONFIGS, version),
    )


def _version(text: str) -> Version:
    match = re.match(r"(\d+)\.(\d+)(?:\.(\d+))?", text)
    version = (int(match[1]), int(match[2]), int(match[3] or 0)) if match else OLDEST
    if match is None or not OLDEST <= version <= NEWEST:
        raise ValueError(f"vllm_version: expected a release from 0.6.6 to 0.33.0, found {text!r}")
    return version


def _latest(rows: tuple[tuple[Version, _T], ...], version: Version) -> _T:
    return [value for since, value in rows if since <= version][-1]
