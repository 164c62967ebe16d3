"""A stream read to its end: all of it, as it comes."""

from __future__ import annotations

import io
import os
import threading
from itertools import chain
from pathlib import Path

import pytest

from builders import CAPTURES
from logfiles import LineScanner, texts
from specdec_exporter.errors import SpecdecError
from specdec_exporter.predictor.log.counters import ReaderCounters
from specdec_exporter.predictor.log.events import SpecDecoding
from specdec_exporter.predictor.log.scan import LogScanner
from specdec_exporter.predictor.sources.stream import read_stream

CAPTURE = CAPTURES / "0.32.0-ngram-k5" / "server.log"


def test_a_file_is_read_to_its_end_with_progress() -> None:
    told: list[int] = []
    counters = ReaderCounters()
    with CAPTURE.open("rb") as file:
        events = list(chain.from_iterable(read_stream(file, LogScanner(counters), told.append, counters=counters)))
    assert sum(isinstance(event, SpecDecoding) for event in events) == CAPTURE.read_bytes().count(
        b"SpecDecoding metrics:"
    )
    assert told[-1] == CAPTURE.stat().st_size == counters.bytes


def test_progress_is_told_about_every_256_kib(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(b"x" * 99 + b"\n" + (b"y" * 99 + b"\n") * 20_000)
    told: list[int] = []
    with path.open("rb", buffering=0) as file:
        assert sum(map(len, read_stream(file, LineScanner(), told.append))) == 20_001
    assert told == sorted(told)
    assert 7 <= len(told) <= 10
    assert told[-1] == path.stat().st_size


def test_a_pipe_is_read_as_it_comes(pipe: tuple[int, int]) -> None:
    with os.fdopen(os.dup(pipe[0]), "rb") as file:
        reads = read_stream(file, LineScanner())
        os.write(pipe[1], b"one\ntwo\nthr")
        assert texts(next(reads)) == ["one", "two"]
        os.write(pipe[1], b"ee\nend")
        os.close(pipe[1])
        assert list(map(texts, reads)) == [["three"], ["end"]]


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
