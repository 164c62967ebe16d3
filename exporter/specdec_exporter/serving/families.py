"""Every family that the exporter serves, once: ``/metrics`` and the tables of ``docs/metrics.md`` come from here.

No name is one of the predictor's own, so that a proxy in the pod may concatenate both expositions.
"""

from __future__ import annotations

import platform
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar

import msgspec

from specdec_exporter import __version__
from specdec_exporter.histogram import Histogram
from specdec_exporter.predictor.log.counters import ReaderCounters
from specdec_exporter.predictor.metrics.snapshot import EngineSnapshot
from specdec_exporter.predictor.versions import WARNINGS
from specdec_exporter.serving.state import EngineView, PredictorState
from specdec_exporter.speculation.facts import StateName
from specdec_exporter.speculation.figures import Figures
from specdec_exporter.speculation.logtotals import EngineLogTotals
from specdec_exporter.speculation.policy import load_policy

if TYPE_CHECKING:
    from specdec_exporter.baseline.pinned import PinnedBaseline
    from specdec_exporter.serving.loads import LoadTotals
    from specdec_exporter.serving.runtime import CollectorHealth, ExporterRuntime, PredictorRuntime
    from specdec_exporter.serving.state import ModelBenefit
    from specdec_exporter.speculation.benefit import BreakEven
    from specdec_exporter.speculation.cost import MeasuredCost

ENGINE = ("inference_service", "model_name", "engine")
MODEL = ("inference_service", "model_name")
SERVICE = ("inference_service",)

S = TypeVar("S")
Value = float | Histogram | Mapping[Any, float] | Mapping[Any, Histogram] | None
"""A mapping has one entry per series, or histogram; its keys are the value of the family's own label, or a tuple of
several values. ``None`` and an empty mapping give no series."""


class Family(msgspec.Struct, Generic[S], frozen=True):
    """One family. ``name`` is what a counter's samples are called, with ``_total``.

    ``meaning``, ``source`` (where the value comes from) and ``absent`` (when there is no series) are Markdown; they may
    hold ``{window}`` and fields of ``{policy}``. ``labels`` come after those of its group.
    """

    name: str
    type: Literal["counter", "gauge", "histogram"]
    meaning: str
    value: Callable[[S], Value]
    source: str
    absent: str
    labels: tuple[str, ...]


class Group(msgspec.Struct, Generic[S], frozen=True):
    """Families about the same subjects, and so with the same labels.

    ``absent`` is for families that have no text of their own. ``remark`` ends every HELP text.
    """

    labels: tuple[str, ...]
    families: tuple[Family[S], ...]
    absent: str = ""
    remark: str = ""


def filled_in(text: str, window: str) -> str:
    """Return the text with the window and the policy's values in their places."""
    return text.format(window=window, policy=load_policy())


def help_text(group: Group[S], family: Family[S], window: str) -> str:
    """Return what ``/metrics`` says of the family."""
    remark = group.remark.replace("{source}", family.source)
    return filled_in(f"{family.meaning} {remark}".rstrip().replace("`", ""), window)


def counter(
    name: str,
    meaning: str,
    value: Callable[[S], Value],
    source: str = "",
    absent: str = "",
    *,
    labels: tuple[str, ...] = (),
) -> Family[S]:
    """Return a counter."""
    return Family(name, "counter", meaning, value, source, absent, labels)


def gauge(
    name: str,
    meaning: str,
    value: Callable[[S], Value],
    source: str = "",
    absent: str = "",
    *,
    labels: tuple[str, ...] = (),
) -> Family[S]:
    """Return a gauge."""
    return Family(name, "gauge", meaning, value, source, absent, labels)


def histogram(
    name: str,
    meaning: str,
    value: Callable[[S], Value],
    source: str = "",
    absent: str = "",
    *,
    labels: tuple[str, ...] = (),
) -> Family[S]:
    """Return a histogram."""
    return Family(name, "histogram", meaning, value, source, absent, labels)


_V0 = " A V0 engine adds up lifetime totals here, so only their ratio means something."

COPIED: Group[EngineSnapshot] = Group(
    ENGINE,
    (
        counter(
            "specdec_drafts_total",
            "Drafts: speculations of one request in one engine step.",
            lambda e: e.drafts,
            "`spec_decode_num_drafts_total`",
            "speculation off, before 0.8.5, V0 engine",
        ),
        counter(
            "specdec_draft_tokens_total",
            f"Draft tokens proposed.{_V0}",
            lambda e: e.draft_tokens,
            "`spec_decode_num_draft_tokens_total`",
            "speculation off (0.8.3 and 0.8.4: 0), V1 engine before 0.8.3",
        ),
        counter(
            "specdec_accepted_tokens_total",
            f"Draft tokens that the target model accepted.{_V0}",
            lambda e: e.accepted_tokens,
            "`spec_decode_num_accepted_tokens_total`",
            "as `specdec_draft_tokens_total`",
        ),
        counter(
            "specdec_generation_tokens_total",
            "Tokens generated. A V0 engine counts steps here.",
            lambda e: e.generation_tokens,
            "`generation_tokens_total`",
        ),
        counter(
            "specdec_prompt_tokens_total",
            "Prompt tokens processed.",
            lambda e: e.prompt_tokens,
            "`prompt_tokens_total`",
        ),
        counter("specdec_preemptions_total", "Requests preempted.", lambda e: e.preemptions, "`num_preemptions_total`"),
        gauge(
            "specdec_requests_running", "Requests that run now.", lambda e: e.requests_running, "`num_requests_running`"
        ),
        gauge(
            "specdec_requests_waiting",
            "Requests that wait in the queue now.",
            lambda e: e.requests_waiting,
            "`num_requests_waiting`",
        ),
        gauge(
            "specdec_kv_cache_usage_ratio",
            "Share of the KV cache in use.",
            lambda e: e.kv_cache_usage_ratio,
            "`kv_cache_usage_perc`, `gpu_cache_usage_perc`",
        ),
        counter(
            "specdec_prefix_cache_queries_total",
            "Prompt tokens that were looked up in the prefix cache. Before 0.9.2 vLLM counts blocks, so only the ratio "
            "of hits means something.",
            lambda e: e.prefix_cache_queries,
            "`prefix_cache_queries_total`, `gpu_prefix_cache_queries_total`",
            "V0 engine",
        ),
        counter(
            "specdec_prefix_cache_hits_total",
            "Prompt tokens that were found there. Before 0.9.2 in blocks.",
            lambda e: e.prefix_cache_hits,
            "`prefix_cache_hits_total`, `gpu_prefix_cache_hits_total`",
            "V0 engine",
        ),
        counter(
            "specdec_accepted_tokens_per_position_total",
            "Accepted draft tokens by position, from 0. They sum to `specdec_accepted_tokens_total`.",
            lambda e: dict(sorted((e.accepted_tokens_per_position or {}).items())),
            "`spec_decode_num_accepted_tokens_per_pos_total`",
            "as `specdec_drafts_total`",
            labels=("position",),
        ),
        counter(
            "specdec_requests_finished_total",
            "Finished requests by reason. A request whose client goes away counts nowhere.",
            lambda e: e.requests_finished,
            "`request_success_total`",
            labels=("finished_reason",),
        ),
        histogram(
            "specdec_time_to_first_token_seconds",
            "Time to first token, per request.",
            lambda e: e.time_to_first_token,
            "`time_to_first_token_seconds`",
        ),
        histogram(
            "specdec_time_per_output_token_seconds",
            "Decode time / (tokens - 1), per finished request.",
            lambda e: e.time_per_output_token,
            "`request_time_per_output_token_seconds`",
            "before 0.11.0",
        ),
        histogram(
            "specdec_step_latency_seconds",
            "Step latency: one sample per engine step of a request, not per token. "
            "Fewer accepted tokens do not raise it.",
            lambda e: e.step_latency,
            "`inter_token_latency_seconds`, before 0.10.2 `time_per_output_token_seconds`",
        ),
        histogram(
            "specdec_request_latency_seconds",
            "End-to-end latency, per finished request.",
            lambda e: e.request_latency,
            "`e2e_request_latency_seconds`",
        ),
        histogram(
            "specdec_request_decode_seconds",
            "Time in decode, per finished request.",
            lambda e: e.request_decode,
            "`request_decode_time_seconds`",
        ),
    ),
    remark="Copied from vLLM's {source}.",
)


def _known(ratios: Sequence[float | None]) -> dict[object, float]:
    return {position: ratio for position, ratio in enumerate(ratios) if ratio is not None}


DERIVED: Group[Figures] = Group(
    ENGINE,
    (
        gauge(
            "specdec_acceptance_ratio",
            "Acceptance rate: accepted draft tokens / draft tokens.",
            lambda f: f.acceptance_ratio,
            "metrics, else log",
            "until the second reading, without draft tokens in the window",
        ),
        gauge(
            "specdec_mean_acceptance_length",
            "Mean acceptance length: 1 + accepted tokens / drafts, the bonus token included.",
            lambda f: f.mean_acceptance_length,
            "metrics, else log",
            "without drafts in the window, or a count of them (0.8.3, 0.8.4)",
        ),
        gauge(
            "specdec_mean_draft_length",
            "Mean draft length: draft tokens / drafts. Below k, some drafts are short.",
            lambda f: f.mean_draft_length,
            "metrics, else log",
            "as `specdec_mean_acceptance_length`",
        ),
        gauge(
            "specdec_tokens_per_step",
            "Tokens per step: (generation tokens - requests) / request-steps, steps without a draft included. "
            "A request counts when its first token comes.",
            lambda f: f.tokens_per_step,
            "metrics",
            "without decoding in the window",
        ),
        gauge(
            "specdec_position_acceptance_ratio",
            "Per-position rate: accepted at the position / drafts.",
            lambda f: _known(f.per_position),
            "metrics, else log",
            "as `specdec_mean_acceptance_length`",
            labels=("position",),
        ),
        gauge(
            "specdec_position_conditional_acceptance_ratio",
            "Conditional rate: accepted at the position / accepted at the position before. "
            "It is exact only when no draft is shorter than k.",
            lambda f: _known(f.conditional),
            "metrics, else log",
            "as above; positions that no draft reached",
            labels=("position",),
        ),
    ),
    remark="Over the last {window} by the exporter's clock, from the predictor's {source}. "
    "This is for people: rules use the counters.",
)

WINDOWS: Group[EngineView] = Group(
    ENGINE,
    (
        histogram(
            "specdec_window_acceptance_ratio",
            "Acceptance rates of short windows, for P10, P50 and P90. A window runs from one scrape to another, "
            "lasts at least {policy.short_window_seconds:g} s and has at least {policy.min_drafts} drafts.",
            lambda v: v.ratios.histogram if v.ratios else None,
            "metrics",
            "fetch failed, speculation off, V0 engine",
        ),
        histogram(
            "specdec_window_acceptance_ratio_by_draft",
            "The same windows, each counted once per draft (0.8.3 and 0.8.4: per draft token), so busy windows weigh "
            "more.",
            lambda v: v.ratios_by_draft.histogram if v.ratios_by_draft else None,
            "metrics",
            "as above",
        ),
        gauge(
            "specdec_kv_cache_capacity_tokens",
            "Tokens that fit into the engine's KV cache. Before 0.24.0 and without a log it is blocks x block size: a "
            "guess for models with several kinds of layers, and with context parallelism.",
            lambda v: v.kv_cache_tokens,
            "`cache_config_info`, log (`KV cache size`)",
            "fetch failed; Rust frontend without a log",
        ),
        gauge(
            "specdec_recommended_num_speculative_tokens",
            "The k that pays best by the curve of the last {window} and the measured draft cost. 0 means off.",
            lambda v: v.recommended_num_speculative_tokens,
            "metrics, baseline",
            "no baseline without speculation at a like load; the recorded k does not tell which k is best; fewer than "
            "{policy.min_drafts} drafts in the window; mean draft length more than {policy.short_draft_tolerance:.0%} "
            "below k",
        ),
    ),
)

LOG: Group[EngineLogTotals] = Group(
    ENGINE,
    (
        counter("specdec_log_windows_total", "Spec-decode lines read.", lambda t: t.windows, "the lines"),
        counter("specdec_log_draft_tokens_total", "Draft tokens, exact.", lambda t: t.draft_tokens, "`Drafted`"),
        counter(
            "specdec_log_accepted_tokens_total",
            "Accepted draft tokens, exact.",
            lambda t: t.accepted_tokens,
            "`Accepted`",
        ),
        counter(
            "specdec_log_drafts_total",
            "Drafts, reconstructed: `Drafted` / k. Where the line's ratios show short drafts: the whole number "
            "that fits them best. Without k: `Accepted` / (length - 1).",
            lambda t: t.drafts,
            "reconstructed",
        ),
        counter(
            "specdec_log_accepted_tokens_per_position_total",
            "Accepted draft tokens by position, reconstructed: rate x drafts, rounded so that they sum to "
            "`Accepted`. Lines without a list of rates (Rust frontend) add nothing.",
            lambda t: dict(enumerate(t.accepted_per_position)),
            "reconstructed",
            labels=("position",),
        ),
    ),
    remark="From the spec-decode lines of the predictor's log.",
)

STATES: dict[StateName, str] = {
    "unreachable": "the last fetch failed, or there was none",
    "stats_disabled": "it answers without a single metric of an engine: `--disable-log-stats`, or the wrong port",
    "speculation_off": "neither log nor metrics show speculation",
    "idle": "no decoding in the last {policy.state_window_seconds:g} s",
    "not_drafting": "decoding without drafts",
    "drafting": "drafts in the last {policy.state_window_seconds:g} s",
}


def _facts(state: PredictorState) -> dict[object, float]:
    facts = (state.vllm_version, state.engine_generation, state.method, state.draft_model)
    return {tuple(fact or "" for fact in facts): 1} if any(facts) else {}


PREDICTOR: Group[tuple[PredictorState, StateName]] = Group(  # and the state of the engine that the labels name
    ENGINE,
    (
        gauge(
            "specdec_predictor_info",
            "1, with what the predictor runs as labels. Unknown facts are empty labels.",
            lambda s: _facts(s[0]),
            "`/version`, metrics (`v0`, `v1`), the log's engine-init line (method, draft model)",
            "until any of them is known",
            labels=("vllm_version", "engine_generation", "method", "draft_model"),
        ),
        gauge(
            "specdec_num_speculative_tokens",
            "k: the most draft tokens that one draft can have.",
            lambda s: s[0].num_speculative_tokens,
            "engine-init line, else the number of positions",
            "speculation off, k unknown",
        ),
        gauge(
            "specdec_predictor_state",
            "1 for the state the predictor is in, 0 for the others.",
            lambda s: {state: float(state == s[1]) for state in STATES},
            "metrics, log",
            "never; `model_name` and `engine` are empty until they are known",
            labels=("state",),
        ),
    ),
)

PREDICTOR_LOG: Group[PredictorState] = Group(
    ENGINE,
    (
        counter(
            "specdec_predictor_warnings_total",
            "Warnings about speculation in the predictor's log, by code. `engine` is empty.",
            lambda s: {code: s.warnings[code] for code in WARNINGS} if s.reader else None,
            "log",
            labels=("warning",),
        ),
        counter(
            "specdec_predictor_start_failures_total",
            "Starts of the predictor that failed, by the cause in its log. `engine` is empty.",
            lambda s: dict(s.start_failures) or None,
            "log",
            "until a start failed",
            labels=("failure",),
        ),
        histogram(
            "specdec_request_temperature",
            'Sampling temperature of the requests in the predictor\'s log; those at `le="0.0"` are greedy. '
            "`engine` is empty. The exporter keeps nothing else of a request.",
            lambda s: s.temperatures.histogram if s.temperatures else None,
            "log: the lines of `--enable-log-requests` (before 0.10.1 written unless `--disable-log-requests`)",
            "until such a line was read",
        ),
    ),
    absent="no log is read",
)

POLICY: Group[BreakEven] = Group(  # the assumed one
    MODEL,
    (
        gauge(
            "specdec_policy_acceptance_ratio_min",
            "Acceptance rate that is assumed to break even with this method.",
            lambda b: b.acceptance_ratio,
            "policy",
            "until a model is known",
        ),
        gauge(
            "specdec_policy_mean_acceptance_length_min",
            "Mean acceptance length that is assumed to break even: 1 + mean draft length in the window "
            "(k without one) x `specdec_policy_acceptance_ratio_min`.",
            lambda b: b.mean_acceptance_length,
            "policy",
            "as above, or neither is known",
        ),
    ),
)


def _by_basis(benefit: ModelBenefit, read: Callable[[BreakEven], float | None]) -> dict[object, float]:
    found = {each.basis: read(each) for each in (benefit.assumed, benefit.measured) if each is not None}
    return {basis: value for basis, value in found.items() if value is not None}


def _bounds(cost: MeasuredCost | None) -> dict[object, float]:
    found = {"low": cost.speedup.low, "high": cost.speedup.high} if cost else {}
    return {("measured", bound): value for bound, value in found.items() if value is not None}


_NO_COST = "no baseline without speculation, too few steps at a load that it has too, fetch failed"

BENEFIT: Group[ModelBenefit] = Group(
    MODEL,
    (
        gauge(
            "specdec_draft_cost_ratio",
            "Cost of one more draft token / cost of a step without drafts. `measured`: over the last "
            "{policy.cost.window_seconds:g} s, against "
            "the baseline without speculation at like load. `assumed`: the policy's guess.",
            lambda b: _by_basis(b, lambda even: even.acceptance_ratio),
            "step latency, baseline; policy",
            f"`measured`: {_NO_COST}",
            labels=("basis",),
        ),
        gauge(
            "specdec_break_even_acceptance_ratio",
            "Acceptance rate at which drafts pay for themselves. It equals the draft cost ratio.",
            lambda b: _by_basis(b, lambda even: even.acceptance_ratio),
            "step latency, baseline; policy",
            "as `specdec_draft_cost_ratio`",
            labels=("basis",),
        ),
        gauge(
            "specdec_break_even_acceptance_length",
            "Mean acceptance length at which drafts pay for themselves: 1 + mean draft length (k without drafts) x "
            "draft cost ratio.",
            lambda b: _by_basis(b, lambda even: even.mean_acceptance_length),
            "step latency, baseline; policy",
            "as above, or neither k nor draft length is known",
            labels=("basis",),
        ),
        gauge(
            "specdec_speedup_ratio",
            "Speed-up of decoding over the last {policy.cost.window_seconds:g} s: request-seconds that the same tokens "
            "would have taken without speculation at the same load / request-seconds taken. It is never assumed.",
            lambda b: {"measured": b.cost.speedup.value} if b.cost else {},
            "step latency, baseline",
            _NO_COST,
            labels=("basis",),
        ),
        gauge(
            "specdec_speedup_bound_ratio",
            "95 % interval of `specdec_speedup_ratio`.",
            lambda b: _bounds(b.cost),
            "step latency, baseline",
            "as above; unbounded",
            labels=("basis", "bound"),
        ),
    ),
)


def _of_load(read: Callable[[LoadTotals], float]) -> Callable[[ModelBenefit], dict[object, float]]:
    return lambda benefit: {bound: read(totals) for bound, totals in benefit.loads}


LOAD: Group[ModelBenefit] = Group(
    MODEL,
    (
        counter(
            "specdec_load_seconds_total",
            "Seconds that engines spent at this concurrency.",
            _of_load(lambda t: t.load.seconds),
            "step latency",
            labels=("concurrency",),
        ),
        counter(
            "specdec_load_steps_total",
            "Request-steps at this concurrency.",
            _of_load(lambda t: t.load.steps),
            "step latency",
            labels=("concurrency",),
        ),
        counter(
            "specdec_load_step_seconds_total",
            "Seconds of the request-steps at this concurrency.",
            _of_load(lambda t: t.load.step_seconds),
            "step latency",
            labels=("concurrency",),
        ),
        counter(
            "specdec_load_tokens_total",
            "Tokens generated at this concurrency, without the first of each request.",
            _of_load(lambda t: t.load.tokens),
            "`generation_tokens_total`",
            labels=("concurrency",),
        ),
        counter(
            "specdec_load_draft_tokens_total",
            "Draft tokens at this concurrency.",
            _of_load(lambda t: t.load.counts.draft_tokens or 0.0),
            "`spec_decode_num_draft_tokens_total`",
            labels=("concurrency",),
        ),
        counter(
            "specdec_load_compared_seconds_total",
            "The part of `specdec_load_step_seconds_total` at a load that the baseline without speculation has too.",
            _of_load(lambda t: t.compared_seconds),
            "step latency, baseline",
            labels=("concurrency",),
        ),
        counter(
            "specdec_load_plain_seconds_total",
            "Request-seconds that the tokens of the compared part would have taken without speculation at the same "
            "load. Its increase / that of `specdec_load_compared_seconds_total` is the speed-up at this load.",
            _of_load(lambda t: t.plain_seconds),
            "step latency, baseline",
            labels=("concurrency",),
        ),
    ),
    absent="until an interval of this concurrency; V0 engine; releases without step latency",
    remark="`concurrency` is the largest number of requests in decode at a time, per engine (Little's law); the bin "
    "begins at half of it. Intervals with preemptions and the first time after a start are left out.",
)

_BASELINE_FACTS = ("name", "vllm_version", "method", "hardware", "model", "runtime", "request_parameters")


def _baseline_facts(pinned: PinnedBaseline) -> dict[object, float]:
    places = (pinned.baseline, pinned.baseline.context)
    return {tuple(next((v for p in places if (v := getattr(p, fact, None))), "") for fact in _BASELINE_FACTS): 1}


BASELINE: Group[PinnedBaseline] = Group(
    MODEL,
    (
        histogram(
            "specdec_baseline_time_to_first_token_seconds",
            "Time to first token, per request.",
            lambda p: p.baseline.time_to_first_token_seconds,
            absent="not recorded",
        ),
        histogram(
            "specdec_baseline_time_per_output_token_seconds",
            "Decode time / (tokens - 1), per finished request.",
            lambda p: p.baseline.time_per_output_token_seconds,
            absent="not recorded",
        ),
        histogram(
            "specdec_baseline_request_latency_seconds",
            "End-to-end latency, per finished request.",
            lambda p: p.baseline.request_latency_seconds,
            absent="not recorded",
        ),
        gauge(
            "specdec_baseline_requests_per_second",
            "Finished requests per second of the recording.",
            lambda p: p.requests_per_second,
            absent="end-to-end latency was not recorded",
        ),
        gauge(
            "specdec_baseline_requests_in_flight",
            "Mean number of requests in flight, waiting or running: seconds of all requests per second (Little's law).",
            lambda p: p.requests_in_flight,
            absent="end-to-end latency was not recorded",
        ),
        gauge(
            "specdec_baseline_acceptance_ratio",
            "Acceptance rate: accepted draft tokens / draft tokens.",
            lambda p: p.acceptance_ratio,
            absent="recorded without speculation",
        ),
        gauge(
            "specdec_baseline_mean_acceptance_length",
            "Mean acceptance length: 1 + accepted tokens / drafts, the bonus token included.",
            lambda p: p.mean_acceptance_length,
            absent="recorded without speculation",
        ),
        gauge(
            "specdec_baseline_info",
            "1, with the conditions of the recording as labels. Facts that were not given are empty labels. "
            "The command is not shown, because it may hold an API key.",
            _baseline_facts,
            labels=_BASELINE_FACTS,
        ),
        gauge(
            "specdec_baseline_recorded_timestamp_seconds",
            "When the recording was made, Unix time.",
            lambda p: p.baseline.recorded_timestamp,
        ),
    ),
    remark="Constant: read from the baseline file.",
)


def _collectors(predictor: PredictorRuntime) -> dict[str, CollectorHealth]:
    found = {"metrics": predictor.metrics_health, "log": predictor.log_health}
    return {name: health for name, health in found.items() if health is not None}


SCRAPE: Group[PredictorRuntime] = Group(
    SERVICE,
    (
        gauge(
            "specdec_up",
            "1 if this scrape's fetch of the predictor's metrics succeeded, else 0. Never remembered.",
            lambda p: p.state.up,
        ),
        gauge(
            "specdec_scrape_collector_duration_seconds",
            "Duration of the last fetch (`metrics`) and of the last round of reading (`log`).",
            lambda p: {name: health.duration_seconds for name, health in _collectors(p).items()},
            absent="`log`: no log is read",
            labels=("collector",),
        ),
        gauge(
            "specdec_scrape_collector_success",
            "1 if the last fetch (`metrics`) or round of reading (`log`) succeeded, else 0.",
            lambda p: {name: health.success for name, health in _collectors(p).items()},
            absent="`log`: no log is read",
            labels=("collector",),
        ),
    ),
    absent="never",
)


READER: Group[ReaderCounters] = Group(
    SERVICE,
    (
        counter("specdec_log_reader_lines_total", "Lines read from the predictor's log.", lambda r: r.lines),
        counter("specdec_log_reader_bytes_total", "Bytes read from the predictor's log.", lambda r: r.bytes),
        counter(
            "specdec_log_reader_matched_lines_total",
            "Lines that said something about speculation or the engine.",
            lambda r: r.matched_lines,
        ),
        counter(
            "specdec_log_reader_parse_errors_total",
            "Lines about speculation or the engine that could not be read.",
            lambda r: r.parse_errors,
        ),
        counter("specdec_log_reader_rotations_total", "Log rotations followed.", lambda r: r.rotations),
        counter("specdec_log_reader_truncations_total", "Log truncations noticed.", lambda r: r.truncations),
        counter(
            "specdec_log_reader_oversized_lines_total", "Lines skipped for their length.", lambda r: r.oversized_lines
        ),
        counter(
            "specdec_log_reader_read_errors_total",
            "Failures to open or read the log, or to keep the read positions.",
            lambda r: r.read_errors,
        ),
        gauge(
            "specdec_log_reader_last_line_timestamp_seconds",
            "When the exporter last read a line of the predictor's log, Unix time.",
            lambda r: r.last_line_timestamp,
            absent="no line was read yet",
        ),
        gauge(
            "specdec_log_reader_bytes_behind",
            "Bytes of the predictor's log that are still to be read.",
            lambda r: r.bytes_behind,
        ),
    ),
    absent="no log is read",
)

EXPORTER: Group[ExporterRuntime] = Group(
    (),
    (
        gauge(
            "specdec_exporter_build_info",
            "1, with the releases of the exporter and of its Python as labels.",
            lambda _: {(__version__, platform.python_version()): 1},
            labels=("version", "pythonversion"),
        ),
        gauge(
            "specdec_exporter_config_last_reload_successful",
            "1 if the last load of the configuration succeeded, else 0. A bad file leaves the one before in force.",
            lambda r: r.last_reload_successful,
        ),
        gauge(
            "specdec_exporter_config_last_reload_success_timestamp_seconds",
            "When the configuration was last loaded successfully, Unix time.",
            lambda r: r.last_reload_success_timestamp,
        ),
        counter(
            "specdec_exporter_dropped_total",
            "What predictors and logs said beyond a bound, and was left out or summed. "
            "The bounds are in docs/reliability.md.",
            lambda r: r.dropped,
            labels=("what",),
        ),
    ),
    absent="never",
)


def _of_the_client(_: object) -> None:
    """Give no value: prometheus_client serves these families of this process."""


PROCESS: Group[object] = Group(
    (),
    (
        gauge("process_virtual_memory_bytes", "Virtual memory.", _of_the_client),
        gauge("process_resident_memory_bytes", "Resident memory.", _of_the_client),
        gauge("process_start_time_seconds", "Start, Unix time.", _of_the_client),
        counter("process_cpu_seconds_total", "Seconds of CPU time.", _of_the_client),
        gauge("process_open_fds", "Open file descriptors.", _of_the_client),
        gauge("process_max_fds", "Most file descriptors it may open.", _of_the_client),
        gauge(
            "python_info",
            "1, with the release of Python as labels.",
            _of_the_client,
            labels=("version", "implementation", "major", "minor", "patchlevel"),
        ),
    ),
    absent="switched off",
)
