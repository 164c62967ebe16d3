"""One latency of two recordings: mean, quantiles and tail, and whether they differ beyond doubt. Pure."""

from __future__ import annotations

import math
from typing import Final, Literal

import msgspec

from specdec_exporter.baseline.file import Baseline
from specdec_exporter.comparison.figure import Figure, ratio
from specdec_exporter.comparison.traffic import Difference, Sli
from specdec_exporter.histogram import Histogram
from specdec_exporter.speculation.chance import Estimate, Z
from specdec_exporter.speculation.measured import Measured
from specdec_exporter.speculation.policy import LatencyPolicy, Policy
from specdec_exporter.speculation.tailshift import Sample, Shift, tail_shift

Direction = Literal["faster", "no_difference", "inconclusive", "slower"]
Outcome = Literal[Direction, "tail_worse", "undecided"]

TITLES: Final[dict[Sli, str]] = {  # the first one decides
    "time_per_output_token": "time per output token",
    "time_to_first_token": "time to first token",
    "request_latency": "end-to-end latency",
}
QUANTILES: Final = (0.5, 0.9, 0.95, 0.99)


class Pair(msgspec.Struct, frozen=True):
    """One figure of both sides; ``None`` if a side does not have it."""

    baseline: float | None
    candidate: float | None


class Quantile(msgspec.Struct, frozen=True):
    """With 95 % confidence the quantile lies between these bucket boundaries, seconds; ``None``: none on that side."""

    low_seconds: float | None
    high_seconds: float | None


class QuantileComparison(msgspec.Struct, frozen=True):
    """One quantile (0.99 for P99) of both sides."""

    quantile: float
    baseline: Quantile
    candidate: Quantile


class LatencyComparison(msgspec.Struct, frozen=True, kw_only=True):
    """One SLI of both sides. Ratios are candidate / baseline, so below 1 is faster; intervals are 95 %.

    ``like_load_ratio``, 1 / the speed-up that the steps tell, decides about the time per output token instead of
    ``mean_ratio`` wherever steps were recorded. ``tail_shift``: requests
    newly slower than a limit that held most of them at baseline, as in the rule pack; at boundaries that both have.
    ``undecided_because`` says in words why ``outcome`` is ``undecided``.
    """

    sli: Sli
    requests: Pair
    mean_seconds: Pair
    mean_ratio: Estimate | None
    like_load_ratio: Estimate | None
    quantiles: tuple[QuantileComparison, ...]
    tail_shift: Shift | None
    outcome: Outcome
    undecided_because: str | None


def _sample(recording: Baseline, sli: Sli) -> Sample:
    """Return an SLI of a recording; without requests if it was not recorded."""
    whole, *blocks = (getattr(each, f"{sli}_seconds") for each in (recording, *recording.blocks))
    return Sample(whole or Histogram((math.inf,), (0.0,), 0.0), tuple(block for block in blocks if block and whole))


def mean_of(sample: Sample) -> Figure | None:
    """Return seconds per request; ``None`` without requests, and if they took no time."""
    if sample.whole.count <= 0 or not 0.0 < sample.whole.mean < math.inf:
        return None
    return Figure(sample.whole.mean, tuple((block.sum, block.count) for block in sample.blocks))


def compare_latency(
    sli: Sli,
    baseline: Baseline,
    candidate: Baseline,
    traffic: Difference,
    policy: Policy,
    *,
    measured: Measured | None,
    paired: bool,
) -> LatencyComparison:
    """Compare one SLI. What is ``measured`` by steps decides about the time per output token: steps are many.

    ``paired``: both sides are of the same minutes. The error of other latencies is not known then: a burst that both
    had moves their queues, not their steps, alike.
    """
    sides = then, now = _sample(baseline, sli), _sample(candidate, sli)
    before, after = mean_of(then), mean_of(now)
    means, tail = ratio(after, before, policy.chance, paired=paired), tail_shift(now, then, policy)
    requests = Pair(*(side.whole.count or None for side in sides))
    few, decisive, explained = _too_few(requests, policy.latency), means, traffic.explains(sli)
    steps = measured if sli == "time_per_output_token" else None
    why = _not_judged(sli, traffic, steps, paired=paired) or (few if steps is None else None)
    if steps is not None:
        decisive, explained = _inverse(steps.speedup), (1.0, 1.0)
    found = direction(decisive, policy.latency, explained)
    outcome = _outcome(found, tail, traffic, few) if why is None else "undecided"
    return LatencyComparison(
        sli=sli,
        requests=requests,
        mean_seconds=Pair(before and before.value, after and after.value),
        mean_ratio=means,
        like_load_ratio=decisive if steps else None,
        quantiles=tuple(
            QuantileComparison(share, *(Quantile(*side.whole.quantile(share, Z)) for side in sides))
            for share in QUANTILES
        ),
        tail_shift=tail,
        outcome=outcome,
        undecided_because=why or (_CHANCE if outcome == "undecided" else None),
    )


def _inverse(speedup: Estimate | None) -> Estimate | None:
    return speedup.inverse() if speedup else None


_CHANCE: Final = "chance may explain it: a recording is too short, scatters widely, or has one long stall"


def _not_judged(sli: Sli, traffic: Difference, steps: Measured | None, *, paired: bool) -> str | None:
    """Return why a latency concludes nothing, however many requests there are."""
    if sli != "time_per_output_token":
        return "of recordings with --paired, only decoding is" if paired else traffic.forbids(sli)
    if steps is not None:
        return steps.unknown.why if steps.unknown else None
    return "loads or prefix caches differ, and step times are not known" if traffic.other_steps else None


def _outcome(body: Direction | None, tail: Shift | None, traffic: Difference, few: str | None) -> Outcome:
    """Return the outcome of a latency that may be judged; its tail counts if the traffic is alike and not ``few``."""
    if body is None:
        return "undecided"
    counts = traffic.alike and few is None and body != "slower"
    return "tail_worse" if counts and tail is not None and tail.shifted else body


def _too_few(requests: Pair, policy: LatencyPolicy) -> str | None:
    fewest = min(requests.baseline or 0.0, requests.candidate or 0.0)
    few = f"{fewest:,.0f} requests, at least {policy.min_requests} are needed on both sides"
    return few if fewest < policy.min_requests else None


def direction(
    found: Estimate | None, policy: LatencyPolicy, explained: tuple[float, float] = (1.0, 1.0)
) -> Direction | None:
    """Return the direction of a ratio of latencies; ``None`` without an interval.

    One that differs needs an interval without 1, and a ratio that matters beyond what the traffic explains. No
    difference needs an interval that leaves none to be found.
    """
    if found is None or found.low is None or found.high is None:
        return None
    if found.high < 1.0 and found.value * policy.speedup_min <= explained[0]:
        return "faster"
    if found.low > 1.0 and found.value >= policy.slowdown_min * explained[1]:
        return "slower"
    none_left = found.low * policy.speedup_min >= 1.0 and found.high <= policy.slowdown_min
    return "no_difference" if none_left else "inconclusive"
