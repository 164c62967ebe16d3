"""How busy an engine was, and what it did by how busy it was.

Concurrency is the number of requests in decode at a time, per engine. Little's law gives it without sampling: the
seconds that request-steps took, per second of wall clock.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from functools import reduce
from operator import add
from typing import Any

import msgspec

from specdec_exporter.speculation.acceptance import Counts
from specdec_exporter.speculation.blocks import Blocks

# Upper bounds of the bins, requests in decode per engine. The last bin has no upper end.
CONCURRENCY_BOUNDS = tuple(1 << power for power in range(12))
# A bin takes this much more than its bound. Full batches and load generators keep just a power of two of requests in
# decode; a step that began before the interval counts whole in it, so it may read a little more.
BOUND_SLACK = 1.05
BLOCK_COUNTS = (
    "steps",
    "step_seconds",
    "generation_tokens",
    "first_tokens",
    "prompt_tokens",
    "drafts",
    "draft_tokens",
    "accepted_tokens",
)


class Load(msgspec.Struct, frozen=True):
    """What one engine did in ``seconds`` of wall clock."""

    seconds: float
    counts: Counts

    def __add__(self, other: Load) -> Load:
        """Sum over spans, or over engines: seconds are engine-seconds."""
        return Load(self.seconds + other.seconds, self.counts + other.counts)

    @property
    def compact(self) -> Load:
        """The same with :data:`BLOCK_COUNTS` and preemptions only."""
        names = (*BLOCK_COUNTS, "preemptions")
        return Load(self.seconds, Counts(**{name: getattr(self.counts, name) for name in names}))

    @property
    def steps(self) -> float:
        """Request-steps."""
        return self.counts.steps or 0.0

    @property
    def step_seconds(self) -> float:
        """Seconds of all request-steps."""
        return self.counts.step_seconds or 0.0

    @property
    def tokens(self) -> float:
        """Tokens that decoding steps gave: all but the first of each request, which prefill gives."""
        return max((self.counts.generation_tokens or 0.0) - (self.counts.first_tokens or 0.0), 0.0)

    @property
    def concurrency(self) -> float:
        """Requests in decode at a time."""
        return self.step_seconds / self.seconds if self.seconds > 0 else 0.0

    @property
    def prompt_rate(self) -> float:
        """Prompt tokens per second."""
        return (self.counts.prompt_tokens or 0.0) / self.seconds if self.seconds > 0 else 0.0

    @property
    def ran(self) -> bool:
        """Whether any step ran."""
        return all(0.0 < amount < math.inf for amount in (self.seconds, self.steps, self.step_seconds))

    @property
    def tells_the_cost(self) -> bool:
        """Whether its steps show what decoding costs: some ran, and no preempted request's gap counts as a step."""
        return self.ran and not self.counts.preemptions


class LoadBin(msgspec.Struct, frozen=True):
    """The spans whose concurrency was at most ``bound`` and above half of it, by :func:`bin_of`.

    ``intervals`` were summed to ``blocks``, each of about as many intervals, in the order of time. The counts of blocks
    are :data:`BLOCK_COUNTS`; ``accepted_per_position`` is of the whole bin.
    """

    bound: int
    intervals: int
    blocks: tuple[Load, ...]
    accepted_per_position: tuple[float, ...] = ()

    @property
    def total(self) -> Load:
        """The sum of the blocks."""
        found = reduce(add, self.blocks)
        counts = msgspec.structs.replace(found.counts, accepted_per_position=self.accepted_per_position)
        return Load(found.seconds, counts)


def bin_of(concurrency: float) -> int:
    """Return the bound of the bin that holds ``concurrency``."""
    place = bisect_left(CONCURRENCY_BOUNDS, concurrency / BOUND_SLACK)
    return CONCURRENCY_BOUNDS[min(place, len(CONCURRENCY_BOUNDS) - 1)]


class _Bin:
    """The intervals of one bin."""

    def __init__(self) -> None:
        self.blocks: Blocks[Load] = Blocks()
        self.positions = Counts()

    def add(self, load: Load) -> None:
        self.positions += Counts(accepted_per_position=load.counts.accepted_per_position)
        self.blocks.add(Load(load.seconds, Counts(**{name: getattr(load.counts, name) for name in BLOCK_COUNTS})))

    def without_gaps(self) -> tuple[Load, ...]:
        """Return the blocks. A count that some of them lack has not counted there yet, so it is 0."""
        loads = self.blocks.sums
        known = [name for name in BLOCK_COUNTS if any(getattr(load.counts, name) is not None for load in loads)]
        nothing: dict[str, Any] = dict.fromkeys(known, 0.0)
        return tuple(Load(load.seconds, load.counts + Counts(**nothing)) for load in loads)


class LoadBins:
    """Sorts the intervals of a recording by concurrency."""

    def __init__(self) -> None:
        self._bins: dict[int, _Bin] = {}

    def add(self, load: Load) -> None:
        """Add one polling interval of one engine, unless it tells nothing about the cost of steps."""
        if load.tells_the_cost:
            self._bins.setdefault(bin_of(load.concurrency), _Bin()).add(load)

    def bins(self) -> tuple[LoadBin, ...]:
        """Return the bins that have intervals, in ascending order."""
        return tuple(
            LoadBin(bound, found.blocks.parts, found.without_gaps(), found.positions.accepted_per_position)
            for bound, found in sorted(self._bins.items())
        )
