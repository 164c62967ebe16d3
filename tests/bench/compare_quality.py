"""How often ``compare`` is wrong: pairs of recordings whose truth is known, from servers that are simulated.

    python tests/bench/compare_quality.py [--quick] [--seed N]

Exits with 1 when a figure that must hold is missed, with 2 when the measuring itself failed. What is measured:
docs/compare.md, "How often it is wrong".
"""

from __future__ import annotations

import argparse
import dataclasses
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

TESTS = Path(__file__).parents[1]
sys.path.insert(0, str(TESTS))

from rich.table import Table

from bench.compare_server import Server
from bench.compare_traffic import Traffic
from bench.compare_trials import DIFFERENT, Case, Outcome, run_cases
from bench.rows import Row, percent, show, show_table, table
from specdec_exporter.errors import SpecdecError

MAY_BE_WRONG = 0.10
MUST_FIND = 0.95
LOAD_FLAGS = ("load_differs",)
LENGTH_FLAGS = ("prompts_differ", "answers_differ", *LOAD_FLAGS)
FEW = "speculation 1.10x as fast, 300 requests"
SPEEDUPS = ("speculation 1.5x as fast, 4/s", "speculation 1.8x as fast, 32 clients")
UNLIKE_LOADS = ("4/s against 5/s", "5/s against 4/s", "2/s against 6/s, 1.3x as fast")
UNLIKE_LENGTHS = ("prompts of log-SD 0.3 against 1.5", "answers 17 % longer")
RATES = (2, 4, 6, 8)  # requests per second; at 6 about 25 of 64 slots are taken, at 8 about 45, and at times all


def main() -> int:
    """Measure, print, and tell whether what must hold does."""
    parser = argparse.ArgumentParser(description="How often compare is wrong, over pairs of simulated recordings.")
    parser.add_argument("--quick", action="store_true", help="a tenth of the pairs, in less than a minute")
    parser.add_argument(
        "--seed", type=int, default=20260101, help="other pairs of the same kinds (default %(default)s)"
    )
    arguments = parser.parse_args()
    began = time.monotonic()
    try:
        cases = [*_same(), *_different(), *_unlike()]
        outcomes = run_cases([_fewer(case) for case in cases] if arguments.quick else cases, seed=arguments.seed)
    except (SpecdecError, OSError) as error:
        print(f"the measuring failed: {error}", file=sys.stderr)
        return 2
    must = list(_must_show(outcomes))
    show({"What must hold": must})
    show_table(_table(outcomes))
    missed = [row.what for row in must if row.holds is False]
    print(f"\nMissed, {len(missed)}: {'; '.join(missed)}." if missed else "\nAll of it holds.")
    pairs = sum(len(outcome.trials) for outcome in outcomes)
    print(f"{pairs:,} pairs of recordings in {time.monotonic() - began:.0f} s.")
    return 1 if missed else 0


def _fewer(case: Case) -> Case:
    return dataclasses.replace(case, trials=max(5, case.trials // 10))


def _at(per_second: float, *, slowdown: float = 1.0, wander: float = 0.0, stalls: float = 0.0) -> Server:
    return Server(traffic=Traffic(per_second=per_second), slowdown=slowdown, wander=wander, stalls=stalls)


def _drafting(server: Server, speedup: float) -> Server:
    return dataclasses.replace(server, k=2, tokens_per_step=speedup)


def _twice(what: str, side: Server, trials: int, minutes: int = 10) -> Case:
    return Case(what=what, baseline=side, candidate=side, trials=trials, minutes=minutes)


def _same() -> Iterator[Case]:
    """One setting, recorded twice."""
    for rate in RATES:
        yield _twice(f"{rate}/s", _at(rate), 200)
    yield _twice("6/s", _at(6), 60, minutes=30)
    yield _twice("32 clients", Server(traffic=Traffic(clients=32)), 60)
    yield _twice("4/s, wander 5%", _at(4, wander=0.05), 60)
    yield _twice("4/s, 20 stalls an hour", _at(4, stalls=20.0), 60)


def _different() -> Iterator[Case]:
    """Two settings, one of them faster."""
    # With long prompts, reading them would hide a part of the speed-up.
    base, clients = (Server(traffic=Traffic(per_second=4, clients=n, prompt_tokens=100.0)) for n in (0, 32))
    yield Case(what=SPEEDUPS[0], baseline=base, candidate=_drafting(base, 1.5), trials=100)
    yield Case(what=SPEEDUPS[1], baseline=clients, candidate=_drafting(clients, 1.8), trials=100)
    few = _at(0.5)
    yield Case(what=FEW, baseline=few, candidate=_drafting(few, 1.1), trials=200)
    for slowdown in (1.05, 1.1, 1.2):
        slower = _at(4, slowdown=slowdown)
        yield Case(what=f"{slowdown:.2f}x slower, 4/s", baseline=_at(4), candidate=slower, trials=60)


def _unlike() -> Iterator[Case]:
    """Two sides that did not get the same requests."""
    yield Case(what=UNLIKE_LOADS[0], baseline=_at(4), candidate=_at(5), trials=100)
    yield Case(what=UNLIKE_LOADS[1], baseline=_at(5), candidate=_at(4), trials=60)
    yield Case(what=UNLIKE_LOADS[2], baseline=_at(2), candidate=_drafting(_at(6), 1.3), trials=100)
    narrow, wide = (Server(traffic=Traffic(per_second=2, prompt_sigma=sigma)) for sigma in (0.3, 1.5))
    yield Case(what=UNLIKE_LENGTHS[0], baseline=narrow, candidate=wide, trials=100)
    longer = Server(traffic=Traffic(per_second=4, answer_tokens=1.17 * Traffic().answer_tokens))
    yield Case(what=UNLIKE_LENGTHS[1], baseline=_at(4), candidate=longer, trials=100)


def _must_show(outcomes: Sequence[Outcome]) -> Iterator[Row]:
    """The figures with a budget."""
    for outcome in outcomes:
        case, pairs = outcome.case, len(outcome.trials)
        if case.identical and case.minutes == 10 and case.what in {f"{rate}/s" for rate in RATES}:
            wrong = outcome.decided(*DIFFERENT)
            measured = f"{percent(wrong / pairs)} of {pairs} wrong"
            yield Row(f"{case.what} twice", measured, f"at most {MAY_BE_WRONG:.0%}", wrong / pairs <= MAY_BE_WRONG)
        elif case.what in SPEEDUPS:
            found = outcome.decided("faster")
            measured = f"{percent(found / pairs)} of {pairs} found"
            yield Row(case.what, measured, f"at least {MUST_FIND:.0%}", found / pairs >= MUST_FIND)
        elif case.what == FEW:
            off = outcome.says_off()
            yield Row(case.what, f"{off} of {pairs} advise to switch it off", "none", off == 0)
        elif case.what in (*UNLIKE_LOADS, *UNLIKE_LENGTHS):
            flags = LOAD_FLAGS if case.what in UNLIKE_LOADS else LENGTH_FLAGS
            misled = outcome.decided(*DIFFERENT, unless=flags)
            yield Row(case.what, f"{misled} of {pairs} decided without a flag", "none", misled == 0)


def _table(outcomes: Sequence[Outcome]) -> Table:
    codes = (*DIFFERENT, "no_difference", "inconclusive", "undecided")
    shown = table("what", "min", "pairs", *codes, "unlike", "says off", "TPOT", "TTFT", "e2e", names=1)
    shown.title = (
        "\nDecisions, flags of unlike traffic, and advice to switch speculation off;\n"
        "of one setting twice, also the 95 % intervals of the ratio of means that hold 1"
    )
    for outcome in outcomes:
        case, pairs = outcome.case, len(outcome.trials)
        counts = (*map(outcome.decided, codes), outcome.flagged(*LENGTH_FLAGS), outcome.says_off())
        held = [outcome.coverage(sli) if case.identical else None for sli in range(3)]
        shares = [percent(count / pairs) for count in counts] + ["" if each is None else percent(each) for each in held]
        shown.add_row(case.what, str(case.minutes), str(pairs), *shares)
    return shown


if __name__ == "__main__":
    sys.exit(main())
