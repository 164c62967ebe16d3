"""A log that rotates in the middle of a look, a copy that is found while it is being made, and other logs beside."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from support.logfiles import Log, Reader


@pytest.fixture(params=["path", "glob"])
def followed(request: pytest.FixtureRequest, log: Log) -> Path:
    """The log's path, and a glob that also finds what it becomes."""
    return log.path if request.param == "path" else log.path.with_name("vllm*")


def once_before(monkeypatch: pytest.MonkeyPatch, name: str, path: Path, happens: Callable[[], None]) -> None:
    """Let something happen just before the next call of ``os.NAME`` for ``path``."""
    call, waiting = getattr(os, name), [happens]

    def interrupted(of: Any, *arguments: Any, **options: Any) -> Any:
        if str(of) == str(path) and waiting:
            waiting.pop()()
        return call(of, *arguments, **options)

    monkeypatch.setattr(os, name, interrupted)


@pytest.mark.parametrize("rotates", [Log.rotate, Log.copytruncate])
@pytest.mark.parametrize("first", [True, False])
def test_a_rotation_before_the_directory_is_listed_loses_nothing(
    log: Log, monkeypatch: pytest.MonkeyPatch, rotates: Callable[[Log], None], first: bool
) -> None:
    """The file that comes then may be rotated itself before the next look."""
    reader = Reader(log.path)
    if not first:
        reader.read()
        log.write("one")
        assert reader.read() == ["one"]

    def happens() -> None:
        for line in ("two", "three"):
            log.write(line)
            rotates(log)
        log.write("four")

    once_before(monkeypatch, "listdir", log.path.parent, happens)
    got = reader.read()
    log.write("five")
    rotates(log)
    log.write("six")
    assert got + reader.read() == ["two", "three", "four", "five", "six"]
    assert reader.counters.gaps == 0


def test_a_rotation_between_finding_and_opening_loses_and_doubles_nothing(
    log: Log, followed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reader = Reader(followed)
    reader.read()
    log.write("one")
    assert reader.read() == ["one"]
    log.rotate()
    log.write("two")

    def happens() -> None:
        log.rotate()
        log.write("three")

    once_before(monkeypatch, "open", log.path, happens)
    got = reader.read()
    log.rotate()
    log.write("four")
    assert sorted(got + reader.read()) == ["four", "three", "two"]


@pytest.mark.parametrize("restarts", [False, True])
def test_a_copy_that_is_found_while_it_is_being_made_counts_once(log: Log, followed: Path, restarts: bool) -> None:
    """Copytruncate of a large log takes longer than a look."""
    state = log.path.with_name("positions.json")
    reader = Reader(followed, state=state)
    reader.read()
    got, written = [], []
    for name in "ab":
        lines = [f"{name}{number} {'x' * 99}" for number in range(4)]
        log.write(*lines[:2])
        got += reader.read()
        log.shift()
        content, copy = log.path.read_bytes(), log.sibling(".1")
        for piece in (content[:0], content[:50], content[50:150], content[150:]):
            copy.append(piece)
            got += reader.read()
            if restarts:
                got += reader.close()
                reader = Reader(followed, state=state)
                got += reader.read()
        log.write(lines[2])
        copy.append(log.path.read_bytes()[len(content) :])
        log.truncate()
        log.write(lines[3])
        got += reader.read()
        written += lines
    assert got + reader.wait() == written


@pytest.mark.parametrize("down", [False, True])
@pytest.mark.parametrize("silent", [False, True])
def test_another_log_that_rotates_at_the_same_time_does_not_count(log: Log, down: bool, silent: bool) -> None:
    other, state = Log(log.path.with_name("vllm-8001.log")), log.path.with_name("positions.json")
    other.write("not ours")
    reader = Reader(log.path, state=state)
    reader.read()
    for number in range(2):
        if down:
            reader.close()
        if not silent:
            other.write("not ours")
        log.write(f"{number}")
        for one in (log, other):
            one.rotate()
        if down:
            reader = Reader(log.path, state=state)
        assert reader.read() == [f"{number}"]
        other.write("not ours")
        assert reader.wait() == []
