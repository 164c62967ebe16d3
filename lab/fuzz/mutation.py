"""Inputs for a parser: real ones, changed in their lines, words, numbers and bytes; all from one seed."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Sequence
from itertools import pairwise

# Bytes that parsers trip over, whatever they read.
WORDS = (
    *(b"\n", b"\r", b"\r\n", b"\0", b"\t", b" ", b"\x0b", b"\x0c", b"\x1b[31m", b"\x7f", b"\x80", b"\xff", b"\xfe"),
    *(b"\xef\xbb\xbf", b"\xc2\x85", b"\xc2\xa0", b"\xe2\x80\xa8", b"\xed\xa0\x80", b"\xd9\xa3", b"\xf0\x9f\x98\x80"),
    *(b"\\", b'\\"', b"\\n", b"\\u0000", b"\\ud800", b'"', b"'", b"`", b"{", b"}", b"[", b"]", b"(", b")", b"<", b">"),
    *(b",", b", ", b";", b":", b": ", b"=", b"#", b"%", b"|", b"&a ", b"*a", b"<<: ", b"!!", b"---\n", b"- ", b"? "),
    *(b"null", b"true", b"None", b"nan", b"NaN", b"inf", b"+Inf", b"-Infinity", b"# EOF\n", b"{}", b"[]", b'""'),
)
NUMBERS = (
    *(b"0", b"-0", b"1", b"-1", b"+1", b"1.", b".5", b"00", b"0x10", b"0b1", b"1_0", b"1e5", b"1E+5", b"1e-400"),
    *(b"1e308", b"1e309", b"1e999999999", b"2147483648", b"9007199254740993", b"9223372036854775808", b"9" * 25),
    *(b"9" * 400, b"9" * 5000, b"0." + b"3" * 60, b"NaN", b"+Inf", b"-Inf", b"1:30", b"\xd9\xa3", b"\xc2\xb2", b"null"),
)
_NUMBER = re.compile(rb"[0-9]+(?:\.[0-9]+)?(?:e[+-]?[0-9]+)?")
_QUOTED = re.compile(rb'"[^"\n]*"|\'[^\'\n]*\'')
_MOST_CHANGES = 4
_SMALL = 6_000  # most inputs are cut to so many bytes, so that many can be tried


class Mutator:
    """Makes inputs out of ``seeds`` and ``words``. ``largest``: some inputs are blown up to so many bytes."""

    def __init__(self, source: random.Random, seeds: Sequence[bytes], words: Sequence[bytes], largest: int) -> None:
        self._source = source
        self._seeds = seeds
        self._words = (*WORDS, *words, *words)
        self._largest = largest

    def next(self) -> bytes:
        """Return one more input."""
        source = self._source
        chance = source.random()
        if chance < 0.02:
            return source.randbytes(source.choice((1, 8, 200)))
        if chance < 0.05:
            return b"".join(source.choices(self._words, k=source.randint(1, 20)))
        data = source.choice(self._seeds)
        if len(data) > _SMALL and source.random() < 0.95:
            data = self._window(data)
        for _ in range(source.randint(0 if chance < 0.08 else 1, _MOST_CHANGES)):
            data = source.choice(self._changes)(self, data)
        if source.random() < 0.0005:
            data = self._blown_up(data)
        return data[: self._largest]

    # --- one change each ---

    def _window(self, data: bytes) -> bytes:
        lines = data.splitlines(keepends=True)
        first = self._source.randrange(len(lines))
        size = 0
        for last in range(first, len(lines)):
            size += len(lines[last])
            if size > _SMALL:
                return b"".join(lines[first : last + 1])
        return b"".join(lines[first:])

    def _lines(self, data: bytes) -> bytes:
        """Drop, double, swap or move lines."""
        lines = data.split(b"\n")
        one, two = (self._source.randrange(len(lines)) for _ in range(2))
        match self._source.randrange(4):
            case 0:
                del lines[one]
            case 1:
                lines.insert(two, lines[one])
            case 2:
                lines[one], lines[two] = lines[two], lines[one]
            case _:
                lines.insert(two, lines.pop(one))
        return b"\n".join(lines)

    def _borrowed(self, data: bytes) -> bytes:
        """Put lines of another seed in, or in place of some."""
        lines, others = data.split(b"\n"), self._source.choice(self._seeds).split(b"\n")
        at, start = self._source.randrange(len(lines)), self._source.randrange(len(others))
        count = self._source.randint(1, 3)
        lines[at : at + self._source.choice((0, count))] = others[start : start + count]
        return b"\n".join(lines)

    def _spliced(self, data: bytes) -> bytes:
        other = self._source.choice(self._seeds)
        return data[: self._place(data)] + other[self._place(other) :][:_SMALL]

    def _number(self, data: bytes) -> bytes:
        found = list(_NUMBER.finditer(data))
        if not found:
            return data
        chosen = self._source.choice(found)
        other = self._source.choice(found)[0] if self._source.random() < 0.3 else self._source.choice(NUMBERS)
        return data[: chosen.start()] + other + data[chosen.end() :]

    def _quoted(self, data: bytes) -> bytes:
        """Change a quoted text, or exchange it with another."""
        found = list(_QUOTED.finditer(data))
        if not found:
            return data
        chosen, other = self._source.choice(found), self._source.choice(found)[0]
        if self._source.random() < 0.6:
            other = other[:1] + self._source.choice(self._words) + other[1 if self._source.random() < 0.5 else -1 :]
        return data[: chosen.start()] + other + data[chosen.end() :]

    def _word(self, data: bytes) -> bytes:
        at = self._place(data)
        return data[:at] + self._source.choice(self._words) + data[at + self._source.choice((0, 0, 1, 5)) :]

    def _many(self, data: bytes) -> bytes:
        at = self._place(data)
        word = self._source.choice(self._words)
        return data[:at] + word * self._source.choice((2, 10, 300, 1500)) + data[at:]

    def _gone(self, data: bytes) -> bytes:
        one, two = sorted((self._place(data), self._place(data)))
        return data[:one] + data[min(two, one + 40) :]

    def _cut(self, data: bytes) -> bytes:
        return data[: self._place(data)] if self._source.random() < 0.5 else data[self._place(data) :]

    def _repeated(self, data: bytes) -> bytes:
        one, two = sorted((self._place(data), self._place(data)))
        return data[:two] + data[one : min(two, one + 300)] + data[two:]

    def _byte(self, data: bytes) -> bytes:
        at = self._place(data)
        return data[:at] + self._source.randbytes(1) + data[at + 1 :]

    _changes: Sequence[Callable[[Mutator, bytes], bytes]] = (
        *(_lines, _lines, _borrowed, _borrowed, _spliced, _number, _number, _number, _quoted, _quoted),
        *(_word, _word, _many, _gone, _cut, _repeated, _byte),
    )

    def _place(self, data: bytes) -> int:
        return self._source.randint(0, len(data))

    def _blown_up(self, data: bytes) -> bytes:
        """Repeat a piece, so that the input reaches the bound: growth shows there."""
        one, two = sorted((self._place(data), self._place(data)))
        piece = self._source.choice((data[one : min(two, one + 60)], data[one:two], self._source.choice(self._words)))
        return data[:two] + piece * (self._largest // max(len(piece), 1)) + data[two:]


def pieces(data: bytes, source: random.Random, longest: int) -> list[bytes]:
    """Cut ``data`` at random places."""
    cuts = [0]
    while cuts[-1] < len(data):
        cuts.append(cuts[-1] + source.randint(1, longest))
    return [data[start:stop] for start, stop in pairwise(cuts)]
