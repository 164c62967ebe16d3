"""Sums over consecutive parts of a recording or a log, in bounded memory. Their scatter tells chance."""

from __future__ import annotations

from typing import Generic, Protocol, Self, TypeVar


class _Part(Protocol):
    def __add__(self, other: Self, /) -> Self: ...


_P = TypeVar("_P", bound=_Part)


class Blocks(Generic[_P]):
    """At most ``most`` sums (an even number) of equally many consecutive parts; one per part while they fit.

    Memory does not grow: when there are too many, neighbours become one. So a long recording has longer blocks, and a
    disturbance of some minutes stays within one of them.
    """

    def __init__(self, most: int) -> None:
        self.sums: list[_P] = []
        self._most = most
        self._span = 1  # parts in a full block
        self._filled = 1  # parts in the last block

    def add(self, part: _P) -> None:
        """Add the next part."""
        if self.sums and self._filled < self._span:
            self.sums[-1] += part
            self._filled += 1
            return
        if len(self.sums) == self._most:
            self.sums = [one + other for one, other in zip(self.sums[::2], self.sums[1::2], strict=True)]
            self._span *= 2
        self.sums.append(part)
        self._filled = 1
