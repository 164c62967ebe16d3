"""A pinned baseline as the API and the page show it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from specdec_exporter.serving.status import BaselineStatus

if TYPE_CHECKING:
    from specdec_exporter.baseline.pinned import PinnedBaseline


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
