"""What is fuzzed: one parser, the inputs to begin with, and what must hold for every input."""

from __future__ import annotations

import math
import random
import zlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from support.builders import CAPTURES

MIB = 1024 * 1024


@dataclass(frozen=True)
class Target:
    """``check`` raises on a finding. ``seeds`` are real inputs, ``words`` those of its language.

    ``largest``: bytes of the largest input that the exporter hands to this parser, at most 1 MiB. ``share``: of the
    time.
    """

    name: str
    check: Callable[[bytes], None]
    seeds: Callable[[], Sequence[bytes]]
    words: Sequence[bytes] = ()
    largest: int = MIB
    share: float = 1.0


def captured(pattern: str) -> list[bytes]:
    """The files of the captures whose names match, in a fixed order."""
    return [path.read_bytes() for path in sorted(CAPTURES.glob(f"*/{pattern}"))]


def chosen_by(data: bytes) -> random.Random:
    """A source of chance that the input alone decides, so that a finding repeats."""
    return random.Random(zlib.crc32(data))


def require_numbers(numbers: Iterable[float | None]) -> None:
    """Every number is finite and not negative."""
    for number in numbers:
        assert number is None or 0 <= number < math.inf, number


def require_one_line(message: str) -> None:
    """A message for a person is not empty and moves no cursor."""
    assert message.strip(), "an empty message"
    assert message.isprintable(), ascii(message)
