"""What most tests of the log's readers begin with, and the scanner with and without its compiled lane."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from logfiles import Log, Reader
from specdec_exporter.predictor.log import fastline, scan, search


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


@pytest.fixture(scope="session")
def uncompiled() -> ModuleType:
    """The module ``fastline`` as it is where there was no C compiler."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, f"{fastline.__package__}._fastline", None)
        spec = importlib.util.find_spec(fastline.__name__)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    return module


@pytest.fixture(params=["compiled", "uncompiled"], scope="module")
def both_lanes(request: pytest.FixtureRequest, uncompiled: ModuleType) -> Iterator[None]:
    """Every test of the module runs with the compiled lane and without it."""
    with pytest.MonkeyPatch.context() as patch:
        if request.param == "uncompiled":
            patch.setattr(scan, "take_lines", uncompiled.take_lines)
            patch.setattr(scan, "count_lines", uncompiled.count_lines)
            patch.setattr(search, "find_words", uncompiled.find_words)
        yield
