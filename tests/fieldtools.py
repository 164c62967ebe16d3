"""Programs of the field that tests run: where each is, and what its absence means."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
BIN = ROOT / ".tools" / "bin"
FROM_GO = {
    "promtool3",
    "prometheus3",
    "thanos",
    "mimirtool",
    "pint",
    "jb",
    "jsonnetfmt",
    "jsonnet-lint",
    "alertmanager-current",
    "amtool-current",
    "compose-spec",
    "kustomize",
    "dashboard-linter",
}


def tool(name: str) -> str:
    """Path of a program; without it the test is skipped if it needs Go and there is none, and fails otherwise."""
    own = BIN / name
    if own.exists():
        return str(own)
    if name in FROM_GO:
        if shutil.which("go") is None:
            pytest.skip(f"{name}: there is no Go here to build it with (make tools)")
        pytest.fail(f"{name} is missing although there is Go: make tools")
    if (found := shutil.which(name)) is None:
        pytest.fail(f"{name} is missing: tests/debian.sh {name}")
    return found


def run(name: str, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
    """Run a program to its end; output and errors come as one text."""
    return subprocess.run(
        [tool(name), *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
        timeout=120,
    )
