"""Finding the next of some words in a big buffer, again and again."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

# After so many false hits of the byte alone, looking for the whole word is faster.
_MOST_FALSE_HITS: Final = 32


class Word(NamedTuple):
    """What to look for, and which of its bytes is rare in logs: looking for one byte is ten times as fast."""

    text: bytes
    rare: int = 0


class Search:
    """The next place of any of some words in ``buffer[:end]``, from left to right.

    Each word is looked for only up to the nearest of the words before it.
    """

    __slots__ = ("_buffer", "_end", "_places", "_words")

    def __init__(self, words: Sequence[Word], buffer: bytearray, end: int) -> None:
        self._words = words
        self._buffer = buffer
        self._end = end
        self._places = [-1] * len(words)

    def find(self, start: int) -> tuple[int, Word | None]:
        """Return the first place at or after ``start`` and what stands there; ``end`` and ``None`` if nothing does."""
        first, found = self._end, None
        for index, word in enumerate(self._words):
            place = self._places[index]
            if place < start:
                place = self._places[index] = self._find(word, start, first)
            if place < first:
                first, found = place, word
        return first, found

    def _find(self, word: Word, start: int, limit: int) -> int:
        """Return where ``word`` begins; ``limit`` if it does not begin between ``start`` and there."""
        (text, rare), buffer = word, self._buffer
        byte = text[rare]
        at = start + rare
        for _ in range(_MOST_FALSE_HITS):
            if (at := buffer.find(byte, at, limit + rare)) < 0:
                return limit
            if buffer.startswith(text, at - rare, self._end):
                return at - rare
            at += 1
        place = buffer.find(text, at - rare, min(limit + len(text) - 1, self._end))
        return limit if place < 0 else place
