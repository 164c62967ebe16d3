"""``make soak``: weeks of work in an hour; it fails when memory, descriptors or threads grow, or a counter is wrong.

One exporter gets many scrapes and much log at once. Amounts grow with ``--minutes``; docs/evidence/reliability.md has
the amounts that were done.
"""

from __future__ import annotations

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
from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp

from bench.serving import serving, total
from report import EVIDENCE, measured_by, record, recording
from soak.growinglog import ROTATED_FILES, GrowingLog
from soak.watch import HEADER, Watch
from specdec_exporter.predictor.sources.follow import ROTATE_WAIT_SECONDS
from support.running import Exporter

# In an hour.
SCRAPES = 150_000
LOG_BYTES = 10_000_000_000
WARM_UP_SHARE = 0.1
LEAST_WARM_UP = 1500  # scrapes: bounded windows are full (docs/evidence/benchmarks.md)

_READ_SECONDS = 2.0

_OPENMETRICS = {
    "Accept": "application/openmetrics-text;version=1.0.0;q=0.6,text/plain;version=0.0.4;q=0.4,*/*;q=0.1",
    "Accept-Encoding": "gzip",
    "X-Prometheus-Scrape-Timeout-Seconds": "10",
}
_TEXT = {"Accept": "text/plain;version=0.0.4", "Accept-Encoding": "identity", "Connection": "close"}
_UP = re.compile(rb"^specdec_up\{.*\} (\S+)$", re.MULTILINE)
_DRAFTS = re.compile(rb"^specdec_drafts_total\{.*\} (\S+)$", re.MULTILINE)


async def soak(minutes: float, directory: Path) -> Watch:
    """Scrape an exporter without a pause, while it reads a log that grows as fast as it is read and is rotated."""
    share = minutes / 60
    scrapes, log_bytes = round(SCRAPES * share), round(LOG_BYTES * share)
    log = GrowingLog(directory)
    async with asyncio.timeout(180 * minutes + 600), serving(log.path, log_from="start", fetches=10) as running:
        watch = Watch(running.process.pid, more_descriptors=ROTATED_FILES)
        # As many reloads in every run, however long it is.
        async with _busy(running, watch, reload_seconds=minutes):
            warm_up = max(LEAST_WARM_UP, round(WARM_UP_SHARE * scrapes))
            await asyncio.gather(
                _scrape(running, Watch(0), warm_up), _write(running, log, round(WARM_UP_SHARE * log_bytes))
            )
        written = log.bytes
        async with watch.measured(), _busy(running, watch, reload_seconds=minutes) as asked:
            await asyncio.gather(_scrape(running, watch, scrapes), _write(running, log, log_bytes))
            await asyncio.sleep(2 * ROTATE_WAIT_SECONDS)  # rotated files are left alone for so long
        await _check_totals(running, watch, log)
        watch.amount = (
            f"{scrapes:,} scrapes, {asked.statuses:,} reads of the status, {asked.reloads} reloads, "
            f"{(log.bytes - written) / 1e9:.1f} GB of log, {log.rotations} rotations"
        )
        return watch


async def _scrape(running: Exporter, watch: Watch, amount: int) -> None:
    """Two scrapers: one keeps its connection and wants OpenMetrics and gzip, one wants neither."""
    numbers = itertools.count()

    async def scraper(headers: dict[str, str]) -> None:
        drafts = 0.0
        async with aiohttp.ClientSession(auto_decompress=False) as session:
            while next(numbers) < amount:
                began = time.perf_counter()
                async with session.get(running.url + "/metrics", headers=headers) as response:
                    body = await response.read()
                watch.latencies.append(time.perf_counter() - began)
                if response.headers.get("Content-Encoding") == "gzip":
                    body = gzip.decompress(body)
                watch.check(response.status == 200, f"a scrape was answered with {response.status}")
                watch.check(_UP.findall(body) == [b"1.0"], "specdec_up was not 1")
                found = sum(map(float, _DRAFTS.findall(body)))
                watch.check(found >= drafts, "specdec_drafts_total fell")
                drafts = found

    await asyncio.gather(scraper(_OPENMETRICS), scraper(_TEXT))


async def _write(running: Exporter, log: GrowingLog, amount: int) -> None:
    """Write so many bytes and wait until they are read."""
    read = lines = 0.0
    wanted = log.bytes + amount
    while lines < log.lines or log.bytes < wanted:
        samples = await running.samples(**_TEXT)
        read = total(samples, "specdec_log_reader_bytes_total")
        lines = total(samples, "specdec_log_reader_lines_total")
        for _ in range(25):  # 100 MB to a scrape
            if log.bytes < wanted and log.may_grow(read):
                log.write()
            await asyncio.sleep(0.005)


async def _check_totals(running: Exporter, watch: Watch, log: GrowingLog) -> None:
    samples = await running.samples(**_TEXT)
    for what, expected in {
        "specdec_log_reader_lines_total": log.lines,
        "specdec_log_reader_rotations_total": log.rotations,
        "specdec_log_reader_parse_errors_total": 0,
        "specdec_log_reader_oversized_lines_total": 0,
        "specdec_log_reader_read_errors_total": 0,
        "specdec_log_windows_total": log.windows,
        "specdec_log_accepted_tokens_total": log.accepted_tokens,
        "specdec_log_draft_tokens_total": log.draft_tokens,
    }.items():
        watch.equal(what, total(samples, what), expected)
    # The part of a line that was read before its file was cut is read again in the copy.
    read = total(samples, "specdec_log_reader_bytes_total")
    watch.check(read >= log.bytes, f"{read:,.0f} bytes read, {log.bytes:,} written")


@contextlib.asynccontextmanager
async def _busy(running: Exporter, watch: Watch, *, reload_seconds: float) -> AsyncIterator[Asked]:
    """Read the status, reload."""
    asked, loaded = Asked(), _loaded(running)

    async def read() -> None:
        while True:
            for path in ("/-/healthy", "/-/ready", "/", "/api/v1/status"):
                await running.get(path, **_TEXT)
            asked.statuses += 1
            await asyncio.sleep(_READ_SECONDS)

    async def reload() -> None:
        while True:
            await asyncio.sleep(reload_seconds)
            running.process.send_signal(signal.SIGHUP)
            asked.reloads += 1

    tasks = [asyncio.create_task(each()) for each in (read, reload)]
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
    watch.check(not complaints, f"the exporter said: {complaints[:1]}")
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


def main() -> int:
    """Return 0 if every limit held."""
    parser = recording(__doc__)
    parser.add_argument("--minutes", type=float, default=60.0)
    arguments = parser.parse_args()
    memory = Path("/dev/shm")  # a log at speed is no test of the disk
    with tempfile.TemporaryDirectory(prefix="specdec-soak-", dir=memory if memory.is_dir() else None) as directory:
        watch = asyncio.run(soak(arguments.minutes, Path(directory)))
    print(*(f"{what}: {measured}" for what, measured in zip(HEADER, watch.row(), strict=True)), sep="\n")
    print(*(f"BROKEN: {limit}" for limit in watch.broken), sep="\n")
    if arguments.record:
        command = f"make soak MINUTES={arguments.minutes:g} ARGS=--record"
        record(EVIDENCE / "reliability.md", "soak", HEADER, [watch.row()], measured_by(command))
    return bool(watch.broken)


if __name__ == "__main__":
    sys.exit(main())
