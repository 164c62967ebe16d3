"""The figures of ``compare`` that must hold."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from statistics import fmean

from bench.compare_trials import DIFFERENT, Advised, Judged, Trial, decided
from bench.rows import Row, counted, percent
from specdec_exporter.speculation.chance import Estimate

LOAD_FLAGS = ("load_differs",)
LENGTH_FLAGS = ("prompts_differ", "answers_differ", *LOAD_FLAGS)
_FEWEST = 10  # intervals that tell a coverage
_OPEN = ("watch", "unknown", "inconclusive", "undecided", "no_difference")

Outcomes = Mapping[str, Sequence[Trial]]


def case_rows(outcomes: Outcomes) -> Iterator[Row]:
    """The figures of known cases that have a budget."""

    def share(what: str, start: str, codes: Sequence[str], *, most: float = 1.0, least: float = 0.0) -> Row:
        trials = [trial for name, some in outcomes.items() if name.startswith(start) for trial in some]
        found = decided(trials, *codes)
        budget = f"at most {percent(most)}" if most < 1.0 else f"at least {percent(least)}"
        measured = f"{percent(found / len(trials))} of {len(trials)}" if found else counted(0, len(trials))
        return Row(what, measured, budget, least <= found / len(trials) <= most)

    yield share("one setting twice: a difference", "twice:", DIFFERENT, most=0.05)
    yield share("twice, bursts and noise of 8 %: a difference", "twice, rough:", DIFFERENT, most=0.20)
    yield share("paired, one setting twice: a difference", "paired, twice:", DIFFERENT, most=0.05)
    yield share("1.1x: found", "1.1x:", ["faster"], least=0.85)
    yield share("1.3x: found", "1.3x:", ["faster"], least=1.0)
    yield share("1.1x, bursts: found", "1.1x, bursts:", ["faster"], least=0.8)
    yield share("1.1x, bursts: wrong side", "1.1x, bursts:", ["slower"], most=0.04)
    yield share("1.1x, bursts and noise of 8 %: wrong side", "1.1x, rough:", ["slower"], most=0.04)
    yield share("paired, 1.1x: wrong side", "paired, 1.1x:", ["slower"], most=0.04)
    for what, trials in outcomes.items():
        if what.startswith("300 requests"):
            off = sum(trial.says_off for trial in trials)
            yield Row(what, f"{counted(off, len(trials))} advise to switch it off", "none", off == 0)
        if what.startswith("unlike"):
            flags = LENGTH_FLAGS if what.startswith("unlike lengths") else LOAD_FLAGS
            misled = decided(trials, *DIFFERENT, unless=flags)
            yield Row(what, f"{counted(misled, len(trials))} decided without a flag", "none", misled == 0)


def judged_rows(judged: Sequence[Judged]) -> Iterator[Row]:
    """The figures of services of every kind that have a budget."""
    gains = sum(each.truth.speedup > 1.0 for each in judged)
    yield Row("services", f"{len(judged)}, {gains} of them gain")
    found = list(pairs_of(judged))
    for when, now in (("same minutes", True), ("long run", False)):
        yield from _against_truth(when, [(trial.word, trial.right(each.truth, now=now)) for each, trial in found])
    sides = [
        (trial.judged.value, trial.right(each.truth, now=False))
        for each, trial in found
        if trial.judged and not holds(trial.judged, 1.0)
    ]
    wrong = sum((value > 1.0) != (truth > 1.0) for value, truth in sides)
    what = "interval on the wrong side of 1, long run"
    yield Row(what, counted(wrong, len(sides)), "at most 4 %", wrong <= 0.04 * len(sides))
    yield from _coverage_rows(judged)


def _against_truth(where: str, said: Sequence[tuple[str, float]]) -> Iterator[Row]:
    """Rows of the two words that must never be wrong."""
    for word, wrong in (("harmful", "gain"), ("healthy", "loss")):
        truths = [truth for found, truth in said if found == word]
        false = sum(truth > 1.0 if wrong == "gain" else truth < 1.0 for truth in truths)
        yield Row(f"{word} at a {wrong}, {where}", counted(false, len(truths)), "none", false == 0)


def _coverage_rows(judged: Sequence[Judged]) -> Iterator[Row]:
    """How many of the intervals that are judged hold the truth of their minutes."""
    everything = coverage(judged)
    by_kind = {kind: held for kind, some in by_kinds(judged).items() if len(held := coverage(some)) >= _FEWEST}
    what = "the judged interval holds the truth of its minutes"
    if everything:
        share = fmean(everything)
        yield Row(f"{what}: all", f"{share:.2f} of {len(everything)}", "at least 0.90", share >= 0.90)
    low = {kind: fmean(held) for kind, held in by_kind.items() if fmean(held) < 0.85}
    measured = f"{len(by_kind) - len(low)} of {len(by_kind)} kinds"
    yield Row(f"{what}: kinds", measured, "at least 0.85 in each", not low)
    for kind, share in low.items():
        yield Row(f"{what}: {kind}", f"{share:.2f} of {len(by_kind[kind])}", "at least 0.85", False)


def look_rows(judged: Sequence[Judged]) -> Iterator[Row]:
    """What a running exporter said, look by look."""
    said = [(look.code, each.truth.speedup) for each in judged for look in each.looks]
    yield from _against_truth("looks", said)
    for each in judged:
        if each.service.what == "hardly a loss":
            harmful = sum(look.code == "harmful" for look in each.looks)
            what = "hardly a loss: looks that say harmful"
            yield Row(what, counted(harmful, len(each.looks)), "at most 5 %", harmful <= 0.05 * len(each.looks))
        if each.service.what == "overload by a loss":
            for what, codes in (
                ("looks", [look.code for look in each.looks]),
                ("pairs", [one.code for one in each.trials]),
            ):
                told = sum(code not in _OPEN for code in codes)
                yield Row(f"overload by a loss: {what} that say so", f"{told} of {len(codes)}", "some", told > 0)


def fast_rows(judged: Sequence[Judged]) -> Iterator[Row]:
    """Of services that are 2 to 4 times as fast: how many are told to be."""
    fast = [each for each in judged if each.service.what.startswith("fast")]
    words = [trial.word for each in fast for trial in each.trials]
    looks = [look.code for each in fast for look in each.looks]
    for what, said in (("pairs", words), ("looks", looks)):
        yield Row(f"2 to 4 times as fast: {what} that say healthy", counted(said.count("healthy"), len(said)))


def advice_rows(advised: Sequence[Advised]) -> Iterator[Row]:
    """What following the advice costs."""
    losses = {each.what: each.loss for each in advised if each.loss is not None}
    worst = max(losses.values(), default=0.0)
    yield Row("advice of several k", f"{len(losses)} of {len(advised)} servers are told what to run")
    yield Row("advice: its loss against the best k", f"{percent(worst)} at most", "at most 5 %", worst <= 0.05)
    for what, loss in losses.items():
        if loss > 0.05:
            yield Row(f"advice: {what}", percent(loss), "at most 5 %", False)


def pairs_of(judged: Sequence[Judged]) -> Iterator[tuple[Judged, Trial]]:
    """Yield every pair of recordings with its service."""
    for each in judged:
        for trial in each.trials:
            yield each, trial


def by_kinds(judged: Sequence[Judged]) -> dict[str, list[Judged]]:
    """Return the services of each kind."""
    found: dict[str, list[Judged]] = {}
    for each in judged:
        for kind in each.service.kinds:
            found.setdefault(kind, []).append(each)
    return found


def coverage(judged: Sequence[Judged]) -> list[bool]:
    """Return for each judged interval whether it holds the truth of its minutes."""
    found = ((trial.judged, trial.right(each.truth, now=True)) for each, trial in pairs_of(judged))
    return [holds(interval, truth) for interval, truth in found if interval and truth > 0.0]


def holds(found: Estimate, value: float) -> bool:
    """Whether an interval holds a value."""
    return found.low is not None and found.high is not None and found.low <= value <= found.high
