"""What the rule tests share: the releases of promtool, and the rendered files."""

from __future__ import annotations

from pathlib import Path

import pytest

from fieldtools import either
from promtool import REPOSITORY, Promtool, promtool
from rules.scenario import Pack

RENDERED = REPOSITORY / "rules" / "rendered"


@pytest.fixture(name="promtool", params=either("promtool", "promtool3"))
def _promtool(request: pytest.FixtureRequest) -> Promtool:
    return promtool(request.param)


@pytest.fixture
def rules() -> Path:
    return RENDERED / "specdec.rules.yaml"


@pytest.fixture
def pack(promtool: Promtool, rules: Path, tmp_path: Path) -> Pack:
    return Pack(promtool, rules, tmp_path)


@pytest.fixture
def vllm_pack(promtool: Promtool, tmp_path: Path) -> Pack:
    """The rules that read vLLM's own metrics."""
    return Pack(promtool, RENDERED / "specdec-vllm.rules.yaml", tmp_path)
