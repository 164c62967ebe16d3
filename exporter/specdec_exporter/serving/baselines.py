"""Pinned baselines as they are served: metric families (constant, labelled by service and model) and their status."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from prometheus_client.core import GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.metrics_core import Metric

from specdec_exporter.serving.status import BaselineStatus

if TYPE_CHECKING:
    from specdec_exporter.baseline.pinned import PinnedBaseline

# Not the command: it may hold an API key.
FACTS = ("name", "vllm_version", "method", "hardware", "model", "runtime", "request_parameters")

TEXTS = {
    "time_to_first_token_seconds": "Time to first token",
    "time_per_output_token_seconds": "Decode time / (tokens - 1) per finished request",
    "request_latency_seconds": "End-to-end latency per finished request",
}


def baseline_families(pinned: Sequence[tuple[str, PinnedBaseline]], model: tuple[str, ...]) -> Iterator[Metric]:
    """The families of the baselines that fit their predictors.

    ``pinned`` has the predictors' names; ``model`` are the labels of what is known by service and model.
    """
    served = [([name, each.fit.model_name], each) for name, each in pinned if each.fit.model_name is not None]
    for sli, text in TEXTS.items():
        histogram = HistogramMetricFamily(
            f"specdec_baseline_{sli}", f"{text}, as recorded in the baseline; constant.", labels=model
        )
        for labels, each in served:
            if (recorded := dict(each.baseline.histograms()).get(sli)) is not None:
                histogram.add_metric(labels, recorded.buckets(), recorded.sum)
        yield histogram
    ratio = GaugeMetricFamily(
        "specdec_baseline_acceptance_ratio",
        "Accepted draft tokens / draft tokens in the baseline; absent where it was recorded without speculation.",
        labels=model,
    )
    length = GaugeMetricFamily(
        "specdec_baseline_mean_acceptance_length",
        "1 + accepted tokens / drafts in the baseline, the bonus token included.",
        labels=model,
    )
    info = GaugeMetricFamily(
        "specdec_baseline_info",
        "1 for the baseline in force and the conditions it was recorded under; empty where they were not given.",
        labels=(*model, *FACTS),
    )
    recorded_at = GaugeMetricFamily(
        "specdec_baseline_recorded_timestamp_seconds", "When the baseline was recorded, Unix time.", labels=model
    )
    for labels, each in served:
        if each.acceptance_ratio is not None:
            ratio.add_metric(labels, each.acceptance_ratio)
        if each.mean_acceptance_length is not None:
            length.add_metric(labels, each.mean_acceptance_length)
        baseline = each.baseline
        facts = (getattr(baseline, fact, None) or getattr(baseline.context, fact, None) or "" for fact in FACTS)
        info.add_metric([*labels, *facts], 1)
        recorded_at.add_metric(labels, baseline.recorded_timestamp)
    yield from (ratio, length, info, recorded_at)


def baseline_status(pinned: PinnedBaseline) -> BaselineStatus:
    """Return what the API and the page say of a baseline."""
    baseline = pinned.baseline
    return BaselineStatus(
        name=baseline.name,
        recorded_at=baseline.recorded_at,
        recorded_timestamp=baseline.recorded_timestamp,
        duration_seconds=baseline.duration_seconds,
        interrupted=baseline.interrupted,
        model_name=baseline.model_name,
        vllm_version=baseline.vllm_version,
        served=pinned.fit.refusal is None,
        refusal=pinned.fit.refusal,
        remarks=pinned.remarks,
        acceptance_ratio=pinned.acceptance_ratio,
        mean_acceptance_length=pinned.mean_acceptance_length,
        mean_latency_seconds={sli: histogram.mean for sli, histogram in baseline.histograms()},
    )
