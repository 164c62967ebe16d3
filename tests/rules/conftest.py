"""What the rule tests share: the releases of promtool, and the rendered files."""

from __future__ import annotations

from pathlib import Path

import pytest

from fieldtools import either
from promtool import REPOSITORY, Promtool, promtool

RENDERED = REPOSITORY / "rules" / "rendered"


@pytest.fixture(name="promtool", params=either("promtool", "promtool3"))
def _promtool(request: pytest.FixtureRequest) -> Promtool:
    return promtool(request.param)


@pytest.fixture
def rules() -> Path:
    return RENDERED / "specdec.rules.yaml"


@pytest.fixture
def vllm_rules() -> Path:
    return RENDERED / "specdec-vllm.rules.yaml"
