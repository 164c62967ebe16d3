"""``kill -9`` at random moments, while a log is written and rotates.

What is promised: the position file is whole at every moment. A start goes on exactly where that file says. No line that
a scrape has counted counts again. A line that was read after the last scrape is lost with the process, as for any
counter.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import json
import random
import sys
from collections.abc import AsyncIterator
from pathlib import Path

from bench.serving import total
from support.loglines import SPEC
from support.running import Exporter, exporter

KEPT_FILES = 40
KILL_WITHIN_SECONDS = 1.0


class Writer:
    """Writes lines of one length to a log, some in two pieces, and rotates it by renaming."""

    def __init__(self, directory: Path, chance: random.Random) -> None:
        self.path = directory / "vllm.log"
        self.path.touch()
        self.lines = self.rotations = 0
        self.files = [(self.path, self.path.stat().st_ino)]  # oldest first
        self.away = directory / "away"
        self.away.mkdir()
        self._chance = chance

    def line(self) -> bytes:
        """The next line; a number that no other line has makes the files differ."""
        self.lines += 1
        return f"(APIServer pid={10_000_000 + self.lines}) INFO 11-20 21:44:58 [metrics.py:120] {SPEC}\n".encode()

    async def burst(self) -> None:
        """Write a few lines; perhaps rotate."""
        content = b"".join(self.line() for _ in range(self._chance.randint(1, 5)))
        cut = self._chance.choice([0, self._chance.randrange(len(content))])
        with self.path.open("ab", buffering=0) as log:
            for piece in (content[:cut], content[cut:]):
                log.write(piece)
                await asyncio.sleep(0.002)
        if self._chance.random() < 0.05:
            self.rotate()

    def rotate(self) -> None:
        """Rename the log, begin another, and take the oldest away."""
        self.rotations += 1
        rotated = self.path.with_name(f"vllm.log-20261122-{self.rotations:06}")
        self.path.rename(rotated)
        self.files[-1] = (rotated, self.files[-1][1])
        self.path.touch()
        self.files.append((self.path, self.path.stat().st_ino))
        if len(self.files) > KEPT_FILES:
            oldest = self.files.pop(0)[0]
            # While it is somewhere, no other file has its inode, by which `unread` tells files apart.
            oldest.rename(self.away / oldest.name)

    def unread(self, state: Path) -> int:
        """Lines behind the saved positions; not exact while a line is half written."""
        saved = json.loads(state.read_bytes())
        offsets = {position["inode"]: position["offset"] for position in saved["files"]}
        newest = max(index for index, (_, inode) in enumerate(self.files) if inode in offsets)
        count = 0
        for index, (path, inode) in enumerate(self.files):
            if inode in offsets or index > newest:  # an older one was read to its end
                count += path.read_bytes()[offsets.get(inode, 0) :].count(b"\n")
        return count

    @contextlib.asynccontextmanager
    async def writing(self) -> AsyncIterator[None]:
        """Write until the end of the block, which ends with a whole line."""
        stop = False

        async def write() -> None:
            while not stop:
                await self.burst()

        task = asyncio.create_task(write())
        try:
            yield
        finally:
            stop = True
            await task


@dataclasses.dataclass
class Tally:
    """What was seen. Lines are counted as windows, which they are."""

    kills: int = 0
    torn: int = 0
    lost: int = 0
    doubled: int = 0
    saved: int = 0  # lines before the positions

    def look(self, writer: Writer, state: Path, *, scraped: int) -> None:
        """Judge the position file after a kill. ``scraped``: the lines that scrapes have counted."""
        self.kills += 1
        try:
            self.saved = writer.lines - writer.unread(state)
        except ValueError:
            self.torn += 1
        self.doubled += max(0, scraped - self.saved)


async def windows(running: Exporter) -> int:
    """The lines that this process has counted."""
    return int(total(await running.samples(), "specdec_log_windows_total"))


async def run(kills: int, chance: random.Random, directory: Path) -> Tally:
    """Kill the exporter ``kills`` times; after each kill but those at a start, check what the next process counts."""
    writer, tally, state = Writer(directory, chance), Tally(), directory / "positions.json"
    arguments = (
        f"--predictor.log-path={writer.path}",
        f"--predictor.log-state={state}",
        "--predictor.url=http://[::1]:1",
    )
    while tally.kills < kills:
        if tally.kills and chance.random() < 0.3:
            async with writer.writing():
                process = await asyncio.create_subprocess_exec(
                    sys.executable, "-m", "specdec_exporter", "serve", "--web.listen-address=127.0.0.1:0", *arguments,
                    stderr=asyncio.subprocess.DEVNULL,
                )  # fmt: skip
                await asyncio.sleep(chance.uniform(0.0, 2 * KILL_WITHIN_SECONDS))
                process.kill()
                await process.wait()
            tally.look(writer, state, scraped=tally.saved)
        async with exporter(*arguments) as running:
            counted = await caught_up(running, writer.lines - tally.saved)
            tally.lost += max(0, writer.lines - tally.saved - counted)
            tally.doubled += max(0, counted - (writer.lines - tally.saved))
            before = tally.saved
            async with writer.writing():
                moment = asyncio.get_running_loop().time() + chance.uniform(0.0, KILL_WITHIN_SECONDS)
                while asyncio.get_running_loop().time() < moment:
                    counted = await windows(running)
                running.process.kill()
                await running.process.wait()
        tally.look(writer, state, scraped=before + counted)
    return tally


async def caught_up(running: Exporter, expected: int) -> int:
    """Wait until as many lines count as are expected, or more; or until the reader has nothing left to read."""
    behind = 'specdec_log_reader_bytes_behind{inference_service="default"}'
    quiet = 0
    while (counted := await windows(running)) < expected and quiet < 20:
        quiet = quiet + 1 if (await running.samples()).get(behind) == 0 else 0
        await asyncio.sleep(0.1)
    return counted
