"""Pairs of recordings whose truth is known, and what ``compare`` says about them."""

from __future__ import annotations

import dataclasses
import itertools
import multiprocessing
import os
import random
import re
from collections.abc import Collection, Sequence

import msgspec

from bench.compare_counters import recorded
from bench.compare_server import Server
from specdec_exporter.baseline.file import Baseline
from specdec_exporter.comparison.compare import compare
from specdec_exporter.speculation.chance import Estimate
from specdec_exporter.speculation.policy import load_policy

DIFFERENT = ("faster", "slower", "tail_worse", "mixed")
_OFF = re.compile(r"switch speculation off|run without|no speed-up", re.IGNORECASE)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A baseline and a candidate, so many times. ``what`` chooses the random numbers."""

    what: str
    baseline: Server
    candidate: Server
    trials: int
    minutes: int = 10

    @property
    def identical(self) -> bool:
        """Whether every difference that is found is chance."""
        return self.baseline == self.candidate

    def recordings(self, seed: int, trial: int) -> tuple[Baseline, Baseline]:
        """Make the baseline and the candidate of one trial."""

        def record(name: str, side: Server) -> Baseline:
            rng = random.Random(f"{seed} {self.what} {trial} {name}")
            return recorded(name, side.polls(rng, 60.0 * self.minutes), k=side.k)

        return record("baseline 0", self.baseline), record("candidate", self.candidate)


class Trial(msgspec.Struct, frozen=True):
    """What ``compare`` said: its decision, its flags, and the ratios of means by SLI."""

    code: str
    flags: frozenset[str]
    ratios: tuple[Estimate | None, ...]
    says_off: bool


@dataclasses.dataclass(frozen=True, slots=True)
class Outcome:
    """What came of a case."""

    case: Case
    trials: Sequence[Trial]

    def decided(self, *codes: str, unless: Collection[str] = ()) -> int:
        """Trials with one of these decisions, and with none of the flags ``unless``."""
        return sum(trial.code in codes and trial.flags.isdisjoint(unless) for trial in self.trials)

    def flagged(self, *flags: str) -> int:
        """Trials with one of these flags."""
        return sum(not trial.flags.isdisjoint(flags) for trial in self.trials)

    def says_off(self) -> int:
        """Trials that advise to switch speculation off."""
        return sum(trial.says_off for trial in self.trials)

    def coverage(self, sli: int) -> float | None:
        """Share of the intervals of a ratio of means that hold 1; ``None`` without intervals."""
        found = [trial.ratios[sli] for trial in self.trials]
        held = [
            each.low <= 1.0 <= each.high for each in found if each and each.low is not None and each.high is not None
        ]
        return sum(held) / len(held) if held else None


def run_trial(case: Case, seed: int, trial: int) -> Trial:
    """Record both sides and compare them."""
    found = compare(*case.recordings(seed, trial), load_policy())
    said = " ".join((found.decision.headline, *found.decision.reasons, found.decision.action))
    return Trial(
        found.decision.code,
        frozenset(flag.code for flag in found.flags),
        tuple(latency.mean_ratio for latency in found.latencies),
        bool(_OFF.search(said)),
    )


def run_cases(cases: Sequence[Case], *, seed: int, processes: int | None = None) -> list[Outcome]:
    """Run all trials of all cases. The same seed gives the same outcomes, in any number of processes."""
    work = [(case, seed, trial) for case in cases for trial in range(case.trials)]
    processes = processes or os.cpu_count() or 1
    if processes == 1:
        trials = itertools.starmap(run_trial, work)
        return [Outcome(case, list(itertools.islice(trials, case.trials))) for case in cases]
    with multiprocessing.Pool(processes) as pool:
        found = iter(pool.starmap(run_trial, work, chunksize=5))
    return [Outcome(case, list(itertools.islice(found, case.trials))) for case in cases]
