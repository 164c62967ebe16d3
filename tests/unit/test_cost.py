"""What a draft costs, against servers of known cost: exact without noise, in its interval with it, else silent."""

from __future__ import annotations

import dataclasses
import math
import random
import statistics
from collections.abc import Sequence
from itertools import accumulate
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from builders import known, numbers
from specdec_exporter.speculation.acceptance import Counts
from specdec_exporter.speculation.cost import (
    KChoice,
    MeasuredCost,
    StepCost,
    StepTime,
    StepTimes,
    choose_k,
    measure,
    step_times,
)
from specdec_exporter.speculation.estimate import Estimate, Spread
from specdec_exporter.speculation.load import Load, LoadBin, LoadBins
from specdec_exporter.speculation.policy import load_policy

POLICY = load_policy().cost
FACTOR = POLICY.like_load_factor


@dataclasses.dataclass(frozen=True)
class Server:
    """A server with a known cost: a step takes ``base`` + ``per_request`` * b, and drafts make it longer.

    ``drafting`` is the share of steps with a draft; of these, position i is accepted in ``curve[i]``. ``noise`` is the
    relative deviation of the step time of an interval.
    """

    fixed: float = 0.1
    marginal: float = 0.05
    curve: tuple[float, ...] = (0.6, 0.4, 0.3)
    drafting: float = 1.0
    base: float = 0.02
    per_request: float = 0.0005
    noise: float = 0.0

    @property
    def k(self) -> int:
        return len(self.curve)

    @property
    def slowdown(self) -> float:
        return 1.0 + self.drafting * (self.fixed + self.k * self.marginal) if self.k else 1.0

    @property
    def tokens_per_step(self) -> float:
        return 1.0 + self.drafting * sum(self.curve)

    @property
    def speedup(self) -> float:
        return self.tokens_per_step / self.slowdown

    @property
    def draft_cost_ratio(self) -> float:
        return (self.slowdown - 1.0) / (self.drafting * self.k)

    def plain_step_seconds(self, concurrency: float) -> float:
        return self.base + self.per_request * concurrency

    def interval(self, concurrency: float, source: random.Random | None = None, seconds: float = 5.0) -> Load:
        """What it does in some seconds; with a ``source`` of randomness if it is noisy, else as expected."""
        step = self.plain_step_seconds(concurrency) * self.slowdown
        if source is not None:
            step *= math.exp(source.gauss(0.0, self.noise))
        steps = seconds * concurrency / step
        drafts = self.drafting * steps
        positions = [drafts * rate for rate in self.curve]
        return Load(
            seconds,
            Counts(
                steps=steps,
                step_seconds=concurrency * seconds,
                generation_tokens=steps + sum(positions) + 3.0,
                first_tokens=3.0,
                prompt_tokens=300.0,
                drafts=drafts if self.k else None,
                draft_tokens=drafts * self.k if self.k else None,
                accepted_tokens=sum(positions) if self.k else None,
                accepted_per_position=tuple(positions),
            ),
        )


PLAIN = Server(fixed=0.0, marginal=0.0, curve=())


def recorded(loads: Sequence[Load]) -> tuple[LoadBin, ...]:
    bins = LoadBins()
    for each in loads:
        bins.add(each)
    return bins.bins()


def times_of(*concurrencies: float, intervals: int = 12, server: Server = PLAIN) -> StepTimes:
    return step_times(recorded([server.interval(b) for b in concurrencies for _ in range(intervals)]), POLICY)


def exact(found: float) -> Any:
    return pytest.approx(found, rel=1e-9)


# --- Step times of a recording ---


def test_a_load_with_few_steps_or_intervals_says_nothing() -> None:
    few_intervals = [PLAIN.interval(3.0)] * (POLICY.min_intervals - 1)
    few_steps = [PLAIN.interval(12.0, seconds=0.1)] * POLICY.min_intervals  # 185 steps
    assert step_times(recorded(few_intervals + few_steps), POLICY).points == ()
    enough = step_times(recorded([*few_intervals, *few_steps, PLAIN.interval(3.0), *few_steps[:1]]), POLICY)
    assert len(enough.points) == 2
    assert all(point.seconds.error is not None for point in enough.points)


def point(concurrency: float, seconds: float, error: float | None = 0.01, freedom: int = 9) -> StepTime:
    return StepTime(concurrency, Spread(seconds, error, freedom))


TIMES = StepTimes((point(4.0, 0.02, 0.01, 9), point(8.0, 0.03, 0.02, 5)), 2.0)


@pytest.mark.parametrize("concurrency", [16.01, 1.99, 0.0, math.inf, math.nan, -1.0, 1e308, 5e-324])
def test_far_from_all_loads_nothing_is_known(concurrency: float) -> None:
    assert TIMES.at(concurrency) is None


# --- Measured ---

servers = st.builds(
    Server,
    fixed=st.floats(0.0, 1.0),
    marginal=st.floats(0.0, 0.5),
    curve=st.lists(st.floats(0.0, 1.0), min_size=1, max_size=8).map(lambda rates: tuple(accumulate(rates, min))),
    drafting=st.floats(0.05, 1.0),
)


@given(servers, st.lists(st.floats(4.0, 16.0), min_size=4, max_size=30))
def test_without_noise_cost_and_speedup_are_exact_at_any_mix_of_loads(server: Server, loads: list[float]) -> None:
    """Step times between recorded loads are exact here, because they grow with load along a line."""
    plain = StepTimes(tuple(point(b, PLAIN.plain_step_seconds(b), 0.0) for b in (4.0, 8.0, 16.0)), FACTOR)
    found = known(measure([server.interval(b) for b in loads], plain, POLICY))
    assert found.slowdown.value == exact(server.slowdown)
    assert found.speedup.value == exact(server.speedup)
    assert found.tokens_per_step == exact(server.tokens_per_step)
    assert found.draft_tokens_per_step == exact(server.drafting * server.k)
    assert known(found.draft_cost_ratio).value == pytest.approx(server.draft_cost_ratio, abs=1e-9)
    assert found.compared_ratio == exact(1.0)
    assert found.step_seconds == exact(found.plain_step_seconds * server.slowdown)
    assert found.concurrency == exact(statistics.fmean(loads))
    # The identity of all of them: U = L * S0 / S1.
    assert found.speedup.value == exact(found.tokens_per_step * found.plain_step_seconds / found.step_seconds)


NOISY = Server(noise=0.08)


def trial(name: str, server: Server, loads: Sequence[float], plain_loads: Sequence[float]) -> MeasuredCost:
    source = random.Random(name)
    plain = dataclasses.replace(PLAIN, noise=server.noise)
    recording = [plain.interval(b * source.uniform(0.95, 1.05), source) for b in plain_loads]
    times = step_times(recorded(recording), POLICY)
    return known(measure([server.interval(b * source.uniform(0.9, 1.1), source) for b in loads], times, POLICY))


@pytest.mark.parametrize(
    ("server", "loads", "plain_loads"),
    [
        (NOISY, [5.0, 9.0, 14.0] * 12, [3.0] * 12 + [6.0] * 8 + [12.0] * 30 + [20.0] * 8),
        (dataclasses.replace(NOISY, fixed=0.0, marginal=0.0, curve=(0.02,)), [6.0] * 12, [6.0] * 12),
        (NOISY, [6.0] * POLICY.min_intervals, [6.0] * POLICY.min_intervals),
    ],
    ids=["several loads", "free drafts", "as few as allowed"],
)
def test_cost_and_speedup_lie_in_their_intervals(server: Server, loads: list[float], plain_loads: list[float]) -> None:
    found = [trial(f"measure {number}", server, loads, plain_loads) for number in range(200)]
    for estimates, truth in (
        ([each.speedup for each in found], server.speedup),
        ([each.slowdown for each in found], server.slowdown),
        ([known(each.draft_cost_ratio) for each in found], server.draft_cost_ratio),
    ):
        assert statistics.mean(known(each.low) <= truth <= known(each.high) for each in estimates) >= 0.93
        assert statistics.median(each.value for each in estimates) == pytest.approx(truth, abs=0.02 * server.slowdown)


def test_a_load_that_the_baseline_lacks_is_not_compared() -> None:
    plain = times_of(4.0, 6.0)
    server = Server()
    found = known(measure([server.interval(b) for b in (4.0, 6.0, 60.0)] * 6, plain, POLICY))
    assert found.compared_ratio == exact(10.0 / 70.0)
    assert found.concurrency == exact(5.0)
    assert measure([server.interval(60.0)] * 12, plain, POLICY) is None
    assert measure([], plain, POLICY) is None
    assert measure([server.interval(4.0)] * 12, StepTimes((), FACTOR), POLICY) is None


def test_too_few_steps_say_nothing_and_too_few_intervals_have_no_interval() -> None:
    plain = times_of(4.0)
    assert measure([Server().interval(4.0, seconds=0.5)], plain, POLICY) is None
    found = known(measure([Server().interval(4.0)] * (POLICY.min_intervals - 1), plain, POLICY))
    assert (found.speedup.low, found.speedup.high, found.pays(1.05)) == (None, None, None)
    cost = known(found.draft_cost_ratio)
    assert (cost.value, cost.low, cost.high) == (exact(Server().draft_cost_ratio), None, None)


# --- The cost ratio ---


def measured(slowdown: Estimate, drafted: float = 3.0, speedup: Estimate | None = None) -> MeasuredCost:
    return MeasuredCost(
        concurrency=4.0, compared_ratio=1.0, steps=1000.0, step_seconds=0.02, plain_step_seconds=0.02,
        tokens_per_step=2.0, draft_tokens_per_step=drafted, slowdown=slowdown,
        speedup=speedup or Estimate(1.0, None, None),
    )  # fmt: skip


def test_the_cost_ratio_is_never_below_0_and_unknown_without_drafts() -> None:
    found = known(measured(Estimate(1.3, 0.9, 1.6)).draft_cost_ratio)
    assert (found.value, found.low, found.high) == (exact(0.1), 0.0, exact(0.2))
    assert measured(Estimate(0.9, 0.8, 0.95)).draft_cost_ratio == Estimate(0.0, 0.0, 0.0)
    assert measured(Estimate(1.3, None, None), 2.0).draft_cost_ratio == Estimate(exact(0.15), None, None)
    assert measured(Estimate(1.3, 1.2, 1.4), 0.0).draft_cost_ratio is None


@pytest.mark.parametrize(
    ("low", "value", "high", "pays"),
    [(1.01, 1.06, 1.1, True), (0.99, 1.06, 1.1, None), (1.01, 1.04, 1.1, None), (0.8, 0.9, 1.04, False),
     (0.8, 0.9, 1.05, None), (1.01, 1.02, 1.04, False), (None, 1.5, None, None)],
)  # fmt: skip
def test_whether_it_pays_is_said_beyond_chance_only(
    low: float | None, value: float, high: float | None, pays: bool | None
) -> None:
    assert measured(Estimate(1.2, 1.1, 1.3), speedup=Estimate(value, low, high)).pays(1.05) is pays


# --- The guide's tables ---

CODE = (0.50, 0.40, 0.33)
CHAT = (0.16, 0.02, 0.01)


def slowdown_of(curve: Sequence[float], speedup: float) -> float:
    return (1.0 + sum(curve)) / speedup


@pytest.mark.parametrize(
    ("curve", "speedup", "cost"), [(CODE, 88.25 / 47.84, 0.070), (CHAT, 0.99, 0.067)], ids=["code", "chat"]
)
def test_one_server_has_one_cost_whatever_its_workload(curve: tuple[float, ...], speedup: float, cost: float) -> None:
    server = Server(fixed=0.0, marginal=(slowdown_of(curve, speedup) - 1.0) / 3, curve=curve)
    found = known(measure([server.interval(6.0)] * 12, times_of(6.0), POLICY))
    assert known(found.draft_cost_ratio).value == pytest.approx(cost, abs=0.0005)
    assert found.speedup.value == exact(speedup)
    assert found.pays(1.05) is (curve is CODE)


def chosen(curve: Sequence[float], slowdown: float, error: float = 0.001, **more: Any) -> KChoice:
    estimate = Estimate(slowdown, slowdown * (1 - error), slowdown * (1 + error))
    return known(choose_k(estimate, curve, more.pop("drafts_per_step", 1.0), len(curve), **more))


def test_on_code_the_guides_k_is_right_and_the_next_may_be_better() -> None:
    found = chosen(CODE, 1.0 + 3 * 0.07)
    assert (found.recommended, found.candidates, found.try_more) == (3, (3,), True)
    by_k = {each.k: (each.low, each.high) for each in found.expected}
    assert [round(by_k[k][1], 2) for k in (1, 2, 3)] == [1.40, 1.67, 1.84]  # all marginal
    assert by_k[1][0] == pytest.approx(1.5 / 1.21, rel=0.002)  # all fixed


def test_on_chat_one_recording_does_not_tell_whether_k_1_pays() -> None:
    found = chosen(CHAT, 1.20)
    assert (found.recommended, found.candidates, found.record_next) == (None, (0, 1), 1)


def test_measured_costs_that_are_mostly_fixed_never_lower_k() -> None:
    """A real server's step was 1.8 times as long at k = 3, and 0.36 were accepted: k = 1 would have lost (0.75)."""
    assert chosen((0.36, 0.06, 0.02), 1.8).recommended in (None, 0)


# --- Which k ---

curves = st.lists(st.floats(0.0, 1.0), min_size=1, max_size=10).map(lambda rates: tuple(accumulate(rates, min)))
shares = st.floats(0.0, 1.0)
errors = st.floats(0.0, 0.1)


def true_speedups(curve: Sequence[float], drafting: float, cost: StepCost) -> list[float]:
    lengths = accumulate((drafting * rate for rate in curve), initial=1.0)
    return [length / cost.slowdown(k) for k, length in enumerate(lengths)]


def around(value: float, below: float, above: float) -> Estimate:
    """An interval that holds the truth ``value``, whose middle is not the truth."""
    low, high = max(value * (1 - below), 1.0), value * (1 + above)
    return Estimate(math.sqrt(low * high), low, high)


@settings(max_examples=100)
@given(curves, shares, shares, st.floats(0.0, 3.0))
def test_the_bracket_of_one_recording_always_holds_the_truth(
    curve: tuple[float, ...], drafting: float, part: float, cost: float
) -> None:
    """Whatever part of the cost is fixed: every expected speed-up lies within its ends, and the best is a candidate's.

    Where one k is best at both ends, it is best in between.
    """
    k = len(curve)
    truth = StepCost(cost * part, cost * (1.0 - part) / k)
    speedups = true_speedups(curve, drafting, truth)
    found = chosen(curve, 1.0 + cost, drafts_per_step=drafting)
    for each in found.expected:
        assert each.low * (1 - 1e-9) <= speedups[each.k] <= each.high * (1 + 1e-9)
    if len(found.candidates) == 1:
        assert speedups[found.candidates[0]] == pytest.approx(max(speedups), rel=1e-9)
    if found.recommended is not None and not found.within_chance:
        assert speedups[found.recommended] == pytest.approx(max(speedups), rel=1e-9)


@settings(max_examples=100)
@given(curves, shares, shares, st.floats(0.0, 3.0), st.tuples(errors, errors))
def test_no_other_k_is_recommended_that_is_not_better_than_the_running_one(
    curve: tuple[float, ...], drafting: float, part: float, cost: float, error: tuple[float, float]
) -> None:
    k = len(curve)
    speedups = true_speedups(curve, drafting, StepCost(cost * part, cost * (1.0 - part) / k))
    found = known(choose_k(around(1.0 + cost, *error), curve, drafting, k))
    if found.recommended not in (None, k):
        assert speedups[known(found.recommended)] > speedups[k] * (1 - 1e-9)
        assert not found.within_chance
    if found.within_chance:
        assert (found.recommended,) != found.candidates


def test_without_an_interval_or_with_a_curve_of_another_k_nothing_is_recommended() -> None:
    for slowdown in (Estimate(1.2, None, None), Estimate(1.2, 1.1, None), Estimate(1.2, None, 1.3)):
        assert known(choose_k(slowdown, CODE, 1.0, 3)).recommended is None
    assert choose_k(Estimate(1.2, 1.1, 1.3), CODE[:2], 1.0, 3) is None
    assert choose_k(Estimate(1.2, 1.1, 1.3), (), 1.0, 0) is None


# --- Nothing breaks it ---

extreme = st.sampled_from([0.0, 5e-324, 1e-300, 1e-9, 1.0, 250.0, 1e9, 1e154, 1e300, 1.7e308]) | st.floats(0.0, 1e308)
wild_loads = st.builds(
    lambda seconds, values: Load(
        seconds,
        Counts(
            steps=values[0], step_seconds=values[1], generation_tokens=values[2], first_tokens=values[3],
            draft_tokens=values[4],
        ),
    ),
    extreme,
    st.lists(extreme, min_size=5, max_size=5),
)  # fmt: skip


@settings(max_examples=100)
@given(
    st.lists(wild_loads, min_size=1, max_size=6),
    st.lists(wild_loads, min_size=1, max_size=6),
    st.integers(1, 4),
    curves,
    extreme,
)
def test_absurd_counts_give_finite_figures_or_none(
    plain: list[Load], loads: list[Load], repeated: int, curve: tuple[float, ...], drafting: float
) -> None:
    times = step_times(recorded(plain * repeated), POLICY)
    assert all(math.isfinite(each) for each in numbers(times))
    found = measure(loads * repeated, times, POLICY)
    if found is None:
        return
    assert all(math.isfinite(each) for each in (*numbers(found), *numbers(found.draft_cost_ratio)))
    choice = known(choose_k(found.slowdown, curve, drafting, len(curve)))
    assert all(math.isfinite(each) for each in numbers(choice))
