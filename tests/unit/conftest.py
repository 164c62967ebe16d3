"""What most tests of the tailer begin with: a log of one old line, and a reader that stands at its end."""

from __future__ import annotations

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
