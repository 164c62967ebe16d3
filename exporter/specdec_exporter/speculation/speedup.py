"""What drafts cost and give over a span, against a recording: the one answer for two files, several, and live. Pure.

:func:`measure` answers three questions: what is the speed-up of decoding, of what, and is it known. Three comparisons
can tell, and the first that holds is the one that is judged:

- *at the same load*: as many requests in decode and prompts per second. The recording's curve (:mod:`.steptime`) gives
  S0, the time of a step without drafts; the speed-up is the tokens of now * S0 / their step seconds. The most certain
  one under a load that varies.
- *with the same number of clients*: as many requests in decode, and the prompts that the slower server would have read
  for them. Where the load was steady, it needs no curve: S0 is the recording's mean.
- *at the same requests per second*: seconds of decoding for a token, one against the other. A faster server has fewer
  requests in decode then, so this holds where its load was never recorded.

Where none holds, one more tells what nobody can doubt: a server that serves no more requests per second and is much
slower loses, as under an overload; one that serves no fewer and is much faster gains.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Final, NamedTuple

from specdec_exporter.speculation.chance import Estimate, Spread, all_but_each, jackknife, stalled
from specdec_exporter.speculation.line import MOST_PREFILL
from specdec_exporter.speculation.load import Load
from specdec_exporter.speculation.measured import Compared, Measured, Unknown
from specdec_exporter.speculation.policy import Policy
from specdec_exporter.speculation.steptime import Curve, StepTimes, in_time, scatter, total, undisturbed

_LONGER: Final = "measure for longer"


def measure(loads: Sequence[Load], plain: StepTimes, policy: Policy, *, paired: bool = False) -> Measured:
    """Compare the intervals of a span, in the order of time, with a recording.

    ``paired``: both are of the same minutes, so that a burst or a noisy neighbour moves both sides of a batch alike.
    """
    told = undisturbed(loads, policy)
    now = _Now(total(told), told, plain, policy, paired)
    if (few := _too_little(now)) is not None:
        return _facts(now, {}, few)
    by_load = (_with_the_same_clients,) if plain.steady else (_at_like_load, _with_the_same_clients)
    answers = [*(compared(now) for compared in by_load), _by_arrivals(now, [load for load in loads if load.ran])]
    known = {each.compared: each for each in answers if isinstance(each, _Found)}
    reasons = [each for each in answers if isinstance(each, Unknown)]
    # Where time alone would help, that is the easiest advice to follow.
    return _facts(now, known, None if known else max(reasons, key=lambda each: each.remedy == _LONGER))


class _Now(NamedTuple):
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


class _Found(NamedTuple):
    """A comparison that holds. ``slowdown`` is step time / step time without drafts, seconds of ``plain_step``."""

    compared: Compared
    speedup: Estimate
    slowdown: Estimate | None = None
    plain_step: float | None = None
    compared_ratio: float | None = None


def _too_little(now: _Now) -> Unknown | None:
    needed, fewest = now.policy.cost.min_steps, now.policy.chance.fewest_batches
    if now.whole.steps < needed:
        few = f"only {now.whole.steps:,.0f} decoding steps to compare so far, {needed} are needed"
        return Unknown(few, "wait for more traffic")
    if len(now.loads) < fewest:
        return Unknown(f"only {len(now.loads)} intervals so far, {fewest} are needed", _LONGER)
    return None


def _facts(now: _Now, known: Mapping[Compared, _Found], unknown: Unknown | None) -> Measured:
    """Return the facts of now, and the comparisons that hold; the first is judged."""
    judged = next(iter(known.values()), None)
    speedups = {compared: each.speedup for compared, each in known.items()}
    whole, drafted = now.whole, now.whole.counts.draft_tokens or 0.0
    per_step = drafted / whole.steps if whole.steps else None
    return Measured(
        compared=judged.compared if judged else None,
        speedup=judged.speedup if judged else None,
        unknown=unknown,
        at_like_load=speedups.get("like_load"),
        closed_loop=speedups.get("closed_loop"),
        same_arrivals=speedups.get("same_arrivals"),
        draft_cost_ratio=_draft_cost(judged.slowdown, per_step) if judged else None,
        compared_ratio=judged.compared_ratio if judged else None,
        plain_step_seconds=judged.plain_step if judged else None,
        concurrency=whole.concurrency if whole.steps else None,
        steps=whole.steps,
        step_seconds=whole.step_seconds / whole.steps if whole.steps else None,
        tokens_per_step=whole.tokens / whole.steps if whole.steps else None,
        draft_tokens_per_step=per_step,
    )


def _draft_cost(slowdown: Estimate | None, drafted: float | None) -> Estimate | None:
    """Return (slowdown - 1) / draft tokens per step; never below 0: drafts do not make a step faster."""
    if slowdown is None or not drafted or slowdown.low is None or slowdown.high is None:
        return None
    if not math.isfinite(slowdown.high / drafted):
        return None
    low, value, high = (max((each - 1.0) / drafted, 0.0) for each in (slowdown.low, slowdown.value, slowdown.high))
    return Estimate(value, low, high)


# --- Against the curve: at the same load, and with the same number of clients -----------------------------------------


def _at_like_load(now: _Now) -> _Found | Unknown:
    sums = _Sums.of(_near(now.loads, now), now.plain.curve, now.policy)
    if sums is None or sums.steps < now.policy.cost.min_steps:
        return _not_recorded(now)
    if not now.plain.covers_prompts(sums.prompt_rate, now.policy):
        return _other_prompts(now, sums.prompt_rate)
    return _by_curve(now, "like_load", _Sums.speedup)


def _with_the_same_clients(now: _Now) -> _Found | Unknown:
    """A fixed number of clients sends prompts as fast as it gets answers: r / U is what the plain server would read."""
    plain, whole = now.plain, now.whole
    if plain.steady:
        if plain.preempted or any(load.counts.preemptions for load in now.loads):
            return Unknown("requests are preempted, which lengthens their steps", "give the KV cache more memory")
        if not plain.covers(whole.concurrency, now.policy):
            return _not_recorded(now)
        if (other := _other_work(plain.whole, whole, now.policy)) is not None:
            return other
        # The step may not depend on the load at all, or on nothing else: between the two lies half their ratio.
        doubt = Spread(1.0, abs(math.log(whole.concurrency / plain.whole.concurrency)) / 2.0)
        return _by_curve(now, "closed_loop", _Sums.speedup, doubt)
    sums = _Sums.of(_near(now.loads, now), plain.curve, now.policy)
    if sums is None or sums.steps < now.policy.cost.min_steps:
        return _not_recorded(now)
    if not plain.covers_prompts(sums.prompt_rate / max(sums.closed_loop(), 1e-9), now.policy):
        return _other_prompts(now, sums.prompt_rate)
    return _by_curve(now, "closed_loop", _Sums.closed_loop)


def _not_recorded(now: _Now) -> Unknown:
    low, high = now.plain.loads
    recorded = f"{low:.1f}" if now.plain.steady else f"{low:.1f} to {high:.1f}"
    rate, then = (_requests(load) / load.seconds for load in (now.whole, now.plain.whole))
    come, came = (f" and {rate:.2g} come per second", f" and {then:.2g}") if rate else ("", "")
    return Unknown(
        f"{now.whole.concurrency:.1f} requests are in decode at a time{come}, on each engine; the recording has "
        f"{recorded}{came}",
        _at_this_load(rate),
    )


def _at_this_load(rate: float) -> str:
    """Return what to record; ``rate`` is requests per second, 0 if not known."""
    load = f"about {rate:.2g} requests per second on each engine" if rate else "this load"
    return f"record the server without speculation at {load}, or with as many clients"


def _other_prompts(now: _Now, prompt_rate: float) -> Unknown:
    low, high = now.plain.prompt_rates
    return Unknown(
        f"{prompt_rate:,.0f} prompt tokens are computed per second, the recording has {low:,.0f} to {high:,.0f}",
        "record the server without speculation while it gets the same requests",
    )


def _other_work(then: Load, now: Load, policy: Policy) -> Unknown | None:
    """Return why the requests of two spans are other work: prompt tokens for each generated one differ."""
    before, after = ((load.prompt_rate * load.seconds) / load.tokens if load.tokens else 0.0 for load in (then, now))
    least, most = sorted((before, after))
    if most <= least * policy.latency.prompt_length_ratio or most < _FEW_PROMPTS:
        return None
    return Unknown(
        f"{after:.2g} prompt tokens are computed for each generated one, the recording has {before:.2g}",
        "record the server without speculation while it gets the same requests",
    )


_FEW_PROMPTS: Final = 1.0  # for each generated token: their steps are few beside those of decoding


_CERTAIN: Final = Spread(1.0, 0.0)


def _near(loads: Sequence[Load], now: _Now) -> list[Load]:
    if now.plain.steady:
        return list(loads)
    return [load for load in loads if now.plain.covers(load.concurrency, now.policy)]


def _by_curve(
    now: _Now, compared: Compared, figure: Callable[[_Sums], float], doubt: Spread = _CERTAIN
) -> _Found | Unknown:
    plain, policy = now.plain, now.policy
    near = _near(now.loads, now)
    sums = _Sums.of(near, plain.curve, policy)
    if sums is None:
        return Unknown("the counts are too large to be true", _LONGER)
    due = [load.steps * plain.curve.at(load.concurrency, load.prompt_rate, policy) for load in near]
    if stalled([load.step_seconds for load in near], due, policy.chance):
        return Unknown("one stall took most of the time of all steps", _LONGER)
    chances, load = _chances(now, near), total(near).concurrency

    def estimate(read: Callable[[_Sums], float]) -> Estimate:
        found = Spread(read(sums), 0.0) * doubt
        for without_each in chances:
            spread = jackknife(found.value, [read(each) if each else None for each in without_each])
            found *= Spread(1.0, spread.error, spread.freedom) if spread else Spread(1.0)
        # What the minutes of a pair had in common moved both sides off the curve alike.
        return (found if now.paired else found * plain.doubt(load, policy)).of_two_runs(policy.chance)

    if sums.step_seconds < policy.cost.compared_min * now.whole.step_seconds:
        return Unknown(
            f"only {sums.step_seconds / now.whole.step_seconds:.0%} of the decoding ran at loads near those of the "
            "recording",
            _at_this_load(_requests(now.whole) / now.whole.seconds),
        )
    speedup = estimate(figure)
    if speedup.low is None:
        return _too_wide(policy)
    return _Found(
        compared,
        speedup,
        estimate(lambda each: each.tokens / each.steps / figure(each)),
        sums.plain_step_seconds / sums.steps,
        sums.step_seconds / now.whole.step_seconds,
    )


def _too_wide(policy: Policy) -> Unknown:
    return Unknown(f"the interval of the speed-up is wider than a factor of {policy.chance.widest_interval:g}", _LONGER)


def _chances(now: _Now, near: Sequence[Load]) -> list[list[_Sums | None]]:
    """Return the sums without each batch: of what runs now, and of the recording; of a pair, of both at once."""
    plain, policy = now.plain, now.policy
    rest = all_but_each([_near(batch, now) for batch in in_time(now.loads, policy, now.span)])
    if now.paired:
        if len(plain.copies) != len(rest):
            return [[]]
        return [[_Sums.of(some, copy, policy) for some, copy in zip(rest, plain.copies, strict=True)]]
    return [
        [_Sums.of(some, plain.curve, policy) for some in rest],
        [_Sums.of(near, copy, policy) for copy in plain.copies],
    ]


class _Sums(NamedTuple):
    """Sums over intervals, beside what the same steps and tokens would have taken without drafts.

    Each interval counts at its own load: at their mean, bursts would read too low.
    """

    seconds: float
    steps: float
    step_seconds: float
    tokens: float
    prompt_rate: float
    plain_step_seconds: float
    plain_token_seconds: float
    gamma: float

    @classmethod
    def of(cls, near: Sequence[Load], curve: Curve, policy: Policy) -> _Sums | None:
        """Return the sums; ``None`` without steps, or if absurd counts overflow."""
        rows = [
            (load.seconds, load.steps, load.step_seconds, load.tokens, load.prompt_rate * load.seconds, plain)
            for load, plain in ((each, curve.at(each.concurrency, each.prompt_rate, policy)) for each in near)
        ]
        seconds, steps, step_seconds, tokens, prompts, _ = (
            map(math.fsum, zip(*rows, strict=True)) if rows else (0.0,) * 6
        )
        plain_steps, plain_tokens = (math.fsum(row[i] * row[5] for row in rows) for i in (1, 3))
        if not all(0.0 < each < math.inf for each in (steps, step_seconds, tokens, plain_steps, plain_tokens)):
            return None
        gamma = curve.line.gamma
        return cls(seconds, steps, step_seconds, tokens, prompts / seconds, plain_steps, plain_tokens, gamma)

    def speedup(self) -> float:
        return self.plain_token_seconds / self.step_seconds

    def closed_loop(self) -> float:
        """U = L (alpha + beta b) / (S1 (1 - gamma r / U)), solved for U: r falls with the speed of the server."""
        share = min(self.gamma * self.prompt_rate, MOST_PREFILL)
        return self.speedup() * (1.0 - share) + share


# --- Without a curve: by requests per second --------------------------------------------------------------------------


def _by_arrivals(now: _Now, ran: Sequence[Load]) -> _Found | Unknown:
    whole, then, policy = total(ran), now.plain.whole, now.policy
    demand = [_per_second(whole, then, _requests), _per_second(whole, then, _tokens)]
    if None in demand:
        return _not_recorded(now)
    if (other := _other_work(then, whole, policy)) is not None:
        return other
    found = _token_ratio(now, ran)
    off, reach = [math.log(each) for each in demand if each], math.log(1.0 + policy.latency.traffic_tolerance)
    if max(map(abs, off)) <= reach and not (whole.counts.preemptions or then.counts.preemptions):
        # Where requests differ by so much, their time may too, whichever way.
        speedup = (found * Spread(1.0, max(map(abs, off)))).of_two_runs(policy.chance)
        return _Found("same_arrivals", speedup) if speedup.low is not None else _too_wide(policy)
    speedup = found.of_two_runs(policy.chance)
    if speedup.low is None:
        return _too_wide(policy)
    # A server that gets no more requests is no slower for them, and one that gets no fewer no faster.
    slower, faster = (_is_much(each, policy) for each in (speedup.inverse(), speedup))
    if (slower and max(off) <= reach) or (faster and min(off) >= -reach):
        return _Found("unlike_arrivals", speedup)
    return _not_recorded(now)


def _is_much(ratio: Estimate, policy: Policy) -> bool:
    return (ratio.low or 0.0) > 1.0 and ratio.value >= policy.latency.harmful_ratio


def _requests(load: Load) -> float:
    return load.counts.first_tokens or 0.0


def _tokens(load: Load) -> float:
    return load.tokens


def _per_second(one: Load, other: Load, amount: Callable[[Load], float]) -> float | None:
    above, below = amount(one) / one.seconds, amount(other) / other.seconds
    return above / below if above > 0.0 and below > 0.0 else None


def _token_ratio(now: _Now, ran: Sequence[Load]) -> Spread:
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
    return found * Spread(1.0, now.policy.chance.misfit_counted * math.hypot(now.plain.scatter, scatter(ran)))


def _token_seconds(parts: Sequence[Load]) -> float:
    tokens = math.fsum(each.tokens for each in parts)
    return math.fsum(each.step_seconds for each in parts) / tokens if tokens else math.nan
