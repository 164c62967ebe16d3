"""``make soak``: weeks of work in an hour; it fails when memory, descriptors or threads grow, or a counter is wrong.

Three phases, one exporter each: many scrapes, much log, and many predictors under eight Prometheus servers. Amounts
grow with ``--minutes``; the table in docs/reliability.md has the amounts that were done.
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
from collections.abc import AsyncIterator, Callable, Sequence
from functools import partial
from pathlib import Path

import aiohttp
import yaml

from bench.processes import ENVIRONMENT
from demo.processes import Server, free_port
from demo.processes import running as running_server
from running import Exporter, exporter
from soak.growinglog import ROTATED_FILES, GrowingLog
from soak.predictors import TROUBLES, Counting, Predictor
from soak.report import record
from soak.watch import HEADER, Phase
from specdec_exporter.predictor.sources.tail import ROTATE_WAIT_SECONDS

# In an hour; the last phase has the time that the others leave.
SCRAPES = 200_000
LOG_BYTES = 20_000_000_000
PREDICTORS = 64
PROMETHEUS_SERVERS = 8
SCRAPE_SECONDS = 5
LEAST_SHARE_OF_LAST_PHASE = 0.4
PHASES = ("scrapes", "log", "fleet")
WARM_UP_SHARE = 0.1  # of scrapes and of the log
LEAST_WARM_UP = 1500  # scrapes: bounded windows are full (docs/benchmarks.md)
WARM_UP_SHARE_OF_LAST_PHASE = 0.6  # an exporter keeps the loads of 15 minutes (policy.json)

_TICK_SECONDS = 0.25
_READ_SECONDS = 2.0
_CALM_SECONDS, _AWAY_SECONDS = 45.0, 15.0

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
        self._until = time.monotonic() + 60 * minutes
        self._directory = directory
        self.predictor_rows: list[tuple[str, str]] = []

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
                async with self._busy(running, phase, [counting]):
                    await self._scrape(running, Phase("", 0), max(LEAST_WARM_UP, round(WARM_UP_SHARE * amount)))
                before = predictor.seen.requests["/metrics"]
                async with phase.measured(), self._busy(running, phase, [counting]) as asked:
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
                async with self._busy(running, phase, [counting]):
                    await self._write(running, Phase("", 0), log, round(WARM_UP_SHARE * amount))
                before = log.bytes
                async with phase.measured(), self._busy(running, phase, [counting]):
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

    # --- Many predictors ---

    async def fleet(self) -> Phase:
        """Eight Prometheus servers scrape one exporter of 64 predictors, of which half go away again and again."""
        calm, restless = Counting(), Counting()
        predictors = [Predictor(restless if number % 2 else calm) for number in range(PREDICTORS)]
        for predictor in predictors:
            await predictor.open()
        config = self._directory / "exporter.yml"
        timeouts = itertools.cycle((1, 2))

        def edit() -> None:
            """Give every second predictor another timeout: at a reload they begin anew, the others go on."""
            config.write_text(_exporter_config(predictors, next(timeouts)))

        edit()
        try:
            async with exporter(f"--config.file={config}", stdin=None, **ENVIRONMENT) as running:
                phase = Phase("predictors", running.process.pid)
                left = max(self._until - time.monotonic(), LEAST_SHARE_OF_LAST_PHASE * 60 * self._minute)
                busy = partial(self._busy, running, phase, [calm, restless], predictors[1::2], edit)
                async with self._prometheus_servers(running), busy():
                    await asyncio.sleep(WARM_UP_SHARE_OF_LAST_PHASE * left)
                for predictor in predictors:
                    predictor.seen.forget()
                async with phase.measured():
                    async with self._prometheus_servers(running) as servers:
                        async with busy() as asked:
                            await asyncio.sleep((1 - WARM_UP_SHARE_OF_LAST_PHASE) * left)
                        scrapes = await _scrapes_of(servers, phase, asked.troubles)
                await self._check_fleet(running, phase, calm, restless)
                self._note_fetches(phase, predictors, scrapes, asked)
                phase.amount = (
                    f"{PREDICTORS} predictors, {PROMETHEUS_SERVERS} Prometheus servers, {scrapes:,} scrapes, "
                    f"{len(asked.troubles)} times half of the predictors away, {asked.reloads} reloads"
                )
                return phase
        finally:
            for predictor in predictors:
                await predictor.close()

    async def _check_fleet(self, running: Exporter, phase: Phase, calm: Counting, restless: Counting) -> None:
        samples = await running.samples(**_TEXT)
        phase.equal("specdec_up", _total(samples, "specdec_up"), PREDICTORS)
        expected = PREDICTORS // 2 * (calm.drafts + restless.drafts)
        phase.equal("specdec_drafts_total", _total(samples, "specdec_drafts_total"), expected)

    def _note_fetches(self, phase: Phase, predictors: Sequence[Predictor], scrapes: int, asked: Asked) -> None:
        """Keep what the predictors saw for the table; no predictor may be asked more often than the exporter is."""
        fetches = max(predictor.seen.requests["/metrics"] for predictor in predictors)
        requests = scrapes + asked.statuses
        phase.check(fetches <= requests, f"{fetches:,} fetches of one predictor for {requests:,} requests")
        most = max(predictor.seen.most_connections for predictor in predictors)
        calm = predictors[::2]
        self.predictor_rows = [
            ("Scrapes by eight Prometheus servers, and reads of the status", f"{scrapes:,} and {asked.statuses:,}"),
            ("Most fetches of one predictor meanwhile", f"{fetches:,}, {fetches / requests:.2f} per scrape or read"),
            ("Most connections of one predictor at once", f"{most}"),
            (
                "Requests of `/version` to a predictor that stays",
                f"{max(predictor.seen.requests['/version'] for predictor in calm)}",
            ),
            ("Longest request", f"{max(predictor.seen.longest_request for predictor in predictors)} bytes"),
            ("Connections left open", f"{sum(predictor.seen.connections for predictor in predictors)}"),
        ]

    # --- What goes on in every phase ---

    @contextlib.asynccontextmanager
    async def _busy(
        self,
        running: Exporter,
        phase: Phase,
        counting: Sequence[Counting],
        troubled: Sequence[Predictor] = (),
        edit: Callable[[], None] = lambda: None,
    ) -> AsyncIterator[Asked]:
        """Move the counters, read the status, reload; let ``troubled`` predictors go away. At the end all are well."""
        asked, loaded = Asked(), _loaded(running)

        async def count() -> None:
            while True:
                for each in counting:
                    each.go_on()
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
                edit()
                running.process.send_signal(signal.SIGHUP)
                asked.reloads += 1

        async def trouble() -> None:
            for mood in itertools.cycle(TROUBLES):
                await asyncio.sleep(_CALM_SECONDS)
                asked.troubles.append((time.time(), float("inf")))
                try:
                    for predictor in troubled:
                        await predictor.suffer(mood)
                    await asyncio.sleep(_AWAY_SECONDS)
                finally:
                    counting[-1].restart()
                    for predictor in troubled:
                        await predictor.open()
                    asked.troubles[-1] = (asked.troubles[-1][0], time.time())

        tasks = [asyncio.create_task(each()) for each in (count, read, reload, *([trouble] if troubled else []))]
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

    @contextlib.asynccontextmanager
    async def _prometheus_servers(self, running: Exporter) -> AsyncIterator[list[Server]]:
        async with contextlib.AsyncExitStack() as stack:
            yield [
                await stack.enter_async_context(self._prometheus(number, running))
                for number in range(PROMETHEUS_SERVERS)
            ]

    @contextlib.asynccontextmanager
    async def _prometheus(self, number: int, running: Exporter) -> AsyncIterator[Server]:
        name, port = f"prometheus-{number}", free_port()
        config = self._directory / f"{name}.yml"
        target = running.url.removeprefix("http://")
        config.write_text(
            yaml.safe_dump(
                {
                    "global": {
                        "scrape_interval": f"{SCRAPE_SECONDS}s",
                        "scrape_timeout": f"{SCRAPE_SECONDS}s",
                        # By them a server chooses the moment of its scrapes: every second one comes with another.
                        "external_labels": {"pair": str(number // 2)},
                    },
                    "scrape_configs": [{"job_name": "specdec", "static_configs": [{"targets": [target]}]}],
                }
            )
        )
        command = (
            "prometheus",
            f"--config.file={config}",
            f"--storage.tsdb.path={self._directory / name}",
            f"--web.listen-address=127.0.0.1:{port}",
        )
        async with running_server(name, command, port=port, ready="/-/ready", directory=self._directory) as server:
            yield server


@dataclasses.dataclass(slots=True)
class Asked:
    """What else than scrapes was asked of the exporter, and when predictors were away (Unix times)."""

    statuses: int = 0
    reloads: int = 0
    troubles: list[tuple[float, float]] = dataclasses.field(default_factory=list)


def _exporter_config(predictors: Sequence[Predictor], odd_timeout: int) -> str:
    return yaml.safe_dump(
        {
            "predictors": [
                {"name": f"p{number}", "url": predictor.url, "timeout": odd_timeout if number % 2 else 4}
                for number, predictor in enumerate(predictors)
            ]
        }
    )


def _loaded(running: Exporter) -> int:
    """How often the exporter has loaded its configuration again."""
    return sum("configuration loaded" in line for line in running.log)


def _total(samples: dict[str, float], family: str) -> float:
    """The sum of a family's samples."""
    return sum(value for series, value in samples.items() if series.partition("{")[0] == family)


async def _scrapes_of(servers: Sequence[Server], phase: Phase, troubles: Sequence[tuple[float, float]]) -> int:
    """Take the durations of all scrapes from the servers; return their number. None may have failed."""
    total = failed = 0
    async with aiohttp.ClientSession() as session:
        for server in servers:
            failed += sum(up != 1 for _, up in await _samples_of(session, server, "up", phase))
            for at, seconds in await _samples_of(session, server, "scrape_duration_seconds", phase):
                total += 1
                away = any(begin - SCRAPE_SECONDS <= at <= end for begin, end in troubles)
                (phase.latencies_away if away else phase.latencies).append(seconds)
    phase.equal("failed scrapes", failed, 0)
    return total


async def _samples_of(
    session: aiohttp.ClientSession, server: Server, series: str, phase: Phase
) -> list[tuple[float, float]]:
    """Every sample of a series since the measured part of ``phase`` began."""
    query = {"query": f"{series}[{max(1, int(time.time() - phase.began))}s]"}
    async with session.get(f"{server.url}/api/v1/query", params=query) as response:
        (found,) = (await response.json())["data"]["result"]
    return [(at, float(value)) for at, value in found["values"]]


async def _soak(minutes: float, only: Sequence[str]) -> int:
    memory = Path("/dev/shm")  # a log at speed is no test of the disk
    with tempfile.TemporaryDirectory(prefix="specdec-soak-", dir=memory if memory.is_dir() else None) as directory:
        soak = Soak(minutes, Path(directory))
        phases: list[Phase] = []
        for name in only or PHASES:
            phases.append(phase := await getattr(soak, name)())
            for row in phase.rows():
                print(" | ".join(row), flush=True)
            for limit in phase.broken:
                print(f"  BROKEN: {limit}", flush=True)
    for what, seen in soak.predictor_rows:
        print(f"{what}: {seen}")
    if any(phase.broken for phase in phases):
        return 1
    if not only:
        command = f"make soak MINUTES={minutes:g}"
        record("soak", command, HEADER, [row for phase in phases for row in phase.rows()])
        record("predictor", command, ("What a predictor sees", "Measured"), soak.predictor_rows)
    return 0


def main() -> int:
    """Return 0 if every limit held; then the tables are written, unless only some phases ran."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("phases", nargs="*", metavar="PHASE", help=f"only these of {', '.join(PHASES)}")
    arguments = parser.parse_args()
    if arguments.minutes < 2:
        parser.error("expected at least 2 minutes: Prometheus scrapes every 5 s")
    if unknown := set(arguments.phases) - set(PHASES):
        parser.error(f"no such phase: {', '.join(sorted(unknown))}")
    return asyncio.run(_soak(arguments.minutes, arguments.phases))


if __name__ == "__main__":
    sys.exit(main())
