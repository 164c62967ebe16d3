"""Names and order of rotated files."""

from __future__ import annotations

from pathlib import Path

import pytest

from specdec_exporter.predictor.sources.rotation import base_of, siblings


@pytest.mark.parametrize(
    ("base", "oldest_first"),
    [
        ("vllm.log", ["vllm.log.10", "vllm.log.9", "vllm.log.2", "vllm.log.1"]),
        ("vllm.log", ["vllm.log-20261119", "vllm.log-20261120"]),
        ("vllm.log", ["vllm.log.2026-11-19_23-59-59", "vllm.log.2026-11-20_00-00-00"]),
        ("vllm.log", ["vllm-20261120-9.log", "vllm-20261120-10.log"]),
        ("vllm.log", ["vllm-2026-11-20T21-44-52.000.log", "vllm-2026-11-20T21-44-52.100.log"]),
        ("0.log", ["0.log.20261120-214452", "0.log.20261121-000000"]),
        ("log", ["log.2", "log.1"]),
    ],
)
def test_rotated_files_are_found_oldest_first(tmp_path: Path, base: str, oldest_first: list[str]) -> None:
    for name in [*reversed(oldest_first), base]:
        (tmp_path / name).touch()
    assert siblings(str(tmp_path / base)) == [str(tmp_path / name) for name in oldest_first]


@pytest.mark.parametrize(
    "name",
    [
        "vllm.log.1.gz",
        "vllm.log.bak",
        "vllm.log.1.tmp",
        "vllm.log~",
        "vllm.log.12345",
        "vllm.log.",
        "vllm-8001.log",
        "vllm.1.log",
        "xvllm.log.1",
        "vllm.log-20261120.gz",
        "vllm20261120.log",
        "other.log.1",
    ],
)
def test_other_names_are_not_rotated_files(tmp_path: Path, name: str) -> None:
    (tmp_path / name).touch()
    assert siblings(str(tmp_path / "vllm.log")) == []


def test_names_are_relative_where_the_path_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("vllm.log.1").touch()
    assert siblings("vllm.log") == ["vllm.log.1"]
    assert siblings("nowhere/vllm.log") == []


@pytest.mark.parametrize(
    ("path", "base"),
    [
        ("/x/vllm.log.1", "/x/vllm.log"),
        ("/x/0.log.20261120-214452", "/x/0.log"),
        ("/x.1/vllm.log", None),
        ("/x/.1", None),
        ("vllm.log-20261120", "vllm.log"),
        ("vllm.log", None),
    ],
)
def test_the_base_of_a_rotated_name(path: str, base: str | None) -> None:
    assert base_of(path) == base
