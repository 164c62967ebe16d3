"""Each check of our own finds what it is for. test_lint.py shows that they are content with the pack."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import promql_parser as promql
import pytest
import yaml

import rulelint
from promqllabels import ANY, NONE, Labels, labels

TYPES = rulelint.series_types(
    "# TYPE drafts_total counter\n"
    "# TYPE running gauge\n"
    "# TYPE latency_seconds histogram\n"
    "# TYPE vllm:drafts_total counter\n"
)
ANNOTATIONS = dict.fromkeys(rulelint.ANNOTATIONS, "Text.") | {"description": "{{ $value }}"}
Check = Callable[[rulelint.Pack], Iterator[str]]
Rule = dict[str, object]

RATE: Rule = {"record": "service:drafts:rate5m", "expr": "sum by (service) (rate(drafts_total[5m]))"}
LOAD: Rule = {"record": "service:running:sum", "expr": "sum by (service, model) (running)", "labels": {"of": "load"}}


def record(expr: str, name: str = "service:other:sum") -> Rule:
    return {"record": name, "expr": expr}


def alert(expr: str, name: str = "DraftsLow", severity: str = "warning", **annotations: str) -> Rule:
    labels = {"severity": severity}
    return {"alert": name, "expr": expr, "labels": labels, "annotations": ANNOTATIONS | annotations}


@pytest.fixture
def findings(tmp_path: Path) -> Callable[..., list[str]]:
    """Findings of a check over one group of rules."""

    def found(check: Check, rules: list[Rule], interval: str = "1m") -> list[str]:
        path = tmp_path / "rules.yaml"
        path.write_text(yaml.safe_dump({"groups": [{"name": "group", "interval": interval, "rules": rules}]}))
        return list(check(rulelint.load(path, TYPES)))

    return found


def ranges(pack: rulelint.Pack) -> Iterator[str]:
    return rulelint.ranges(pack, scrape_seconds=60)


WRONG: dict[str, tuple[Check, list[Rule], str]] = {
    "an alert with a snake's name": (rulelint.names, [alert("running > 1", name="drafts_low")], "CamelCase"),
    "a missing runbook": (rulelint.names, [alert("running > 1", runbook_url="")], "no runbook_url"),
    "a group too large": (rulelint.names, [RATE] * 21, "21 rules"),
    "a label that a record does not have": (
        rulelint.templates,
        [RATE, alert("service:drafts:rate5m > 1", description="{{ $labels.model }}")],
        "prints model",
    ),
    "a query of nothing": (
        rulelint.templates,
        [RATE, alert("running > 1", description='{{ query "service:drafts:rate30m" }}')],
        "queries service:drafts:rate30m",
    ),
    "a misspelt metric": (rulelint.existing, [alert("rate(drafts[5m]) > 1")], "nobody records or serves drafts"),
    "a matcher of a lost label": (
        rulelint.matchers,
        [RATE, record('service:drafts:rate5m{model="m"}')],
        "has no label model",
    ),
    "sides of different levels": (
        rulelint.matches,
        [RATE, LOAD, record("service:drafts:rate5m / service:running:sum")],
        "only one side of `/` can have model, of",
    ),
    "a match on what one side lost": (
        rulelint.matches,
        [RATE, record("service:drafts:rate5m unless on (service, model) running")],
        "only one side of `unless` can have model",
    ),
    "a rate of a gauge": (ranges, [record("rate(running[5m])")], "rate() of the gauge running"),
    "a rate of a rate": (ranges, [RATE, record("rate(service:drafts:rate5m[1h])")], "hides resets"),
    "a range of one scrape": (ranges, [record("rate(drafts_total[2m])")], "does not survive a lost scrape"),
    "a range of one evaluation": (
        ranges,
        [RATE, record("max_over_time(service:drafts:rate5m[1m])")],
        "less than two samples of 60 s",
    ),
    "a record read before it is made": (rulelint.order, [record("service:drafts:rate5m / 2"), RATE], "below it"),
}


@pytest.mark.parametrize("case", WRONG)
def test_a_check_finds(case: str, findings: Callable[..., list[str]]) -> None:
    check, rules, wanted = WRONG[case]

    assert [finding for finding in findings(check, rules) if wanted in finding]


def test_an_instant_selector_misses_what_is_recorded_every_hour(findings: Callable[..., list[str]]) -> None:
    ranged = [RATE, record("max_over_time(service:drafts:rate5m[1d])")]

    assert findings(ranges, ranged, interval="1h") == []
    assert "an instant selector misses" in findings(ranges, [RATE, record("service:drafts:rate5m")], interval="1h")[0]


@pytest.mark.parametrize(
    ("expression", "wanted"),
    [
        ("time()", None),
        ("sum by (a, b) (raw)", NONE.add("ab")),
        ("sum without (a) (raw)", ANY.drop("a")),
        ("topk by (a) (3, ab)", NONE.add("ab")),
        ("histogram_quantile(0.9, sum by (a, le) (raw))", NONE.add("a")),
        ('label_replace(ab, "c", "x", "", "")', NONE.add("abc")),
        ('absent(raw{a="x", b=~"y"})', NONE.add("a")),
        ("ab / on (a) ab", NONE.add("a")),
        ("ab * on (a) group_left (c) raw", NONE.add("abc")),
        ("sum by (a) (raw) or sum by (b) (raw)", NONE.add("ab")),
        ("avg_over_time((ab)[1h:1m])", NONE.add("ab")),
    ],
)
def test_the_labels_of_a_result_are_known_from_its_expression(expression: str, wanted: Labels | None) -> None:
    assert labels(promql.parse(expression), {"ab": NONE.add("ab")}.get) == wanted
