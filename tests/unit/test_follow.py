"""What is read of a log that rotates, is cut, vanishes or is one of many: what `tail -F` promises, and its limits."""

from __future__ import annotations

import os
import subprocess
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specdec_exporter import bounds
from specdec_exporter.predictor.log.counters import ReaderCounters
from specdec_exporter.predictor.log.events import Event, SpecDecoding
from specdec_exporter.predictor.log.scan import LogScanner
from specdec_exporter.predictor.sources.follow import LogFollower
from support.fieldtools import tool
from support.logfiles import Log, Reader, open_inodes
from support.loglines import HEADER, SPEC


def counted(reader: Reader) -> tuple[int, int]:
    return reader.counters.rotations, reader.counters.truncations


def test_only_new_lines_are_read_and_half_a_line_when_it_is_whole(log: Log, reader: Reader) -> None:
    log.append("one\nhal")
    assert reader.read() == ["one"]
    log.append("f\r\ntwo\n")
    assert reader.read() == ["half", "two"]
    assert reader.counters.bytes == len("one\nhalf\r\ntwo\n")
    log.append("never ended")
    assert reader.close() == []


def test_from_the_start_all_is_read_and_from_within_a_line_only_what_follows_it(log: Log) -> None:
    log.append("half")
    from_start, from_end = Reader(log.path, start="start"), Reader(log.path)
    assert from_start.read() == ["before"]
    assert from_end.read() == []
    log.append(" a line\nnext\n")
    assert from_start.read() == ["half a line", "next"]
    assert from_end.read() == ["next"]


def test_a_renamed_log_is_read_to_its_end_and_then_the_new_one(log: Log, reader: Reader) -> None:
    log.write("one")
    log.rotate()
    log.write("two")
    assert reader.read() == ["one", "two"]
    assert counted(reader) == (1, 0)


def test_a_writer_that_has_not_moved_on_yet_is_read(log: Log, reader: Reader) -> None:
    with log.path.open("ab", buffering=0) as writer:
        log.rotate()
        assert reader.wait(1) == []
        writer.write(b"late, half")
        assert reader.wait(3) == []
        writer.write(b" a line\nrest")
        assert reader.wait(3) == ["late, half a line"]
    log.write("new")
    assert reader.read() == ["rest", "new"]


def test_a_log_is_left_for_an_empty_one_when_nobody_writes_to_it_any_more(log: Log, reader: Reader) -> None:
    inode = log.path.stat().st_ino
    log.path.unlink()
    log.path.touch()
    reader.read()
    assert inode in open_inodes()
    reader.wait()
    assert inode not in open_inodes()


def test_a_cut_log_is_read_anew(log: Log, reader: Reader) -> None:
    log.write("one")
    assert reader.read() == ["one"]
    log.append("half a line")
    reader.read()
    log.copytruncate()
    log.write("two")
    assert reader.read() == ["two"]
    assert counted(reader) == (0, 1)


def test_a_hole_left_by_a_writer_that_does_not_append_is_skipped(log: Log, reader: Reader) -> None:
    with log.path.open("r+b", buffering=0) as writer:
        writer.seek(0, os.SEEK_END)
        writer.write(b"one\n" * 1000)
        assert len(reader.read()) == 1000
        log.truncate()
        assert reader.read() == []
        writer.write(b"two\n")
        assert reader.read() == ["two"]


def test_a_link_to_the_newest_file_is_followed(log: Log) -> None:
    link = log.path.with_name("current.log")
    link.symlink_to(log.path.name)
    reader = Reader(link)
    reader.read()
    log.write("one")
    newer = Log(log.path.with_name("vllm-0002.log"))
    newer.write("two")
    link.unlink()
    link.symlink_to(newer.path.name)
    assert reader.read() == ["one", "two"]


def test_a_deleted_log_is_closed_and_read_anew_when_it_is_made_again(log: Log, reader: Reader) -> None:
    log.write("one")
    inode = log.path.stat().st_ino
    log.path.unlink()
    assert reader.read() == ["one"]
    reader.wait()
    assert inode not in open_inodes()  # or its disk space would never be free
    log.write("two")
    assert reader.read() == ["two"]


def test_a_new_file_with_the_inode_of_a_deleted_one_is_read_whole(log: Log, reader: Reader) -> None:
    """File systems give the number of a deleted file to the next one."""
    log.write("one")
    inode = log.path.stat().st_ino
    log.path.unlink()
    reader.read()
    reader.wait()
    for number in range(1000):
        log.path.with_name(f"{number}").touch()
    others = {path.stat().st_ino: path for path in log.path.parent.iterdir()}
    if inode in others:
        others[inode].rename(log.path)
    log.write("the first line of another log", "two")
    assert reader.read() == ["the first line of another log", "two"]


def test_a_volume_that_is_mounted_anew_is_read_twice(log: Log, reader: Reader) -> None:
    """Another device with the same files on it cannot be told from a rotation."""
    log.write("one")
    assert reader.read() == ["one"]
    with tempfile.TemporaryDirectory(dir="/dev/shm") as volume:
        (log.path.parent / "moved").symlink_to(volume)
        (log.path.parent / "moved" / "vllm.log").write_bytes(log.path.read_bytes())
        log.path.unlink()
        log.path.symlink_to(log.path.parent / "moved" / "vllm.log")
        assert reader.read() == ["before", "one"]


def test_two_rotations_between_two_looks_lose_the_file_in_between(log: Log, reader: Reader) -> None:
    for line in ("one", "lost", "three"):
        log.write(line)
        log.rotate()
    log.write("four")
    assert reader.read() == ["one", "four"]


def test_the_kubelet_rotates_by_rename_and_packs_older_files(tmp_path: Path) -> None:
    """`0.log` becomes `0.log.TIME`, and the one before that is gzipped."""
    log = Log(tmp_path / "0.log")
    log.path.touch()
    reader = Reader(tmp_path / "*.log")
    reader.read()
    for number in range(4):
        log.write(f"{number}")
        for older in tmp_path.glob("0.log.*"):
            older.rename(tmp_path / "packed.gz")
        log.path.rename(tmp_path / f"0.log.20261129-18000{number}")
        log.path.touch()
        log.write(f"new {number}")
        assert reader.read() == [f"{number}", f"new {number}"]
    assert counted(reader) == (4, 0)


# --- globs ------------------------------------------------------------------------------------------------------------


def test_a_file_that_a_glob_finds_later_is_read_whole(tmp_path: Path) -> None:
    reader = Reader(tmp_path / "a[1].log", tmp_path / "pods" / "*" / "*.log")
    reader.read()
    Log(tmp_path / "a[1].log").write("a")  # a path that exists is a path, whatever is in its name
    (tmp_path / "pods" / "x").mkdir(parents=True)
    Log(tmp_path / "pods" / "x" / "0.log").write("x0")
    assert sorted(reader.read()) == ["a", "x0"]
    Log(tmp_path / "pods" / "x" / "1.log").write("x1")
    assert reader.read() == ["x1"]


def test_a_glob_that_finds_a_renamed_log_reads_no_line_twice(log: Log) -> None:
    reader = Reader(log.path.with_name("vllm*"))
    reader.read()
    for number in range(4):
        log.write(f"{number}")
        log.rotate()
        log.write(f"new {number}")
        assert reader.read() == [f"{number}", f"new {number}"]
        log.sibling(".1").write("late")
        assert reader.wait() == ["late"]


def test_a_copy_that_a_glob_finds_is_read_twice(log: Log) -> None:
    reader = Reader(log.path.with_name("vllm*"))
    reader.read()
    log.write("one")
    assert reader.read() == ["one"]
    log.copytruncate()
    assert reader.read() == ["before", "one"]


def test_a_file_with_several_names_is_read_once(log: Log, tmp_path: Path) -> None:
    (tmp_path / "link.log").symlink_to(log.path)
    (tmp_path / "hard.log").hardlink_to(log.path)
    reader = Reader(tmp_path / "*.log", log.path, tmp_path / "link.log")
    reader.read()
    log.write("one")
    assert reader.read() == ["one"]


def test_beyond_the_bound_those_that_changed_last_are_read_each_from_where_it_stood(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(bounds, "LOG_FILES", 2)
    logs = [Log(tmp_path / f"{number}.log") for number in range(4)]
    clock = iter(range(1000, 2000))

    def write(log: Log, line: str) -> None:
        log.write(line)
        os.utime(log.path, (at := next(clock), at))

    for log in logs:
        write(log, "before")
    reader = Reader(tmp_path / "*.log")
    reader.read()
    for round_ in range(3):
        for log in logs:
            write(log, f"{log.path.stem} in round {round_}")
            assert reader.read() == [f"{log.path.stem} in round {round_}"]
    assert len(set(open_inodes()) & {log.path.stat().st_ino for log in logs}) == 2
    assert reader.counters.dropped["log_files"] == 2
    assert len(caplog.records) == 1


# --- the server's start in what was there before ----------------------------------------------------------------------


def test_the_last_configuration_before_the_start_is_given_and_nothing_else(log: Log) -> None:
    log.write("config A", "line", "config B", *["line"] * 100_000)
    reader = Reader(log.path, search_history=True)
    assert [getattr(event, "model", event) for event in reader.events()] == ["B"]
    assert reader.events() == []


def test_it_is_searched_for_in_rotated_files_newest_first(log: Log) -> None:
    log.sibling(".3").write("config A")
    log.sibling("-20261120").write("config B", "config C")
    log.sibling(".1").write("line")
    log.path.with_name("vllm-8001.log").write_text("config of another server\n")
    log.write("line")
    assert [getattr(event, "model", event) for event in Reader(log.path, search_history=True).events()] == ["C"]


def test_lines_are_read_during_the_search_and_a_newer_configuration_ends_it(log: Log) -> None:
    log.write("config A", *["x" * 99] * 50_000)
    reader = Reader(log.path, search_history=True)
    assert reader.follower.poll(max_bytes=300_000) == []
    log.write("new")
    assert len(reader.follower.poll(max_bytes=300_000)) == 1
    log.write("config B")
    assert [getattr(event, "model", event) for event in reader.events()] == ["B"]


# --- real rotators ----------------------------------------------------------------------------------------------------

LOGROTATE = "{path} {{\n  rotate 3\n  size 1\n  %s\n}}\n"


@pytest.mark.debian
@pytest.mark.parametrize("options", ["create", "copytruncate", "create\n  olddir old\n  createolddir", "nocreate"])
def test_logrotate(options: str, log: Log, reader: Reader, tmp_path: Path) -> None:
    config = tmp_path / "rotate.conf"
    log.path.parent.chmod(0o755)
    config.write_text((LOGROTATE % options).format(path=log.path))
    lines = []
    for number in range(4):
        log.write(f"{number}")
        lines += reader.read()
        command = [tool("logrotate"), "--force", "--state", str(tmp_path / "state"), str(config)]
        subprocess.run(command, check=True, capture_output=True)
        log.write(f"after {number}")
        lines += reader.read()
    assert lines == [word for number in range(4) for word in (f"{number}", f"after {number}")]


@pytest.mark.field
@pytest.mark.parametrize(
    ("rotator", "arguments"), [("svlogd", ["."]), ("multilog", ["s4096", "n6", "."]), ("s6-log", ["s4096", "n6", "."])]
)
def test_a_rotator_that_takes_the_log_from_a_pipe(rotator: str, arguments: list[str], tmp_path: Path) -> None:
    """Each renames `current` when it has 4 KiB; the writer waits until its line is there."""
    (tmp_path / "config").write_text("s4096\nn6\n")  # svlogd's
    reader = Reader(tmp_path / "current", start="start")
    lines: list[str] = []
    written = [f"{number:07} {'x' * 91}" for number in range(500)]
    with subprocess.Popen([tool(rotator), *arguments], cwd=tmp_path, stdin=subprocess.PIPE, bufsize=0) as process:
        assert process.stdin
        for line in written:
            process.stdin.write(f"{line}\n".encode())
            while line not in lines[-1:]:
                lines += reader.read()
        process.stdin.close()
    assert lines == written
    assert reader.counters.rotations >= 8


@settings(max_examples=50)
@given(st.lists(st.sampled_from(["line", "piece", "error", "rotate", "look"]), max_size=25), st.integers(1, 200))
def test_pieces_of_a_container_s_line_come_together_across_a_rotation(steps: list[str], cut: int) -> None:
    with tempfile.TemporaryDirectory() as directory:
        log = Log(Path(directory, "0.log"))
        log.path.touch()
        counters = ReaderCounters()
        follower = LogFollower([str(log.path)], lambda: LogScanner(counters), counters=counters)
        events: list[Event] = follower.poll()
        written, rest, time = 0, "", ""
        for number, step in enumerate([*steps, "line"]):
            time = f"2026-11-20T21:44:52.{number:09}Z"
            if step in ("line", "piece") and rest:
                log.write(f"{time} stdout F {rest}")
                rest = ""
            elif step in ("line", "piece"):
                written += 1
                text = HEADER.replace("pid=7", f"pid={written}") + SPEC
                rest = text[cut:] if step == "piece" else ""
                log.write(f"{time} stdout {'P' if rest else 'F'} {text[:cut] if rest else text}")
            elif step == "error":
                log.write(f"{time} stderr F another stream, line {number}")
            else:
                events += _all(follower)
                if step == "rotate" and log.path.stat().st_size:  # runtimes rotate by size, and not twice in a look
                    log.rotate()
        if rest:
            log.write(f"{time} stdout F {rest}")
        events += _all(follower) + follower.close()
        assert [event.pid for event in events if isinstance(event, SpecDecoding)] == list(range(1, written + 1))
        assert counters.parse_errors == 0


def _all(follower: LogFollower) -> list[Event]:
    events = follower.poll()
    while follower.more:
        events += follower.poll()
    return events
