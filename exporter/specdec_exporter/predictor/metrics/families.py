"""The families of an inference engine -> the figures of :class:`EngineSnapshot`."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from typing import Final, Literal, NamedTuple

from specdec_exporter.predictor.engines.engine import ENGINES, InferenceEngine, Names
from specdec_exporter.predictor.metrics.snapshot import EngineGeneration

# The values of an "info" are in its labels: a fact about an engine, whatever model it serves.
Shape = Literal["scalar", "map", "histogram", "info"]


class Meaning(NamedTuple):
    """The meaning of a sample's name.

    ``field`` is an attribute of :class:`EngineSnapshot`. The label ``key_label`` identifies the sample within its
    figure; without one, the word ``key`` does. ``rank`` orders the names of one figure, prefix included: the first
    usable one wins. ``also``: another figure of the same value, where no name of its own gives it.
    """

    field: str
    shape: Shape
    key_label: str | None
    key: str
    rank: int
    also: Meaning | None = None


Meanings = dict[str, Meaning]  # by full sample name
CAPACITY, SPECULATOR = "kv_cache_tokens", "speculator"  # what the labels of an "info" tell

# Fields with a value for each of a label, and that label.
KEY_LABELS: Final = {
    "accepted_tokens_per_position": "position",
    "draft_tokens_per_position": "position",
    "requests_finished": "finished_reason",
}


@cache
def meanings(code: str) -> Meanings:
    """Return the meanings of what each scrape reads, by full sample name, of the engine of this code."""
    engine = ENGINES[code]
    infos = {CAPACITY: engine.capacity, SPECULATOR: engine.speculator and engine.speculator.family}
    by_name = {name: Meaning(what, "info", None, "", 0) for what, name in infos.items() if name}
    for field, names in engine.counters.items():
        key_label = KEY_LABELS.get(field)
        for rank, name in enumerate(names):
            other = engine.stands_in.get(name)
            also = Meaning(other, "scalar", None, "", len(engine.counters.get(other, ()))) if other else None
            meaning = Meaning(
                field,
                "map" if key_label else "scalar",
                (engine.labels.get(key_label, key_label) or None) if key_label else None,
                "",
                rank,
                also,
            )
            by_name[name] = by_name[f"{name}_total"] = meaning
    for field, names in engine.gauges.items():
        by_name |= {name: Meaning(field, "scalar", None, "", rank) for rank, name in enumerate(names)}
    return _prefixed(engine, by_name | _of_histograms(engine.histograms))


@cache
def length_meanings(code: str) -> Meanings:
    """Return the meanings of what only recordings read."""
    return _prefixed(ENGINES[code], _of_histograms(ENGINES[code].lengths))


def _of_histograms(histograms: Names) -> Meanings:
    by_name: Meanings = {}
    for field, names in histograms.items():
        for rank, name in enumerate(names):
            by_name[f"{name}_bucket"] = Meaning(field, "histogram", "le", "", rank)
            by_name[f"{name}_sum"] = Meaning(field, "histogram", None, "sum", rank)
            by_name[f"{name}_count"] = Meaning(field, "histogram", None, "count", rank)
    return by_name


def _prefixed(engine: InferenceEngine, by_name: Meanings) -> Meanings:
    most = len(engine.prefixes)
    return {
        prefix + name: _at(place, most, meaning)
        for place, prefix in enumerate(engine.prefixes)
        for name, meaning in by_name.items()
    }


def _at(place: int, most: int, meaning: Meaning) -> Meaning:
    also = meaning.also and _at(place, most, meaning.also)
    return meaning._replace(rank=meaning.rank * most + place, also=also)


def _fields(kind: Literal["counters", "gauges", "histograms", "lengths"]) -> Iterable[str]:
    return dict.fromkeys(field for engine in ENGINES.values() for field in getattr(engine, kind))


# The fields that only grow, by their shapes.
MAPS: Final = tuple(KEY_LABELS)
GAUGES: Final = frozenset(_fields("gauges"))
SCALARS: Final = tuple(field for field in _fields("counters") if field not in MAPS)
COUNTED: Final = (*SCALARS, *MAPS, *_fields("histograms"), *_fields("lengths"))


def engine_generation(engine: InferenceEngine, families: set[str], *, engine_labels: bool) -> EngineGeneration | None:
    """Return which generation declared ``families`` (names without prefix and ``_total``, from HELP, TYPE or samples).

    ``None`` for engines without generations. ``engine_labels``: a sample has the label ``engine``, which V1 writes
    since 0.8.3 and V0 never. The label decides while V0 shows none of its own families, in multiprocess mode before the
    first draft (seen in 0.9.2).
    """
    told = engine.generations
    if not told.any:
        return None
    if families & told.v0:
        return "v0"
    if engine_labels or families & told.v1:
        return "v1"
    return "v0" if families & told.any else "v1"
