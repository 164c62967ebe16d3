"""Every scheme of rotation, seen from outside."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from loglife import FAST_DIRECTORY
from rotation.schemes import LOGROTATE, SCHEMES, Scheme, Step, judged

ALL = [
    *(pytest.param(scheme, id=name) for name, scheme in SCHEMES.items()),
    *(pytest.param(scheme, id=name, marks=pytest.mark.debian) for name, scheme in LOGROTATE.items()),
]
GLOBS = [param for param in ALL if isinstance(scheme := param.values[0], Scheme) and scheme.glob]
ROTATIONS = pytest.mark.parametrize("rotations", [0, 1, 3])


@pytest.fixture
def home() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(dir=FAST_DIRECTORY) as directory:
        yield Path(directory)


@ROTATIONS
@pytest.mark.parametrize("scheme", ALL)
def test_what_is_on_disk_is_read_once(scheme: Scheme, rotations: int, home: Path) -> None:
    verdict = judged(scheme, home, [Step(rotations)] * 3)
    assert verdict.good, verdict


@ROTATIONS
@pytest.mark.parametrize("scheme", ALL)
def test_also_while_the_exporter_was_down(scheme: Scheme, rotations: int, home: Path) -> None:
    verdict = judged(scheme, home, [Step(rotations, down=True)] * 3)
    assert verdict.good, verdict


@pytest.mark.parametrize("scheme", [param for param in ALL if param.id != "a late writer"])
def test_also_after_a_restart_without_positions(scheme: Scheme, home: Path) -> None:
    verdict = judged(scheme, home, [Step(2, again=True)] * 3, positions=False)
    assert verdict.good, verdict


@pytest.mark.parametrize("scheme", GLOBS)
def test_also_by_a_glob(scheme: Scheme, home: Path) -> None:
    verdict = judged(scheme, home, [Step(2), Step(2, down=True), Step(2)], globs=True)
    assert verdict.good, verdict
