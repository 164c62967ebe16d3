"""Recordings whose truth is known, and what the product says about them. Its answers are read here and nowhere else."""

from __future__ import annotations

import dataclasses
import math
import random
import re
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import ProcessPoolExecutor
from typing import Any, NamedTuple

import msgspec

from bench.compare_counters import recorded
from bench.compare_live import watched
from bench.compare_machine import WARM_UP_SECONDS, Server, Trace, side_by_side
from bench.compare_services import Service
from bench.compare_traffic import Request
from bench.compare_truth import (
    Run,
    Truth,
    calm_runs,
    intervals,
    overloaded,
    same_traffic,
    speedup,
    token_seconds,
    truth_of,
)
from specdec_exporter.baseline.file import Baseline
from specdec_exporter.comparison.compare import Comparison, compare
from specdec_exporter.comparison.several import compare_several
from specdec_exporter.speculation.benefit import worth_of
from specdec_exporter.speculation.chance import Estimate
from specdec_exporter.speculation.policy import load_policy
from specdec_exporter.state.record import PredictorState
from specdec_exporter.state.report import status_of

MINUTES = 10
Work = tuple[Callable[..., Any], tuple[Any, ...]]
DIFFERENT = ("faster", "slower", "tail_worse")
_OFF = re.compile(r"(switch|leave) speculation off|run (without|no) speculation", re.IGNORECASE)
_NEAR = 2.0  # times the recorded loads; farther off nothing is said
_LOOP_SECONDS = 3600.0


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A baseline and a candidate, each of one engine or several, so many times. ``what`` chooses the random numbers.

    ``paired``: both are recorded at once, and each request of one stream goes to either of them by chance.
    ``traffic_now``: also learn what the same requests would get in these minutes.
    """

    what: str
    baseline: tuple[Server, ...]
    candidate: tuple[Server, ...]
    trials: int
    paired: bool = False
    traffic_now: bool = False


class Trial(msgspec.Struct, frozen=True):
    """What ``compare`` said, and what is true.

    ``like_load`` is the speed-up at the load and the prompts of the candidate; ``same_traffic`` what the same requests
    or the same clients get, if that is judged. ``now`` is the true speed-up of these minutes, at the
    loads near the baseline's, and ``traffic_now`` what these requests would get; ``None``: not learnt, or too slow.
    """

    code: str
    flags: frozenset[str]
    says_off: bool
    like_load: Estimate | None
    same_traffic: Estimate | None
    judges_traffic: bool
    now: float
    traffic_now: float | None

    @property
    def judged(self) -> Estimate | None:
        """The figure that the product judges by, if its interval is known."""
        found = self.same_traffic if self.judges_traffic else self.like_load
        return found if found and found.low is not None else None

    @property
    def word(self) -> str:
        """The verdict, by the speed-up alone."""
        return (worth_of(self.judged, load_policy().latency) if self.judged else None) or "watch"

    def right(self, truth: Truth, *, now: bool) -> float:
        """Return what the judged figure should be, in the long run or in these minutes."""
        if self.judges_traffic and truth.same_traffic:
            return (self.traffic_now if now else None) or truth.same_traffic
        return self.now if now else truth.speedup


class Look(NamedTuple):
    """What a running exporter says at one scrape: the verdict, and the speed-up if it is known."""

    code: str
    speedup: Estimate | None


class Judged(NamedTuple):
    """A service, its long run, the pairs of recordings of it, and what a running exporter said."""

    service: Service
    truth: Truth
    trials: Sequence[Trial]
    looks: Sequence[Look]


class Advised(NamedTuple):
    """What several recordings led to; ``loss`` against the best k in the long run, ``None``: no advice."""

    what: str
    loss: float | None


def decided(trials: Sequence[Trial], *codes: str, unless: Collection[str] = ()) -> int:
    """Count the trials with one of these decisions, and with none of the flags ``unless``."""
    return sum(trial.code in codes and trial.flags.isdisjoint(unless) for trial in trials)


def run_trial(case: Case, seed: int, trial: int) -> Trial:
    """Record both sides and compare them."""
    name = f"{seed} {case.what} {trial}"
    streams = _split(case.candidate, name) if case.paired else (None, None)
    before, its_runs = _record("baseline", case.baseline, name, streams[0])
    after, runs = _record("candidate", case.candidate, name, streams[1])
    loads = [each.load for run in its_runs for each in run.found if each.steps]
    now = speedup(runs, (min(loads) / _NEAR, max(loads) * _NEAR))
    traffic_now = _same_traffic(case.candidate, f"{name} candidate") if case.traffic_now else None
    return _answer(compare(before, after, load_policy(), paired=case.paired), now, traffic_now)


def _same_traffic(engines: Sequence[Server], seed: str) -> float | None:
    seconds = 60.0 * MINUTES
    return same_traffic(calm_runs(engines, seed, seconds), seed, seconds)


def _answer(found: Comparison, now: float, traffic_now: float | None) -> Trial:
    said = " ".join((found.decision.headline, *found.decision.reasons, found.decision.action))
    return Trial(
        code=found.decision.code,
        flags=frozenset(flag.code for flag in found.flags),
        says_off=bool(_OFF.search(said)),
        like_load=found.speedup.at_like_load,
        same_traffic=found.speedup.judged,
        judges_traffic=found.speedup.compared not in ("like_load", None),
        now=now,
        traffic_now=traffic_now,
    )


def _advised_k(recordings: Sequence[Baseline]) -> int | None:
    return compare_several(recordings, load_policy()).advice.num_speculative_tokens


def live_looks(plain: Baseline, engines: Sequence[Server], seed: str, *, every: float, seconds: float) -> list[Look]:
    """Return what a running exporter says at each scrape."""
    return [_look(state) for state in watched(plain, engines, seed, every=every, seconds=seconds)]


def _look(state: PredictorState) -> Look:
    return Look(status_of(state).verdict.code, state.cost.speedup if state.cost else None)


def _record(
    side: str, engines: Sequence[Server], name: str, requests: Sequence[Request] | None = None
) -> tuple[Baseline, list[Run]]:
    traces = [Trace.empty() for _ in engines]
    polls = list(side_by_side(engines, f"{name} {side}", 60.0 * MINUTES, traces, requests=requests))
    runs = [
        Run(server, trace, intervals(polls, n)) for n, (server, trace) in enumerate(zip(engines, traces, strict=True))
    ]
    return recorded(side, polls, k=engines[0].k), runs


def _split(engines: Sequence[Server], name: str) -> tuple[list[Request], list[Request]]:
    """Draw the requests of two servers, and send each to either of them by chance."""
    rng, traffic = random.Random(f"{name} stream"), engines[0].traffic
    both = dataclasses.replace(traffic, per_second=2.0 * traffic.per_second)
    sides: tuple[list[Request], list[Request]] = ([], [])
    for request in both.arrivals(rng, WARM_UP_SECONDS + 60.0 * MINUTES):
        sides[rng.random() < 0.5].append(request)
    return sides


def run_service(service: Service, seed: int, trials: int, looking_seconds: float) -> Judged:
    """Learn the truth of a service, record pairs of it, and look at it for so long."""
    name = f"{seed} {service.what}"
    case = Case(
        what=service.what,
        baseline=service.plain,
        candidate=service.engines,
        trials=trials,
        traffic_now=True,
    )
    truth = truth_of(service.engines, f"{name} truth", service.long_run_seconds)
    looks: Sequence[Look] = ()
    if service.looks_every:
        plain, _ = _record("baseline", service.plain, f"{name} looks")
        looks = live_looks(plain, service.engines, f"{name} looks", every=service.looks_every, seconds=looking_seconds)
    return Judged(service, truth, [run_trial(case, seed, trial) for trial in range(trials)], looks)


def run_advice(what: str, server: Server, seed: int, ks: Sequence[int]) -> Advised:
    """Record a server without drafts and with several k, and follow the advice."""
    name = f"{seed} {what} advice"
    servers = [dataclasses.replace(server, k=k) for k in (0, *ks)]
    took = {}
    for each in servers:
        runs = calm_runs([each], f"{name} truth", _LOOP_SECONDS)
        took[each.k] = math.inf if overloaded(runs[0]) else token_seconds(runs)
    k = _advised_k([_record(f"k = {each.k}", [each], name)[0] for each in servers])
    return Advised(what, None if k is None else took[k] / min(took.values()) - 1.0)


def run_all(work: Sequence[Work]) -> list[Any]:
    """Call functions. The same arguments give the same results."""
    with ProcessPoolExecutor() as pool:
        return list(pool.map(_called, work))


def _called(work: Work) -> Any:
    function, arguments = work
    return function(*arguments)
