"""Which method and k to run at which load, and vLLM's ``--speculative-config`` for it: only where it is known."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any, Literal

import msgspec

from specdec_exporter.comparison.decision import times
from specdec_exporter.comparison.loads import AtLoad, Group, choose, cost_of, total_of
from specdec_exporter.formatting import plain as printable
from specdec_exporter.predictor import speculativeconfig
from specdec_exporter.predictor.versions import parse_release
from specdec_exporter.speculation.cost import KChoice, StepCost, batch_schedule, crossover, step_costs
from specdec_exporter.speculation.estimate import Estimate
from specdec_exporter.speculation.policy import Policy

AdviceCode = Literal["use", "off", "no_gain", "record_more", "undecided", "unknown"]


class BestK(msgspec.Struct, frozen=True, kw_only=True):
    """The best k at one load. ``costs`` holds one entry where recordings of several k tell the fixed part of a draft's
    cost from the marginal part, and the two extremes where they do not.
    """

    concurrency_bound: int
    concurrency: float
    costs: tuple[StepCost, ...]
    choice: KChoice


class BestByLoad(msgspec.Struct, frozen=True, kw_only=True):
    """The best k of one method and workload at each load, ascending."""

    workload: str | None
    method: str | None
    by_load: tuple[BestK, ...]


class Advice(msgspec.Struct, frozen=True, kw_only=True):
    """What to run for one workload at the load that was recorded most (``concurrency``).

    ``num_speculative_tokens`` is the k at that load, 0 for no speculation, and ``null`` where the best k is not known.
    ``speedup`` was measured, unless ``expected``: then that k was not recorded. ``best_method``: the method is better
    than the other recorded ones beyond chance; ``null`` with one method. ``speculative_config`` is the value of
    ``--speculative-config``, ``null`` if nothing or no speculation is recommended.
    """

    workload: str | None
    code: AdviceCode
    concurrency_bound: int | None
    concurrency: float | None
    method: str | None
    num_speculative_tokens: int | None
    speedup: Estimate | None
    expected: bool
    best_method: bool | None
    speculative_config: dict[str, Any] | None
    headline: str
    reasons: tuple[str, ...]
    action: str


class _Measured(msgspec.Struct, frozen=True):
    """The step time with one k over the one without drafts, at the loads at which it was recorded, ascending."""

    group: Group
    k: int
    points: tuple[tuple[int, float, Estimate], ...]  # bound, concurrency, slowdown

    def at(self, bound: int, concurrency: float, like_load_factor: float) -> Estimate | None:
        """Return the slowdown at a load: recorded there, or interpolated between the loads on both sides.

        Beyond the recorded loads the nearest counts, if it is like this load. What drafts add then changes at most as
        much as the load.
        """
        for own, _, slowdown in self.points:
            if own == bound:
                return slowdown
        for (_, before, one), (_, after, other) in pairwise(self.points):
            if before <= concurrency <= after:
                return _between(one, other, (concurrency - before) / (after - before) if after > before else 0.0)
        if not self.points:
            return None
        _, nearest, found = self.points[0] if concurrency < self.points[0][1] else self.points[-1]
        growth = concurrency / nearest
        if not 1.0 / like_load_factor <= growth <= like_load_factor or found.low is None or found.high is None:
            return None
        limits = (1.0 + (limit - 1.0) * share for limit in (found.low, found.high) for share in (1.0, growth))
        low, *_, high = sorted(limits)
        return Estimate(found.value, min(low, found.value), max(high, found.value))


def _between(one: Estimate, other: Estimate, share: float) -> Estimate | None:
    if one.low is None or other.low is None or one.high is None or other.high is None:
        return None
    low, value, high = (
        (1.0 - share) * before + share * after
        for before, after in ((one.low, other.low), (one.value, other.value), (one.high, other.high))
    )
    return Estimate(value, low, high)


def best_by_load(groups: Sequence[Group], policy: Policy) -> tuple[BestK, ...]:
    """Return the best k at each load, from recordings of one method and workload with one or more k."""
    measured = [_measured_by_load(group, group.k, policy) for group in groups if group.k is not None]
    loads: dict[int, float] = {}
    for each in sorted(measured, key=lambda each: each.k):
        loads |= {bound: concurrency for bound, concurrency, _ in each.points}
    found = (_best_at(bound, concurrency, measured, policy) for bound, concurrency in sorted(loads.items()))
    return _with_few_changes([each for each in found if each is not None])


def _with_few_changes(best: Sequence[BestK]) -> tuple[BestK, ...]:
    """Let neighbouring loads share a k unless it is worse at one of them beyond chance.

    Otherwise chance alone makes the best k rise and fall from load to load.
    """
    found: list[BestK] = []
    alike: list[BestK] = []
    shared: set[int] = set()
    for each in best:
        possible = _possible(each)
        if not shared & possible:
            found += _with_one_k(alike, shared)
            alike, shared = [], possible
        alike.append(each)
        shared &= possible
    return (*found, *_with_one_k(alike, shared))


def _with_one_k(alike: Sequence[BestK], shared: set[int]) -> Iterator[BestK]:
    wanted = Counter(each.choice.recommended for each in alike)
    k = max(shared, key=lambda k: (wanted[k], sum(_middle(each, k) for each in alike), -k), default=0)
    for each in alike:
        choice = each.choice
        if choice.recommended and k and choice.recommended != k:
            choice = msgspec.structs.replace(choice, recommended=k, candidates=(k,), within_chance=True, try_more=False)
        yield msgspec.structs.replace(each, choice=choice)


def _possible(best: BestK) -> set[int]:
    """Return the k that may be the best at this load; empty where it is not known, or where none pays."""
    expected = best.choice.expected if best.choice.recommended else ()
    least = max((each.low for each in expected), default=0.0)
    return {each.k for each in expected if each.high >= least}


def _middle(best: BestK, k: int) -> float:
    """Return the speed-up to expect of ``k``, as a logarithm."""
    limits = next(((each.low, each.high) for each in best.choice.expected if each.k == k), (1.0, 1.0))
    return sum(math.log(limit) / 2.0 if limit > 0.0 else -math.inf for limit in limits)


def _measured_by_load(group: Group, k: int, policy: Policy) -> _Measured:
    costs = [(each.bound, cost_of([each], group.reference.times, policy)) for each in group.bins]
    points = [
        (bound, cost.concurrency, cost.slowdown)
        for bound, cost in costs
        # Too few intervals give no interval of the figure; such a load says nothing.
        if cost and cost.draft_tokens_per_step > 0 and cost.slowdown.low is not None
    ]
    return _Measured(group, k, tuple(sorted(points, key=lambda point: point[1])))


def _best_at(bound: int, concurrency: float, measured: Sequence[_Measured], policy: Policy) -> BestK | None:
    slowdowns = {
        each.k: found
        for each in measured
        if (found := each.at(bound, concurrency, policy.cost.like_load_factor)) is not None
    }
    if not slowdowns:
        return None
    running = max(slowdowns)
    (group,) = (each.group for each in measured if each.k == running)
    # The curve at this load; where too little was drafted, the one over all loads.
    curves = [each.total.counts for each in group.bins if each.bound == bound] + [total_of(group.bins).counts]
    choices = (choose(slowdowns, counts, group.method, running, policy, in_use=False) for counts in curves)
    choice = next((each for each in choices if each is not None), None)
    if choice is None:
        return None
    costs = step_costs({k: found.value for k, found in slowdowns.items()})
    return BestK(concurrency_bound=bound, concurrency=concurrency, costs=costs, choice=choice)


def crossover_of(by_load: Sequence[AtLoad]) -> Estimate | None:
    """Return the concurrency at which the speed-up falls below 1; ``None`` if it does not between recorded loads."""
    measured = [(each.concurrency, each.speedup) for each in by_load if each.concurrency and each.speedup]
    measured.sort(key=lambda each: each[0])
    value = crossover([(load, found.value) for load, found in measured])
    if value is None:
        return None
    low = crossover([(load, found.low) for load, found in measured if found.low is not None])
    high = crossover([(load, found.high) for load, found in measured if found.high is not None])
    # With few loads, an end of the interval may lie beyond them.
    return Estimate(value, None if low is None else min(low, value), None if high is None else max(high, value))


# --- What to run ------------------------------------------------------------------------------------------------------


class _Option(msgspec.Struct, frozen=True):
    """One method with its best k at the load in question; the k is ``None`` if it is not known."""

    method: str | None
    k: int | None
    speedup: Estimate | None
    expected: bool
    best: BestK
    by_load: tuple[BestK, ...]
    groups: tuple[Group, ...]

    @property
    def words(self) -> str:
        name = printable(self.method or "the method")
        return f"{name} with k = {self.k}" if self.k else name


def advise(groups: Sequence[Group], best: Sequence[BestByLoad], policy: Policy) -> Advice:
    """Say what to run for one workload: ``groups`` are its recordings, ``best`` has an entry for each method."""
    bound = _present(groups, best)
    if bound is None:
        return _unknown(groups)
    options = [
        _option(each, found, [group for group in groups if group.method == each.method])
        for each in best
        if (found := next((found for found in each.by_load if found.concurrency_bound == bound), None))
    ]
    options.sort(key=lambda option: option.speedup.value if option.speedup else 0.0, reverse=True)
    plans = [(option, plan := _plan(option), _code(option, plan, policy)) for option in options]
    # What is known to pay first; else what one more recording would tell.
    plans.sort(key=lambda each: _RANK.index(each[2]) if each[2] in _RANK else len(_RANK))
    chosen, plan, code = plans[0]
    headline, action = _words(code, chosen, plan)
    rivals = [each for each in options if each is not chosen]
    runs = code == "use"
    return Advice(
        workload=groups[0].workload,
        code=code,
        concurrency_bound=bound,
        concurrency=chosen.best.concurrency,
        method=chosen.method,
        num_speculative_tokens=chosen.k,
        speedup=chosen.speedup,
        expected=chosen.expected,
        best_method=all(_beats(chosen, each) for each in rivals) if runs and rivals else None,
        speculative_config=plan.config if runs else None,
        headline=headline,
        reasons=tuple(_reasons(groups, chosen, rivals, plan if runs else None)),
        action=action,
    )


_RANK: tuple[AdviceCode, ...] = ("use", "record_more")


def _code(chosen: _Option, plan: _Plan, policy: Policy) -> AdviceCode:
    found, least = chosen.speedup, policy.latency.speedup_min
    if chosen.k is None:
        return "record_more"
    if plan.by_load and plan.gain_shown:
        return "use"
    if chosen.k == 0:
        return "undecided" if chosen.best.choice.within_chance else "off"
    if found is None or found.low is None or found.high is None:
        return "undecided"
    if found.low > 1.0 and found.value >= least:
        return "use"
    return "no_gain" if found.high < least else "undecided"


def _words(code: AdviceCode, chosen: _Option, plan: _Plan) -> tuple[str, str]:
    """Return headline and next step."""
    here = f"at {chosen.best.concurrency:.1f} running"
    choice = chosen.best.choice
    name = printable(chosen.method or "this method")
    running = choice.expected[-1].k if choice.expected else 0
    run = "Run this configuration" if plan.config else f"Run {chosen.words}"
    if code == "record_more":
        candidates = " or ".join(map(str, choice.candidates))
        more = "Record longer." if choice.record_next is None else f"Record k = {choice.record_next} too."
        return f"The best k of {name} {here} is {candidates}; the recordings do not tell which", more
    if code == "use" and plan.by_load:
        return f"{name}, k by load: {_by_load(plan.by_load)}", f"{run}, record it, and compare again."
    measured = f"{times(chosen.speedup)}{', expected' if chosen.expected else ''}"
    if code == "use":
        verb = f"{run}, record it, and compare again." if chosen.expected else f"{run}."
        return f"{chosen.words}: {measured} {here}", verb
    if code == "off":
        measured = times(_measured(chosen, running))
        return f"{name} is slower than no speculation {here}: {measured} with k = {running}", _OFF
    if code == "no_gain":
        return f"{chosen.words} gives no speed-up {here}: {measured}", _OFF
    if not chosen.k:
        measured = f"{times(_measured(chosen, running))} with k = {running}"
    return f"Whether {chosen.words} pays {here} is not decided: {measured}", "Record longer, then look again."


_OFF = "Run without --speculative-config at this load. Look at the curve, the sampling temperature and the load."


def _measured(option: _Option, k: int) -> Estimate | None:
    """Return the speed-up that was measured with ``k`` at the load in question."""
    return _measured_at(option.best.concurrency_bound, k, option.groups)


def _measured_at(bound: int, k: int | None, groups: Sequence[Group]) -> Estimate | None:
    loads = (each for group in groups if group.k == k for each in group.by_load)
    return next((each.speedup for each in loads if each.concurrency_bound == bound), None)


def _by_load(best: Sequence[tuple[int, int]]) -> str:
    """Return ``3 up to 16, 1 up to 32 running``."""
    return f"{', '.join(f'{k} up to {last}' for _, last, k in batch_schedule(best))} running"


def _beats(one: _Option, other: _Option) -> bool:
    """Whether ``one`` is faster than ``other`` beyond chance; no speculation is 1."""
    low = one.speedup.low if one.speedup else None
    if other.k == 0:
        return low is not None and low > 1.0
    high = other.speedup.high if other.speedup else None
    if other.k is None:
        high = max(each.high for each in other.best.choice.expected)
    return low is not None and high is not None and low > high


def _reasons(groups: Sequence[Group], chosen: _Option, rivals: Sequence[_Option], plan: _Plan | None) -> Iterator[str]:
    choice = chosen.best.choice
    for group in groups:
        if words := _where_it_pays(group):
            yield words
    if choice.within_chance:
        better = f"k = {chosen.k}" if chosen.k else "no speculation"
        yield f"{better} looks better than k = {choice.expected[-1].k}, but not beyond chance"
    if choice.try_more and chosen.k:
        yield f"the last position still pays for itself: k = {chosen.k + 1} may pay more, so record it too"
    for each in rivals:
        if each.k is None:
            candidates = " or ".join(map(str, each.best.choice.candidates))
            yield f"{printable(each.method or 'another method')}: the best k is {candidates}; it is not known which"
        elif not plan:
            continue
        elif each.k and not _beats(chosen, each):
            yield f"{each.words} is within chance of it: {times(each.speedup)}"
        elif each.k:
            yield f"{each.words} is slower: {times(each.speedup)}"
    if plan:
        yield from plan.notes


def _where_it_pays(group: Group) -> str | None:
    name = f"{printable(group.method or 'speculation')}, k = {group.k or '?'}"
    found = crossover_of(group.by_load)
    measured = [each for each in group.by_load if each.speedup]
    ran = f"; it was recorded at {group.whole.concurrency:.1f}" if group.whole.concurrency else ""
    if found:
        return f"{name} pays below about {found.value:.1f} running{ran}"
    if measured and all(each.pays for each in measured):
        return f"{name} pays at every recorded load{ran} running"
    if measured and all(each.pays is False for each in measured):
        return f"{name} pays at no recorded load{ran} running"
    if loads := [f"{each.concurrency:.1f}" for each in measured if each.pays]:
        return f"{name} pays at {', '.join(loads)} running, beyond chance"
    return None


# --- The configuration ------------------------------------------------------------------------------------------------


class _Plan(msgspec.Struct, frozen=True):
    """The configuration, with k by load if k is chosen by load, and what a reader must know about it.

    ``gain_shown``: at one of these loads at least, the gain is beyond chance.
    """

    config: dict[str, Any] | None
    by_load: tuple[tuple[int, int], ...]
    notes: tuple[str, ...]
    gain_shown: bool


def _plan(option: _Option) -> _Plan:
    """Return the configuration for an option: one k, or a k by load if it differs and the release can do it."""
    known = [(each.concurrency_bound, each.choice.recommended) for each in option.by_load]
    best = [(bound, k) for bound, k in known if k is not None]
    recordings = [each for group in option.groups for each in group.recordings]
    recordings.sort(key=lambda each: each.recorded_at)
    versions = [each.vllm_version for each in recordings if each.vllm_version]
    release = parse_release(versions[-1]) if versions else None
    commands = [each.context.command for each in recordings]
    given = next((found for each in reversed(commands) if (found := speculativeconfig.given_config(each))), {})
    parallel = any(map(speculativeconfig.is_data_parallel, commands))
    notes: list[str] = []
    schedule: list[tuple[int, int, int]] = []
    limit, k = None, option.k or 0
    by_load: tuple[tuple[int, int], ...] = ()
    positive = [each for each in best if each[1]]
    if len(best) < len(known):
        notes.append("the best k is not known at every recorded load")
    elif len({each for _, each in best}) > 1:
        falls = [bool(each) for _, each in best] == sorted((bool(each) for _, each in best), reverse=True)
        if speculativeconfig.has_schedule(release, data_parallel=parallel):
            schedule, by_load, k = batch_schedule(best), tuple(best), max(each for _, each in best)
            notes += _schedule_notes(best)
        elif speculativeconfig.has_limit(release) and falls and len({each for _, each in positive}) == 1:
            limit, by_load, k = positive[-1][0], tuple(best), positive[-1][1]
        else:
            why = "with data parallel engines" if parallel else f"in vLLM {'?' if release is None else versions[-1]}"
            notes.append(f"the best k differs by load ({_by_load(best)}); {why} one k serves all loads")
    doubtful = {each.concurrency: found for each, found in _gains(option) if found is None or not _is_gain(found)}
    if by_load and doubtful:
        loads = ", ".join(f"{times(found)} at {load:.1f}" for load, found in doubtful.items())
        notes.append(f"whether speculation pays is not decided at every load: {loads} running")
    gain_shown = len(doubtful) < len(positive)
    if not k:
        return _Plan(None, by_load, tuple(notes), gain_shown)
    config = speculativeconfig.config_for(given, option.method, k, schedule=schedule, limit=limit)
    if config is None:
        notes.append("the method is not known: record with --predictor.log-path")
    elif speculativeconfig.lacks_draft_model(config):
        notes.append('add "model", the draft model or head: the recordings have no --command that names it')
    return _Plan(config, by_load, tuple(notes), gain_shown)


def _gains(option: _Option) -> Iterator[tuple[BestK, Estimate | None]]:
    """Yield the loads at which drafts seem to pay, and the speed-up with the best k there."""
    for each in option.by_load:
        if each.choice.recommended:
            yield each, _speedup(each, option.groups)[0]


def _is_gain(found: Estimate) -> bool:
    return found.low is not None and found.low > 1.0


def _schedule_notes(best: Sequence[tuple[int, int]]) -> Iterator[str]:
    yield f"beyond {best[-1][0]} running nothing was recorded: vLLM goes on with k = {best[-1][1]} there"
    yield "data parallel engines ignore a k by load, or wait for each other"
    yield "with a k by load, model runner V1 captures CUDA graphs in pieces only: compare it with one k"


def _present(groups: Sequence[Group], best: Sequence[BestByLoad]) -> int | None:
    """Return the load that was recorded most, of those with a known cost."""
    known = {found.concurrency_bound for each in best for found in each.by_load}
    seconds = dict.fromkeys(sorted(known), 0.0)
    for each in (each for group in groups for each in group.bins):
        if each.bound in seconds:
            seconds[each.bound] += each.total.seconds
    return max(seconds, key=lambda bound: (seconds[bound], bound), default=None)


def _option(best: BestByLoad, found: BestK, groups: Sequence[Group]) -> _Option:
    speedup, expected = _speedup(found, groups)
    return _Option(best.method, found.choice.recommended, speedup, expected, found, best.by_load, tuple(groups))


def _speedup(found: BestK, groups: Sequence[Group]) -> tuple[Estimate | None, bool]:
    """Return the speed-up with the best k at this load, and whether it is expected, not measured."""
    k = found.choice.recommended
    measured = _measured_at(found.concurrency_bound, k, groups)
    if measured is not None or not k:
        return measured, False
    guess = next(each for each in found.choice.expected if each.k == k)
    return Estimate(math.sqrt(guess.low * guess.high), guess.low, guess.high), True


def _unknown(groups: Sequence[Group]) -> Advice:
    action = "Record the same requests without speculation, at the same load, and with at least one k."
    if all(group.reference.recordings for group in groups):
        action = "Record longer, with and without speculation at the same load; the flags say what is missing."
    return Advice(
        workload=groups[0].workload,
        code="unknown",
        concurrency_bound=None,
        concurrency=None,
        method=None,
        num_speculative_tokens=None,
        speedup=None,
        expected=False,
        best_method=None,
        speculative_config=None,
        headline="What drafts cost is not measured, so nothing is recommended",
        reasons=(),
        action=action,
    )
