"""Every YAML file of deploy/ is one, and its documents name every variable."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from deploy.manifests import DEPLOY, files, parse


def title(path: Path) -> str:
    return str(path.relative_to(DEPLOY))


@pytest.mark.parametrize("file", files(), ids=title)
def test_it_is_yaml_without_a_key_twice(file: Path) -> None:
    assert parse(file.read_text(encoding="utf-8"))


def test_the_compose_readme_names_every_variable() -> None:
    used = set(re.findall(r"\$\{(\w+)", (DEPLOY / "compose/compose.yaml").read_text(encoding="utf-8")))

    named = set(re.findall(r"`([A-Z_]{6,})`", (DEPLOY / "compose/README.md").read_text(encoding="utf-8")))

    assert used
    assert used <= named
