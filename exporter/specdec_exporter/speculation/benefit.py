"""What speculation gives here: the break-even and the speed-up, measured or, if it must be, assumed."""

from __future__ import annotations

import math
from typing import Final, Literal, NamedTuple, get_args

import msgspec

from specdec_exporter.formatting import percent
from specdec_exporter.histogram import Histogram
from specdec_exporter.speculation.acceptance import ratio
from specdec_exporter.speculation.chance import Estimate, Z
from specdec_exporter.speculation.evidence import DecodingBaseline, Evidence
from specdec_exporter.speculation.figures import Figures
from specdec_exporter.speculation.measured import COMPARED, Measured
from specdec_exporter.speculation.policy import LatencyPolicy, Policy
from specdec_exporter.speculation.tailshift import Sample, Shift, tail_shift

Basis = Literal["measured", "assumed"]


class BreakEven(msgspec.Struct, frozen=True, kw_only=True):
    """Where drafts pay for themselves.

    ``measured``: against a baseline without speculation. ``assumed``: from published services, which is a guess, at
    ``concurrency`` requests in decode per engine; ``None``: the load is not known, and the lightest is assumed.
    ``mean_acceptance_length`` is 1 + draft length x ``acceptance_ratio``, for drafts of mean length, else of k tokens;
    ``None`` if neither is known. ``watch_acceptance_ratio``: from there on every published service gains.
    """

    basis: Basis
    mean_acceptance_length: float | None
    acceptance_ratio: float
    watch_acceptance_ratio: float = 1.0
    concurrency: float | None = None


def break_even(
    figures: Figures | None,
    num_speculative_tokens: int | None,
    method: str | None,
    policy: Policy,
    cost: Measured | None = None,
) -> BreakEven:
    """Return the measured break-even; the assumed one if nothing was drafted, or if the interval is not known."""
    drafted = (figures.mean_draft_length if figures else None) or num_speculative_tokens
    load = figures.concurrency if figures else None
    levels = policy.assumed.levels(method, drafted, load)
    basis: Basis = "assumed"
    least, measured = levels.min, cost.draft_cost_ratio if cost else None
    if cost is not None and measured is not None and measured.high is not None:
        basis, least, load = "measured", measured.value, cost.concurrency
    return BreakEven(
        basis=basis,
        mean_acceptance_length=None if drafted is None else 1.0 + drafted * least,
        acceptance_ratio=least,
        watch_acceptance_ratio=levels.watch,
        concurrency=load,
    )


def against(figures: Figures, even: BreakEven) -> str:
    """Say what a step gives and what would pay: as lengths where they are known, which need no k to be read."""
    if figures.mean_acceptance_length is None or even.mean_acceptance_length is None:
        return f"acceptance {percent(figures.acceptance_ratio)}; {needed(figures, even)}"
    return f"{figures.mean_acceptance_length:.2f} tokens a draft; {needed(figures, even)}"


def needed(figures: Figures, even: BreakEven) -> str:
    """Say what would pay at this load."""
    load, where = even.concurrency, "at light load (the load is not known)"
    if load is not None:
        number = f"{load:.{0 if load >= _WHOLE else 1}f}".removesuffix(".0")
        where = f"at {number} request{'' if number == '1' else 's'} in decode"
    if figures.mean_acceptance_length is None or even.mean_acceptance_length is None:
        return f"{where} about {even.acceptance_ratio:.0%} pays off, {even.basis}"
    # The length assumes that all of each draft is verified.
    about = "at most" if figures.partly_verified and even.basis == "assumed" else "about"
    return f"{where} {about} {even.mean_acceptance_length:.2f} pay off, {even.basis}"


_WHOLE: Final = 9.95  # from here on tenths of a request say nothing


Worth = Literal["healthy", "not_paying", "harmful"]


class Speed(msgspec.Struct, frozen=True, kw_only=True):
    """The measured speed against a baseline.

    ``speedup``: time per output token of the baseline / of what runs now, with its 95 % interval. ``word``: what it is
    worth beyond doubt; ``None`` if that cannot be told. ``possible``: what the interval leaves possible. A baseline
    that speculates tells nothing but harm.
    """

    speedup: Estimate
    word: Worth | None
    possible: frozenset[Worth]
    reason: str


def speed(figures: Figures, evidence: Evidence, even: BreakEven, policy: Policy) -> Speed | None:
    """Return the speed of decoding steps. Where the baseline has none without drafts, return that of requests."""
    if evidence.cost is not None:
        return of_steps(evidence.cost, policy.latency)
    if evidence.baseline is None:
        return None
    found = _Requests.of(figures, evidence.baseline, policy.latency)
    return _of_requests(found, figures, evidence.baseline, even, policy.latency) if found else None


def of_steps(cost: Measured, limits: LatencyPolicy) -> Speed | None:
    """Return the speed of decoding steps; ``None`` where it is not known."""
    found, compared = cost.speedup, cost.compared
    if found is None or compared is None or found.low is None or found.high is None:
        return None
    low, high = found.low, found.high
    reason = (
        f"speed-up of decoding {found.value:.2f} ({low:.2f} to {high:.2f}) {COMPARED[compared]}, against the baseline "
        f"without speculation; {cost.steps:,.0f} steps at {cost.concurrency or 0.0:.1f} requests in decode"
    )
    if (clients := cost.closed_loop) is not None and compared == "like_load":
        reason += f"; {clients.value:.2f} {COMPARED['closed_loop']}"
    if (cost.compared_ratio or 1.0) < _MOST:
        reason += f"; for {1.0 - (cost.compared_ratio or 1.0):.0%} of the time the baseline has no such load"
    word = worth_of(found, limits)
    if word == "healthy" and (cost.compared_ratio or 1.0) < _ENOUGH:
        word = None  # the rest of the time may be where it loses
    possible = _possible(found, limits.speedup_min, limits.speedup_harmful)
    return Speed(speedup=found, word=word, possible=possible, reason=reason)


_MOST: Final = 0.9  # of the time of all steps
_ENOUGH: Final = 0.8


def worth_of(speedup: Estimate, limits: LatencyPolicy) -> Worth | None:
    """Return what a speed-up is worth beyond doubt; ``None`` if that cannot be told.

    Harm wakes somebody, and health lets everybody sleep: the interval behind them is wider than the one that is shown.
    """
    value, low, high = speedup.value, speedup.low, speedup.high
    if low is None or high is None:
        return None
    least, most = (value * (end / value) ** limits.word_reach for end in (low, high))
    if value < limits.speedup_harmful and most < 1.0:
        return "harmful"
    if value >= limits.speedup_min and least > 1.0:
        return "healthy"
    return "not_paying" if high < limits.speedup_min else None


class _Requests(NamedTuple):
    """Requests that finished, against those of a baseline, at whatever load each had.

    ``slowdown``: mean time per output token / the baseline's. ``error``: its relative standard error. ``busier``: the
    load is higher, which may be why. ``words``: what was measured.
    """

    slowdown: float
    error: float
    busier: bool
    words: str

    @classmethod
    def of(cls, figures: Figures, baseline: DecodingBaseline, limits: LatencyPolicy) -> _Requests | None:
        """Compare the means; ``None`` if one is not known."""
        seconds, requests = figures.time_per_output_token_seconds, figures.timed_requests
        slowdown = ratio(seconds, baseline.mean_seconds)
        if seconds is None or not slowdown or not requests or not baseline.requests:
            return None
        error = limits.time_per_output_token_cv * math.sqrt(1 / requests + 1 / baseline.requests)
        busier = _is_busier(figures, baseline, slowdown, limits.traffic_tolerance)
        return cls(
            slowdown, error, busier, f"time per output token {1000 * seconds:.1f} ms over {requests:,.0f} requests, "
        )

    def is_slower(self, limit: float, z_score: float) -> bool:
        """Whether it is slower than ``limit`` times the baseline, and more than chance explains."""
        return self.slowdown > max(limit, 1 + z_score * self.error)


def _of_requests(
    found: _Requests, figures: Figures, baseline: DecodingBaseline, even: BreakEven, limits: LatencyPolicy
) -> Speed:
    value, reach = 1 / found.slowdown, 1 + Z * found.error
    speedup, faster = Estimate(value, value / reach, value * reach), value >= limits.speedup_min
    rejected = figures.acceptance_ratio is not None and figures.acceptance_ratio < even.acceptance_ratio
    tells, load = frozenset(get_args(Worth)), "at whatever load each had"
    if found.busier and not faster:
        tells, load = frozenset(), "the load is higher, which may be why"
    elif baseline.speculative:
        tells = frozenset({"harmful"} if rejected else ())
    word: Worth = "healthy" if faster else "not_paying"
    enough = (figures.timed_requests or 0.0) >= limits.min_requests
    if found.is_slower(limits.harmful_ratio, limits.z_score):
        word, enough = "harmful", True
    at_baseline = f"{1000 * (baseline.mean_seconds or 0.0):.1f} ms at baseline"
    compared = "with" if baseline.speculative else "without"
    return Speed(
        speedup=speedup,
        word=word if enough and word in tells else None,
        possible=_possible(speedup, limits.speedup_min, 1 / limits.harmful_ratio) & tells,
        reason=f"{found.words}{at_baseline} {compared} speculation: speed-up {value:.2f} ({load})",
    )


def _is_busier(figures: Figures, baseline: DecodingBaseline, slowdown: float, tolerance: float) -> bool:
    """Whether there are more requests per second than at baseline and more in decode, each by more than the tolerance.

    Little's law: requests in decode are tokens per second times seconds per token. More of them alone: it is slower.
    """
    requests = ratio(figures.timed_requests, figures.seconds), ratio(baseline.requests, baseline.seconds)
    tokens = ratio(figures.generation_tokens, figures.seconds), ratio(baseline.generation_tokens, baseline.seconds)
    more_requests, more_tokens = ratio(*requests), ratio(*tokens)
    if more_requests is None or more_tokens is None:
        return False
    return min(more_requests, more_tokens * slowdown) > 1.0 + tolerance


def _possible(speedup: Estimate, speedup_min: float, harmful_below: float) -> frozenset[Worth]:
    """Return what a speed-up may be within its interval. To pay, it must reach ``speedup_min`` and be above 1."""
    low, high = speedup.low or 0.0, math.inf if speedup.high is None else speedup.high
    worth: dict[Worth, bool] = {
        "healthy": high >= speedup_min,
        "not_paying": (low <= 1.0 or speedup.value < speedup_min) and high >= harmful_below,
        "harmful": low < harmful_below,
    }
    return frozenset(word for word, is_possible in worth.items() if is_possible)


class Slowdown(msgspec.Struct, frozen=True, kw_only=True):
    """Whether time per output token is slower than at baseline, whatever the reason: its mean, or its tail.

    ``within_chance``: whether chance may have decided ``slower``. ``by_drafts``: fewer accepted tokens per draft
    explain the slower mean.
    """

    slower: bool
    within_chance: bool
    by_drafts: bool
    reason: str


def slowdown(figures: Figures, baseline: DecodingBaseline, policy: Policy) -> Slowdown | None:
    """Compare with the same limits as the rule pack's latency alerts; ``None`` if nothing compares at this load."""
    limits = policy.latency
    found = _Requests.of(figures, baseline, limits)
    if found is None or found.busier:
        return None
    mean_slower, tail = found.is_slower(limits.slower_ratio, limits.z_score), _tail(figures, baseline, policy)
    tail_slower = tail is not None and tail.share > max(limits.tail_shift_critical, tail.margin)
    slower = mean_slower or tail_slower
    # The same again at the end of the 95 % intervals that is nearer to the other answer.
    sign = -1 if slower else 1
    mean_edge = found.slowdown * (1 + Z * found.error) ** sign > limits.slower_ratio
    tail_edge = tail is not None and tail.share + sign * Z * tail.error > limits.tail_shift_critical
    longer_then = ratio(baseline.mean_acceptance_length, figures.mean_acceptance_length)
    reason = f"{found.words}{found.slowdown:.2f} times the baseline's"
    if tail is not None and tail.limit_seconds is not None and tail_slower:
        reason += f", and {tail.share:.0%} of the requests, on top of those expected, exceed "
        reason += f"{1000 * tail.limit_seconds:g} ms"
    return Slowdown(
        slower=slower,
        within_chance=(mean_edge or tail_edge) != slower,
        by_drafts=longer_then is not None and mean_slower and found.slowdown <= longer_then * limits.slower_ratio,
        reason=reason,
    )


def _tail(figures: Figures, baseline: DecodingBaseline, policy: Policy) -> Shift | None:
    if baseline.times is None or not figures.timed_within or not figures.timed_requests:
        return None
    bounds, within = zip(*figures.timed_within, strict=True)
    total = (figures.time_per_output_token_seconds or 0.0) * figures.timed_requests
    now = Histogram((*bounds, math.inf), (*within, figures.timed_requests), total)
    return tail_shift(Sample(now), Sample(baseline.times), policy)
