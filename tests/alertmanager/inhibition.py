"""Alertmanager's rule of inhibition in a few lines, on a rendered configuration."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

Labels = Mapping[str, str]
Rule = Mapping[str, Any]

_MATCHER = re.compile(r'(\w+)(=~|!=|=)"(.*)"')


def matchers(texts: Iterable[str]) -> list[tuple[str, str, str]]:
    """``alertname="A"`` -> ``("alertname", "=", "A")``."""
    found = [_MATCHER.fullmatch(text) for text in texts]
    assert all(found), texts
    return [(match[1], match[2], match[3]) for match in found if match]


def matches(texts: Iterable[str], labels: Labels) -> bool:
    """Whether all matchers match; a label that is missing is empty."""
    return all(_check(operator, value, labels.get(name, "")) for name, operator, value in matchers(texts))


def _check(operator: str, wanted: str, value: str) -> bool:
    if operator == "=~":
        return re.fullmatch(wanted, value) is not None
    return (value == wanted) == (operator == "=")


def inhibits(rule: Rule, source: Labels, target: Labels) -> bool:
    """Whether an alert silences another; labels that both lack count as equal."""
    if not matches(rule["source_matchers"], source) or not matches(rule["target_matchers"], target):
        return False
    return all(source.get(label, "") == target.get(label, "") for label in rule["equal"])


def inhibited(rules: Iterable[Rule], target: Labels, alerts: Iterable[Labels]) -> bool:
    """Whether any of the alerts silences this one."""
    alerts = list(alerts)
    return any(inhibits(rule, source, target) for rule in rules for source in alerts if source != target)
