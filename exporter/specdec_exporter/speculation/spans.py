"""Two spans that are compared, what of them differs, and why a speed-up is then not known. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final, NamedTuple

from specdec_exporter.speculation.chance import Estimate, Spread
from specdec_exporter.speculation.load import Load
from specdec_exporter.speculation.measured import Compared, Unknown
from specdec_exporter.speculation.policy import Policy
from specdec_exporter.speculation.steptime import StepTimes, span_of, unevenness

LONGER: Final = "measure for longer"
SAME_REQUESTS: Final = "record the server without speculation while it gets the same requests"


class Now(NamedTuple):
    """What runs now and what it is compared with. ``whole`` sums the intervals."""

    whole: Load
    loads: Sequence[Load]
    plain: StepTimes
    policy: Policy
    paired: bool

    @property
    def span(self) -> tuple[float, float] | None:
        """The minutes of a pair."""
        return self.plain.span if self.paired else None


class Found(NamedTuple):
    """A comparison that holds. ``slowdown`` is step time / step time without drafts, seconds of ``plain_step``."""

    compared: Compared
    speedup: Estimate
    slowdown: Estimate | None = None
    plain_step: float | None = None
    compared_ratio: float | None = None


def of_short_spans(now: Now) -> Spread:
    """Return a 1 with what two runs differ by more, the shorter they are: a machine drifts within minutes."""
    seconds = min(_seconds(now.whole, span_of(now.loads)), _seconds(now.plain.whole, now.plain.span))
    short = max(now.policy.chance.enough_seconds / seconds - 1.0, 0.0)
    return Spread(1.0, now.policy.chance.runs_differ * math.sqrt(short))


def _seconds(whole: Load, span: tuple[float, float] | None) -> float:
    """Return the wall clock of intervals: those of several engines are of the same time."""
    return span[1] - span[0] if span else whole.seconds


# --- Why a speed-up is not known --------------------------------------------------------------------------------------


def too_wide(policy: Policy) -> Unknown:
    """Return that an interval is too wide to be said."""
    return Unknown(f"the interval of the speed-up is wider than a factor of {policy.chance.widest_interval:g}", LONGER)


PREEMPTED: Final = ("requests are preempted, which lengthens their steps", "give the KV cache more memory")


def not_recorded(now: Now) -> Unknown:
    """Return that neither the load nor the requests per second of now were recorded."""
    low, high = now.plain.loads
    recorded = f"{low:.1f}" if now.plain.steady else f"{low:.1f} to {high:.1f}"
    rate, then = (requests(load) / load.seconds for load in (now.whole, now.plain.whole))
    come, came = (f" and {rate:.2g} come per second", f" and {then:.2g}") if rate else ("", "")
    return Unknown(
        f"{now.whole.concurrency:.1f} requests are in decode at a time{come}, on each engine; the recording has "
        f"{recorded}{came}",
        at_this_load(rate),
    )


def at_this_load(rate: float) -> str:
    """Return what to record; ``rate`` is requests per second, 0 if not known."""
    load = f"about {rate:.2g} requests per second on each engine" if rate else "this load"
    return f"record the server without speculation at {load}, or with as many clients"


def other_prompt_rate(now: Now, prompt_rate: float) -> Unknown:
    """Return that such a rate of prompts was not recorded."""
    low, high = now.plain.prompt_rates
    return Unknown(
        f"{prompt_rate:,.0f} prompt tokens are computed per second, the recording has {low:,.0f} to {high:,.0f}",
        SAME_REQUESTS,
    )


def other_work(then: Load, now: Load, policy: Policy) -> Unknown | None:
    """Return why the requests of two spans are other work: prompt tokens for each generated one differ."""
    before, after = _prompts_per_token(then), _prompts_per_token(now)
    least, most = sorted((before, after))
    if most <= least * (1.0 + policy.latency.traffic_tolerance) or most < _FEW_PROMPTS:
        return None
    return Unknown(
        f"{after:.2g} prompt tokens are computed for each generated one, the recording has {before:.2g}",
        SAME_REQUESTS,
    )


def of_prompts(then: Load, now: Load) -> Spread:
    """Return a 1 with the error of prompts that differ a little: reading them may be most of a step, or nothing."""
    before, after = _prompts_per_token(then), _prompts_per_token(now)
    if not before or not after:
        return CERTAIN
    share = after / (1.0 + after)
    return Spread(1.0, share * abs(math.log(after / before)))


def _prompts_per_token(load: Load) -> float:
    return load.prompt_rate * load.seconds / load.tokens if load.tokens else 0.0


CERTAIN: Final = Spread(1.0, 0.0)
_FEW_PROMPTS: Final = 1.0  # for each generated token: their steps are few beside those of decoding


def or_bursts(found: Found | Unknown, now: Now, loads: Sequence[Load]) -> Found | Unknown:
    """Return ``found``, unless the requests come in more bursts on the side that is slower, which may be why."""
    if isinstance(found, Unknown):
        return found
    after, before = unevenness(loads), now.plain.unevenness
    more, fewer = (after, before) if found.speedup.value < 1.0 else (before, after)
    if more <= fewer * (1.0 + now.policy.latency.traffic_tolerance):
        return found
    side = "now" if more is after else "in the recording"
    why = f"requests come more unevenly {side}: a step has {more:.1f} times as many in decode as there are on average"
    return Unknown(why, SAME_REQUESTS)


def requests(load: Load) -> float:
    """Return how many requests began to decode."""
    return load.counts.first_tokens or 0.0
