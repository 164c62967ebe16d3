"""The loop around the follower: it gives events as they come, ends when told to, and survives everything else."""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import pytest

from specdec_exporter.predictor.log.counters import ReaderCounters
from specdec_exporter.predictor.log.events import Event
from specdec_exporter.predictor.sources import tail
from specdec_exporter.predictor.sources.tail import LogFollower
from support.logfiles import Following, LineScanner, Log


@pytest.fixture
def log(tmp_path: Path) -> Log:
    log = Log(tmp_path / "vllm.log")
    log.path.touch()
    return log


@pytest.fixture
def fast(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tail, "POLL_SECONDS", 0.005)


def follower(log: Log) -> LogFollower:
    return LogFollower([str(log.path)], LineScanner, counters=ReaderCounters(), start="start")


async def test_lines_arrive_while_they_are_written_and_the_last_ones_at_the_end(log: Log, fast: None) -> None:
    async with Following(follower(log)) as following:
        log.write("one")
        await following.until("one")
        log.rotate()
        log.write("two")
        await following.until("one", "two")
        log.write("last words")
    assert following.lines == ["one", "two", "last words"]


async def test_a_sink_that_fails_is_survived(log: Log, fast: None, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    async with Following(follower(log)) as following:
        log.write("one")
        await following.until("one")
        assert following.source.problem is None
        log.write("bad")
        while "bad" not in (following.source.problem or ""):
            await asyncio.sleep(0)
        log.write("two")
        await following.until("one", "two")
        assert following.source.counters.read_errors == 1
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
        await reader.follow(lambda _: None, stop)
    gaps = [later - earlier for earlier, later in itertools.pairwise(tries[:6])]  # the last try is the one of stopping
    assert all(gap >= 0.009 * 2**number for number, gap in enumerate(gaps)), gaps
    assert len(caplog.records) == 1
    assert reader.problem


async def test_stopping_does_not_wait_for_the_next_round(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tail, "POLL_SECONDS", 3600.0)
    log.write("one")
    async with Following(follower(log)) as following:
        await following.until("one")
        log.write("two")
    assert following.lines == ["one", "two"]


async def test_a_log_that_rotates_is_looked_at_more_often_for_a_while(
    log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    reader, stop, now = follower(log), asyncio.Event(), 1000.0
    waits: list[float] = []

    async def wait(waiting: Coroutine[Any, Any, Any], seconds: float) -> None:
        nonlocal now
        waiting.close()
        waits.append(seconds)
        now += seconds
        if len(waits) == 2:
            log.rotate()
            log.write("one")
        elif now > 1003:
            stop.set()
        raise TimeoutError

    monkeypatch.setattr(reader, "_clock", lambda: now)
    monkeypatch.setattr(tail, "_REST", 0)
    with monkeypatch.context() as patch:
        patch.setattr(asyncio, "wait_for", wait)
        await reader.follow(lambda _: None, stop)
    assert set(waits[:2] + waits[-2:]) == {tail.POLL_SECONDS}
    assert sum(wait for wait in waits if wait < tail.POLL_SECONDS) == pytest.approx(tail.HURRY_SECONDS, abs=0.03)
