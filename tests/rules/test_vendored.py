"""The mixin renders from a ``vendor`` folder, as Jsonnet Bundler makes it, what the repository has rendered."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import rjsonnet

import yamltext
from fieldtools import ROOT

NAME = "specdec-exporter"


@pytest.fixture
def vendor(tmp_path: Path) -> Path:
    """The ``vendor`` folder of a project as ``jb install`` leaves it: this repository under its own name."""
    (tmp_path / NAME).symlink_to(ROOT)
    return tmp_path


def evaluated(vendor: Path, config: str) -> Any:
    """Rules, dashboards and Alertmanager configuration of the vendored mixin with a ``_config``."""
    snippet = f"""
        local mixin = (import '{NAME}/mixin.libsonnet') + {{ _config+:: {config} }};
        {{
          groups: mixin.prometheusRules.groups + mixin.prometheusAlerts.groups,
          dashboards: mixin.grafanaDashboards,
          alertmanager: mixin.specdecAlertmanager.example,
        }}
    """
    return json.loads(rjsonnet.evaluate_snippet("test", snippet, jpathdir=[str(vendor)]))


def in_yaml(path: str) -> Any:
    return yamltext.load((ROOT / path).read_text(encoding="utf-8"))


def test_what_the_vendored_mixin_renders_is_what_is_committed(vendor: Path) -> None:
    mixin = evaluated(vendor, "{}")

    assert mixin["groups"] == in_yaml("rules/rendered/specdec.rules.yaml")["groups"]
    assert mixin["alertmanager"] == in_yaml("alertmanager/rendered/alertmanager.yaml")
    assert mixin["dashboards"] == {
        file.name: json.loads(file.read_text(encoding="utf-8")) for file in (ROOT / "dashboards/rendered").iterdir()
    }


def test_the_vendored_mixin_takes_overrides(vendor: Path) -> None:
    groups = evaluated(vendor, "{ source: 'vllm' }")["groups"]

    assert groups == in_yaml("rules/rendered/specdec-vllm.rules.yaml")["groups"]


def test_the_mixin_needs_no_other_repository() -> None:
    assert json.loads((ROOT / "jsonnetfile.json").read_text(encoding="utf-8"))["dependencies"] == []
