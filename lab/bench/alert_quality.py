"""How good the alerts are: labelled traces through a real Prometheus, scored by alert.

    make bench-alerts ARGS="[--quick] [--seed N]"

Exits with 1 when a figure that must hold is missed, with 2 when the measuring itself failed. What is measured:
docs/evidence/alert-quality.md.
"""

from __future__ import annotations

import argparse
import collections
import dataclasses
import math
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path

from rich.table import Table

from bench.alert_replay import HOUR, Episode, alert_rules, replay
from bench.alert_scenarios import (
    COLLAPSE,
    DIP,
    FEW_DRAFTS,
    HISTORY_HOURS,
    INCIDENTS,
    LOW_PAGE,
    MUCH_SLOWER,
    NGRAM,
    SLOW_PAGE,
    SLOW_TICKET,
    SLOWER_BODY,
    SLOWER_TAIL,
    WELL,
    Trace,
)
from bench.alert_traces import MINUTE, START
from bench.rows import BenchError, Row, missed, percent, show, show_table, table

MUST_CATCH = 0.95
PAGES_WITHIN_MINUTES = 25.0
MINUTES_PER_MONTH = 30 * 1440
FULL_WINDOWS = 30  # minutes; before them the pack sees too little to judge
SERVICES_AT_ONCE = 150
LONG = "healthy day and night"


@dataclasses.dataclass(frozen=True, slots=True)
class Watched:
    """A trace after the replay. ``fired``: by alert and severity, from which minute until which, in order."""

    scenario: str
    minutes: int
    quiet: int
    due: Mapping[str, int]
    fired: Mapping[str, Sequence[tuple[float, float]]]

    def delay(self, alert: str) -> float | None:
        """Minutes from when the alert is due until it fires; ``None`` where it does not."""
        due = self.due[alert]
        return next((max(0.0, since - due) for since, until in self.fired.get(alert, ()) if until > due), None)

    def false_alarms(self) -> Iterator[str]:
        """Alerts that fire while nothing is wrong, each as often as it does."""
        for alert, found in self.fired.items():
            if not alert.endswith(" info"):  # nobody is told of those
                yield from (alert for since, _ in found if since <= self.quiet)


def main() -> int:
    """Measure, print, and tell whether what must hold does."""
    parser = argparse.ArgumentParser(description="How good the alerts are, over labelled traces in a real Prometheus.")
    parser.add_argument("--quick", action="store_true", help="a fifth of the traces")
    parser.add_argument("--seed", type=int, default=20260101, help="other traces of the same kinds (%(default)s)")
    arguments = parser.parse_args()
    began = time.monotonic()
    many, few = (4, 2) if arguments.quick else (20, 8)
    trials = {scenario: few if scenario == LONG else many for scenario in (*WELL, *INCIDENTS)}
    try:
        watched = watch(trials, seed=arguments.seed)
    except (BenchError, AssertionError, OSError) as error:
        print(f"the measuring failed: {error}", file=sys.stderr)
        return 2
    must = list(must_hold(watched))
    show({"What must hold": must})
    show_table(_by_alert(watched))
    code = missed(must)
    print(f"{len(watched):,} traces in {time.monotonic() - began:.0f} s.")
    return code


def watch(trials: Mapping[str, int], *, seed: int) -> list[Watched]:
    """Make so many traces of each scenario, replay the pack over them, and tell what fired."""
    wanted = [(f"{scenario} {number}", scenario) for scenario, count in trials.items() for number in range(count)]
    # Long traces apart from short ones: a batch takes as many evaluations as its longest needs.
    kinds = [[each for each in wanted if (each[1] == LONG) is long] for long in (True, False)]
    batches = [
        kind[first : first + SERVICES_AT_ONCE] for kind in kinds for first in range(0, len(kind), SERVICES_AT_ONCE)
    ]
    with ProcessPoolExecutor() as pool:
        return [each for some in pool.map(partial(_watch, seed=seed), batches) for each in some]


def _watch(some: Sequence[tuple[str, str]], *, seed: int) -> list[Watched]:
    scenarios = {**WELL, **INCIDENTS}
    traces = {
        f"s{index}": (scenario, scenarios[scenario](f"s{index}", random.Random(f"{seed} {trial}")))
        for index, (trial, scenario) in enumerate(some)
    }
    span = (START + MINUTE * FULL_WINDOWS, START + MINUTE * max(trace.minutes for _, trace in traces.values()))
    samples = (each for _, trace in traces.values() for each in trace.samples)
    with tempfile.TemporaryDirectory(prefix="alert-quality-") as directory:
        fired = replay(samples, Path(directory), span, past=HISTORY_HOURS * HOUR)
    return [_watched(scenario, trace, fired.get(name, ())) for name, (scenario, trace) in traces.items()]


def _watched(scenario: str, trace: Trace, episodes: Sequence[Episode]) -> Watched:
    fired: dict[str, list[tuple[float, float]]] = collections.defaultdict(list)
    for episode in sorted(episodes, key=lambda each: each.since):
        since, until = (episode.since - START) / MINUTE, (episode.until - START) / MINUTE
        if since <= trace.minutes:
            fired[f"{episode.alert} {episode.severity}"].append((since, until))
    return Watched(scenario, trace.minutes, trace.quiet, trace.due, fired)


def must_hold(watched: Sequence[Watched]) -> Iterator[Row]:
    """What the pack promises."""
    collapses = [each.delay(LOW_PAGE) for each in watched if each.scenario == COLLAPSE]
    slowest = max(math.inf if delay is None else delay for delay in collapses)
    yield Row(
        COLLAPSE,
        f"the last of {len(collapses)} paged after {slowest:.0f} min",
        f"at most {PAGES_WITHIN_MINUTES:.0f} min",
        slowest <= PAGES_WITHIN_MINUTES,
    )
    for scenario, alert in ((SLOWER_BODY, SLOW_TICKET), (SLOWER_TAIL, SLOW_TICKET), (MUCH_SLOWER, SLOW_PAGE)):
        delays = [each.delay(alert) for each in watched if each.scenario == scenario]
        caught = sum(delay is not None for delay in delays) / len(delays)
        measured = f"{percent(caught)} of {len(delays)} caught"
        yield Row(scenario, measured, f"at least {MUST_CATCH:.0%}", caught >= MUST_CATCH)
    for scenario in (NGRAM, FEW_DRAFTS, DIP):
        false = [alert for each in watched if each.scenario == scenario for alert in each.false_alarms()]
        yield Row(scenario, f"{len(false)} alarms", "none", not false)


def _by_alert(watched: Sequence[Watched]) -> Table:
    shown = table("alert", "severity", "due in", "recall", "after, median", "90 %", "false", "per service-month")
    shown.title = "\nEach alert that is due or false somewhere"
    service_months = sum(max(0, each.quiet - FULL_WINDOWS) for each in watched) / MINUTES_PER_MONTH
    for alert in dict.fromkeys(f"{rule.name} {rule.severity}" for rule in alert_rules()):
        found = [each.delay(alert) for each in watched if alert in each.due]
        delays = sorted(delay for delay in found if delay is not None)
        false = sum(list(each.false_alarms()).count(alert) for each in watched)
        if not (found or false):
            continue
        name, _, severity = alert.rpartition(" ")
        late = ["", ""]
        if delays:
            late = [f"{statistics.median(delays):.0f} min", f"{delays[math.ceil(0.9 * len(delays)) - 1]:.0f} min"]
        recall = percent(len(delays) / len(found)) if found else ""
        shown.add_row(
            name, severity, str(len(found) or "-"), recall, *late, str(false), f"{false / service_months:.2f}"
        )
    return shown


if __name__ == "__main__":
    sys.exit(main())
