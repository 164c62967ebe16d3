"""What the absence of a linter means: a skip by name where nothing can build it, a failure everywhere else."""

from __future__ import annotations

from pathlib import Path

import pytest

import fieldtools


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The only folder where programs are looked for."""
    monkeypatch.setattr(fieldtools, "BIN", tmp_path / "none")
    monkeypatch.setenv("PATH", str(tmp_path))
    return tmp_path


def program(path: Path) -> None:
    path.write_text("#!/bin/sh\n")
    path.chmod(0o755)


@pytest.mark.usefixtures("path")
def test_without_go_a_tool_from_go_is_skipped_by_name() -> None:
    with pytest.raises(pytest.skip.Exception, match="promtool3: there is no Go here"):
        fieldtools.tool("promtool3")


def test_with_go_a_missing_tool_fails(path: Path) -> None:
    program(path / "go")

    with pytest.raises(pytest.fail.Exception, match="promtool3 is missing although there is Go: make tools"):
        fieldtools.tool("promtool3")


@pytest.mark.usefixtures("path")
def test_a_missing_tool_of_debian_fails_with_or_without_go() -> None:
    with pytest.raises(pytest.fail.Exception, match=r"vmalert is missing: tests/debian\.sh vmalert"):
        fieldtools.tool("vmalert")


def test_what_make_tools_built_comes_before_what_is_installed(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fieldtools, "BIN", path / "bin")
    (path / "bin").mkdir()
    program(path / "promtool")
    program(path / "bin" / "promtool")

    assert fieldtools.tool("promtool") == str(path / "bin" / "promtool")
