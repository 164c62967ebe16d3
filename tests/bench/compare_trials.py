"""Recordings whose truth is known, and what ``compare`` says about them."""

from __future__ import annotations

import dataclasses
import random
import re
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import ProcessPoolExecutor
from typing import Any, NamedTuple

import msgspec

from bench.compare_counters import recorded
from bench.compare_machine import Server, Trace
from bench.compare_services import Service
from bench.compare_truth import Interval, Truth, intervals, mean_token_seconds, speedup, truth_of
from specdec_exporter.baseline.file import Baseline
from specdec_exporter.comparison.compare import compare
from specdec_exporter.comparison.several import compare_several
from specdec_exporter.speculation.chance import Estimate
from specdec_exporter.speculation.policy import load_policy

MINUTES = 10
Work = tuple[Callable[..., Any], tuple[Any, ...]]
DIFFERENT = ("faster", "slower", "tail_worse")
_OFF = re.compile(r"(switch|leave) speculation off|run (without|no) speculation", re.IGNORECASE)
_NEAR = 2.0  # times the recorded loads; farther off nothing is said
_TRUTH_SECONDS = {"open": 7200.0, "closed": 7200.0, "bursty": 14400.0}
_LOOP_SECONDS = 3600.0


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A baseline and a candidate, so many times. ``what`` chooses the random numbers."""

    what: str
    baseline: Server
    candidate: Server
    trials: int


class Trial(msgspec.Struct, frozen=True):
    """What ``compare`` said; ``now`` is the true speed-up of these minutes, at the loads near the baseline's."""

    code: str
    flags: frozenset[str]
    says_off: bool
    speedup: Estimate | None
    closed_loop: Estimate | None
    now: float

    @property
    def known(self) -> Estimate | None:
        """The speed-up, if its interval is known."""
        return self.speedup if self.speedup and self.speedup.low is not None else None

    @property
    def word(self) -> str:
        """The verdict, by the interval of the speed-up alone."""
        limits, found = load_policy().latency, self.known
        if found is None or found.low is None or found.high is None:
            return "watch"
        if found.low > 1.0 and found.value >= limits.speedup_min:
            return "healthy"
        return "harmful" if found.high < 1.0 and found.value < limits.speedup_harmful else "watch"


class Judged(NamedTuple):
    """A service, its long run, and the pairs of recordings of it."""

    service: Service
    truth: Truth
    trials: Sequence[Trial]


class Advised(NamedTuple):
    """What several recordings of one loop led to; ``loss`` against the best k in the long run, ``None``: no advice."""

    loss: float | None


def decided(trials: Sequence[Trial], *codes: str, unless: Collection[str] = ()) -> int:
    """Count the trials with one of these decisions, and with none of the flags ``unless``."""
    return sum(trial.code in codes and trial.flags.isdisjoint(unless) for trial in trials)


def run_trial(case: Case, seed: int, trial: int) -> Trial:
    """Record both sides and compare them."""
    trace = Trace([], [])
    name = f"{seed} {case.what} {trial}"
    before, its_intervals = _record("baseline", case.baseline, name)
    after, found_intervals = _record("candidate", case.candidate, name, trace)
    found = compare(before, after, load_policy())
    loads = [each.load for each in its_intervals if each.steps]
    said = " ".join((found.decision.headline, *found.decision.reasons, found.decision.action))
    return Trial(
        found.decision.code,
        frozenset(flag.code for flag in found.flags),
        bool(_OFF.search(said)),
        found.speedup.at_like_load,
        found.speedup.closed_loop,
        speedup(case.candidate, trace, found_intervals, (min(loads) / _NEAR, max(loads) * _NEAR)),
    )


def _record(side: str, server: Server, name: str, trace: Trace | None = None) -> tuple[Baseline, list[Interval]]:
    polls = list(server.polls(random.Random(f"{name} {side}"), 60.0 * MINUTES, trace))
    return recorded(side, polls, k=server.k), intervals(polls)


def run_service(service: Service, seed: int, trials: int) -> Judged:
    """Learn the truth of a service, and record pairs of it."""
    seconds = _TRUTH_SECONDS[service.arrivals]
    case = Case(what=service.what, baseline=service.plain, candidate=service.server, trials=trials)
    found = [run_trial(case, seed, trial) for trial in range(trials)]
    return Judged(service, truth_of(service.server, f"{seed} {service.what} truth", seconds), found)


def run_advice(service: Service, seed: int, ks: Sequence[int]) -> Advised:
    """Record one loop without drafts and with several k, and follow the advice."""
    name = f"{seed} {service.what} advice"
    servers = [dataclasses.replace(service.server, k=k) for k in (0, *ks)]
    took = {server.k: mean_token_seconds(server, f"{name} truth", _LOOP_SECONDS) for server in servers}
    recordings = [_record(f"k = {each.k}", each, name)[0] for each in servers]
    k = compare_several(recordings, load_policy()).advice.num_speculative_tokens
    return Advised(None if k is None else took[k] / min(took.values()) - 1.0)


def run_all(work: Sequence[Work]) -> list[Any]:
    """Call functions. The same arguments give the same results."""
    with ProcessPoolExecutor() as pool:
        return list(pool.map(_called, work))


def _called(work: Work) -> Any:
    function, arguments = work
    return function(*arguments)
