"""The samples of one body -> the engines of a snapshot, within bounds. Pure."""

from __future__ import annotations

import math
import operator
import re
from collections import Counter
from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from functools import lru_cache
from typing import Any

from msgspec.structs import replace

from specdec_exporter import bounds
from specdec_exporter.formatting import plain
from specdec_exporter.histogram import Histogram
from specdec_exporter.predictor.engines.engine import InferenceEngine
from specdec_exporter.predictor.metrics.families import COUNTED, GAUGES, SCALARS, SPECULATOR, Meaning, Shape
from specdec_exporter.predictor.metrics.snapshot import OF_DRAFTS, EngineSnapshot, Speculator
from specdec_exporter.predictor.versions import canonical_method

EngineKey = tuple[str, str]  # model_name and engine, as :func:`formatting.plain` shows them
# Identifies a value within its figure: a bucket's bound (float), a draft position (int), a finished reason or one of
# the words "", "sum" and "count" (str). None if the label is missing or makes no sense.
Key = float | int | str | None

_MOST_TOLD_APART = 16 * bounds.ENGINES  # further engines beyond the bound are not told apart
_POSITION = re.compile(r"[0-9]{1,4}")
_WHOLE = re.compile(r"[0-9]{1,15}")
_WHOLE_HISTOGRAM = frozenset({math.inf, "sum", "count"})

# Field, rank of its name, shape, and which part of the figure. In this order, the best name of a field comes first.
_Figure = tuple[str, int, Shape, tuple[str, ...]]


class EngineReader:
    """Takes in the samples of one body, of up to ``most_engines`` engines; ``known`` ones keep their place.

    A NaN, a negative number and one above :data:`bounds.COUNT` (above 1 for a ratio) give no figure; neither does a map
    or histogram that holds one. If a series appears twice with equal values, it counts once; with different values, it
    does not count. Of two engines that :func:`formatting.plain` makes the same, the first of the body counts.
    ``dropped`` counts what is left out: ``engines``, single ``series``, ``positions`` and ``labels``, unusable
    ``values``, and ``histograms`` with too many buckets. ``unusable``: what reads as no counter can, by field.
    """

    def __init__(self, engine: InferenceEngine, most_engines: int, known: AbstractSet[EngineKey]) -> None:
        self._engine = engine
        self._model_label = engine.labels.get("model_name", "model_name")
        self._engine_label = engine.labels.get("engine", "engine")
        self.engine_labels = False  # a sample names its engine
        self.speculator = Speculator()
        self.dropped: Counter[str] = Counter()
        self.unusable: dict[str, str] = {}
        self._most = most_engines
        self._known = known
        self._figures: dict[EngineKey, dict[_Figure, dict[Key, float]]] = {}
        self._spelled: dict[EngineKey, tuple[str, str]] = {}  # in the body
        self._capacities: dict[str, tuple[str, float]] = {}  # of KV caches: field and tokens by engine
        self._series: Counter[EngineKey] = Counter()
        self._new = 0  # engines
        self._infos = 0
        self._others: set[EngineKey] = set()  # without a place

    def add(self, sample: str, meaning: Meaning, labels: Mapping[str, str], value: float) -> None:
        """Take in one sample; ``sample`` is its name."""
        self.engine_labels |= self._engine_label in labels
        engine = labels.get(self._engine_label, "0")  # vLLM before 0.8.3, and V0: one engine, without the label
        if meaning.field == SPECULATOR:
            self.speculator = _speculator(self._engine, labels)
            return
        if meaning.shape == "info":
            if self._admits_info(engine) and (capacity := _capacity(labels)) is not None:
                self._capacities.setdefault(plain(engine), capacity)
            return
        spelled, key = (labels.get(self._model_label, ""), engine), _key(meaning, labels)
        name = plain(spelled[0]), plain(engine)
        if not self._admits(name, spelled, key):
            return
        figures, number = self._figures.setdefault(name, {}), _number(value)
        if not number <= bounds.COUNT and meaning.field in COUNTED:
            self.unusable.setdefault(meaning.field, f"{sample} {_why_unusable(value, number)}")
        part = self._part(meaning, labels)
        _put(figures, meaning, part, key, number)
        if meaning.also is not None:
            _put(figures, meaning.also, part, key, number)

    def _part(self, meaning: Meaning, labels: Mapping[str, str]) -> tuple[str, ...] | None:
        """Return which part of its figure a sample is of; ``None`` where an engine tells no parts."""
        if (gauges_by := self._engine.gauges_by) is None:
            return None
        if meaning.field in GAUGES:
            return tuple(labels.get(label, "") for label in gauges_by)
        own = (self._model_label, self._engine_label, meaning.key_label)
        return tuple(f"{name}={value}" for name, value in sorted(labels.items()) if name not in own)

    def _admits(self, engine: EngineKey, spelled: tuple[str, str], key: Key) -> bool:
        """Whether a series of ``engine`` has a place so far; :meth:`engines` decides in the end."""
        texts = (*engine, key) if isinstance(key, str) else engine
        if max(map(len, texts)) > bounds.LABEL_CHARACTERS or self._spelled.get(engine, spelled) != spelled:
            what = "labels"
        elif isinstance(key, int) and key >= bounds.POSITIONS:
            what = "positions"
        elif engine not in self._series and not self._has_place(engine):
            return False
        elif self._series[engine] >= bounds.SERIES:
            what = "series"
        else:
            self._series[engine] += 1
            self._spelled[engine] = spelled
            return True
        self.dropped[what] += 1
        return False

    def _admits_info(self, engine: str) -> bool:
        """Whether an info series has a place: it is of an engine, whatever its models."""
        self._infos += 1
        if self._infos <= bounds.ENGINES and len(engine) <= bounds.LABEL_CHARACTERS:
            return True
        self.dropped["series"] += 1
        return False

    def _has_place(self, engine: EngineKey) -> bool:
        if engine in self._known:
            return True
        if self._new < self._most:
            self._new += 1
            return True
        if len(self._others) < _MOST_TOLD_APART:
            self._others.add(engine)
        return False

    def engines(self) -> tuple[EngineSnapshot, ...]:
        """Return the engines that stay: the known ones, then the others in the body's order."""
        ordered = sorted(self._series, key=lambda engine: engine not in self._known)
        if left_out := len(ordered[self._most :]) + len(self._others):
            self.dropped["engines"] += left_out
        return tuple(
            EngineSnapshot(
                model_name=name[0],
                engine=name[1],
                **self._capacity_of(name[1]),
                **self._told(self._derived(_read(self._figures[name], self.dropped))),
            )
            for name in sorted(ordered[: self._most])
        )

    def _told(self, figures: dict[str, Any]) -> dict[str, Any]:
        """Return the figures without k, which is one for all engines."""
        if 0 < (k := figures.pop("num_speculative_tokens", None) or 0) <= bounds.POSITIONS:
            self.speculator = replace(self.speculator, num_speculative_tokens=int(k))
        return figures

    def _derived(self, figures: dict[str, Any]) -> dict[str, Any]:
        """Return the figures of an engine with those that follow from others, without counters that prove nothing."""
        if self._engine.counts_without_speculation and not figures.get("drafts"):
            return {field: value for field, value in figures.items() if field not in OF_DRAFTS}
        return figures if self._engine.derived is None else _DERIVED[self._engine.derived](figures)

    def _capacity_of(self, engine: str) -> dict[str, Any]:
        """Return the KV cache of an engine. vLLM sums the blocks of all engines of a process."""
        if engine not in self._capacities:
            return {}
        field, tokens = self._capacities[engine]
        return {field: tokens / len(self._capacities) if field == "kv_cache_block_tokens" else tokens}


def _put(
    figures: dict[_Figure, dict[Key, float]], meaning: Meaning, part: tuple[str, ...] | None, key: Key, value: float
) -> None:
    figure = figures.setdefault((meaning.field, meaning.rank, meaning.shape, part or ()), {})
    before = figure.get(key, value)
    if before != value:  # ranks publish the same gauge, not at the same moment
        value = max(before, value) if part is not None and meaning.field in GAUGES else math.nan
    figure[key] = value


def _number(value: float) -> float:
    """Return a count or a ratio, or NaN; infinity for what is beyond. The parser gives whole numbers of any length."""
    try:
        number = float(value)
    except OverflowError:
        return math.inf
    return math.inf if number < 0 or number > bounds.COUNT else number


def _why_unusable(value: float, number: float) -> str:
    if math.isnan(number):
        return "is NaN"
    return "is negative" if value < 0 else "is infinite, or too large for a count"


def _key(meaning: Meaning, labels: Mapping[str, str]) -> Key:
    if meaning.key_label is None:
        return meaning.key
    text = labels.get(meaning.key_label)
    if text is None or meaning.key_label == "finished_reason":
        return None if text is None else plain(text)
    if meaning.shape == "histogram":
        try:
            bound = float(text)
        except ValueError:
            return None
        return None if math.isnan(bound) else bound
    return int(text) if _POSITION.fullmatch(text) else None


def _by_position(figures: dict[str, Any]) -> dict[str, Any]:
    drafted: Mapping[int, float] | None = figures.get("draft_tokens_per_position")
    if not drafted:
        return figures
    accepted = dict.fromkeys(drafted, 0.0) | figures.get("accepted_tokens_per_position", {})
    return figures | {
        "drafts": drafted.get(0, 0.0),
        "draft_tokens": sum(drafted.values()),
        "accepted_tokens": sum(accepted.values()),
        "accepted_tokens_per_position": accepted,
    }


def _accepted_by_position(figures: dict[str, Any]) -> dict[str, Any]:
    accepted = figures.get("accepted_tokens_per_position")
    return figures | {"accepted_tokens": sum(accepted.values())} if accepted else figures


def _from_generation(figures: dict[str, Any]) -> dict[str, Any]:
    drafts, generated, requests = (figures.get(field) for field in ("drafts", "generation_tokens", "requests_finished"))
    if drafts is None or generated is None or requests is None:
        return figures
    return figures | {"accepted_tokens": max(generated - sum(requests.values()) - drafts, 0.0)}


_DERIVED = {
    "by_position": _by_position,
    "accepted_by_position": _accepted_by_position,
    "from_generation": _from_generation,
}


def _speculator(engine: InferenceEngine, labels: Mapping[str, str]) -> Speculator:
    """Return what the labels of the engine's info tell of what drafts, within bounds."""
    if (told := engine.speculator) is None:
        return Speculator()
    method, draft_model, k = (
        text if len(text := plain(labels.get(label, ""))) <= bounds.LABEL_CHARACTERS else ""
        for label in (told.method, told.draft_model, told.num_speculative_tokens)
    )
    return Speculator(
        method=canonical_method(method.lower()) or None,
        draft_model=draft_model or None,
        num_speculative_tokens=int(k) or None if _POSITION.fullmatch(k) else None,
    )


def _capacity(labels: Mapping[str, str]) -> tuple[str, float] | None:
    """Return field and tokens of a KV cache; releases before 0.24.0 only tell its blocks."""
    tokens, blocks, size = (
        int(text) if _WHOLE.fullmatch(text := labels.get(name, "")) else 0
        for name in ("kv_cache_size_tokens", "num_gpu_blocks", "block_size")
    )
    field, found = ("kv_cache_tokens", tokens) if tokens else ("kv_cache_block_tokens", blocks * size)
    return (field, float(found)) if 0 < found <= bounds.COUNT else None


def _read(figures: Mapping[_Figure, Mapping[Key, float]], dropped: Counter[str]) -> dict[str, Any]:
    """Return an engine's figures by field, and count those that are left out."""
    found: dict[str, Any] = {}
    ranks: dict[str, int] = {}
    for (field, rank, shape, _), values in sorted(figures.items()):
        if shape == "histogram" and len(values) > bounds.BUCKETS + 2:  # with sum and count
            dropped["histograms"] += 1
            continue
        if None in values or (shape == "histogram" and not values.keys() >= _WHOLE_HISTOGRAM):
            continue
        value = _FIGURES[shape](field, values)
        if value is None:
            # A gauge without a value yet reads NaN.
            if shape != "scalar" or field in SCALARS or not math.isnan(values[""]):
                dropped["values"] += 1
        elif ranks.setdefault(field, rank) == rank:  # else a better name gave it
            found[field] = _joined(field, found[field], value) if field in found else value
    return found


# Gauges whose parts are alike, or of which the largest matters.
_NOT_SUMMED = frozenset(
    {"num_speculative_tokens", "interval_acceptance_length", "kv_cache_usage_ratio", "draft_overhead_ratio"}
)


def _joined(field: str, one: Any, other: Any) -> Any:
    """Return a figure of two parts."""
    if field in _NOT_SUMMED:
        return max(one, other)
    if isinstance(one, dict):
        return {key: one.get(key, 0.0) + other.get(key, 0.0) for key in sorted(one | other)}
    if isinstance(one, Histogram) and one.bounds != other.bounds:
        return one
    return one + other


def _scalar(field: str, values: Mapping[Key, float]) -> float | None:
    return values[""] if values[""] <= (1 if field.endswith("_ratio") else bounds.COUNT) else None


def _map(_field: str, values: Mapping[Key, float]) -> dict[Key, float] | None:
    usable = all(number <= bounds.COUNT for number in values.values())
    return dict(sorted(values.items())) if usable else None


def _histogram(_field: str, values: Mapping[Key, float]) -> Histogram | None:
    limits = tuple(sorted(key for key in values if isinstance(key, float)))
    counts = tuple(values[limit] for limit in limits)
    total = values["sum"]
    usable = counts[-1] == values["count"] <= bounds.COUNT and total <= bounds.COUNT
    rising = all(map(operator.le, counts, counts[1:]))
    return Histogram(_shared(limits), counts, total) if usable and rising else None


@lru_cache(maxsize=64)
def _shared(limits: tuple[float, ...]) -> tuple[float, ...]:
    """Return one object for equal bounds: the samples of a window keep those of every engine."""
    return limits


_FIGURES = {"scalar": _scalar, "map": _map, "histogram": _histogram}
