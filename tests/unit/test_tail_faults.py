"""Following a log through what should not happen to logs, and does."""

from __future__ import annotations

import errno
import gzip
import logging
import logging.handlers
import os
import socket
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from logfiles import LineScanner, Log, Reader
from specdec_exporter.predictor.log.counters import ReaderCounters
from specdec_exporter.predictor.log.lines import LineCutter
from specdec_exporter.predictor.sources.logfile import LogFile, open_regular

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


def test_tee_in_append_mode_survives_truncation(log: Log, reader: Reader) -> None:
    with log.path.open("ab", buffering=0) as tee:
        tee.write(b"one\n")
        assert reader.read() == ["one"]
        log.truncate()
        tee.write(b"two\n")
        assert reader.read() == ["two"]


def test_writes_of_several_processes_interleaved_within_a_line_hide_only_that_line(log: Log, reader: Reader) -> None:
    log.append("one half")
    log.append("other process\n")
    assert reader.read() == ["one halfother process"]
    log.append(" other half\n")
    log.write("next")
    assert reader.read() == [" other half", "next"]


def test_a_rotated_file_that_is_compressed_while_open_is_read_to_its_end(log: Log, reader: Reader) -> None:
    log.write(*[f"line {number}" for number in range(100_000)])
    first = reader.follower.poll(max_bytes=100_000)
    log.rotate()
    rotated = log.sibling(".1").path
    log.sibling(".1.gz").path.write_bytes(gzip.compress(rotated.read_bytes()))
    rotated.unlink()
    log.write("new")
    got = reader.read()
    assert len(first) + len(got) == 100_001
    assert got[-1] == "new"


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
    assert reader.follower.healthy


def test_a_file_that_was_there_at_the_start_but_not_readable_begins_where_it_ended_then(unprivileged: Path) -> None:
    log = Log(unprivileged / "vllm.log")
    log.write("before")
    log.path.chmod(0o200)
    reader = Reader(log.path)
    reader.read()
    log.write("one")
    reader.read()
    log.path.chmod(0o600)
    assert reader.read() == ["one"]


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
        assert not reader.follower.healthy
        log.path.parent.chmod(0o700)
        writer.write(b"two\n")
        assert reader.wait() == ["two"]
    assert reader.follower.healthy


def test_a_directory_is_refused_with_a_hint(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    reader = Reader(tmp_path)
    for _ in range(3):
        assert reader.read() == []
    assert not reader.follower.healthy
    assert "is a directory" in (reader.follower.problem or "")
    assert reader.counters.read_errors == 1
    assert len(caplog.records) == 1


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


def test_sockets_and_devices_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.sock"
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(path))
        reader = Reader(path, "/dev/zero")
        assert reader.read() == []
    assert reader.counters.read_errors == 2
    assert not reader.follower.healthy


def test_a_path_that_becomes_a_log_is_read_and_said_to_be_right_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    log = Log(tmp_path / "vllm.log")
    log.path.mkdir()
    reader = Reader(log.path)
    reader.read()
    log.path.rmdir()
    log.write("one")
    assert reader.read() == ["one"]
    assert reader.follower.healthy
    assert [record.levelno for record in caplog.records] == [logging.WARNING, logging.INFO]


def test_an_input_output_error_is_survived_without_reading_twice(
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
            assert reader.follower.poll() == []
            assert not reader.follower.healthy
    assert reader.counters.read_errors == 2
    assert reader.read() == ["two"]
    assert reader.follower.healthy


def test_an_input_output_error_just_before_a_rotation_loses_nothing(
    log: Log, reader: Reader, monkeypatch: pytest.MonkeyPatch
) -> None:
    log.write("one")
    assert reader.read() == ["one"]

    def failing(*_: object) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    with monkeypatch.context() as patch:
        patch.setattr(LogFile, "read", failing)
        reader.follower.poll()
    log.write("two")
    log.rotate()
    log.write("three")
    assert reader.wait() == ["two", "three"]


def test_a_file_found_by_glob_and_by_symlink_is_read_once(log: Log, tmp_path: Path) -> None:
    (tmp_path / "link.log").symlink_to(log.path)
    reader = Reader(tmp_path / "*.log", log.path, tmp_path / "link.log")
    reader.read()
    log.write("one")
    assert reader.read() == ["one"]
    log.rotate()
    log.write("two")
    assert reader.read() == ["two"]


def test_a_hard_link_is_the_same_file(log: Log, tmp_path: Path) -> None:
    (tmp_path / "other.log").hardlink_to(log.path)
    reader = Reader(tmp_path / "*.log")
    reader.read()
    log.write("one")
    assert reader.read() == ["one"]


def test_several_files_of_one_predictor_are_all_read(tmp_path: Path) -> None:
    reader = Reader(tmp_path / "a.log", tmp_path / "pods" / "*" / "*.log")
    reader.read()
    Log(tmp_path / "a.log").write("a")
    (tmp_path / "pods" / "x").mkdir(parents=True)
    Log(tmp_path / "pods" / "x" / "0.log").write("x0")
    assert sorted(reader.read()) == ["a", "x0"]
    Log(tmp_path / "pods" / "x" / "1.log").write("x1")
    assert reader.read() == ["x1"]


def test_a_path_with_glob_characters_that_exists_is_a_path(tmp_path: Path) -> None:
    log = Log(tmp_path / "pod[1].log")
    log.path.touch()
    reader = Reader(log.path)
    reader.read()
    log.write("one")
    assert reader.read() == ["one"]


def test_a_glob_that_matches_the_rotated_files_too_reads_each_line_once(log: Log, tmp_path: Path) -> None:
    log.sibling(".1").write("old")
    reader = Reader(tmp_path / "vllm.log*")
    assert reader.read() == []
    log.write("one")
    assert reader.read() == ["one"]
    log.write("two")
    log.rotate()
    log.write("three")
    log.rotate()
    log.write("four")
    assert reader.read() == ["two", "three", "four"]
    log.copytruncate()
    log.write("five")
    assert reader.read() == ["five"]
    log.sibling(".2.gz").path.write_bytes(gzip.compress(b"packed\n"))
    log.sibling(".2").append("late\n")  # which was renamed, so that a writer may still hold it
    assert reader.read() == ["late"]


def test_bytes_not_read_before_copytruncate_are_read_from_the_copy(log: Log, reader: Reader) -> None:
    log.write("one")
    assert reader.read() == ["one"]
    log.write("two")
    log.copytruncate()
    log.write("three")
    log.copytruncate()
    log.write("four")
    assert reader.read() == ["two", "three", "four"]
    assert reader.wait() == []
    assert reader.counters.truncations == 1


def test_a_copy_is_not_read_while_the_original_is_whole(log: Log, tmp_path: Path) -> None:
    reader = Reader(tmp_path / "vllm.log*")
    reader.read()
    log.write("one")
    log.sibling(".1").path.write_bytes(log.path.read_bytes())
    assert reader.read() == ["one"]
    log.truncate()
    log.write("two")
    assert reader.read() == ["two"]


def test_half_a_copy_is_not_read(log: Log, reader: Reader) -> None:
    log.write("one", "two")
    assert reader.read() == ["one", "two"]
    log.sibling(".1").path.write_bytes(log.path.read_bytes()[:-5])
    log.truncate()
    log.write("three")
    assert reader.read() == ["three"]
    log.rotate()
    log.write("four")
    assert reader.wait() == ["four"]


def test_truncation_and_rotation_between_two_looks_repeat_nothing(log: Log) -> None:
    banner = "banner " + "=" * 2000  # so that the first bytes do not tell the contents apart
    log.truncate()
    log.write(banner)
    reader = Reader(log.path)
    reader.read()
    log.write("one")
    assert reader.read() == ["one"]
    log.copytruncate()
    log.write(banner, "two")
    log.rotate()
    log.write("three")
    assert reader.wait() == ["three"]


def test_truncation_between_look_and_read_is_noticed(log: Log) -> None:
    log.write("one")
    fd, status = open_regular(str(log.path))
    file = LogFile(str(log.path), fd, status, LineCutter(LineScanner(), ReaderCounters()))
    buffer = bytearray(100)
    file.place(status.st_size)
    assert file.look()
    log.truncate()
    log.write("something else", "and more")
    assert file.read(buffer, memoryview(buffer)) is None
    file.close()


def test_replacement_by_a_copy_of_itself_repeats_nothing(log: Log, reader: Reader) -> None:
    log.write("one")
    assert reader.read() == ["one"]
    copy = log.sibling(".tmp")
    copy.path.write_bytes(log.path.read_bytes())
    copy.write("two")
    copy.path.rename(log.path)
    assert reader.read() == ["two"]


def test_a_line_held_back_is_given_when_its_file_is_gone(log: Log, reader: Reader) -> None:
    log.write("hold one")
    log.path.unlink()
    assert reader.read() == []
    assert reader.wait() == ["hold one "]


def test_a_line_held_back_is_completed_by_the_next_file(log: Log, reader: Reader) -> None:
    log.write("hold one")
    assert reader.read() == []
    log.rotate()
    assert reader.read() == []
    log.write("two")
    assert reader.read() == ["hold one two"]


def test_a_line_held_back_is_forgotten_at_truncation(log: Log, reader: Reader) -> None:
    log.write("hold one")
    assert reader.read() == []
    log.truncate()
    log.write("two")
    assert reader.read() == ["two"]


def test_at_the_end_a_half_line_is_left_alone_and_a_rotated_one_is_given(log: Log, reader: Reader) -> None:
    log.append("rotated away without newline")
    reader.read()
    log.rotate()
    log.write("one", "hold two")
    log.append("half a l")
    assert reader.close() == ["one", "rotated away without newline", "hold two "]
    assert reader.close() == []
    assert reader.read() == []


def test_only_so_many_rotated_files_are_kept_open(log: Log, reader: Reader) -> None:
    before = open_files()
    got = []
    for number in range(30):
        log.write(f"line {number}")
        log.path.rename(log.path.with_name(f"vllm.log.{2000 + number}"))
        log.path.touch()
        got += reader.wait(1)
    assert got == [f"line {number}" for number in range(30)]
    assert open_files() - before <= 16
    log.rotate()
    log.write("last")
    assert reader.wait() == ["last"]
    reader.close()
    assert open_files() == before - 1


def test_more_rotations_between_two_looks_than_files_are_kept_open_are_read_once(log: Log, reader: Reader) -> None:
    for number in range(40):
        log.write(f"line {number}")
        log.rotate()
    assert reader.read() == [f"line {number}" for number in range(40)]
    log.write("next")
    log.rotate()
    assert reader.wait() == ["next"]


def open_files() -> int:
    return sum(1 for _ in Path("/proc/self/fd").iterdir())


def test_a_model_restart_that_goes_on_with_the_same_file_loses_nothing(log: Log, reader: Reader) -> None:
    log.write("config A", "one")
    assert len(reader.events()) == 2
    log.append("killed in mid-li")
    reader.read()
    log.append("\nconfig B\ntwo\n")
    assert len(reader.events()) == 3
