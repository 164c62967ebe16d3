"""Copies of what was read, under the names of rotated files: a line that is in two files is one line."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from logfiles import Log, Reader

DATED = "-20261120"


def copy(source: Log, target: Log) -> None:
    """``cp``: a target that exists stays the file that it is."""
    shutil.copyfile(source.path, target.path)


def rewrite(log: Log, text: bytes) -> None:
    """``sed -i``: another file takes the place of the old one."""
    temporary = log.path.with_name("sedKx2a")
    temporary.write_bytes(text)
    temporary.rename(log.path)


def rename(log: Log, suffix: str) -> None:
    log.path.rename(log.sibling(suffix).path)
    log.path.touch()


# --- one file, several paths ------------------------------------------------------------------------------------------


@pytest.fixture(params=["absolute", "relative", "dotted", "link to the directory", "link to the file"])
def path(request: pytest.FixtureRequest, log: Log, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A path to the log, which is not always the only one."""
    monkeypatch.chdir(tmp_path.parent)
    if request.param == "relative":
        return f"{tmp_path.name}/vllm.log"
    if request.param == "dotted":
        return f"{tmp_path}/../{tmp_path.name}/vllm.log"
    if request.param == "link to the directory":
        (tmp_path / "link").symlink_to(tmp_path)
        return f"{tmp_path}/link/vllm.log"
    if request.param == "link to the file":
        (tmp_path / "current").symlink_to("vllm.log")
        return f"{tmp_path}/current"
    return str(log.path)


@pytest.mark.parametrize("rotate", [Log.rotate, Log.copytruncate])
def test_rotations_between_two_looks_are_read_once_however_the_path_is_spelled(
    log: Log, path: str, rotate: Callable[[Log], None]
) -> None:
    reader = Reader(path)
    reader.read()
    log.write("a")
    assert reader.read() == ["a"]
    for line in "bcd":
        log.write(line)
        rotate(log)
    log.write("e")
    assert reader.read() == ["b", "c", "d", "e"]
    assert reader.counters.rotations == (3 if rotate is Log.rotate else 0)
    log.write("f")
    rotate(log)
    log.write("g")
    assert reader.read() == ["f", "g"]
    assert reader.wait() == []


# --- copytruncate by hand ---------------------------------------------------------------------------------------------


def overwrite_numbered(log: Log) -> None:
    copy(log, log.sibling(".1"))


def overwrite_dated(log: Log) -> None:
    copy(log, log.sibling(DATED))


def append_to_copy(log: Log) -> None:
    log.sibling(".1").append(log.path.read_bytes())


def shift_by_copy(log: Log) -> None:
    for number in (2, 1):
        if (older := log.sibling(f".{number}")).path.exists():
            copy(older, log.sibling(f".{number + 1}"))
    copy(log, log.sibling(".1"))


@pytest.mark.parametrize("seconds", [0, 10])
@pytest.mark.parametrize("look_between", [True, False])
@pytest.mark.parametrize("keep", [overwrite_numbered, overwrite_dated, append_to_copy, shift_by_copy])
@pytest.mark.parametrize("groups", ["abc de f ghij", "a b c d e f", "a bc def ghij"])
def test_what_was_read_is_not_read_again_from_a_copy(
    log: Log, reader: Reader, keep: Callable[[Log], None], groups: str, *, look_between: bool, seconds: float
) -> None:
    got: list[str] = []
    for group in groups.split():
        log.write(*group)
        got += reader.wait(seconds)
        keep(log)
        if look_between:
            got += reader.wait(seconds)
        log.truncate()
        got += reader.wait(seconds)
    got += reader.wait()
    assert "".join(got) == groups.replace(" ", "")


@pytest.mark.parametrize("seconds", [0, 10])
@pytest.mark.parametrize("keep", [overwrite_numbered, overwrite_dated, shift_by_copy])
def test_what_was_not_read_before_truncation_is_read_from_a_copy(
    log: Log, reader: Reader, keep: Callable[[Log], None], seconds: float
) -> None:
    got: list[str] = []
    for group in ("abc", "def", "ghi"):
        log.write(*group[:2])
        got += reader.wait(seconds)
        log.write(group[2])
        keep(log)
        log.truncate()
        got += reader.wait(seconds)
    assert "".join(got + reader.wait()) == "abcdefghi"


@pytest.mark.parametrize("look_between", [True, False])
def test_what_is_appended_to_a_renamed_file_is_not_read_if_it_was_read_in_the_log(
    log: Log, reader: Reader, *, look_between: bool
) -> None:
    log.write("a")
    log.rotate()
    for lines in (["b"], ["c", "d"], ["e"]):
        log.write(*lines)
        assert reader.read()[-len(lines) :] == lines
        append_to_copy(log)
        if look_between:
            assert reader.read() == []
        log.truncate()
        assert reader.read() == []
    log.sibling(".1").write("late")
    assert reader.read() == ["late"]


def test_what_was_appended_to_a_copy_while_down_is_not_read_again(log: Log, tmp_path: Path) -> None:
    state = tmp_path / "positions.json"
    reader = Reader(log.path, state=state)
    reader.read()
    for line in "ab":
        log.write(line)
        assert reader.read() == [line]
        append_to_copy(log)
        log.truncate()
        assert reader.read() == []
        log.write(f"{line} too")
        assert reader.read() == [f"{line} too"]
        reader.close()
        append_to_copy(log)
        reader = Reader(log.path, state=state)
        assert reader.read() == []
        log.truncate()
        assert reader.read() == []


def test_a_truncation_without_a_copy_does_not_bring_back_what_was_edited(log: Log, reader: Reader) -> None:
    log.write("a", "b")
    log.rotate()
    log.write("c")
    assert reader.read() == ["a", "b", "c"]
    rewrite(log.sibling(".1"), b"b\n")
    assert reader.read() == []
    log.truncate()
    log.write("d")
    assert reader.wait() == ["d"]


def test_a_copy_of_an_empty_log_is_not_read_when_it_is_overwritten(log: Log, reader: Reader) -> None:
    log.path.unlink()
    log.path.touch()
    copy(log, log.sibling(DATED))
    log.write("a")
    assert reader.read() == ["a"]
    copy(log, log.sibling(DATED))
    assert reader.read() == []
    log.truncate()
    assert reader.wait() == []


# --- copies beside renamed files --------------------------------------------------------------------------------------


@pytest.mark.parametrize("rotated", [".1", "-20261121"])
@pytest.mark.parametrize("copied", [DATED, "-20261122", ".1", ".2"])
@pytest.mark.parametrize("look_between", [True, False])
def test_a_copy_of_the_log_is_not_read_when_the_log_is_renamed(
    log: Log, reader: Reader, copied: str, rotated: str, look_between: bool
) -> None:
    log.write("a", "b", "c")
    assert reader.read() == ["a", "b", "c"]
    copy(log, log.sibling(copied))
    if look_between:
        assert reader.read() == []
    log.write("d")
    rename(log, rotated)
    log.write("e")
    assert reader.read() == ["d", "e"]
    log.write("f")
    log.rotate()
    log.write("g")
    assert reader.wait() == ["f", "g"]


def test_a_copy_of_the_new_log_is_not_read_beside_it(log: Log, reader: Reader) -> None:
    log.write("a")
    rename(log, DATED)
    log.write("b")
    copy(log, log.sibling(".1"))
    assert reader.read() == ["a", "b"]
    assert reader.wait() == []


def copy_to_dated(rotated: Log, log: Log) -> None:
    copy(rotated, log.sibling(DATED))


def delete_and_restore(rotated: Log, log: Log) -> None:
    kept = rotated.path.read_bytes()
    rotated.path.unlink()
    rotated.path.with_name("kept").touch()  # takes the inode
    rotated.path.write_bytes(kept)


def edit_the_beginning(rotated: Log, log: Log) -> None:
    rewrite(rotated, rotated.path.read_bytes().replace(b"before\n", b""))


def edit_the_end(rotated: Log, log: Log) -> None:
    rewrite(rotated, rotated.path.read_bytes().replace(b"a\n", b"a, edited\n"))


@pytest.mark.parametrize("meddle", [copy_to_dated, delete_and_restore, edit_the_beginning, edit_the_end])
@pytest.mark.parametrize("seconds", [0, 10])
def test_a_rotated_file_that_somebody_meddled_with_is_not_read_again(
    log: Log, reader: Reader, meddle: Callable[[Log, Log], None], seconds: float
) -> None:
    log.write("a")
    log.rotate()
    log.write("b")
    assert reader.read() == ["a", "b"]
    assert reader.wait(seconds) == []
    meddle(log.sibling(".1"), log)
    assert reader.wait(seconds) == []
    for line in "cde":
        log.write(line)
        log.rotate()
    log.write("f")
    assert reader.wait(seconds) == ["c", "d", "e", "f"]
    log.write("g")
    log.path.unlink()
    log.write("h")
    assert reader.wait() == ["g", "h"]


def test_a_rotated_file_restored_after_the_next_rotation_is_not_read_again(log: Log, reader: Reader) -> None:
    log.write("a")
    log.rotate()
    assert reader.wait() == ["a"]
    kept = log.sibling(".1").path.rename(log.path.with_name("kept"))
    assert reader.wait() == []
    log.write("b")
    log.rotate()
    assert reader.wait() == ["b"]
    copy(Log(kept), log.sibling(DATED))
    log.write("c")
    log.path.unlink()
    log.write("d")
    assert reader.wait() == ["c", "d"]


def stop_after_a_line(log: Log, state: Path) -> None:
    reader = Reader(log.path, state=state)
    reader.read()
    log.write("a")
    assert reader.read() == ["a"]
    reader.close()


def test_a_copy_made_while_down_is_not_read_beside_the_renamed_log(log: Log, tmp_path: Path) -> None:
    state = tmp_path / "positions.json"
    stop_after_a_line(log, state)
    copy(log, log.sibling(".1"))
    log.write("b")
    rename(log, DATED)
    log.write("c")
    rename(log, "-20261121")
    log.write("d")
    reader = Reader(log.path, state=state)
    assert reader.read() == ["b", "c", "d"]
    assert reader.wait() == []


def test_what_is_appended_to_a_copy_that_was_found_at_the_start_is_not_read(log: Log, tmp_path: Path) -> None:
    state = tmp_path / "positions.json"
    stop_after_a_line(log, state)
    log.write("b")
    append_to_copy(log)
    log.truncate()
    log.write("c")
    reader = Reader(log.path, state=state)
    assert reader.read() == ["b", "c"]
    append_to_copy(log)
    log.truncate()
    log.write("d")
    assert reader.read() == ["d"]
