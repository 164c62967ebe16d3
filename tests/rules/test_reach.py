"""What a run leaves out of the rules is empty in it: the whole rules give the same records and alerts."""

from __future__ import annotations

import dataclasses
from typing import Any

import promql_parser as promql
import pytest

from promtool import PromtoolError
from rules.conftest import RENDERED
from rules.reach import Reach, needed, reachable
from rules.scenario import CONTROL, NOWHERE, Case, Pack, Phase, Source, measured, pinned, rule_groups, service

SERIES = ({"__name__": "a", "sli": "tpot"}, {"__name__": "b", "sli": "ttft"})
HOUR = 3600
EVERYTHING = '{__name__=~"inference_service:.+|ALERTS"}'
MINUTES = 45


@pytest.mark.parametrize(
    ("expression", "left"),
    [
        ("a", "a"),
        ("c", "nothing"),
        ('a{sli="tpot"}', 'a{sli="tpot"}'),
        ('a{sli="ttft"}', "nothing"),
        ('a{sli=~"t.+"}', 'a{sli=~"t.+"}'),
        ('a{sli=~"t"}', "nothing"),
        ('a{pod!="x"}', 'a{pod!="x"}'),
        ('a{pod=~".+"}', "nothing"),
        ('{__name__=~"a|c"}', '{__name__=~"a|c"}'),
        ('{__name__=~"c"}', "nothing"),
        ('ALERTS{alertname="A"}', 'ALERTS{alertname="A"}'),
        ("a or c", "a"),
        ("c or a", "a"),
        ("c or c", "nothing"),
        ("a and c", "nothing"),
        ("c unless a", "nothing"),
        ("a unless c", "a"),
        ("a / c", "nothing"),
        ("1 + c", "nothing"),
        ("a * (c or b)", "a * (b)"),
        ("-sum(c)", "nothing"),
        ("sum(rate(c[5m])) or b", "b"),
        ('label_replace(c, "x", "1", "", "") or b', "b"),
        ("absent(c)", "absent(nothing)"),
        ("a > scalar(c)", "a > scalar(nothing)"),
        ("max_over_time(a[5m] offset 1h)", "max_over_time(a[5m] offset 1h)"),
        ("max_over_time(a[5m] offset 61m)", "nothing"),
        ("a offset 61m or b", "b"),
        ("max_over_time(rate(a[5m])[1h:1m] offset 61m)", "nothing"),
        ("max_over_time(rate(c[5m])[1h:1m])", "nothing"),
    ],
)
def test_what_cannot_contribute_goes(expression: str, left: str) -> None:
    assert Reach(SERIES, HOUR).simplified(expression) == promql.parse(left).prettify()


def test_a_record_can_be_read_once_its_rule_has_a_result() -> None:
    of_tpot, of_ttft = (
        {"record": "r", "expr": expr, "labels": {"sli": sli}} for expr, sli in (("a", "tpot"), ("c", "ttft"))
    )
    late = {"record": "s", "expr": 'r{pod="x",sli="tpot"}'}
    never = {"record": "t", "expr": 'r{sli="ttft"} or last_over_time(t[1h])'}
    alert = {"alert": "A", "expr": "s or t"}
    groups: list[dict[str, Any]] = [
        {"name": "g", "rules": [alert, never, late, of_tpot, of_ttft]},
        {"name": "h", "rules": [never]},
    ]

    (kept,) = reachable(groups, SERIES, HOUR)

    assert kept == {"name": "g", "rules": [{"alert": "A", "expr": "s"}, late, of_tpot]}


def test_a_record_stays_if_an_alert_its_text_or_a_question_reads_it() -> None:
    def record(name: str, expr: str) -> dict[str, Any]:
        return {"record": f"inference_service:{name}:sum", "expr": expr}

    below, read, told = record("below", "a"), record("read", "inference_service:below:sum"), record("told", "a")
    alert = {
        "alert": "A",
        "expr": read["record"],
        "annotations": {"description": f"{{{{ query `{told['record']}` }}}}"},
    }
    asked, lone = record("asked", "a"), record("lone", "inference_service:lone:sum")
    groups: list[dict[str, Any]] = [{"name": "g", "rules": [below, read, told, asked, lone, alert]}]

    assert needed(groups, [f"max({asked['record']})"]) == [{"name": "g", "rules": [below, read, told, asked, alert]}]
    assert needed(groups, [EVERYTHING]) == groups


@pytest.mark.parametrize("name", ["specdec.rules.yaml", "specdec-vllm.rules.yaml"])
def test_expressions_are_written_as_they_are_read(name: str) -> None:
    for group in rule_groups(RENDERED / name):
        for rule in group["rules"]:
            expression = promql.parse(rule["expr"])
            again = promql.parse(expression.prettify())
            assert sorted(repr(again).splitlines()) == sorted(repr(expression).splitlines())  # matchers get sorted


@pytest.mark.parametrize("source", ["exporter", "vllm"])
def test_the_whole_rules_give_the_same(source: Source, pack: Pack, vllm_pack: Pack) -> None:
    def told(pack: Pack) -> str:
        """All records and alerts at the end: promtool prints them where a test expects nothing."""
        nothing = {"expr": EVERYTHING, "eval_time": f"{MINUTES - 1}m", "exp_samples": []}
        with pytest.raises(PromtoolError) as error:
            pack._test(cases, 4, 1, promql_expr_test=[nothing])
        return str(error.value)

    few, slow = Phase(minutes=MINUTES, curve=(0.5, 0.3, 0.2)), {"tpot": ((0.03, 1.0),)}
    plain = Phase(minutes=MINUTES, latency=slow)
    compared = service(plain, families=("tpot",), source=source)
    control = service(plain, families=("tpot",), source=source, speculative=False, labels=CONTROL)
    cases = [
        Case(name="drafts", series=service(few, source=source, labels=NOWHERE)),
        Case(name="control", series=compared + control),
    ]
    if source == "exporter":
        cases.append(Case(name="baseline", series=compared + pinned(MINUTES) + measured(MINUTES, 0.8, (0.7, 0.9))))
    reached = pack if source == "exporter" else vllm_pack

    found = told(reached)

    assert all(case.prefix in found for case in cases)
    assert "ALERTS" in found
    assert found == told(dataclasses.replace(reached, whole=True))
