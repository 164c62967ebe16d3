"""What most tests of the log's readers begin with."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
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
