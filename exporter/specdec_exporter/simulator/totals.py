"""What one engine of the simulated predictor has counted since it started."""

from __future__ import annotations

import bisect
import dataclasses

from specdec_exporter.simulator.shapes import Release


class Histogram:
    """Observations by bucket. ``counts`` is not cumulative; its last element lies above every bound."""

    __slots__ = ("bounds", "counts", "sum")

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.sum = 0.0

    def observe(self, value: float) -> None:
        """One observation; a value equal to a bound belongs to that bound's bucket."""
        self.counts[bisect.bisect_left(self.bounds, value)] += 1
        self.sum += value

    @property
    def count(self) -> int:
        """Number of observations."""
        return sum(self.counts)


@dataclasses.dataclass(slots=True)
class Window:
    """Draft accounting since the last spec-decode line; ``since`` is the simulated second it began."""

    since: float
    drafts: int = 0
    draft_tokens: int = 0
    accepted_tokens: int = 0
    accepted_per_position: list[int] = dataclasses.field(default_factory=list)


class Totals:
    """Counters and histograms of one engine, in vLLM's semantics; attribute names are the ``source`` of a family.

    ``v0_accepted`` and its like are the V0 worker's lifetime totals; ``v0_summed_*`` is what V0 exposes: the sum of
    those totals over its reports.
    """

    def __init__(self, release: Release, num_positions: int) -> None:
        def histogram(buckets: str) -> Histogram:
            return Histogram(release.bounds[buckets])

        self.drafts = 0
        self.draft_tokens = 0
        self.accepted_tokens = 0
        self.accepted_per_position = [0] * num_positions
        self.prompt_tokens = 0
        self.generation_tokens = 0
        self.prefix_queries = 0
        self.prefix_hits = 0
        self.zero = 0
        self.finished: dict[str, int] = {}
        self.request_prompt_tokens = histogram("length")
        self.request_generation_tokens = histogram("length")
        self.request_max_tokens = histogram("length")
        self.request_prefill_computed_tokens = histogram("length")
        self.request_n = histogram("params_n")
        self.request_preemptions = histogram("preemptions")
        self.iteration_tokens = histogram("iteration")
        self.time_to_first_token = histogram("ttft")
        self.inter_token = histogram("token")
        self.request_tpot = histogram("token")
        self.request_latency = histogram("request")
        self.request_queue = histogram("request")
        self.request_inference = histogram("request")
        self.request_prefill = histogram("request")
        self.request_decode = histogram("request")
        self.v0_generation_steps = 0
        self.v0_drafts = 0
        self.v0_accepted = 0
        self.v0_emitted = 0
        self.v0_summed_accepted = 0
        self.v0_summed_drafted = 0
        self.v0_summed_emitted = 0
        self.v0_acceptance_ratio: float | None = None  # None until the first report
        self.v0_efficiency: float | None = None
