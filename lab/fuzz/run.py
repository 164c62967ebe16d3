"""Fuzz every parser of what others send: ``make fuzz MINUTES=60``.

Each finding is written to lab/fuzz/found/, which test_fuzz.py reads.
"""

from __future__ import annotations

import contextlib
import faulthandler
import hashlib
import logging
import multiprocessing
import os
import random
import re
import resource
import signal
import sys
import time
import traceback
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import FrameType

from fuzz.mutation import Mutator
from fuzz.target import Target
from fuzz.targets import TARGETS
from report import EVIDENCE, measured_by, record, recording

FOUND = Path(__file__).parent / "found"
HANG_SECONDS = 1.0  # of CPU, so that a busy machine makes no finding
TURN_SECONDS = 2.0
_LONGEST_WORDS = 3000
MEMORY_BYTES = 1024 * 1024 * 1024  # far above what any input needs, far below what a bomb takes


class Hang(Exception):  # noqa: N818  it stands beside the exceptions of parsers
    """An input took more than a second of CPU."""


@dataclass
class Tally:
    """What one target has done."""

    inputs: int = 0
    slowest: float = 0.0
    slowest_bytes: int = 0
    findings: int = 0  # crashes, hangs, and what contradicts itself, another parser or a rule

    def row(self, name: str) -> list[str]:
        """A row of the table."""
        slowest = f"{self.slowest * 1000:.0f} ms ({self.slowest_bytes:,} bytes)"
        return [name, f"{self.inputs:,}", f"{self.findings:,}", slowest]


def together(tallies: Sequence[Tally]) -> Tally:
    """The sum, with the slowest input of all."""
    slowest = max(tallies, key=lambda each: each.slowest)
    inputs, findings = sum(each.inputs for each in tallies), sum(each.findings for each in tallies)
    return Tally(inputs, slowest.slowest, slowest.slowest_bytes, findings)


@contextlib.contextmanager
def no_hang(seconds: float) -> Iterator[None]:
    """Raise :class:`Hang` in the body after so much CPU."""

    def stop(_signal: int, _frame: FrameType | None) -> None:
        raise Hang

    before = signal.signal(signal.SIGPROF, stop)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


def finding(target: Target, data: bytes) -> str | None:
    """Check one input; return the traceback of a finding."""
    try:
        with no_hang(HANG_SECONDS):
            target.check(data)
    except Exception:  # noqa: BLE001  whatever the check does not expect is a finding
        words = traceback.format_exc(limit=-6)
        return words if len(words) < _LONGEST_WORDS else f"{words[:_LONGEST_WORDS]}...\n"
    return None


def work(seed: int, seconds: float) -> dict[str, Tally]:
    """Give each target its turn until the time is over."""
    faulthandler.enable()
    resource.setrlimit(resource.RLIMIT_DATA, (MEMORY_BYTES, MEMORY_BYTES))
    logging.disable()
    tallies = {name: Tally() for name in TARGETS}
    mutators = {
        name: Mutator(random.Random(f"{seed} {name}"), target.seeds(), target.words, target.largest)
        for name, target in TARGETS.items()
    }
    end = time.monotonic() + seconds
    whole = sum(target.share for target in TARGETS.values())
    places: set[tuple[str, ...]] = set()  # of one fault, one input is enough
    while time.monotonic() < end:
        for name, target in TARGETS.items():
            until = min(time.monotonic() + target.share * min(TURN_SECONDS, seconds / whole), end)
            while time.monotonic() < until:
                data = mutators[name].next()
                wrong = tried(target, data, tallies[name])
                place = (name, *re.findall(r"line \d+, in .*", wrong or ""))
                if wrong is not None and place not in places:
                    places.add(place)
                    keep(name, data, wrong)
    return tallies


def tried(target: Target, data: bytes, tally: Tally) -> str | None:
    """Check one input, which counts; return the traceback of a finding."""
    before = time.process_time()
    wrong = finding(target, data)
    took = time.process_time() - before
    tally.inputs += 1
    tally.findings += wrong is not None
    if took > tally.slowest:
        tally.slowest, tally.slowest_bytes = took, len(data)
    return wrong


def keep(name: str, data: bytes, wrong: str) -> None:
    """Write a found input down, and say how to repeat it."""
    path = FOUND / name.replace(" ", "-") / hashlib.sha256(data).hexdigest()[:12]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    print(f"\n{wrong}{name}: repeat it with: pytest lab/fuzz/test_fuzz.py -k {path.name}", flush=True)


def target_of(path: Path) -> Target:
    """The target of a found input."""
    return TARGETS[path.parent.name.replace("-", " ")]


def main() -> int:
    parser = recording(__doc__)
    parser.add_argument("--seed", type=int, default=random.randrange(2**32), help="repeats a run")
    parser.add_argument("--minutes", type=float, default=2.0)
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    asked = parser.parse_args()
    print(f"seed {asked.seed}, {asked.jobs} processes, {asked.minutes:g} minutes", flush=True)
    with ProcessPoolExecutor(asked.jobs, multiprocessing.get_context("fork")) as pool:
        seeds = range(asked.seed, asked.seed + asked.jobs)
        found = list(pool.map(partial(work, seconds=asked.minutes * 60), seeds))
    total = {name: together([each[name] for each in found]) for name in TARGETS}
    total["all"] = together([*total.values()])
    header = ["parser", "inputs", "findings", "slowest input"]
    rows = [tally.row(name) for name, tally in total.items()]
    for cells in [header, *rows]:
        print("{:20}{:>12}{:>9}   {}".format(*cells))
    if asked.record:
        command = f"make fuzz MINUTES={asked.minutes:g} ARGS='--record --seed {asked.seed}'"
        shown = [cells for cells in rows if cells[0] == "all" or cells[2] != "0"]
        record(EVIDENCE / "reliability.md", "fuzz", header, shown, measured_by(command))
    return total["all"].findings > 0


if __name__ == "__main__":
    sys.exit(main())
