"""Results of a benchmark, by load: the documented, stable shape of ``compare`` with such files. Pure.

Ratios are 0..1 or factors as named. Times are seconds, lengths tokens, intervals 95 %. ``null`` means not in the files
or not known; at both ends of an interval it means that chance is not known.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import Final

import msgspec

from specdec_exporter.baseline.file import Context
from specdec_exporter.comparison.benchload import BenchLoad, Runs, Setting, differs, measure, setting_of
from specdec_exporter.comparison.decision import Decision
from specdec_exporter.comparison.latency import Outcome
from specdec_exporter.comparison.likeness import Flag, FlagCode, same_model
from specdec_exporter.errors import ComparisonError
from specdec_exporter.formatting import in_words, seconds
from specdec_exporter.predictor.benchresult import BenchResult
from specdec_exporter.speculation.chance import times
from specdec_exporter.speculation.policy import Policy


class BenchRuns(msgspec.Struct, frozen=True, kw_only=True):
    """The results of one side. ``speculates``: some tell of drafts; ``null``: none does, which says nothing."""

    names: tuple[str, ...]
    context: Context
    speculates: bool | None


class BenchComparison(msgspec.Struct, frozen=True, kw_only=True):
    """The whole comparison: each load that both sides ran at, ascending."""

    baseline: BenchRuns
    candidate: BenchRuns
    loads: tuple[BenchLoad, ...]
    flags: tuple[Flag, ...]
    decision: Decision


def sides_of(given: Sequence[Runs], *, folders: bool) -> tuple[Runs, Runs]:
    """Return baseline and candidate: two arguments are a side each. Else results that tell of drafts are the candidate.

    Two ``folders`` that mix are split too. Raises :class:`ComparisonError`.
    """
    mixed = [runs for runs in given if len({run.speculates for run in runs}) > 1]  # only some tell of drafts
    if len(given) == 2 and not mixed:
        return given[0], given[1]
    if len(given) == 2 and not folders:
        plain, drafting = _split(mixed[0])
        raise ComparisonError(
            f"expected one side in each argument, found {plain[0].name} without drafts beside {drafting[0].name} with "
            "them: give all results in one folder, or each side in its own"
        )
    plain, drafting = _split([run for runs in given for run in runs])
    if not plain or not drafting:
        raise ComparisonError(
            f"expected results with and without drafts, found that {'none has' if plain else 'all have'} them: give "
            "two folders, first the baseline"
        )
    return plain, drafting


def _split(runs: Runs) -> tuple[list[BenchResult], list[BenchResult]]:
    return [run for run in runs if not run.speculates], [run for run in runs if run.speculates]


def compare_bench(baseline: Runs, candidate: Runs, policy: Policy) -> BenchComparison:
    """Compare the results of two sides; neither is empty. If only the baseline drafted, the sides are swapped.

    Raises :class:`ComparisonError` for two models, and for a run that is given twice.
    """
    _refuse([*baseline, *candidate])
    if swapped := _drafts(baseline) and not any(run.speculates or run.may_not_count for run in candidate):
        baseline, candidate = candidate, baseline
    before, after = _by_setting(baseline), _by_setting(candidate)
    loads = tuple(measure(each, before[each], after[each], policy) for each in before if each in after)
    alone = [[str(each) for each in one if each not in other] for one, other in ((before, after), (after, before))]
    then, now = _runs(baseline), _runs(candidate)
    plausible = all(each.reached_ratio for each in loads) or not any(run.may_not_count for run in baseline)
    return BenchComparison(
        baseline=then,
        candidate=now,
        loads=loads,
        flags=(
            *_settings(baseline, candidate),
            *_unmatched(alone),
            *_traffic(baseline, candidate, loads, policy),
            *_unlikely(loads),
            *_speculation(baseline, candidate, swapped=swapped),
            *_length(loads, policy),
            *_context_missing(then, now),
        ),
        decision=_decide(loads, alone, policy, drafts=bool(now.speculates and not then.speculates and plausible)),
    )


def _refuse(runs: Runs) -> None:
    known: dict[tuple[str, float, float], str] = {}
    for run in runs:
        if run.identity in known:
            raise ComparisonError(f"expected each run once, found one run twice: {known[run.identity]} and {run.name}")
        known[run.identity] = run.name
        if not same_model(runs[0].model, run.model):
            raise ComparisonError(
                f"expected results of one model, found model_id {runs[0].model!r} in {runs[0].name} and "
                f"{run.model!r} in {run.name}"
            )


def _runs(runs: Runs) -> BenchRuns:
    names = tuple(run.name for run in runs)
    return BenchRuns(names=names, context=_context(runs), speculates=_drafts(runs) or None)


def _drafts(runs: Runs) -> bool:
    return any(run.speculates for run in runs)


def _by_setting(runs: Runs) -> dict[Setting, list[BenchResult]]:
    """Return the runs of each load: first those with fixed clients, then those at a rate."""

    def order(run: BenchResult) -> tuple[float, float]:
        setting = setting_of(run)
        return setting.request_rate or 0.0, setting.clients or 0.0

    return {setting: list(some) for setting, some in groupby(sorted(runs, key=order), setting_of)}


def _context(runs: Runs) -> Context:
    """Return the facts of a report: the model, and what ``--metadata`` gave the first result."""
    given = runs[0].settings
    facts = ("hardware", "runtime", "request_parameters", "command")
    return Context(model=runs[0].model, **{name: given.get(name) for name in facts})


# --- Decision ---------------------------------------------------------------------------------------------------------

_WORDS: Final[dict[Outcome, str]] = {  # the first one that a load has is the code of all
    "slower": "slower",
    "tail_worse": "slower in the tail",
    "faster": "faster",
    "inconclusive": "not shown to differ",
    "no_difference": "no faster, no slower",
    "undecided": "not known",
}
_NEXT: Final[dict[Outcome, str]] = {
    "slower": "Run without speculation at this load, or draft fewer tokens.",
    "tail_worse": "Find the slow requests: long prompts, one language, one temperature. The mean hides them.",
    "faster": "Keep speculation on. Then `baseline record` the server without it: an alert fires when the speed-up "
    "disappears.",
    "inconclusive": "Repeat each run five times.",
    "no_difference": "Choose by other things: memory, risk.",
    "undecided": "Mend what the first line and the flags name, and run both again.",
}


def _decide(loads: Sequence[BenchLoad], alone: Sequence[Sequence[str]], policy: Policy, *, drafts: bool) -> Decision:
    """Decide by all loads. ``drafts``: the candidate alone drafted, as far as the results tell."""
    groups = {word: found for word in _WORDS if (found := [each for each in loads if each.outcome == word])}
    code: Outcome = next(iter(groups), "undecided")
    headline, action = _headline(groups), _by_load(groups, drafts=drafts) if len(groups) > 1 else _NEXT[code]
    if not drafts and code in ("slower", "faster"):
        kept = "Use the candidate's settings." if code == "faster" else "Use the baseline's settings."
        action = f"{action if len(groups) > 1 else kept} These results do not tell whether speculation itself pays."
    if not loads:
        ran = " and ".join(f"{side} at {in_words(each)}" for side, each in zip(_SIDES, alone, strict=True))
        headline = f"Nothing is decided: no load is in both, {ran}"
        action = "Run both with the same number of clients and the same request rate."
    return Decision(
        code=code,
        headline=headline,
        action=action,
        reasons=tuple(reason for each in loads for reason in _reasons(each, policy)),
        regression=code in ("slower", "tail_worse"),
    )


_SIDES: Final = ("the baseline", "the candidate")


def _headline(groups: Mapping[Outcome, Sequence[BenchLoad]]) -> str:
    """Return the speed-ups of decoding by outcome, and why nothing is known at other loads."""
    found = [f"{_WORDS[word]}, {_found(some)}" for word, some in groups.items() if word != "undecided"]
    at: dict[str | None, list[BenchLoad]] = {}
    for each in groups.get("undecided", ()):
        at.setdefault(each.undecided_because, []).append(each)
    unknown = [f"Not known at {_at(some)}: {why}" for why, some in at.items()]
    if len(found) == 1 and not unknown:
        ((word, some),) = groups.items()
        return f"{_WORDS[word].capitalize()}: decoding is {_found(some)}"
    return ". ".join([f"Mixed by load: decoding is {'; '.join(found)}", *unknown] if found else unknown)


_STEPS: Final[dict[Outcome, str]] = {
    "slower": "drop {} at {}",
    "tail_worse": "find the requests that {} slows at {}",
    "faster": "keep {} at {}",
    "no_difference": "{} changes nothing at {}",
}


def _by_load(groups: Mapping[Outcome, Sequence[BenchLoad]], *, drafts: bool) -> str:
    """Return the next step where outcomes differ from load to load."""
    what, parts = "speculation" if drafts else "the candidate", list[str]()
    for word in (each for each in _STEPS if each in groups):
        parts.append(_STEPS[word].format("it" if parts else what, _at(groups[word])))
    if unknown := [each for word, some in groups.items() if word not in _STEPS for each in some]:
        parts.append(f"at {_at(unknown)} it is not known whether {'it' if parts else what} pays: repeat the runs")
    action = "; ".join(parts)
    return f"{action[0].upper()}{action[1:]}."


def _at(loads: Iterable[BenchLoad]) -> str:
    return in_words(found) if (found := [str(each.setting) for each in loads]) else ""


def _found(loads: Sequence[BenchLoad]) -> str:
    """Return the speed-ups at loads of one outcome: at the first and the last one where there are many."""
    first, *others = loads
    words = f"{times(first.speedup)} as fast at {first.setting}"
    more = [f"{times(each.speedup)} at {each.setting}" for each in others]
    return f"{words}, up to {more[-1]}" if len(more) > 2 else ", ".join((words, *more))


def _reasons(load: BenchLoad, policy: Policy) -> Iterator[str]:
    """Yield where another figure contradicts decoding."""
    limits, throughput, first = policy.latency, load.tokens_per_second_ratio, load.time_to_first_token_ratio
    if load.outcome == "faster" and throughput is not None and throughput.value * limits.slowdown_min < 1.0:
        yield (
            f"{load.setting}: tokens per second are {throughput.value:.2f}x, although decoding is faster: the time to "
            "first token, or the start and end of a run, took more than decoding gained"
        )
    if first is not None and first > limits.slower_ratio:
        why = "; a draft model may be why: it reads prompts too" if load.ceiling else ""
        yield f"{load.setting}: the time to first token is {first:.2f}x the baseline's{why}"
    if load.tail_shift is not None and load.tail_shift.shifted:
        slow = f"slower than {seconds(load.tail_shift.limit_seconds)} per token, which is harm"
        yield f"{load.setting}: {load.tail_shift.share:.1%} more requests than the baseline explains are {slow}"


# --- Flags ------------------------------------------------------------------------------------------------------------

_ENOUGH_RUNS: Final = 3


def _unmatched(alone: Sequence[Sequence[str]]) -> Iterator[Flag]:
    for side, names in zip(_SIDES, alone, strict=True):
        if names:
            words = f"only {side} ran at {in_words(names)}: not compared"
            yield Flag("load_differs", words, "Run both at the same loads.")


def _context_missing(*sides: BenchRuns) -> Iterator[Flag]:
    missing = dict.fromkeys(name.replace("_", " ") for each in sides for name in each.context.missing)
    if missing:
        add = 'Report them too: `vllm bench serve --metadata hardware="1x L4" runtime=... command=...` writes them.'
        yield Flag("context_missing", f"not told: {', '.join(missing)}", add)


def _settings(baseline: Runs, candidate: Runs) -> Iterator[Flag]:
    then, now = (
        {key: in_words(sorted({run.settings.get(key, "none") for run in runs})) for key in runs[0].settings}
        for runs in (baseline, candidate)
    )
    words = [
        f"{key}: {value} in the baseline, {now[key]} in the candidate"
        for key, value in then.items()
        if key != "command" and now.get(key, value) != value
    ]
    if words:
        yield Flag(
            "settings_differ", "; ".join(words), "Run both in one setting: the result shows all changes together."
        )


def _traffic(baseline: Runs, candidate: Runs, loads: Sequence[BenchLoad], policy: Policy) -> Iterator[Flag]:
    least, same = policy.latency.slowdown_min, _SAME
    numbers = [{run.prompts for run in runs} for runs in (baseline, candidate)]
    if numbers[0] != numbers[1]:
        then, now = (in_words(sorted(str(each) for each in some)) for some in numbers)
        yield Flag("prompts_differ", f"{then} prompts in the baseline, {now} in the candidate", same)
    lengths: tuple[tuple[FlagCode, str, str], ...] = (
        ("prompts_differ", "prompt", "mean_prompt_tokens"),
        ("answers_differ", "answer", "mean_generation_tokens"),
    )
    for code, name, key in lengths:
        if at := _at(
            each for each in loads if differs(getattr(each.baseline, key), getattr(each.candidate, key), least)
        ):
            yield Flag(code, f"{at}: the mean {name} has another length: tokens per second do not compare", same)


def _unlikely(loads: Sequence[BenchLoad]) -> Iterator[Flag]:
    """Yield which figures drafts alone do not explain."""
    if at := _at(filter(_other_first_tokens, loads)):
        words = f"{at}: the time to first token differs far more than decoding does: a prefix cache or other prompts"
        yield Flag("prompts_differ", words, "Restart or warm up both servers alike, and send the same requests.")
    if at := _at(filter(_beyond_the_ceiling, loads)):
        words = f"{at}: decoding gained more than the mean acceptance length: drafts alone cannot give that"
        yield Flag("settings_differ", words, "Look for what else differs: GPU, release, other traffic, data set.")
    if at := _at(each for each in loads if each.baseline.failed or each.candidate.failed):
        yield Flag("requests_failed", f"{at}: requests failed, and count nowhere", "Run again without failures.")
    rates = {str(each.setting): rate for each in loads if (rate := each.candidate.acceptance_ratio) is not None}
    most, fewest = (end(rates, key=rates.__getitem__, default="") for end in (max, min))
    if rates and rates[most] - rates[fewest] > _ACCEPTANCE_APART:
        words = f"{rates[most]:.1%} at {most}, {rates[fewest]:.1%} at {fewest}"
        yield Flag("prompts_differ", f"acceptance differs by load ({words}): other prompts, or another k", _SAME)


_SAME: Final = "Send the same requests to both: one data set, one seed."
_FAR: Final = 2.0  # times as far as decoding
_ACCEPTANCE_APART: Final = 0.1  # of one data set, acceptance hardly depends on the load


def _other_first_tokens(load: BenchLoad) -> bool:
    first, decoding = load.time_to_first_token_ratio, load.speedup.value if load.speedup else 1.0
    return first is not None and max(first, 1.0 / first) > _FAR * max(decoding, 1.0 / decoding)


def _beyond_the_ceiling(load: BenchLoad) -> bool:
    """Whether the interval lies above the ceiling. At a fixed rate a faster server also has fewer requests at once."""
    low = load.speedup.low if load.speedup and load.request_rate is None else None
    return low is not None and load.ceiling is not None and low > load.ceiling


def _speculation(baseline: Runs, candidate: Runs, *, swapped: bool) -> Iterator[Flag]:
    if swapped:
        words = "the first argument drafted and the second did not, so the second is the baseline here"
        yield Flag("order_swapped", words, "Give the results without drafts first.")
    if _drafts(baseline):
        words = "the baseline drafts too, so the ratio compares two settings of speculation"
        yield Flag(
            "baseline_speculates", words, "To see what speculation gives, run once without --speculative-config."
        )
    unknown = [_SIDES[0]] if not _drafts(baseline) and any(run.may_not_count for run in baseline) else []
    unknown += [] if _drafts(candidate) else [_SIDES[1]]
    if unknown:
        words = (
            f"the results do not tell whether {in_words(unknown)} drafted: vLLM's benchmark counts drafts since 0.14"
        )
        yield Flag("drafts_not_known", words, "Check the --speculative-config, and that /metrics can be read.")


def _length(loads: Sequence[BenchLoad], policy: Policy) -> Iterator[Flag]:
    """Yield that a load has few runs or few requests."""
    sides = [side for load in loads for side in (load.baseline, load.candidate)]
    runs, requests = (min((getattr(side, name) for side in sides), default=math.inf) for name in ("runs", "requests"))
    why = ["run-to-run variation is assumed"] if runs < _ENOUGH_RUNS else []
    why += ["the tail is not judged"] if requests < policy.latency.min_requests else []
    if why:
        words = f"as few as {runs} run{'' if runs == 1 else 's'} and {requests:,} requests a side: {in_words(why)}"
        yield Flag("short_recording", words, "Repeat each run five times: medians are compared.")
