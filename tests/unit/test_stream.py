"""A stream read to its end: all of it, as it comes."""

from __future__ import annotations

import io
import os
import threading
from pathlib import Path

import pytest

from specdec_exporter.errors import SpecdecError
from specdec_exporter.predictor.sources.stream import read_stream
from support.logfiles import LineScanner, texts


def test_progress_is_told_about_every_256_kib(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(b"x" * 99 + b"\n" + (b"y" * 99 + b"\n") * 20_000)
    told: list[int] = []
    with path.open("rb", buffering=0) as file:
        assert sum(map(len, read_stream(file, LineScanner(), told.append))) == 20_001
    assert told == sorted(told)
    assert 7 <= len(told) <= 10
    assert told[-1] == path.stat().st_size


def test_a_pipe_that_somebody_made_non_blocking_is_waited_for(pipe: tuple[int, int]) -> None:
    os.set_blocking(pipe[0], False)
    with os.fdopen(os.dup(pipe[0]), "rb", buffering=0) as file:
        reads = read_stream(file, LineScanner())
        writer = threading.Timer(0.02, os.write, (pipe[1], b"one\n"))
        writer.start()
        assert texts(next(reads)) == ["one"]
        writer.join()
        os.close(pipe[1])
        assert list(reads) == []


def test_a_read_error_is_worded() -> None:
    class Broken(io.RawIOBase):
        name = "/logs/vllm.log"

        def readable(self) -> bool:
            return True

        def readinto(self, buffer: object) -> int:
            raise OSError(5, "Input/output error")

    with pytest.raises(SpecdecError, match=r"cannot read /logs/vllm.log: Input/output error \(after 0 bytes\)"):
        list(read_stream(Broken(), LineScanner()))
