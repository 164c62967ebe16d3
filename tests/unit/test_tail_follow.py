"""The loop around the follower: it gives events as they come, ends when told to, and survives everything else."""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections.abc import Callable
from pathlib import Path

import pytest

from logfiles import LineScanner, Log, texts
from specdec_exporter.predictor.log.counters import ReaderCounters
from specdec_exporter.predictor.log.events import Event
from specdec_exporter.predictor.sources import tail
from specdec_exporter.predictor.sources.tail import LogFollower


class Sink:
    """Takes events, and fails at those it is told to fail at."""

    def __init__(self, fails_at: str = "") -> None:
        self.lines: list[str] = []
        self._fails_at = fails_at
        self._waiting: list[tuple[str, asyncio.Event]] = []

    def __call__(self, event: Event) -> None:
        (line,) = texts([event])
        if line == self._fails_at:
            raise ValueError(line)
        self.lines.append(line)
        for awaited, seen in self._waiting:
            if awaited == line:
                seen.set()

    async def has(self, line: str) -> None:
        """Wait for ``line``."""
        seen = asyncio.Event()
        self._waiting.append((line, seen))
        if line not in self.lines:
            async with asyncio.timeout(20):
                await seen.wait()


@pytest.fixture
def log(tmp_path: Path) -> Log:
    log = Log(tmp_path / "vllm.log")
    log.path.touch()
    return log


@pytest.fixture
def fast(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tail, "POLL_SECONDS", 0.005)


def follower(log: Log, scanner_factory: Callable[[], LineScanner] = LineScanner) -> LogFollower:
    return LogFollower([str(log.path)], scanner_factory, counters=ReaderCounters(), start="start")


def problem(reader: LogFollower) -> str:
    return reader.problem or ""


async def test_lines_arrive_while_they_are_written_and_the_last_ones_at_the_end(log: Log, fast: None) -> None:
    sink, stop = Sink(), asyncio.Event()
    task = asyncio.create_task(follower(log).follow(sink, stop))
    log.write("one")
    await sink.has("one")
    log.rotate()
    log.write("two")
    await sink.has("two")
    log.write("last words")
    stop.set()
    await task
    assert sink.lines == ["one", "two", "last words"]


async def test_a_large_backlog_leaves_the_loop_to_others(log: Log, fast: None) -> None:
    log.write(*["x" * 99] * 100_000, "end")
    sink, stop, turns = Sink(), asyncio.Event(), 0
    task = asyncio.create_task(follower(log).follow(sink, stop))
    while not sink.lines or sink.lines[-1] != "end":
        turns += 1
        await asyncio.sleep(0)
    assert turns > 8
    stop.set()
    await task


async def test_a_sink_that_fails_is_survived(log: Log, fast: None, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    sink, stop = Sink(fails_at="bad"), asyncio.Event()
    reader = follower(log)
    task = asyncio.create_task(reader.follow(sink, stop))
    log.write("one")
    await sink.has("one")
    assert not problem(reader)
    log.write("bad")
    while "bad" not in problem(reader):
        await asyncio.sleep(0)
    log.write("two")
    await sink.has("two")
    assert reader.counters.read_errors == 1
    stop.set()
    await task
    assert [record.levelno for record in caplog.records] == [logging.ERROR, logging.INFO]


async def test_a_failure_that_lasts_is_said_once_and_tried_again_less_and_less_often(
    log: Log, fast: None, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    reader, stop, loop = follower(log), asyncio.Event(), asyncio.get_running_loop()
    tries: list[float] = []

    def fail() -> list[Event]:
        tries.append(loop.time())
        if len(tries) == 6:
            stop.set()
        raise RuntimeError("no luck")

    monkeypatch.setattr(reader, "poll", fail)
    async with asyncio.timeout(20):
        await reader.follow(Sink(), stop)
    gaps = [later - earlier for earlier, later in itertools.pairwise(tries[:6])]  # the last try is the one of stopping
    assert all(gap >= 0.009 * 2**number for number, gap in enumerate(gaps)), gaps
    assert len(caplog.records) == 1
    assert not reader.healthy


async def test_stopping_does_not_wait_for_the_next_round(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tail, "POLL_SECONDS", 3600.0)
    sink, stop = Sink(), asyncio.Event()
    log.write("one")
    task = asyncio.create_task(follower(log).follow(sink, stop))
    await sink.has("one")
    log.write("two")
    stop.set()
    async with asyncio.timeout(5):
        await task
    assert sink.lines == ["one", "two"]
