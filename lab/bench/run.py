"""The exporter's budgets, each measured against something else in the same run, as a table.

    make bench ARGS="[--quick] [PART...]"

Exits with 1 when a budget is missed, with 2 when a figure would mean nothing. The rows: docs/evidence/benchmarks.md.
"""

from __future__ import annotations

import argparse
import asyncio
import dataclasses
import os
import platform
import sys
from collections.abc import Callable
from pathlib import Path

from bench import extraction, reading, serving
from bench.predictor_log import make_log
from bench.rows import BenchError, Row, missed, show
from support.fieldtools import ROOT

DIRECTORY = ROOT / ".bench"


@dataclasses.dataclass(frozen=True, slots=True)
class Size:
    """How much is measured."""

    log_megabytes: int = 500
    mtail_megabytes: int = 50
    rounds: int = 5
    idle_seconds: float = 60.0


QUICK = Size(log_megabytes=100, mtail_megabytes=20, rounds=2, idle_seconds=20.0)


def _reading(size: Size) -> list[Row]:
    log, beginning = (make_log(DIRECTORY, megabytes) for megabytes in (size.log_megabytes, size.mtail_megabytes))
    return reading.measure(log, beginning, _empty_log(), size.rounds)


def _idle(size: Size) -> list[Row]:
    return asyncio.run(serving.measure_idle(make_log(DIRECTORY, size.mtail_megabytes), size.idle_seconds))


def _memory(size: Size) -> list[Row]:
    log = make_log(DIRECTORY, size.log_megabytes)
    return asyncio.run(serving.measure_catching_up(log, _empty_log()))


def _empty_log() -> Path:
    (DIRECTORY / "empty.log").touch()
    return DIRECTORY / "empty.log"


# By part: its title, and what measures it.
PARTS: dict[str, tuple[str, Callable[[Size], list[Row]]]] = {
    "reading": ("Reading a log with a spec-decode line in 200", _reading),
    "extraction": ("Reading /metrics of vLLM 0.32.0", lambda size: extraction.measure(5 * size.rounds)),
    "memory": ("Serving: memory after a log, and over scrapes", _memory),
    "idle": ("Serving: idle", _idle),
    "ready": ("Serving: start", lambda _: asyncio.run(serving.measure_ready(_empty_log()))),
    "many": ("Serving: many predictors", lambda _: asyncio.run(serving.measure_many(DIRECTORY))),
}


def main() -> int:
    """Measure, print, and tell whether every budget holds."""
    parser = argparse.ArgumentParser(description="The exporter's budgets, each as a ratio measured in one run.")
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"only these of {', '.join(PARTS)}")
    parser.add_argument("--quick", action="store_true", help="a small log, few rounds, a short idle time")
    arguments = parser.parse_args()
    if unknown := set(arguments.parts) - set(PARTS):
        parser.error(f"no such part: {', '.join(sorted(unknown))}")

    sections: dict[str, list[Row]] = {}
    DIRECTORY.mkdir(exist_ok=True)
    try:
        for part in arguments.parts or PARTS:
            title, measure = PARTS[part]
            print(f"{title} ...", file=sys.stderr)
            sections[title] = measure(QUICK if arguments.quick else Size())
    except (BenchError, TimeoutError) as error:
        print(error if str(error) else "the exporter did not get on", file=sys.stderr)
        return 2
    load = os.getloadavg()[0]
    print(f"Python {platform.python_version()}, {platform.machine()}, {os.cpu_count()} CPUs, load {load:.1f}")
    show(sections)
    return missed(row for rows in sections.values() for row in rows)


if __name__ == "__main__":
    sys.exit(main())
