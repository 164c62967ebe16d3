"""One latency of two recordings: mean, quantiles and tail, and whether they differ beyond doubt."""

from __future__ import annotations

from typing import Final, Literal

import msgspec

from specdec_exporter.comparison import distribution
from specdec_exporter.comparison.distribution import Quantile, Shift
from specdec_exporter.histogram import Histogram
from specdec_exporter.speculation.estimate import Z_OF_PAIR, Estimate, ratio_of_means
from specdec_exporter.speculation.policy import LatencyPolicy

Sli = Literal["time_per_output_token", "time_to_first_token", "request_latency"]
Outcome = Literal["faster", "no_difference", "slower", "tail_worse", "undecided"]
Direction = Literal["faster", "no_difference", "slower"]

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


class LatencyComparison(msgspec.Struct, frozen=True, kw_only=True):
    """One SLI of both sides. Ratios are candidate / baseline, so below 1 is faster; intervals are 95 %.

    ``tail_shift``: requests newly slower than a limit that held most of them at baseline, as in the rule pack.
    ``head_shift``: requests newly faster than some boundary. Shifts and quantiles use common boundaries only;
    ``common_bounds``: whether any exist. ``undecided_because`` says in words why ``outcome`` is ``undecided``.
    """

    sli: Sli
    requests: Pair
    mean_seconds: Pair
    mean_ratio: Estimate | None
    quantiles: tuple[QuantileComparison, ...]
    tail_shift: Shift | None
    head_shift: Shift | None
    common_bounds: bool
    outcome: Outcome
    undecided_because: str | None


def compare_latency(
    sli: Sli,
    baseline: Histogram | None,
    candidate: Histogram | None,
    policy: LatencyPolicy,
    *,
    unlike: str | None = None,
) -> LatencyComparison:
    """Compare one SLI. ``unlike`` (different traffic) makes the outcome ``undecided`` and says why."""
    means = [distribution.mean(histogram) if histogram else None for histogram in (baseline, candidate)]
    before, after = means
    ratio = ratio_of_means(after, before) if before and after else None
    common = distribution.on_common_bounds(baseline, candidate) if baseline and candidate else None
    quantiles = tuple(_compare_quantile(share, *(common or (baseline, candidate))) for share in QUANTILES)
    if common is None:  # each side has its own boundaries: the quantiles can be read, not compared
        quantiles = tuple(msgspec.structs.replace(row, ratio=None) for row in quantiles)
    tail = distribution.tail_shift(common[1], common[0], policy) if common else None
    head = distribution.head_shift(common[1], common[0], policy) if common else None
    requests = Pair(*(mean.count if mean else None for mean in means))
    median = _direction(quantiles[0].ratio, policy)
    body = _direction(ratio, policy) or median
    why = unlike or _too_few(requests, policy)
    if why is None and body is None:
        why = "the ratio of the means has no interval: requests above the last bucket, or means of 0"
    return LatencyComparison(
        sli=sli,
        requests=requests,
        mean_seconds=Pair(*(mean.value if mean else None for mean in means)),
        mean_ratio=ratio,
        quantiles=quantiles,
        tail_shift=tail,
        head_shift=head,
        common_bounds=common is not None,
        outcome="undecided" if why or body is None else _outcome(body, median, tail, head),
        undecided_because=why,
    )


def _outcome(body: Direction, median: Direction | None, tail: Shift | None, head: Shift | None) -> Outcome:
    """A worse tail counts unless the body is slower too. A tail alone can make the mean slower with a faster head."""
    if tail is None or not tail.shifted:
        return body
    only_its_tail = head is not None and head.shifted and median != "slower"
    return "slower" if body == "slower" and not only_its_tail else "tail_worse"


def _compare_quantile(share: float, baseline: Histogram | None, candidate: Histogram | None) -> QuantileComparison:
    before, after = (distribution.quantile(side, share) if side else None for side in (baseline, candidate))
    ratio = None
    if baseline is not None and candidate is not None:
        # Wider than the intervals that are shown, so that both together hold with 95 %.
        wide = [distribution.quantile(side, share, Z_OF_PAIR) for side in (candidate, baseline)]
        ratio = distribution.ratio_of_quantiles(*wide)
    return QuantileComparison(share, before, after, ratio)


def _direction(ratio: Estimate | None, policy: LatencyPolicy) -> Direction | None:
    """A direction needs an interval without 1 and more than run-to-run variation; ``None`` without an interval."""
    if ratio is None or ratio.low is None or ratio.high is None:
        return None
    if ratio.high < 1.0 and ratio.value * policy.speedup_min <= 1.0:
        return "faster"
    if ratio.low > 1.0 and ratio.value >= policy.slowdown_min:
        return "slower"
    return "no_difference"


def _too_few(requests: Pair, policy: LatencyPolicy) -> str | None:
    missing = [name for name in ("baseline", "candidate") if not getattr(requests, name)]
    if missing:
        return f"not recorded in the {' and the '.join(missing)}"
    fewest = min(requests.baseline or 0.0, requests.candidate or 0.0)
    if fewest < policy.min_requests:
        return f"{fewest:,.0f} requests, at least {policy.min_requests} are needed on both sides"
    return None
