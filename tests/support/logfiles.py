"""Driving a log follower by hand: files in a directory, a clock that stands still, and every line as an event."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Generic, Literal, Self, TypeVar

from specdec_exporter.predictor.log.counters import ReaderCounters
from specdec_exporter.predictor.log.events import EngineConfig, Event, PredictorWarning
from specdec_exporter.predictor.sources.follow import ROTATE_WAIT_SECONDS, LogFollower
from specdec_exporter.serving.logsource import LogSource

Source = TypeVar("Source", bound=LogSource)


class LineScanner:
    """Gives every line as an event; ``config MODEL`` is a configuration."""

    def scan(self, buffer: bytearray, end: int) -> list[Event]:
        assert buffer[end - 1] == ord("\n")
        return [_as_event(line) for line in bytes(buffer[:end]).split(b"\n")[:-1]]

    def finish(self, tail: bytes = b"") -> list[Event]:
        return [_as_event(tail)] if tail else []

    def reset(self) -> None:
        pass


def _as_event(line: bytes) -> Event:
    text = line.decode(errors="replace").rstrip("\r")
    if text.startswith("config "):
        return EngineConfig(model=text.removeprefix("config "))
    return PredictorWarning(warning=text)


def texts(events: Iterable[Event]) -> list[str]:
    """The lines that :class:`LineScanner` made events of."""
    return [event.warning if isinstance(event, PredictorWarning) else f"config {event}" for event in events]


class Following(Generic[Source]):
    """A source of a log at work, and the lines that it gave. Its sink fails at ``bad``."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self.lines: list[str] = []
        self.stop = asyncio.Event()
        self._arrived = asyncio.Event()
        self._task = asyncio.create_task(source.follow(self._sink, self.stop))

    def _sink(self, event: Event) -> None:
        (line,) = texts([event])
        if line == "bad":
            raise ValueError(line)
        self.lines.append(line)
        self._arrived.set()

    async def until(self, *lines: str) -> None:
        """Wait for the last of ``lines``; all of them, and no others, must have come."""
        async with asyncio.timeout(20):
            while lines[-1] not in self.lines:
                self._arrived.clear()
                await self._arrived.wait()
        assert self.lines == list(lines)

    async def ended(self) -> None:
        """Wait for the end of the source."""
        async with asyncio.timeout(20):
            await self._task

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.stop.set()
        await self.ended()


class Log:
    """A log in a directory, and what its writers and rotators do to it."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def sibling(self, suffix: str) -> Log:
        """The log whose name is this one's with ``suffix``."""
        return Log(self.path.with_name(self.path.name + suffix))

    def write(self, *lines: str) -> None:
        """Append whole lines."""
        self.append("".join(f"{line}\n" for line in lines))

    def append(self, text: str | bytes) -> None:
        """Append anything."""
        with self.path.open("ab") as file:
            file.write(text.encode() if isinstance(text, str) else text)
        self.stamp()

    def stamp(self) -> None:
        """Give the file a time of its own: the kernel's clock ticks more slowly than tests write."""
        os.utime(self.path, ns=(time.time_ns(),) * 2)

    def shift(self) -> None:
        """Make room for a new ``.1``: the number of every older file becomes one more."""
        numbers = [path.suffix[1:] for path in self.path.parent.glob(f"{self.path.name}.*")]
        for number in sorted((int(number) for number in numbers if number.isdigit()), reverse=True):
            self.sibling(f".{number}").path.rename(self.sibling(f".{number + 1}").path)

    def rotate(self) -> None:
        """Rename the log to ``.1``, everything older one further, and begin an empty one."""
        self.shift()
        self.path.rename(self.sibling(".1").path)
        self.path.touch()
        self.stamp()

    def copytruncate(self) -> None:
        """Copy the log to ``.1``, everything older one further, and empty it."""
        self.shift()
        self.copy_to(self.sibling(".1"))
        self.truncate()

    def copy_to(self, other: Log) -> None:
        """Copy the log."""
        shutil.copyfile(self.path, other.path)
        other.stamp()

    def truncate(self) -> None:
        """Empty the log."""
        with self.path.open("r+b") as file:
            file.truncate(0)
        self.stamp()


class Reader:
    """A follower polled by hand, with its clock."""

    def __init__(
        self,
        *paths: Path | str,
        start: Literal["end", "start"] = "end",
        search_history: bool = False,
    ) -> None:
        self.now = 1000.0
        self.counters = ReaderCounters()
        self.follower = LogFollower(
            [str(path) for path in paths],
            LineScanner,
            LineScanner if search_history else None,
            counters=self.counters,
            start=start,
            clock=lambda: self.now,
        )

    def events(self) -> list[Event]:
        """Poll until nothing is left to do."""
        events = self.follower.poll()
        while self.follower.more:
            events += self.follower.poll()
        return events

    def read(self) -> list[str]:
        """Poll until nothing is left to do; the lines."""
        return texts(self.events())

    def wait(self, seconds: float = ROTATE_WAIT_SECONDS + 1) -> list[str]:
        """Let time pass, then read."""
        self.now += seconds
        return self.read()

    def close(self) -> list[str]:
        """Stop as on SIGTERM."""
        return texts(self.follower.close())


def open_inodes() -> list[int]:
    """The files that this process has open."""
    inodes = []
    for link in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):  # the listing's own
            inodes.append(link.stat().st_ino)
    return inodes
