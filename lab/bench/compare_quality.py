"""How often ``compare`` is wrong: recordings whose truth is known, from servers that are simulated.

    make bench-compare ARGS="[--quick] [--seed N]"

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
from collections import Counter
from collections.abc import Sequence

from rich.table import Table

from bench.compare_kinds import MANY, OVERLOADS_WITH_MANY, all_cases, chosen_services
from bench.compare_rows import (
    LENGTH_FLAGS,
    Outcomes,
    advice_rows,
    by_kinds,
    case_rows,
    fast_rows,
    holds,
    judged_rows,
    look_rows,
    pairs_of,
)
from bench.compare_services import fast_services, services
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
from bench.rows import missed, percent, show, show_table, table
from specdec_exporter.errors import SpecdecError
from specdec_exporter.speculation.chance import Estimate

KS = (1, 3, 5)
WORDS = ("healthy", "watch", "slower", "not_paying", "harmful")


def main() -> int:
    """Measure, print, and tell whether what must hold does."""
    parser = argparse.ArgumentParser(description="How often compare is wrong, over simulated recordings.")
    parser.add_argument("--quick", action="store_true", help="a tenth of the pairs, in a minute")
    parser.add_argument(
        "--seed", type=int, default=20260101, help="other services and pairs of the same kinds (default %(default)s)"
    )
    arguments = parser.parse_args()
    began, seed, quick = time.monotonic(), arguments.seed, arguments.quick
    cases = [dataclasses.replace(case, trials=max(4, case.trials // 10)) if quick else case for case in all_cases()]
    work = [*_of_services(seed, quick=quick), *_of_cases(cases, seed)]
    try:
        found = run_all(work)
    except (SpecdecError, OSError) as error:
        print(f"the measuring failed: {error}", file=sys.stderr)
        return 2
    judged = [each for each in found if isinstance(each, Judged)]
    advised = [each for each in found if isinstance(each, Advised)]
    trials = iter(each for each in found if isinstance(each, Trial))
    outcomes = {case.what: [next(trials) for _ in range(case.trials)] for case in cases}
    must = [*judged_rows(judged), *look_rows(judged), *fast_rows(judged), *case_rows(outcomes), *advice_rows(advised)]
    show({"What must hold": must})
    show_table(_services_table(judged))
    show_table(_traffic_table(judged))
    show_table(_looks_table(judged))
    show_table(_cases_table(outcomes))
    code = missed(must)
    pairs = sum(len(each.trials) for each in judged) + sum(map(len, outcomes.values()))
    print(f"{pairs:,} pairs and {len(advised)} sets of recordings in {time.monotonic() - began:.0f} s.")
    return code


def _of_services(seed: int, *, quick: bool) -> list[Work]:
    """Services that are drawn, fast or chosen, and advice; the longest first."""
    looking = 600.0 if quick else 3600.0
    drawn, fast, chosen = services(seed, 1 if quick else 2), fast_services(seed), list(chosen_services())
    loops = [each for each in services(seed + 1, 1) if "bursty" not in each.kinds]
    if quick:
        drawn, loops = drawn[::2], loops[::6]
        fast = [dataclasses.replace(each, looks_every=0.0) for each in fast[::3]]
    counts = (3, 2, 2) if quick else (20, 8, 5)
    work: list[Work] = [
        (run_service, (each, seed, pairs, looking))
        for some, pairs in zip((chosen, fast, drawn), counts, strict=True)
        for each in some
    ]
    work += [(run_advice, (each.what, each.engines[0], seed, KS)) for each in loops]
    times = 1 if quick else 4
    return [*work, *((run_advice, (f"overload, {n}", OVERLOADS_WITH_MANY, seed, MANY)) for n in range(times))]


def _of_cases(cases: Sequence[Case], seed: int) -> list[Work]:
    return [(run_trial, (case, seed, trial)) for case in cases for trial in range(case.trials)]


def _services_table(judged: Sequence[Judged]) -> Table:
    now = ("error now", "bias now", "rms now", "covered now")
    shown = table("services", "pairs", "error", "bias", "rms", "covered", *now, "high/low", "not known", names=1)
    shown.title = "\nThe judged speed-up against the long run, and against the truth of the same minutes (now)"
    for kind, some in {"all": judged, **by_kinds(judged)}.items():
        found = [(each.truth, trial) for each, trial in pairs_of(some)]
        known = [trial.judged for _, trial in found if trial.judged]
        width = f"{statistics.median([(each.high or 0.0) / (each.low or 1.0) for each in known]):.2f}" if known else ""
        shown.add_row(
            kind,
            str(len(found)),
            *_figures([(trial.judged, trial.right(truth, now=False)) for truth, trial in found]),
            *_figures([(trial.judged, trial.right(truth, now=True)) for truth, trial in found]),
            width,
            percent(1.0 - len(known) / len(found)),
        )
    return shown


def _traffic_table(judged: Sequence[Judged]) -> Table:
    """What the same requests, or the same clients, get."""
    shown = table("same traffic", "pairs", "truth", "error", "bias", "rms", "covered", names=1)
    shown.title = "\nThe speed-up of the same requests, or of the same clients, against the long run"
    for kind, some in {"all": judged, **by_kinds(judged)}.items():
        truths = [each.truth.same_traffic for each in some if each.truth.same_traffic]
        if truths:
            found = [(trial.same_traffic, each.truth.same_traffic) for each, trial in pairs_of(some)]
            span = f"{min(truths):.2f} to {max(truths):.2f}" if len(truths) > 1 else f"{truths[0]:.2f}"
            shown.add_row(kind, str(len(found)), span, *_figures(found))
    return shown


def _looks_table(judged: Sequence[Judged]) -> Table:
    """What a running exporter said."""
    shown = table("an hour of", "truth", "same traffic", "looks", "known", "value", *WORDS, "other", names=1)
    shown.title = "\nLooks of a running exporter"
    for service, truth, _, looks in judged:
        if not looks:
            continue
        values = [look.speedup.value for look in looks if look.speedup]
        codes = Counter(look.code if look.code in WORDS else "other" for look in looks)
        shown.add_row(
            service.what,
            f"{truth.speedup:.2f}",
            f"{truth.same_traffic:.2f}" if truth.same_traffic else "overload",
            str(len(looks)),
            percent(len(values) / len(looks)),
            f"{statistics.median(values):.2f}" if values else "",
            *(percent(codes[word] / len(looks)) for word in (*WORDS, "other")),
        )
    return shown


def _figures(found: Sequence[tuple[Estimate | None, float | None]]) -> list[str]:
    """Return the median size of the error of a speed-up, its mean, its rms, and how many intervals hold the truth."""
    pairs = [(each, truth) for each, truth in found if each and truth and truth > 0.0]
    errors = [math.log(each.value / truth) for each, truth in pairs]
    held = [holds(each, truth) for each, truth in pairs if each.low is not None]
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
