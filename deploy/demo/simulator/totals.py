"""The counters of one engine of the simulated predictor since its start."""

from __future__ import annotations

import dataclasses
import math
from bisect import bisect_left
from itertools import accumulate

from demo.simulator.shapes import Release, length_bounds


class Histogram:
    """Counts values at or below each of ``bounds``."""

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self.bounds, self.sum = bounds, 0.0
        self._counts = [0] * (len(bounds) + 1)  # per bucket, not cumulative; the last has no bound

    def observe(self, value: float) -> None:
        """Count a value; one equal to a bound is at most that bound."""
        self._counts[bisect_left(self.bounds, value)] += 1
        self.sum += value

    @property
    def count(self) -> int:
        """Number of values."""
        return sum(self._counts)

    def buckets(self) -> list[tuple[float, int]]:
        """Return the bound and the cumulative count of each bucket."""
        return list(zip((*self.bounds, math.inf), accumulate(self._counts), strict=True))


@dataclasses.dataclass(slots=True)
class Window:
    """Draft accounting since the last spec-decode line; ``since`` is the simulated second it began."""

    since: float
    drafts: int = 0
    draft_tokens: int = 0
    accepted_tokens: int = 0
    accepted_per_position: list[int] = dataclasses.field(default_factory=list)


class Totals:
    """Counters and histograms of one engine, counted as vLLM counts. A family's ``source`` is the attribute's name.

    ``v0_accepted`` and its like are the V0 worker's lifetime totals; ``v0_summed_*`` is what V0 exposes: the sum of
    those totals over its reports.
    """

    def __init__(self, release: Release, num_positions: int, max_model_len: int) -> None:
        lengths = length_bounds(max_model_len)
        self.drafts = 0
        self.draft_tokens = 0
        self.accepted_tokens = 0
        self.accepted_per_position = [0] * num_positions
        self.prompt_tokens = 0
        self.prefix_hits = 0
        self.generation_tokens = 0
        self.preemptions = 0
        self.finished: dict[str, int] = dict.fromkeys(release.finished_reasons, 0)
        self.time_to_first_token = Histogram(release.bounds["ttft"])
        self.inter_token = Histogram(release.bounds["token"])
        self.request_tpot = Histogram(release.bounds["token"])
        self.request_latency = Histogram(release.bounds["request"])
        self.request_decode = Histogram(release.bounds["request"])
        self.prompt_length = Histogram(lengths)
        self.generation_length = Histogram(lengths)
        self.v0_generation_steps = 0
        self.v0_drafts = 0
        self.v0_accepted = 0
        self.v0_emitted = 0
        # None until the first report
        self.v0_summed_accepted: int | None = None
        self.v0_summed_drafted: int | None = None
        self.v0_acceptance_ratio: float | None = None
