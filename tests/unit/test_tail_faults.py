"""Following a log through what should not happen to logs, and does."""

from __future__ import annotations

import errno
import logging
import logging.handlers
import os
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from specdec_exporter.predictor.log.counters import ReaderCounters
from specdec_exporter.predictor.log.lines import LineCutter
from specdec_exporter.predictor.sources.logfile import LogFile, open_regular
from support.logfiles import LineScanner, Log, Reader

NOBODY = 65534


def rotating_logger(name: str, log: Log, max_bytes: int = 2000) -> logging.Logger:
    """One process of several that share a RotatingFileHandler's file, each with a handler of its own."""
    logger = logging.getLogger(f"{log.path}.{name}")
    logger.propagate = False
    logger.setLevel(logging.INFO)
    logger.addHandler(logging.handlers.RotatingFileHandler(log.path, maxBytes=max_bytes, backupCount=5))
    return logger


def test_every_process_of_a_shared_rotating_file_handler_is_read(log: Log, reader: Reader) -> None:
    loggers = [rotating_logger(name, log) for name in ("APIServer", "EngineCore", "Worker")]
    written, got = [], []
    for number in range(150):
        # Of the three only one writes much: the others sit on older and older files.
        for logger in loggers if number % 10 == 0 else loggers[:1]:
            line = f"{logger.name[-9:]} {number} {'x' * 60}"
            logger.info(line)
            written.append(line)
        got += reader.wait(1)
    for logger in loggers:
        logger.handlers[0].close()
    got += reader.wait()
    assert sorted(got) == sorted(written)
    assert reader.counters.rotations >= 5


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
    reader = Reader(log.path)
    reader.read()
    log.write("one")
    assert reader.read() == ["one"]
    log.rotate()
    log.write("two")
    log.path.chmod(0)
    for _ in range(3):
        assert reader.read() == []
    assert reader.follower.problem == f"cannot read the log {log.path}: Permission denied"
    assert reader.counters.read_errors == 1
    assert len(caplog.records) == 1
    log.path.chmod(0o600)
    assert reader.read() == ["two"]
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
    assert reader.counters.read_errors == 1
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
    assert reader.counters.read_errors == 1
    log.path.rmdir()
    log.write("one")
    assert reader.read() == ["one"]
    assert reader.follower.problem is None
    assert [record.levelno for record in caplog.records] == [logging.WARNING, logging.INFO]


def test_truncation_between_look_and_read_is_noticed(log: Log) -> None:
    log.write("one")
    fd, status = open_regular(str(log.path))
    file = LogFile(str(log.path), fd, status, LineCutter(LineScanner(), ReaderCounters()))
    buffer = bytearray(100)
    file.place(status.st_size)
    assert file.look()
    log.truncate()
    log.write("something else", "and more")
    assert file.read(buffer) is None
    file.close()


@pytest.mark.parametrize("copied", [Log.copytruncate, Log.become_a_copy])
def test_half_a_line_that_is_read_again_in_a_copy_counts_once(log: Log, copied: Callable[[Log], None]) -> None:
    reader = Reader(log.path, start="start")
    log.append("first\nhalf a ")
    reader.read()
    log.append("line\n")
    copied(log)
    assert reader.read() == ["half a line"]
    assert reader.counters.bytes == len("before\nfirst\nhalf a line\n")


@pytest.mark.parametrize("rotates", [False, True])
def test_input_output_errors_are_counted_and_lose_nothing(
    log: Log, reader: Reader, monkeypatch: pytest.MonkeyPatch, rotates: bool
) -> None:
    log.write("one")
    assert reader.read() == ["one"]
    log.write("two")
    for number in (errno.EIO, errno.ESTALE):
        with monkeypatch.context() as patch:

            def failing(*_: object, number: int = number) -> None:
                raise OSError(number, os.strerror(number))

            patch.setattr(LogFile, "read", failing)
            assert reader.follower.poll() == []
            assert reader.follower.problem
    assert reader.counters.read_errors == 2
    if rotates:
        log.rotate()
        log.write("three")
    assert reader.read() == ["two", *(["three"] if rotates else ())]
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


def test_a_log_that_was_moved_away_for_good_is_said_although_its_file_is_still_open(
    log: Log, reader: Reader, caplog: pytest.LogCaptureFixture
) -> None:
    log.path.rename(log.sibling(".1").path)
    reader.read()
    assert reader.follower.problem is None  # the next one may come
    reader.wait(25)
    assert "there is no log file" in caplog.text
    assert "there is no log file" in str(reader.follower.problem)
    log.sibling(".1").write("late")
    log.write("one")
    assert reader.read() == ["late", "one"]
    assert reader.follower.problem is None


# --- several paths ----------------------------------------------------------------------------------------------------


def test_a_file_with_several_names_is_read_once(log: Log, tmp_path: Path) -> None:
    (tmp_path / "link.log").symlink_to(log.path)
    (tmp_path / "hard.log").hardlink_to(log.path)
    reader = Reader(tmp_path / "*.log", log.path, tmp_path / "link.log")
    reader.read()
    log.write("one")
    assert reader.read() == ["one"]


def test_several_files_of_one_predictor_are_all_read(tmp_path: Path) -> None:
    reader = Reader(tmp_path / "a[1].log", tmp_path / "pods" / "*" / "*.log")
    reader.read()
    Log(tmp_path / "a[1].log").write("a")  # a path that exists is a path, whatever is in its name
    (tmp_path / "pods" / "x").mkdir(parents=True)
    Log(tmp_path / "pods" / "x" / "0.log").write("x0")
    assert sorted(reader.read()) == ["a", "x0"]
    Log(tmp_path / "pods" / "x" / "1.log").write("x1")
    assert reader.read() == ["x1"]
