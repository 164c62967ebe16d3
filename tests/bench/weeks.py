"""Weeks in which requests are alike: how often alerts fire with nothing wrong, and whether they find what is."""

from __future__ import annotations

import dataclasses
import math
import statistics
from collections.abc import Sequence
from pathlib import Path

from rich.table import Table

from bench.acceptance_weeks import FALLS, KINDS, LOW, Requests, fall, usual
from bench.alert_replay import NAIVE_ACCEPTANCE
from bench.alert_scenarios import LOW_PAGE, MEAN_TICKET, TAIL_TICKET
from bench.confidence import highest_mean, lowest_share
from bench.latency_weeks import HIGH_PEAKS, LATENCY_WEEKS, PAST_DAYS, PEAKS, week
from bench.rows import Row, percent, table
from bench.scenario_trials import MINUTES_PER_MONTH, Watched, watch

DAY_SECONDS = 86_400
WEEK_MINUTES = 7 * 1440
AT_ONCE = 16  # a week is long: these are 200 megabytes of samples
LATENCY_ALERTS = ("SpecDecodeLatencyMeanRegression", "SpecDecodeP99Regression")
ACCEPTANCE_ALERTS = (
    "SpecDecodeAcceptanceLow",
    "SpecDecodeAcceptanceDropped",
    NAIVE_ACCEPTANCE,
)
BUSY = week("10 % wander", "history")
PAGES_PER_MONTH, TICKETS_PER_WEEK = 1.0, 1.0
MUST_FIND = 0.95


@dataclasses.dataclass(frozen=True, slots=True)
class Weeks:
    """All services of a scenario."""

    watched: Sequence[Watched]

    @property
    def number(self) -> float:
        """Service-weeks with nothing wrong."""
        return sum(each.quiet for each in self.watched) / WEEK_MINUTES

    def alarms(self, severity: str, *, naive: bool = False) -> list[int]:
        """False alarms of each service."""
        return [
            sum(alarm.endswith(severity) and (NAIVE_ACCEPTANCE in alarm) == naive for alarm in each.false_alarms())
            for each in self.watched
        ]

    def per_week(self, severity: str, *, naive: bool = False) -> tuple[float, float]:
        """How many in a week, and at most."""
        alarms = self.alarms(severity, naive=naive)
        weeks = self.number / len(alarms)
        return statistics.mean(alarms) / weeks, highest_mean(alarms) / weeks

    def delays(self, *alerts: str) -> list[float]:
        """Minutes from the onset to the first of the alerts, in order, of the services where one fires."""
        firsts = [[delay for alert in alerts if (delay := each.delay(alert)) is not None] for each in self.watched]
        return sorted(min(each) for each in firsts if each)


def latency_weeks(*, quick: bool, seed: int, rules: Path) -> tuple[list[Row], list[Table], int]:
    """What must hold of latency that wanders, a table by wander and baseline, and how many traces that took."""
    more = {BUSY: 24, week(PEAKS, "history"): 12, week(HIGH_PEAKS, "history"): 12}
    trials = {scenario: max(2, more.get(scenario, 6) // (8 if quick else 1)) for scenario in LATENCY_WEEKS}
    watched = watch(
        trials, seed=seed, rules=rules, alerts=LATENCY_ALERTS, past=PAST_DAYS * DAY_SECONDS, at_once=AT_ONCE
    )
    by_scenario = _by_scenario(watched)
    return _must_of_latency(by_scenario), [_latency_table(by_scenario)], len(watched)


def acceptance_weeks(*, quick: bool, seed: int, rules: Path) -> tuple[list[Row], list[Table], int]:
    """The same of acceptance, by correlation."""
    trials = {usual(kind): (12 if kind.per_window == LOW else 4) for kind in KINDS} | {fall(kind): 40 for kind in FALLS}
    trials = {scenario: max(2, number // (8 if quick else 1)) for scenario, number in trials.items()}
    weeks = {s: n for s, n in trials.items() if s in map(usual, KINDS)}
    falls = {s: n for s, n in trials.items() if s not in weeks}
    watched = watch(weeks, seed=seed, rules=rules, alerts=ACCEPTANCE_ALERTS, at_once=AT_ONCE)
    watched += watch(falls, seed=seed, rules=rules, alerts=ACCEPTANCE_ALERTS)
    by_scenario = _by_scenario(watched)
    return _must_of_acceptance(by_scenario), [_acceptance_table(by_scenario), _fall_table(by_scenario)], len(watched)


def _by_scenario(watched: Sequence[Watched]) -> dict[str, Weeks]:
    scenarios = dict.fromkeys(each.scenario for each in watched)
    return {scenario: Weeks([each for each in watched if each.scenario == scenario]) for scenario in scenarios}


def _must_of_latency(by_scenario: dict[str, Weeks]) -> list[Row]:
    some = by_scenario[BUSY]
    months = MINUTES_PER_MONTH / WEEK_MINUTES
    pages, most_pages = (months * each for each in some.per_week("critical"))
    tickets, most_tickets = some.per_week("warning")
    rows = [
        Row(
            f"{BUSY}: pages",
            f"{pages:.2f} a service-month (at most {most_pages:.2f})",
            f"at most {PAGES_PER_MONTH:g}",
            pages <= PAGES_PER_MONTH,
        ),
        Row(
            f"{BUSY}: tickets",
            f"{tickets:.2f} a service-week (at most {most_tickets:.2f})",
            f"at most {TICKETS_PER_WEEK:g}",
            tickets <= TICKETS_PER_WEEK,
        ),
    ]
    for what in (PEAKS, HIGH_PEAKS):
        weeks = by_scenario[week(what, "history")]
        false = sum(weeks.alarms("critical")) + sum(weeks.alarms("warning"))
        rows.append(Row(f"{what}, after a week", f"{false} alarms in {weeks.number:.0f} weeks", "none", not false))
    return rows


def _must_of_acceptance(by_scenario: dict[str, Weeks]) -> list[Row]:
    rows = []
    for kind in FALLS:
        weeks = by_scenario[fall(kind)]
        found, trials = len(weeks.delays(LOW_PAGE)), len(weeks.watched)
        measured = f"{percent(found / trials)} of {trials} paged (at least {percent(lowest_share(found, trials))})"
        # Four sessions in half an hour may all draft well by chance.
        enough = kind.per_window / kind.session >= LOW
        budget = (f"at least {MUST_FIND:.0%}", found / trials >= MUST_FIND) if enough else ()
        rows.append(Row(fall(kind), measured, *budget))
    return rows


def _latency_table(by_scenario: dict[str, Weeks]) -> Table:
    shown = table(
        *("latency, nothing wrong", "baseline", "weeks", "pages", "a week", "at most"),
        *("tickets", "a week", "at most", "1.3x found", "after"),
    )
    shown.title = (
        "\nLatency that wanders: alerts per service-week with nothing wrong. Then all is 1.3x slower for six hours"
    )
    for scenario, weeks in by_scenario.items():
        what, _, source = scenario.rpartition(", baseline: ")
        delays = weeks.delays(MEAN_TICKET, TAIL_TICKET)
        shown.add_row(
            *(what, source, f"{weeks.number:.0f}", *_alarms(weeks, "critical"), *_alarms(weeks, "warning")),
            percent(len(delays) / len(weeks.watched)),
            f"{statistics.median(delays):.0f} min" if delays else "",
        )
    return shown


def _acceptance_table(by_scenario: dict[str, Weeks]) -> Table:
    shown = table(
        *("acceptance", "requests", "correlation", "session", "weeks", "pages", "a week", "at most"),
        *("tickets", "a week", "at most", f"{NAIVE_ACCEPTANCE}, a week"),
    )
    shown.title = "\nAcceptance where the drafts of a request are alike: alerts per service-week with nothing wrong"
    for kind in KINDS:
        weeks = by_scenario[usual(kind)]
        shown.add_row(
            *_of(kind),
            *(f"{weeks.number:.0f}", *_alarms(weeks, "critical"), *_alarms(weeks, "warning")),
            f"{weeks.per_week('critical', naive=True)[0]:.0f}",
        )
    return shown


def _fall_table(by_scenario: dict[str, Weeks]) -> Table:
    shown = table(
        "acceptance", "requests", "correlation", "session", "traces", "paged", "after, median", "90 %", "last"
    )
    shown.title = "\nThe same, and then a fall to 0.30: within two hours"
    for kind in FALLS:
        weeks = by_scenario[fall(kind)]
        delays = weeks.delays(LOW_PAGE)
        late = [delays[math.ceil(share * len(delays)) - 1] for share in (0.5, 0.9, 1.0)] if delays else []
        shown.add_row(
            *(*_of(kind), str(len(weeks.watched)), percent(len(delays) / len(weeks.watched))),
            *(f"{delay:.0f} min" for delay in late),
        )
    return shown


def _of(kind: Requests) -> tuple[str, str, str, str]:
    return f"{kind.acceptance:.2f}", str(kind.per_window), f"{kind.correlation:g}", str(kind.session)


def _alarms(weeks: Weeks, severity: str) -> tuple[str, str, str]:
    mean, most = weeks.per_week(severity)
    return str(sum(weeks.alarms(severity))), f"{mean:.2f}", f"{most:.2f}"
