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
from collections.abc import Callable, Sequence
from pathlib import Path

TESTS = Path(__file__).parents[1]
sys.path.insert(0, str(TESTS))

from rich.console import Console  # noqa: E402  found only with the path above
from rich.table import Table  # noqa: E402

from bench.compare_requests import Requests  # noqa: E402
from bench.compare_server import Server  # noqa: E402
from bench.compare_traffic import Traffic  # noqa: E402
from bench.compare_trials import DIFFERENT, Case, Outcome, Process, run_cases  # noqa: E402
from bench.confidence import highest_share, lowest_share  # noqa: E402
from bench.rows import BenchError, Row, show  # noqa: E402
from specdec_exporter.errors import SpecdecError  # noqa: E402

MAY_BE_WRONG = 0.10
MUST_FIND = 0.95
LOAD_FLAGS = ("load_differs",)
LENGTH_FLAGS = ("prompts_differ", "answers_differ", *LOAD_FLAGS)
N_REQUESTS = 1000


def main() -> int:
    """Measure, print, and tell whether what must hold does."""
    parser = argparse.ArgumentParser(description="How often compare is wrong, over pairs of simulated recordings.")
    parser.add_argument("--quick", action="store_true", help="a tenth of the pairs, in less than a minute")
    parser.add_argument("--seed", type=int, default=20260101, help="other pairs of the same kinds (default %(default)s)")
    arguments = parser.parse_args()
    began = time.monotonic()
    try:
        same, different, unlike = (
            run_cases([_fewer(case) if arguments.quick else case for case in cases], seed=arguments.seed)
            for cases in (_same(), _different(), _unlike())
        )
    except (BenchError, SpecdecError, OSError) as error:
        print(f"the measuring failed: {error}", file=sys.stderr)
        return 2
    must = [*map(_rarely_wrong, _must(same)), *map(_found, _must(different)), *map(_not_misled, unlike)]
    must += map(_not_off, (outcome for outcome in (*different, *unlike) if outcome.case.what == FEW))
    show({"What must hold": must})
    _print(_table("One setting twice: share of pairs, and of 95 % intervals of the ratio of means that hold 1", same))
    _print(_table("Two settings: share of pairs", [*different, *unlike]))
    missed = [row.what for row in must if row.holds is False]
    print(f"\nMissed, {len(missed)}: {'; '.join(missed)}." if missed else "\nAll of it holds.")
    pairs = sum(len(outcome.trials) for outcome in (*same, *different, *unlike))
    print(f"{pairs:,} pairs of recordings in {time.monotonic() - began:.0f} s.")
    return 1 if missed else 0
