"""The log reader through long random lives of a log: writes the table ``tail`` of docs/reliability.md.

One that fails is printed as the steps that repeat it.
"""

from __future__ import annotations

import functools
import logging
import multiprocessing
import sys
import time

import hypothesis
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import run_state_machine_as_test

from loglife import LogLife
from soak.report import record, seeded

LIVES, STEPS = 40, 50  # of one batch; a life has at most so many steps


def batch(seed: int, *, shrink: bool = False) -> tuple[int, int]:
    """Run lives chosen by ``seed``; return their steps and the lines written."""
    logging.disable(logging.CRITICAL)
    hypothesis.seed(seed)(LogLife)
    LogLife.steps = LogLife.lines = 0
    phases = [Phase.generate, Phase.shrink] if shrink else [Phase.generate]
    run_state_machine_as_test(
        LogLife,
        settings=settings(
            max_examples=LIVES,
            stateful_step_count=STEPS,
            deadline=None,
            database=None,
            phases=phases,
            suppress_health_check=list(HealthCheck),
        ),
    )
    return LogLife.steps, LogLife.lines


def main() -> None:
    """Run batches until there are enough steps."""
    parser = seeded(__doc__)  # the seed of the first batch
    parser.add_argument("--steps", type=int, default=1_000_000)
    parser.add_argument("--processes", type=int, default=multiprocessing.cpu_count())
    parser.add_argument("--shrink", action="store_true", help="find the shortest life that fails")
    options = parser.parse_args()
    print(f"seed {options.seed}")
    seeds = range(options.seed, options.seed + options.steps)
    steps = lines = 0
    began = time.monotonic()
    with multiprocessing.Pool(options.processes) as pool:
        for done, written in pool.imap(functools.partial(batch, shrink=options.shrink), seeds):
            steps += done
            lines += written
            if sys.stderr.isatty():
                print(f"\r{steps:,} of {options.steps:,} steps", end="", file=sys.stderr)
            if steps >= options.steps:
                break
        pool.terminate()
    rows = [
        ("kinds of operations", f"{len(LogLife.setup_state().rules)}"),
        ("steps", f"{steps:,}"),
        ("minutes", f"{(time.monotonic() - began) / 60:.0f}"),
        ("lines written", f"{lines:,}"),
        ("lines lost that a reader could know", "0"),
        ("lines read twice", "0"),
    ]
    record("tail", f"make soak-tail STEPS={options.steps}", ("", "number"), rows)


if __name__ == "__main__":
    main()
