"""Pages and tickets of a service-month: outages, changes on purpose and healthy days, with naive rules beside ours."""

from __future__ import annotations

import dataclasses
import math
import statistics
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import rjsonnet
import yaml
from rich.table import Table

from bench.alert_replay import NAIVE, NAIVE_ACCEPTANCE, NAIVE_DAY, NAIVE_DOWN, RULES
from bench.operation_traces import CHANGES, DAYS, OUTAGES, ZERO, Operation, named
from bench.rows import Row, percent, table
from bench.scenario_trials import FULL_WINDOWS, MINUTES_PER_MONTH, Watched, watch
from fieldtools import ROOT
from rules.scenario import Source

Spans = Sequence[tuple[float, float]]
SEVERITIES = ("critical", "warning")
SHOWN_NAIVE = (NAIVE_DOWN, NAIVE_ACCEPTANCE, NAIVE_DAY)
TRACES, LONG_TRACES, DAYS_TRACES = 6, 4, 6
AT_ONCE = 36  # outages, which last hours
LONG_AT_ONCE = 4  # weeks of three replicas: these are 200 megabytes of samples


@dataclasses.dataclass(frozen=True, slots=True)
class Told:
    """What a person on call hears of one cause. Times are minutes, and ``None`` where nothing is heard."""

    times: int
    after: float | None
    stays: bool
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
    heard = [each for each in spans if each[1] > onset]
    if not heard:
        return Told(0, None, stays=False, over_after=None)
    first, last = heard[0], heard[-1][1]
    return Told(len(heard), max(0.0, first[0] - onset), stays=first[1] >= over, over_after=max(0.0, last - over))


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
        minutes = sum(each.minutes - max(FULL_WINDOWS, self.operation.settled) for each in self.watched)
        return number * MINUTES_PER_MONTH / minutes

    def number(self, severity: str) -> int:
        """Notifications of a severity."""
        return sum(len(notified(each, severity, since=self.operation.settled)) for each in self.watched)

    def naive(self, alert: str) -> int:
        """How often a naive rule began to fire."""
        spans = (span for each in self.watched for span in each.fired.get(f"{alert} critical", ()))
        return sum(since >= self.operation.settled for since, _ in spans)

    def heard(self) -> list[Told]:
        """The wanted alerts, service by service."""
        severity = "critical" if self.operation.page else "warning"
        return [
            told(notified(each, severity), each.quiet, math.inf if each.over is None else each.over)
            for each in self.watched
        ]

    def row(self) -> Row:
        """What must hold of it."""
        wanted = self.operation
        pages, tickets = map(self.number, SEVERITIES)
        counted = f"{pages} pages, {tickets} tickets in {len(self.watched)} traces"
        if not (wanted.page or wanted.ticket):
            return Row(self.title, counted, "none", not pages and not tickets)
        severity = "critical" if wanted.page else "warning"
        alert = f"{wanted.page or wanted.ticket} {severity}"
        good = [
            bool(each.fired.get(alert))
            and heard.times == 1
            and heard.after is not None
            and heard.after <= wanted.within
            and (each.over is None or (heard.stays and (heard.over_after or 0.0) <= wanted.ends))
            for each, heard in zip(self.watched, self.heard(), strict=True)
        ]
        word = "page" if wanted.page else "ticket"
        budget = f"1 {word} each, within {wanted.within} min, to the end"
        holds = all(good) and (bool(wanted.page) or not pages)
        return Row(self.title, f"{sum(good)} of {len(good)} as they should; {counted}", budget, holds)

    @property
    def title(self) -> str:
        """Its name, with the variant of the rules."""
        return f"{self.what} ({self.source})"


def operations(*, quick: bool, seed: int, rules: Path) -> tuple[list[Row], list[Table], int]:
    """What must hold of services that run, a table by what happens, and how many traces that took."""

    def some(trials: int) -> int:
        return max(1, trials // 8) if quick else trials

    found: list[Kind] = []
    with tempfile.TemporaryDirectory(prefix="alert-quality-rules-") as folder:
        for source in ("exporter", "vllm"):
            pack = rules if source == "exporter" else RULES.with_name("specdec-vllm.rules.yaml")
            zero = _rendered(Path(folder), source)
            for kinds, trials, at_once, memory, by in (
                (OUTAGES, some(TRACES), AT_ONCE, True, pack),
                (CHANGES, some(LONG_TRACES), LONG_AT_ONCE, False, pack),
                (DAYS, some(DAYS_TRACES), LONG_AT_ONCE, False, pack),
                (ZERO, some(DAYS_TRACES), LONG_AT_ONCE, False, zero),
            ):
                found += _watched(kinds, source, trials, seed=seed, rules=by, at_once=at_once, memory=memory)
    return [each.row() for each in found], [_table(found)], sum(len(each.watched) for each in found)


def _watched(
    kinds: Mapping[str, Operation], source: Source, trials: int, *, seed: int, rules: Path, at_once: int, memory: bool
) -> list[Kind]:
    wanted = {named(what, source): trials for what, each in kinds.items() if source in each.sources}
    found = watch(wanted, seed=seed, rules=rules, past=0, at_once=at_once, memory=memory)
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
        *("what happens", "rules", "traces", "pages", "tickets", "first after", "latest", "stays", "over after"),
        *SHOWN_NAIVE,
    )
    shown.title = "\nServices that run: pages and tickets of a service-month. How the wanted alert tells of its cause"
    for kind in kinds:
        wanted = bool(kind.operation.page or kind.operation.ticket)
        heard = kind.heard() if wanted else []
        after = sorted(each.after for each in heard if each.after is not None)
        over = [each.over_after for each in heard if each.over_after is not None]
        ends = any(each.over is not None for each in kind.watched)
        shown.add_row(
            *(kind.what, kind.source, str(len(kind.watched))),
            *(f"{kind.per_month(kind.number(severity)):.2f}" for severity in SEVERITIES),
            *([f"{statistics.median(after):.0f} min", f"{after[-1]:.0f} min"] if after else ["", ""]),
            percent(sum(each.stays for each in heard) / len(heard)) if ends and heard else "",
            f"{statistics.median(over):.0f} min" if ends and over else "",
            *(f"{kind.per_month(kind.naive(alert)):.2f}" for alert in SHOWN_NAIVE),
        )
    return shown
