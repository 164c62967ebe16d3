"""What the rule tests share: the releases of promtool, the sources, and the rendered rules."""

from __future__ import annotations

from pathlib import Path

import pytest

from rules.scenario import Groups, Pack, Source, rule_groups
from support.fieldtools import either
from support.promtool import REPOSITORY, Promtool, promtool

RENDERED = REPOSITORY / "rules" / "rendered"
FILES: dict[Source, str] = {"exporter": "specdec.rules.yaml", "vllm": "specdec-vllm.rules.yaml"}


def rendered(source: Source) -> Groups:
    return rule_groups(RENDERED / FILES[source])


@pytest.fixture(name="promtool", params=either("promtool", "promtool3"))
def _promtool(request: pytest.FixtureRequest) -> Promtool:
    return promtool(request.param)


@pytest.fixture(params=FILES)
def source(request: pytest.FixtureRequest) -> Source:
    found: Source = request.param
    return found


@pytest.fixture
def pack(promtool: Promtool, tmp_path: Path) -> Pack:
    return Pack(promtool, rendered("exporter"), tmp_path)


@pytest.fixture
def vllm_pack(promtool: Promtool, tmp_path: Path) -> Pack:
    """The rules that read vLLM's own metrics."""
    return Pack(promtool, rendered("vllm"), tmp_path)


@pytest.fixture
def either_pack(source: Source, promtool: Promtool, tmp_path: Path) -> Pack:
    """The rules of one source after the other."""
    return Pack(promtool, rendered(source), tmp_path)
