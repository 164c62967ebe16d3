"""Following a log through what happens to logs every day."""

from __future__ import annotations

import contextlib
import json
import os
from pathlib import Path

import pytest

from logfiles import Log, Reader
from specdec_exporter.predictor.log.counters import ReaderCounters
from specdec_exporter.predictor.log.events import SpecDecoding
from specdec_exporter.predictor.log.lines import CHUNK_BYTES
from specdec_exporter.predictor.log.scan import LogScanner

SPEC_LINE = (
    "INFO 11-20 21:44:52 [metrics.py:96] SpecDecoding metrics: Mean acceptance length: 2.80, "
    "Accepted throughput: 0.90 tokens/s, Drafted throughput: 1.50 tokens/s, Accepted: 9 tokens, Drafted: 15 tokens, "
    "Per-position acceptance rate: 0.800, 0.600, 0.400, Avg Draft acceptance rate: 60.0%"
)


def spec_reader(log: Log) -> Reader:
    counters = ReaderCounters()
    reader = Reader(log.path, scanner_factory=lambda: LogScanner(counters), counters=counters)
    reader.read()
    return reader


def accepted(reader: Reader) -> list[int]:
    return [event.accepted_tokens for event in reader.events() if isinstance(event, SpecDecoding)]


def test_lines_appended_in_bulk_are_read_in_order(log: Log, reader: Reader) -> None:
    lines = [f"line {number} {'x' * 100}" for number in range(20_000)]
    log.write(*lines)
    assert reader.read() == lines
    assert reader.counters.bytes == log.path.stat().st_size - len("before\n")


def test_a_line_written_in_two_halves_is_read_once_when_its_newline_comes(log: Log, reader: Reader) -> None:
    log.append("first half, ")
    assert reader.read() == []
    log.append("second half")
    assert reader.read() == []
    log.append("\n")
    assert reader.read() == ["first half, second half"]


def test_rename_and_create_is_followed(log: Log, reader: Reader) -> None:
    log.write("old")
    log.rotate()
    log.write("new")
    assert reader.read() == ["old", "new"]
    assert reader.counters.rotations == 1


def test_lines_written_just_before_each_of_twelve_renames_are_read(log: Log, reader: Reader) -> None:
    got: list[str] = []
    for number in range(12):
        log.write(f"last words {number}")
        log.rotate()
        log.write(f"first words {number}")
        got += reader.read()
    assert got == [f"{which} words {number}" for number in range(12) for which in ("last", "first")]


def test_a_writer_still_on_the_old_file_is_read(log: Log, reader: Reader) -> None:
    with log.path.open("ab", buffering=0) as writer:
        log.rotate()
        log.write("new")
        assert reader.read() == ["new"]
        writer.write(b"late\n")
        assert reader.wait(4) == ["late"]
        writer.write(b"later\n")
        assert reader.wait(4) == ["later"]


def test_a_writer_still_on_a_deleted_file_is_read_while_it_writes(log: Log, reader: Reader) -> None:
    with log.path.open("ab", buffering=0) as writer:
        log.path.unlink()
        assert reader.read() == []
        writer.write(b"late\n")
        assert reader.wait(4) == ["late"]
        for line in ("later", "even later", "at last"):
            writer.write(f"{line}\n".encode())
            assert reader.wait(4) == [line]


def test_a_deleted_file_is_let_go_of_when_nobody_writes_to_it(log: Log, reader: Reader) -> None:
    inode = log.path.stat().st_ino
    log.path.unlink()
    reader.read()
    assert inode in open_inodes()
    reader.wait()
    assert inode not in open_inodes()


def test_an_unterminated_line_is_given_once_its_file_was_rotated_away_for_good(log: Log, reader: Reader) -> None:
    log.append("no newline")
    reader.read()
    log.rotate()
    log.write("new")
    assert reader.read() == ["new"]
    assert reader.wait() == ["no newline"]
    assert reader.wait() == []


def test_the_rest_of_a_line_given_unterminated_is_not_a_line(log: Log, reader: Reader) -> None:
    log.append("no newline")
    log.rotate()
    reader.read()
    assert reader.wait() == ["no newline"]
    log.sibling(".1").append(" after all\nnext\n")
    assert reader.read() == ["next"]
    log.sibling(".1").append("again no newline")
    assert reader.read() == []
    assert reader.wait() == ["again no newline"]


def test_truncation_to_fewer_bytes_is_followed(log: Log, reader: Reader) -> None:
    log.write("one", "two", "three")
    assert reader.read() == ["one", "two", "three"]
    log.truncate()
    log.write("four")
    assert reader.read() == ["four"]
    assert reader.counters.truncations == 1


@pytest.mark.parametrize("difference", [-1, 0, 1, 1000])
def test_truncation_and_growth_past_the_old_size_is_noticed(log: Log, reader: Reader, difference: int) -> None:
    log.write("one " + "x" * 2000)
    reader.read()
    size = log.path.stat().st_size
    log.truncate()
    log.write("two " + "y" * (size + difference - 5))
    assert [line[:3] for line in reader.read()] == ["two"]
    assert reader.counters.truncations == 1


def test_truncation_and_growth_behind_an_unchanged_beginning_is_noticed(log: Log) -> None:
    log.truncate()
    log.write("banner " + "=" * 2000, "one")
    reader = Reader(log.path)
    reader.read()
    log.truncate()
    log.write("banner " + "=" * 2000, "two")
    assert reader.read() == []  # which of this was read before, nothing tells
    assert reader.counters.truncations == 1
    log.write("three")
    assert reader.read() == ["three"]


def test_cutting_off_the_end_repeats_nothing(log: Log, reader: Reader) -> None:
    log.write("one", "two", "three")
    reader.read()
    os.truncate(log.path, len("before\none\ntw"))
    assert reader.read() == []
    log.write("o again", "four")
    assert reader.read() == ["two again", "four"]


def test_the_hole_left_by_truncation_under_a_writer_that_does_not_append_is_skipped(log: Log, reader: Reader) -> None:
    with log.path.open("r+b", buffering=0) as writer:
        writer.seek(0, os.SEEK_END)
        writer.write(b"one\n" + b"x" * CHUNK_BYTES * 3 + b"\n")
        assert reader.read() == ["one"]
        log.truncate()
        writer.write(b"two\n")
        assert log.path.read_bytes().startswith(b"\0" * CHUNK_BYTES * 3)
        assert reader.read() == ["two"]
        writer.write(b"three\n")
        assert reader.read() == ["three"]
    assert reader.counters.truncations == 1


def test_a_hole_between_lines_is_skipped(log: Log, reader: Reader) -> None:
    log.append(b"one\n" + b"\0" * 5000 + b"two\n\0three\n\0\0")
    assert reader.read() == ["one", "two", "three"]
    log.append(b"\0four\n")
    assert reader.read() == ["four"]


def test_delete_and_create_is_followed_whatever_the_inode(log: Log, reader: Reader) -> None:
    got: list[str] = []
    for number in range(5):
        log.write(f"one {number}")
        log.path.unlink()
        log.write(f"two {number}")
        got += reader.wait()
    assert got == [f"{which} {number}" for number in range(5) for which in ("one", "two")]


def test_symlink_swaps_are_followed(tmp_path: Path) -> None:
    link = tmp_path / "current.log"
    first = Log(tmp_path / "run-00.log")
    first.write("before")
    link.symlink_to(first.path.name)
    reader = Reader(link)
    reader.read()
    got: list[str] = []
    for number in range(30):
        log = Log(tmp_path / f"run-{number:02}.log")
        log.write(f"line {number}")
        temporary = tmp_path / "next"
        temporary.symlink_to(log.path.name)
        temporary.rename(link)
        got += reader.read()
    assert got == [f"line {number}" for number in range(30)]


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


def test_bytes_that_are_no_utf8_hide_nothing(log: Log) -> None:
    reader = spec_reader(log)
    log.append(b"\xff\xfe\x80 progress \xc3\n" + SPEC_LINE.encode() + b"\n\xf0\x28\x8c\x28\n")
    assert accepted(reader) == [9]


def test_crlf_lines_are_read(log: Log) -> None:
    reader = spec_reader(log)
    log.append(f"something\r\n{SPEC_LINE}\r\n")
    assert accepted(reader) == [9]


def test_cri_pieces_are_joined_across_a_rotation(log: Log) -> None:
    reader = spec_reader(log)
    stamp = "2026-11-20T21:44:52.123456789Z stdout"
    log.write(f"{stamp} F something", f"{stamp} P {SPEC_LINE[:120]}")
    assert accepted(reader) == []
    log.rotate()
    log.write(f"{stamp} F {SPEC_LINE[120:]}")
    assert accepted(reader) == [9]


def test_docker_json_is_unwrapped(log: Log) -> None:
    reader = spec_reader(log)
    for text in ("something\n", SPEC_LINE[:90], SPEC_LINE[90:] + "\n"):
        log.write(json.dumps({"log": text, "stream": "stdout", "time": "2026-11-20T21:44:52.1Z"}))
    assert accepted(reader) == [9]


def test_engine_and_spec_line_are_paired_across_a_rotation(log: Log) -> None:
    reader = spec_reader(log)
    log.write(
        "INFO 11-20 21:44:52 [loggers.py:127] Engine 003: Avg prompt throughput: 1.0 tokens/s, Avg generation "
        "throughput: 2.0 tokens/s, Running: 1 reqs, Waiting: 0 reqs, GPU KV cache usage: 0.1%"
    )
    log.rotate()
    log.write(SPEC_LINE)
    assert [event.engine for event in reader.events() if isinstance(event, SpecDecoding)] == ["003"]


def test_lines_written_while_the_exporter_was_down_are_read(log: Log, tmp_path: Path) -> None:
    state = tmp_path / "positions.json"
    reader = Reader(log.path, state=state)
    reader.read()
    log.write("one")
    assert reader.read() == ["one"]
    assert reader.close() == []
    log.write("two", "three", "four")
    assert Reader(log.path, state=state).read() == ["two", "three", "four"]


def test_five_rotations_between_two_looks_lose_nothing(log: Log, reader: Reader) -> None:
    expected = []
    for number in range(5):
        lines = [f"{number} one", f"{number} two"]
        log.write(*lines)
        expected += lines
        log.rotate()
    log.write("now")
    assert reader.read() == [*expected, "now"]
    assert reader.counters.rotations == 5


def test_rotations_are_noticed_although_no_new_file_follows(log: Log, reader: Reader) -> None:
    for line in ("one", "two", "three"):
        log.write(line)
        log.rotate()
    log.path.unlink()
    assert reader.read() == ["one", "two", "three"]
    log.write("four")
    assert reader.read() == ["four"]


@pytest.mark.parametrize("name", ["{}-20261120-0{}", "{}.2026-11-20_21-44-0{}", "{}.20261120-21440{}"])
def test_rotations_between_two_looks_are_read_by_date(log: Log, name: str) -> None:
    for number in range(3):
        Log(log.path.with_name(name.format(log.path.name, number))).write(f"old {number}")
    reader = Reader(log.path)
    assert reader.read() == []
    for number in range(4, 8):
        log.write(f"line {number}")
        log.path.rename(log.path.with_name(name.format(log.path.name, number)))
        log.path.touch()
    assert reader.read() == [f"line {number}" for number in range(4, 8)]


def test_rotated_files_that_were_there_before_are_not_read(log: Log) -> None:
    for number in range(1, 4):
        log.sibling(f".{number}").write(f"old {number}")
    reader = Reader(log.path)
    reader.read()
    log.write("one")
    log.rotate()
    log.path.unlink()
    log.write("two")
    assert reader.read() == ["one", "two"]


def test_files_that_only_look_like_rotated_ones_are_not_read(log: Log, reader: Reader) -> None:
    for suffix in (".bak", ".1.gz", "-errors", ".8000000", ".1~", ".swp"):
        log.sibling(suffix).write(f"not ours: {suffix}")
    Log(log.path.with_name("vllm-8001.log")).write("of another server")
    log.rotate()
    log.write("ours")
    assert reader.read() == ["ours"]


def test_start_at_the_start_reads_what_is_there(log: Log) -> None:
    log.append("and a half")
    reader = Reader(log.path, start="start")
    assert reader.read() == ["before"]
    log.append(" line\n")
    assert reader.read() == ["and a half line"]


def test_a_line_that_is_half_there_at_the_start_is_read_whole(log: Log) -> None:
    log.append("half ")
    reader = Reader(log.path)
    assert reader.read() == []
    log.append("a line\n")
    assert reader.read() == ["half a line"]


def test_a_line_that_is_half_there_at_the_start_and_longer_than_any_is_skipped(log: Log) -> None:
    log.append("x" * CHUNK_BYTES * 2)
    reader = Reader(log.path)
    reader.read()
    log.append("the rest\nnext\n")
    assert reader.read() == ["next"]


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


def open_inodes() -> set[int]:
    inodes = set()
    for link in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):  # the listing's own
            inodes.add(link.stat().st_ino)
    return inodes
