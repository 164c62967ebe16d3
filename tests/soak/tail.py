"""Every scheme of rotation in random order, at random rates, past an exporter that stops, is killed and starts again.

In turn with them work the real rotators, and the model of ``tests/loglife.py``. The result is the table ``tail`` of
docs/evidence/reliability.md.
"""

from __future__ import annotations

import dataclasses
import random
import sys
import tempfile
import time
import traceback
from pathlib import Path

from hypothesis import Phase, seed, settings
from hypothesis.stateful import invariant, run_state_machine_as_test

from loglife import FAST_DIRECTORY, LogLife
from report import EVIDENCE, measured_by, record, recording
from rotation.judging import Exporter, Step, Verdict, judged
from rotation.rotators import ROTATORS, followed
from rotation.schemes import LOGROTATE, SCHEMES, Scheme

LIVES = 5  # of each scheme in a turn
ROTATOR_SECONDS = 5.0
ALL = SCHEMES | LOGROTATE
HEADER = ("scheme", "lines", "rotations", "lost", "twice", "invented", "gone", "gaps", "gone without a gap")


class CountedLife(LogLife):
    """The model, whose steps are counted."""

    steps = 0

    @invariant()
    def count(self) -> None:
        CountedLife.steps += 1


def life(name: str, scheme: Scheme, chance: random.Random) -> Verdict:
    """Follow a log through random steps."""
    positions = chance.random() < 0.7
    exporters: list[Exporter] = ["runs", "runs", "restarts", "is stopped", "is killed"]
    if not positions:
        exporters = ["runs"] if name == "a late writer" else ["runs", "restarts"]
    steps = [
        Step(
            rotations=chance.choice([0, 0, 1, 1, 2, 3, 6]),
            lines=chance.choice([0, 1, 5, 200]),
            seconds=chance.choice([0.5, 0.5, 6.0, 90.0]),
            exporter=chance.choice(exporters),
        )
        for _ in range(chance.randint(1, 10))
    ]
    tick_ns = chance.choice([1, 1, 10**9])
    globs = scheme.glob is not None and chance.random() < 0.3
    # On a disk, unlike in memory, a new file often has the inode of a deleted one.
    with tempfile.TemporaryDirectory(dir=chance.choice([FAST_DIRECTORY, None])) as directory:
        verdict = judged(scheme, Path(directory), steps, positions=positions, globs=globs, tick_ns=tick_ns)
    if not verdict.good:
        print(f"{name}: {verdict}, positions={positions}, globs={globs}, tick_ns={tick_ns}, {steps}")
    return verdict


def rotator(name: str, chance: random.Random) -> Verdict:
    """Follow a real rotator at a random rate."""
    rate = chance.uniform(4, 16)
    with tempfile.TemporaryDirectory() as directory:
        verdict = followed(name, Path(directory), rotations_a_second=rate, seconds=ROTATOR_SECONDS)
    if not verdict.good:
        print(f"{name}: {verdict}, {rate:.1f} rotations a second")
    return verdict


def model(number: int) -> bool:
    """Run the model with a seed; whether nothing contradicts it. What does is printed, and not made shorter."""
    lives = settings(
        max_examples=20, stateful_step_count=50, deadline=None, database=None, phases=[Phase.explicit, Phase.generate]
    )
    try:
        run_state_machine_as_test(seed(number)(CountedLife), settings=lives)
    except Exception:  # noqa: BLE001  whatever the reader raises
        print(f"the model with seed {number}:")
        traceback.print_exc()
        return False
    return True


def run(minutes: float, chance: random.Random) -> tuple[dict[str, Verdict], int]:
    """Take turns until the time is over; the sums of each scheme, and how often the model was contradicted."""
    sums = {name: Verdict() for name in [*ALL, *ROTATORS]}
    ends = time.monotonic() + 60 * minutes
    turns = contradictions = 0
    while time.monotonic() < ends:
        turns += 1
        for name in chance.sample([*ALL], len(ALL)) * LIVES:
            sums[name] += life(name, ALL[name], chance)
        name = [*ROTATORS][turns % len(ROTATORS)]
        sums[name] += rotator(name, chance)
        contradictions += not model(chance.randrange(2**32))
        if sys.stderr.isatty():
            print(f"\r{turns} turns, {CountedLife.steps:,} steps of the model", end="", file=sys.stderr)
    return sums, contradictions


def main() -> None:
    """Run it and print the table."""
    parser = recording(__doc__)
    parser.add_argument("--seed", type=int, default=random.randrange(2**32), help="repeats a run, but for its length")
    parser.add_argument("--minutes", type=float, default=10.0)
    options = parser.parse_args()
    print(f"seed {options.seed}")
    sums, contradictions = run(options.minutes, random.Random(options.seed))
    sums["all"] = sum(sums.values(), Verdict())
    rows = [
        (name, *(f"{number:,}" for number in dataclasses.astuple(verdict)[: len(HEADER) - 1]))
        for name, verdict in sums.items()
    ]
    steps = f"The model of `tests/loglife.py`: {CountedLife.steps:,} steps, contradicted {contradictions} times.\n\n"
    print(steps, *(" ".join(f"{cell:>9}" for cell in row[1:]) + f"  {row[0]}" for row in [HEADER, *rows]), sep="\n")
    if options.record:
        faulty = [row for row in rows if row[0] == "all" or any(number != "0" for number in row[3:])]
        shown = [[cell if cell != "0" else "" for cell in row] for row in faulty]
        command = f"make soak-tail MINUTES={options.minutes:g} ARGS=--record"
        record(EVIDENCE / "reliability.md", "tail", HEADER, shown, measured_by(command) + steps)
    sys.exit(0 if sums["all"].good and not contradictions else 1)


if __name__ == "__main__":
    main()
