"""What the absence of a program means: a failure that says where it comes from. And a skip is a failure, too."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import fieldtools

SKIPPING = """
import pytest

@pytest.mark.skip(reason="the tool is missing")
def test_marked(): ...

def test_in_the_middle():
    pytest.skip("the package is missing")
"""
SKIPPING_AS_A_WHOLE = "import pytest; pytest.importorskip('no_such_module')"


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The only folder where programs are looked for."""
    monkeypatch.setattr(fieldtools, "BIN", tmp_path / "bin")
    monkeypatch.setattr(fieldtools, "SCHEMAS", tmp_path / "crd")
    monkeypatch.setenv("PATH", str(tmp_path))
    return tmp_path


def program(path: Path) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_text("#!/bin/sh\n")
    path.chmod(0o755)


@pytest.mark.usefixtures("path")
def test_what_is_missing_fails_and_says_where_it_comes_from() -> None:
    with pytest.raises(pytest.fail.Exception, match="promtool3 is missing: make tools"):
        fieldtools.tool("promtool3")
    with pytest.raises(pytest.fail.Exception, match=r"amtool is missing: tests/debian\.sh prometheus-alertmanager"):
        fieldtools.tool("amtool")
    with pytest.raises(pytest.fail.Exception, match=r"podmonitors\.yaml is missing: make tools"):
        fieldtools.schema_file("podmonitors.yaml")


def test_what_make_tools_built_comes_before_what_is_installed(path: Path) -> None:
    program(path / "promtool")
    assert fieldtools.tool("promtool") == str(path / "promtool")

    program(path / "bin" / "promtool")
    assert fieldtools.tool("promtool") == str(path / "bin" / "promtool")


def test_nothing_is_skipped(tmp_path: Path) -> None:
    (tmp_path / "test_some.py").write_text(SKIPPING)
    (tmp_path / "test_whole.py").write_text(SKIPPING_AS_A_WHOLE)
    command: list[str | Path] = [
        sys.executable,
        "-m",
        "pytest",
        "-p",
        "conftest",
        "--continue-on-collection-errors",
        tmp_path,
    ]

    done = subprocess.run(
        command,
        env=os.environ | {"PYTHONPATH": str(fieldtools.ROOT / "tests")},
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
    )

    assert done.returncode != 0
    assert "1 failed, 2 errors" in done.stdout
    for reason in ("the tool is missing", "the package is missing", "no_such_module"):
        assert reason in done.stdout
