"""The rendered files are what the sources say, load, and keep the promises that every alert makes."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import rjsonnet

import yamltext
from fieldtools import run
from promtool import REPOSITORY
from rules.conftest import RENDERED

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
    done = subprocess.run(
        [sys.executable, str(REPOSITORY / "tools" / "render.py"), "--check"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert not done.returncode, done.stderr


@pytest.mark.field
@pytest.mark.parametrize("field", ["prometheusRules", "prometheusAlerts", "grafanaDashboards", "specdecAlertmanager"])
def test_go_jsonnet_renders_the_same(field: str) -> None:
    """Most people render with it; it takes ten times as long as what renders here."""
    snippet = f"(import 'mixin.libsonnet').{field}"
    answer = run("jsonnet", "--jpath", REPOSITORY, "--exec", snippet)

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
    def recorded(name: str) -> list[tuple[str, str]]:
        return sorted((rule["record"], str(rule.get("labels"))) for rule in rules_of(name) if "record" in rule)

    # Only the exporter knows the load of its baseline.
    by_exporter = ("inference_service:specdec_speedup:ratio30m", "{'speedup_source': 'like_load'}")
    assert recorded("specdec.rules.yaml") == sorted([*recorded("specdec-vllm.rules.yaml"), by_exporter])


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
        assert re.fullmatch(r"[A-Z][^{}]*\.", alert["annotations"]["summary"])
        assert "{{" in alert["annotations"]["description"]
        assert not [one for one in ("impact", "action", "runbook_url") if "{{" in alert["annotations"][one]]


def test_names_of_vllm_appear_only_in_one_source_file() -> None:
    speaking = {
        path.name
        for path in (REPOSITORY / "rules").rglob("*.libsonnet")
        if "vllm[:_]" in path.read_text(encoding="utf-8")
    }
    assert speaking == {"sources.libsonnet"}


def test_the_mixin_renders_from_a_vendor_folder_with_overrides(tmp_path: Path) -> None:
    """As Jsonnet Bundler makes it: this repository under its own name, and no other."""
    (tmp_path / "specdec-exporter").symlink_to(REPOSITORY)
    snippet = """
        local mixin = (import 'specdec-exporter/mixin.libsonnet') + { _config+:: { source: 'vllm' } };
        mixin.prometheusRules.groups + mixin.prometheusAlerts.groups
    """
    found = json.loads(rjsonnet.evaluate_snippet("test", snippet, jpathdir=[str(tmp_path)]))

    assert found == groups("specdec-vllm.rules.yaml")
    assert json.loads((REPOSITORY / "jsonnetfile.json").read_text(encoding="utf-8"))["dependencies"] == []
