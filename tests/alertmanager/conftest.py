"""What the Alertmanager tests share: the oldest release that is promised, and the newest that is pinned."""

from __future__ import annotations

import dataclasses
import subprocess
from pathlib import Path

import pytest

from support.fieldtools import either, run, tool


@dataclasses.dataclass(frozen=True, slots=True)
class Release:
    """One release of Alertmanager: the names of its two programs."""

    amtool_name: str
    server_name: str

    def amtool(self, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
        return run(self.amtool_name, *arguments)

    @property
    def server(self) -> str:
        return tool(self.server_name)


FLOOR = Release("amtool", "prometheus-alertmanager")
RELEASES = either(FLOOR, Release("amtool-current", "alertmanager-current"))


@pytest.fixture(params=RELEASES)
def release(request: pytest.FixtureRequest) -> Release:
    chosen: Release = request.param
    return chosen
