"""State -> metric families. Values are shown, not computed, here.

HELP texts name the source of each series. No family has a name in common with the predictor's own, so that both
expositions survive being concatenated by a proxy in the pod.
"""

from __future__ import annotations

import platform
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.platform_collector import PlatformCollector
from prometheus_client.process_collector import ProcessCollector
from prometheus_client.registry import Collector

from specdec_exporter import __version__
from specdec_exporter.histogram import Histogram
from specdec_exporter.predictor.metrics.snapshot import EngineSnapshot
from specdec_exporter.predictor.versions import WARNINGS
from specdec_exporter.serving.baselines import baseline_families
from specdec_exporter.serving.state import EngineView, PredictorState
from specdec_exporter.speculation.figures import Figures
from specdec_exporter.speculation.verdict import StateName

if TYPE_CHECKING:
    from specdec_exporter.serving.runtime import ExporterRuntime, PredictorRuntime

ENGINE = ("inference_service", "model_name", "engine")
MODEL = ("inference_service", "model_name")
SERVICE = ("inference_service",)
STATES: tuple[StateName, ...] = (
    "unreachable",
    "stats_disabled",
    "speculation_off",
    "idle",
    "not_drafting",
    "drafting",
)

Value = Callable[[EngineSnapshot], float | None]

_COPIED = "copied from the predictor's"
_V0 = " On a V0 engine a sum of lifetime totals, of which only ratios mean something, and those are lifetime ones."

COPIED_COUNTERS: tuple[tuple[str, str, Value], ...] = (
    ("specdec_drafts", f"Drafts; {_COPIED} spec_decode_num_drafts_total.", lambda e: e.drafts),
    (
        "specdec_draft_tokens",
        f"Draft tokens proposed; {_COPIED} spec_decode_num_draft_tokens_total.{_V0}",
        lambda e: e.draft_tokens,
    ),
    (
        "specdec_accepted_tokens",
        f"Draft tokens accepted by the target; {_COPIED} spec_decode_num_accepted_tokens_total.{_V0}",
        lambda e: e.accepted_tokens,
    ),
    (
        "specdec_generation_tokens",
        f"Tokens generated; {_COPIED} generation_tokens_total (a V0 engine counts steps here).",
        lambda e: e.generation_tokens,
    ),
    ("specdec_prompt_tokens", f"Prompt tokens processed; {_COPIED} prompt_tokens_total.", lambda e: e.prompt_tokens),
    ("specdec_preemptions", f"Requests preempted; {_COPIED} num_preemptions_total.", lambda e: e.preemptions),
)
COPIED_GAUGES: tuple[tuple[str, str, Value], ...] = (
    ("specdec_requests_running", f"Requests running; {_COPIED} num_requests_running.", lambda e: e.requests_running),
    ("specdec_requests_waiting", f"Requests waiting; {_COPIED} num_requests_waiting.", lambda e: e.requests_waiting),
    (
        "specdec_kv_cache_usage_ratio",
        f"Share of the KV cache in use; {_COPIED} kv_cache_usage_perc or gpu_cache_usage_perc.",
        lambda e: e.kv_cache_usage_ratio,
    ),
)
COPIED_HISTOGRAMS: tuple[tuple[str, str, Callable[[EngineSnapshot], Histogram | None]], ...] = (
    (
        "specdec_time_to_first_token_seconds",
        f"Time to first token per request; {_COPIED} time_to_first_token_seconds.",
        lambda e: e.time_to_first_token,
    ),
    (
        "specdec_time_per_output_token_seconds",
        f"Decode time / (tokens - 1) per finished request; {_COPIED} request_time_per_output_token_seconds.",
        lambda e: e.time_per_output_token,
    ),
    (
        "specdec_step_latency_seconds",
        f"Per engine step of a request, not per token; {_COPIED} inter_token_latency_seconds (older name understood).",
        lambda e: e.step_latency,
    ),
    (
        "specdec_request_latency_seconds",
        f"End-to-end latency per finished request; {_COPIED} e2e_request_latency_seconds.",
        lambda e: e.request_latency,
    ),
    (
        "specdec_request_decode_seconds",
        f"Time in decode per finished request; {_COPIED} request_decode_time_seconds.",
        lambda e: e.request_decode,
    ),
)


class SpecdecCollector(Collector):
    """Everything about the predictors, from one consistent look at their states."""

    def __init__(self, runtime: ExporterRuntime) -> None:
        self._runtime = runtime

    def describe(self) -> Iterable[Metric]:
        """Nothing: registering must not collect."""
        return ()

    def collect(self) -> Iterator[Metric]:
        """Yield the families in a fixed order, leaving out those without a sample."""
        predictors = self._runtime.predictors
        engines = [(predictor.state, view) for predictor in predictors for view in predictor.state.engines()]
        families = (
            *_copied(engines),
            *_derived(engines, self._runtime.settings.window),
            *_from_log([predictor.state for predictor in predictors]),
            *_about_predictors([predictor.state for predictor in predictors], engines),
            *baseline_families([(each.state.name, each.pinned) for each in predictors if each.pinned], MODEL),
            *_about_scrapes(predictors),
            *_about_log_readers(predictors),
        )
        yield from (family for family in families if family.samples)
        yield from _about_exporter(self._runtime)


def build_registry(runtime: ExporterRuntime) -> CollectorRegistry:
    """Return a registry of our own: the predictors' families and, unless switched off, those of this process."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(SpecdecCollector(runtime))
    if not runtime.settings.web.disable_exporter_metrics:
        ProcessCollector(registry=registry)
        PlatformCollector(registry=registry)
    return registry


Engines = list[tuple[PredictorState, EngineView]]


def _labels(state: PredictorState, view: EngineView) -> list[str]:
    return [state.name, view.model_name, view.engine]


def _copied(engines: Engines) -> Iterator[Metric]:
    for family_type, table in ((CounterMetricFamily, COPIED_COUNTERS), (GaugeMetricFamily, COPIED_GAUGES)):
        for name, text, value in table:
            family = family_type(name, text, labels=ENGINE)
            for state, view in engines:
                if view.snapshot is not None and (figure := value(view.snapshot)) is not None:
                    family.add_metric(_labels(state, view), figure)
            yield family
    yield _copied_by_label(
        engines,
        "specdec_accepted_tokens_per_position",
        f"Accepted draft tokens by position, 0-based; {_COPIED} spec_decode_num_accepted_tokens_per_pos_total.",
        "position",
        lambda e: sorted((e.accepted_tokens_per_position or {}).items()),
    )
    yield _copied_by_label(
        engines,
        "specdec_requests_finished",
        f"Requests finished, by reason; {_COPIED} request_success_total. A client that goes away counts nowhere.",
        "finished_reason",
        lambda e: list((e.requests_finished or {}).items()),
    )
    for name, text, pick in COPIED_HISTOGRAMS:
        histogram = HistogramMetricFamily(name, text, labels=ENGINE)
        for state, view in engines:
            if view.snapshot is not None and (found := pick(view.snapshot)) is not None:
                histogram.add_metric(_labels(state, view), found.buckets(), found.sum)
        yield histogram


def _copied_by_label(
    engines: Engines,
    name: str,
    text: str,
    label: str,
    items: Callable[[EngineSnapshot], Sequence[tuple[object, float]]],
) -> Metric:
    family = CounterMetricFamily(name, text, labels=(*ENGINE, label))
    for state, view in engines:
        for key, figure in items(view.snapshot) if view.snapshot else ():
            family.add_metric([*_labels(state, view), str(key)], figure)
    return family


DERIVED: tuple[tuple[str, str, Callable[[Figures], float | None]], ...] = (
    ("specdec_acceptance_ratio", "Accepted draft tokens / draft tokens", lambda f: f.acceptance_ratio),
    (
        "specdec_mean_acceptance_length",
        "1 + accepted tokens / drafts, the bonus token included",
        lambda f: f.mean_acceptance_length,
    ),
    (
        "specdec_mean_draft_length",
        "Draft tokens / drafts; below k some drafts are short",
        lambda f: f.mean_draft_length,
    ),
    (
        "specdec_tokens_per_step",
        "(Generation tokens - requests) / request-steps, steps without a draft included",
        lambda f: f.tokens_per_step,
    ),
)
DERIVED_BY_POSITION: tuple[tuple[str, str, Callable[[Figures], Sequence[float | None]]], ...] = (
    ("specdec_position_acceptance_ratio", "Accepted at the position / drafts", lambda f: f.per_position),
    (
        "specdec_position_conditional_acceptance_ratio",
        "Accepted at the position / accepted at the one before; exact only when no draft is shorter than k",
        lambda f: f.conditional,
    ),
)


def _derived(engines: Engines, window_seconds: float) -> Iterator[Metric]:
    span = (
        f"over the last {window_seconds:g} s by the exporter's clock, from the predictor's metrics (V0 engine: its "
        "log, else its lifetime); for people, rules use the counters."
    )
    for name, text, value in DERIVED:
        gauge = GaugeMetricFamily(name, f"{text}, {span}", labels=ENGINE)
        for state, view in engines:
            if view.window is not None and (figure := value(view.window)) is not None:
                gauge.add_metric(_labels(state, view), figure)
        yield gauge
    for name, text, values in DERIVED_BY_POSITION:
        gauge = GaugeMetricFamily(name, f"{text}, {span}", labels=(*ENGINE, "position"))
        for state, view in engines:
            for position, figure in enumerate(values(view.window) if view.window else ()):
                if figure is not None:
                    gauge.add_metric([*_labels(state, view), str(position)], figure)
        yield gauge
    histogram = HistogramMetricFamily(
        "specdec_window_acceptance_ratio",
        "Acceptance of short windows with enough drafts, for P10, P50 and P90; the windows are the exporter's, from "
        "one scrape to the next and at least as long as short_window_seconds of its policy.",
        labels=ENGINE,
    )
    for state, view in engines:
        if view.ratios is not None:
            histogram.add_metric(_labels(state, view), view.ratios.histogram.buckets(), view.ratios.sum)
    yield histogram
    recommended = GaugeMetricFamily(
        "specdec_recommended_num_speculative_tokens",
        f"K with the best expected speed-up by the measured curve and the method's break-even, 0 is off, {span}",
        labels=ENGINE,
    )
    for state, view in engines:
        if view.recommended_num_speculative_tokens is not None:
            recommended.add_metric(_labels(state, view), view.recommended_num_speculative_tokens)
    yield recommended


def _from_log(states: Sequence[PredictorState]) -> Iterator[Metric]:
    drafts = "reconstructed from the line's rounded ratios; exact where every draft has k tokens."
    families = (
        CounterMetricFamily("specdec_log_windows", "Periodic spec-decode lines read from the log.", labels=ENGINE),
        CounterMetricFamily(
            "specdec_log_draft_tokens", "Draft tokens, summed from the log's spec-decode lines.", labels=ENGINE
        ),
        CounterMetricFamily(
            "specdec_log_accepted_tokens",
            "Accepted draft tokens, summed from the log's spec-decode lines.",
            labels=ENGINE,
        ),
        CounterMetricFamily("specdec_log_drafts", f"Drafts by the log's spec-decode lines, {drafts}", labels=ENGINE),
    )
    positions = CounterMetricFamily(
        "specdec_log_accepted_tokens_per_position",
        f"Accepted draft tokens by position, 0-based, by the log's spec-decode lines, {drafts}",
        labels=(*ENGINE, "position"),
    )
    for state in states:
        for engine, totals in state.log_engines():
            labels = [state.name, state.log_model_name, engine]
            values = (totals.windows, totals.draft_tokens, totals.accepted_tokens, totals.drafts)
            for family, value in zip(families, values, strict=True):
                family.add_metric(labels, value)
            for position, count in enumerate(totals.accepted_per_position):
                positions.add_metric([*labels, str(position)], count)
    yield from families
    yield positions


def _about_predictors(states: Sequence[PredictorState], engines: Engines) -> Iterator[Metric]:
    info = GaugeMetricFamily(
        "specdec_predictor_info",
        "What the predictor runs: release and engine generation, and method and draft model from the log's engine-init "
        "line (empty until it was seen).",
        labels=(*ENGINE, "vllm_version", "engine_generation", "method", "draft_model"),
    )
    k = GaugeMetricFamily(
        "specdec_num_speculative_tokens",
        "K: draft tokens per draft at most, from the log's engine-init line, else the number of positions seen.",
        labels=ENGINE,
    )
    states_family = GaugeMetricFamily(
        "specdec_predictor_state",
        "1 for the state the predictor is in, 0 for the others.",
        labels=(*ENGINE, "state"),
    )
    warnings = CounterMetricFamily(
        "specdec_predictor_warnings",
        "Lines of the predictor's log that are known warnings about speculation, by code.",
        labels=(*MODEL, "engine", "warning"),
    )
    temperatures = HistogramMetricFamily(
        "specdec_request_temperature",
        "Sampling temperature of the requests that the predictor's log shows (--enable-log-requests); 0 is greedy.",
        labels=ENGINE,
    )
    minimum = GaugeMetricFamily(
        "specdec_policy_acceptance_ratio_min",
        "Acceptance below which speculation does not break even with this method, by the exporter's policy.",
        labels=MODEL,
    )
    length = GaugeMetricFamily(
        "specdec_policy_mean_acceptance_length_min",
        "Mean acceptance length below which speculation does not break even: 1 + mean draft length (k while that is "
        "not known) times the acceptance minimum of the method.",
        labels=MODEL,
    )
    for state in states:
        views = [view for owner, view in engines if owner is state]
        places = [(view.model_name, view.engine, view.state) for view in views] or [
            (state.log_model_name, "", state.state)
        ]
        for model_name, engine, current in places:
            labels = [state.name, model_name, engine]
            facts = (state.vllm_version, state.engine_generation, state.method, state.draft_model)
            if any(facts):
                info.add_metric([*labels, *(fact or "" for fact in facts)], 1)
            if state.num_speculative_tokens is not None:
                k.add_metric(labels, state.num_speculative_tokens)
            for name in STATES:
                states_family.add_metric([*labels, name], float(name == current))
        if state.reader is not None:
            for code in WARNINGS:
                warnings.add_metric([state.name, state.log_model_name, "", code], state.warnings[code])
        if (observed := state.temperatures) is not None:
            labels = [state.name, state.log_model_name, ""]
            temperatures.add_metric(labels, observed.histogram.buckets(), observed.sum)
        for model_name in state.model_names:
            minimum.add_metric([state.name, model_name], state.resolved_policy.acceptance_ratio_min)
            if state.mean_acceptance_length_min is not None:
                length.add_metric([state.name, model_name], state.mean_acceptance_length_min)
    yield from (info, k, states_family, warnings, temperatures, minimum, length)


def _about_scrapes(predictors: Sequence[PredictorRuntime]) -> Iterator[Metric]:
    up = GaugeMetricFamily(
        "specdec_up", "1 if this scrape's fetch of the predictor's metrics succeeded, else 0.", labels=SERVICE
    )
    duration = GaugeMetricFamily(
        "specdec_scrape_collector_duration_seconds",
        "Time the last fetch of the metrics, or the last round of log reading, took.",
        labels=(*SERVICE, "collector"),
    )
    success = GaugeMetricFamily(
        "specdec_scrape_collector_success",
        "Whether the last fetch of the metrics, or the last round of log reading, succeeded.",
        labels=(*SERVICE, "collector"),
    )
    for predictor in predictors:
        name = predictor.state.name
        up.add_metric([name], float(predictor.state.up))
        for collector, health in (("metrics", predictor.metrics_health), ("log", predictor.log_health)):
            if health is not None:
                duration.add_metric([name, collector], health.duration_seconds)
                success.add_metric([name, collector], float(health.success))
    yield from (up, duration, success)


READER: tuple[tuple[str, str], ...] = (
    ("lines", "Lines read from the predictor's log."),
    ("bytes", "Bytes read from the predictor's log."),
    ("matched_lines", "Lines that said something about speculation or the engine."),
    ("parse_errors", "Lines that were certainly of interest and could not be read."),
    ("rotations", "Log rotations followed."),
    ("truncations", "Log truncations noticed."),
    ("oversized_lines", "Lines skipped for their length."),
    ("read_errors", "Failures to open or read the log or to keep the read positions."),
)


def _about_log_readers(predictors: Sequence[PredictorRuntime]) -> Iterator[Metric]:
    counters = [
        (name, CounterMetricFamily(f"specdec_log_reader_{name}", text, labels=SERVICE)) for name, text in READER
    ]
    last = GaugeMetricFamily(
        "specdec_log_reader_last_line_timestamp_seconds",
        "When a line of the predictor's log was last read, Unix time.",
        labels=SERVICE,
    )
    behind = GaugeMetricFamily(
        "specdec_log_reader_bytes_behind", "Bytes of the predictor's log that are still to be read.", labels=SERVICE
    )
    for predictor in predictors:
        reader = predictor.state.reader
        if reader is None:
            continue
        labels = [predictor.state.name]
        for name, family in counters:
            family.add_metric(labels, getattr(reader, name))
        behind.add_metric(labels, reader.bytes_behind)
        if reader.last_line_timestamp is not None:
            last.add_metric(labels, reader.last_line_timestamp)
    yield from (family for _, family in counters)
    yield from (last, behind)


def _about_exporter(runtime: ExporterRuntime) -> Iterator[Metric]:
    build = GaugeMetricFamily(
        "specdec_exporter_build_info", "Release of the exporter and of its Python.", labels=("version", "pythonversion")
    )
    build.add_metric([__version__, platform.python_version()], 1)
    yield build
    yield GaugeMetricFamily(
        "specdec_exporter_config_last_reload_successful",
        "Whether the last load of the configuration succeeded; a bad file leaves the one before in force.",
        value=float(runtime.last_reload_successful),
    )
    yield GaugeMetricFamily(
        "specdec_exporter_config_last_reload_success_timestamp_seconds",
        "When the configuration was last loaded successfully, Unix time.",
        value=runtime.last_reload_success_timestamp,
    )
