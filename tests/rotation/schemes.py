"""Ways in which logs rotate."""

from __future__ import annotations

import dataclasses
import datetime as dt
import gzip
import logging
import logging.handlers
import os
import shutil
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

from support.fieldtools import tool
from support.logfiles import Log

BANNER = "".join(f"banner {number} {'=' * 50}\n" for number in range(36))  # over 2 KiB, the same in each file
FIRST_DAY = dt.datetime(2026, 11, 27, 21, tzinfo=dt.UTC)  # a month ends while the log rotates


@dataclasses.dataclass(frozen=True, slots=True)
class Scheme:
    """``rotate`` does one rotation. ``removes``: it may take bytes that nobody has read out of the reader's sight.

    ``beside`` writes to other files in the directory, of which nothing may be read. ``glob`` finds the log and what it
    becomes; without one, a glob would find others' lines too. ``past``: rotations before the reader comes.
    """

    rotate: Callable[[Life], None]
    path: str = "vllm.log"
    glob: str | None = "vllm*"
    start: Callable[[Life], None] | None = None
    beside: Callable[[Life], None] | None = None
    banner: str = ""
    olddir: bool = False
    removes: bool = False
    past: int = 2


class Life:
    """A log that rotates by a scheme, and the lines written to it."""

    def __init__(self, scheme: Scheme, home: Path, tick_ns: int) -> None:
        self.scheme = scheme
        self.tick_ns = tick_ns  # of the file system's clock
        self.directory = home / "logs"
        self.directory.mkdir()
        self.olddir = home / "old"
        self.olddir.mkdir()
        self.log = Log(self.directory / scheme.path)
        self.rotations = 0
        self.written: list[str] = []
        self.halves: set[str] = set()  # of lines that a rotation cut
        self.handler: logging.handlers.BaseRotatingHandler | None = None
        self.late: BinaryIO | None = None  # a writer that stays at the old file
        self._times: dict[tuple[int, int], int] = {}
        (scheme.start or Life.new)(self)

    def new(self) -> None:
        """Begin the log anew."""
        self.log.path.write_text(self.scheme.banner)

    def line(self) -> str:
        """A line like no other, at both ends: by its last bytes the reader knows a file of the same length."""
        number = len(self.written)
        self.written.append(f"{number} {'x' * (number * 37 % 300)} {number}")
        return self.written[-1]

    def write(self, count: int) -> None:
        """Write lines, and to the files beside."""
        for number in range(count):
            line = self.line()
            if self.handler:
                self.handler.emit(logging.makeLogRecord({"msg": line}))
            elif self.late and number % 2:
                self.late.write(f"{line}\n".encode())
            else:
                self.log.write(line)
            self._set_times()
        if self.scheme.beside:
            self.scheme.beside(self)

    def rotate(self) -> None:
        """Write a few lines, and rotate the log."""
        self.write(3)
        self.rotations += 1
        self.scheme.rotate(self)
        self._set_times()

    def files(self) -> list[Path]:
        """All in sight that is not compressed; no file twice."""
        folders = [self.directory, self.olddir] if self.scheme.olddir else [self.directory]
        paths = [
            path for folder in folders for path in folder.iterdir() if path.suffix != ".gz" and path.name[:3] != "old"
        ]
        return [path for path in paths if path.is_file() and not path.is_symlink()]

    def on_disk(self) -> set[str]:
        """The whole lines that are still to be had."""
        found: set[str] = set()
        for path in self.files():
            found.update(path.read_text().rpartition("\n")[0].split("\n"))
        return found.intersection(self.written)

    def end(self) -> None:
        """Let the writers go."""
        if self.handler:
            self.handler.close()
        if self.late:
            self.late.close()

    def _set_times(self) -> None:
        """Let what changed have the time of a clock with another tick than the kernel's."""
        for path in self.files():
            status = path.stat()
            key = (status.st_dev, status.st_ino)
            if self._times.get(key) != status.st_mtime_ns:
                os.utime(path, ns=(time.time_ns() // self.tick_ns * self.tick_ns,) * 2)
                self._times[key] = path.stat().st_mtime_ns


# --- renames ----------------------------------------------------------------------------------------------------------


def named(pattern: str, **step: int) -> Callable[[Life], None]:
    """Rename the log by its number, and by a moment that each rotation moves by ``step``."""

    def rotate(life: Life) -> None:
        moment = FIRST_DAY + life.rotations * dt.timedelta(**step)
        life.log.path.rename(life.directory / moment.strftime(pattern).format(life.rotations))
        life.new()

    return rotate


def shifted(pattern: str, keep: int = 99) -> Callable[[Life], None]:
    """Rename the log to number 1, and all others one further; no more than ``keep`` stay."""

    def rotate(life: Life) -> None:
        for number in range(keep, 0, -1):
            path = life.directory / pattern.format(number)
            if path.exists():
                path.rename(life.directory / pattern.format(number + 1))
        life.log.path.rename(life.directory / pattern.format(1))
        (life.directory / pattern.format(keep + 1)).unlink(missing_ok=True)
        life.new()

    return rotate


def packed(life: Life) -> None:
    """Compress the rotated file at once."""
    with gzip.open(life.log.sibling(f".{life.rotations}.gz").path, "wb") as pack:
        pack.write(life.log.path.read_bytes())
    life.log.path.unlink()
    life.new()


def deleted(life: Life) -> None:
    """Keep nothing."""
    life.log.path.unlink()
    life.new()


def kubelet(life: Life) -> None:
    """Compress what was rotated before, then rename."""
    for path in life.directory.glob("0.log.*-??????"):
        path.with_name(f"{path.name}.gz").write_bytes(gzip.compress(path.read_bytes()))
        path.unlink()
    named("0.log.%Y%m%d-%H%M%S", minutes=10)(life)


def left_late(life: Life) -> None:
    """Rename the log, whose writer goes on at the old file with every second line."""
    if life.late:
        life.late.close()
    life.late = life.log.path.open("ab", buffering=0)
    life.log.rotate()


def mid_line(life: Life) -> None:
    """Rename the log in the middle of a line, which ends in the old file."""
    line = life.line()
    with life.log.path.open("ab", buffering=0) as writer:
        writer.write(line[:3].encode())
        life.log.rotate()
        writer.write(f"{line[3:]}\n".encode())


# --- copies, other directories, links ---------------------------------------------------------------------------------


def copied_to(pattern: str) -> Callable[[Life], None]:
    """Copy the log, by its number, and empty it."""

    def rotate(life: Life) -> None:
        shutil.copyfile(life.log.path, life.directory / pattern.format(life.rotations))
        life.new()

    return rotate


def copied_mid_line(life: Life) -> None:
    """Copy and empty the log in the middle of a line, whose halves need not be read."""
    halves = [f"half of line {len(life.written)}", f"the rest of line {len(life.written)}"]
    life.log.append(halves[0])
    life.log.copytruncate()
    life.log.write(halves[1])
    life.halves.update(halves)


def moved_away(life: Life) -> None:
    """Rename the log into another directory."""
    life.log.path.rename(life.olddir / f"vllm.log-{life.rotations:03}")
    life.new()


def copied_away(life: Life) -> None:
    """Move the log to another file system, which is a copy."""
    shutil.copyfile(life.log.path, life.olddir / f"vllm.log.{life.rotations}")
    life.log.path.unlink()
    life.new()


def linked(pattern: str) -> Callable[[Life], None]:
    """Let the log's name, which is a link, point to a new file."""

    def rotate(life: Life) -> None:
        (life.directory / pattern.format(life.rotations)).touch()
        link = life.directory / "new link"
        link.symlink_to(pattern.format(life.rotations))
        link.rename(life.log.path)

    return rotate


# --- the real ones ----------------------------------------------------------------------------------------------------


def handled(make: Callable[[Life], logging.handlers.BaseRotatingHandler]) -> Callable[[Life], None]:
    """Write through a handler of Python's."""

    def start(life: Life) -> None:
        life.handler = make(life)

    return start


def by_size(life: Life) -> logging.handlers.BaseRotatingHandler:
    return logging.handlers.RotatingFileHandler(life.log.path, backupCount=99)


def by_time(life: Life) -> logging.handlers.BaseRotatingHandler:
    return logging.handlers.TimedRotatingFileHandler(life.log.path, when="D", utc=True)


def rolled(life: Life) -> None:
    """Let the handler rotate, as if a day had passed."""
    assert isinstance(life.handler, logging.handlers.RotatingFileHandler | logging.handlers.TimedRotatingFileHandler)
    if isinstance(life.handler, logging.handlers.TimedRotatingFileHandler):
        life.handler.rolloverAt = int(FIRST_DAY.timestamp()) + life.rotations * 86400
    life.handler.doRollover()


def logrotate(*options: str) -> Callable[[Life], None]:
    """Run Debian's logrotate."""

    def rotate(life: Life) -> None:
        home = life.directory.parent
        lines = "\n".join(["rotate 99", *options]).format(olddir=life.olddir)
        (home / "logrotate.conf").write_text(f"{life.log.path} {{\n{lines}\n}}\n")
        (home / "logrotate.conf").chmod(0o644)
        subprocess.run([tool("logrotate"), "-f", "-s", home / "logrotate.state", home / "logrotate.conf"], check=True)

    return rotate


# --- other files beside the log ---------------------------------------------------------------------------------------


def another_log(life: Life) -> None:
    """The same server's log of errors."""
    Log(life.directory / "vllm.err").write("not ours")


def another_server(life: Life) -> None:
    """Another server, whose log rotates too."""
    other = Log(life.directory / "vllm-8001.log")
    other.write(f"not ours {len(life.written)}")
    other.rotate()
    other.write(f"not ours {len(life.written)} either")


def a_configuration(life: Life) -> None:
    """Docker's, which a new file replaces."""
    Log(life.directory / "config.v2.json").write("not ours")
    Log(life.directory / "config.v2.json").become_a_copy()


DESCENDING = shifted("vllm.log.{}")
CONTAINER = "4f66ad9a1b2c-json.log"
SCHEMES: dict[str, Scheme] = {
    "vllm.log.1, descending": Scheme(DESCENDING),
    "vllm.log.1, ascending": Scheme(named("vllm.log.{}")),
    "vllm.log.001, ascending": Scheme(named("vllm.log.{:03}")),
    "vllm.1.log, descending": Scheme(shifted("vllm.{}.log")),
    "vllm.1.log, ascending": Scheme(named("vllm.{}.log")),
    "vllm-1.log, descending": Scheme(shifted("vllm-{}.log")),
    "vllm-1.log, ascending": Scheme(named("vllm-{}.log")),
    "vllm.log_1": Scheme(shifted("vllm.log_{}")),
    "vllm.log.1.bak": Scheme(shifted("vllm.log.{}.bak")),
    "vllm.log-20261127": Scheme(named("vllm.log-%Y%m%d", days=1)),
    "vllm.log-2026112721": Scheme(named("vllm.log-%Y%m%d%H", hours=1)),
    "vllm.log-1795813200": Scheme(named("vllm.log-%s", minutes=1)),
    "vllm.log.2026-11-27_21": Scheme(named("vllm.log.%Y-%m-%d_%H", hours=1)),
    "vllm-2026-11-27T21-00-00.000.log": Scheme(named("vllm-%Y-%m-%dT%H-%M-%S.000.log", seconds=90)),
    "vllm-Nov-27.log": Scheme(named("vllm-%b-%d.log", days=1)),
    "vllm.log.27-11-2026": Scheme(named("vllm.log.%d-%m-%Y", days=1)),
    "vllm-Fri.log, over last week's": Scheme(named("vllm-%a.log", days=1), removes=True),
    "files that begin alike, descending": Scheme(DESCENDING, banner=BANNER),
    "files that begin alike, ascending": Scheme(named("vllm-{}.log"), banner=BANNER),
    "files that begin alike, copied": Scheme(copied_to("vllm.log.{}"), banner=BANNER),
    "the oldest deleted": Scheme(shifted("vllm.log.{}", keep=2), removes=True),
    "deleted at once": Scheme(deleted, removes=True),
    "compressed at once": Scheme(packed, removes=True),
    "a late writer": Scheme(left_late, past=0),
    "renamed mid line": Scheme(mid_line),
    "copytruncate, descending": Scheme(lambda life: life.log.copytruncate()),
    "copytruncate, ascending": Scheme(copied_to("vllm-{}.log")),
    "copytruncate mid line": Scheme(copied_mid_line),
    "olddir": Scheme(moved_away, olddir=True),
    "another directory, in silence": Scheme(moved_away, removes=True),
    "old-1-vllm.log, in silence": Scheme(named("old-{}-vllm.log"), removes=True),
    "olddir, by a copy": Scheme(copied_away, olddir=True),
    "vllm.log -> vllm-0001.log": Scheme(linked("vllm-{:04}.log"), start=linked("vllm-{:04}.log")),
    "current -> vllm-0001.log": Scheme(
        linked("vllm-{:04}.log"), path="current", glob="*", start=linked("vllm-{:04}.log")
    ),
    "current -> 20261127.log": Scheme(
        linked("202611{:02}.log"), path="current", glob="*", start=linked("202611{:02}.log")
    ),
    "current, @tai64n": Scheme(named("@400000006565{:016x}.s"), path="current", glob="*"),
    "kubelet": Scheme(kubelet, path="0.log", glob="0.log*", removes=True),
    "Docker": Scheme(shifted(f"{CONTAINER}.{{}}"), path=CONTAINER, glob="*-json.log*", beside=a_configuration),
    "RotatingFileHandler": Scheme(rolled, start=handled(by_size)),
    "TimedRotatingFileHandler": Scheme(rolled, start=handled(by_time)),
    "beside vllm.err": Scheme(DESCENDING, beside=another_log, glob=None),
    "beside vllm-8001.log": Scheme(
        shifted("vllm-8000.log.{}"), path="vllm-8000.log", beside=another_server, glob="vllm-8000*"
    ),
}  # fmt: skip
LOGROTATE: dict[str, Scheme] = {
    "logrotate, create": Scheme(logrotate("create")),
    "logrotate, copytruncate": Scheme(logrotate("copytruncate")),
    "logrotate, olddir": Scheme(logrotate("create", "olddir {olddir}"), olddir=True),
    "logrotate, olddir, renamecopy": Scheme(logrotate("create", "renamecopy", "olddir {olddir}"), olddir=True),
    "logrotate, compress": Scheme(logrotate("create", "compress"), removes=True),
    "logrotate, delaycompress": Scheme(logrotate("create", "compress", "delaycompress"), removes=True),
}
