"""One latency of two recordings: mean, quantiles and tail, and whether they differ beyond doubt."""

from __future__ import annotations

import math
from typing import Final, Literal, NamedTuple

import msgspec

from specdec_exporter.comparison import distribution
from specdec_exporter.comparison.distribution import Quantile, Sample, Shift
from specdec_exporter.speculation.estimate import Z_OF_PAIR, Estimate
from specdec_exporter.speculation.policy import LatencyPolicy

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
    """One quantile (0.99 for P99) of both sides; ``ratio`` is candidate / baseline."""

    quantile: float
    baseline: Quantile | None
    candidate: Quantile | None
    ratio: Estimate | None


class Conditions(NamedTuple):
    """What the circumstances of two recordings let one latency conclude.

    ``unlike`` says why nothing. ``tail``: whether the tail counts. ``explained``: the traffic alone explains ratios of
    the means between these two. ``like_load`` decides instead of the mean: the ratio at loads that both sides had.
    """

    unlike: str | None = None
    tail: bool = True
    explained: tuple[float, float] = (1.0, 1.0)
    like_load: Estimate | None = None


_ALIKE: Final = Conditions()


class LatencyComparison(msgspec.Struct, frozen=True, kw_only=True):
    """One SLI of both sides. Ratios are candidate / baseline, so below 1 is faster; intervals are 95 %.

    ``like_load_ratio`` is the ratio at loads that both sides had, where it decides instead of ``mean_ratio``.
    ``tail_shift``: requests newly slower than a limit that held most of them at baseline, as in the rule pack.
    ``head_shift``: requests newly faster than some boundary. Shifts and quantiles use common boundaries only;
    ``common_bounds``: whether any exist. ``undecided_because`` says in words why ``outcome`` is ``undecided``.
    ``requests_needed``: about how many requests of each side would decide an ``inconclusive`` one.
    """

    sli: Sli
    requests: Pair
    mean_seconds: Pair
    mean_ratio: Estimate | None
    like_load_ratio: Estimate | None
    quantiles: tuple[QuantileComparison, ...]
    tail_shift: Shift | None
    head_shift: Shift | None
    common_bounds: bool
    outcome: Outcome
    undecided_because: str | None
    requests_needed: float | None


def compare_latency(
    sli: Sli,
    baseline: Sample | None,
    candidate: Sample | None,
    policy: LatencyPolicy,
    conditions: Conditions = _ALIKE,
) -> LatencyComparison:
    """Compare one SLI under ``conditions``."""
    ratio = _ratio_of_means(baseline, candidate, policy)
    common = distribution.on_common_bounds(baseline, candidate) if baseline and candidate else None
    quantiles = _compare_quantiles(baseline, candidate, common, policy)
    tail = distribution.tail_shift(common[1], common[0], policy) if common else None
    head = distribution.head_shift(common[1], common[0], policy) if common else None
    requests = Pair(*(side.whole.count if side else None for side in (baseline, candidate)))
    median = direction(quantiles[0].ratio, policy)
    body = direction(conditions.like_load, policy)
    if conditions.like_load is None:
        body = direction(ratio, policy, conditions.explained) or median
    outcome, why = _judged(body, conditions.unlike or _too_few(requests, policy))
    if body is not None and why is None and conditions.tail:
        outcome = _outcome(body, median, tail, head)
    needed = _requests_needed(conditions.like_load or ratio, requests, policy) if outcome == "inconclusive" else None
    return LatencyComparison(
        sli=sli,
        requests=requests,
        mean_seconds=Pair(*map(_mean, (baseline, candidate))),
        mean_ratio=ratio,
        like_load_ratio=conditions.like_load,
        quantiles=quantiles,
        tail_shift=tail,
        head_shift=head,
        common_bounds=common is not None,
        outcome=outcome,
        undecided_because=why,
        requests_needed=needed,
    )


def _judged(body: Direction | None, why_not: str | None) -> tuple[Outcome, str | None]:
    """Return the outcome by the body alone, or why nothing is decided."""
    if why_not is None and body is not None:
        return body, None
    no_interval = (
        "the ratio has no interval: requests above the last bucket, means of 0, or too few blocks at like load"
    )
    return "undecided", why_not or no_interval


def _ratio_of_means(baseline: Sample | None, candidate: Sample | None, policy: LatencyPolicy) -> Estimate | None:
    before, after = (distribution.mean(side, policy) if side else None for side in (baseline, candidate))
    if before is None or after is None:
        return None
    spread = after / before
    return spread.estimate() if 0.0 < spread.value < math.inf else None  # under- or overflow: no real measurement


def _mean(side: Sample | None) -> float | None:
    return side.whole.mean if side and side.whole.count > 0 and side.whole.mean < math.inf else None


def _outcome(body: Direction, median: Direction | None, tail: Shift | None, head: Shift | None) -> Outcome:
    """A worse tail counts unless the body is slower too. A tail alone can make the mean slower with a faster head."""
    if tail is None or not tail.shifted:
        return body
    only_its_tail = head is not None and head.shifted and median != "slower"
    return "slower" if body == "slower" and not only_its_tail else "tail_worse"


def _compare_quantiles(
    baseline: Sample | None, candidate: Sample | None, common: tuple[Sample, Sample] | None, policy: LatencyPolicy
) -> tuple[QuantileComparison, ...]:
    if common is not None:
        return tuple(_compare_quantile(share, *common, policy) for share in QUANTILES)
    # Each side has its own boundaries: the quantiles can be read, not compared.
    found = (_compare_quantile(share, baseline, candidate, policy) for share in QUANTILES)
    return tuple(msgspec.structs.replace(row, ratio=None) for row in found)


def _compare_quantile(
    share: float, baseline: Sample | None, candidate: Sample | None, policy: LatencyPolicy
) -> QuantileComparison:
    before, after = (distribution.quantile(side, share, policy) if side else None for side in (baseline, candidate))
    ratio = None
    if baseline is not None and candidate is not None:
        # Wider than the intervals that are shown, so that both together hold with 95 %.
        wide = [distribution.quantile(side, share, policy, Z_OF_PAIR) for side in (candidate, baseline)]
        ratio = distribution.ratio_of_quantiles(*wide)
    return QuantileComparison(share, before, after, ratio)


def direction(
    found: Estimate | None, policy: LatencyPolicy, explained: tuple[float, float] = (1.0, 1.0)
) -> Direction | None:
    """Return the direction; ``None`` without an interval.

    One that differs needs an interval without 1, and more than run-to-run variation beyond what the traffic
    explains. No difference needs an interval that leaves none to be found.
    """
    if found is None or found.low is None or found.high is None:
        return None
    if found.high < 1.0 and found.value * policy.speedup_min <= explained[0]:
        return "faster"
    if found.low > 1.0 and found.value >= policy.slowdown_min * explained[1]:
        return "slower"
    none_left = found.low * policy.speedup_min >= 1.0 and found.high <= policy.slowdown_min
    return "no_difference" if none_left else "inconclusive"


def _requests_needed(shown: Estimate | None, requests: Pair, policy: LatencyPolicy) -> float | None:
    """Return how many requests would narrow the interval enough for a decision; the error shrinks with their root.

    A ratio as large as a difference is decided by an interval without 1; a smaller one by an interval that leaves no
    difference. With the next recording the ratio itself moves, so no less than half of the smallest difference counts.
    """
    if shown is None or shown.low is None or shown.high is None or not shown.low < shown.high:
        return None
    half, away = math.log(shown.high / shown.low) / 2.0, abs(math.log(shown.value))
    least = math.log(policy.slowdown_min)
    wanted = away if away >= least else max(least - away, least / 2.0)
    fewest = min(requests.baseline or 0.0, requests.candidate or 0.0)
    needed = fewest * max(half / wanted, 1.0) ** 2
    return needed if needed < math.inf else None


def _too_few(requests: Pair, policy: LatencyPolicy) -> str | None:
    missing = [name for name in ("baseline", "candidate") if not getattr(requests, name)]
    if missing:
        return f"not recorded in the {' and the '.join(missing)}"
    fewest = min(requests.baseline or 0.0, requests.candidate or 0.0)
    if fewest < policy.min_requests:
        return f"{fewest:,.0f} requests, at least {policy.min_requests} are needed on both sides"
    return None
