"""The fast lane of :mod:`scan`: the two lines that make up most of a predictor's statistics, taken in runs.

``_fastline.c`` takes the exact wording only (the spec-decode line of 0.10.2 and later, the ``Engine NNN`` line),
without prefixes or faults. Everything else, and every line whose figures disagree, is left to
:func:`logline.parse_line`, which gives the same event for what is taken there. Without the compiled module every line
is left to it.
"""

from __future__ import annotations

from specdec_exporter.predictor.log.events import Event

try:
    from specdec_exporter.predictor.log._fastline import count_lines, find_words, take_lines
except ImportError:  # installed where there is no C compiler

    def take_lines(
        _buffer: bytes | bytearray,
        position: int,
        _limit: int,
        _end: int,
        _engines: dict[tuple[str | None, int | None], str],
        _events: list[Event],
        _wants_stats: bool,
        /,
    ) -> int:
        """Take none of the lines."""
        return position

    def find_words(buffer: bytes | bytearray, words: tuple[bytes, ...], common: int, start: int, end: int, /) -> int:
        """Return the first place of any of the words in ``buffer[start:end]``, ``end`` if there is none."""
        byte = words[0][common]
        place = buffer.find(byte, start + common, end)
        while place >= 0 and not buffer.startswith(words, place - common, end):
            place = buffer.find(byte, place + 1, end)
        return end if place < 0 else place - common

    def count_lines(buffer: bytes | bytearray, end: int, /) -> int:
        """Return the number of newlines in ``buffer[:end]``."""
        return buffer.count(b"\n", 0, end)


__all__ = ["count_lines", "find_words", "take_lines"]
