"""How each vLLM release from 0.6.6 to 0.33.0 spells its metrics and its log, as data; read from servers and sources.

Rows hold ``since`` a release (inclusive) and ``until`` a release (exclusive). The simulator does not import the names
from the part that reads predictors, because a mistake there would then be invisible. HELP texts are our own.
"""

from __future__ import annotations

import re
from typing import Literal, TypeVar

import msgspec

from specdec_exporter.errors import ConfigError

Version = tuple[int, int, int]
Generation = Literal["v0", "v1"]

OLDEST: Version = (0, 6, 6)
NEWEST: Version = (0, 33, 0)
_NEVER: Version = (99, 0, 0)
_T = TypeVar("_T")

FIRST_V1_DEFAULT: Version = (0, 8, 0)  # the default is V1 unless VLLM_USE_V1=0
LAST_V0: Version = (0, 9, 2)
FIRST_V1: Version = (0, 7, 3)
FIRST_ENGINE_LABEL: Version = (0, 8, 3)
FIRST_SEVERAL_ENGINES: Version = (0, 11, 0)  # before: only the last engine's series, or NotImplementedError
FIRST_RUST_FRONTEND: Version = (0, 22, 1)
FIRST_PLAIN_1_0_0: Version = (0, 11, 2)  # Content-Type text/plain; version=1.0.0

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
    help: str
    generation: Generation | None = None
    since: Version = OLDEST
    until: Version = _NEVER
    speculative: bool = False


# The exporter or the rule pack reads these; a real vLLM has more. The last two tell V0 from V1.
# 0.8.3 and 0.8.4 show their two spec counters even if speculation is off.
FAMILIES: tuple[Family, ...] = (
    Family("vllm:spec_decode_num_drafts_total", "counter", "drafts", "Drafts.", "v1", (0, 8, 5), speculative=True),
    *(
        Family(f"vllm:spec_decode_num_{source}_total", "counter", source, words, "v1", since, until, speculative)
        for source, words in (("draft_tokens", "Draft tokens."), ("accepted_tokens", "Accepted."))
        for since, until, speculative in (((0, 8, 3), (0, 8, 5), False), ((0, 8, 5), _NEVER, True))
    ),
    Family(
        "vllm:spec_decode_num_accepted_tokens_per_pos_total",
        "counter",
        "accepted_per_position",
        "Accepted draft tokens by position.",
        "v1",
        (0, 8, 5),
        speculative=True,
    ),
    *(
        Family(f"vllm:spec_decode_num_{what}_tokens_total", "counter", source, "Sum of totals.", "v0", speculative=True)
        for what, source in (("accepted", "v0_summed_accepted"), ("draft", "v0_summed_drafted"))
    ),
    Family(
        "vllm:spec_decode_draft_acceptance_rate", "gauge", "v0_acceptance_ratio", "Lifetime.", "v0", speculative=True
    ),
    Family("vllm:spec_decode_efficiency", "gauge", "v0_efficiency", "Lifetime.", "v0", speculative=True),
    Family("vllm:num_requests_running", "gauge", "running", "Requests being executed."),
    Family("vllm:num_requests_waiting", "gauge", "waiting", "Requests waiting."),
    Family("vllm:gpu_cache_usage_perc", "gauge", "kv_cache_usage", "KV cache in use, 0 to 1.", until=(0, 11, 0)),
    Family("vllm:kv_cache_usage_perc", "gauge", "kv_cache_usage", "KV cache in use, 0 to 1.", "v1", (0, 9, 2)),
    Family("vllm:num_preemptions_total", "counter", "preemptions", "Preemptions; the simulator has none."),
    Family("vllm:prompt_tokens_total", "counter", "prompt_tokens", "Prompt tokens."),
    Family("vllm:generation_tokens_total", "counter", "generation_tokens", "Generated tokens.", "v1"),
    Family(
        "vllm:generation_tokens_total", "counter", "v0_generation_steps", "Generated tokens; V0 counts steps.", "v0"
    ),
    Family("vllm:request_success_total", "counter", "finished", "Finished requests."),
    Family("vllm:time_to_first_token_seconds", "histogram", "time_to_first_token", "Time to first token."),
    Family("vllm:time_per_output_token_seconds", "histogram", "inter_token", "Step latency.", until=(0, 12, 0)),
    Family("vllm:inter_token_latency_seconds", "histogram", "inter_token", "Step latency.", since=(0, 10, 2)),
    Family("vllm:request_time_per_output_token_seconds", "histogram", "request_tpot", "Per request.", since=(0, 11, 0)),
    Family("vllm:e2e_request_latency_seconds", "histogram", "request_latency", "End to end."),
    Family("vllm:request_decode_time_seconds", "histogram", "request_decode", "Time in decode."),
    Family("vllm:request_prompt_tokens", "histogram", "prompt_length", "Prompt tokens of a request."),
    Family("vllm:request_generation_tokens", "histogram", "generation_length", "Generated tokens of a request."),
    Family("vllm:gpu_prefix_cache_queries_total", "counter", "prompt_tokens", "Tokens.", "v1", until=(0, 11, 0)),
    Family("vllm:gpu_prefix_cache_hits_total", "counter", "prefix_hits", "Tokens.", "v1", until=(0, 11, 0)),
    Family("vllm:prefix_cache_queries_total", "counter", "prompt_tokens", "Tokens.", "v1", since=(0, 9, 2)),
    Family("vllm:prefix_cache_hits_total", "counter", "prefix_hits", "Tokens.", "v1", since=(0, 9, 2)),
    Family("vllm:cache_config_info", "gauge", "cache_config", "Cache configuration."),
)

_V1_STATS = (
    "Avg prompt throughput: {prompt:.1f} tokens/s, Avg generation throughput: {generation:.1f} tokens/s, "
    "Running: {running:d} reqs, Waiting: {waiting:d} reqs, GPU KV cache usage: {kv:.1f}%, "
    "Prefix cache hit rate: {prefix:.1f}%"
)
# The engine's periodic line, by the release that introduced its wording. Fields: engine, prompt, generation, running,
# waiting, kv, prefix (percent).
V0_STATS_LINE = (
    "Avg prompt throughput: {prompt:.1f} tokens/s, Avg generation throughput: {generation:.1f} tokens/s, "
    "Running: {running:d} reqs, Swapped: 0 reqs, Pending: {waiting:d} reqs, GPU KV cache usage: {kv:.1f}%, "
    "CPU KV cache usage: 0.0%."
)
V1_STATS_LINES = ((FIRST_V1, _V1_STATS), (FIRST_ENGINE_LABEL, "Engine {engine:03d}: " + _V1_STATS))
RUST_STATS_LINE = (
    "Avg prompt tput: {prompt:.1f} toks/s, Avg generation tput: {generation:.1f} toks/s, Reqs Running: {running:d}, "
    "Waiting: {waiting:d}, GPU KV cache used: {kv:.1f}%, Prefix cache hit rate: {prefix:.1f}%"
)


class SpecLine(msgspec.Struct, frozen=True):
    """Wording of the periodic spec-decode line.

    Fields: rate (0..1), percent, length, accepted, drafted, emitted, efficiency, k, positions, accepted_throughput,
    drafted_throughput. ``last_step_gate``: printed only if the last step drafted; otherwise the window continues.
    """

    text: str
    bonus_included: bool = True
    last_step_gate: bool = False


V0_SPEC_LINE = SpecLine(
    "Speculative metrics: Draft acceptance rate: {rate:.3f}, System efficiency: {efficiency:.3f}, "
    "Number of speculative tokens: {k:d}, Number of accepted tokens: {accepted:d}, "
    "Number of draft tokens: {drafted:d}, Number of emitted tokens: {emitted:d}."
)
_LENGTH_FIRST = (
    "SpecDecoding metrics: Draft acceptance rate: {percent:.1f}%, Mean acceptance length: {length:.2f}, "
    "Accepted: {accepted:d} tokens, Drafted: {drafted:d} tokens, Per-position acceptance rate: {positions}"
)
V1_SPEC_LINES: tuple[tuple[Version, SpecLine | None], ...] = (
    (OLDEST, None),
    (
        (0, 8, 3),
        SpecLine(
            "SpecDecoding metrics: Draft acceptance rate: {percent:.1f}%, "
            "Accepted: {accepted:d} tokens, Drafted: {drafted:d} tokens",
            last_step_gate=True,
        ),
    ),
    ((0, 8, 5), SpecLine(_LENGTH_FIRST, bonus_included=False, last_step_gate=True)),
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
RUST_PREFIX = (
    "\x1b[0;36m({process} pid={pid})\x1b[0m \x1b[32m{level}\x1b[0m "
    "\x1b[90m{time}\x1b[0m \x1b[90m[{file}:{line}]\x1b[0m "
)
# The prefix of uvicorn's lines.
UVICORN_PREFIXES: tuple[tuple[Version, str], ...] = (
    (OLDEST, ""),
    ((0, 10, 1), "\x1b[1;36m(APIServer pid={pid})\x1b[0;0m "),
    ((0, 12, 0), "\x1b[0;36m(APIServer pid={pid})\x1b[0;0m "),
    ((0, 16, 0), "(APIServer pid={pid}) "),
    ((0, 31, 0), ""),
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


class StartupWarning(msgspec.Struct, frozen=True):
    """A warning that some releases print at start with speculation; empty ``methods`` means every method."""

    since: Version
    until: Version
    text: str
    methods: tuple[str, ...] = ()


STARTUP_WARNINGS: tuple[StartupWarning, ...] = (
    StartupWarning(
        (0, 11, 1), (0, 17, 1), "min_p, logit_bias, and min_tokens parameters won't work with speculative decoding."
    ),
    StartupWarning((0, 17, 1), _NEVER, "min_p and logit_bias parameters won't work with speculative decoding."),
    StartupWarning(
        (0, 14, 1),
        (0, 33, 0),
        "Async scheduling not supported with ngram-based speculative decoding and will be disabled.",
        ("ngram",),
    ),
)


class Release(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that depends on the release, the engine generation and the front end."""

    text: str
    version: Version
    generation: Generation
    frontend: str
    families: tuple[Family, ...]
    finished_reasons: tuple[str, ...]
    bounds: dict[str, tuple[float, ...]]
    engine_label: bool
    multiprocess: bool
    content_type: str
    log_interval_seconds: float
    stats_line: str
    spec_line: SpecLine | None
    prefix: str
    uvicorn_prefix: str
    init_line: str
    speculative_config: str
    startup_warnings: tuple[StartupWarning, ...]
    drafts_cut_at_max_tokens: bool


def length_bounds(max_model_len: int) -> tuple[float, ...]:
    """Return the bounds of the lengths of requests, in tokens: 1, 2, 5, 10, 20 and so on, up to the longest."""
    steps = (step * 10**power for power in range(len(str(max_model_len))) for step in (1, 2, 5))
    return tuple(float(step) for step in steps if step <= max_model_len)


def parse_version(text: str) -> Version:
    """``"0.6.6.post1"`` -> ``(0, 6, 6)``. Raises :class:`ConfigError` outside the releases known here."""
    match = re.match(r"v?(\d+)\.(\d+)(?:\.(\d+))?", text)
    version = (int(match[1]), int(match[2]), int(match[3] or 0)) if match else None
    if version is None or not OLDEST <= version <= (NEWEST[0], NEWEST[1], 99):
        raise ConfigError(f"vllm_version: expected a release from 0.6.6 to 0.33.0, found {text!r}")
    return version


def release(text: str, *, generation: str = "auto", frontend: str = "python", api_servers: int = 1) -> Release:
    """Return the shapes of vLLM release ``text``. Raises :class:`ConfigError` for combinations that do not exist."""
    version = parse_version(text)
    if generation == "auto":
        generation = "v1" if version >= FIRST_V1_DEFAULT else "v0"
    if generation == "v0" and version > LAST_V0:
        raise ConfigError(f"engine_generation: vLLM {text} has no V0 engine; the last release with one is 0.9.2")
    if generation == "v1" and version < FIRST_V1:
        raise ConfigError(f"engine_generation: no V1 engine is simulated before vLLM 0.7.3, found {text}")
    if frontend == "rust" and version < FIRST_RUST_FRONTEND:
        raise ConfigError(f"frontend: vLLM {text} has no Rust front end; the first release with one is 0.22.1")
    rust, v0 = frontend == "rust", generation == "v0"
    other_generation = "v1" if v0 else "v0"
    plain = "1.0.0" if version >= FIRST_PLAIN_1_0_0 else "0.0.4"
    return Release(
        text=text.removeprefix("v"),
        version=version,
        generation="v0" if v0 else "v1",
        frontend=frontend,
        families=tuple(
            family
            for family in FAMILIES
            if family.since <= version < family.until
            and family.generation != other_generation
            and not (rust and family.source == "cache_config")
        ),
        finished_reasons=() if v0 else _latest(_REASONS, version),
        bounds={name: _latest(rows, version) for name, rows in _BOUNDS.items()},
        engine_label=not v0 and version >= FIRST_ENGINE_LABEL,
        multiprocess=v0 or api_servers > 1,
        content_type="application/openmetrics-text; version=1.0.0"
        if rust
        else f"text/plain; version={plain}; charset=utf-8",
        log_interval_seconds=5.0 if v0 else 10.0,
        stats_line=RUST_STATS_LINE if rust else V0_STATS_LINE if v0 else _latest(V1_STATS_LINES, version),
        spec_line=V0_SPEC_LINE if v0 else _latest(V1_SPEC_LINES, version),
        prefix=_latest(PREFIXES, version),
        uvicorn_prefix=_latest(UVICORN_PREFIXES, version),
        init_line=_latest(INIT_LINES, version),
        speculative_config=_latest(SPECULATIVE_CONFIGS, version),
        startup_warnings=tuple(w for w in STARTUP_WARNINGS if w.since <= version < w.until),
        # 0.11.1 and 0.11.2 shorten a draft that goes past max_tokens; others count such tokens as accepted
        drafts_cut_at_max_tokens=(0, 11, 1) <= version < (0, 12, 0),
    )


def _latest(rows: tuple[tuple[Version, _T], ...], version: Version) -> _T:
    return [value for since, value in rows if since <= version][-1]  # the first row is never newer than OLDEST
