"""The exporter's budgets, each measured against something else in the same run, as a table.

    python tests/bench/run.py [--quick] [PART...]

Exits with 1 when a budget is missed, with 2 when a figure would mean nothing. The rows: docs/benchmarks.md.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import platform
import sys
from collections.abc import Callable
from pathlib import Path

TESTS = Path(__file__).parents[1]
sys.path.insert(0, str(TESTS))

from bench import extraction, reading, serving, standalone
from bench.predictor_log import make_log
from bench.rows import BenchError, Row, show

DIRECTORY = TESTS.parent / ".bench"
MTAIL_MEGABYTES = 50
PARTS = ("reading", "serving", "extraction", "idle", "ready", "standalone")


def main() -> int:
    """Measure, print, and tell whether every budget holds."""
    parser = argparse.ArgumentParser(description="The exporter's budgets, each as a ratio measured in one run.")
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"only these of {', '.join(PARTS)}")
    parser.add_argument("--quick", action="store_true", help="a small log, few rounds, a short idle time")
    arguments = parser.parse_args()
    if unknown := set(arguments.parts) - set(PARTS):
        parser.error(f"no such part: {', '.join(sorted(unknown))}")

    sections: dict[str, list[Row]] = {}
    try:
        for part, (title, measure) in _measurements(quick=arguments.quick).items():
            if not arguments.parts or part in arguments.parts:
                print(f"{title} ...", file=sys.stderr)
                sections[title] = measure()
    except (BenchError, TimeoutError) as error:
        print(error if str(error) else "the exporter did not get on", file=sys.stderr)
        return 2
    load = os.getloadavg()[0]
    print(f"Python {platform.python_version()}, {platform.machine()}, {os.cpu_count()} CPUs, load {load:.1f}")
    show(sections)
    missed = [row.what for rows in sections.values() for row in rows if row.holds is False]
    print(f"\nBudgets missed, {len(missed)}: {'; '.join(missed)}." if missed else "\nEvery budget holds.")
    return 1 if missed else 0


def _measurements(*, quick: bool) -> dict[str, tuple[str, Callable[[], list[Row]]]]:
    """Title and function of each part."""
    megabytes, rounds, idle_seconds = (100, 3, 20.0) if quick else (500, 7, 60.0)
    log, beginning = make_log(DIRECTORY, megabytes), make_log(DIRECTORY, MTAIL_MEGABYTES)
    empty = DIRECTORY / "empty.log"
    empty.touch()
    return {
        "reading": (
            f"Reading a log of {megabytes} MB with {log.windows:,} spec-decode lines",
            lambda: reading.measure(log, beginning, empty, rounds),
        ),
        "serving": (
            "Serving: catching up with that log, then scrapes",
            lambda: asyncio.run(serving.measure_catching_up(log, empty, min(rounds, 5))),
        ),
        "extraction": ("Reading /metrics of vLLM 0.32.0", lambda: extraction.measure(5 * rounds)),
        "idle": ("Serving: idle", lambda: asyncio.run(serving.measure_idle(log, idle_seconds))),
        "ready": ("Serving: start", lambda: asyncio.run(serving.measure_ready(empty))),
        "standalone": (
            f"One exporter for {standalone.PREDICTORS} predictors",
            lambda: asyncio.run(standalone.measure(2 if quick else 4)),
        ),
    }


if __name__ == "__main__":
    sys.exit(main())
