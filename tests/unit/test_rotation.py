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
        ("vllm.log", ["vllm-2026-11-20T21-44-52.000.log", "vllm-2026-11-20T21-44-52.100.log"]),
        ("0.log", ["0.log.20261120-214452", "0.log.20261121-000000"]),
    ],
)
def test_rotated_files_are_found_oldest_first(tmp_path: Path, base: str, oldest_first: list[str]) -> None:
    for name in [*reversed(oldest_first), base]:
        (tmp_path / name).touch()
    assert siblings(str(tmp_path / base)) == [str(tmp_path / name) for name in oldest_first]


def test_other_names_are_not_rotated_files(tmp_path: Path) -> None:
    for name in ("vllm.log.1.gz", "vllm.log.bak", "vllm.log~", "vllm.log.12345", "vllm.log.", "vllm-8001.log"):
        (tmp_path / name).touch()
    for name in ("vllm.1.log", "xvllm.log.1", "vllm.log-20261120.gz", "vllm20261120.log", "other.log.1"):
        (tmp_path / name).touch()
    assert siblings(str(tmp_path / "vllm.log")) == []


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
