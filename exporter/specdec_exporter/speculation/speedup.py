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
from typing import NamedTuple

from specdec_exporter.speculation.arrivals import by_arrivals
from specdec_exporter.speculation.chance import Estimate, Spread, all_but_each, jackknife, stalled
from specdec_exporter.speculation.line import MOST_PREFILL
from specdec_exporter.speculation.load import Load
from specdec_exporter.speculation.measured import Compared, Measured, Unknown
from specdec_exporter.speculation.policy import Policy
from specdec_exporter.speculation.spans import (
    CERTAIN,
    LONGER,
    PREEMPTED,
    Found,
    Now,
    at_this_load,
    not_recorded,
    of_prompts,
    of_short_spans,
    or_bursts,
    other_prompt_rate,
    other_work,
    requests,
    too_wide,
)
from specdec_exporter.speculation.steptime import Curve, StepTimes, in_time, total, undisturbed


def measure(loads: Sequence[Load], plain: StepTimes, policy: Policy, *, paired: bool = False) -> Measured:
    """Compare the intervals of a span, in the order of time, with a recording.

    ``paired``: both are of the same minutes, so that a burst or a noisy neighbour moves both sides of a batch alike.
    """
    told = undisturbed(loads, policy)
    now = Now(total(told), told, plain, policy, paired)
    if (few := _too_little(now)) is not None:
        return _facts(now, {}, few)
    by_load = (_with_the_same_clients,) if plain.steady else (_at_like_load, _with_the_same_clients)
    answers = [*(compared(now) for compared in by_load), by_arrivals(now, [load for load in loads if load.ran])]
    known = {each.compared: each for each in answers if isinstance(each, Found)}
    reasons = [each for each in answers if isinstance(each, Unknown)]
    # Where time alone would help, that is the easiest advice to follow.
    return _facts(now, known, None if known else max(reasons, key=lambda each: each.remedy == LONGER))


def _too_little(now: Now) -> Unknown | None:
    needed, fewest = now.policy.cost.min_steps, now.policy.chance.fewest_batches
    if now.whole.steps < needed:
        few = f"only {now.whole.steps:,.0f} decoding steps to compare so far, {needed} are needed"
        return Unknown(few, "wait for more traffic")
    if len(now.loads) < fewest:
        return Unknown(f"only {len(now.loads)} intervals so far, {fewest} are needed", LONGER)
    return None


def _facts(now: Now, known: Mapping[Compared, Found], unknown: Unknown | None) -> Measured:
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


def _at_like_load(now: Now) -> Found | Unknown:
    sums = _Sums.of(_near(now.loads, now), now.plain.curve, now.policy)
    if sums is None or sums.steps < now.policy.cost.min_steps:
        return not_recorded(now)
    if not now.plain.covers_prompts(sums.prompt_rate, now.policy):
        return other_prompt_rate(now, sums.prompt_rate)
    return _by_curve(now, "like_load", _Sums.speedup)


def _with_the_same_clients(now: Now) -> Found | Unknown:
    """A fixed number of clients sends prompts as fast as it gets answers: r / U is what the plain server would read."""
    plain, whole = now.plain, now.whole
    if plain.steady:
        if plain.preempted or any(load.counts.preemptions for load in now.loads):
            return Unknown(*PREEMPTED)
        if not plain.covers(whole.concurrency, now.policy):
            return not_recorded(now)
        if (other := other_work(plain.whole, whole, now.policy)) is not None:
            return other
        # The step may not depend on the load at all, or on nothing else: between the two lies half their ratio.
        doubt = Spread(1.0, abs(math.log(whole.concurrency / plain.whole.concurrency)) / 2.0)
        found = _by_curve(now, "closed_loop", _Sums.speedup, doubt * of_prompts(plain.whole, whole))
        return or_bursts(found, now, now.loads)
    sums = _Sums.of(_near(now.loads, now), plain.curve, now.policy)
    if sums is None or sums.steps < now.policy.cost.min_steps:
        return not_recorded(now)
    if not plain.covers_prompts(sums.prompt_rate / max(sums.closed_loop(), 1e-9), now.policy):
        return other_prompt_rate(now, sums.prompt_rate)
    return _by_curve(now, "closed_loop", _Sums.closed_loop)


def _near(loads: Sequence[Load], now: Now) -> list[Load]:
    if now.plain.steady:
        return list(loads)
    return [load for load in loads if now.plain.covers(load.concurrency, now.policy)]


def _by_curve(
    now: Now, compared: Compared, figure: Callable[[_Sums], float], doubt: Spread = CERTAIN
) -> Found | Unknown:
    plain, policy = now.plain, now.policy
    near = _near(now.loads, now)
    sums = _Sums.of(near, plain.curve, policy)
    if sums is None:
        return Unknown("the counts are too large to be true", LONGER)
    due = [load.steps * plain.curve.at(load.concurrency, load.prompt_rate, policy) for load in near]
    if stalled([load.step_seconds for load in near], due, policy.chance):
        return Unknown("one stall took most of the time of all steps", LONGER)
    chances, load = _chances(now, near), total(near).concurrency

    def estimate(read: Callable[[_Sums], float]) -> Estimate:
        found = Spread(read(sums), 0.0) * doubt
        for without_each in chances:
            spread = jackknife(found.value, [read(each) if each else None for each in without_each])
            found *= Spread(1.0, spread.error, spread.freedom) if spread else Spread(1.0)
        found *= of_short_spans(now)
        # What the minutes of a pair had in common moved both sides off the curve alike.
        return (found if now.paired else found * plain.doubt(load, policy)).of_two_runs(policy.chance)

    if sums.step_seconds < policy.cost.compared_min * now.whole.step_seconds:
        return Unknown(
            f"only {sums.step_seconds / now.whole.step_seconds:.0%} of the decoding ran at loads near those of the "
            "recording",
            at_this_load(requests(now.whole) / now.whole.seconds),
        )
    speedup = estimate(figure)
    if speedup.low is None:
        return too_wide(policy)
    return Found(
        compared,
        speedup,
        estimate(lambda each: each.tokens / each.steps / figure(each)),
        sums.plain_step_seconds / sums.steps,
        sums.step_seconds / now.whole.step_seconds,
    )


def _chances(now: Now, near: Sequence[Load]) -> list[list[_Sums | None]]:
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
