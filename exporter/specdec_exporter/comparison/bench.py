"""Results of ``vllm bench serve``, by load: the documented, stable shape of ``compare`` with such files. Pure.

Ratios are 0..1 or factors as named. Times are seconds, lengths tokens, intervals 95 %. ``null`` means not in the files
or not known; at both ends of an interval it means that chance is not known.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import Final, Literal

import msgspec

from specdec_exporter.baseline.file import Context
from specdec_exporter.comparison.benchload import BenchLoad, Runs, Setting, differs, measure, setting_of
from specdec_exporter.comparison.byload import crossover
from specdec_exporter.comparison.decision import Decision, DecisionCode
from specdec_exporter.comparison.likeness import Flag, same_model
from specdec_exporter.errors import ComparisonError
from specdec_exporter.formatting import in_words, seconds, times
from specdec_exporter.predictor.benchresult import BenchResult
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


def split(results: Sequence[BenchResult]) -> tuple[list[BenchResult], list[BenchResult]]:
    """Return the results without figures of speculation, and those with them; raises :class:`ComparisonError`."""
    sides = [[each for each in results if each.speculates is which] for which in (False, True)]
    if not all(sides):
        found = "none has" if sides[0] else "all have"
        raise ComparisonError(
            f"expected results with and without figures of speculation, found that {found} them: give two folders, "
            "first the baseline"
        )
    return sides[0], sides[1]


def compare_bench(baseline: Runs, candidate: Runs, policy: Policy) -> BenchComparison:
    """Compare the results of two sides; neither is empty. Raises :class:`ComparisonError` for two models."""
    first = baseline[0]
    for each in (*baseline, *candidate):
        if not same_model(first.model, each.model):
            raise ComparisonError(
                f"expected results of one model, found model_id {first.model!r} in {first.name} and {each.model!r} in "
                f"{each.name}"
            )
    before, after = _by_setting(baseline), _by_setting(candidate)
    loads = tuple(measure(each, before[each], after[each], policy) for each in before if each in after)
    alone = [[str(each) for each in one if each not in other] for one, other in ((before, after), (after, before))]
    sides = then, now = [
        BenchRuns(
            names=tuple(run.name for run in runs),
            context=_context(runs),
            speculates=any(run.speculates for run in runs) or None,
        )
        for runs in (baseline, candidate)
    ]
    return BenchComparison(
        baseline=then,
        candidate=now,
        loads=loads,
        flags=(
            *_settings(baseline, candidate),
            *_unmatched(alone),
            *_traffic(baseline, candidate, loads, policy),
            *_speculation(then, now),
            *_length(loads, policy),
            *_context_missing(then, now),
        ),
        decision=_decide(loads, alone, policy, speculates=[bool(each.speculates) for each in sides]),
    )


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

_WORDS: Final[dict[DecisionCode, str]] = {  # the first one that a load has is the code of all
    "slower": "slower",
    "tail_worse": "slower in the tail",
    "faster": "faster",
    "inconclusive": "not shown to differ",
    "no_difference": "as fast as before",
    "undecided": "not known",
}
_NEXT: Final[dict[DecisionCode, str]] = {
    "slower": "Run without speculation at this load, or draft fewer tokens.",
    "tail_worse": "Find the slow requests: long prompts, one language, one temperature. The mean hides them.",
    "faster": "Keep speculation on. Then `baseline record` the server without it: an alert fires when the speed-up "
    "disappears.",
    "inconclusive": "Repeat each run five times, and give two folders.",
    "no_difference": "Choose by other things: memory, risk.",
    "undecided": "Mend what the first line and the flags name, and run both again.",
}
_CONFLICT: Final[tuple[DecisionCode, ...]] = ("faster", "slower", "tail_worse", "undecided")


def _decide(
    loads: Sequence[BenchLoad], alone: Sequence[Sequence[str]], policy: Policy, *, speculates: Sequence[bool]
) -> Decision:
    groups = {word: found for word in _WORDS if (found := [each for each in loads if each.outcome == word])}
    code: DecisionCode = next(iter(groups), "undecided")
    action = _by_load(loads) if _mixed(groups) else _NEXT[code]
    if code in ("slower", "faster") and speculates[0] >= speculates[1]:
        kept = "candidate" if code == "faster" else "baseline"
        action = f"Keep the {kept}'s setting. The results do not tell what alone differs: look at the flags."
    if speculates[0] and not speculates[1]:
        action = "Give the results without drafts first: now the ones that draft are the baseline."
    if loads:
        headline = _headline(groups)
    else:
        ran = " and ".join(f"{side} at {in_words(each)}" for side, each in zip(_SIDES, alone, strict=True))
        headline = f"Nothing is decided: no load is in both, {ran}"
        action = "Run both with one --max-concurrency and one --request-rate."
    reasons = tuple(reason for each in loads for reason in _reasons(each, policy))
    return Decision(
        code=code,
        headline=headline,
        action=action,
        reasons=reasons,
        regression=code in ("slower", "tail_worse"),
    )


_SIDES: Final = ("the baseline", "the candidate")


def _headline(groups: Mapping[DecisionCode, Sequence[BenchLoad]]) -> str:
    """Return the speed-ups of decoding by outcome; where outcomes conflict, without those that show no difference."""
    words = [word for word in _CONFLICT if word in groups] if _mixed(groups) else groups
    found = [(_WORDS[word], _found(groups[word])) for word in words]
    if len(found) == 1:
        ((word, speedups),) = found
        return f"{word.capitalize()}: {'' if 'undecided' in groups else 'decoding is '}{speedups}"
    title = "Mixed by load" if _mixed(groups) else f"{found[0][0].capitalize()} at some loads"
    return f"{title}: decoding is {'; '.join(f'{word}, {speedups}' for word, speedups in found)}"


def _mixed(groups: Mapping[DecisionCode, Sequence[BenchLoad]]) -> bool:
    return "slower" in groups and "faster" in groups


def _by_load(loads: Sequence[BenchLoad]) -> str:
    """Return the next step where speculation pays at some loads: up to which one."""
    fixed = [(float(load.clients), load.speedup.value) for load in loads if load.clients and load.speedup]
    found = crossover(fixed if all(load.request_rate is None for load in loads) else [])
    where = "at the loads where it pays" if found is None else f"up to about {found:.0f} clients"
    return f"Speculate {where}. Since 0.24.0 vLLM drafts less at higher load by num_speculative_tokens_per_batch_size."


def _found(loads: Sequence[BenchLoad]) -> str:
    """Return the speed-ups at loads of one outcome: at the first and the last one where there are many."""
    if loads[0].undecided_because is not None:
        return f"{loads[0].undecided_because} ({in_words(str(each.setting) for each in loads)})"
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
        yield f"{load.setting}: the time to first token is {first:.2f}x the baseline's: a draft model reads prompts too"
    if load.tail_shift is not None and load.tail_shift.shifted:
        slow = f"slower than {seconds(load.tail_shift.limit_seconds)} per token, which is harm"
        yield f"{load.setting}: {load.tail_shift.share:.1%} more requests than the baseline explains are {slow}"


# --- Flags ------------------------------------------------------------------------------------------------------------

_ADD: Final = (
    'Add it to the run: --metadata hardware="1x L4" runtime="vLLM 0.33.0, its image" command="vllm serve ..." '
    'request_parameters="temperature 0, at most 128 tokens".'
)
_ENOUGH_RUNS: Final = 3


def _unmatched(alone: Sequence[Sequence[str]]) -> Iterator[Flag]:
    for side, names in zip(_SIDES, alone, strict=True):
        if names:
            words = f"only {side} ran at {in_words(names)}: not compared"
            yield Flag("load_differs", words, "Run both at the same loads.")


def _context_missing(*sides: BenchRuns) -> Iterator[Flag]:
    missing = {name for each in sides for name in each.context.missing}
    if missing:
        names = [name.replace("_", " ") for name in Context.__struct_fields__ if name in missing]
        yield Flag("context_missing", f"not in the results of both sides: {', '.join(names)}", _ADD)


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
    least, same = policy.latency.slowdown_min, "Send the same requests to both: one data set, --seed, --num-prompts."
    numbers = [{run.prompts for run in runs} for runs in (baseline, candidate)]
    if numbers[0] != numbers[1]:
        then, now = (in_words(sorted(str(each) for each in some)) for some in numbers)
        yield Flag("prompts_differ", f"{then} prompts in the baseline, {now} in the candidate", same)

    def where(unlike: Callable[[BenchLoad], bool]) -> str | None:
        found = [str(each.setting) for each in loads if unlike(each)]
        return in_words(found) if found else None

    def other_length(name: str) -> str | None:
        key = f"mean_{name}_tokens"
        return where(lambda each: differs(getattr(each.baseline, key), getattr(each.candidate, key), least))

    if at := other_length("prompt"):
        yield Flag(
            "prompts_differ", f"{at}: the mean prompt has another length: tokens per second do not compare", same
        )
    if at := other_length("generation"):
        yield Flag(
            "answers_differ", f"{at}: the mean answer has another length: tokens per second do not compare", same
        )
    if at := where(_other_first_tokens):
        words = f"{at}: the time to first token differs far more than decoding does: a prefix cache or other prompts"
        yield Flag("prompts_differ", words, "Restart or warm up both servers alike, and send the same requests.")
    if at := where(_beyond_the_ceiling):
        words = f"{at}: decoding gained more than the mean acceptance length: drafts alone cannot give that"
        yield Flag("settings_differ", words, "Look for what else differs: GPU, release, other traffic, data set.")
    if at := where(lambda each: bool(each.baseline.failed or each.candidate.failed)):
        yield Flag("requests_failed", f"{at}: requests failed, and count nowhere", "Run again without failures.")


_FAR: Final = 2.0  # times as far as decoding


def _other_first_tokens(load: BenchLoad) -> bool:
    first, decoding = load.time_to_first_token_ratio, load.speedup.value if load.speedup else 1.0
    return first is not None and max(first, 1.0 / first) > _FAR * max(decoding, 1.0 / decoding)


def _beyond_the_ceiling(load: BenchLoad) -> bool:
    """Whether the interval lies above the ceiling. At a fixed rate a faster server also has fewer requests at once."""
    low = load.speedup.low if load.speedup and load.request_rate is None else None
    return low is not None and load.ceiling is not None and low > load.ceiling


def _speculation(baseline: BenchRuns, candidate: BenchRuns) -> Iterator[Flag]:
    if baseline.speculates:
        words = "the baseline drafts too, so the ratio compares two settings of speculation"
        yield Flag(
            "baseline_speculates", words, "To see what speculation gives, run once without --speculative-config."
        )
    if not candidate.speculates:
        words = (
            "the candidate's results do not tell of drafts: nothing was drafted, or the benchmark did not count them "
            "(older than 0.14.1, or /metrics was out of reach)"
        )
        yield Flag("candidate_does_not_speculate", words, "Check --speculative-config and the order of the arguments.")


def _length(loads: Sequence[BenchLoad], policy: Policy) -> Iterator[Flag]:
    """Yield which loads have few runs or few requests."""
    runs = [f"{fewest} at {each.setting}" for each in loads if (fewest := _fewest(each, "runs")) < _ENOUGH_RUNS]
    if runs:
        words = f"few runs a side ({', '.join(runs)}): how far two runs of one setting differ is assumed, not measured"
        again = "Repeat each run five times, with --save-detailed, and give two folders: medians are compared."
        yield Flag("short_recording", words, again)
    least = policy.latency.min_requests
    few = [f"{fewest} at {each.setting}" for each in loads if (fewest := _fewest(each, "requests")) < least]
    if few:
        words = f"fewer than {least} requests a side ({', '.join(few)}): the tail is not judged"
        yield Flag("short_recording", words, "Send more prompts.")


def _fewest(load: BenchLoad, name: Literal["runs", "requests"]) -> int:
    one, other = (int(getattr(side, name)) for side in (load.baseline, load.candidate))
    return min(one, other)
