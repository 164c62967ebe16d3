"""Whole lines out of pieces of any size, the same from a pipe and from a file."""

from __future__ import annotations

import io
import itertools
from collections.abc import Iterable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specdec_exporter.bounds import LINE_BYTES
from specdec_exporter.predictor.log.counters import ReaderCounters
from specdec_exporter.predictor.sources import follow, stream
from specdec_exporter.predictor.sources.stream import read_stream
from support.logfiles import LineScanner, Log, Reader, texts

LIMIT = 64  # instead of LINE_BYTES, so that small examples reach it


class Pieces(io.RawIOBase):
    """A stream that gives its content in pieces of given sizes."""

    def __init__(self, content: bytes, sizes: Iterable[int]) -> None:
        self._content = io.BytesIO(content)
        self._sizes = iter(sizes)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]  # the base class says Buffer
        return self._content.readinto(buffer[: next(self._sizes, len(buffer))])


CONTENT = st.lists(
    st.sampled_from([b"\n", b"\r\n", b"\0", b"\0" * 100, b"abc", b"\xff\xfe", b"x" * (LIMIT - 1), b"y" * LIMIT])
).map(b"".join)


def expected(content: bytes) -> tuple[list[str], int]:
    """Lines to be read and number of lines too long, spelled out."""
    *whole, tail_line = content.split(b"\n")
    found, oversized = [], 0
    for line in [line.lstrip(b"\0") for line in whole]:
        if len(line) < LIMIT:
            found.append(line)
        else:
            oversized += 1
    if len(rest := tail_line.lstrip(b"\0")) >= LIMIT:
        oversized += 1
    elif rest:
        found.append(rest)
    return [line.decode(errors="replace").rstrip("\r") for line in found], oversized


@settings(deadline=None)
@given(content=CONTENT, sizes=st.lists(st.integers(1, 100)))
def test_a_stream_gives_every_line_however_it_arrives(content: bytes, sizes: list[int]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(stream, "CHUNK_BYTES", LIMIT)
        counters = ReaderCounters()
        reads = read_stream(Pieces(content, sizes), LineScanner(), counters=counters)
        got = texts(itertools.chain.from_iterable(reads))
    assert (got, counters.oversized_lines) == expected(content)
    assert counters.bytes == len(content)


@settings(deadline=None)
@given(content=CONTENT, cuts=st.lists(st.integers(0, 2000)))
def test_a_growing_file_gives_the_same_lines_however_it_is_written(
    tmp_path_factory: pytest.TempPathFactory, content: bytes, cuts: list[int]
) -> None:
    log = Log(tmp_path_factory.mktemp("log") / "vllm.log")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(follow, "CHUNK_BYTES", LIMIT)
        log.path.touch()
        reader = Reader(log.path)
        got = reader.read()
        bounds = [0, *sorted(min(cut, len(content)) for cut in cuts), len(content)]
        for begin, end in itertools.pairwise(bounds):
            log.append(content[begin:end])
            got += reader.read()
        log.path.unlink()
        got += reader.read()
        got += reader.wait()
    assert (got, reader.counters.oversized_lines) == expected(content)
    assert reader.counters.bytes == len(content)


def test_the_scanner_never_sees_less_than_whole_lines(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(b"".join(b"%d %s\n" % (number, b"x" * (number % 300)) for number in range(20_000)))
    with path.open("rb") as file:
        got = texts(itertools.chain.from_iterable(read_stream(file, LineScanner())))  # which asserts it
    assert len(got) == 20_000
    assert got[-1] == f"19999 {'x' * (19_999 % 300)}"


@pytest.mark.parametrize(("size", "oversized"), [(LINE_BYTES, 0), (LINE_BYTES + 1, 1)])
def test_the_longest_line_is_as_long_as_the_bound_says(tmp_path: Path, size: int, oversized: int) -> None:
    path = tmp_path / "log"
    path.write_bytes(b"x" * (size - 1) + b"\nend\n")
    counters = ReaderCounters()
    with path.open("rb") as file:
        got = texts(itertools.chain.from_iterable(read_stream(file, LineScanner(), counters=counters)))
    assert (len(got), counters.oversized_lines) == (2 - oversized, oversized)
