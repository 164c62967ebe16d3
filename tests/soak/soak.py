"""``make soak``: weeks of work in an hour; it fails when memory, descriptors or threads grow, or a counter is wrong.

Two phases, one exporter each: many scrapes, and much log. Amounts grow with ``--minutes``; the table in
docs/reliability.md has the amounts that were done.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import dataclasses
import gzip
import itertools
import re
import signal
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import aiohttp

from bench.processes import ENVIRONMENT
from running import Exporter, exporter
from soak.growinglog import ROTATED_FILES, GrowingLog
from soak.predictors import Counting, Predictor
from soak.report import record
from soak.watch import HEADER, Phase
from specdec_exporter.predictor.sources.tail import ROTATE_WAIT_SECONDS

# In an hour.
SCRAPES = 200_000
LOG_BYTES = 20_000_000_000
PHASES = ("scrapes", "log")
WARM_UP_SHARE = 0.1
LEAST_WARM_UP = 1500  # scrapes: bounded windows are full (docs/benchmarks.md)

_TICK_SECONDS = 0.25
_READ_SECONDS = 2.0

_OPENMETRICS = {
    "Accept": "application/openmetrics-text;version=1.0.0;q=0.6,text/plain;version=0.0.4;q=0.4,*/*;q=0.1",
    "Accept-Encoding": "gzip",
    "X-Prometheus-Scrape-Timeout-Seconds": "10",
}
_TEXT = {"Accept": "text/plain;version=0.0.4", "Accept-Encoding": "identity", "Connection": "close"}
_UP = re.compile(rb"^specdec_up\{.*\} (\S+)$", re.MULTILINE)
_DRAFTS = re.compile(rb"^specdec_drafts_total\{.*\} (\S+)$", re.MULTILINE)


class Soak:
    """The phases of a soak of so many minutes."""

    def __init__(self, minutes: float, directory: Path) -> None:
        self._share = minutes / 60
        self._minute = minutes  # seconds: every run has as many reloads
        self._directory = directory

    # --- Many scrapes ---

    async def scrapes(self) -> Phase:
        """Scrape one exporter without a pause, while others read its status and its configuration is reloaded."""
        amount = round(SCRAPES * self._share)
        counting = Counting()
        predictor = Predictor(counting)
        await predictor.open()
        try:
            async with exporter(f"--predictor.url={predictor.url}", stdin=None, **ENVIRONMENT) as running:
                phase = Phase("scrapes", running.process.pid)
                async with self._busy(running, phase, counting):
                    await self._scrape(running, Phase("", 0), max(LEAST_WARM_UP, round(WARM_UP_SHARE * amount)))
                before = predictor.seen.requests["/metrics"]
                async with phase.measured(), self._busy(running, phase, counting) as asked:
                    await self._scrape(running, phase, amount)
                fetches = predictor.seen.requests["/metrics"] - before
                requests = amount + asked.statuses
                phase.check(fetches <= requests, f"{fetches:,} fetches for {requests:,} requests")
                phase.amount = f"{amount:,} scrapes, {asked.statuses:,} reads of the status, {asked.reloads} reloads"
                return phase
        finally:
            await predictor.close()

    async def _scrape(self, running: Exporter, phase: Phase, amount: int) -> None:
        """Two scrapers: one keeps its connection and wants OpenMetrics and gzip, one wants neither."""
        numbers = itertools.count()

        async def scraper(headers: dict[str, str]) -> None:
            drafts = 0.0
            async with aiohttp.ClientSession(auto_decompress=False) as session:
                while next(numbers) < amount:
                    began = time.perf_counter()
                    async with session.get(running.url + "/metrics", headers=headers) as response:
                        body = await response.read()
                    phase.latencies.append(time.perf_counter() - began)
                    if response.headers.get("Content-Encoding") == "gzip":
                        body = gzip.decompress(body)
                    phase.check(response.status == 200, f"a scrape was answered with {response.status}")
                    phase.check(_UP.findall(body) == [b"1.0"], "specdec_up was not 1")
                    found = sum(map(float, _DRAFTS.findall(body)))
                    phase.check(found >= drafts, "specdec_drafts_total fell")
                    drafts = found

        await asyncio.gather(scraper(_OPENMETRICS), scraper(_TEXT))

    # --- Much log ---

    async def log(self) -> Phase:
        """Write a log at the speed at which the exporter reads it, rotate it, and count what the exporter found."""
        amount = round(LOG_BYTES * self._share)
        counting = Counting()
        predictor = Predictor(counting)
        await predictor.open()
        log = GrowingLog(self._directory)
        reading = (f"--predictor.log-path={log.path}", "--predictor.log-from=start")
        try:
            async with exporter(f"--predictor.url={predictor.url}", *reading, stdin=None, **ENVIRONMENT) as running:
                phase = Phase("log", running.process.pid, more_descriptors=ROTATED_FILES)
                async with self._busy(running, phase, counting):
                    await self._write(running, Phase("", 0), log, round(WARM_UP_SHARE * amount))
                before = log.bytes
                async with phase.measured(), self._busy(running, phase, counting):
                    await self._write(running, phase, log, amount)
                    await asyncio.sleep(2 * ROTATE_WAIT_SECONDS)  # rotated files are left alone for so long
                samples = await running.samples(**_TEXT)
                for what, expected in {
                    "specdec_log_reader_lines_total": log.lines,
                    "specdec_log_reader_rotations_total": log.renamed,
                    "specdec_log_reader_truncations_total": log.truncated,
                    "specdec_log_reader_parse_errors_total": 0,
                    "specdec_log_reader_oversized_lines_total": 0,
                    "specdec_log_reader_read_errors_total": 0,
                    "specdec_log_windows_total": log.windows,
                    "specdec_log_accepted_tokens_total": log.accepted_tokens,
                    "specdec_log_draft_tokens_total": log.draft_tokens,
                }.items():
                    phase.equal(what, _total(samples, what), expected)
                # The part of a line that was read before its file was cut is read again in the copy.
                read = _total(samples, "specdec_log_reader_bytes_total")
                phase.check(read >= log.bytes, f"{read:,.0f} bytes read, {log.bytes:,} written")
                written = log.bytes - before
                speed = written / 1e6 / phase.seconds
                phase.amount = f"{written / 1e9:.1f} GB of log at {speed:.0f} MB/s, {log.rotations} rotations"
                return phase
        finally:
            log.close()
            await predictor.close()

    async def _write(self, running: Exporter, phase: Phase, log: GrowingLog, amount: int) -> None:
        """Write so many bytes and wait until they are read; scrape all the while."""
        read = lines = 0.0
        wanted = log.bytes + amount
        async with asyncio.timeout(120 * self._minute + 600):
            while lines < log.lines or log.bytes < wanted:
                began = time.perf_counter()
                samples = await running.samples(**_TEXT)
                phase.latencies.append(time.perf_counter() - began)
                read = _total(samples, "specdec_log_reader_bytes_total")
                lines = _total(samples, "specdec_log_reader_lines_total")
                for _ in range(25):  # 100 MB to a scrape
                    if log.bytes < wanted and log.may_grow(read):
                        log.write()
                    await asyncio.sleep(0.005)

    # --- What goes on in every phase ---

    @contextlib.asynccontextmanager
    async def _busy(self, running: Exporter, phase: Phase, counting: Counting) -> AsyncIterator[Asked]:
        """Move the counters, read the status, reload."""
        asked, loaded = Asked(), _loaded(running)

        async def count() -> None:
            while True:
                counting.go_on()
                await asyncio.sleep(_TICK_SECONDS)

        async def read() -> None:
            while True:
                for path in ("/-/healthy", "/-/ready", "/", "/api/v1/status"):
                    await running.get(path, **_TEXT)
                asked.statuses += 1
                await asyncio.sleep(_READ_SECONDS)

        async def reload() -> None:
            while True:
                await asyncio.sleep(self._minute)
                running.process.send_signal(signal.SIGHUP)
                asked.reloads += 1

        tasks = [asyncio.create_task(each()) for each in (count, read, reload)]
        try:
            yield asked
            for task in tasks:
                if task.done():
                    task.result()  # raises what ended it
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        complaints = [line for line in running.log if "level=error" in line or "Traceback" in line]
        phase.check(not complaints, f"the exporter said: {complaints[:1]}")
        async with asyncio.timeout(60):
            while _loaded(running) < loaded + asked.reloads:
                await asyncio.sleep(0.1)


@dataclasses.dataclass(slots=True)
class Asked:
    """What else than scrapes was asked of the exporter."""

    statuses: int = 0
    reloads: int = 0


def _loaded(running: Exporter) -> int:
    """How often the exporter has loaded its configuration again."""
    return sum("configuration loaded" in line for line in running.log)


def _total(samples: dict[str, float], family: str) -> float:
    """The sum of a family's samples."""
    return sum(value for series, value in samples.items() if series.partition("{")[0] == family)


async def _soak(minutes: float, only: Sequence[str]) -> int:
    memory = Path("/dev/shm")  # a log at speed is no test of the disk
    with tempfile.TemporaryDirectory(prefix="specdec-soak-", dir=memory if memory.is_dir() else None) as directory:
        soak = Soak(minutes, Path(directory))
        phases: list[Phase] = []
        for name in only or PHASES:
            phases.append(phase := await getattr(soak, name)())
            print(" | ".join(phase.row()), flush=True)
            for limit in phase.broken:
                print(f"  BROKEN: {limit}", flush=True)
    if any(phase.broken for phase in phases):
        return 1
    if not only:
        record("soak", f"make soak MINUTES={minutes:g}", HEADER, [phase.row() for phase in phases])
    return 0


def main() -> int:
    """Return 0 if every limit held; then the tables are written, unless only some phases ran."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("phases", nargs="*", metavar="PHASE", help=f"only these of {', '.join(PHASES)}")
    arguments = parser.parse_args()
    if unknown := set(arguments.phases) - set(PHASES):
        parser.error(f"no such phase: {', '.join(sorted(unknown))}")
    return asyncio.run(_soak(arguments.minutes, arguments.phases))


if __name__ == "__main__":
    sys.exit(main())
