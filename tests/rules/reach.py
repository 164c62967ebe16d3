"""What a run of the rules can reach, and what it asks for: all other rules and branches only cost time.

A scenario has a few series and some hours, and the pack reads baselines, controls, logs and a week of history as well.
promtool selects every one of them at every evaluation. What is left out here is empty by Prometheus' semantics:
``a or nothing`` is ``a``, ``a and nothing`` is nothing, and a window that ends before the first sample holds nothing.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import timedelta
from functools import cache
from typing import Any

import promql_parser as promql

from backfill import records
from promqllabels import walk

Labels = Mapping[str, str]  # with the name as ``__name__``

NOWHERE = "nothing"  # a name that no series has
NOTHING = promql.parse(NOWHERE)
ALERTS = {"ALERTS", "ALERTS_FOR_STATE"}  # the ruler writes them
ANSWER_NOTHING = {"absent", "absent_over_time", "scalar"}  # functions that have a result of nothing


class Reach:
    """Which series there can be: those of the input with all their labels, records with the labels of their rule."""

    def __init__(self, series: Iterable[Labels], seconds: float) -> None:
        self._series: dict[str, list[Labels]] = {}
        for labels in series:
            self._series.setdefault(labels["__name__"], []).append(labels)
        self._records: dict[str, list[Labels]] = {}
        self._seconds = seconds
        self._told: dict[str, bool] = {}

    def add(self, rule: Mapping[str, Any]) -> None:
        """This recording rule can have a result."""
        self._records.setdefault(rule["record"], []).append({"__name__": rule["record"], **rule.get("labels", {})})
        self._told.clear()

    def simplified(self, expression: str) -> str:
        """The same without what is certainly empty; all of it: :data:`NOWHERE`."""
        selectors, offsets = _parts(expression)
        lost = frozenset(text for text, selector in selectors.items() if not self._finds(text, selector))
        return _without(expression, lost, frozenset(each for each in offsets if each.total_seconds() > self._seconds))

    def _finds(self, text: str, selector: promql.VectorSelector) -> bool:
        if text not in self._told:
            self._told[text] = any(self._found(selector))
        return self._told[text]

    def _found(self, selector: promql.VectorSelector) -> Iterator[bool]:
        if selector.name in ALERTS:
            yield True
        matchers = selector.matchers.matchers
        for known, complete in ((self._series, True), (self._records, False)):
            for name in [selector.name] if selector.name else known:
                for labels in known.get(name, ()):
                    yield all(_holds(m, labels.get(m.name, "")) for m in matchers if complete or m.name in labels)


@cache
def _parts(expression: str) -> tuple[Mapping[str, promql.VectorSelector], frozenset[timedelta]]:
    """What decides whether parts are empty: the selectors by their text, and all offsets."""
    parts = list(walk(_parsed(expression)))
    selectors = {str(each): each for each in parts if isinstance(each, promql.VectorSelector)}
    shifted = [each.offset for each in parts if isinstance(each, promql.VectorSelector | promql.SubqueryExpr)]
    return selectors, frozenset(offset for offset in shifted if offset is not None)


@cache  # many runs have the same series
def _without(expression: str, lost: frozenset[str], early: frozenset[timedelta]) -> str:
    """The expression without these selectors and offsets, and without what they make empty."""

    def simpler(expr: promql.Expr) -> promql.Expr | None:
        match expr:
            case promql.VectorSelector():
                nothing = str(expr) in lost or expr.offset in early
            case promql.MatrixSelector():
                nothing = _is_nothing(expr.vector_selector)
            case promql.SubqueryExpr():
                nothing = _is_nothing(expr.expr) or expr.offset in early
            case promql.ParenExpr() | promql.UnaryExpr() | promql.AggregateExpr():
                nothing = _is_nothing(expr.expr)
            case promql.Call():
                nothing = expr.func.name not in ANSWER_NOTHING and any(map(_is_nothing, expr.args))
            case promql.BinaryExpr():
                left, right, operator = _is_nothing(expr.lhs), _is_nothing(expr.rhs), str(expr.op)
                if operator == "or" and left != right:
                    return expr.rhs if left else expr.lhs
                if operator == "unless" and right and not left:
                    return expr.lhs
                nothing = left and right if operator == "or" else left or right
            case _:
                nothing = False
        return NOTHING if nothing else None

    return promql.transform(_parsed(expression), post_visit=simpler).prettify()


def _is_nothing(expr: object) -> bool:
    return isinstance(expr, promql.VectorSelector) and expr.name == NOWHERE


def _holds(matcher: promql.Matcher, value: str) -> bool:
    match matcher.op:
        case promql.MatchOp.Equal:
            return value == matcher.value
        case promql.MatchOp.NotEqual:
            return value != matcher.value
        case promql.MatchOp.Re:
            return re.fullmatch(matcher.value, value) is not None
        case _:
            return re.fullmatch(matcher.value, value) is None


def reachable(groups: Sequence[Mapping[str, Any]], series: Iterable[Labels], seconds: float) -> list[dict[str, Any]]:
    """The groups with the rules that can have a result, and of each rule what can contribute to it.

    ``series``: the input's. ``seconds``: how long the run lasts; its first samples are at 0.
    """
    reach = Reach(series, seconds)
    waiting = [rule for group in groups for rule in group["rules"] if "record" in rule]
    # At first no record has series. Every round finds the records that follow from the round before.
    while new := [rule for rule in waiting if reach.simplified(rule["expr"]) != NOWHERE]:
        for rule in new:
            reach.add(rule)
        waiting = [rule for rule in waiting if rule not in new]
    kept = [{**group, "rules": list(_simplified(group["rules"], reach))} for group in groups]
    return [group for group in kept if group["rules"]]


def needed(groups: Sequence[Mapping[str, Any]], questions: Iterable[str]) -> list[dict[str, Any]]:
    """The groups without the records that no alert and no question reads, directly or through other records.

    ``questions``: expressions. Where one selects by a pattern of names, everything stays.
    """
    asked = "\n".join(questions)
    rules = [rule for group in groups for rule in group["rules"]]
    if "__name__" in asked:
        return [dict(group) for group in groups]
    alerts = [json.dumps(rule) for rule in rules if "alert" in rule]  # their texts query records, too
    wanted, new = set[str](), records("\n".join([asked, *alerts]))
    while new:
        wanted |= new
        new = set[str]().union(*(records(rule["expr"]) for rule in rules if rule.get("record") in new)) - wanted
    kept = [
        {**group, "rules": [r for r in group["rules"] if "alert" in r or r["record"] in wanted]} for group in groups
    ]
    return [group for group in kept if group["rules"]]


def _simplified(rules: Iterable[Mapping[str, Any]], reach: Reach) -> Iterator[dict[str, Any]]:
    for rule in rules:
        if (expr := reach.simplified(rule["expr"])) != NOWHERE:
            yield {**rule, "expr": expr}


@cache
def _parsed(expression: str) -> promql.Expr:
    return promql.parse(expression)
