"""What a reader must give of a log that rotates: lines on disk once, and a gap for lines that went."""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, Literal

import pytest

from rotation.schemes import Life, Scheme
from specdec_exporter.predictor.sources.tail import ROTATE_WAIT_SECONDS
from support.logfiles import Reader

Exporter = Literal["runs", "restarts", "is stopped", "is killed"]


@dataclasses.dataclass(frozen=True, slots=True)
class Step:
    """What happens before a look: rotations, ``lines`` in the newest file, and ``seconds`` that pass.

    ``exporter`` is what happens to it before the rotations. A stopped or killed one starts after them. ``within``: as
    many rotations happen in the middle of the look, after so many calls of the file system.
    """

    rotations: int
    lines: int = 3
    seconds: float = 0.5
    exporter: Exporter = "runs"
    within: int = 0


@contextlib.contextmanager
def interrupted(after: int, action: Callable[[], None]) -> Iterator[None]:
    """Do ``action`` after so many calls of the file system by the reader."""
    left = itertools.count(after - 1, -1)
    at_work = False

    def interrupting(call: Callable[..., Any]) -> Callable[..., Any]:
        def called(*arguments: Any, **named: Any) -> Any:
            nonlocal at_work
            try:
                return call(*arguments, **named)
            finally:
                if not at_work and next(left) == 0:
                    at_work = True
                    action()

        return called

    with pytest.MonkeyPatch.context() as patch:
        for name in ("stat", "listdir", "open"):
            patch.setattr(os, name, interrupting(getattr(os, name)))
        yield


@dataclasses.dataclass(slots=True)
class Verdict:
    """What a reader made of a scheme. ``lost`` stood on disk at a look; ``gone`` did not."""

    lost: int = 0
    twice: int = 0
    invented: int = 0
    gone: int = 0
    gaps: int = 0
    silent: int = 0  # gone without a gap
    false_gaps: int = 0  # where nothing can have been missed

    @property
    def good(self) -> bool:
        return not (self.lost or self.twice or self.invented or self.silent or self.false_gaps)


def judged(
    scheme: Scheme,
    home: Path,
    steps: Iterable[Step],
    *,
    positions: bool = True,
    globs: bool = False,
    tick_ns: int = 1,
) -> Verdict:
    """Let a reader follow a log through ``steps``, with a position file or without."""
    life = Life(scheme, home, tick_ns)
    for _ in range(scheme.past):
        life.rotate()
    life.write(3)
    past = set(life.written)
    path = life.directory / (scheme.glob if globs and scheme.glob else scheme.path)
    verdict = Verdict()
    got, required = Counter[str](), set[str]()

    def reader() -> Reader:
        return Reader(
            path, state=home / "positions.json" if positions else None, olddir=life.olddir if scheme.olddir else None
        )

    def take(lines: list[str]) -> None:
        got.update(line for line in lines if not line.startswith("banner"))

    def look(seconds: float = 0.0, *, may_miss: bool = False, blind: bool = False) -> None:
        before = reading.counters.gaps
        take(reading.wait(seconds))
        gone = len(set(life.written) - past - got.keys() - required)
        gaps = reading.counters.gaps - before
        verdict.gaps += gaps
        verdict.silent += 0 if gaps or blind else max(0, gone - verdict.gone)
        verdict.false_gaps += 0 if may_miss else gaps
        verdict.gone = gone

    reading = reader()
    look()
    for step in steps:
        if step.exporter == "is killed":
            reading.kill()
        elif step.exporter != "runs":
            take(reading.close())
        if step.exporter == "restarts":
            reading = reader()
            look()
        # A copy of an empty file could be of any, and after a stop only its inode is known, which may be another's.
        empty = life.log.path.stat().st_size == 0

        def rotate(rotations: int = step.rotations) -> None:
            for _ in range(rotations):
                life.rotate()

        rotate()
        life.write(step.lines)
        if down := step.exporter in ("is stopped", "is killed"):
            reading = reader()
        required |= life.on_disk() - past
        with interrupted(step.within, rotate):
            look(
                step.seconds,
                may_miss=step.rotations > 0 and (scheme.removes or empty),
                blind=bool((empty and down) or step.within),
            )
    look(ROTATE_WAIT_SECONDS + 1)
    take(reading.close())
    life.end()
    verdict.lost = len(required - got.keys())
    # Without positions a start knows no end of a file but its last newline, so half a line there may count again.
    verdict.twice = sum(count - 1 for line, count in got.items() if positions or line not in life.halves)
    verdict.invented = len(got.keys() - life.written - life.halves) + len(got.keys() & past)
    return verdict
