"""What is kept of each engine between fetches: its last answer, samples, short windows and loads."""

from __future__ import annotations

import math
from dataclasses import dataclass

from specdec_exporter.histogram import HistogramCounter
from specdec_exporter.predictor.metrics.snapshot import EngineSnapshot
from specdec_exporter.speculation.acceptance import Counts, acceptance_ratio
from specdec_exporter.speculation.policy import Policy
from specdec_exporter.state.loads import EngineLoads
from specdec_exporter.state.windows import SampleRing

# Upper bounds of specdec_window_acceptance_ratio: even steps resolve every quantile to 0.05.
WINDOW_RATIO_BOUNDS = tuple(round(0.05 * step, 2) for step in range(1, 21))
# Samples that are kept of one engine's window. Where many engines share the memory, each keeps fewer.
MOST_SAMPLES, FEWEST_SAMPLES, SAMPLES_OF_ALL_ENGINES = 60, 12, 60 * 64


def samples_each(engines: int) -> int:
    """Return how many samples of a window to keep of each engine."""
    return max(FEWEST_SAMPLES, min(MOST_SAMPLES, SAMPLES_OF_ALL_ENGINES // max(engines, 1)))


@dataclass(slots=True)
class EngineTrack:
    """One engine, of one process. ``ratios`` counts its short windows by their acceptance rate, of all processes."""

    ring: SampleRing
    snapshot: EngineSnapshot
    loads: EngineLoads
    ratios: HistogramCounter
    short_window_start: float = -math.inf
    short_window_totals: Counts | None = None

    def close_short_window(self, now: float, policy: Policy) -> None:
        """Count the short window, if it has lasted long enough."""
        if now - self.short_window_start < policy.short_window_seconds:
            return
        before, totals = self.short_window_totals, self.ring.last.totals
        self.short_window_start, self.short_window_totals = now, totals
        if before is None:
            return
        counts = totals - before
        rate = acceptance_ratio(counts.accepted_tokens, counts.draft_tokens)
        enough = counts.drafts is None or counts.drafts >= policy.min_drafts
        if rate is not None and enough:
            self.ratios.observe(rate)
