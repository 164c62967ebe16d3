"""The samples of one body -> the engines of a snapshot. Pure."""

from __future__ import annotations

import math
import operator
import re
from collections import Counter
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from specdec_exporter import bounds
from specdec_exporter.formatting import plain
from specdec_exporter.histogram import Histogram
from specdec_exporter.predictor.metrics.admission import Admission, EngineKey, Key, shown
from specdec_exporter.predictor.metrics.families import SCALARS, Meaning, Shape
from specdec_exporter.predictor.metrics.snapshot import EngineSnapshot

_POSITION = re.compile(r"[0-9]{1,4}")
_WHOLE = re.compile(r"[0-9]{1,15}")

# Field, rank of its name, shape. In this order, the best name of a field comes first.
_Figure = tuple[str, int, Shape]


class EngineReader:
    """Takes in the samples of one body; ``admission`` leaves out what is beyond a bound.

    A NaN, a negative number and one above :data:`bounds.COUNT` (above 1 for a ratio) give no figure; neither does a map
    or histogram that holds one. If a series appears twice with equal values, it counts once; with different values, it
    does not count. Of two engines, or two reasons, that :func:`formatting.plain` makes the same, the first of the body
    counts.
    """

    def __init__(self, admission: Admission) -> None:
        self.engine_labels = False  # a sample has the label "engine"
        self._admission = admission
        self._figures: dict[EngineKey, dict[_Figure, dict[Key, float]]] = {}
        self._capacities: dict[str, tuple[str, float]] = {}  # of KV caches: field and tokens by engine

    def add(self, meaning: Meaning, labels: Mapping[str, str], value: float) -> None:
        """Take in one sample."""
        self.engine_labels |= "engine" in labels
        engine = labels.get("engine", "0")  # releases without the label (V0, and V1 before 0.8.3) run one engine
        if meaning.shape == "info":
            if self._admission.admits_info(engine) and (capacity := _capacity(labels)) is not None:
                self._capacities[engine] = capacity
            return
        name = labels.get("model_name", ""), engine
        key = _key(meaning, labels)
        if not self._admission.admits(name, key):
            return
        figure = self._figures.setdefault(name, {}).setdefault((meaning.field, meaning.rank, meaning.shape), {})
        value = _number(value)
        figure[key] = value if figure.get(key, value) == value else math.nan

    def engines(self) -> tuple[EngineSnapshot, ...]:
        """Return the engines that stay. ``dropped`` of the admission then also counts unusable ``values``,
        ``histograms`` with too many buckets, and ``labels`` that look like earlier ones.
        """
        dropped, kept = self._admission.dropped, self._admission.engines()
        found: dict[EngineKey, EngineSnapshot] = {}
        for spelled, figures in self._figures.items():
            if spelled not in kept:
                continue
            if (name := shown(spelled)) in found:
                dropped["labels"] += sum(map(len, figures.values()))
                continue
            model, engine = name
            capacity = self._capacity_of(spelled[1])
            found[name] = EngineSnapshot(model_name=model, engine=engine, **capacity, **_read(figures, dropped))
        return tuple(found[name] for name in sorted(found))

    def _capacity_of(self, engine: str) -> dict[str, Any]:
        """Return the KV cache of an engine. vLLM sums the blocks of all engines of a process."""
        if engine not in self._capacities:
            return {}
        field, tokens = self._capacities[engine]
        return {field: tokens / len(self._capacities) if field == "kv_cache_block_tokens" else tokens}


def _number(value: float) -> float:
    """Return a count or a ratio, or NaN; infinity for what is beyond. The parser gives whole numbers of any length."""
    try:
        number = float(value)
    except OverflowError:
        return math.inf
    return math.inf if number < 0 or number > bounds.COUNT else number


def _key(meaning: Meaning, labels: Mapping[str, str]) -> Key:
    if meaning.key_label is None:
        return meaning.key
    text = labels.get(meaning.key_label)
    if text is None or meaning.key_label == "finished_reason":
        return text
    if meaning.shape == "histogram":
        try:
            bound = float(text)
        except ValueError:
            return None
        return None if math.isnan(bound) else bound
    return int(text) if _POSITION.fullmatch(text) else None


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
    for (field, _, shape), values in sorted(figures.items()):
        if shape == "histogram" and len(values) > bounds.BUCKETS + 2:  # with sum and count
            dropped["histograms"] += 1
            continue
        if None in values or (shape == "histogram" and not _is_whole(values)):
            continue
        value = _FIGURES[shape](field, _as_shown(values, dropped) if shape == "map" else values)
        if value is not None:
            found.setdefault(field, value)
        # A gauge without a value yet reads NaN.
        elif shape != "scalar" or field in SCALARS or not math.isnan(values[""]):
            dropped["values"] += 1
    return found


def _as_shown(values: Mapping[Key, float], dropped: Counter[str]) -> Mapping[Key, float]:
    found: dict[Key, float] = {}
    for spelled, value in values.items():
        key = plain(spelled) if isinstance(spelled, str) else spelled
        if key in found:
            dropped["labels"] += 1
        else:
            found[key] = value
    return found


def _is_whole(values: Mapping[Key, float]) -> bool:
    return values.keys() >= {math.inf, "sum", "count"}


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
