"""Which series of one body have a place in the snapshot. The others are left out while the body is read."""

from __future__ import annotations

from collections import Counter
from collections.abc import Set as AbstractSet

from specdec_exporter import bounds
from specdec_exporter.formatting import plain

EngineKey = tuple[str, str]  # model_name and engine; until `shown`, as the body spells them
# Identifies a value within its figure: a bucket's bound (float), a draft position (int), a finished reason or one of
# the words "", "sum" and "count" (str). None if the label is missing or makes no sense.
Key = float | int | str | None
_MOST_TOLD_APART = 16 * bounds.ENGINES  # further engines beyond the bound are not told apart


def shown(engine: EngineKey) -> EngineKey:
    """Return model and engine as the snapshot has them."""
    return plain(engine[0]), plain(engine[1])


class Admission:
    """Admits the series of one body, up to ``most_engines`` engines; ``known`` ones, as shown, keep their place.

    ``dropped`` counts what is left out: ``engines``, and single ``series``, ``positions`` and ``labels``.
    """

    def __init__(self, most_engines: int, known: AbstractSet[EngineKey]) -> None:
        self.dropped: Counter[str] = Counter()
        self._most = most_engines
        self._known = known
        self._series: Counter[EngineKey] = Counter()
        self._new = 0
        self._infos = 0
        self._others: set[EngineKey] = set()

    def admits(self, engine: EngineKey, key: Key) -> bool:
        """Whether a series of ``engine`` has a place so far; :meth:`engines` decides in the end."""
        texts = (*engine, key) if isinstance(key, str) else engine
        if max(map(len, texts)) > bounds.LABEL_CHARACTERS:
            what = "labels"
        elif isinstance(key, int) and key >= bounds.POSITIONS:
            what = "positions"
        elif engine not in self._series and not self._has_place(engine):
            return False
        elif self._series[engine] >= bounds.SERIES:
            what = "series"
        else:
            self._series[engine] += 1
            return True
        self.dropped[what] += 1
        return False

    def admits_info(self, engine: str) -> bool:
        """Whether an info series has a place: it is of an engine, whatever its models."""
        self._infos += 1
        if self._infos <= bounds.ENGINES and len(engine) <= bounds.LABEL_CHARACTERS:
            return True
        self.dropped["series"] += 1
        return False

    def _has_place(self, engine: EngineKey) -> bool:
        if shown(engine) in self._known:
            return True
        if self._new < self._most:
            self._new += 1
            return True
        if len(self._others) < _MOST_TOLD_APART:
            self._others.add(engine)
        return False

    def engines(self) -> set[EngineKey]:
        """Return the engines that stay: the known ones of this body, then the others in its order."""
        ordered = sorted(self._series, key=lambda engine: shown(engine) not in self._known)
        kept = ordered[: self._most]
        if left_out := len(ordered) - len(kept) + len(self._others):
            self.dropped["engines"] += left_out
        return set(kept)
