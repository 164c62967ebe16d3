"""Checks of rule files that pint makes only with a database, or that no tool at hand makes.

Which tools there are: tools/README.md. Expressions are parsed, never matched as text. A check yields findings in words;
none means content.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import reduce
from operator import or_
from pathlib import Path
from typing import Any

import promql_parser as promql

from support import yamltext
from support.promqllabels import ANY, NONE, Labels, labels, selects, unmatched, walk

LOOK_BACK_SECONDS = 300  # Prometheus' default: an older sample is not seen by an instant selector
OF_COUNTERS = {"rate", "irate", "increase", "resets"}
OF_GAUGES = {"delta", "idelta", "deriv", "predict_linear"}
ALWAYS_THERE = {"alertname", "severity", "component"}
OF_PROMETHEUS = {
    "up": "gauge",
    "ALERTS": "gauge",
}
UNITS = {"ms": 0.001, "s": 1, "m": 60, "h": 3600, "d": 86400, "w": 7 * 86400}


@dataclass(frozen=True, slots=True)
class Rule:
    """One recording rule or alert; ``name`` is what it records or alerts as."""

    group: str
    interval_seconds: float
    name: str
    is_alert: bool
    text: str  # of the expression; the parser does not give it back as it was
    expr: promql.Expr
    labels: Mapping[str, str]
    annotations: Mapping[str, str]

    def __str__(self) -> str:
        return f"{self.group}/{self.name}"


@dataclass(frozen=True, slots=True)
class Pack:
    """The rules of one file, in order, and the types of the raw families that they may select, by series name."""

    rules: tuple[Rule, ...]
    types: Mapping[str, str]

    def records(self) -> dict[str, list[Rule]]:
        found: dict[str, list[Rule]] = {}
        for rule in self.rules:
            if not rule.is_alert:
                found.setdefault(rule.name, []).append(rule)
        return found


def seconds(duration: str) -> float:
    """``1h30m`` -> 5400.0."""
    return sum(float(n) * UNITS[unit] for n, unit in re.findall(r"(\d+)(ms|[smhdw])", duration))


def records(expression: str) -> set[str]:
    """Names of the pack's records in an expression."""
    return set(re.findall(r"\binference_service:\w+:\w+", expression))


def load(path: Path, types: Mapping[str, str], default_interval: str = "1m") -> Pack:
    """Read a rule file, or a PrometheusRule, which has the same groups under ``spec``."""
    document: dict[str, Any] = yamltext.load(path.read_text())
    groups = document.get("spec", document)["groups"]
    return Pack(
        tuple(
            Rule(
                group=group["name"],
                interval_seconds=seconds(group.get("interval", default_interval)),
                name=rule.get("alert") or rule["record"],
                is_alert="alert" in rule,
                text=rule["expr"],
                expr=promql.parse(rule["expr"]),
                labels=rule.get("labels", {}),
                annotations=rule.get("annotations", {}),
            )
            for group in groups
            for rule in group["rules"]
        ),
        types,
    )


def series_types(exposition: str) -> dict[str, str]:
    """The type of each series name that a text exposition announces: ``x_bucket`` is a counter of its histogram."""
    types: dict[str, str] = {}
    for name, kind in re.findall(r"^# TYPE (\S+) (\w+)$", exposition, re.MULTILINE):
        match kind:
            case "histogram" | "summary":
                types |= {name + suffix: "counter" for suffix in ("_bucket", "_count", "_sum")}
            case _:
                types[name] = kind
    return types


def recorded_labels(pack: Pack) -> dict[str, Labels]:
    """The labels that the recorded series can have, by name, whichever rule of that name recorded them."""
    recorded = pack.records()
    known = dict.fromkeys(recorded, NONE)
    while True:  # rules read each other, and their own past: sets grow until nothing is new
        grown = {
            name: reduce(or_, ((labels(rule.expr, known.get) or NONE).add(rule.labels) for rule in rules))
            for name, rules in recorded.items()
        }
        if grown == known:
            return known
        known = grown


def _selectors(expr: promql.Expr) -> Iterator[promql.VectorSelector]:
    return (e for e in walk(expr) if isinstance(e, promql.VectorSelector))


def templates(pack: Pack) -> Iterator[str]:
    """Templates print labels that the alert can have, through whatever records, and query what is recorded."""
    known = recorded_labels(pack)
    for rule in pack.rules:
        if not rule.is_alert:
            continue
        own = (labels(rule.expr, known.get) or NONE).add(rule.labels)
        text = "\n".join([*rule.labels.values(), *rule.annotations.values()])
        for label in sorted(set(re.findall(r"\$labels\.(\w+)", text))):
            if label not in own and label not in ALWAYS_THERE:
                yield f"{rule}: a template prints {label}, which the expression does not keep"
        for name in sorted(set(re.findall(r"[a-z_]+:[a-z0-9_]+:[a-z0-9_]+", text))):
            if name not in known:
                yield f"{rule}: a template queries {name}, which nothing records"


def existing(pack: Pack) -> Iterator[str]:
    """Every selected name is recorded in the file or served by someone: a misspelt metric never fires."""
    everything = dict(pack.types) | dict.fromkeys(pack.records(), "gauge")
    for rule in pack.rules:
        for selector in _selectors(rule.expr):
            if not selects(selector, everything):
                yield f"{rule}: nobody records or serves {selector}"


def matchers(pack: Pack) -> Iterator[str]:
    """No matcher asks for a label that its record cannot have."""
    known = recorded_labels(pack)
    for rule in pack.rules:
        for selector in _selectors(rule.expr):
            own = known.get(selector.name or "", ANY)
            for matcher in selector.matchers.matchers:
                if matcher.name != "__name__" and matcher.name not in own and matcher.value:
                    yield f"{rule}: {selector.name} has no label {matcher.name}"


def matches(pack: Pack) -> Iterator[str]:
    """Both sides of a vector match can have the labels that they are matched on; else it is always empty."""
    known = recorded_labels(pack)
    for rule in pack.rules:
        for expr in walk(rule.expr):
            if not isinstance(expr, promql.BinaryExpr):
                continue
            left, right = labels(expr.lhs, known.get), labels(expr.rhs, known.get)
            if left is None or right is None:
                continue
            if lone := sorted(unmatched(expr, left, right)):
                yield f"{rule}: only one side of `{expr.op}` can have {', '.join(lone)}: {_short(expr)}"


def ranges(pack: Pack, scrape_seconds: float) -> Iterator[str]:
    """Ranges hold enough samples, instant selectors find a sample, and counters and gauges get their own functions."""
    recorded = pack.records()
    for rule in pack.rules:
        for expr in walk(rule.expr):
            match expr:
                case promql.Call() if expr.args and isinstance(expr.args[0], promql.MatrixSelector):
                    yield from _ranged(rule, expr.func.name, expr.args[0], pack, scrape_seconds)
                case promql.VectorSelector() if expr.name in recorded and not _within_range(rule.expr, expr):
                    interval = max(each.interval_seconds for each in recorded[expr.name])
                    if interval >= LOOK_BACK_SECONDS:
                        yield f"{rule}: {expr.name} is recorded every {interval:g} s, which an instant selector misses"


def _ranged(
    rule: Rule, function: str, matrix: promql.MatrixSelector, pack: Pack, scrape_seconds: float
) -> Iterator[str]:
    selector, length = matrix.vector_selector, matrix.range.total_seconds()
    if recorders := pack.records().get(selector.name or ""):
        interval = max(each.interval_seconds for each in recorders)
        if function in OF_COUNTERS:
            yield f"{rule}: {function}() of the record {selector.name}, which hides resets"
        if length < 2 * interval:
            yield f"{rule}: {length:g} s of {selector.name} hold less than two samples of {interval:g} s"
        return
    if function in OF_COUNTERS and length < 4 * scrape_seconds:
        yield f"{rule}: {function}() over {length:g} s does not survive a lost scrape"
    for name in selects(selector, pack.types):
        kind = pack.types[name]
        falls = function == "resets" and name in {"up", "specdec_up"}  # of a state, 0 or 1
        if (function in OF_COUNTERS and kind == "gauge" and not falls) or (function in OF_GAUGES and kind == "counter"):
            yield f"{rule}: {function}() of the {kind} {name}"


def _within_range(root: promql.Expr, selector: promql.VectorSelector) -> bool:
    """Whether the selector is one of a range or of a subquery; nodes have no identity, so by their text."""
    inside = (e for e in walk(root) if isinstance(e, promql.MatrixSelector | promql.SubqueryExpr))
    return any(str(s) == str(selector) for e in inside for s in _selectors(e))


def order(pack: Pack) -> Iterator[str]:
    """Rules of a group run one after the other: what a rule reads stands above it, or it reads the last round's."""
    for position, rule in enumerate(pack.rules):
        below = {other.name for other in pack.rules[position + 1 :] if other.group == rule.group and not other.is_alert}
        above = {other.name for other in pack.rules[: position + 1]}
        for selector in _selectors(rule.expr):
            if selector.name in below - above and selector.offset is None and not _within_range(rule.expr, selector):
                yield f"{rule}: reads {selector.name}, which is recorded below it"


def _short(expr: promql.Expr, length: int = 160) -> str:
    text = " ".join(str(expr).split())
    return text if len(text) <= length else text[:length] + "..."
