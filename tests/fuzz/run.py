"""Fuzz every parser of what others send: ``make fuzz MINUTES=60``.

Each finding is written to tests/fuzz/found/ with the command that repeats it; the tests read that directory too.
"""

from __future__ import annotations

import contextlib
import dataclasses
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
from collections.abc import Iterator
from pathlib import Path
from types import FrameType

sys.path[:0] = [str(Path(__file__).parents[1]), str(Path(__file__).parents[2] / "tools")]

from fuzz.mutation import Mutator
from fuzz.target import Target
from fuzz.targets import TARGETS
from report import EVIDENCE, measured_by, record, recording

FOUND = Path(__file__).parent / "found"
HANG_SECONDS = 1.0  # of CPU, so that a busy machine makes no finding
TURN_SECONDS = 2.0
MOST_FINDINGS = 1000  # of one target in one process; it is then left out
_LONGEST_WORDS = 3000
MEMORY_BYTES = 1024 * 1024 * 1024  # far above what any input needs, far below what a bomb takes


class Hang(Exception):  # noqa: N818  it stands beside the exceptions of parsers
    """An input took more than a second of CPU."""


@dataclasses.dataclass
class Tally:
    """What one target has done."""

    inputs: int = 0
    seconds: float = 0.0
    slowest: float = 0.0
    slowest_bytes: int = 0
    findings: int = 0  # crashes, hangs, and what contradicts itself, another parser or a rule

    def add(self, other: Tally) -> None:
        self.inputs += other.inputs
        self.seconds += other.seconds
        self.findings += other.findings
        if other.slowest > self.slowest:
            self.slowest, self.slowest_bytes = other.slowest, other.slowest_bytes


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


def fuzz(target: Target, mutator: Mutator, seconds: float) -> tuple[Tally, list[tuple[bytes, str]]]:
    """Try inputs for so long."""
    tally, findings = Tally(), []
    started = time.perf_counter()
    while time.perf_counter() - started < seconds:
        data = mutator.next()
        before = time.process_time()
        wrong = finding(target, data)
        took = time.process_time() - before
        tally.inputs += 1
        if took > tally.slowest:
            tally.slowest, tally.slowest_bytes = took, len(data)
        if wrong is not None:
            tally.findings += 1
            findings.append((data, wrong))
            if tally.findings >= MOST_FINDINGS:
                break
    tally.seconds = time.perf_counter() - started
    return tally, findings


def work(seed: int, names: list[str], seconds: float, results: multiprocessing.Queue[dict[str, Tally]]) -> None:
    """Give each target its turn until the time is over."""
    faulthandler.enable()
    resource.setrlimit(resource.RLIMIT_DATA, (MEMORY_BYTES, MEMORY_BYTES))
    logging.disable()
    tallies = {name: Tally() for name in names}
    mutators = {
        name: Mutator(random.Random(f"{seed} {name}"), target.seeds(), target.words, target.largest)
        for name, target in ((name, TARGETS[name]) for name in names)
    }
    end = time.monotonic() + seconds
    whole = sum(TARGETS[name].share for name in names)
    places: set[tuple[str, ...]] = set()  # of one fault, one input is enough
    while names and time.monotonic() < end:
        for name in list(names):
            turn = min(TARGETS[name].share * min(TURN_SECONDS, seconds / whole), end - time.monotonic())
            if turn <= 0:
                break
            tally, findings = fuzz(TARGETS[name], mutators[name], turn)
            tallies[name].add(tally)
            for data, wrong in findings:
                place = (name, *re.findall(r"line \d+, in .*", wrong))
                if place not in places:
                    places.add(place)
                    keep(name, data, wrong)
            if tallies[name].findings >= MOST_FINDINGS:
                names.remove(name)
    results.put(tallies)


def keep(name: str, data: bytes, wrong: str) -> None:
    """Write a found input down, and say how to repeat it."""
    path = FOUND / name.replace(" ", "-") / hashlib.sha256(data).hexdigest()[:12]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    shown = path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path
    print(f"\n{wrong}{name}: repeat it with: {sys.executable} tests/fuzz/run.py --repeat {shown}", flush=True)


def row(name: str, tally: Tally) -> list[str]:
    """A row of the table."""
    slowest = f"{tally.slowest * 1000:.0f} ms ({tally.slowest_bytes:,} bytes)"
    return [name, f"{tally.inputs:,}", f"{tally.findings:,}", slowest]


def target_of(path: Path) -> Target:
    """The target of a found input."""
    return TARGETS[path.parent.name.replace("-", " ")]


def repeat(path: Path) -> int:
    """Check one found input again."""
    wrong = finding(target_of(path), path.read_bytes())
    print(wrong or "nothing wrong")
    return wrong is not None


def main() -> int:
    parser = recording(__doc__)
    parser.add_argument("--seed", type=int, default=random.randrange(2**32), help="repeats a run")
    parser.add_argument("--minutes", type=float, default=2.0)
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--only", action="append", choices=TARGETS, help="a target; repeat it for several")
    parser.add_argument("--repeat", type=Path, help="check one found input")
    asked = parser.parse_args()
    if asked.repeat:
        return repeat(asked.repeat)
    names = asked.only or list(TARGETS)
    print(f"seed {asked.seed}, {asked.jobs} processes, {asked.minutes:g} minutes", flush=True)
    context = multiprocessing.get_context("fork")
    results: multiprocessing.Queue[dict[str, Tally]] = context.Queue()
    workers = [
        context.Process(target=work, args=(asked.seed + job, list(names), asked.minutes * 60, results))
        for job in range(asked.jobs)
    ]
    for worker in workers:
        worker.start()
    total = {name: Tally() for name in names}
    for _ in workers:
        for name, tally in results.get(timeout=asked.minutes * 60 + 120).items():
            total[name].add(tally)
    for worker in workers:
        worker.join()
    header = ["parser", "inputs", "findings", "slowest input"]
    rows = [row(name, tally) for name, tally in total.items()]
    whole = Tally()
    for tally in total.values():
        whole.add(tally)
    rows.append(row("all", whole))
    for cells in [header, *rows]:
        print("{:20}{:>12}{:>9}   {}".format(*cells))
    if asked.record:
        command = f"make fuzz MINUTES={asked.minutes:g} ARGS='--record --seed {asked.seed}'"
        shown = [cells for cells in rows if cells[0] == "all" or cells[2] != "0"]
        record(EVIDENCE / "reliability.md", "fuzz", header, shown, measured_by(command))
    return whole.findings > 0


if __name__ == "__main__":
    sys.exit(main())
