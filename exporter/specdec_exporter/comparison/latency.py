"""One latency of two recordings: mean, quantiles and tail, and whether they differ beyond doubt."""

from __future__ import annotations

from typing import Final, Literal, NamedTuple

import msgspec

from specdec_exporter.comparison import distribution
from specdec_exporter.comparison.distribution import Quantile, Sample, Shift
from specdec_exporter.comparison.figure import ratio
from specdec_exporter.speculation.chance import Estimate
from specdec_exporter.speculation.policy import LatencyPolicy, Policy

Sli = Literal["time_per_output_token", "time_to_first_token", "request_latency"]
Outcome = Literal["faster", "no_difference", "inconclusive", "slower", "tail_worse", "undecided"]
Direction = Literal["faster", "no_difference", "inconclusive", "slower"]

SLIS: Final[tuple[Sli, ...]] = ("time_per_output_token", "time_to_first_token", "request_latency")
QUANTILES: Final = (0.5, 0.9, 0.95, 0.99)


class Pair(msgspec.Struct, frozen=True):
    """One figure of both sides; ``None`` if a side does not have it."""

    baseline: float | None
    candidate: float | None


class QuantileComparison(msgspec.Struct, frozen=True):
    """One quantile (0.99 for P99) of both sides."""

    quantile: float
    baseline: Quantile | None
    candidate: Quantile | None


class Conditions(NamedTuple):
    """What the circumstances of two recordings let one latency conclude.

    ``unlike`` says why nothing. ``tail``: whether the tail counts. ``like_load`` decides instead of the mean: the ratio
    at like load. ``paired``: both sides are of the same minutes. ``explained``: the traffic alone explains ratios of
    the means between these two.
    """

    unlike: str | None = None
    tail: bool = True
    like_load: Estimate | None = None
    paired: bool = False
    explained: tuple[float, float] = (1.0, 1.0)


class LatencyComparison(msgspec.Struct, frozen=True, kw_only=True):
    """One SLI of both sides. Ratios are candidate / baseline, so below 1 is faster; intervals are 95 %.

    ``like_load_ratio`` is the ratio at like load, where it decides instead of ``mean_ratio``. ``tail_shift``: requests
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


def compare_latency(
    sli: Sli, baseline: Sample, candidate: Sample, policy: Policy, conditions: Conditions
) -> LatencyComparison:
    """Compare one SLI under ``conditions``."""
    before, after = baseline.mean, candidate.mean
    means = ratio(after, before, policy.chance, paired=conditions.paired)
    tail = distribution.tail_shift(candidate, baseline, policy)
    requests = Pair(baseline.whole.count or None, candidate.whole.count or None)
    body = direction(conditions.like_load or means, policy.latency, conditions.explained)
    why = conditions.unlike or _too_few(requests, policy.latency) or (_UNKNOWN if body is None else None)
    return LatencyComparison(
        sli=sli,
        requests=requests,
        mean_seconds=Pair(before and before.value, after and after.value),
        mean_ratio=means,
        like_load_ratio=conditions.like_load,
        quantiles=tuple(
            QuantileComparison(share, *(distribution.quantile(side.whole, share) for side in (baseline, candidate)))
            for share in QUANTILES
        ),
        tail_shift=tail,
        outcome=_outcome(None if why else body, tail if conditions.tail else None),
        undecided_because=why,
    )


def _outcome(body: Direction | None, tail: Shift | None) -> Outcome:
    """Return the outcome of a body that may be judged, and of a tail that counts."""
    if body is None:
        return "undecided"
    return "tail_worse" if tail is not None and tail.shifted and body != "slower" else body


_UNKNOWN: Final = "how far chance moved it is not known: a recording is too short, or scatters widely, or has one stall"


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


def _too_few(requests: Pair, policy: LatencyPolicy) -> str | None:
    missing = [name for name in ("baseline", "candidate") if not getattr(requests, name)]
    if missing:
        return f"not recorded in the {' and the '.join(missing)}"
    fewest = min(requests.baseline or 0.0, requests.candidate or 0.0)
    if fewest < policy.min_requests:
        return f"{fewest:,.0f} requests, at least {policy.min_requests} are needed on both sides"
    return None
