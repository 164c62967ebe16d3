"""The recording that the predictor is compared with."""

from __future__ import annotations

from specdec_exporter.baseline.pinned import PinnedBaseline
from specdec_exporter.histogram import Histogram
from specdec_exporter.serving.families.family import MODEL, Group, gauge, histogram
from specdec_exporter.speculation.policy import load_policy

_BASELINE_FACTS = ("name", "vllm_version", "method", "hardware", "model", "runtime", "request_parameters")


def _baseline_facts(pinned: PinnedBaseline) -> dict[object, float]:
    places = (pinned.baseline, pinned.baseline.context)
    return {tuple(next((v for p in places if (v := getattr(p, fact, None))), "") for fact in _BASELINE_FACTS): 1}


def _tail(whole: Histogram | None) -> Histogram | None:
    """Return the boundaries by which a longer tail is told, and its mean: a fifth of the series of all boundaries."""
    return whole.tail(load_policy().latency.tail_limit_share) if whole else None


BASELINE: Group[PinnedBaseline] = Group(
    MODEL,
    (
        histogram(
            "specdec_baseline_time_to_first_token_seconds",
            "Time to first token, per request: the buckets of its tail.",
            lambda p: _tail(p.baseline.time_to_first_token_seconds),
        ),
        histogram(
            "specdec_baseline_time_per_output_token_seconds",
            "Decode time / (tokens - 1), per finished request: the buckets of its tail.",
            lambda p: _tail(p.baseline.time_per_output_token_seconds),
        ),
        histogram(
            "specdec_baseline_request_latency_seconds",
            "End-to-end latency, per finished request: the buckets of its tail.",
            lambda p: _tail(p.baseline.request_latency_seconds),
        ),
        gauge(
            "specdec_baseline_requests_per_second",
            "Finished requests per second of the recording.",
            lambda p: p.requests_per_second,
        ),
        gauge(
            "specdec_baseline_requests_in_flight",
            "Mean number of requests in flight, waiting or running: seconds of all requests per second (Little's law).",
            lambda p: p.requests_in_flight,
        ),
        gauge(
            "specdec_baseline_prompt_tokens_mean",
            "Mean prompt tokens of a request. Its speed-up holds for prompts of about this length.",
            lambda p: p.baseline.mean_prompt_tokens,
        ),
        gauge(
            "specdec_baseline_acceptance_ratio",
            "Acceptance rate: accepted draft tokens / draft tokens.",
            lambda p: p.acceptance_ratio,
        ),
        gauge(
            "specdec_baseline_mean_acceptance_length",
            "Mean acceptance length: 1 + accepted tokens / drafts, the bonus token included.",
            lambda p: p.mean_acceptance_length,
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
    remark="From the baseline file.",
)
