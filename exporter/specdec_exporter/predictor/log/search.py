"""Finding all places of some words in a large buffer."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

# After this many false hits in a row, a search for whole words is faster.
_MOST_FALSE_HITS: Final = 32


class Words(NamedTuple):
    """Words to find. All ``texts`` have the same byte at ``place``, which should be rare in logs."""

    texts: tuple[bytes, ...]
    place: int = 0


def find_words(sought: Iterable[Words], buffer: bytearray, end: int, begin: int = 0) -> list[int]:
    """Return the places in ``buffer[begin:end]`` where any of the words begins, in order.

    A search for one rare byte is ten times as fast as a search for a word.
    """
    find, startswith = buffer.find, buffer.startswith
    found: list[int] = []
    for texts, place in sought:
        byte = texts[0][place]
        false_hits = 0
        at = find(byte, begin + place, end)
        while at >= 0 and false_hits < _MOST_FALSE_HITS:
            if startswith(texts, at - place, end):
                found.append(at - place)
                false_hits = 0
            else:
                false_hits += 1
            at = find(byte, at + 1, end)
        if at >= 0:
            for text in texts:
                start = at - place
                while (start := find(text, start, end)) >= 0:
                    found.append(start)
                    start += 1
    found.sort()
    return found
