"""The inference engines that are known, and which of them answers. Pure but for reading files of this package.

Another engine is one more file here. What it counts is read under our names; what it does not count stays absent.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import cached_property
from pathlib import Path
from typing import Final, Literal

import msgspec
import msgspec.yaml

# The fewest families of another engine than vLLM: a single one may be another program's that speaks of it.
_FEWEST_FAMILIES: Final = 2
Names = dict[str, tuple[str, ...]]


class Asked(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Where an engine tells its release: the ``field`` of the JSON at ``path``, relative to the base of its URL."""

    path: str
    field: str


class SpeculatorInfo(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The ``family`` whose labels tell what drafts, and these labels."""

    family: str
    method: str
    draft_model: str
    num_speculative_tokens: str


class Generations(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Families that only one generation of the engine has, and those that each server has."""

    v0: frozenset[str] = frozenset()
    v1: frozenset[str] = frozenset()
    any: frozenset[str] = frozenset()


class InferenceEngine(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, dict=True):
    """One inference engine, as its file describes it.

    ``code`` is the name of the file, ``name`` what people write. Each family's name begins with one of ``prefixes``.
    ``counters``, ``gauges``, ``histograms`` and ``lengths``: fields of :class:`EngineSnapshot` and their names, without
    a prefix and ``_total``, the best first. A counter ``stands_in`` for another field that has no name of its own.
    ``derived``: drafts and their tokens follow from their tokens ``by_position``, where these are counted, or accepted
    tokens alone do; or accepted tokens are what was generated, without a token of each request and one of each draft.
    The labels of the family ``capacity`` tell the size of the KV cache, and those of ``speculator`` what drafts.
    ``labels``: our labels and the engine's, where they differ; an empty name for one that is missing. Series that
    differ in other labels are parts of one figure, unless ``gauges_by`` is ``None``: counters and histograms are
    summed; of gauges the largest counts, and those that differ in a label of ``gauges_by`` are summed. Numbers have
    ``digits``; ``None``: all. ``version`` and ``models``: where the engine tells its release, and its model if no
    metric names that. An engine without names is known, and tells nothing.

    ``counts_at_end``: its counters grow when a request ends. ``counts_without_speculation``: it shows counters of
    drafts, at 0, also where speculation is off, so that they are read only after the first draft.
    ``positions_are_k``: it shows each position that a draft can have. ``speculates_by``: what its operator writes to
    switch speculation on. ``untold``: what it does not tell, and what that means, for people; ``measure_by``:
    how to measure what drafts give, if not as with vLLM.
    """

    code: str = ""
    name: str
    prefixes: tuple[str, ...]
    counters: Names = {}
    stands_in: dict[str, str] = {}
    gauges: Names = {}
    histograms: Names = {}
    lengths: Names = {}
    derived: Literal["by_position", "accepted_by_position", "from_generation"] | None = None
    capacity: str | None = None
    speculator: SpeculatorInfo | None = None
    labels: dict[str, str] = {}
    gauges_by: tuple[str, ...] | None = None
    generations: Generations = Generations()
    digits: int | None = None
    version: Asked | None = None
    models: str | None = None
    counts_at_end: bool = False
    counts_without_speculation: bool = False
    positions_are_k: bool = False
    speculates_by: str = ""
    untold: str = ""
    measure_by: str = ""

    @property
    def is_read(self) -> bool:
        """Whether it tells anything that is read."""
        return bool(self.counters)

    @property
    def counts_draft_tokens(self) -> bool:
        """Whether it counts the tokens of drafts; others may count drafts."""
        return "draft_tokens" in self.counters or self.derived == "by_position"

    @cached_property
    def line(self) -> re.Pattern[bytes]:
        """A line of the engine: a sample, or a HELP or TYPE line that declares a family."""
        prefixes = "|".join(map(re.escape, self.prefixes)).encode()
        return re.compile(
            rb"^[ \t\r\f\v]*+(?:#[ \t]+(?P<comment>HELP|TYPE)[ \t]+)?(?P<name>(?:" + prefixes + rb")"
            rb"(?P<family>[a-zA-Z0-9_:]*?)(?:_total|_bucket|_sum|_count)?)(?![a-zA-Z0-9_:])",
            re.MULTILINE,
        )

    @cached_property
    def _roots(self) -> frozenset[bytes]:
        return frozenset(prefix.rstrip(":_").encode() for prefix in self.prefixes)

    def families(self, body: bytes) -> int:
        """Return how many families of the engine ``body`` has."""
        if not any(root in body for root in self._roots):
            return 0  # much faster than looking at each line
        return len({line["family"] for line in self.line.finditer(body)})


def _read() -> dict[str, InferenceEngine]:
    files = sorted(Path(__file__).parent.glob("*.yaml"))
    described = {file.stem: msgspec.yaml.decode(file.read_bytes(), type=InferenceEngine) for file in files}
    return {code: msgspec.structs.replace(engine, code=code) for code, engine in described.items()}


ENGINES: Final = _read()  # by code
VLLM: Final = ENGINES["vllm"]
_READ: Final = tuple(engine for engine in ENGINES.values() if engine.is_read and engine is not VLLM)
_NOT_READ: Final = tuple(engine for engine in ENGINES.values() if not engine.is_read)


def answering(body: bytes) -> InferenceEngine | None:
    """Return the engine whose families ``body`` has, and the most of them; ``None`` if it has none of a known one."""
    other = _most_told(body, _READ)
    if other is not None and other.families(body) > VLLM.families(body):
        return other
    # Triton may serve vLLM.
    return VLLM if VLLM.line.search(body) else _most_told(body, _NOT_READ)


def _most_told(body: bytes, engines: Iterable[InferenceEngine]) -> InferenceEngine | None:
    count, code = max((engine.families(body), engine.code) for engine in engines)
    return ENGINES[code] if count >= _FEWEST_FAMILIES else None
