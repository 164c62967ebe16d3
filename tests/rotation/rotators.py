"""The real rotators, which take a log from a pipe, at work beside a reader."""

from __future__ import annotations

import contextlib
import os
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from rotation.judging import Verdict
from specdec_exporter.predictor.sources.tail import POLL_SECONDS, ROTATE_WAIT_SECONDS
from support.fieldtools import tool
from support.logfiles import Reader

FILE_BYTES = 4096  # the smallest that multilog and s6-log take
KEPT_FILES = 6
LINE_BYTES = 100
# multilog and s6-log rotate at the first line within 2,000 bytes of the size.
ROTATORS: dict[str, tuple[list[str], int]] = {
    "svlogd": (["."], FILE_BYTES),
    "multilog": ([f"s{FILE_BYTES}", f"n{KEPT_FILES}", "."], FILE_BYTES - 2000),
    "s6-log": ([f"s{FILE_BYTES}", f"n{KEPT_FILES}", "."], FILE_BYTES - 2000),
}


@contextlib.contextmanager
def rotating(name: str, directory: Path) -> Iterator[IO[bytes]]:
    """Run a rotator that writes to ``directory`` what comes through a pipe; its end is awaited."""
    arguments, _ = ROTATORS[name]
    (directory / "config").write_text(f"s{FILE_BYTES}\nn{KEPT_FILES}\n")  # svlogd's
    with subprocess.Popen(
        [tool(name), *arguments], cwd=directory, stdin=subprocess.PIPE, stderr=subprocess.DEVNULL, bufsize=0
    ) as process:
        assert process.stdin
        yield process.stdin
        process.stdin.close()
        assert process.wait(20) == 0


def line(number: int) -> str:
    return f"{number:07} {'x' * (LINE_BYTES - 9)}"


def on_disk(directory: Path) -> dict[tuple[str, int], set[str]]:
    """The whole lines of each file, by its name and inode: a file that is renamed during a look may escape it."""
    found = {}
    for path in directory.iterdir():
        with contextlib.suppress(FileNotFoundError), path.open() as file:
            if path.name == "current" or path.name.startswith("@"):
                key = (path.name, os.fstat(file.fileno()).st_ino)
                found[key] = set(file.read().rpartition("\n")[0].split("\n"))
    return found


def followed(name: str, home: Path, *, rotations_a_second: float, seconds: float) -> Verdict:
    """Let a rotator write for ``seconds``, and a reader look as often as the exporter does.

    A reader that is late, because the machine is busy, delays the writer.
    """
    directory = home / "logs"
    directory.mkdir()
    lines_a_second = rotations_a_second * ROTATORS[name][1] / LINE_BYTES
    reader = Reader(directory / "current")
    assert reader.read() == []
    got, required = Counter[str](), set[str]()
    written = looks = 0
    with rotating(name, directory) as pipe:
        began = time.monotonic()
        stop = threading.Event()

        def write() -> None:
            nonlocal written
            while not stop.wait(0.01):
                due = int(min(time.monotonic() - began, (looks + 1) * POLL_SECONDS) * lines_a_second)
                pipe.write("".join(f"{line(number)}\n" for number in range(written, due)).encode())
                written = max(written, due)

        writer = threading.Thread(target=write)
        writer.start()
        try:
            while time.monotonic() - began < seconds:
                stop.wait(POLL_SECONDS)
                before = on_disk(directory)
                got.update(reader.wait(POLL_SECONDS))
                looks += 1
                after = on_disk(directory)
                for file in before.keys() & after.keys():
                    required |= before[file] & after[file]
        finally:
            stop.set()
            writer.join()
    for lines in on_disk(directory).values():
        required |= lines
    got.update(reader.wait())
    got.update(reader.wait(ROTATE_WAIT_SECONDS + 1))
    got.update(reader.close())
    everything = {line(number) for number in range(written)}
    missing = len(everything - got.keys())
    return Verdict(
        lost=len((required & everything) - got.keys()),
        twice=sum(count - 1 for count in got.values()),
        invented=len(got.keys() - everything),
        gone=missing,
        gaps=reader.counters.gaps,
        silent=0 if reader.counters.gaps else missing,
    )
