"""Read positions across restarts: what is kept, and what is made of a file that is no position file."""

from __future__ import annotations

import json
import logging
import os
import re
import shutil
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specdec_exporter import bounds
from specdec_exporter.predictor.log.counters import ReaderCounters
from specdec_exporter.predictor.sources.logfile import HEAD_BYTES, MARKER_BYTES, Position
from specdec_exporter.predictor.sources.positions import PositionFile, Saved
from support.logfiles import Log, Reader, texts

POSITIONS = st.builds(
    Position,
    path=st.text(st.characters(exclude_categories=["Cs"])),
    device=st.integers(0, 2**63),
    inode=st.integers(0, 2**63),
    offset=st.integers(0, 2**63),
    head_bytes=st.integers(0, HEAD_BYTES),
    head_digest=st.text("0123456789abcdef", max_size=24),
    marker_bytes=st.integers(0, MARKER_BYTES),
    marker_digest=st.text("0123456789abcdef", max_size=24),
    rotated=st.booleans(),
    skipping=st.booleans(),
)


@pytest.fixture
def state(tmp_path: Path) -> Path:
    return tmp_path / "state" / "positions.json"


@pytest.fixture
def log(tmp_path: Path, state: Path) -> Log:
    state.parent.mkdir()
    log = Log(tmp_path / "vllm.log")
    log.write("before")
    return log


def read_and_stop(log: Log, state: Path, *lines: str) -> None:
    """One life of an exporter, which reads ``lines``."""
    reader = Reader(log.path, state=state)
    reader.read()
    log.write(*lines)
    assert reader.read() == list(lines)
    reader.close()


@settings(max_examples=30)
@given(st.lists(POSITIONS, max_size=5))
def test_what_is_saved_is_loaded(positions: list[Position]) -> None:
    with tempfile.TemporaryDirectory() as directory:
        path = f"{directory}/positions.json"
        assert PositionFile(path, ReaderCounters()).save(["/a", "/b"], positions, durable=False)
        assert PositionFile(path, ReaderCounters()).load() == Saved(paths=("/a", "/b"), files=tuple(positions))
        assert [entry.name for entry in Path(directory).iterdir()] == ["positions.json"]


@settings(max_examples=50)
@given(
    st.binary() | st.recursive(st.none() | st.text() | st.integers(), st.lists).map(lambda v: json.dumps(v).encode())
)
def test_any_content_is_survived(content: bytes) -> None:
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory, "positions.json")
        path.write_bytes(content)
        counters = ReaderCounters()
        assert PositionFile(str(path), counters).load() == Saved()
        assert counters.read_errors == 1


IGNORED, CUT = "ignoring the log positions", "its rest is gone"


@pytest.mark.parametrize(
    ("pattern", "damage", "said"),
    [
        (rb".{40}$", b"", IGNORED),
        (rb"vllm", b"\xff\xfe", IGNORED),
        (rb'"offset":', b'"offset":-', IGNORED),
        (rb'"marker_bytes":\d+', b'"marker_bytes":1000000000', IGNORED),
        (rb'"marker_bytes":\d+', b'"marker_bytes":0', CUT),
        (rb'"marker_digest":"\w+"', b'"marker_digest":"000000000000000000000000"', CUT),
    ],
)
def test_positions_that_cannot_be_used_are_ignored_with_a_warning(
    log: Log, state: Path, caplog: pytest.LogCaptureFixture, *, pattern: bytes, damage: bytes, said: str
) -> None:
    read_and_stop(log, state, "one")
    content = re.sub(pattern, damage, state.read_bytes())
    assert content != state.read_bytes()
    state.write_bytes(content)
    reader = Reader(log.path, state=state)
    assert reader.read() == []
    assert (reader.counters.read_errors, reader.counters.gaps) == ((1, 0) if said == IGNORED else (0, 1))
    assert [record.levelno for record in caplog.records] == [logging.WARNING]
    assert said in caplog.text
    log.write("two")
    assert reader.read() == ["two"]


@pytest.mark.parametrize("lines", [["new"], ["a", "quite", "different", "log"]])
def test_a_log_that_was_cut_while_nobody_read_it_is_read_anew(log: Log, state: Path, lines: list[str]) -> None:
    read_and_stop(log, state, "one")
    log.truncate()  # the same inode, as an inode used again has
    log.write(*lines)
    reader = Reader(log.path, state=state)
    assert reader.read() == lines
    assert reader.counters.gaps == 1


def test_a_kill_in_the_middle_of_a_backlog_doubles_and_loses_nothing(log: Log, state: Path) -> None:
    reader = Reader(log.path, state=state)
    reader.read()
    lines = [f"{number:099}" for number in range(6000)]
    log.write(*lines)
    given = texts(reader.follower.poll(1))
    assert given
    assert reader.follower.more
    reader.kill()
    assert given + Reader(log.path, state=state).read() == lines


def test_saving_is_given_up_quietly_and_taken_up_again(log: Log, state: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    shutil.rmtree(state.parent)  # fails for everybody, as a read-only file system does
    reader = Reader(log.path, state=state)
    reader.read()
    for number in range(3):
        log.write(f"line {number}")
        assert reader.read() == [f"line {number}"]
    assert reader.follower.problem is None
    assert len(caplog.records) == 1
    assert reader.counters.read_errors == 4
    assert "going on without" in caplog.text
    state.parent.mkdir()
    log.write("last")
    assert reader.read() == ["last"]
    assert "saved again" in caplog.text
    reader.close()
    log.write("new")
    assert Reader(log.path, state=state).read() == ["new"]


def test_what_the_temporary_file_is_a_name_of_stays(log: Log, state: Path) -> None:
    read_and_stop(log, state, "one")
    precious = state.with_name("precious")
    for link in (Path.hardlink_to, Path.symlink_to):
        precious.write_text("of somebody else")
        link(Path(f"{state}.tmp"), precious)
        assert PositionFile(str(state), ReaderCounters()).save([], [])
        assert precious.read_text() == "of somebody else"
    assert sorted(path.name for path in state.parent.iterdir()) == [state.name, precious.name]


@pytest.mark.parametrize(
    ("content", "stays"), [(b"somebody's log\n", True), (b"{}", True), (b"", False), (b"\0" * 9, False)]
)
def test_a_file_that_holds_something_else_is_not_replaced(
    log: Log, state: Path, caplog: pytest.LogCaptureFixture, *, content: bytes, stays: bool
) -> None:
    state.write_bytes(content)
    read_and_stop(log, state, "one")
    assert (state.read_bytes() == content) is stays
    assert ("it holds something else; going on without them" in caplog.text) is stays


@pytest.mark.parametrize("number", [bounds.SAVED_POSITIONS + 1, 20_000])
def test_a_file_of_too_many_positions_is_ignored_with_one_warning(
    log: Log, state: Path, caplog: pytest.LogCaptureFixture, number: int
) -> None:
    read_and_stop(log, state, "one")
    saved = json.loads(state.read_bytes())
    saved["files"] *= number
    state.write_text(json.dumps(saved))
    reader = Reader(log.path, state=state)
    assert reader.read() == []
    assert len(caplog.records) == 1
    assert "ignoring the log positions" in caplog.text


def test_the_positions_of_the_logs_themselves_are_kept_beyond_the_bound(tmp_path: Path) -> None:
    logs = [Log(tmp_path / f"{number}.log") for number in range(5)]
    for log in logs:
        log.write("before")
        for number in range(bounds.ROTATED_FILES):
            log.sibling(f".{number}").write(f"old {number}")
    reader = Reader(*(log.path for log in logs), state=tmp_path / "positions.json")
    assert reader.read() == []
    reader.close()
    saved = json.loads((tmp_path / "positions.json").read_bytes())["files"]
    assert len(saved) == bounds.SAVED_POSITIONS
    assert {str(log.path) for log in logs} <= {each["path"] for each in saved}


@pytest.mark.parametrize("kind", ["directory", "fifo", "device"])
def test_a_path_that_is_no_file_is_refused_and_stays(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "positions.json"
    if kind == "fifo":
        os.mkfifo(path)
    elif kind == "device":
        path.symlink_to("/dev/null")
    else:
        path.mkdir()
    before = path.stat()
    counters = ReaderCounters()
    positions = PositionFile(str(path), counters)
    assert positions.load() == Saved()
    assert counters.read_errors == 1
    assert not positions.save([], [])
    assert path.stat() == before
    assert list(tmp_path.iterdir()) == [path]


def test_a_path_that_is_not_utf8_costs_only_its_position(tmp_path: Path) -> None:
    log = Log(Path(os.fsdecode(os.fsencode(tmp_path) + b"/v\xff.log")))
    log.path.touch()
    state = tmp_path / "positions.json"
    reader = Reader(log.path, state=state)
    reader.read()
    log.write("one")
    assert reader.read() == ["one"]
    reader.close()
    assert json.loads(state.read_bytes())["files"] == []
