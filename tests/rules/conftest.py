"""What the rule tests share: each release of promtool that is at hand, and the rendered files."""

from __future__ import annotations

from pathlib import Path

import pytest

from promtool import REPOSITORY, Promtool, installed

RENDERED = REPOSITORY / "rules" / "rendered"


@pytest.fixture(params=[tool for _, tool in installed()], ids=[name for name, _ in installed()])
def promtool(request: pytest.FixtureRequest) -> Promtool:
    tool: Promtool = request.param
    return tool


@pytest.fixture
def rules() -> Path:
    return RENDERED / "specdec.rules.yaml"


@pytest.fixture
def vllm_rules() -> Path:
    return RENDERED / "specdec-vllm.rules.yaml"
