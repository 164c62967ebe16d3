"""State -> metric families. Which family shows what stands in :mod:`.families`; nothing is computed here."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from typing import Any, NamedTuple, TypeVar

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.platform_collector import PlatformCollector
from prometheus_client.process_collector import ProcessCollector
from prometheus_client.registry import Collector

from specdec_exporter.histogram import Histogram
from specdec_exporter.serving.families.baseline import BASELINE, BASELINE_LOAD
from specdec_exporter.serving.families.benefit import BENEFIT, LOAD, POLICY
from specdec_exporter.serving.families.counts import COPIED, DRAFTS
from specdec_exporter.serving.families.derived import DERIVED, WINDOWS
from specdec_exporter.serving.families.exporter import EXPORTER, SCRAPE
from specdec_exporter.serving.families.family import Group, help_text
from specdec_exporter.serving.families.log import LOG, PREDICTOR_LOG, READER
from specdec_exporter.serving.families.predictor import PREDICTOR, VERDICT
from specdec_exporter.serving.predictorruntime import PredictorRuntime
from specdec_exporter.serving.runtime import ExporterRuntime
from specdec_exporter.state.benefits import benefits_of, load_ratio_of
from specdec_exporter.state.record import PredictorState
from specdec_exporter.state.view import (
    break_even_of,
    drafts_of,
    engines_of,
    log_engines_of,
    said_of,
    state_name,
    window_of,
)

# Without `_created`: every counter of ours begins with this process, whose start time the process collector shows once.
_METRICS = {"counter": CounterMetricFamily, "gauge": GaugeMetricFamily, "histogram": HistogramMetricFamily}
S = TypeVar("S")


class SpecdecCollector(Collector):
    """Everything about the predictors, from one consistent look at their states, and about this process."""

    def __init__(self, runtime: ExporterRuntime) -> None:
        self._runtime = runtime
        self._window = f"{runtime.settings.window:g} s"
        self._process = CollectorRegistry(auto_describe=False)
        if not runtime.settings.web.disable_exporter_metrics:
            ProcessCollector(registry=self._process)
            PlatformCollector(registry=self._process)

    def collect(self, predictors: Sequence[PredictorRuntime] | None = None) -> Iterator[Metric]:
        """Return the families in a fixed order, leaving out those without a sample.

        ``predictors`` are those that were fetched for this; by default those of the configuration.
        The states are looked at here and now. The metrics are made as they are wanted, so another thread may do that.
        """
        shown_predictors = self._runtime.predictors if predictors is None else predictors
        families = [*of_predictors(shown_predictors, self._window), *shown(EXPORTER, [([], self._runtime)])]
        return chain(filter(None, map(_metric, families)), self._process.collect())


Subjects = list[tuple[list[str], Any]]
"""What a group's families are about, each with the values of its labels."""


def of_predictors(predictors: Sequence[PredictorRuntime], window: str) -> Iterator[FamilyValues]:
    """Return the families about predictors, from one consistent look at their states."""
    for same in zip(*map(_groups, predictors), strict=True):
        group = same[0][0]
        yield from shown(group, [subject for _, subjects in same for subject in subjects], window)


def _groups(predictor: PredictorRuntime) -> list[tuple[Group[Any], Subjects]]:
    """Return what there is to show of one predictor, always in the same order of groups."""
    state = predictor.state
    service = [state.name]
    logged = [state.name, next(iter(state.model_names), "")]  # a log's lines name no model
    engines = [([state.name, view.model_name, view.engine], view) for view in engines_of(state)]
    benefits = [([state.name, model], benefit) for model, benefit in benefits_of(state)]
    verdict = said_of(state).shown.code
    states = [(labels, (state, view.state)) for labels, view in engines] or [
        ([*logged, ""], (state, state_name(state)))
    ]
    return [
        (DRAFTS, [([state.name, *key], counts) for key, counts in drafts_of(state).items()]),
        (COPIED, [(labels, view.snapshot) for labels, view in engines if view.snapshot]),
        (DERIVED, [(labels, view.window) for labels, view in engines if view.window]),
        (WINDOWS, [*engines]),
        (LOG, [([*logged, engine], totals) for engine, totals in log_engines_of(state)]),
        (PREDICTOR, [*states]),
        (PREDICTOR_LOG, [([*logged, ""], state)]),
        (VERDICT, [([state.name, model], verdict) for model in state.model_names or ("",)]),
        (POLICY, _assumed(state)),
        (BENEFIT, [*benefits]),
        (LOAD, [*benefits]),
        (BASELINE, _baseline(state, state.pinned)),
        (BASELINE_LOAD, _baseline(state, load_ratio_of(state))),
        (SCRAPE, [(service, predictor)]),
        (READER, [(service, state.reader)] if state.reader else []),
    ]


def _baseline(state: PredictorState, subject: object) -> Subjects:
    """What is about the baseline, for the model that it is served for."""
    return [] if state.fit.model_name is None else [([state.name, state.fit.model_name], subject)]


def _assumed(state: PredictorState) -> Subjects:
    """The assumed break-even of all engines; nothing without drafts, because an idle replica has no load."""
    if (window := window_of(state)) is None or not window.drafted:
        return []
    assumed = break_even_of(state)
    return [([state.name, model], assumed) for model in state.model_names or ("",)]


def shown(group: Group[S], subjects: Sequence[tuple[list[str], S]], window: str = "") -> Iterator[FamilyValues]:
    """The families of a group with the values of the subjects; each subject comes with its labels' values."""
    for family in group.families:
        values = [(labels, value) for labels, subject in subjects if (value := family.value(subject)) is not None]
        if values:
            text = help_text(group, family, window)
            yield FamilyValues(family.type, family.name, text, (*group.labels, *family.labels), values)


class FamilyValues(NamedTuple):
    """One family as it was when it was looked at."""

    type: str
    name: str
    help: str
    labels: tuple[str, ...]
    values: list[tuple[list[str], float | Histogram | Mapping[Any, float] | Mapping[Any, Histogram]]]


def _metric(family: FamilyValues) -> Metric | None:
    metric = _METRICS[family.type](family.name, family.help, labels=family.labels)
    for labels, value in family.values:
        if isinstance(value, Mapping):
            for key, part in value.items():
                _add(metric, [*labels, *(key if isinstance(key, tuple) else (str(key),))], part)
        else:
            _add(metric, labels, value)
    return metric if metric.samples else None


def _add(metric: Any, labels: list[str], value: float | Histogram) -> None:
    if isinstance(value, Histogram):
        metric.add_metric(labels, value.buckets(), value.sum)
    else:
        metric.add_metric(labels, value)
