"""Each check of our own finds what it is for, and is content with the same thing done right."""

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
    "an unknown severity": (rulelint.names, [alert("running > 1", severity="page")], "severity 'page'"),
    "a templated summary": (rulelint.names, [alert("running > 1", summary="Low at {{ $value }}.")], "static"),
    "a missing runbook": (rulelint.names, [alert("running > 1", runbook_url="")], "no runbook_url"),
    "a description without numbers": (rulelint.names, [alert("running > 1", description="Low.")], "no number"),
    "a group too large": (rulelint.names, [RATE] * 21, "21 rules"),
    "a label that was summed away": (
        rulelint.templates,
        [alert("sum by (service) (running) > 1", description="{{ $labels.model }}")],
        "prints model",
    ),
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
    "a misspelt family": (rulelint.existing, [record('sum({__name__=~"vllm[:_]draft_total"})')], "nobody"),
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
    "a slope of a counter": (ranges, [record("deriv(drafts_total[5m])")], "deriv() of the counter drafts_total"),
    "a rate of a rate": (ranges, [RATE, record("rate(service:drafts:rate5m[1h])")], "hides resets"),
    "a range of one scrape": (ranges, [record("rate(drafts_total[2m])")], "does not survive a lost scrape"),
    "a range of one evaluation": (
        ranges,
        [RATE, record("max_over_time(service:drafts:rate5m[1m])")],
        "less than two samples of 60 s",
    ),
    "a record read before it is made": (rulelint.order, [record("service:drafts:rate5m / 2"), RATE], "below it"),
}
RIGHT: dict[str, tuple[Check, list[Rule]]] = {
    "names": (rulelint.names, [RATE, alert("running > 1")]),
    "a label that was kept": (
        rulelint.templates,
        [LOAD, alert("service:running:sum > 1", description="{{ $labels.model }} {{ $labels.of }} {{ $value }}")],
    ),
    "a query of a record": (
        rulelint.templates,
        [RATE, alert("running > 1", description='{{ query "service:drafts:rate5m" }}')],
    ),
    "a label from the other side": (
        rulelint.templates,
        [RATE, alert("running > on (service) group_left (k) service:drafts:rate5m", description="{{ $labels.k }}")],
    ),
    "buckets": (rulelint.existing, [record("rate(latency_seconds_bucket[5m])")]),
    "every spelling": (rulelint.existing, [record('sum({__name__=~"(ray_)?vllm[:_]drafts(_total)?"})')]),
    "a missing label": (rulelint.matchers, [RATE, record('service:drafts:rate5m{model=""}')]),
    "sides of one level": (
        rulelint.matches,
        [RATE, LOAD, record("service:drafts:rate5m / sum by (service) (service:running:sum)")],
    ),
    "a match on less": (
        rulelint.matches,
        [RATE, LOAD, record("service:running:sum / on (service) group_left () service:drafts:rate5m")],
    ),
    "ranges": (ranges, [RATE, record("deriv(running[10m])"), record("max_over_time(service:drafts:rate5m[1h])")]),
    "a record read after it is made": (rulelint.order, [RATE, record("service:drafts:rate5m / 2")]),
    "a record's own past": (
        rulelint.order,
        [record("avg_over_time(service:drafts:rate5m[1d])"), RATE],
    ),
}


@pytest.mark.parametrize("case", WRONG)
def test_a_check_finds(case: str, findings: Callable[..., list[str]]) -> None:
    check, rules, wanted = WRONG[case]

    assert [finding for finding in findings(check, rules) if wanted in finding]


@pytest.mark.parametrize("case", RIGHT)
def test_a_check_is_content_with(case: str, findings: Callable[..., list[str]]) -> None:
    check, rules = RIGHT[case]

    assert findings(check, rules) == []


def test_an_instant_selector_misses_what_is_recorded_every_hour(findings: Callable[..., list[str]]) -> None:
    ranged = [RATE, record("max_over_time(service:drafts:rate5m[1d])")]

    assert findings(ranges, ranged, interval="1h") == []
    assert "an instant selector misses" in findings(ranges, [RATE, record("service:drafts:rate5m")], interval="1h")[0]


@pytest.mark.parametrize(
    ("expression", "wanted"),
    [
        ("raw", ANY),
        ("time()", None),
        ("vector(1)", NONE),
        ("sum(raw)", NONE),
        ("sum by (a, b) (raw)", NONE.add("ab")),
        ("sum without (a) (raw)", ANY.drop("a")),
        ("max without (a) (ab)", NONE.add("b")),
        ("topk by (a) (3, ab)", NONE.add("ab")),
        ('count_values("v", ab)', NONE.add("v")),
        ("histogram_quantile(0.9, sum by (a, le) (raw))", NONE.add("a")),
        ('label_replace(ab, "c", "x", "", "")', NONE.add("abc")),
        ('absent(raw{a="x", b=~"y"})', NONE.add("a")),
        ("ab / on (a) ab", NONE.add("a")),
        ("ab / ignoring (b) ab", NONE.add("a")),
        ("ab * on (a) group_left (c) raw", NONE.add("abc")),
        ("raw * on (a) group_right (c) ab", NONE.add("abc")),
        ("ab and raw", NONE.add("ab")),
        ("sum by (a) (raw) or sum by (b) (raw)", NONE.add("ab")),
        ("2 * ab > 1", NONE.add("ab")),
        ("avg_over_time((ab)[1h:1m])", NONE.add("ab")),
    ],
)
def test_the_labels_of_a_result_are_known_from_its_expression(expression: str, wanted: Labels | None) -> None:
    assert labels(promql.parse(expression), {"ab": NONE.add("ab")}.get) == wanted


def test_rules_that_read_each_other_have_each_other_s_labels(tmp_path: Path) -> None:
    rules = [record("service:b:sum or sum by (x) (raw)", "service:a:sum"), record("service:a:sum", "service:b:sum")]
    (tmp_path / "rules.yaml").write_text(yaml.safe_dump({"groups": [{"name": "loop", "rules": rules}]}))

    known = rulelint.recorded_labels(rulelint.load(tmp_path / "rules.yaml", TYPES))

    assert known == dict.fromkeys(("service:a:sum", "service:b:sum"), NONE.add("x"))


@pytest.mark.parametrize(
    ("text", "wanted"), [("30s", 30), ("5m", 300), ("1h30m", 5400), ("7d", 604800), ("1ms", 0.001)]
)
def test_durations_are_seconds(text: str, wanted: float) -> None:
    assert rulelint.seconds(text) == wanted
