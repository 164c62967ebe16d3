"""Every scheme of rotation, seen from outside.

The files are on a disk where there is one: there, a new file often has the inode of a deleted one.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rotation.judging import Exporter, Step, judged
from rotation.schemes import LOGROTATE, SCHEMES, Scheme
from support.logfiles import Log, Reader

ALL = [
    *(pytest.param(scheme, id=name) for name, scheme in SCHEMES.items()),
    *(pytest.param(scheme, id=name, marks=pytest.mark.debian) for name, scheme in LOGROTATE.items()),
]
GLOBS = [param for param in ALL if isinstance(scheme := param.values[0], Scheme) and scheme.glob]
CALLS_OF_A_LOOK = 24
RENAMED = [
    "vllm.log.1, descending",
    "vllm.log-20261127",
    "renamed mid line",
    "current -> vllm-0001.log",
    "current, @tai64n",
    "RotatingFileHandler",
]
ROTATIONS = pytest.mark.parametrize("rotations", [0, 1, 3])


@pytest.fixture(autouse=True)
def no_waiting_for_the_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """No test here cuts the power."""
    monkeypatch.setattr("os.fsync", lambda fd: None)


@ROTATIONS
@pytest.mark.parametrize("scheme", ALL)
def test_what_is_on_disk_is_read_once(scheme: Scheme, rotations: int, tmp_path: Path) -> None:
    verdict = judged(scheme, tmp_path, [Step(rotations), Step(rotations, lines=0), Step(rotations)])
    assert verdict.good, verdict


@ROTATIONS
@pytest.mark.parametrize("scheme", ALL)
@pytest.mark.parametrize("exporter", ["is stopped", "is killed"])
def test_also_while_the_exporter_was_down(scheme: Scheme, rotations: int, exporter: Exporter, tmp_path: Path) -> None:
    verdict = judged(scheme, tmp_path, [Step(rotations, lines=lines, exporter=exporter) for lines in (3, 0, 3)])
    assert verdict.good, verdict


@pytest.mark.parametrize("scheme", [param for param in ALL if param.id != "a late writer"])
def test_also_after_a_restart_without_positions(scheme: Scheme, tmp_path: Path) -> None:
    steps = [Step(2, exporter="restarts"), Step(2, lines=0), Step(2, exporter="restarts")]
    verdict = judged(scheme, tmp_path, steps, positions=False)
    assert verdict.good, verdict


@pytest.mark.parametrize("scheme", ALL)
def test_also_where_files_have_the_same_time(scheme: Scheme, tmp_path: Path) -> None:
    """Network file systems have clocks that tick each second."""
    verdict = judged(scheme, tmp_path, [Step(2)] * 2 + [Step(2, exporter="is stopped")] * 2, tick_ns=10**9)
    assert verdict.good, verdict


@pytest.mark.parametrize("scheme", GLOBS)
def test_also_by_a_glob(scheme: Scheme, tmp_path: Path) -> None:
    verdict = judged(scheme, tmp_path, [Step(2), Step(2, exporter="is stopped"), Step(2)], globs=True)
    assert verdict.good, verdict


@pytest.mark.parametrize("name", RENAMED)
def test_also_if_it_rotates_twice_in_the_middle_of_a_look(name: str, tmp_path: Path) -> None:
    scheme = SCHEMES[name]
    for call in range(1, CALLS_OF_A_LOOK):
        home = tmp_path / str(call)
        home.mkdir()
        verdict = judged(scheme, home, [Step(1), Step(2, within=call), Step(0), Step(0), Step(1)])
        assert verdict.good, (call, verdict)


@pytest.mark.nightly
@pytest.mark.parametrize("scheme", ALL)
@given(data=st.data())
def test_also_in_any_order(scheme: Scheme, data: st.DataObject) -> None:
    """Other sequences every time."""
    # Where nobody knows what was read, a start finds the end of a file, and a late writer has two.
    positions = scheme is SCHEMES["a late writer"] or data.draw(st.booleans())
    exporters: list[Exporter] = ["runs", "restarts", "is stopped", "is killed"]
    step = st.builds(
        Step,
        rotations=st.sampled_from([0, 1, 2, 3, 6]),
        lines=st.sampled_from([0, 1, 5, 200]),
        seconds=st.sampled_from([0.5, 6.0, 90.0]),
        exporter=st.sampled_from(exporters if positions else exporters[:2]),
    )
    steps = data.draw(st.lists(step, min_size=1, max_size=10))
    globs = scheme.glob is not None and data.draw(st.booleans())
    tick_ns = data.draw(st.sampled_from([1, 10**9]))
    with tempfile.TemporaryDirectory() as home:
        verdict = judged(scheme, Path(home), steps, positions=positions, globs=globs, tick_ns=tick_ns)
    assert verdict.good, verdict


@pytest.mark.parametrize("killed", [False, True])
def test_a_glob_finds_what_came_while_the_exporter_was_down(tmp_path: Path, killed: bool) -> None:
    """Of what was there before, nothing counts again."""
    state = tmp_path / "positions.json"
    logs = [Log(tmp_path / f"vllm-{name}.log") for name in ("a", "b", "c")]
    for log in logs[:2]:
        log.write("before")
    reader = Reader(tmp_path / "vllm-*.log*", state=state)
    assert reader.read() == []
    logs[0].write("one")
    assert reader.read() == ["one"]
    if killed:
        reader.kill()
    else:
        reader.close()
    logs[1].write("two")
    logs[1].rotate()
    logs[1].write("three")
    logs[2].write("four", "five")
    reader = Reader(tmp_path / "vllm-*.log*", state=state)
    assert sorted(reader.read()) == ["five", "four", "three", "two"]
    assert reader.counters.gaps == 0
    assert reader.wait() == []
