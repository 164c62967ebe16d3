"""The page about metrics: its tables are rendered from the code, and its prose names nothing else."""

from __future__ import annotations

import pkgutil
import re
from importlib import import_module
from pathlib import Path

import pytest
import yaml

import metrictables
from specdec_exporter.serving import families
from specdec_exporter.serving.families.family import Family, Group
from support.fieldtools import run

DOCS = Path(__file__).parents[2] / "docs"
MODULES = [import_module(f"{families.__name__}.{module.name}") for module in pkgutil.iter_modules(families.__path__)]
GROUPS = [group for module in MODULES for group in vars(module).values() if isinstance(group, Group)]
GROUPS.append(metrictables.CLIENT)
SERVED: list[Family[object]] = [family for group in GROUPS for family in group.families]


def test_a_family_is_defined_once_and_every_family_has_its_row() -> None:
    names = [family.name for family in SERVED]
    assert len(set(names)) == len(names)
    assert sorted(map(id, (group for _, groups in metrictables.FAMILIES.values() for group in groups))) == sorted(
        map(id, GROUPS)
    )


@pytest.mark.parametrize("page", ["metrics.md", "configuration.md"])
def test_no_metric_is_mentioned_that_is_not_served(page: str) -> None:
    parts = {"counter": ("",), "gauge": ("",), "histogram": ("", "_bucket", "_sum", "_count")}
    series = {family.name + part for family in SERVED for part in parts[family.type]}
    assert set(re.findall(r"\bspecdec_\w+", (DOCS / page).read_text())) <= series


@pytest.mark.debian
def test_promtool_understands_every_example(tmp_path: Path) -> None:
    examples = re.findall(r"^```promql\n(.*?)^```$", (DOCS / "metrics.md").read_text(), re.MULTILINE | re.DOTALL)
    assert len(examples) >= 3
    rules = [{"record": f"example:{index}:", "expr": expression} for index, expression in enumerate(examples)]
    path = tmp_path / "rules.yaml"
    path.write_text(yaml.safe_dump({"groups": [{"name": "examples", "rules": rules}]}))
    checked = run("promtool", "check", "rules", path)
    assert checked.returncode == 0, checked.stdout
