"""State -> metric families. Which family shows what stands in :mod:`.families`; nothing is computed here."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.platform_collector import PlatformCollector
from prometheus_client.process_collector import ProcessCollector
from prometheus_client.registry import Collector

from specdec_exporter.histogram import Histogram
from specdec_exporter.serving import families
from specdec_exporter.serving.families import Group, help_text

if TYPE_CHECKING:
    from specdec_exporter.serving.runtime import ExporterRuntime, PredictorRuntime

_METRICS = {"counter": CounterMetricFamily, "gauge": GaugeMetricFamily, "histogram": HistogramMetricFamily}
S = TypeVar("S")


class SpecdecCollector(Collector):
    """Everything about the predictors, from one consistent look at their states."""

    def __init__(self, runtime: ExporterRuntime) -> None:
        self._runtime = runtime
        self._window = f"{runtime.settings.window:g} s"

    def describe(self) -> Iterable[Metric]:
        """Nothing: registering must not collect."""
        return ()

    def collect(self) -> Iterator[Metric]:
        """Return the families in a fixed order, leaving out those without a sample.

        The states are looked at here and now. The metrics are made as they are wanted, so another thread may do that.
        """
        predictors = self._runtime.predictors
        taken = of_predictors(predictors, self._window)
        taken += shown(families.EXPORTER, [([], self._runtime)])
        return filter(None, map(_metric, taken))


def of_predictors(predictors: Sequence[PredictorRuntime], window: str) -> list[Taken]:
    """Return the families about predictors, from one consistent look at their states."""
    of = partial(shown, window=window)
    states = [predictor.state for predictor in predictors]
    engines = [(each, [each.name, view.model_name, view.engine], view) for each in states for view in each.engines()]
    with_engines = {state.name for state, _, _ in engines}
    log_labels = {state.name: [state.name, state.log_model_name, ""] for state in states}
    benefits = [([state.name, model], benefit) for state in states for model, benefit in state.benefits()]
    pinned = [(each.state.name, each.pinned) for each in predictors if each.pinned is not None]
    return [
        *of(families.COPIED, [(labels, view.snapshot) for _, labels, view in engines if view.snapshot]),
        *of(families.DERIVED, [(labels, view.window) for _, labels, view in engines if view.window]),
        *of(families.WINDOWS, [(labels, view) for _, labels, view in engines]),
        *of(
            families.LOG,
            [
                ([state.name, state.log_model_name, engine], totals)
                for state in states
                for engine, totals in state.log_engines()
            ],
        ),
        *of(
            families.PREDICTOR,
            [
                *((labels, (state, view.state)) for state, labels, view in engines),
                *((log_labels[state.name], (state, state.state)) for state in states if state.name not in with_engines),
            ],
        ),
        *of(families.PREDICTOR_LOG, [(log_labels[state.name], state) for state in states]),
        *of(
            families.POLICY,
            [
                ([state.name, model], assumed)
                for state, assumed in [(each, each.assumed_break_even) for each in states]
                for model in state.model_names
            ],
        ),
        *of(families.BENEFIT, benefits),
        *of(families.LOAD, benefits),
        *of(
            families.BASELINE,
            [([name, each.fit.model_name], each) for name, each in pinned if each.fit.model_name is not None],
        ),
        *of(families.SCRAPE, [([each.state.name], each) for each in predictors]),
        *of(families.READER, [([state.name], state.reader) for state in states if state.reader]),
    ]


def shown(group: Group[S], subjects: Sequence[tuple[list[str], S]], window: str = "") -> Iterator[Taken]:
    """The families of a group with the values of the subjects; each subject comes with its labels' values."""
    for family in group.families:
        values = [(labels, value) for labels, subject in subjects if (value := family.value(subject)) is not None]
        if values:
            text = help_text(group, family, window)
            yield Taken(family.type, family.name, text, (*group.labels, *family.labels), values)


class Taken(NamedTuple):
    """One family as it was when it was looked at."""

    type: str
    name: str
    help: str
    labels: tuple[str, ...]
    values: list[tuple[list[str], float | Histogram | Mapping[Any, float] | Mapping[Any, Histogram]]]


def _metric(taken: Taken) -> Metric | None:
    metric = _METRICS[taken.type](taken.name, taken.help, labels=taken.labels)
    for labels, value in taken.values:
        if isinstance(value, Mapping):
            for key, one in value.items():
                _add(metric, [*labels, *(key if isinstance(key, tuple) else (str(key),))], one)
        else:
            _add(metric, labels, value)
    return metric if metric.samples else None


def _add(metric: Any, labels: list[str], value: float | Histogram) -> None:
    if isinstance(value, Histogram):
        metric.add_metric(labels, value.buckets(), value.sum)
    else:
        metric.add_metric(labels, value)


class _Both(Collector):
    """The predictors' families first: they are looked at when this is asked, and the others as they are wanted."""

    def __init__(self, predictors: Collector, process: CollectorRegistry) -> None:
        self._predictors = predictors
        self._process = process

    def collect(self) -> Iterator[Metric]:
        return chain(self._predictors.collect(), self._process.collect())


def build_registry(runtime: ExporterRuntime) -> Collector:
    """Return the predictors' families and, unless switched off, those of this process."""
    process = CollectorRegistry(auto_describe=False)
    if not runtime.settings.web.disable_exporter_metrics:
        ProcessCollector(registry=process)
        PlatformCollector(registry=process)
    return _Both(SpecdecCollector(runtime), process)
