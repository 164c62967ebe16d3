"""A log through a pipe: nothing is lost at either end."""

from __future__ import annotations

import os
import threading
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from specdec_exporter.predictor.log.counters import ReaderCounters
from specdec_exporter.predictor.sources.stdin import StreamFollower
from support.logfiles import Following, LineScanner


def follow(fd: int) -> Following[StreamFollower]:
    return Following(StreamFollower(fd, LineScanner(), counters=ReaderCounters()))


@pytest.fixture
async def following(pipe: tuple[int, int]) -> AsyncIterator[Following[StreamFollower]]:
    async with follow(pipe[0]) as following:
        yield following


async def test_the_end_of_the_writer_ends_it_calmly_with_the_last_line(
    following: Following[StreamFollower], pipe: tuple[int, int]
) -> None:
    os.write(pipe[1], b"one\nlast, without newline")
    os.close(pipe[1])
    await following.ended()
    assert following.lines == ["one", "last, without newline"]
    assert following.source.ended
    assert following.source.problem is None
    assert not following.stop.is_set()


async def test_much_more_than_a_pipe_holds_arrives_whole(
    following: Following[StreamFollower], pipe: tuple[int, int]
) -> None:
    content = "".join(f"line {number}\n" for number in range(100_000)).encode()

    def write() -> None:
        with os.fdopen(pipe[1], "wb") as writer:
            writer.write(content)

    thread = threading.Thread(target=write)
    thread.start()
    await following.ended()
    thread.join()
    assert following.lines == [f"line {number}" for number in range(100_000)]
    assert following.source.counters.bytes == len(content)


async def test_what_is_in_the_pipe_when_told_to_stop_is_read_but_for_half_a_line(pipe: tuple[int, int]) -> None:
    following = follow(pipe[0])
    os.write(pipe[1], b"one\ntwo\nhalf a l")
    following.stop.set()
    await following.ended()
    assert following.lines == ["one", "two"]


@pytest.mark.parametrize("what", ["closed", "directory"])
async def test_a_descriptor_that_cannot_be_read_is_a_problem_not_an_exception(tmp_path: Path, what: str) -> None:
    fd = os.open(tmp_path, os.O_RDONLY)
    if what == "closed":
        os.close(fd)
    following = follow(fd)
    await following.ended()
    if what == "directory":
        os.close(fd)
        assert "directory" in (following.source.problem or "")
    assert following.source.problem
    assert following.source.counters.read_errors == 1
