"""Which labels the result of a PromQL expression can have, told from the expression alone.

Prometheus' semantics: an aggregation keeps what ``by`` names, a match ``on`` keeps what it names plus ``group_left``'s,
and functions keep their vector's labels. Nothing is known about a raw series, so it may have any label.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

import promql_parser as promql

SELECTING = {"topk", "bottomk", "limitk", "limit_ratio"}  # aggregations whose result are series of the input
SET_OPERATORS = {"and", "or", "unless"}


@dataclass(frozen=True, slots=True)
class Labels:
    """A set of label names: those in ``names``, or with ``any_but`` all except those."""

    names: frozenset[str]
    any_but: bool = False

    def __contains__(self, name: str) -> bool:
        return (name in self.names) != self.any_but

    def keep(self, names: Iterable[str]) -> Labels:
        return Labels(frozenset(name for name in names if name in self))

    def drop(self, names: Iterable[str]) -> Labels:
        dropped = frozenset(names)
        return replace(self, names=self.names | dropped if self.any_but else self.names - dropped)

    def add(self, names: Iterable[str]) -> Labels:
        added = frozenset(names)
        return replace(self, names=self.names - added if self.any_but else self.names | added)

    def __or__(self, other: Labels) -> Labels:
        if not other.any_but:
            return self.add(other.names)
        return other.add(self.names) if not self.any_but else Labels(self.names & other.names, any_but=True)


NONE = Labels(frozenset())
ANY = Labels(frozenset(), any_but=True)

# Of a recorded series by its name; None for a name that nothing records.
Records = Callable[[str], Labels | None]


def children(expr: promql.Expr) -> Iterator[promql.Expr]:
    match expr:
        case promql.BinaryExpr():
            yield expr.lhs
            yield expr.rhs
        case promql.AggregateExpr():
            yield expr.expr
            if isinstance(expr.param, promql.Expr):
                yield expr.param
        case promql.Call():
            yield from expr.args
        case promql.ParenExpr() | promql.UnaryExpr() | promql.SubqueryExpr():
            yield expr.expr
        case promql.MatrixSelector():
            yield expr.vector_selector


def walk(expr: promql.Expr) -> Iterator[promql.Expr]:
    """Yield the expression and all within it, outermost first."""
    yield expr
    for child in children(expr):
        yield from walk(child)


def labels(expr: promql.Expr, records: Records) -> Labels | None:
    """The labels that the result of ``expr`` can have; None if it is a scalar or a string."""
    match expr:
        case promql.VectorSelector():
            known = records(expr.name) if expr.name else None
            return ANY if known is None else known
        case promql.MatrixSelector():
            return labels(expr.vector_selector, records)
        case promql.ParenExpr() | promql.UnaryExpr() | promql.SubqueryExpr():
            return labels(expr.expr, records)
        case promql.AggregateExpr():
            return _aggregated(expr, labels(expr.expr, records) or NONE)
        case promql.Call():
            return _called(expr, [labels(arg, records) for arg in expr.args])
        case promql.BinaryExpr():
            return _matched(expr, labels(expr.lhs, records), labels(expr.rhs, records))
        case _:
            return None


def _aggregated(expr: promql.AggregateExpr, inner: Labels) -> Labels:
    operator, modifier = str(expr.op), expr.modifier
    if operator in SELECTING:
        return inner
    if modifier is None:
        result = NONE
    elif modifier.type == promql.AggModifierType.Without:
        result = inner.drop(modifier.labels)
    else:
        result = inner.keep(modifier.labels)
    if operator == "count_values" and isinstance(expr.param, promql.StringLiteral):
        return result.add([expr.param.val])
    return result


def _called(expr: promql.Call, arguments: list[Labels | None]) -> Labels | None:
    name = expr.func.name
    if expr.func.return_type == promql.ValueType.Scalar:
        return None
    vectors = [each for each in arguments if each is not None]
    if name in {"label_replace", "label_join"}:
        target = expr.args[1]
        return vectors[0].add([target.val])
    if name == "histogram_quantile":
        return vectors[0].drop(["le"])
    return vectors[0] if vectors else NONE


def _matched(expr: promql.BinaryExpr, left: Labels | None, right: Labels | None) -> Labels | None:
    if left is None or right is None:
        return left if right is None else right
    operator, modifier = str(expr.op), expr.modifier
    if operator == "or":
        return left | right
    if operator in SET_OPERATORS:
        return left
    if modifier is None or modifier.matching is None:
        return left
    group = modifier.group_labels or []
    if modifier.card == promql.VectorMatchCardinality.ManyToOne:
        return left.add(group)
    if modifier.card == promql.VectorMatchCardinality.OneToMany:
        return right.add(group)
    if modifier.matching.type == promql.LabelModifierType.Include:
        return left.keep(modifier.matching.labels)
    return left.drop(modifier.matching.labels)


def unmatched(expr: promql.BinaryExpr, left: Labels, right: Labels) -> frozenset[str]:
    """The labels by which no pair of series can match, since only one side can have them."""
    matching = expr.modifier.matching if expr.modifier else None
    if matching is not None and matching.type == promql.LabelModifierType.Include:
        return frozenset(name for name in matching.labels if (name in left) != (name in right))
    if str(expr.op) == "or" or left.any_but or right.any_but:
        return frozenset()
    ignored = matching.labels if matching is not None else []
    return (left.names ^ right.names) - frozenset(ignored)


def selects(selector: promql.VectorSelector, names: Mapping[str, str]) -> list[str]:
    """Those of ``names`` that the selector's name, or its matcher of ``__name__``, means."""
    if selector.name is not None:
        return [selector.name] if selector.name in names else []
    found = list(names)
    for matcher in selector.matchers.matchers:
        if matcher.name == "__name__" and matcher.op in (promql.MatchOp.Equal, promql.MatchOp.Re):
            pattern = matcher.value if matcher.op == promql.MatchOp.Re else re.escape(matcher.value)
            found = [name for name in found if re.fullmatch(pattern, name)]
    return found
