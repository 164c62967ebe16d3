"""More log files than can be followed, and file systems that do not answer."""

from __future__ import annotations

import asyncio
import logging
import os
import threading
from pathlib import Path

import pytest

from specdec_exporter import bounds
from specdec_exporter.predictor.log.counters import ReaderCounters
from specdec_exporter.predictor.log.events import Event
from specdec_exporter.predictor.sources import tail
from specdec_exporter.predictor.sources.tail import LogFollower
from support.logfiles import LineScanner, Log, Reader, open_inodes
from support.running import Exporter, exporter

SILENT = 61.0  # seconds after which a file may yield its place


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounds, "LOG_FILES", 2)


def logs(directory: Path, count: int) -> list[Log]:
    """Logs with a line each; the first was changed longest ago."""
    made = [Log(directory / f"{number}.log") for number in range(count)]
    for age, log in enumerate(made):
        log.write("before")
        os.utime(log.path, (1000 + age, 1000 + age))
    return made


def test_files_beyond_the_bound_are_left_out_counted_and_said_once(
    few: None, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    made = logs(tmp_path, 5)
    reader = Reader(tmp_path / "*.log")
    assert reader.read() == []
    for round_ in range(3):
        for number, log in enumerate(made):
            log.write(f"{number} in round {round_}")
        assert sorted(reader.read()) == [f"{number} in round {round_}" for number in (3, 4)]
    assert reader.counters.dropped["log_files"] == 3
    assert len(set(open_inodes()) & {log.path.stat().st_ino for log in made}) == 2
    logs(tmp_path, 6)[5].write("another")
    reader.read()
    assert reader.counters.dropped["log_files"] == 4
    assert reader.follower.problem is None
    for log in made[2:]:
        log.path.unlink()
    Log(tmp_path / "5.log").path.unlink()
    reader.read()
    assert [record.levelno for record in caplog.records] == [logging.WARNING, logging.INFO]


def write_at(second: int, log: Log, line: str) -> None:
    """Two writes within one tick of the kernel's clock would leave two files of the same age."""
    log.write(line)
    os.utime(log.path, (second, second))


def test_a_file_left_out_is_read_when_another_falls_silent(few: None, tmp_path: Path) -> None:
    """What it held at the start does not count; the silent file goes on where it stopped."""
    made = logs(tmp_path, 3)
    reader = Reader(tmp_path / "*.log")
    reader.read()
    write_at(2000, made[0], "zero")
    assert reader.read() == ["zero"]
    write_at(2001, made[1], "one")  # it takes the place of the other silent one
    assert reader.read() == ["one"]
    write_at(2002, made[2], "two")
    assert reader.read() == []
    reader.now += SILENT
    assert reader.read() == ["two"]
    assert reader.counters.rotations == 0


# --- a file system that does not answer -------------------------------------------------------------------------------


async def test_a_round_that_hangs_is_a_problem_and_hangs_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(tail, "_LATE_SECONDS", 0.01)
    answers = threading.Event()
    state = tmp_path / "state"
    log = Log(tmp_path / "vllm.log")
    log.write("before")
    follower = LogFollower([str(log.path)], LineScanner, counters=ReaderCounters(), state_path=str(state))
    poll, ended = follower.poll, threading.Event()

    def hang(max_bytes: int = 0) -> list[Event]:
        answers.wait()
        events = poll(max_bytes)
        ended.set()
        return events

    monkeypatch.setattr(follower, "poll", hang)
    following = asyncio.create_task(follower.follow(lambda _: None, asyncio.Event()))
    async with asyncio.timeout(20):
        while follower.problem is None or not caplog.records:
            await asyncio.sleep(0)
    assert "file system may hang" in (follower.problem or "")
    assert follower.counters.read_errors == 1
    following.cancel()
    await asyncio.wait({following})
    answers.set()
    assert ended.wait(20)
    assert not state.exists()  # it is another follower's now
    follower.close(final=False)


async def test_a_file_system_that_hangs_delays_neither_listening_nor_the_end(tmp_path: Path) -> None:
    """The process has 2.5 s to read its log to the end, so this takes longer than they do."""
    (tmp_path / "sitecustomize.py").write_text(
        "import os, time\n"
        "stat = os.stat\n"
        "os.stat = lambda path, **more: time.sleep(3600) if 'hung' in str(path) else stat(path, **more)\n"
    )
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    async with exporter(
        f"--predictor.log-path={tmp_path}/hung.log",
        "--predictor.url=http://127.0.0.1:1",
        stdin=None,
        awaited="msg=listening",
        **environment,
    ) as running:
        await answers(running)
        assert await running.stop() == 0
        assert "msg=ready" not in "\n".join(running.log)
        assert "stopped before the end of the log was read" in "\n".join(running.log)


async def answers(running: Exporter) -> None:
    assert await running.get("/-/healthy")
    assert (await running.samples())['specdec_up{inference_service="default"}'] == 0
