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
from types import MappingProxyType
from typing import Final, Literal, NamedTuple

import msgspec

from specdec_exporter.speculation.chance import Estimate, Spread, all_but_each, jackknife, stalled
from specdec_exporter.speculation.load import Load
from specdec_exporter.speculation.policy import Policy
from specdec_exporter.speculation.steptime import MOST_PREFILL, Curve, StepTimes, in_time, total, undisturbed

Compared = Literal["like_load", "closed_loop", "same_arrivals", "unlike_arrivals"]
COMPARED: Final[dict[Compared, str]] = {
    "like_load": "at the same load",
    "closed_loop": "with the same number of clients",
    "same_arrivals": "at the same requests per second",
    "unlike_arrivals": "beyond what the requests per second explain",
}


class Unknown(NamedTuple):
    """Why a speed-up is not known, and what to do to know it."""

    why: str
    remedy: str


class Measured(msgspec.Struct, frozen=True, kw_only=True):
    """What drafts cost and gave over a span, against a recording.

    ``speedup`` is of decoding, and is what is judged; ``compared`` says of which comparison it is. Both are ``None``
    where it is not known, and ``unknown`` says why. ``at_like_load``, ``closed_loop`` and ``same_arrivals`` are the
    comparisons that hold, each with an interval. ``draft_cost_ratio`` is the cost of one more draft token / the cost of
    a step without drafts, which is the acceptance that breaks even; ``plain_step_seconds`` is the latter. ``None``
    without drafts, and where no step time without drafts is known. ``compared_ratio`` is the share of the step time at
    loads near the recorded ones. ``concurrency`` is the mean, per engine.
    """

    compared: Compared | None = None
    speedup: Estimate | None = None
    unknown: Unknown | None = None
    at_like_load: Estimate | None = None
    closed_loop: Estimate | None = None
    same_arrivals: Estimate | None = None
    draft_cost_ratio: Estimate | None = None
    compared_ratio: float | None = None
    plain_step_seconds: float | None = None
    concurrency: float | None = None
    steps: float = 0.0
    step_seconds: float | None = None
    tokens_per_step: float | None = None
    draft_tokens_per_step: float | None = None


_LONGER: Final = "measure for longer"


def measure(loads: Sequence[Load], plain: StepTimes, policy: Policy, *, paired: bool = False) -> Measured:
    """Compare the intervals of a span, in the order of time, with a recording.

    ``paired``: both are of the same minutes, so that a burst or a noisy neighbour moves both sides of a batch alike.
    """
    told = undisturbed(loads, policy)
    now = _Now(total(told), told, plain, policy, paired)
    if (few := _too_little(now)) is not None:
        return _facts(now, unknown=few)
    by_arrivals = _by_arrivals(now, [load for load in loads if load.ran])
    answers = (_at_like_load(now), _with_the_same_clients(now), by_arrivals)
    known = {each.compared: each for each in answers if isinstance(each, _Found)}
    if not known:
        reasons = [each for each in answers if isinstance(each, Unknown)]
        return _facts(now, unknown=max(reasons, key=lambda each: each.remedy == _LONGER))
    return _facts(now, known)


class _Now(NamedTuple):
    """What runs now and what it is compared with. ``whole`` sums the intervals."""

    whole: Load
    loads: Sequence[Load]
    plain: StepTimes
    policy: Policy
    paired: bool


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


def _facts(
    now: _Now, known: Mapping[Compared, _Found] = MappingProxyType({}), unknown: Unknown | None = None
) -> Measured:
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
    if now.plain.steady:
        return _not_recorded(now)
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
    return Unknown(
        f"{now.whole.concurrency:.1f} requests are in decode at a time, the recording has {recorded}, and other "
        "requests per second",
        f"record the server without speculation at {_requests_per_second(now.whole)}, or with as many clients",
    )


def _requests_per_second(load: Load) -> str:
    rate = (load.counts.first_tokens or 0.0) / load.seconds
    return f"about {rate:.2g} requests per second on each engine" if rate else "this load"


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
    chances = _chances(now, near)

    def estimate(read: Callable[[_Sums], float]) -> Estimate:
        found = Spread(read(sums), 0.0) * doubt
        for without_each in chances:
            spread = jackknife(found.value, [read(each) if each else None for each in without_each])
            found *= Spread(1.0, spread.error, spread.freedom) if spread else Spread(1.0)
        # What the minutes of a pair had in common moved both sides off the curve alike.
        return (found if now.paired else found * plain.doubt(policy)).of_two_runs(policy.chance)

    if sums.step_seconds < policy.cost.compared_min * now.whole.step_seconds:
        return _not_recorded(now)
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
    rest = all_but_each([_near(batch, now) for batch in in_time(now.loads, policy)])
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


# --- Without a curve: by requests per second ------------------------------------------------------------------


def _by_arrivals(now: _Now, ran: Sequence[Load]) -> _Found | Unknown:
    then, policy = now.plain.whole, now.policy
    whole = total(ran)
    parts = [list(map(total, in_time(ran, policy))), list(now.plain.parts)]
    value = _token_seconds(parts[1]) / _token_seconds(parts[0]) if then.tokens and whole.tokens else math.nan
    demand = [_ratio(whole, then, each) for each in (_requests, _tokens)]
    if not 0.0 < value < math.inf or None in demand:
        return _not_recorded(now)
    if (other := _other_work(then, whole, policy)) is not None:
        return other
    found = _ratio_of_parts(value, parts, paired=now.paired)
    found = found if now.paired else found * now.plain.doubt(policy)
    reach, off = 1.0 + policy.latency.traffic_tolerance, [math.log(each) for each in demand if each]
    alike = max(map(abs, off)) <= math.log(reach)
    preempted = whole.counts.preemptions or then.counts.preemptions
    if alike and not preempted:
        # Where requests differ by so much, their time may too, whichever way.
        speedup = (found * Spread(1.0, max(map(abs, off)))).of_two_runs(policy.chance)
        return _Found("same_arrivals", speedup) if speedup.low is not None else _too_wide(policy)
    # A server that gets no more requests is no slower for them, and one that gets no fewer no faster.
    much = policy.latency.harmful_ratio
    no_more, no_fewer = max(off) <= math.log(reach), min(off) >= -math.log(reach)
    speedup = found.of_two_runs(policy.chance)
    if speedup.low is None or speedup.high is None:
        return _too_wide(policy)
    if (no_more and speedup.high < 1.0 and value * much <= 1.0) or (no_fewer and speedup.low > 1.0 and value >= much):
        return _Found("unlike_arrivals", speedup)
    return _not_recorded(now)


def _requests(load: Load) -> float:
    return load.counts.first_tokens or 0.0


def _tokens(load: Load) -> float:
    return load.tokens


def _ratio(one: Load, other: Load, amount: Callable[[Load], float]) -> float | None:
    above, below = amount(one) / one.seconds, amount(other) / other.seconds
    return above / below if above > 0.0 and below > 0.0 else None


def _token_seconds(parts: Sequence[Load]) -> float:
    return math.fsum(each.step_seconds for each in parts) / math.fsum(each.tokens for each in parts)


def _ratio_of_parts(value: float, parts: Sequence[Sequence[Load]], *, paired: bool) -> Spread:
    now, then = ([*map(_token_seconds_or_none, all_but_each([[each] for each in side]))] for side in parts)
    if paired:
        pairs = zip(then, now, strict=True) if len(then) == len(now) else ()
        return jackknife(value, [one / other if one and other else None for one, other in pairs]) or Spread(value)
    found = Spread(value, 0.0)
    for side in (now, then):
        spread = jackknife(value, side)
        found *= Spread(1.0, spread.error, spread.freedom) if spread else Spread(1.0)
    return found


def _token_seconds_or_none(parts: Sequence[Load]) -> float | None:
    return _token_seconds(parts) if any(each.tokens > 0.0 for each in parts) else None
