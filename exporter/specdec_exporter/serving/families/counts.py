"""The predictor's own counts."""

from __future__ import annotations

from specdec_exporter.predictor.metrics.snapshot import EngineSnapshot
from specdec_exporter.serving.families.family import ENGINE, Group, counter, gauge, histogram
from specdec_exporter.speculation.acceptance import Counts

_V0 = " Without a log, a V0 engine adds up lifetime totals here, so only their ratio means something."

DRAFTS: Group[Counts] = Group(
    ENGINE,
    (
        counter(
            "specdec_drafts_total",
            "Drafts: speculations of one request in one engine step.",
            lambda c: c.drafts,
            "`spec_decode_num_drafts_total`, else the log",
            "speculation off, 0.8.3, 0.8.4; without a log: before 0.8.5, V0 engine",
        ),
        counter(
            "specdec_draft_tokens_total",
            f"Draft tokens proposed.{_V0}",
            lambda c: c.draft_tokens,
            "`spec_decode_num_draft_tokens_total`, else the log",
            "speculation off (0.8.3 and 0.8.4 without a log: 0); without a log: V1 engine before 0.8.3",
        ),
        counter(
            "specdec_accepted_tokens_total",
            f"Draft tokens that the target model accepted.{_V0}",
            lambda c: c.accepted_tokens,
            "`spec_decode_num_accepted_tokens_total`, else the log",
            "as `specdec_draft_tokens_total`",
        ),
        counter(
            "specdec_accepted_tokens_per_position_total",
            "Accepted draft tokens by position, from 0. They sum to `specdec_accepted_tokens_total`.",
            lambda c: dict(enumerate(c.accepted_per_position)),
            "`spec_decode_num_accepted_tokens_per_pos_total`, else the log",
            "before 0.8.5, V0 engine; lines without a list (Rust frontend)",
            labels=("position",),
        ),
    ),
    remark="In vLLM: {source} where the metrics of the engine never counted drafts.",
)

COPIED: Group[EngineSnapshot] = Group(
    ENGINE,
    (
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
        counter(
            "specdec_cached_prompt_tokens_total",
            "Prompt tokens that were not computed, because a cache held them.",
            lambda e: e.cached_prompt_tokens,
            "`prompt_tokens_cached_total`, before 0.16.0 `prefix_cache_hits_total`",
            "V0 engine, before 0.9.2",
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
        gauge(
            "specdec_interval_acceptance_length",
            "Mean acceptance length of the engine's last interval, by its own gauge, which stays while nothing runs.",
            lambda e: e.interval_acceptance_length or None,
            "no such figure",
            "of all but SGLang",
        ),
        gauge(
            "specdec_draft_overhead_ratio",
            "Seconds of drafting / seconds of the iteration, by the engine, of one of its last iterations.",
            lambda e: e.draft_overhead_ratio or None,
            "no such figure",
            "of all but TensorRT-LLM with two-model drafting",
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
            "Prompt tokens found in the prefix cache. Before 0.9.2 vLLM counts blocks.",
            lambda e: e.prefix_cache_hits,
            "`prefix_cache_hits_total`, `gpu_prefix_cache_hits_total`",
            "V0 engine",
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
    remark="In vLLM: {source}.",
)
