"""How often ``compare`` is wrong: recordings whose truth is known, from servers that are simulated.

    python tests/bench/compare_quality.py [--quick] [--seed N]

Exits with 1 when a figure that must hold is missed, with 2 when the measuring itself failed. What is measured:
docs/evidence/compare.md.
"""

from __future__ import annotations

import argparse
import dataclasses
import math
import statistics
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

TESTS = Path(__file__).parents[1]
sys.path.insert(0, str(TESTS))

from rich.table import Table

from bench.compare_machine import Machine, Server
from bench.compare_services import ARRIVALS, PROMPTS, SHAPES, STALLS, WANDER, services
from bench.compare_traffic import Traffic
from bench.compare_trials import (
    DIFFERENT,
    Advised,
    Case,
    Judged,
    Trial,
    Work,
    decided,
    run_advice,
    run_all,
    run_service,
    run_trial,
)
from bench.rows import Row, missed, percent, show, show_table, table
from specdec_exporter.errors import SpecdecError
from specdec_exporter.speculation.chance import Estimate

EACH, PAIRS = 3, 6  # services of every kind, pairs of each
KS = (1, 3, 5)
LOAD_FLAGS = ("load_differs",)
LENGTH_FLAGS = ("prompts_differ", "answers_differ", *LOAD_FLAGS)
# Reading short prompts and verifying two draft tokens cost nothing where memory bounds a step, so what requests accept
# is the gain. It is a bit more than the mean's, because acceptance varies.
MEMORY_BOUND = Machine(base=0.020, request=0.0004, token=0.00005, sharpness=math.inf)
ACCEPTS = {1.1: 0.086, 1.3: 0.225}

Outcomes = Mapping[str, Sequence[Trial]]


def main() -> int:
    """Measure, print, and tell whether what must hold does."""
    parser = argparse.ArgumentParser(description="How often compare is wrong, over simulated recordings.")
    parser.add_argument("--quick", action="store_true", help="a tenth of the pairs, in a minute")
    parser.add_argument(
        "--seed", type=int, default=20260101, help="other services and pairs of the same kinds (default %(default)s)"
    )
    arguments = parser.parse_args()
    began, seed, quick = time.monotonic(), arguments.seed, arguments.quick
    drawn = services(seed, 1 if quick else EACH)
    loops = [each for each in services(seed + 1, 1) if each.arrivals != "bursty"]
    work: list[Work] = [
        *((run_service, (each, seed, 2 if quick else PAIRS)) for each in drawn),
        *((run_advice, (each, seed, KS)) for each in (loops[::4] if quick else loops)),
    ]
    cases = [dataclasses.replace(case, trials=max(4, case.trials // 10)) if quick else case for case in all_cases()]
    work += [(run_trial, (case, seed, trial)) for case in cases for trial in range(case.trials)]
    try:
        found = run_all(work)
    except (SpecdecError, OSError) as error:
        print(f"the measuring failed: {error}", file=sys.stderr)
        return 2
    judged = [each for each in found if isinstance(each, Judged)]
    advised = [each for each in found if isinstance(each, Advised)]
    trials = iter(each for each in found if isinstance(each, Trial))
    outcomes = {case.what: [next(trials) for _ in range(case.trials)] for case in cases}
    must = [*judged_rows(judged), *case_rows(outcomes), *advice_rows(advised)]
    show({"What must hold": must})
    show_table(_services_table(judged))
    show_table(_cases_table(outcomes))
    code = missed(must)
    pairs = sum(len(each.trials) for each in judged) + sum(map(len, outcomes.values()))
    print(f"{pairs:,} pairs and {len(advised)} sets of recordings in {time.monotonic() - began:.0f} s.")
    return code


def _bursty(traffic: Traffic) -> Traffic:
    return dataclasses.replace(traffic, burst_seconds=45.0)


def _rough(server: Server) -> Server:
    return dataclasses.replace(server, traffic=_bursty(server.traffic), wander=WANDER, stalls=STALLS)


def _drafting(server: Server, gain: float) -> Server:
    return dataclasses.replace(server, k=2, traffic=dataclasses.replace(server.traffic, acceptance=ACCEPTS[gain]))


def all_cases() -> Iterator[Case]:
    """One setting twice, known gains, and sides that did not get the same requests."""

    def at(rate: float, prompts: float = 150.0, answers: float = 100.0) -> Server:
        traffic = Traffic(per_second=rate, prompt_tokens=prompts, answer_tokens=answers)
        return Server(traffic=traffic, machine=MEMORY_BOUND)

    def pairs(what: str, baseline: Server, candidate: Server, trials: int) -> Case:
        return Case(what=what, baseline=baseline, candidate=candidate, trials=trials)

    clients = dataclasses.replace(at(4), traffic=dataclasses.replace(at(4).traffic, clients=32))
    calm = {
        "2/s": at(2),
        "6/s": at(6),
        "32 clients": clients,
        "4/s, drafts": _drafting(at(4), 1.3),
        "90 requests": at(0.15),
    }
    for what, side in calm.items():
        yield pairs(f"twice: {what}", side, side, 50)
    for side, what in ((_rough(at(4)), "4/s"), (_drafting(_rough(at(4)), 1.3), "4/s, drafts")):
        yield pairs(f"twice, rough: {what}", side, side, 60)
    for gain in ACCEPTS:
        yield pairs(f"{gain}x: 4/s", at(4), _drafting(at(4), gain), 50)
        yield pairs(f"{gain}x: 32 clients", clients, _drafting(clients, gain), 50)
    yield pairs("1.1x, rough: 4/s", _rough(at(4)), _drafting(_rough(at(4)), 1.1), 100)
    yield pairs("300 requests, 1.1x: 0.5/s", at(0.5), _drafting(at(0.5), 1.1), 100)
    yield pairs("90 requests, 1.3x: 0.15/s", at(0.15), _drafting(at(0.15), 1.3), 50)
    yield pairs("unlike: 4/s against 5/s", at(4), at(5), 40)
    yield pairs("unlike: 5/s against 4/s", at(5), at(4), 40)
    yield pairs("unlike: 2/s against 6/s, 1.3x", at(2), _drafting(at(6), 1.3), 40)
    yield pairs("unlike lengths: prompts 25 % longer", at(4), at(4, prompts=187.5), 40)
    yield pairs("unlike lengths: answers 17 % longer", at(4), at(4, answers=117.0), 40)


def case_rows(outcomes: Outcomes) -> Iterator[Row]:
    """The figures of known cases that have a budget."""

    def share(
        what: str, budget: str, start: str, codes: Sequence[str], *, most: float = 1.0, least: float = 0.0
    ) -> Row:
        trials = [trial for what, some in outcomes.items() if what.startswith(start) for trial in some]
        found = decided(trials, *codes)
        return Row(
            what, f"{percent(found / len(trials))} of {len(trials)}", budget, least <= found / len(trials) <= most
        )

    yield share("one setting twice: a difference", "at most 5 %", "twice:", DIFFERENT, most=0.05)
    yield share("twice, bursts and noise of 8 %: a difference", "at most 20 %", "twice, rough:", DIFFERENT, most=0.20)
    yield share("1.1x: found", "at least 85 %", "1.1x:", ["faster"], least=0.85)
    yield share("1.3x: found", "100 %", "1.3x:", ["faster"], least=1.0)
    yield share("1.1x, bursts and noise of 8 %: wrong side", "at most 4 %", "1.1x, rough:", ["slower"], most=0.04)
    for what, trials in outcomes.items():
        if what.startswith("300 requests"):
            off = sum(trial.says_off for trial in trials)
            yield Row(what, f"{off} of {len(trials)} advise to switch it off", "none", off == 0)
        if what.startswith("unlike"):
            flags = LENGTH_FLAGS if what.startswith("unlike lengths") else LOAD_FLAGS
            misled = decided(trials, *DIFFERENT, unless=flags)
            yield Row(what, f"{misled} of {len(trials)} decided without a flag", "none", misled == 0)


def judged_rows(judged: Sequence[Judged]) -> Iterator[Row]:
    """The figures of services of every kind that have a budget."""
    gains = sum(each.truth.speedup > 1.0 for each in judged)
    yield Row("services", f"{len(judged)}, {gains} of them gain")
    words = [(trial.word, each.truth.speedup, trial.now) for each in judged for trial in each.trials]
    for word, wrong in (("harmful", "gain"), ("healthy", "loss")):
        said = [(long, now) for found, long, now in words if found == word]
        for when, truths in (("same minutes", [now for _, now in said]), ("long run", [long for long, _ in said])):
            false = sum(truth > 1.0 if wrong == "gain" else truth < 1.0 for truth in truths)
            yield Row(f"{word} at a {wrong}, {when}", f"{false} of {len(said)}", "none", false == 0)
    sides = [
        (trial.known.value, each.truth.speedup)
        for each, trial in _pairs(judged)
        if trial.known and not _holds(trial.known, 1.0)
    ]
    wrong_side = sum((found > 1.0) != (truth > 1.0) for found, truth in sides)
    yield Row(
        "interval on the wrong side of 1, long run",
        f"{wrong_side} of {len(sides)}",
        "at most 4 %",
        wrong_side <= 0.04 * len(sides),
    )


def advice_rows(advised: Sequence[Advised]) -> Iterator[Row]:
    """What following the advice costs."""
    losses = [each.loss for each in advised if each.loss is not None]
    worst = max(losses, default=0.0)
    yield Row("advice of several k", f"{len(losses)} of {len(advised)} loops are told what to run")
    yield Row("advice: its loss against the best k", f"{percent(worst)} at most", "at most 5 %", worst <= 0.05)


def _pairs(judged: Sequence[Judged]) -> Iterator[tuple[Judged, Trial]]:
    for each in judged:
        for trial in each.trials:
            yield each, trial


def _holds(found: Estimate, value: float) -> bool:
    return found.low is not None and found.high is not None and found.low <= value <= found.high


def _services_table(judged: Sequence[Judged]) -> Table:
    now = ("error now", "bias now", "rms now", "covered now")
    shown = table("services", "pairs", "error", "bias", "rms", "covered", *now, "high/low", "not known", names=1)
    shown.title = "\nThe speed-up against the long run, and against the truth of the same minutes (now)"
    for name, some in _groups(judged):
        found = [(each.truth, trial) for each, trial in _pairs(some)]
        known = [trial.known for _, trial in found if trial.known]
        width = statistics.median([(each.high or 0.0) / (each.low or 1.0) for each in known]) if known else math.nan
        shown.add_row(
            name,
            str(len(found)),
            *_figures([(trial.speedup, truth.speedup) for truth, trial in found]),
            *_figures([(trial.speedup, trial.now) for _, trial in found]),
            f"{width:.2f}",
            percent(1.0 - len(known) / max(len(found), 1)),
        )
    clients = [(trial.closed_loop, each.truth.closed_loop) for each, trial in _pairs(judged) if each.truth.closed_loop]
    shown.add_row("what clients get", str(len(clients)), *_figures(clients))
    return shown


def _groups(judged: Sequence[Judged]) -> Iterator[tuple[str, Sequence[Judged]]]:
    yield "all", judged
    for shape in SHAPES:
        yield shape, [each for each in judged if each.service.shape == shape]
    for arrivals in ARRIVALS:
        yield arrivals, [each for each in judged if each.service.arrivals == arrivals]
    for prompts in PROMPTS:
        yield f"{prompts} prompts", [each for each in judged if each.service.prompts == prompts]
    for rough in (False, True):
        yield f"{'rough' if rough else 'calm'} machine", [each for each in judged if each.service.rough == rough]


def _figures(found: Sequence[tuple[Estimate | None, float | None]]) -> list[str]:
    """Return the median size of the error of a speed-up, its mean, its rms, and how many intervals hold the truth."""
    pairs = [(each, truth) for each, truth in found if each and truth and truth > 0.0]
    errors = [math.log(each.value / truth) for each, truth in pairs]
    held = [_holds(each, truth) for each, truth in pairs if each.low is not None]
    if not held:
        return [""] * 4
    middle, mean = statistics.median(map(abs, errors)), statistics.fmean(errors)
    rms = math.sqrt(statistics.fmean([each * each for each in errors]))
    return [f"{middle:.1%}", f"{mean:+.1%}", f"{rms:.1%}", f"{statistics.fmean(held):.2f}"]


def _cases_table(outcomes: Outcomes) -> Table:
    codes = (*DIFFERENT, "no_difference", "inconclusive", "undecided")
    shown = table("pairs of", "pairs", *codes, "unlike", names=1)
    shown.title = "\nDecisions, and flags of unlike traffic"
    for what, trials in outcomes.items():
        flagged = sum(not trial.flags.isdisjoint(LENGTH_FLAGS) for trial in trials)
        counts = (*(decided(trials, code) for code in codes), flagged)
        shown.add_row(what, str(len(trials)), *(percent(count / len(trials)) for count in counts))
    return shown


if __name__ == "__main__":
    sys.exit(main())
