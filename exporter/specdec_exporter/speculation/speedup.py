"""What drafts cost and give over a span, against a recording without them. Pure.

The speed-up of what runs now, at the load and with the prompts per second that it has, is its tokens * S0 / its step
seconds, where S0 is the time of a step without drafts (:mod:`.steptime`). ``None`` means that it cannot be known.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

import msgspec

from specdec_exporter.speculation.acceptance import Counts
from specdec_exporter.speculation.chance import Estimate, Spread, all_but_each, batches, jackknife, stalled
from specdec_exporter.speculation.load import Load
from specdec_exporter.speculation.policy import Policy
from specdec_exporter.speculation.steptime import MOST_PREFILL, Line, StepTimes, undisturbed


class Measured(msgspec.Struct, frozen=True, kw_only=True):
    """What drafts cost and gave over a span, against a recording without them.

    ``speedup`` is of decoding, at the load and the prompts per second that there were; it is what is judged.
    ``closed_loop`` is what a fixed number of clients gets: a faster server also reads their prompts faster.
    ``slowdown`` is step time / step time without drafts. ``compared_ratio`` is the share of the step time at loads near
    the recorded ones; the other figures are of this part. ``concurrency`` is the mean, per engine.
    """

    concurrency: float
    compared_ratio: float
    steps: float
    step_seconds: float
    plain_step_seconds: float
    tokens_per_step: float
    draft_tokens_per_step: float
    slowdown: Estimate
    speedup: Estimate
    closed_loop: Estimate

    @property
    def draft_cost_ratio(self) -> Estimate | None:
        """Cost of one more draft token / cost of a step without drafts, which is the acceptance that breaks even.

        It is never below 0: drafts do not make a step faster. ``None`` without drafts.
        """
        drafted = self.draft_tokens_per_step
        if drafted <= 0 or not math.isfinite(max(self.slowdown.value, self.slowdown.high or 0.0) / drafted):
            return None
        low, value, high = (
            None if bound is None else max((bound - 1.0) / drafted, 0.0)
            for bound in (self.slowdown.low, self.slowdown.value, self.slowdown.high)
        )
        return Estimate(value or 0.0, low, high)


class Unknown(NamedTuple):
    """Why a speed-up is not known, and what to do to know it."""

    why: str
    remedy: str


_LONGER: Final = "measure for longer"


def why_unknown(loads: Sequence[Load], plain: StepTimes, found: Measured | None, policy: Policy) -> Unknown | None:
    """Return why the speed-up that :func:`measure` ``found`` has no interval; ``None`` if it has one."""
    if found is not None and found.speedup.low is not None:
        return None
    told = undisturbed(loads, policy)
    near = _near(told, plain, policy)
    total, sums, needed = sum(told, Load(0.0, Counts())), _Sums.of(near, plain.line), policy.cost.min_steps
    if total.steps < needed:
        few = f"only {total.steps:,.0f} decoding steps to compare so far, {needed} are needed"
        return Unknown(few, "wait for more traffic")
    if sums is None or sums.steps < needed:
        low, high = plain.loads
        here = f"{total.concurrency:.1f} requests are in decode at a time, the baseline has {low:.1f} to {high:.1f}"
        return Unknown(here, "record the baseline without speculation at this load too")
    if not plain.covers_prompts(sums.prompt_rate):
        low, high = plain.prompt_rates
        here = f"{sums.prompt_rate:,.0f} prompt tokens come per second, the baseline has {low:,.0f} to {high:,.0f}"
        return Unknown(here, "record the baseline without speculation with prompts like these too")
    if len(told) < policy.chance.fewest_batches:
        return Unknown(f"only {len(told)} intervals so far, {policy.chance.fewest_batches} are needed", _LONGER)
    if _stalled(near, plain.line, policy):
        return Unknown("one stall took most of the time of all steps", _LONGER)
    return Unknown(f"chance alone could move it by more than a factor of {policy.chance.widest_interval:g}", _LONGER)


class _Bent(NamedTuple):
    """An interval at a load near the recorded ones, and how far the step time without drafts is off the line there."""

    load: Load
    bend: float

    def plain_seconds(self, line: Line) -> float:
        """Return the seconds of a step without drafts."""
        return self.bend * line.at(self.load.concurrency, self.load.prompt_rate)


def _near(loads: Sequence[Load], plain: StepTimes, policy: Policy) -> list[_Bent]:
    return [_Bent(load, plain.bend(load.concurrency, policy)) for load in loads if plain.covers(load.concurrency)]


def measure(loads: Sequence[Load], plain: StepTimes, policy: Policy, *, paired: bool = False) -> Measured | None:
    """Compare the intervals of a span, in the order of time, with a recording without drafts.

    ``None`` if too few steps ran at a load near the recorded ones, or with other prompts per second than there.
    ``paired``: both are of the same minutes, so that a burst or a noisy neighbour moves both sides of a batch alike.
    """
    told = undisturbed(loads, policy)
    near = _near(told, plain, policy)
    total = _Sums.of(near, plain.line)
    if total is None or total.steps < policy.cost.min_steps or not plain.covers_prompts(total.prompt_rate):
        return None
    chances = _chances(told, near, plain, policy, paired=paired)
    stall = _stalled(near, plain.line, policy)

    def ratio(figure: Callable[[_Sums], float]) -> Estimate:
        found = Spread(figure(total), 0.0)
        if stall:
            return Estimate(found.value, None, None)
        for without_each in chances:
            spread = jackknife(found.value, [figure(sums) if sums else None for sums in without_each])
            found *= Spread(1.0, spread.error, spread.freedom) if spread else Spread(1.0)
        # What the minutes of a pair had in common moved both sides off the line alike.
        return (found if paired else found * plain.doubt(policy)).of_two_runs(policy.chance)

    return Measured(
        concurrency=total.step_seconds / total.seconds,
        compared_ratio=total.step_seconds / math.fsum(load.step_seconds for load in told),
        steps=total.steps,
        step_seconds=total.step_seconds / total.steps,
        plain_step_seconds=total.plain_step_seconds / total.steps,
        tokens_per_step=total.tokens / total.steps,
        draft_tokens_per_step=math.fsum(each.load.counts.draft_tokens or 0.0 for each in near) / total.steps,
        slowdown=ratio(_Sums.slowdown),
        speedup=ratio(_Sums.speedup),
        closed_loop=ratio(_Sums.closed_loop),
    )


def _stalled(near: Sequence[_Bent], line: Line, policy: Policy) -> bool:
    due = [each.load.steps * each.plain_seconds(line) for each in near]
    return stalled([each.load.step_seconds for each in near], due, policy.chance)


def _chances(
    told: Sequence[Load], near: Sequence[_Bent], plain: StepTimes, policy: Policy, *, paired: bool
) -> list[list[_Sums | None]]:
    """Return the sums without each batch: of what runs now, and of the recording; of a pair, of both at once."""
    rest = all_but_each([_near(batch, plain, policy) for batch in batches(told, policy.chance)])
    if paired:
        return [list(map(_Sums.of, rest, plain.copies)) if len(plain.copies) == len(rest) else []]
    return [[_Sums.of(some, plain.line) for some in rest], [_Sums.of(near, copy) for copy in plain.copies]]


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
    def of(cls, near: Sequence[_Bent], line: Line) -> _Sums | None:
        """Return the sums; ``None`` without steps, or if absurd counts overflow."""
        rows = [
            (load.seconds, load.steps, load.step_seconds, load.tokens, load.prompt_rate * load.seconds, plain)
            for load, plain in ((each.load, each.plain_seconds(line)) for each in near)
        ]
        seconds, steps, step_seconds, tokens, prompts, _ = (
            map(math.fsum, zip(*rows, strict=True)) if rows else (0.0,) * 6
        )
        plain_steps, plain_tokens = (math.fsum(row[i] * row[5] for row in rows) for i in (1, 3))
        if not all(0.0 < each < math.inf for each in (steps, step_seconds, plain_steps, plain_tokens)):
            return None
        return cls(seconds, steps, step_seconds, tokens, prompts / seconds, plain_steps, plain_tokens, line.gamma)

    def slowdown(self) -> float:
        return self.step_seconds / self.plain_step_seconds

    def speedup(self) -> float:
        return self.plain_token_seconds / self.step_seconds

    def closed_loop(self) -> float:
        """U = L (alpha + beta b) / (S1 (1 - gamma r / U)), solved for U: r falls with the speed of the server."""
        share = min(self.gamma * self.prompt_rate, MOST_PREFILL)
        return self.speedup() * (1.0 - share) + share
