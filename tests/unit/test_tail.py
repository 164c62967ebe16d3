"""What a follower gives of a log, counts and says, where :mod:`test_tail_model` does not look or does not go."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from logfiles import Log, Reader, open_inodes, texts
from specdec_exporter.predictor.log.lines import CHUNK_BYTES

BANNER = "banner " + "=" * 2000  # so that the first bytes do not tell contents apart


def test_lines_appended_in_bulk_are_read_in_order(log: Log, reader: Reader) -> None:
    lines = [f"line {number} {'x' * 100}" for number in range(20_000)]
    log.write(*lines)
    assert reader.read() == lines
    assert reader.counters.bytes == log.path.stat().st_size - len("before\n")


def test_bytes_behind_tells_what_is_not_read_yet(log: Log, reader: Reader) -> None:
    log.write("x" * 1_000_000)
    log.write(*["y" * 99] * 40_000)
    reader.follower.poll(max_bytes=1_500_000)
    assert reader.follower.more
    assert 3_000_000 < reader.counters.bytes_behind < 4_000_000
    reader.read()
    assert reader.counters.bytes_behind == 0
    log.append("a progress bar \r")
    reader.read()
    assert reader.counters.bytes_behind == 0


# --- where reading begins ---------------------------------------------------------------------------------------------


def test_start_at_the_start_reads_what_is_there(log: Log) -> None:
    log.append("and a half")
    reader = Reader(log.path, start="start")
    assert reader.read() == ["before"]
    log.append(" line\n")
    assert reader.read() == ["and a half line"]


def test_a_line_that_is_half_there_at_the_start_and_longer_than_any_is_skipped(log: Log) -> None:
    log.append("x" * CHUNK_BYTES * 2)
    reader = Reader(log.path)
    reader.read()
    log.append("the rest\nnext\n")
    assert reader.read() == ["next"]


def test_a_file_missing_at_the_start_is_read_whole_when_it_comes(tmp_path: Path) -> None:
    log = Log(tmp_path / "later" / "vllm.log")
    reader = Reader(log.path)
    assert reader.read() == []
    assert not reader.follower.healthy
    assert reader.counters.read_errors == 0
    log.path.parent.mkdir()
    log.write("one", "two")
    assert reader.read() == ["one", "two"]
    assert reader.follower.healthy


# --- long lines -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("pieces", [1, 7])
def test_a_line_of_two_megabytes_is_skipped_and_counted(log: Log, reader: Reader, pieces: int) -> None:
    log.write("one")
    got = []
    for _ in range(pieces):
        log.append("x" * (2_000_000 // pieces))
        got += reader.read()
    log.append("\ntwo\n")
    got += reader.read()
    assert got == ["one", "two"]
    assert reader.counters.oversized_lines == 1


@pytest.mark.parametrize(("length", "is_read"), [(CHUNK_BYTES - 1, True), (CHUNK_BYTES, False)])
def test_the_longest_line_has_256_kib_wherever_it_begins(log: Log, reader: Reader, length: int, is_read: bool) -> None:
    line = "y" * length
    log.write("short " * 20_000)
    log.write(line, "next")
    assert reader.read()[1:] == ([line] if is_read else []) + ["next"]
    assert reader.counters.oversized_lines == (0 if is_read else 1)


# --- rotation ---------------------------------------------------------------------------------------------------------


def test_five_rotations_between_two_looks_are_counted(log: Log, reader: Reader) -> None:
    for number in range(5):
        log.write(str(number))
        log.rotate()
    log.write("now")
    assert reader.read() == ["0", "1", "2", "3", "4", "now"]
    assert reader.counters.rotations == 5


def test_a_backlog_is_read_to_its_end_before_the_file_that_follows(log: Log, reader: Reader) -> None:
    lines = [f"line {number}" for number in range(100_000)]
    log.write(*lines)
    first = reader.follower.poll(max_bytes=100_000)
    log.rotate()
    log.sibling(".1").path.unlink()  # packed, say
    log.write("new")
    assert texts(first) + reader.read() == [*lines, "new"]


def test_rotations_are_noticed_although_no_new_file_follows(log: Log, reader: Reader) -> None:
    for line in ("one", "two", "three"):
        log.write(line)
        log.rotate()
    log.path.unlink()
    assert reader.read() == ["one", "two", "three"]
    log.write("four")
    assert reader.read() == ["four"]


def test_a_symlink_swapped_back_goes_on_where_it_was(tmp_path: Path) -> None:
    link, one, two = tmp_path / "current.log", Log(tmp_path / "one.log"), Log(tmp_path / "two.log")
    one.write("before")
    link.symlink_to(one.path.name)
    reader = Reader(link)
    reader.read()
    one.write("1")
    link.unlink()
    two.write("2")
    link.symlink_to(two.path.name)
    assert reader.read() == ["1", "2"]
    reader.wait()
    link.unlink()
    link.symlink_to(one.path.name)
    one.write("3")
    assert reader.read() == ["3"]


def test_a_deleted_file_is_let_go_of_when_nobody_writes_to_it(log: Log, reader: Reader) -> None:
    inode = log.path.stat().st_ino
    log.path.unlink()
    reader.read()
    assert inode in open_inodes()
    reader.wait()
    assert inode not in open_inodes()


def test_only_so_many_rotated_files_are_kept_open(log: Log, reader: Reader) -> None:
    before = len(open_inodes())
    got = []
    for number in range(30):
        log.write(f"line {number}")
        log.path.rename(log.path.with_name(f"vllm.log.{2000 + number}"))
        log.path.touch()
        got += reader.wait(1)
    assert got == [f"line {number}" for number in range(30)]
    assert len(open_inodes()) - before <= 16
    log.rotate()
    log.write("last")
    assert reader.wait() == ["last"]
    reader.close()
    assert len(open_inodes()) == before - 1


def test_more_rotations_between_two_looks_than_files_are_kept_open_are_read_once(log: Log, reader: Reader) -> None:
    for number in range(40):
        log.write(f"line {number}")
        log.rotate()
    assert reader.read() == [f"line {number}" for number in range(40)]
    log.write("next")
    log.rotate()
    assert reader.wait() == ["next"]


@pytest.mark.parametrize("down", [False, True])
def test_a_copy_under_a_number_is_not_read_beside_files_renamed_to_dates(log: Log, tmp_path: Path, down: bool) -> None:
    state = tmp_path / "positions.json"
    reader = Reader(log.path, state=state)
    reader.read()
    log.write("a")
    assert reader.read() == ["a"]
    if down:
        reader.close()
        shutil.copyfile(log.path, log.sibling(".1").path)
    for number, line in enumerate("bc"):
        log.write(line)
        log.path.rename(log.sibling(f"-2026112{number}").path)
    log.write("d")
    if not down:
        shutil.copyfile(log.path, log.sibling(".1").path)
    reader = Reader(log.path, state=state) if down else reader
    assert reader.read() == ["b", "c", "d"]
    assert reader.wait() == []


# --- truncation -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("difference", [-1000, -1, 0, 1, 1000])
def test_truncation_is_counted_to_whatever_size_the_log_has_grown(log: Log, reader: Reader, difference: int) -> None:
    log.write("one " + "x" * 2000)
    reader.read()
    size = log.path.stat().st_size
    log.truncate()
    log.write("two " + "y" * (size + difference - 5))
    assert [line[:3] for line in reader.read()] == ["two"]
    assert reader.counters.truncations == 1


def test_truncation_and_growth_behind_an_unchanged_beginning_is_noticed(log: Log) -> None:
    log.truncate()
    log.write(BANNER, "one")
    reader = Reader(log.path)
    reader.read()
    log.truncate()
    log.write(BANNER, "two")
    assert reader.read() == []  # which of this was read before, nothing tells
    assert reader.counters.truncations == 1
    log.write("three")
    assert reader.read() == ["three"]


def test_truncation_and_rotation_between_two_looks_repeat_nothing(log: Log) -> None:
    log.truncate()
    log.write(BANNER)
    reader = Reader(log.path)
    reader.read()
    log.write("one")
    assert reader.read() == ["one"]
    log.copytruncate()
    log.write(BANNER, "two")
    log.rotate()
    log.write("three")
    assert reader.wait() == ["three"]


def test_a_hole_longer_than_any_line_is_skipped(log: Log, reader: Reader) -> None:
    with log.path.open("r+b", buffering=0) as writer:
        writer.seek(0, os.SEEK_END)
        writer.write(b"one\n" + b"x" * CHUNK_BYTES * 3 + b"\n")
        assert reader.read() == ["one"]
        log.truncate()
        writer.write(b"two\n")
        assert log.path.read_bytes().startswith(b"\0" * CHUNK_BYTES * 3)
        assert reader.read() == ["two"]
    assert reader.counters.truncations == 1


# --- lines that wait for the next one ---------------------------------------------------------------------------------


def test_a_line_held_back_is_given_when_its_file_is_gone(log: Log, reader: Reader) -> None:
    log.write("hold one")
    log.path.unlink()
    assert reader.read() == []
    assert reader.wait() == ["hold one "]


def test_a_line_held_back_is_completed_by_the_next_file(log: Log, reader: Reader) -> None:
    log.write("hold one")
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
