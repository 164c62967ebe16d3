"""The parts of a body that stay the same from scrape to scrape: names, labels, and the way from values to a snapshot.

A :class:`Recipe` says which value is which figure of which engine. A :class:`Layout` says where the values are in a
body of known structure.
"""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import msgspec

from specdec_exporter import bounds
from specdec_exporter.histogram import Histogram
from specdec_exporter.predictor.metrics.families import COUNTER_FIELDS, Meaning
from specdec_exporter.predictor.metrics.snapshot import EngineGeneration, EngineSnapshot, Snapshot

# Identifies a value within its figure: a bucket's bound (float), a draft position (int), a finished reason or one of
# the words "", "sum" and "count" (str). None if the label is missing or makes no sense.
Key = float | int | str | None


class Series(NamedTuple):
    """The meaning of one sample's name and labels."""

    model_name: str
    engine: str
    meaning: Meaning
    key: Key


class _Map(NamedTuple):
    field: str
    keys: tuple[Key, ...]
    values: slice


class _Histogram(NamedTuple):
    field: str
    bounds: tuple[float, ...]
    counts: slice
    sum_place: int
    count_place: int


class _Engine(NamedTuple):
    """How to read one engine. Integers and slices are places in the ordered values. Best names come first."""

    model_name: str
    engine: str
    scalars: list[tuple[str, int]]
    maps: list[_Map]
    histograms: list[_Histogram]
    facts: dict[str, float]  # from labels


class Recipe:
    """How the values of given series make up the engines of a snapshot.

    ``order`` is the order of the values that :meth:`snapshot` expects, as indices into ``series``.
    """

    def __init__(self, series: Sequence[Series]) -> None:
        places: dict[tuple[str, str], dict[tuple[str, int], dict[Key, list[int]]]] = {}
        shapes: dict[str, str] = {}
        facts: dict[str, tuple[str, float]] = {}  # by engine
        unread: list[int] = []
        for index, (model_name, engine, meaning, key) in enumerate(series):
            if meaning.shape == "info":
                unread.append(index)
                if isinstance(key, float):
                    facts[engine] = meaning.field, key
                continue
            figure = places.setdefault((model_name, engine), {}).setdefault((meaning.field, meaning.rank), {})
            figure.setdefault(key, []).append(index)
            shapes[meaning.field] = meaning.shape
        order: list[int] = []
        self._too_fine = 0
        twins: list[tuple[int, int]] = []  # (place of the kept value, index of another value of the same series)
        self._engines: list[_Engine] = []
        for name in sorted(places):
            recipe = _Engine(*name, [], [], [], _facts(facts, name[1]))
            for (field, _), by_key in sorted(places[name].items(), key=operator.itemgetter(0)):
                if shapes[field] == "histogram" and len(by_key) > bounds.BUCKETS + 2:  # with sum and count
                    self._too_fine += 1
                    continue
                keys = _ordered_keys(shapes[field], by_key)
                first = len(order)
                for place, key in enumerate(keys, first):
                    order.append(by_key[key][0])
                    twins += [(place, other) for other in by_key[key][1:]]
                _add(recipe, field, shapes[field], keys, first)
            self._engines.append(recipe)
        self._twins = [(kept, place) for place, (kept, _) in enumerate(twins, len(order))]
        self.order = (*order, *(index for _, index in twins), *unread)

    def snapshot(self, values: list[float], generation: EngineGeneration) -> Snapshot:
        """Return the snapshot of ``values``, which are in :attr:`order`.

        A NaN, a negative number and one above :data:`bounds.COUNT` (above 1 for a ratio) give no figure; neither does a
        map or histogram that holds one. If a series appears twice with equal values, it counts once; with different
        values, it does not count. ``dropped`` counts the figures that are left out.
        """
        for kept, twin in self._twins:
            if values[kept] != values[twin]:
                values[kept] = math.nan
        read = [_read(engine, values) for engine in self._engines]
        left_out = {"values": sum(unusable for _, unusable in read), "histograms": self._too_fine}
        return Snapshot(
            engines=tuple(engine for engine, _ in read),
            engine_generation=generation,
            stats_present=True,
            dropped={what: number for what, number in left_out.items() if number},
        )


def _facts(facts: dict[str, tuple[str, float]], engine: str) -> dict[str, float]:
    """Return the facts about one engine. vLLM sums the blocks of the KV caches of all engines of a process."""
    if engine not in facts:
        return {}
    field, value = facts[engine]
    return {field: value / len(facts) if field == "kv_cache_block_tokens" else value}


def _ordered_keys(shape: str, by_key: dict[Key, list[int]]) -> list[Key]:
    """Return the keys of a figure in the order of its values, or none if the figure is incomplete."""
    if None in by_key:
        return []
    if shape != "histogram":
        return sorted(by_key)  # type: ignore[type-var]  # one type per figure
    bounds = sorted(key for key in by_key if isinstance(key, float))
    whole = bounds and bounds[-1] == math.inf and "sum" in by_key and "count" in by_key
    return [*bounds, "sum", "count"] if whole else []


def _add(recipe: _Engine, field: str, shape: str, keys: list[Key], first: int) -> None:
    if not keys:
        return
    end = first + len(keys)
    if shape == "scalar":
        recipe.scalars.append((field, first))
    elif shape == "map":
        recipe.maps.append(_Map(field, tuple(keys), slice(first, end)))
    else:
        bounds = tuple(key for key in keys if isinstance(key, float))
        recipe.histograms.append(_Histogram(field, bounds, slice(first, end - 2), end - 2, end - 1))


def _read(recipe: _Engine, values: list[float]) -> tuple[EngineSnapshot, int]:
    figures: dict[str, Any] = dict(recipe.facts)
    unusable = 0
    for field, place in recipe.scalars:
        value = values[place]
        if 0 <= value <= (1 if field.endswith("_ratio") else bounds.COUNT):
            figures.setdefault(field, value)
        elif field in COUNTER_FIELDS or not math.isnan(value):  # a gauge without a value yet reads NaN
            unusable += 1
    for field, keys, span in recipe.maps:
        numbers = values[span]
        if all(0 <= number <= bounds.COUNT for number in numbers):
            figures.setdefault(field, dict(zip(keys, numbers, strict=True)))
        else:
            unusable += 1
    for field, limits, span, sum_place, count_place in recipe.histograms:
        counts = tuple(values[span])
        total = values[sum_place]
        whole = (
            counts[0] >= 0
            and all(map(operator.le, counts, counts[1:]))
            and counts[-1] == values[count_place] <= bounds.COUNT
            and 0 <= total <= bounds.COUNT
        )
        if not whole:
            unusable += 1
        elif field not in figures:
            figures[field] = Histogram(limits, counts, total)
    return EngineSnapshot(model_name=recipe.model_name, engine=recipe.engine, **figures), unusable


_decode_numbers = msgspec.json.Decoder(list[float]).decode
# A sample's name and what ends it. Lines with the same beginning mean the same, whatever their labels and values are.
_NAME = re.compile(rb"[ \t]*[a-zA-Z_:][a-zA-Z0-9_:]*[{ \t]")


class Layout:
    """The structure of one body: where its samples of interest are, and what keeps the other lines out of interest.

    A body has this structure if it has the same number of lines, the same comments, the same names and labels of the
    samples of interest, and the same names of all other samples.
    """

    def __init__(
        self, lines: list[bytes], places: Sequence[tuple[int, int]], recipe: Recipe, generation: EngineGeneration
    ) -> None:
        """``lines`` with their newlines. ``places``: line and column of each series' value, the last word of its line.

        The series are those of the recipe.
        """
        columns = dict(places)
        order = [places[index][0] for index in recipe.order]
        names = {index: name[0] for index, line in enumerate(lines) if (name := _NAME.match(line))}
        others = [index for index in names if index not in columns]
        fixed = [index for index in range(len(lines)) if index not in names]
        self._line_count = len(lines)
        self._pick_fixed = _picker(fixed)
        self._fixed = self._pick_fixed(lines)
        self._pick_samples = _picker(order)
        self._keys = [lines[index][: columns[index]] for index in order]
        self._pick_others = _picker(others)
        self._names = [names[index] for index in others]
        constant = sum(map(len, self._fixed)) + sum(map(len, self._keys)) + sum(map(len, self._names))
        self._constant_bytes = constant - (len(order) + 1)  # less brackets and commas
        self._recipe = recipe
        self._generation = generation

    def read(self, lines: list[bytes], byte_count: int) -> Snapshot | None:
        """Return the snapshot of a body of ``byte_count`` bytes; ``lines`` with their newlines.

        ``None`` if its structure differs or a value is no plain number.
        """
        if len(lines) != self._line_count or self._pick_fixed(lines) != self._fixed:
            return None
        # JSON has all numbers of the exposition formats but NaN, infinities, "+1", "1." and ".5". It skips newlines.
        numbers = b"[" + b",".join(map(bytes.removeprefix, self._pick_samples(lines), self._keys)) + b"]"
        others = b"".join(map(bytes.removeprefix, self._pick_others(lines), self._names))
        # Every line began as expected if all beginnings are gone. This check takes half the time of one for each line.
        if len(numbers) + len(others) != byte_count - self._constant_bytes or b"\r" in numbers:
            return None
        try:
            values = _decode_numbers(numbers)
        except msgspec.DecodeError:
            return None
        if len(values) != len(self._keys):
            return None
        return self._recipe.snapshot(values, self._generation)


def _picker(indices: Sequence[int]) -> Callable[[list[bytes]], Sequence[bytes]]:
    """Return a function that picks these lines."""
    return operator.itemgetter(*indices) if len(indices) > 1 else lambda lines: [lines[index] for index in indices]
