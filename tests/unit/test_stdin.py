"""A log through a pipe: nothing is lost at either end."""

from __future__ import annotations

import asyncio
import fcntl
import os
import threading
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from logfiles import LineScanner, texts
from specdec_exporter.predictor.log.counters import ReaderCounters
from specdec_exporter.predictor.log.events import Event
from specdec_exporter.predictor.sources.stdin import StreamFollower

CAPTURE = Path(__file__).parents[1] / "fixtures" / "captures" / "0.32.0-ngram-k5" / "server.log"


class Following:
    """A follower of a descriptor at work."""

    def __init__(self, fd: int) -> None:
        self.events: list[Event] = []
        self.counters = ReaderCounters()
        self.follower = StreamFollower(fd, LineScanner(), counters=self.counters)
        self.stop = asyncio.Event()
        self._arrived = asyncio.Event()
        self.task = asyncio.create_task(self.follower.follow(self._sink, self.stop))

    def _sink(self, event: Event) -> None:
        self.events.append(event)
        self._arrived.set()

    @property
    def lines(self) -> list[str]:
        return texts(self.events)

    async def has(self, line: str) -> None:
        async with asyncio.timeout(20):
            while line not in self.lines:
                self._arrived.clear()
                await self._arrived.wait()

    async def ended(self) -> None:
        async with asyncio.timeout(20):
            await self.task


@pytest.fixture
async def following(pipe: tuple[int, int]) -> AsyncIterator[Following]:
    following = Following(pipe[0])
    yield following
    following.stop.set()
    await following.ended()


async def test_lines_arrive_as_they_are_written(following: Following, pipe: tuple[int, int]) -> None:
    os.write(pipe[1], b"one\ntw")
    await following.has("one")
    os.write(pipe[1], b"o\n")
    await following.has("two")
    assert following.follower.healthy


async def test_the_end_of_the_writer_ends_it_calmly_with_the_last_line(
    following: Following, pipe: tuple[int, int]
) -> None:
    os.write(pipe[1], b"one\nlast, without newline")
    os.close(pipe[1])
    await following.ended()
    assert following.lines == ["one", "last, without newline"]
    assert following.follower.ended
    assert following.follower.healthy
    assert not following.stop.is_set()


async def test_much_more_than_a_pipe_holds_arrives_whole(following: Following, pipe: tuple[int, int]) -> None:
    content = "".join(f"line {number}\n" for number in range(100_000)).encode()

    def write() -> None:
        with os.fdopen(pipe[1], "wb") as writer:
            writer.write(content)

    thread = threading.Thread(target=write)
    thread.start()
    await following.ended()
    thread.join()
    assert following.lines == [f"line {number}" for number in range(100_000)]
    assert following.counters.bytes == len(content)


async def test_what_is_in_the_pipe_when_told_to_stop_is_read_but_for_half_a_line(pipe: tuple[int, int]) -> None:
    following = Following(pipe[0])
    os.write(pipe[1], b"one\ntwo\nhalf a l")
    following.stop.set()
    await following.ended()
    assert following.lines == ["one", "two"]


async def test_a_silent_writer_does_not_delay_the_stop(following: Following, pipe: tuple[int, int]) -> None:
    await asyncio.sleep(0)
    following.stop.set()
    await following.ended()
    assert following.lines == []


async def test_the_descriptor_stays_as_it_was(following: Following, pipe: tuple[int, int]) -> None:
    os.write(pipe[1], b"one\n")
    await following.has("one")
    assert not fcntl.fcntl(pipe[0], fcntl.F_GETFL) & os.O_NONBLOCK


async def test_a_regular_file_and_the_null_device_are_read_to_their_end(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(b"one\n" * 100_000 + b"end")
    for name, count in ((str(path), 100_001), (os.devnull, 0)):
        fd = os.open(name, os.O_RDONLY)
        following = Following(fd)
        await following.ended()
        os.close(fd)
        assert len(following.lines) == count
        assert following.follower.healthy


async def test_a_descriptor_that_cannot_be_read_is_a_problem_not_an_exception(pipe: tuple[int, int]) -> None:
    os.close(pipe[0])
    following = Following(pipe[0])
    await following.ended()
    assert not following.follower.healthy
    assert following.counters.read_errors == 1


async def test_a_directory_as_stdin_is_a_problem_not_an_exception(tmp_path: Path) -> None:
    fd = os.open(tmp_path, os.O_RDONLY)
    following = Following(fd)
    await following.ended()
    os.close(fd)
    assert "directory" in (following.follower.problem or "")


async def test_a_sink_that_fails_loses_only_its_event(pipe: tuple[int, int]) -> None:
    got: list[str] = []

    def sink(event: Event) -> None:
        (line,) = texts([event])
        if line == "bad":
            raise ValueError(line)
        got.append(line)

    follower = StreamFollower(pipe[0], LineScanner(), counters=ReaderCounters())
    os.write(pipe[1], b"one\nbad\ntwo\n")
    os.close(pipe[1])
    async with asyncio.timeout(20):
        await follower.follow(sink, asyncio.Event())
    assert got == ["one", "two"]
    assert follower.counters.read_errors == 1
