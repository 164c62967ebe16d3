"""Finding the first of some words in a big buffer, again and again."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from specdec_exporter.predictor.log.fastline import find_words


class Words(NamedTuple):
    """What to look for: any of ``texts``, which have the byte at ``common`` in common.

    That byte is what is looked for first, so it should be one that is rare in logs.
    """

    texts: tuple[bytes, ...]
    common: int = 0


class Search:
    """The next place of any of some words in ``buffer[:end]``, from left to right."""

    __slots__ = ("_buffer", "_end", "_places", "_sought")

    def __init__(self, sought: Sequence[Words], buffer: bytearray, end: int) -> None:
        self._sought = sought
        self._buffer = buffer
        self._end = end
        self._places = [-1] * len(sought)

    def find(self, start: int) -> tuple[int, Words | None]:
        """The first place at or after ``start`` and what stands there; ``end`` and ``None`` if nothing does."""
        first, found = self._end, None
        for index, words in enumerate(self._sought):
            place = self._places[index]
            if place < start:
                place = self._places[index] = find_words(self._buffer, *words, start, self._end)
            if place < first:
                first, found = place, words
        return first, found
