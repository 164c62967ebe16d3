"""The speed-up by requests per second, which needs no curve of step times. Pure."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Final

from specdec_exporter.speculation.chance import Estimate, Spread, all_but_each, jackknife
from specdec_exporter.speculation.load import Load
from specdec_exporter.speculation.measured import Unknown
from specdec_exporter.speculation.policy import Policy
from specdec_exporter.speculation.spans import (
    PREEMPTED,
    Found,
    Now,
    not_recorded,
    of_prompts,
    of_short_spans,
    or_bursts,
    other_work,
    requests,
    too_wide,
)
from specdec_exporter.speculation.steptime import in_time, is_even, scatter, total


def by_arrivals(now: Now, ran: Sequence[Load]) -> Found | Unknown:
    """Compare seconds of decoding for a token; ``ran`` are all intervals of now, also those with preemptions."""
    whole, then, policy = total(ran), now.plain.whole, now.policy
    demand = [_per_second(whole, then, requests), _per_second(whole, then, lambda load: load.tokens)]
    if None in demand:
        return not_recorded(now)
    if (other := other_work(then, whole, policy)) is not None:
        return other
    found = _token_ratio(now, ran) * of_short_spans(now) * of_prompts(then, whole)
    off = [math.log(each) for each in demand if each]
    reach = math.log(1.0 + policy.cost.arrivals_tolerance)
    if max(map(abs, off)) <= (reach if _arrive_by_chance(now) else reach / _STEADIER):
        if whole.counts.preemptions or then.counts.preemptions:
            return Unknown(*PREEMPTED)
        # Where requests differ by so much, their time may too, whichever way.
        speedup = (found * Spread(1.0, max(map(abs, off)))).of_two_runs(policy.chance)
        return or_bursts(Found("same_arrivals", speedup), now, ran) if speedup.low is not None else too_wide(policy)
    # A server that gets no more requests is no slower for them, and one that gets no fewer no faster.
    speedup = (found * Spread(1.0, policy.chance.runs_differ)).estimate()
    slower, faster = (_is_much(each, policy) for each in (speedup.inverse(), speedup))
    if (slower and max(off) <= reach) or (faster and min(off) >= -reach):
        return or_bursts(Found("unlike_arrivals", speedup), now, ran)
    return not_recorded(now)


_STEADIER: Final = 2.5  # where the load is even, requests come at a fixed rate, or the number of clients has changed


def _arrive_by_chance(now: Now) -> bool:
    return not (now.plain.even and is_even(now.loads, now.policy))


def _is_much(ratio: Estimate, policy: Policy) -> bool:
    return (ratio.low or 0.0) > 1.0 and ratio.value >= policy.latency.harmful_ratio


def _per_second(one: Load, other: Load, amount: Callable[[Load], float]) -> float | None:
    above, below = amount(one) / one.seconds, amount(other) / other.seconds
    return above / below if above > 0.0 and below > 0.0 else None


def _token_ratio(now: Now, ran: Sequence[Load]) -> Spread:
    """Return the recording's seconds of decoding for a token / those of now."""
    after, before = [total(batch) for batch in in_time(ran, now.policy, now.span)], now.plain.parts
    value = _token_seconds(before) / _token_seconds(after)
    rest = [[_token_seconds(some) for some in all_but_each([[each] for each in side])] for side in (before, after)]
    if now.paired:
        pairs = zip(*rest, strict=True) if len(before) == len(after) else ()
        return jackknife(value, [one / other for one, other in pairs]) or Spread(value)
    found = Spread(value, 0.0)
    for side in rest:
        spread = jackknife(value, side)
        found *= Spread(1.0, spread.error, spread.freedom) if spread else Spread(1.0)
    # A drift that is slower than the batches shows in the scatter of the intervals only.
    return found * Spread(1.0, now.policy.chance.scatter_counted * math.hypot(now.plain.scatter, scatter(ran)))


def _token_seconds(parts: Sequence[Load]) -> float:
    tokens = math.fsum(each.tokens for each in parts)
    return math.fsum(each.step_seconds for each in parts) / tokens if tokens else math.nan
