"""Each alert over the labelled traces: caught or missed, how late, and how often it fires where nothing is wrong."""

from __future__ import annotations

import collections
import dataclasses
import random
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path

from bench.acceptance_weeks import ACCEPTANCE_WEEKS
from bench.alert_replay import HOUR, RULES, Episode, replay
from bench.alert_scenarios import HISTORY_HOURS, INCIDENTS, WELL, Trace
from bench.alert_traces import MINUTE, START
from bench.latency_weeks import LATENCY_WEEKS
from bench.operation_traces import OPERATIONS

MINUTES_PER_MONTH = 30 * 1440
FULL_WINDOWS = 30  # minutes; before them the pack sees too little to judge
SERVICES_AT_ONCE = 150

LONG = ("healthy day and night", "slow decay over three days")
SCENARIOS: Mapping[str, Callable[[str, random.Random], Trace]] = {
    **WELL,
    **INCIDENTS,
    **LATENCY_WEEKS,
    **ACCEPTANCE_WEEKS,
    **OPERATIONS,
}


@dataclasses.dataclass(frozen=True, slots=True)
class Watched:
    """A trace after the replay. ``fired``: by alert and severity, from which minute until which, in order."""

    scenario: str
    minutes: int
    quiet: int
    due: Mapping[str, int]
    fired: Mapping[str, Sequence[tuple[float, float]]]
    over: int | None = None

    def delay(self, alert: str) -> float | None:
        """Minutes from when the alert is due until it fires; ``None`` where it does not."""
        due = self.due[alert]
        return next((max(0.0, since - due) for since, until in self.fired.get(alert, ()) if until > due), None)

    def false_alarms(self) -> Iterator[str]:
        """Alerts that fire while nothing is wrong, each as often as it does."""
        for alert, found in self.fired.items():
            yield from (alert for since, _ in found if since <= self.quiet)


@dataclasses.dataclass(frozen=True, slots=True)
class Score:
    """One alert over all traces. ``delays`` are minutes, of the traces in which it was caught."""

    due: int
    delays: Sequence[float]
    false_alarms: int
    quiet_minutes: int

    @property
    def false_per_month(self) -> float:
        """False alarms in a month of one service, if every month were like these traces."""
        return self.false_alarms * MINUTES_PER_MONTH / self.quiet_minutes


def watch(
    trials: Mapping[str, int],
    *,
    seed: int,
    rules: Path = RULES,
    alerts: Sequence[str] = (),
    past: int = HISTORY_HOURS * HOUR,
    at_once: int = SERVICES_AT_ONCE,
    memory: bool = False,
    rounds: int = 1,
) -> list[Watched]:
    """Make so many traces of each scenario, replay the pack over them, and tell what fired.

    ``past``, ``alerts``, ``memory`` and ``rounds``: as for :func:`~bench.alert_replay.replay`.
    """
    wanted = [(f"{scenario} {number}", scenario) for scenario, count in trials.items() for number in range(count)]
    how = partial(replay, rules=rules, alerts=alerts, past=past, memory=memory, rounds=rounds)
    judge = partial(_watch, seed=seed, how=how)
    with ProcessPoolExecutor() as pool:
        return [each for some in pool.map(judge, _batches(wanted, at_once)) for each in some]


def _watch(
    some: Sequence[tuple[str, str]], *, seed: int, how: Callable[..., Mapping[str, list[Episode]]]
) -> list[Watched]:
    traces = {
        f"s{index}": (scenario, SCENARIOS[scenario](f"s{index}", random.Random(f"{seed} {trial}")))
        for index, (trial, scenario) in enumerate(some)
    }
    end = START + MINUTE * max(trace.minutes for _, trace in traces.values())
    samples = (each for _, trace in traces.values() for each in trace.samples)
    with tempfile.TemporaryDirectory(prefix="alert-quality-") as directory:
        span = (START + MINUTE * FULL_WINDOWS, end)
        fired = how(samples, Path(directory), span)
    return [_watched(scenario, trace, fired.get(name, ())) for name, (scenario, trace) in traces.items()]


def _batches(wanted: Sequence[tuple[str, str]], at_once: int) -> Iterator[list[tuple[str, str]]]:
    """Long traces apart from short ones: a batch takes as many evaluations as its longest needs."""
    for kind in ([each for each in wanted if each[1] in LONG], [each for each in wanted if each[1] not in LONG]):
        for first in range(0, len(kind), at_once):
            yield list(kind[first : first + at_once])


def _watched(scenario: str, trace: Trace, episodes: Sequence[Episode]) -> Watched:
    fired: dict[str, list[tuple[float, float]]] = collections.defaultdict(list)
    for episode in sorted(episodes, key=lambda each: each.since):
        since, until = (episode.since - START) / MINUTE, (episode.until - START) / MINUTE
        if since <= trace.minutes:
            fired[f"{episode.alert} {episode.severity}"].append((since, until))
    return Watched(scenario, trace.minutes, trace.quiet, trace.due, fired, trace.over)


def score(alert: str, watched: Sequence[Watched]) -> Score:
    """An alert's record; the alert by name and severity."""
    delays = [each.delay(alert) for each in watched if alert in each.due]
    return Score(
        due=len(delays),
        delays=[delay for delay in delays if delay is not None],
        false_alarms=sum(list(each.false_alarms()).count(alert) for each in watched),
        quiet_minutes=sum(max(0, each.quiet - FULL_WINDOWS) for each in watched),
    )
