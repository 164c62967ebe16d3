"""The loop around the follower, and what should not happen to logs, and does."""

from __future__ import annotations

import asyncio
import errno
import itertools
import logging
import os
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from specdec_exporter.predictor.log.counters import ReaderCounters
from specdec_exporter.predictor.log.events import Event
from specdec_exporter.predictor.sources import follow
from specdec_exporter.predictor.sources.follow import LogFollower
from specdec_exporter.predictor.sources.logfile import LogFile
from support.logfiles import Following, LineScanner, Log, Reader
from support.running import exporter

NOBODY = 65534


@pytest.fixture
def unprivileged() -> Iterator[Path]:
    """A directory of a user to whom permissions mean something, and to be that user."""
    with tempfile.TemporaryDirectory() as name:
        user = os.geteuid()
        if user == 0:
            os.chown(name, NOBODY, NOBODY)
            os.seteuid(NOBODY)
        try:
            yield Path(name)
        finally:
            os.seteuid(user)


def test_permission_denied_and_restored(unprivileged: Path, caplog: pytest.LogCaptureFixture) -> None:
    log = Log(unprivileged / "vllm.log")
    log.write("before")
    log.path.chmod(0)
    reader = Reader(log.path)
    for _ in range(3):
        assert reader.read() == []
    assert reader.follower.problem == f"cannot read the log {log.path}: Permission denied"
    assert reader.counters.read_errors == 1
    assert len(caplog.records) == 1
    log.path.chmod(0o600)
    log.write("one")
    assert reader.read() == ["one"]
    assert reader.follower.problem is None


def test_a_directory_that_is_closed_for_a_while_loses_nothing(unprivileged: Path) -> None:
    log = Log(unprivileged / "logs" / "vllm.log")
    log.path.parent.mkdir()
    log.write("before")
    reader = Reader(log.path)
    reader.read()
    with log.path.open("ab", buffering=0) as writer:
        log.path.parent.chmod(0)
        writer.write(b"one\n")
        assert reader.wait() == ["one"]
        assert reader.follower.problem
        log.path.parent.chmod(0o700)
        writer.write(b"two\n")
        assert reader.wait() == ["two"]
    assert reader.follower.problem is None


def test_a_fifo_is_never_opened(tmp_path: Path) -> None:
    path = tmp_path / "pipe.log"
    os.mkfifo(path)
    reader = Reader(path)
    assert reader.read() == []
    assert "FIFO" in (reader.follower.problem or "")
    # Opening a FIFO for writing without waiting fails as long as nobody has it open for reading.
    with pytest.raises(OSError) as failure:
        os.open(path, os.O_WRONLY | os.O_NONBLOCK)
    assert failure.value.errno == errno.ENXIO


def test_a_directory_is_refused_with_a_hint_until_it_becomes_a_log(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    log = Log(tmp_path / "vllm.log")
    log.path.mkdir()
    reader = Reader(log.path)
    for _ in range(3):
        assert reader.read() == []
    assert "is a directory" in (reader.follower.problem or "")
    log.path.rmdir()
    log.write("one")
    assert reader.read() == ["one"]
    assert reader.follower.problem is None
    assert [record.levelno for record in caplog.records] == [logging.WARNING, logging.INFO]


def test_input_output_errors_are_counted_and_lose_nothing(
    log: Log, reader: Reader, monkeypatch: pytest.MonkeyPatch
) -> None:
    log.write("one")
    assert reader.read() == ["one"]
    log.write("two")
    for number in (errno.EIO, errno.ESTALE):
        with monkeypatch.context() as patch:

            def failing(*_: object, number: int = number) -> None:
                raise OSError(number, os.strerror(number))

            patch.setattr(LogFile, "read", failing)
            reader.follower.poll()
            assert os.strerror(number) in (reader.follower.problem or "")
    assert reader.counters.read_errors == 2
    log.rotate()
    log.write("three")
    assert reader.read() == ["two", "three"]
    assert reader.follower.problem is None


def test_a_log_that_is_not_there_is_said_once_when_it_has_lasted(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    log = Log(tmp_path / "vllm.log")
    reader = Reader(log.path)
    reader.read()
    assert reader.follower.problem == f"there is no log file at {log.path} yet"
    for _ in range(10):
        reader.wait(15)
    assert [record.levelno for record in caplog.records] == [logging.WARNING]
    log.write("one")
    assert reader.read() == ["one"]
    assert [record.levelno for record in caplog.records] == [logging.WARNING, logging.INFO]
    assert reader.follower.problem is None


def test_a_log_that_was_moved_away_for_good_is_said_although_its_file_is_still_open(log: Log, reader: Reader) -> None:
    log.path.rename(log.sibling(".1").path)
    reader.read()
    assert reader.follower.problem is None  # the next one may come
    reader.wait(25)
    assert "there is no log file" in str(reader.follower.problem)
    log.sibling(".1").write("late")
    log.write("one")
    assert reader.read() == ["late", "one"]
    assert reader.follower.problem is None


# --- the loop ---------------------------------------------------------------------------------------------------------


def following(log: Log) -> LogFollower:
    return LogFollower([str(log.path)], LineScanner, counters=ReaderCounters())


async def test_a_sink_that_fails_is_survived(
    log: Log, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(follow, "POLL_SECONDS", 0.005)
    caplog.set_level(logging.INFO)
    follower = following(log)
    await follower.begin()
    async with Following(follower) as running:
        log.write("one")
        await running.until("one")
        log.write("bad")
        while "bad" not in (follower.problem or ""):
            await asyncio.sleep(0)
        log.write("two")
        await running.until("one", "two")
        log.write("last words")
    assert running.lines == ["one", "two", "last words"]
    assert follower.counters.read_errors == 1
    assert [record.levelno for record in caplog.records] == [logging.ERROR, logging.INFO]


async def test_a_failure_that_lasts_is_said_once_and_tried_again_less_and_less_often(
    log: Log, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(follow, "POLL_SECONDS", 0.005)
    follower, stop, loop = following(log), asyncio.Event(), asyncio.get_running_loop()
    tries: list[float] = []

    def fail() -> list[Event]:
        tries.append(loop.time())
        if len(tries) == 6:
            stop.set()
        raise RuntimeError("no luck")

    monkeypatch.setattr(follower, "poll", fail)
    async with asyncio.timeout(20):
        await follower.follow(lambda _: None, stop)
    gaps = [later - earlier for earlier, later in itertools.pairwise(tries[:6])]  # the last try is the one of stopping
    assert all(gap >= 0.009 * 2**number for number, gap in enumerate(gaps)), gaps
    assert len(caplog.records) == 1
    assert follower.problem


async def test_stopping_does_not_wait_for_the_next_round(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(follow, "POLL_SECONDS", 3600.0)
    follower = following(log)
    await follower.begin()
    log.write("one")
    async with Following(follower) as running:
        await running.until("one")
        log.write("two")
    assert running.lines == ["one", "two"]


async def test_a_round_that_hangs_is_a_problem_and_hangs_nothing_else(
    log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(follow, "_LATE_SECONDS", 0.01)
    answers, ended = threading.Event(), threading.Event()
    follower = following(log)

    def hang(_: int = 0) -> list[Event]:
        answers.wait()
        ended.set()
        return []

    monkeypatch.setattr(follower, "poll", hang)
    task = asyncio.create_task(follower.follow(lambda _: None, asyncio.Event()))
    async with asyncio.timeout(20):
        while "file system may hang" not in (follower.problem or ""):
            await asyncio.sleep(0)
    assert follower.counters.read_errors == 1
    task.cancel()
    await asyncio.wait({task})
    answers.set()
    assert ended.wait(20)


async def test_a_file_system_that_hangs_delays_neither_listening_nor_the_end(tmp_path: Path) -> None:
    """The process has 2.5 s to read its log to the end, so this takes longer than they do."""
    (tmp_path / "sitecustomize.py").write_text(
        "import os, time\n"
        "stat = os.stat\n"
        "os.stat = lambda path, **more: time.sleep(3600) if 'hung' in str(path) else stat(path, **more)\n"
    )
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    arguments = (f"--predictor.log-path={tmp_path}/hung.log", "--predictor.url=http://127.0.0.1:1")
    async with exporter(*arguments, stdin=None, awaited="msg=listening", **environment) as running:
        assert await running.get("/-/healthy")
        assert (await running.samples())['specdec_up{inference_service="default"}'] == 0
        assert await running.stop() == 0
        assert "msg=ready" not in "\n".join(running.log)
        assert "stopped before the end of the log was read" in "\n".join(running.log)
