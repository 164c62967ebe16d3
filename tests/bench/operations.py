"""Pages and tickets of a service-month: outages, changes on purpose and healthy days, with naive rules beside ours."""

from __future__ import annotations

import dataclasses
import math
import statistics
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path

import rjsonnet
import yaml
from rich.table import Table

from bench.alert_replay import NAIVE, NAIVE_ACCEPTANCE, NAIVE_DAY, NAIVE_DOWN
from bench.operation_traces import CHANGES, DAYS, LASTING, OUTAGES, ZERO, Operation, named
from bench.rows import Row, percent, table
from bench.scenario_trials import MINUTES_PER_MONTH, Watched, watch
from bench.weeks import LATENCY_ALERTS, PAGES_PER_MONTH, TICKETS_PER_WEEK, WEEK_MINUTES
from fieldtools import ROOT
from rules.scenario import Source

Spans = Sequence[tuple[float, float]]
SEVERITIES = ("critical", "warning")
SHOWN_NAIVE = (NAIVE_DOWN, NAIVE_ACCEPTANCE, NAIVE_DAY)
TICKETS_PER_MONTH = TICKETS_PER_WEEK * MINUTES_PER_MONTH / WEEK_MINUTES
TRACES, LONG_TRACES, DAYS_TRACES, ZERO_TRACES = 4, 2, 3, 2
ROUNDS = 4  # a regression of a day that stays must not become normal: each round adds hours to what is known of it
AT_ONCE = 36  # outages, which last hours
LONG_AT_ONCE = 4  # weeks of three replicas: these are 200 megabytes of samples


@dataclasses.dataclass(frozen=True, slots=True)
class Told:
    """What a person on call hears of one cause. Minutes are ``None`` where nothing is heard, or nothing ends.

    ``share``: of the time from the first alert to the end of the cause in which one fires.
    """

    times: int
    after: float | None
    share: float
    over_after: float | None


def together(spans: Iterable[tuple[float, float]]) -> list[tuple[float, float]]:
    """Spans of time in which at least one of the alerts fires: Alertmanager sends those of a service together."""
    found: list[tuple[float, float]] = []
    for since, until in sorted(spans):
        if found and since <= found[-1][1]:
            found[-1] = (found[-1][0], max(found[-1][1], until))
        else:
            found.append((since, until))
    return found


def notified(watched: Watched, severity: str, *, since: float = -math.inf) -> list[tuple[float, float]]:
    """When alerts of a severity fire for a service; those that begin before ``since`` minutes are left out."""
    fired = (
        spans for alert, spans in watched.fired.items() if alert.endswith(severity) and not alert.startswith(NAIVE)
    )
    return [each for each in together(span for spans in fired for span in spans) if each[0] >= since]


def told(spans: Spans, onset: float, over: float) -> Told:
    """How alerts, as :func:`notified`, tell of a cause between two minutes."""
    heard = [each for each in spans if onset < each[1] and each[0] < over]
    if not heard:
        return Told(0, None, 0.0, None)
    first, last = max(onset, heard[0][0]), heard[-1][1]
    firing = sum(min(until, over) - max(since, onset) for since, until in heard)
    return Told(len(heard), first - onset, firing / (over - first), last - over if last >= over else None)


@dataclasses.dataclass(frozen=True, slots=True)
class Kind:
    """All services to which the same happens."""

    what: str
    source: Source
    operation: Operation
    watched: Sequence[Watched]

    def per_month(self, number: int) -> float:
        """Of something that recurs, by the time; else of a month in which it happens once."""
        if not self.operation.recurs:
            return number / len(self.watched)
        minutes = sum(each.minutes - self.operation.settled for each in self.watched)
        return number * MINUTES_PER_MONTH / minutes

    def number(self, severity: str) -> int:
        """Notifications of a severity."""
        return sum(len(notified(each, severity, since=self.operation.settled)) for each in self.watched)

    def naive(self, alert: str) -> int:
        """How often a naive rule began to fire."""
        spans = (span for each in self.watched for span in each.fired.get(f"{alert} critical", ()))
        return sum(since >= self.operation.settled for since, _ in spans)

    @property
    def alert(self) -> str:
        """The wanted alert with its severity; empty where none is wanted."""
        wanted = self.operation
        return f"{wanted.page} critical" if wanted.page else f"{wanted.ticket} warning" if wanted.ticket else ""

    def heard(self) -> list[Told]:
        """The wanted alert, service by service. A cause without an end lasts as long as the trace."""
        return [
            told(together(each.fired.get(self.alert, ())), each.quiet, each.minutes if each.over is None else each.over)
            for each in self.watched
        ]

    def row(self) -> Row:
        """What must hold of it."""
        wanted = self.operation
        pages, tickets = map(self.number, SEVERITIES)
        counted = f"{pages} pages, {tickets} tickets in {len(self.watched)} traces"
        if wanted.recurs:
            a_month = [self.per_month(number) for number in (pages, tickets)]
            budget = f"at most {PAGES_PER_MONTH:g} page, {TICKETS_PER_MONTH:.1f} tickets"
            holds = a_month[0] <= PAGES_PER_MONTH and a_month[1] <= TICKETS_PER_MONTH
            return Row(self.title, f"{a_month[0]:.2f} pages, {a_month[1]:.2f} tickets a service-month", budget, holds)
        if not self.alert:
            return Row(self.title, counted, "none", not pages and not tickets)
        good = sum(map(self._as_wanted, self.watched, self.heard()))
        return Row(
            self.title,
            f"{good} of {len(self.watched)} as they should; {counted}",
            f"1 {'page' if wanted.page else 'ticket'} each, within {wanted.within} min, to the end",
            good == len(self.watched) and (not pages or bool(wanted.page) or wanted.may_page),
        )

    def _as_wanted(self, watched: Watched, heard: Told) -> bool:
        """Once, in time, to the end and not much longer."""
        return (
            heard.times == 1
            and heard.after is not None
            and heard.after <= self.operation.within
            and heard.share == 1.0
            and (watched.over is None or (heard.over_after or 0.0) <= self.operation.ends)
        )

    @property
    def title(self) -> str:
        """Its name, with the variant of the rules."""
        return f"{self.what} ({self.source})"


def operations(*, quick: bool, seed: int, rules: Path) -> tuple[list[Row], list[Table], int]:
    """What must hold of services that run, a table by what happens, and how many traces that took."""
    found: list[Kind] = []
    with tempfile.TemporaryDirectory(prefix="alert-quality-rules-") as folder:
        for source in ("exporter", "vllm"):
            pack = rules if source == "exporter" else rules.with_name("specdec-vllm.rules.yaml")
            usual = partial(watch, seed=seed, rules=pack, past=0, at_once=LONG_AT_ONCE)
            for kinds, trials, how in (
                (OUTAGES, TRACES, partial(usual, at_once=AT_ONCE, memory=True)),
                (CHANGES, LONG_TRACES, usual),
                (LASTING, LONG_TRACES, partial(usual, rounds=ROUNDS, alerts=(*LATENCY_ALERTS, *NAIVE))),
                (DAYS, DAYS_TRACES, usual),
                (ZERO, ZERO_TRACES, partial(usual, rules=_rendered(Path(folder), source))),
            ):
                found += _watched(kinds, source, how, max(1, trials // 8) if quick else trials)
    return [each.row() for each in found], [_table(found)], sum(len(each.watched) for each in found)


def _watched(
    kinds: Mapping[str, Operation], source: Source, watched: Callable[..., list[Watched]], trials: int
) -> list[Kind]:
    found = watched({named(what, source): trials for what, each in kinds.items() if source in each.sources})
    return [
        Kind(what, source, each, [one for one in found if one.scenario == named(what, source)])
        for what, each in kinds.items()
        if source in each.sources
    ]


def _rendered(folder: Path, source: Source) -> Path:
    """The pack for services that scale to zero, all of them."""
    snippet = f"""
        local mixin = (import 'mixin.libsonnet') + {{
          _config+:: {{ source: '{source}', scale_to_zero_service_regex: '.+' }},
        }};
        mixin.prometheusRules.groups + mixin.prometheusAlerts.groups
    """
    groups = yaml.safe_load(rjsonnet.evaluate_snippet("", snippet, jpathdir=[str(ROOT)]))
    file = folder / f"{source}.rules.yaml"
    file.write_text(yaml.safe_dump({"groups": groups}))
    return file


def _table(kinds: Sequence[Kind]) -> Table:
    shown = table(
        *("what happens", "rules", "traces", "pages", "tickets", "first after", "latest", "told", "over after"),
        *SHOWN_NAIVE,
    )
    shown.title = "\nServices that run: pages and tickets of a service-month. How the wanted alert tells of its cause"
    for kind in kinds:
        heard = kind.heard() if kind.alert else []
        after = sorted(each.after for each in heard if each.after is not None)
        over = [each.over_after for each in heard if each.over_after is not None]
        ends = any(each.over is not None for each in kind.watched)
        shown.add_row(
            *(kind.what, kind.source, str(len(kind.watched))),
            *(f"{kind.per_month(kind.number(severity)):.2f}" for severity in SEVERITIES),
            *([f"{statistics.median(after):.0f} min", f"{after[-1]:.0f} min"] if after else ["", ""]),
            percent(statistics.mean(each.share for each in heard)) if heard else "",
            f"{statistics.median(over):.0f} min" if ends and over else "",
            *(f"{kind.per_month(kind.naive(alert)):.2f}" for alert in SHOWN_NAIVE),
        )
    return shown
