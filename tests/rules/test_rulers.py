"""The pack for rulers that are not a Prometheus of one's own: what each leaves out, and what it makes of the rules."""

from __future__ import annotations

import copy
import dataclasses
import re
from typing import Any

import promql_parser as promql
import pytest

from rules.conftest import RENDERED, rendered
from rules.scenario import Case, Groups, Pack, Phase, Series, Source, evaluated, rule_groups, service
from support.fieldtools import ROOT

PAGE = ROOT / "docs" / "load-the-pack.md"
GOOGLES_FIELDS = {"record", "alert", "expr", "for", "labels", "annotations"}
NAMESPACE = 'namespace="prod"'


def rules_of(groups: Groups) -> list[dict[str, Any]]:
    return [rule for group in groups for rule in group["rules"]]


def alerts_of(groups: Groups) -> list[dict[str, Any]]:
    return [rule for rule in rules_of(groups) if "alert" in rule]


@pytest.mark.parametrize(("field", "kind"), [("clusterRules", "ClusterRules"), ("rules", "Rules")])
def test_googles_objects_are_the_compatible_rules(field: str, kind: str) -> None:
    found = evaluated(f"mixin.specdecRules.{field}")

    assert (found["apiVersion"], found["kind"]) == ("monitoring.googleapis.com/v1", kind)
    assert found["spec"]["groups"] == rule_groups(RENDERED / "specdec.compat.rules.yaml")
    # The definition of both kinds (prometheus-engine 0.17) has these fields, and the API server refuses others.
    assert {key for rule in rules_of(found["spec"]["groups"]) for key in rule} <= GOOGLES_FIELDS


def test_google_gets_no_names_that_are_regular_expressions() -> None:
    """Its evaluator would refuse the query, and say so in its log only."""
    with pytest.raises(RuntimeError, match="set vllm_prefix"):
        evaluated("mixin.specdecRules.rules", "{ source: 'vllm' }")


def test_google_gets_the_rules_for_vllms_own_metrics_with_a_plain_prefix() -> None:
    found = evaluated("mixin.specdecRules.rules", "{ source: 'vllm', vllm_prefix: 'vllm:' }")

    expressions = [promql.parse(rule["expr"]).prettify() for rule in rules_of(found["spec"]["groups"])]
    assert "__name__" not in str(expressions)
    assert "vllm:spec_decode_num_draft_tokens_total" in str(expressions)


def test_grafana_gets_the_same_rules_with_descriptions_that_query_nothing() -> None:
    """Its templates lack the function, and an annotation with it would be an error text."""
    found = {"grafana": evaluated("mixin.specdecRules.grafana")["groups"], "all": rendered("exporter")}
    found = copy.deepcopy(found)
    told = {
        name: [alert["annotations"].pop(what) for alert in alerts_of(groups) for what in ("summary", "description")]
        for name, groups in found.items()
    }

    assert found["grafana"] == found["all"]
    assert "| query" not in str([found["grafana"], told["grafana"]])
    for own, full in zip(told["grafana"], told["all"], strict=True):
        assert own == full or ("| query" in full and "$labels.inference_service" in own)


# --- The operator's enforcedNamespaceLabel ---------------------------------------------------------------------------


def enforced(groups: Groups) -> Groups:
    """The rules of an object in the namespace `prod`, as the operator rewrites them: every selector, and the labels."""
    groups = copy.deepcopy(groups)
    for rule in rules_of(groups):
        rule["expr"] = promql.transform(promql.parse(rule["expr"]), post_visit=_selected).prettify()
        rule["labels"] = {**rule.get("labels", {}), "namespace": "prod"}
    return groups


def _selected(expr: promql.Expr) -> promql.Expr | None:
    if not isinstance(expr, promql.VectorSelector):
        return None
    name, rest = expr.name or "", expr.prettify().removeprefix(expr.name or "")
    braces = f"{{{NAMESPACE}, {rest[1:]}" if rest.startswith("{") else f"{{{NAMESPACE}}}{rest}"
    return promql.parse(name + braces)


def moved(series: list[Series], namespace: str) -> list[Series]:
    """The operator adds the label to everything that is scraped, `up` as well."""
    return [dataclasses.replace(one, labels={**one.labels, "namespace": namespace}) for one in series]


def test_rules_of_one_namespace_see_that_namespace_alone(either_pack: Pack, source: Source) -> None:
    low = service(Phase(minutes=45, curve=(0.3, 0.1, 0.0)), source=source, method=None)
    down = service(Phase(minutes=8), Phase(minutes=16, up=False), source=source)

    cases = [
        Case(name="down", series=moved(down, "prod"), firing={22: {"SpecDecodeTargetDown critical"}}),
        Case(name="down elsewhere", series=moved(down, "dev"), firing={22: set()}),
    ]
    if source == "exporter":  # above the raw series, both sources have the same rules
        cases += [
            Case(name="low", series=moved(low, "prod"), firing={44: {"SpecDecodeAcceptanceLow warning low"}}),
            Case(name="low elsewhere", series=moved(low, "dev"), firing={44: set()}),
        ]

    dataclasses.replace(either_pack, groups=enforced(either_pack.groups)).run(*cases)


# --- The page --------------------------------------------------------------------------------------------------------


def test_the_commands_of_the_page_render_rules() -> None:
    commands = re.findall(r'^jsonnet -J \. -e "(.+)"', PAGE.read_text(encoding="utf-8"), re.MULTILINE)

    assert commands
    for command in commands:
        found = evaluated(command)
        assert found.get("spec", found)["groups"]
