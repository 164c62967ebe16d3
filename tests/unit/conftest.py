"""What most tests of the log's readers begin with, and golden files."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from specdec_exporter.predictor.log.counters import ReaderCounters
from specdec_exporter.predictor.metrics.fetch import open_session
from specdec_exporter.state.record import PredictorState
from support.builders import Clock
from support.logfiles import Log, Reader


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
def clock() -> Clock:
    return Clock()


@pytest.fixture
def state(clock: Clock) -> PredictorState:
    return PredictorState("svc", reader=ReaderCounters(), clock=clock.monotonic, wall_clock=clock.wall)


@pytest.fixture
async def session() -> AsyncIterator[aiohttp.ClientSession]:
    async with open_session() as opened:
        yield opened


@pytest.fixture
def golden(pytestconfig: pytest.Config) -> Callable[[str, str], None]:
    """Compare a text with that of this name in tests/golden; with ``--update-golden``, write it there."""

    def compare(name: str, text: str) -> None:
        path = Path(__file__).parents[1] / "golden" / f"{name}.txt"
        if pytestconfig.getoption("--update-golden"):
            path.write_text(text, encoding="utf-8")
        assert text == path.read_text(encoding="utf-8")

    return compare


@pytest.fixture
def write(tmp_path: Path) -> Any:
    """Write results into a file, as ``--append-result`` does, and return its path."""

    def to(name: str, *documents: Any) -> Path:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("\n".join(map(json.dumps, documents)))
        return path

    return to
