"""Published mean acceptance lengths (``references.yaml``), and the one to compare a service with. Never a verdict.

A row is comparable if its method is the same. A row of the same target family comes before others, and k decides how
exact the comparison is: a row with rates by position also tells the length at every smaller k.
"""

from __future__ import annotations

import pkgutil
import re
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from typing import Annotated

import msgspec

from specdec_exporter.errors import SpecdecError
from specdec_exporter.predictor.versions import canonical_method
from specdec_exporter.yamlfile import Node, parse_yaml

FILE = "references.yaml"
_ROUNDING = 0.02  # sources round lengths and rates on their own
_MOST_NAMED = 3


class ReferencesError(SpecdecError):
    """``references.yaml`` is wrong. Names file, line and key."""


def _acceptance(text: str) -> float:
    ratio = float(text)
    if not 0 <= ratio <= 1:
        raise ValueError("expected a ratio from 0 to 1")
    return ratio


class Reference(msgspec.Struct, frozen=True, kw_only=True):
    """One published measurement. Lengths count the bonus token; ``per_position`` is accepted there / drafts.

    ``target_family`` is what the name of a model of the same family contains. ``None``: the source does not say.
    """

    method: str
    num_speculative_tokens: int
    mean_acceptance_length: float
    source: str
    per_position: tuple[Annotated[float, _acceptance], ...] = ()
    target: str | None = None
    target_family: str | None = None
    drafter: str | None = None
    data_set: str | None = None

    def __post_init__(self) -> None:
        k, curve = self.num_speculative_tokens, self.per_position
        if k < 1:
            raise ValueError("num_speculative_tokens: expected at least 1")
        if not 1 <= self.mean_acceptance_length <= 1 + k:
            raise ValueError(f"mean_acceptance_length: expected 1 to {1 + k}")
        if canonical_method(self.method) != self.method:
            raise ValueError(f"method: expected {canonical_method(self.method)}, the name that policies use")
        if not self.source.startswith("https://"):
            raise ValueError("source: expected a URL")
        if not curve:
            return
        if len(curve) != k or list(curve) != sorted(curve, reverse=True):
            raise ValueError(f"per_position: expected {k} rates that do not rise")
        if abs(1 + sum(curve) - self.mean_acceptance_length) > _ROUNDING:
            raise ValueError(f"per_position: expected rates that sum to {self.mean_acceptance_length - 1:.2f}")

    def length_at(self, num_speculative_tokens: int) -> float | None:
        """Return the length with this k; ``None`` if the row does not tell."""
        if num_speculative_tokens == self.num_speculative_tokens:
            return self.mean_acceptance_length
        if num_speculative_tokens < len(self.per_position):
            return 1 + sum(self.per_position[:num_speculative_tokens])
        return None

    def is_target(self, names: Iterable[str]) -> bool:
        """Whether one of the names is the row's target."""
        return self.target is not None and any(self.target.lower() in name.lower() for name in names)

    def is_family(self, names: Iterable[str]) -> bool:
        """Whether one of the names is of the target's family: ``qwen3`` is in ``Qwen3-14B``, not in ``Qwen3.5-4B``."""
        if self.target_family is None:
            return False
        family = re.escape(self.target_family).replace(r"\-", "[-_ ]?")
        return any(re.search(rf"(?<![a-z0-9.]){family}(?![0-9]|\.[0-9])", name.lower()) for name in names)


class Published(msgspec.Struct, frozen=True, kw_only=True):
    """The published lengths nearest to a service: from ``shortest`` to ``longest``, with drafts of k tokens."""

    text: str
    num_speculative_tokens: int
    shortest: float
    longest: float
    sources: tuple[str, ...]


def parse_references(content: bytes) -> tuple[Reference, ...]:
    """Return the rows. Raises :class:`ReferencesError`, which names line and key."""
    top: Node = parse_yaml(content, FILE, ReferencesError)
    rows: tuple[Reference, ...] = top.mapping(["references"])["references"].read(tuple[Reference, ...])
    return rows


@cache
def load_references() -> tuple[Reference, ...]:
    """Return the rows that ship with this release. Loads PyYAML, so a scrape must not need them."""
    content = pkgutil.get_data(__package__, FILE)
    assert content is not None  # noqa: S101  the file is part of the package
    return parse_references(content)


def nearest(
    references: Sequence[Reference], method: str | None, num_speculative_tokens: int | None, names: Iterable[str]
) -> Published | None:
    """Return what is published for ``method`` that is nearest to k and to the model's ``names``; ``None`` if nothing.

    The model itself comes first, then its family, both also at another k; then all rows of the method at this k.
    """
    if not method or not num_speculative_tokens:
        return None
    k, known = num_speculative_tokens, tuple(names)
    of_method = [row for row in references if row.method == canonical_method(method)]
    like: tuple[Callable[[Reference], bool], ...] = (lambda row: row.is_target(known), lambda row: row.is_family(known))
    for alike in like:
        rows = [row for row in of_method if alike(row)]
        if at_k := [row for row in rows if row.length_at(k) is not None]:
            return _published(at_k, k)
    for alike in like:
        if rows := [row for row in of_method if alike(row)]:
            other = min((row.num_speculative_tokens for row in rows), key=lambda each: (abs(each - k), each))
            return _published([row for row in rows if row.num_speculative_tokens == other], other, another_k=True)
    at_k = [row for row in of_method if row.length_at(k) is not None]
    return _published(at_k, k, alike=False) if at_k else None


def _published(rows: Sequence[Reference], k: int, *, alike: bool = True, another_k: bool = False) -> Published:
    """Sum up the rows. ``alike``: their targets are of the service's family, so they are named."""
    lengths = sorted(length for row in rows if (length := row.length_at(k)) is not None)
    low, high = f"{lengths[0]:.2f}", f"{lengths[-1]:.2f}"
    found = low if low == high else f"{low} to {high}"
    targets, data = _named(row.target for row in rows), _named(row.data_set for row in rows)
    if alike or len(rows) == 1:
        begin = "published, at another k" if another_k else "published"
        parts = [f"{found} for {targets}" if targets else found, rows[0].method, f"k = {k}"]
        words = f"{begin}: {', '.join([*parts, f'on {data}'] if data else parts)}"
    else:
        words = f"published for {rows[0].method} at k = {k}: {found}, in {len(rows)} measurements"
    return Published(
        text=words,
        num_speculative_tokens=k,
        shortest=lengths[0],
        longest=lengths[-1],
        sources=tuple(dict.fromkeys(row.source for row in rows)),
    )


def _named(names: Iterable[str | None]) -> str:
    """Return the names, or the first ones and how many more there are."""
    known = sorted({name for name in names if name is not None}, key=str.lower)
    more = len(known) - _MOST_NAMED
    return ", ".join(known) if more <= 0 else f"{', '.join(known[:_MOST_NAMED])} and {more} more"
