"""The recording that the predictor is compared with."""

from __future__ import annotations

from specdec_exporter.baseline.pinned import PinnedBaseline
from specdec_exporter.serving.families.family import MODEL, Group, gauge, histogram

_BASELINE_FACTS = ("name", "vllm_version", "method", "hardware", "model", "runtime", "request_parameters")


def _baseline_facts(pinned: PinnedBaseline) -> dict[object, float]:
    places = (pinned.baseline, pinned.baseline.context)
    return {tuple(next((v for p in places if (v := getattr(p, fact, None))), "") for fact in _BASELINE_FACTS): 1}


BASELINE: Group[PinnedBaseline] = Group(
    MODEL,
    (
        gauge(
            "specdec_baseline_latency_seconds",
            "Latency per request: time per output token (`tpot`), time to first token (`ttft`), end to end (`e2e`). "
            "`p99` is interpolated as by PromQL's histogram_quantile.",
            lambda p: p.latency_seconds,
            absent="not recorded; no request",
            labels=("sli", "stat"),
        ),
        histogram(
            "specdec_baseline_time_per_output_token_seconds",
            "Decode time / (tokens - 1), per finished request: the buckets of its tail.",
            lambda p: p.output_token_tail,
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

BASELINE_LOAD: Group[float | None] = Group(
    MODEL,
    (
        gauge(
            "specdec_baseline_load_ratio",
            "Load of the last {policy.data.traffic_seconds:g} s / load of the baseline file: finished requests per "
            "second, or requests in flight (their seconds per second) if that ratio is less.",
            lambda ratio: ratio,
            absent="in the first {policy.data.traffic_seconds_min:g} s; fetch failed; end-to-end latency not recorded",
        ),
    ),
)
