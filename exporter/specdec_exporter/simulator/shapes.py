"""How each vLLM release from 0.6.6 to 0.33.0 spells its metrics and its log, as data; read from servers and sources.

Rows say ``since`` which release (inclusive) and ``until`` which (exclusive). The metric names are written here on their
own, not taken from the part that reads predictors, so that a mistake there is not mirrored. HELP texts are our own.
"""

from __future__ import annotations

import re
from typing import Literal, TypeVar

import msgspec

from specdec_exporter.errors import ConfigError

Version = tuple[int, int, int]
Generation = Literal["v0", "v1"]
Kind = Literal["counter", "gauge", "histogram"]

OLDEST: Version = (0, 6, 6)
NEWEST: Version = (0, 33, 0)
_NEVER: Version = (99, 0, 0)
_T = TypeVar("_T")

FIRST_V1_DEFAULT: Version = (0, 8, 0)  # the V1 engine is what runs unless VLLM_USE_V1=0
LAST_V0: Version = (0, 9, 2)
FIRST_V1: Version = (0, 7, 3)
FIRST_ENGINE_LABEL: Version = (0, 8, 3)
FIRST_SEVERAL_ENGINES: Version = (0, 11, 0)  # before: only the last engine's series, or NotImplementedError
FIRST_RUST_FRONTEND: Version = (0, 22, 1)
FIRST_PLAIN_1_0_0: Version = (0, 11, 2)  # Content-Type text/plain; version=1.0.0

Buckets = Literal["ttft", "token", "request", "iteration", "length", "params_n", "preemptions"]

_TTFT = (0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0)
_TOKEN = (0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5)
_REQUEST = (0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 50.0, 60.0)
_ITERATION = (1.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0, 1024.0, 2048.0, 4096.0)

# (since, bounds); the last row that applies counts.
_BUCKETS: dict[Buckets, tuple[tuple[Version, tuple[float, ...]], ...]] = {
    "ttft": ((OLDEST, _TTFT), ((0, 8, 4), (*_TTFT, 20.0, 40.0, 80.0, 160.0, 640.0, 2560.0))),
    "token": ((OLDEST, _TOKEN), ((0, 8, 4), (*_TOKEN, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0))),
    "request": ((OLDEST, _REQUEST), ((0, 8, 4), (*_REQUEST, 120.0, 240.0, 480.0, 960.0, 1920.0, 7680.0))),
    "iteration": ((OLDEST, (*_ITERATION, 8096.0)), ((0, 8, 5), (*_ITERATION, 8192.0, 16384.0))),
    "params_n": ((OLDEST, (1.0, 2.0, 5.0, 10.0, 20.0)),),
    "preemptions": ((OLDEST, (1.0, 2.0, 3.0, 4.0, 5.0, 10.0, 20.0)),),
}

Labelled = tuple[tuple[str, tuple[str, ...]], ...]


class Family(msgspec.Struct, frozen=True, kw_only=True):
    """One metric family. ``name`` is what the samples are called (histograms: without ``_bucket``).

    ``source`` names the figure of :class:`~.totals.Totals` (or a gauge of the engine). ``label`` is a label beyond
    model and engine with the values vLLM creates beforehand; for ``position`` those are the draft positions.
    """

    name: str
    kind: Kind
    source: str
    help: str
    since: Version = OLDEST
    until: Version = _NEVER
    label: str | None = None
    values: tuple[tuple[Version, tuple[str, ...]], ...] = ()
    buckets: Buckets | None = None
    model_label: bool = True
    engine_label: bool = True
    speculative: bool = False  # exists only where a speculative configuration does
    frontends: tuple[str, ...] = ("python", "rust")


def _counter(name: str, source: str, help_text: str, **rest: object) -> Family:
    return Family(name=name, kind="counter", source=source, help=help_text, **rest)  # type: ignore[arg-type]


def _gauge(name: str, source: str, help_text: str, **rest: object) -> Family:
    return Family(name=name, kind="gauge", source=source, help=help_text, **rest)  # type: ignore[arg-type]


def _histogram(name: str, source: str, buckets: Buckets, **rest: object) -> Family:
    help_text = f"Distribution of {source.replace('_', ' ')}."
    return Family(name=name, kind="histogram", source=source, buckets=buckets, help=help_text, **rest)  # type: ignore[arg-type]


_REASONS = (
    (OLDEST, ("stop", "length", "abort")),
    ((0, 25, 1), ("stop", "length", "abort", "error", "repetition")),
)
_SPEC = "vllm:spec_decode_"

# What V1 exposes. The two oldest spec counters exist even where speculation is off (0.8.3 and 0.8.4).
V1_FAMILIES: tuple[Family, ...] = (
    _counter(f"{_SPEC}num_drafts_total", "drafts", "Drafts.", since=(0, 8, 5), speculative=True),
    _counter(f"{_SPEC}num_draft_tokens_total", "draft_tokens", "Draft tokens.", since=(0, 8, 3), until=(0, 8, 5)),
    _counter(f"{_SPEC}num_accepted_tokens_total", "accepted_tokens", "Accepted.", since=(0, 8, 3), until=(0, 8, 5)),
    _counter(f"{_SPEC}num_draft_tokens_total", "draft_tokens", "Draft tokens.", since=(0, 8, 5), speculative=True),
    _counter(f"{_SPEC}num_accepted_tokens_total", "accepted_tokens", "Accepted.", since=(0, 8, 5), speculative=True),
    _counter(
        f"{_SPEC}num_accepted_tokens_per_pos_total",
        "accepted_per_position",
        "Accepted draft tokens by position.",
        since=(0, 8, 5),
        speculative=True,
        label="position",
    ),
    _gauge("vllm:num_requests_running", "running", "Requests being executed."),
    _gauge("vllm:num_requests_waiting", "waiting", "Requests waiting."),
    _gauge(
        "vllm:num_requests_waiting_by_reason",
        "waiting_by_reason",
        "Requests waiting, by reason.",
        since=(0, 20, 2),
        label="reason",
        values=((OLDEST, ("capacity", "deferred")),),
    ),
    _gauge(
        "vllm:engine_sleep_state",
        "sleep_state",
        "Sleep state.",
        since=(0, 11, 1),
        label="sleep_state",
        values=((OLDEST, ("awake", "weights_offloaded", "discard_all")),),
    ),
    _gauge("vllm:gpu_cache_usage_perc", "kv_cache_usage", "KV cache in use, 0 to 1.", until=(0, 11, 0)),
    _counter("vllm:gpu_prefix_cache_queries_total", "prefix_queries", "Tokens looked up.", until=(0, 11, 0)),
    _counter("vllm:gpu_prefix_cache_hits_total", "prefix_hits", "Tokens found.", until=(0, 11, 0)),
    _gauge("vllm:kv_cache_usage_perc", "kv_cache_usage", "KV cache in use, 0 to 1.", since=(0, 9, 2)),
    _counter("vllm:prefix_cache_queries_total", "prefix_queries", "Tokens looked up.", since=(0, 9, 2)),
    _counter("vllm:prefix_cache_hits_total", "prefix_hits", "Tokens found.", since=(0, 9, 2)),
    _counter("vllm:external_prefix_cache_queries_total", "zero", "Tokens looked up elsewhere.", since=(0, 11, 1)),
    _counter("vllm:external_prefix_cache_hits_total", "zero", "Tokens found elsewhere.", since=(0, 11, 1)),
    _counter("vllm:mm_cache_queries_total", "zero", "Items looked up.", since=(0, 11, 1)),
    _counter("vllm:mm_cache_hits_total", "zero", "Items found.", since=(0, 11, 1)),
    _counter("vllm:num_preemptions_total", "zero", "Preemptions; the simulator has none."),
    _counter("vllm:prompt_tokens_total", "prompt_tokens", "Prompt tokens."),
    _counter(
        "vllm:prompt_tokens_by_source_total",
        "prompt_tokens_by_source",
        "Prompt tokens by source.",
        since=(0, 16, 0),
        label="source",
        values=((OLDEST, ("local_compute", "local_cache_hit", "external_kv_transfer")),),
    ),
    _counter("vllm:prompt_tokens_cached_total", "prefix_hits", "Cached prompt tokens.", since=(0, 16, 0)),
    _counter(
        "vllm:prompt_tokens_cached_by_source_total",
        "prompt_tokens_by_source",
        "Cached prompt tokens by cache tier.",
        since=(0, 32, 0),
        label="source",
        values=((OLDEST, ("device", "host", "p2p", "disk", "external_unspecified")),),
    ),
    _counter("vllm:generation_tokens_total", "generation_tokens", "Generated tokens."),
    _counter("vllm:request_success_total", "finished", "Finished.", label="finished_reason", values=_REASONS),
    _counter(
        "vllm:admission_rejections_total",
        "zero",
        "Requests refused at a queue limit.",
        since=(0, 32, 0),
        label="reason",
        values=((OLDEST, ("max_num_queued_reqs", "max_num_queued_tokens")),),
        engine_label=False,
    ),
    _histogram("vllm:request_prompt_tokens", "request_prompt_tokens", "length"),
    _histogram("vllm:request_generation_tokens", "request_generation_tokens", "length"),
    _histogram("vllm:iteration_tokens_total", "iteration_tokens", "iteration"),
    _histogram("vllm:request_max_num_generation_tokens", "request_max_tokens", "length", since=(0, 8, 2)),
    _histogram("vllm:request_params_n", "request_n", "params_n", since=(0, 8, 2)),
    _histogram("vllm:request_params_max_tokens", "request_max_tokens", "length", since=(0, 8, 2)),
    _histogram("vllm:time_to_first_token_seconds", "time_to_first_token", "ttft"),
    _histogram("vllm:time_per_output_token_seconds", "inter_token", "token", until=(0, 12, 0)),
    _histogram("vllm:inter_token_latency_seconds", "inter_token", "token", since=(0, 10, 2)),
    _histogram("vllm:request_time_per_output_token_seconds", "request_tpot", "token", since=(0, 11, 0)),
    _histogram("vllm:e2e_request_latency_seconds", "request_latency", "request"),
    _histogram("vllm:request_queue_time_seconds", "request_queue", "request"),
    _histogram("vllm:request_inference_time_seconds", "request_inference", "request"),
    _histogram("vllm:request_prefill_time_seconds", "request_prefill", "request"),
    _histogram("vllm:request_decode_time_seconds", "request_decode", "request"),
    _histogram("vllm:request_num_preemptions", "request_preemptions", "preemptions", since=(0, 30, 0)),
    _histogram(
        "vllm:request_prefill_kv_computed_tokens", "request_prefill_computed_tokens", "length", since=(0, 13, 0)
    ),
    _gauge(
        "vllm:cache_config_info",
        "cache_config",
        "Cache configuration.",
        model_label=False,
        frontends=("python",),
    ),
)

# What V0 exposes through its multi-process front end: a family appears with its first value.
V0_FAMILIES: tuple[Family, ...] = (
    _histogram("vllm:iteration_tokens_total", "iteration_tokens", "iteration"),
    _histogram("vllm:time_to_first_token_seconds", "time_to_first_token", "ttft"),
    _histogram("vllm:time_per_output_token_seconds", "inter_token", "token"),
    _histogram("vllm:e2e_request_latency_seconds", "request_latency", "request"),
    _histogram("vllm:request_queue_time_seconds", "request_queue", "request"),
    _histogram("vllm:request_inference_time_seconds", "request_inference", "request"),
    _histogram("vllm:request_prefill_time_seconds", "request_prefill", "request"),
    _histogram("vllm:request_decode_time_seconds", "request_decode", "request"),
    _histogram("vllm:request_prompt_tokens", "request_prompt_tokens", "length"),
    _histogram("vllm:request_generation_tokens", "request_generation_tokens", "length"),
    _histogram("vllm:request_max_num_generation_tokens", "request_max_tokens", "length"),
    _histogram("vllm:request_params_n", "request_n", "params_n"),
    _histogram("vllm:request_params_max_tokens", "request_max_tokens", "length"),
    _gauge("vllm:num_requests_running", "running", "Requests being executed."),
    _gauge("vllm:num_requests_waiting", "waiting", "Requests waiting."),
    _gauge("vllm:num_requests_swapped", "zero", "Requests swapped out.", until=(0, 8, 3)),
    _gauge("vllm:gpu_cache_usage_perc", "kv_cache_usage", "KV cache in use, 0 to 1."),
    _gauge("vllm:cpu_cache_usage_perc", "zero", "CPU KV cache in use, 0 to 1.", until=(0, 8, 3)),
    _gauge(f"{_SPEC}draft_acceptance_rate", "v0_acceptance_ratio", "Lifetime acceptance.", speculative=True),
    _gauge(f"{_SPEC}efficiency", "v0_efficiency", "Lifetime emitted / possible tokens.", speculative=True),
    _counter("vllm:num_preemptions_total", "zero", "Preemptions; the simulator has none."),
    _counter("vllm:prompt_tokens_total", "prompt_tokens", "Prompt tokens."),
    _counter("vllm:generation_tokens_total", "v0_generation_steps", "Generated tokens; V0 counts steps."),
    _counter("vllm:request_success_total", "finished", "Finished.", label="finished_reason", values=_REASONS[:1]),
    _counter(f"{_SPEC}num_accepted_tokens_total", "v0_summed_accepted", "Sum of lifetime totals.", speculative=True),
    _counter(f"{_SPEC}num_draft_tokens_total", "v0_summed_drafted", "Sum of lifetime totals.", speculative=True),
    _counter(f"{_SPEC}num_emitted_tokens_total", "v0_summed_emitted", "Sum of lifetime totals.", speculative=True),
    _gauge("vllm:cache_config_info", "cache_config", "Cache configuration.", model_label=False),
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
    """Wording of the periodic spec-decode line, and when it is left out.

    Fields: rate (0..1), percent, length, accepted, drafted, emitted, efficiency, k, positions, accepted_throughput,
    drafted_throughput. ``last_step_gate``: printed only if the very last step drafted; else the window carries over.
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
V1_SPEC_LINES: tuple[tuple[Version, SpecLine], ...] = (
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

# What stands before a message. Fields: process, pid, level, time (%m-%d %H:%M:%S), file, line. 0.10.1 to 0.15.1
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
# What stands before uvicorn's own lines.
UVICORN_PREFIXES: tuple[tuple[Version, str], ...] = (
    (OLDEST, ""),
    ((0, 10, 1), "\x1b[1;36m(APIServer pid={pid})\x1b[0;0m "),
    ((0, 12, 0), "\x1b[0;36m(APIServer pid={pid})\x1b[0;0m "),
    ((0, 16, 0), "(APIServer pid={pid}) "),
    ((0, 31, 0), ""),
)
# The engine-init line begins so; {engine} is V0 or V1.
INIT_LINES: tuple[tuple[Version, str], ...] = (
    (OLDEST, "Initializing an LLM engine (v{version}) with config: "),
    ((0, 7, 3), "Initializing a {engine} LLM engine (v{version}) with config: "),
)
SPECULATIVE_CONFIGS: tuple[tuple[Version, str], ...] = (
    (OLDEST, "SpeculativeConfig(draft_model='{draft_or_method}', num_spec_tokens={k})"),
    ((0, 8, 0), "SpeculativeConfig(method='{method}', model={draft_repr}, num_spec_tokens={k})"),
)


class StartupWarning(msgspec.Struct, frozen=True):
    """A warning some releases print at start with speculation; ``methods`` empty means every method."""

    since: Version
    until: Version
    text: str
    methods: tuple[str, ...] = ()


STARTUP_WARNINGS: tuple[StartupWarning, ...] = (
    StartupWarning(
        (0, 11, 1),
        (0, 17, 1),
        "min_p, logit_bias, and min_tokens parameters won't work with speculative decoding.",
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
    """Everything that depends on the release, the engine generation and the front end, looked up once."""

    text: str
    version: Version
    generation: Generation
    frontend: str
    families: tuple[Family, ...]
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

    def label_values(self, family: Family) -> tuple[str, ...]:
        """The values this release creates beforehand for the family's own label."""
        return _latest(family.values, self.version)


def parse_version(text: str) -> Version:
    """``"0.6.6.post1"`` -> ``(0, 6, 6)``. Raises :class:`ConfigError` outside the releases known here."""
    match = re.match(r"v?(\d+)\.(\d+)(?:\.(\d+))?", text)
    version = (int(match[1]), int(match[2]), int(match[3] or 0)) if match else None
    if version is None or not OLDEST <= version <= (NEWEST[0], NEWEST[1], 99):
        raise ConfigError(f"vllm_version: expected a release from 0.6.6 to 0.33.0, found {text!r}")
    return version


def release(
    text: str, *, generation: str = "auto", frontend: str = "python", api_servers: int = 1, max_model_len: int = 8192
) -> Release:
    """The shapes of vLLM ``text``. Raises :class:`ConfigError` for combinations that no release offers."""
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
    families = V0_FAMILIES if v0 else V1_FAMILIES
    plain = "1.0.0" if version >= FIRST_PLAIN_1_0_0 else "0.0.4"
    bounds: dict[str, tuple[float, ...]] = {name: _latest(rows, version) for name, rows in _BUCKETS.items()}
    return Release(
        text=text.removeprefix("v"),
        version=version,
        generation="v0" if v0 else "v1",
        frontend=frontend,
        families=tuple(f for f in families if f.since <= version < f.until and frontend in f.frontends),
        bounds={**bounds, "length": _one_two_five(max_model_len)},
        engine_label=not v0 and version >= FIRST_ENGINE_LABEL,
        multiprocess=v0 or api_servers > 1,
        content_type="application/openmetrics-text; version=1.0.0"
        if rust
        else f"text/plain; version={plain}; charset=utf-8",
        log_interval_seconds=5.0 if v0 else 10.0,
        stats_line=RUST_STATS_LINE if rust else V0_STATS_LINE if v0 else _latest(V1_STATS_LINES, version),
        spec_line=V0_SPEC_LINE if v0 else _latest_or_none(V1_SPEC_LINES, version),
        prefix=_latest(PREFIXES, version),
        uvicorn_prefix=_latest(UVICORN_PREFIXES, version),
        init_line=_latest(INIT_LINES, version),
        speculative_config=_latest(SPECULATIVE_CONFIGS, version),
        startup_warnings=tuple(w for w in STARTUP_WARNINGS if w.since <= version < w.until),
        # 0.11.1 and 0.11.2 shorten a draft that would go past max_tokens; everywhere else such tokens count as accepted
        drafts_cut_at_max_tokens=(0, 11, 1) <= version < (0, 12, 0),
    )


def _one_two_five(limit: int) -> tuple[float, ...]:
    """1, 2, 5, 10, 20, 50 ... up to ``limit``: vLLM's bounds for numbers of tokens, from the model's maximum length."""
    bounds = (float(digit * 10**power) for power in range(len(str(limit))) for digit in (1, 2, 5))
    return tuple(bound for bound in bounds if bound <= limit)


def _latest_or_none(rows: tuple[tuple[Version, _T], ...], version: Version) -> _T | None:
    found = [value for since, value in rows if since <= version]
    return found[-1] if found else None


def _latest(rows: tuple[tuple[Version, _T], ...], version: Version) -> _T:
    return [value for since, value in rows if since <= version][-1]  # the first row is never newer than OLDEST
