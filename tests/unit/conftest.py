"""What most tests of the log's readers begin with, and golden files."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from logfiles import Log, Reader


@pytest.fixture
def log(tmp_path: Path) -> Log:
    log = Log(tmp_path / "vllm.log")
    log.write("before")
    return log


@pytest.fixture
def reader(log: Log) -> Reader:
    reader = Reader(log.path)
    assert reader.read() == []
    return reader


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    reading, writing = os.pipe()
    yield reading, writing
    for fd in (reading, writing):
        with contextlib.suppress(OSError):
            os.close(fd)


@pytest.fixture
def golden(pytestconfig: pytest.Config) -> Callable[[str, str], None]:
    """Compare a text with that of this name in tests/golden; with ``--update-golden``, write it there."""

    def compare(name: str, text: str) -> None:
        path = Path(__file__).parents[1] / "golden" / f"{name}.txt"
        if pytestconfig.getoption("--update-golden"):
            path.write_text(text, encoding="utf-8")
        assert text == path.read_text(encoding="utf-8")

    return compare
