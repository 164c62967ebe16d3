"""Any number of recordings of one model: what drafts cost by load, whether they pay, and which k to run.

This is the documented, stable shape of ``tune --output json`` and of ``compare`` with more than two files. Ratios are
0..1 or factors as named. Times are seconds, lengths tokens, intervals 95 %. ``null`` means not recorded or not known;
at the end of an interval it means unbounded.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from typing import Literal, TypeVar

import msgspec

from specdec_exporter.baseline.file import Baseline
from specdec_exporter.comparison.advice import Advice, BestByLoad, advise, best_by_load, crossover_of
from specdec_exporter.comparison.compare import Side, side_of
from specdec_exporter.comparison.conduct import side_flags
from specdec_exporter.comparison.keeping import Rule, rule_for
from specdec_exporter.comparison.likeness import (
    Flag,
    FlagCode,
    block_flags,
    recording_flags,
    refuse_other_model,
    request_flags,
    setting_flags,
    traffic_flags,
)
from specdec_exporter.comparison.loads import (
    AtLoad,
    Group,
    Reference,
    at_like_load,
    drafts_are_short,
    figures_of,
    group_of,
    is_plain,
    k_of,
    mean_seconds,
    reference_of,
)
from specdec_exporter.comparison.requests import without_temperature, workload_of
from specdec_exporter.comparison.sweep import Limit, Overall, Row, limits_of, ordered, overall_of, row_of
from specdec_exporter.comparison.traffic import difference
from specdec_exporter.errors import ComparisonError
from specdec_exporter.formatting import plain as printable
from specdec_exporter.speculation.acceptance import ratio
from specdec_exporter.speculation.estimate import Estimate
from specdec_exporter.speculation.policy import Policy

TuningFlagCode = Literal[
    "no_plain_recording",
    "no_plain_workload",
    "no_loads",
    "no_like_load",
    "prompt_rate_differs",
    "short_drafts",
    "drafted_nothing",
    "k_not_known",
]

_T = TypeVar("_T")
_Key = TypeVar("_Key", bound=Hashable)


class TuningFlag(msgspec.Struct, frozen=True):
    """A reason to read the result with care: a stable code, the recording, what was found, and the next step.

    ``recording`` is ``null`` if it concerns all of them.
    """

    code: TuningFlagCode | FlagCode
    recording: str | None
    message: str
    action: str


class Recorded(msgspec.Struct, frozen=True, kw_only=True):
    """One recording, ``whole`` and by load in ascending order.

    ``against`` names the recordings without speculation that it is compared with. ``rule`` is ``null`` for those, and
    where there are none.
    """

    recording: Side
    speculative: bool
    against: tuple[str, ...]
    mean_time_to_first_token_seconds: float | None
    mean_time_per_output_token_seconds: float | None
    whole: AtLoad
    by_load: tuple[AtLoad, ...]
    rule: Rule | None


class Setting(msgspec.Struct, frozen=True, kw_only=True):
    """All recordings of one workload with one method and k, together: a line of speed-up over load.

    ``crossover_concurrency`` is the load at which the speed-up falls below 1; ``null`` if that is at no recorded load.
    """

    workload: str | None
    method: str | None
    num_speculative_tokens: int | None
    recordings: tuple[str, ...]
    whole: AtLoad
    by_load: tuple[AtLoad, ...]
    crossover_concurrency: Estimate | None


class Tuning(msgspec.Struct, frozen=True, kw_only=True):
    """The whole result. Recordings without speculation stand first; ``advice`` has one entry for each workload.

    ``rows``, ``limits`` and ``overall`` are the same recordings by workload, temperature and request rate.
    """

    recordings: tuple[Recorded, ...]
    settings: tuple[Setting, ...]
    best: tuple[BestByLoad, ...]
    advice: tuple[Advice, ...]
    rows: tuple[Row, ...]
    limits: tuple[Limit, ...]
    overall: tuple[Overall, ...]
    flags: tuple[TuningFlag, ...]


def tune(recordings: Sequence[Baseline], policy: Policy) -> Tuning:
    """Compare recordings of one model, in any order.

    A recording with speculation is compared with those without it that have the same request parameters; if there are
    none, with those that differ only in temperature; else with all others, provided that these are of one workload and
    differ at most in temperature. Raises :class:`ComparisonError`
    without a recording, and if the models differ.
    """
    found = sorted(recordings, key=_order)
    if not found:
        raise ComparisonError("expected at least one recording, found none")
    for each in found[1:]:
        refuse_other_model(found[0], each, by_name=True)
    references = _References(list(filter(is_plain, found)), policy)
    settings = _grouped(
        [each for each in found if not is_plain(each)], lambda each: (workload_of(each), each.method, k_of(each))
    )
    groups = [group_of(each, references.of(key[0]), policy) for key, each in settings]
    best = [
        BestByLoad(workload=workload, method=method, by_load=best_by_load(members, policy))
        for (workload, method), members in _grouped(groups, lambda each: (each.workload, each.method))
    ]
    recorded = [_recorded(each, references, policy) for each in found]
    rows = ordered(
        row_of(near, each, of.whole, of.rule, policy)
        for each, of in zip(found, recorded, strict=True)
        if of.rule and (near := _near(each, references))
    )
    return Tuning(
        recordings=tuple(recorded),
        settings=tuple(map(_setting, groups)),
        best=tuple(best),
        advice=tuple(
            advise(members, [each for each in best if each.workload == workload], policy)
            for workload, members in _grouped(groups, lambda each: each.workload)
        ),
        rows=rows,
        limits=tuple(limits_of(rows, policy)),
        overall=tuple(overall_of(rows)),
        flags=tuple(_flags(found, references, policy)),
    )


def _order(recording: Baseline) -> tuple[object, ...]:
    """Sort by setting and time, so that the order of the files does not matter."""
    return (
        not is_plain(recording),
        workload_of(recording) or "",
        recording.method or "",
        k_of(recording) or 0,
        recording.recorded_at,
        recording.name,
        msgspec.json.encode(recording),
    )


def _grouped(items: Iterable[_T], key: Callable[[_T], _Key]) -> list[tuple[_Key, list[_T]]]:
    """Return the items by key, in the order in which the keys come first."""
    found: dict[_Key, list[_T]] = {}
    for each in items:
        found.setdefault(key(each), []).append(each)
    return list(found.items())


class _References:
    """The recordings without speculation, by workload, with and without its temperature."""

    def __init__(self, plain: Sequence[Baseline], policy: Policy) -> None:
        self._exact = {workload: reference_of(each, policy) for workload, each in _grouped(plain, workload_of)}
        self._alike = {
            workload: reference_of(each, policy)
            for workload, each in _grouped(plain, lambda each: without_temperature(workload_of(each)))
        }

    def __bool__(self) -> bool:
        return bool(self._exact)

    def of(self, workload: str | None) -> Reference:
        """Return what a workload with speculation is compared with; empty if nothing fits."""
        alike = without_temperature(workload)
        if workload in self._exact:
            return self._exact[workload]
        if alike in self._alike or len(self._alike) != 1:
            return self._alike.get(alike, Reference())
        return next(iter(self._alike.values()))


def _near(recording: Baseline, references: _References) -> Baseline | None:
    """Return the recording without speculation at the nearest request rate; ``None`` if there is none."""
    if is_plain(recording):
        return None
    plain = references.of(workload_of(recording)).recordings
    return min(plain, key=lambda each: _distance(each, recording), default=None)


def _recorded(recording: Baseline, references: _References, policy: Policy) -> Recorded:
    reference = Reference() if is_plain(recording) else references.of(workload_of(recording))
    whole, by_load = figures_of([recording], reference, policy)
    near = _near(recording, references)
    return Recorded(
        recording=side_of(recording, policy),
        speculative=not is_plain(recording),
        against=tuple(each.name for each in reference.recordings),
        mean_time_to_first_token_seconds=mean_seconds([recording.time_to_first_token_seconds]),
        mean_time_per_output_token_seconds=mean_seconds([recording.time_per_output_token_seconds]),
        whole=whole,
        by_load=by_load,
        rule=None if near is None else rule_for(near, recording, whole, policy),
    )


def _distance(plain: Baseline, candidate: Baseline) -> float:
    """Return how far apart the request rates are: the rule compares at the same rate."""
    rates = [ratio(each.requests_finished, each.duration_seconds) for each in (plain, candidate)]
    if not rates[0] or not rates[1]:
        return math.inf
    return abs(math.log(rates[0]) - math.log(rates[1]))


def _setting(group: Group) -> Setting:
    return Setting(
        workload=group.workload,
        method=group.method,
        num_speculative_tokens=group.k,
        recordings=tuple(each.name for each in group.recordings),
        whole=group.whole,
        by_load=group.by_load,
        crossover_concurrency=crossover_of(group.by_load),
    )


# --- Flags ------------------------------------------------------------------------------------------------------------


def _flags(found: Sequence[Baseline], references: _References, policy: Policy) -> Iterator[TuningFlag]:
    if not references:
        words = "no recording is without speculation, so no speed-up and no draft cost can be measured"
        yield TuningFlag("no_plain_recording", None, words, "Record the same requests without --speculative-config.")
    for each in found:
        name = printable(each.name)
        reference = Reference() if is_plain(each) else references.of(workload_of(each))
        pair = [flag for plain in reference.recordings for flag in _pair_flags(plain, each, policy)]
        own = [
            *request_flags(name, each, policy.latency),
            *block_flags(name, each, policy.latency),
            *recording_flags(name, each),
            *side_flags(name, each, policy),
        ]
        # Several recordings without speculation may differ from this one in the same way.
        once = {(flag.code, flag.message): flag for flag in (*pair, *own)}
        yield from (TuningFlag(flag.code, each.name, flag.message, flag.action) for flag in once.values())
        yield from _load_flags(each, reference, references, policy)


def _pair_flags(plain: Baseline, candidate: Baseline, policy: Policy) -> list[Flag]:
    like_load = at_like_load(plain, candidate, policy, recorded_in_both=True) is not None
    traffic = difference(plain, candidate, policy.latency)
    return [*setting_flags(plain, candidate), *traffic_flags(traffic, like_load=like_load)]


def _load_flags(
    recording: Baseline, reference: Reference, references: _References, policy: Policy
) -> Iterator[TuningFlag]:
    name = recording.name

    def flag(code: TuningFlagCode, words: str, action: str) -> TuningFlag:
        return TuningFlag(code, name, f"{printable(name)} {words}", action)

    if not recording.by_load:
        words = "has no step times by load: costs are estimated from means, without an interval, and decide nothing"
        yield flag("no_loads", words, "Record it again with this release.")
    if is_plain(recording):
        return
    if references and not reference.recordings:
        words = "has other request parameters than all recordings without speculation"
        yield flag("no_plain_workload", words, "Record the same requests without speculation.")
    counts, k = recording.counts, k_of(recording)
    if k is None:
        yield flag("k_not_known", "does not say its k", "Record it with --predictor.log-path.")
    if not counts.draft_tokens:
        yield flag("drafted_nothing", "speculates, but drafted nothing", "Check --speculative-config and the requests.")
    elif k and drafts_are_short(counts, k, policy):
        words = "has drafts shorter than k: its curve reads low, so only this k and 0 can be compared"
        yield flag("short_drafts", words, "Record other k to compare them.")
    if not reference.bins or not recording.by_load:
        return
    whole, by_load = figures_of([recording], reference, policy)
    if whole.speedup is None:
        wanted = f"{policy.cost.min_steps} request-steps at a load that was also recorded without speculation"
        yield flag("no_like_load", f"has fewer than {wanted}", "Record both at the same load, for longer.")
    if rates := _prompt_rates(recording, reference, by_load, policy):
        yield flag("prompt_rate_differs", rates, "Prefill lengthens steps: send the same requests to both.")


def _prompt_rates(recording: Baseline, reference: Reference, by_load: Sequence[AtLoad], policy: Policy) -> str | None:
    """Return in words at which load the prompt tokens per second are not those of the same requests.

    At like load a faster server also answers more requests; only what goes beyond its speed-up is different traffic.
    """
    rates = [
        {each.bound: ratio(each.total.counts.prompt_tokens, each.total.seconds) or 0.0 for each in bins}
        for bins in (reference.bins, recording.by_load)
    ]
    limit = 1.0 + policy.cost.prompt_rate_tolerance
    found = [
        (rates[0].get(each.concurrency_bound, 0.0) * each.speedup.value, rates[1][each.concurrency_bound], each)
        for each in by_load
        if each.concurrency_bound and each.speedup is not None
    ]
    apart = [each for each in found if max(each[:2]) > limit * min(each[:2])]
    if not apart:
        return None
    expected, rate, load = max(apart, key=lambda each: abs(each[1] - each[0]))
    reads = ("low", "high") if rate > expected else ("high", "low")
    return (
        f"read {rate:,.0f} prompt tokens per second at {load.concurrency:.1f} running; the same requests as without "
        f"speculation would be {expected:,.0f}: the speed-up reads too {reads[0]} rather than too {reads[1]}"
    )
