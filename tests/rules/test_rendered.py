"""The rendered files are what the sources say, load, and keep the promises that every alert makes."""

from __future__ import annotations

import json
import re
import shutil
import statistics
import sys
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import rjsonnet

from rules.conftest import RENDERED
from rules.scenario import evaluated
from specdec_exporter.state.problems import PROBLEMS
from support import yamltext
from support.fieldtools import run
from support.processes import said
from support.promtool import REPOSITORY
from support.rulelint import records

FILES = ("specdec.rules.yaml", "specdec-vllm.rules.yaml", "specdec.compat.rules.yaml")
ANNOTATIONS = {"summary", "description", "impact", "action", "runbook_url", "dashboard_url"}


@cache
def groups(name: str) -> list[dict[str, Any]]:
    document = yamltext.load((RENDERED / name).read_text(encoding="utf-8"))
    found: list[dict[str, Any]] = document.get("spec", document)["groups"]
    return found


def rules_of(name: str) -> list[dict[str, Any]]:
    return [rule for group in groups(name) for rule in group["rules"]]


def alerts_of(name: str) -> list[dict[str, Any]]:
    return [rule for rule in rules_of(name) if "alert" in rule]


def test_the_committed_files_are_what_the_sources_say() -> None:
    said(sys.executable, REPOSITORY / "tools" / "render.py", "--check")


@pytest.mark.field
@pytest.mark.parametrize("jsonnet", ["jsonnet", "jsonnet-current"])
@pytest.mark.parametrize("field", ["prometheusRules", "prometheusAlerts", "grafanaDashboards", "specdecAlertmanager"])
def test_the_fields_jsonnet_renders_the_same(jsonnet: str, field: str) -> None:
    """Debian's 0.18 is the oldest: as in mixtool's go-jsonnet 0.20, a format fails there that ours knows."""
    snippet = f"(import 'mixin/mixin.libsonnet').{field}"
    answer = run(jsonnet, "--jpath", REPOSITORY, "--exec", snippet)

    assert answer.returncode == 0, answer.stdout
    assert json.loads(answer.stdout) == json.loads(rjsonnet.evaluate_snippet("", snippet, jpathdir=[str(REPOSITORY)]))


def test_the_operators_object_has_the_same_rules() -> None:
    assert groups("specdec.prometheusrule.yaml") == groups("specdec.rules.yaml")


def test_the_compatible_file_differs_in_nothing_but_keep_firing_for() -> None:
    def without(rule: dict[str, Any]) -> dict[str, Any]:
        return {key: value for key, value in rule.items() if key != "keep_firing_for"}

    assert rules_of("specdec.compat.rules.yaml") == [without(rule) for rule in rules_of("specdec.rules.yaml")]
    assert any("keep_firing_for" in rule for rule in rules_of("specdec.rules.yaml"))


def test_both_sources_record_the_same_names() -> None:
    def recorded(name: str) -> set[str]:
        return {rule["record"] for rule in rules_of(name) if "record" in rule}

    # Only the exporter judges.
    judged = {"inference_service:specdec_verdict:tokens"}
    assert recorded("specdec.rules.yaml") == recorded("specdec-vllm.rules.yaml") | judged


# --- At 3 am ----------------------------------------------------------------------------------------------------------


def chain(rule: dict[str, Any], rules: list[dict[str, Any]]) -> list[str]:
    """The lines that tell why a rule holds: its expression, then those of all records below it, down to raw series."""
    found: dict[str, list[str]] = {}
    wanted = records(rule["expr"])
    while wanted:
        name = min(wanted)
        own = [each["expr"] for each in rules if each.get("record") == name]
        assert own, name
        found[name] = own
        wanted = (wanted | set().union(*map(records, own))) - found.keys()
    return [line for each in [[rule["expr"]], *found.values()] for text in each for line in text.strip().splitlines()]


@pytest.mark.parametrize("name", FILES)
def test_an_alert_can_be_read_back_to_raw_series(name: str) -> None:
    lengths = [len(chain(alert, rules_of(name))) for alert in alerts_of(name)]

    assert max(lengths) <= 60
    assert statistics.median(lengths) <= 10
    assert max(len(rule["expr"]) for rule in rules_of(name)) <= 650
    assert not [rule for rule in rules_of(name) if "ALERTS" in rule["expr"]]


@pytest.mark.parametrize("name", FILES)
def test_the_pack_is_small(name: str) -> None:
    alerts = alerts_of(name)

    assert len(rules_of(name)) - len(alerts) <= 38
    assert len(alerts) <= 24
    assert len({alert["alert"] for alert in alerts}) <= 12
    assert len(evaluated("std.objectFields(mixin._config)")) <= 30


@pytest.mark.parametrize("name", FILES)
def test_texts_are_short(name: str) -> None:
    """Of what a template prints, a word is left here."""
    for alert in alerts_of(name):
        shown = {what: re.sub(r"{{.*?}}", "X", text) for what, text in alert["annotations"].items()}
        assert "inference_service" in alert["annotations"]["summary"]
        assert len(re.findall(r"[.:](?:\s|$)", shown["description"])) <= 8, shown["description"]
        assert len(shown["action"].split()) <= 45


@pytest.mark.parametrize("name", FILES)
def test_records_are_named_by_level_quantity_and_operation(name: str) -> None:
    for rule in rules_of(name):
        assert "alert" in rule or re.fullmatch(r"inference_service:specdec_[a-z_]+:[a-z0-9_]+", rule["record"])


@pytest.mark.parametrize("name", FILES)
def test_groups_alerts_and_annotations_are_the_packs_own(name: str) -> None:
    for group in groups(name):
        assert re.fullmatch(r"specdec-[a-z-]{1,32}", group["name"])
        assert len(group["rules"]) <= 20  # Mimir's default limit
    for alert in alerts_of(name):
        assert re.fullmatch(r"SpecDecode([A-Z]+[a-z0-9]+){1,6}", alert["alert"])
        assert alert["labels"]["component"] == "specdec"
        assert alert["labels"]["severity"] in {"critical", "warning", "info"}
        assert set(alert["annotations"]) == ANNOTATIONS
        assert all(alert["annotations"].values())
        assert alert["annotations"]["summary"].endswith(".")
        assert not [one for one in ("impact", "action", "runbook_url") if "{{" in alert["annotations"][one]]


def test_names_of_vllm_appear_only_in_one_source_file() -> None:
    speaking = {
        path.name
        for path in (REPOSITORY / "mixin").rglob("*.libsonnet")
        if "spec_decode_num" in path.read_text(encoding="utf-8")
    }
    assert speaking == {"series.libsonnet"}


def test_each_problem_that_an_exporter_sees_is_said_in_words() -> None:
    (rule,) = (each for each in alerts_of("specdec.rules.yaml") if "specdec_data_problem" in each["expr"][:80])
    said = set(re.findall(r'eq \$labels\.reason "(\w+)"', rule["annotations"]["summary"]))

    assert said == {*PROBLEMS, "baselines_differ"}


# --- As a mixin -------------------------------------------------------------------------------------------------------


def test_the_folder_renders_alone_with_overrides(tmp_path: Path) -> None:
    """As Jsonnet Bundler makes it: the folder under its own name, and no other."""
    shutil.copytree(REPOSITORY / "mixin", tmp_path / "mixin")
    snippet = """
        local mixin = (import 'mixin/mixin.libsonnet') + { _config+:: { source: 'vllm' } };
        mixin.prometheusRules.groups + mixin.prometheusAlerts.groups
    """
    found = json.loads(rjsonnet.evaluate_snippet("test", snippet, jpathdir=[str(tmp_path)]))

    assert found == groups("specdec-vllm.rules.yaml")
    assert json.loads((REPOSITORY / "mixin/jsonnetfile.json").read_text(encoding="utf-8"))["dependencies"] == []


def test_an_overridden_signal_is_what_rules_and_alerts_have() -> None:
    other = "{ acceptance+: { record: 'inference_service:mine:ratio', expr: 'mine' } }"
    mixin = f"local m = (import 'mixin/mixin.libsonnet') + {{ _signals+:: {other} }}"
    snippet = f"{mixin}; [m.prometheusRules, m.prometheusAlerts]"
    found = json.loads(rjsonnet.evaluate_snippet("test", snippet, jpathdir=[str(REPOSITORY)]))

    recorded, alerts = ([rule for group in part["groups"] for rule in group["rules"]] for part in found)
    assert {"record": "inference_service:mine:ratio", "expr": "mine"} in recorded
    assert "inference_service:specdec_acceptance:ratio30m" not in str(alerts)
    assert "inference_service:mine:ratio < " in str(alerts)
