"""A pinned baseline, and whether it fits a running predictor."""

from __future__ import annotations

from functools import cached_property
from typing import Final, NamedTuple

from specdec_exporter.baseline.file import HISTOGRAMS, Baseline
from specdec_exporter.baseline.reading import read_baseline
from specdec_exporter.config import SYSTEM_TRUST, Access
from specdec_exporter.errors import BaselineError
from specdec_exporter.histogram import Histogram
from specdec_exporter.predictor.engines.engine import VLLM
from specdec_exporter.predictor.metrics.fetch import MetricsFetcher, open_session
from specdec_exporter.predictor.metrics.snapshot import Snapshot
from specdec_exporter.predictor.versions import canonical_method
from specdec_exporter.speculation.acceptance import acceptance_ratio, mean_acceptance_length, ratio
from specdec_exporter.speculation.evidence import DecodingBaseline
from specdec_exporter.speculation.policy import load_policy
from specdec_exporter.speculation.steptime import StepTimes, step_times

# The service level indicators as labels name them.
SHORT_NAMES = {
    "tpot": "time_per_output_token_seconds",
    "ttft": "time_to_first_token_seconds",
    "e2e": "request_latency_seconds",
}


class Fit(NamedTuple):
    """The model that the baseline is served for; or why it is refused. ``differences``: from what runs now."""

    model_name: str | None
    refusal: str | None
    differences: tuple[str, ...] = ()


NOT_SEEN: Final = Fit(None, "the predictor's model is not known yet")


class PinnedBaseline:
    """A baseline read from ``path``. Raises :class:`BaselineError` as :func:`read_baseline`."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.baseline: Baseline = read_baseline(path)

    def load_ratio(self, requests_per_second: float, requests_in_flight: float) -> float | None:
        """Return this load / that of the recording; ``None`` if end-to-end latency was not recorded.

        The smaller of two ratios: more requests in flight alone means that the service is slower.
        """
        latency, seconds = self.baseline.request_latency_seconds, self.baseline.duration_seconds
        if latency is None:
            return None
        rate = ratio(requests_per_second, ratio(latency.count, seconds))
        in_flight = ratio(requests_in_flight, ratio(latency.sum, seconds))  # Little's law
        return None if rate is None or in_flight is None else min(rate, in_flight)

    @cached_property
    def latency_seconds(self) -> dict[tuple[str, str], float]:
        """Mean and P99 of each recorded latency that has a request, by short name and ``mean`` or ``p99``."""
        recorded = dict(self.baseline.histograms())
        latencies = {short: recorded[sli] for short, sli in SHORT_NAMES.items() if sli in recorded}
        known = {
            (short, stat): value
            for short, latency in latencies.items()
            for stat, value in (("mean", ratio(latency.sum, latency.count)), ("p99", latency.interpolated(0.99)))
        }
        return {key: value for key, value in known.items() if value is not None}

    @cached_property
    def output_token_tail(self) -> Histogram | None:
        """The boundaries by which a longer tail is told, and its mean: a fifth of the series of all boundaries."""
        whole = self.baseline.time_per_output_token_seconds
        return whole.tail(load_policy().latency.tail_limit_share) if whole else None

    def is_of_other_release(self, vllm_version: str | None) -> bool:
        """Whether it was recorded with another release than this one."""
        return _differ(self.baseline.vllm_version, vllm_version)

    def is_of_other_method(self, method: str | None) -> bool:
        """Whether it was recorded with another method of speculation than this one."""
        recorded = self.baseline.method
        return _differ(recorded and canonical_method(recorded), method and canonical_method(method))

    @cached_property
    def acceptance_ratio(self) -> float | None:
        """Accepted draft tokens / draft tokens; ``None`` without speculation, or with adaptive verification."""
        if self.baseline.adaptive_verification:
            return None
        return acceptance_ratio(self.baseline.counts.accepted_tokens, self.baseline.counts.draft_tokens)

    @cached_property
    def step_times(self) -> StepTimes | None:
        """Step times without drafts, by load; ``None`` if it was recorded with drafts, or does not tell them."""
        return None if self.baseline.speculates else step_times(self.baseline.intervals, load_policy())

    def decoding(self, model_name: str) -> DecodingBaseline | None:
        """Return how fast it decoded, for the verdict on this served model; ``None`` if that was not recorded."""
        histogram = self.baseline.time_per_output_token_seconds
        if histogram is None and self.step_times is None:
            return None
        return DecodingBaseline(
            mean_seconds=histogram.mean if histogram else None,
            requests=histogram.count if histogram else 0.0,
            times=histogram,
            mean_acceptance_length=self.mean_acceptance_length,
            speculative=self.baseline.speculates,
            model_name=model_name,
            step_times=self.step_times,
            seconds=self.baseline.duration_seconds,
            generation_tokens=self.baseline.counts.generation_tokens,
            mean_prompt_tokens=self.baseline.mean_prompt_tokens,
            cached_prompt_ratio=self.baseline.counts.cached_prompt_ratio,
        )

    @property
    def mean_acceptance_length(self) -> float | None:
        """1 + accepted tokens / drafts."""
        return mean_acceptance_length(self.baseline.counts.accepted_tokens, self.baseline.counts.drafts)


def _differ(recorded: str | None, runs: str | None) -> bool:
    """Whether the two differ; not if either is unknown."""
    return bool(recorded and runs) and recorded != runs


async def compare_with(
    baseline: Baseline, url: str, timeout_seconds: float, access: Access = SYSTEM_TRUST
) -> tuple[str, ...]:
    """Return how the predictor at ``url`` differs. Raises :class:`BaselineError` if the baseline does not fit."""
    async with open_session() as session:
        fetcher = MetricsFetcher(session, url, access=access)
        snapshot = await fetcher.fetch(timeout_seconds)
        version = await fetcher.version(timeout_seconds) if snapshot.is_vllm else None
    if not snapshot.engines:
        raise BaselineError("the predictor's metrics show no engine")
    fitting = fit(baseline, snapshot, version)
    if fitting.refusal is not None:
        raise BaselineError(f"{baseline.name} does not fit: {fitting.refusal}")
    return fitting.differences


def fit(baseline: Baseline, snapshot: Snapshot, vllm_version: str | None) -> Fit:
    """Decide whether ``baseline`` fits the model that this predictor serves. ``snapshot`` has at least one engine."""
    names = sorted({engine.model_name for engine in snapshot.engines})
    shown = ", ".join(names)
    model = baseline.model_name
    if model is None and len(names) == 1:
        model = names[0]
    if model is None:
        return Fit(None, f"it has no model_name, and the predictor serves several: {shown}")
    if model not in names:
        return Fit(None, f"it is of model {model!r}, the predictor serves {shown}")
    engine = snapshot.inference_engine or VLLM
    if baseline.engine is not engine:  # each has its own meaning of a step and of a latency
        return Fit(None, f"it is of {baseline.engine.name}, the predictor runs {engine.name}")
    differences = []
    if _differ(baseline.vllm_version, vllm_version):
        differences.append(f"recorded with vLLM {baseline.vllm_version}, now it is {vllm_version}")
    for sli, histogram in baseline.histograms():
        histograms = [getattr(engine, HISTOGRAMS[sli]) for engine in snapshot.engines if engine.model_name == model]
        if any(now is not None and now.bounds != histogram.bounds for now in histograms):
            differences.append(f"{sli} was recorded in other buckets: only boundaries of both can be compared")
    return Fit(model, None, tuple(differences))
