"""How busy an engine was.

Concurrency is the number of requests in decode at a time, per engine. Little's law gives it without sampling: the
seconds that request-steps took, per second of wall clock.
"""

from __future__ import annotations

from bisect import bisect_left

import msgspec

from specdec_exporter.speculation.acceptance import Counts

# Upper bounds of the bins, requests in decode per engine. The last bin has no upper end.
CONCURRENCY_BOUNDS = tuple(1 << power for power in range(12))
# A bin takes this much more than its bound. Full batches and load generators keep just a power of two of requests in
# decode; a step that began before the interval counts whole in it, so it may read a little more.
BOUND_SLACK = 1.05
LOAD_COUNTS = (
    "steps",
    "step_seconds",
    "generation_tokens",
    "first_tokens",
    "prompt_tokens",
    "cached_prompt_tokens",
    "drafts",
    "draft_tokens",
    "accepted_tokens",
    "preemptions",
)
# Amounts of an interval, in whatever unit.
_LEAST, _MOST = 1e-6, 1e15


class Load(msgspec.Struct, frozen=True):
    """What one engine did in ``seconds`` of wall clock.

    ``ends``: when this span ended, in seconds since the recording began (live: of the exporter's monotonic clock).
    """

    seconds: float
    counts: Counts
    ends: float | None = None

    def __add__(self, other: Load) -> Load:
        """Sum over spans, or over engines: seconds are engine-seconds, and no end is known."""
        return Load(self.seconds + other.seconds, self.counts + other.counts)

    @property
    def compact(self) -> Load:
        """The same with :data:`LOAD_COUNTS` only."""
        return Load(self.seconds, Counts(**{name: getattr(self.counts, name) for name in LOAD_COUNTS}), self.ends)

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
        """Computed prompt tokens per second: those that a cache held take no time of a step."""
        return self.counts.computed_prompt_tokens / self.seconds if self.seconds > 0 else 0.0

    @property
    def ran(self) -> bool:
        """Whether any step ran, with amounts that a server can have: sums and squares of absurd ones overflow."""
        counted = (getattr(self.counts, name) or 0.0 for name in LOAD_COUNTS)
        return min(self.seconds, self.steps, self.step_seconds) >= _LEAST and all(
            0.0 <= amount <= _MOST for amount in (self.seconds, *counted)
        )


def bin_of(concurrency: float) -> int:
    """Return the bound of the bin that holds ``concurrency``."""
    place = bisect_left(CONCURRENCY_BOUNDS, concurrency / BOUND_SLACK)
    return CONCURRENCY_BOUNDS[min(place, len(CONCURRENCY_BOUNDS) - 1)]
