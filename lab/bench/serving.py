"""``serve`` as a process: a big log, memory, CPU when idle, time to ready, many predictors."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import itertools
import json
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path

from aiohttp import web

from bench.predictor_log import PredictorLog
from bench.processes import ENVIRONMENT, bytes_read, cpu_seconds, cpu_when_quiet, memory, run
from bench.rows import BenchError, Row, figure
from support.counting import ONE_ENGINE, count_up
from support.running import Exporter, Predictor, exporter, predictor

MEMORY_RATIO = 1.3  # of a minimal exporter over the same libraries
# Python's allocator and the C library's move in steps of this order; a leak of one snapshot a scrape would be 5 MiB.
GROWTH_MIB = 0.25
SCRAPES = 200
IDLE_PERCENT_OF_CORE = 0.4
SCRAPE_INTERVAL_SECONDS = 15.0
READY_RATIO = 3.0  # of importing the libraries
READY_RUNS = 7
# Idle CPU and time to ready depend on what else the machine does: the best of so many attempts is what holds.
ATTEMPTS = 3
MANY_PREDICTORS = (16, 256)
MANY_SCRAPES = 20
# CPU of a predictor and scrape, from few to many. Linear is 1.
MANY_GROWTH = 1.5

SCRAPE_HEADERS = {
    "Accept": "application/openmetrics-text;version=1.0.0;q=0.6,text/plain;version=0.0.4;q=0.4,*/*;q=0.1",
    "X-Prometheus-Scrape-Timeout-Seconds": "10",
}
_LONGEST_WAIT_SECONDS = 300.0


async def measure_catching_up(log: PredictorLog, empty: Path) -> list[Row]:
    """Rows of a server that reads the whole log, and of its memory over many scrapes."""
    async with serving(empty, log_from="start") as running:
        start = await cpu_when_quiet(running.process.pid)
    async with serving(log.path, log_from="start") as running:
        await _until_read(running, log.size_bytes)
        reading = await cpu_when_quiet(running.process.pid) - start
        await _check_totals(running, log)
        rows = await _memory_rows(running, log)
    return [
        figure("start, no log", [start], "s"),
        figure("catching up with the log, start apart", [reading], "s"),
        *rows,
    ]


async def measure_idle(log: PredictorLog, seconds: float) -> list[Row]:
    """CPU that following a log and a scrape every 15 s takes beside an idle predictor."""
    tries: list[float] = []
    while not tries or (len(tries) < ATTEMPTS and min(tries) > IDLE_PERCENT_OF_CORE):
        async with serving(log.path, log_from="end") as running:
            await running.samples(**SCRAPE_HEADERS)
            await cpu_when_quiet(running.process.pid)
            tries.append(100 * await _idle(running, seconds) / seconds)
    what = f"CPU when idle, a scrape every {SCRAPE_INTERVAL_SECONDS:g} s, over {seconds:g} s"
    return [_best(what, tries, "% of a core", IDLE_PERCENT_OF_CORE)]


async def measure_ready(empty: Path) -> list[Row]:
    """Wall time from starting the process to an answer of ``/-/ready``, beside that of importing the libraries."""
    seconds: list[float] = []
    ratios: list[float] = []
    for _ in range(READY_RUNS):
        started = time.monotonic()
        run(sys.executable, "-c", "import aiohttp, prometheus_client")
        imported = time.monotonic()
        async with serving(empty, log_from="start") as running:
            await running.get("/-/ready")
            seconds.append(time.monotonic() - imported)
        ratios.append(seconds[-1] / (imported - started))
    return [
        figure("time to ready", seconds, "s"),
        figure("time to ready", ratios, "of `import aiohttp, prometheus_client`", at_most=READY_RATIO),
    ]


async def measure_many(directory: Path) -> list[Row]:
    """What many predictors in one file cost: CPU and memory, each read anew for every scrape."""
    rows: list[Row] = []
    costs: dict[int, float] = {}
    for number in MANY_PREDICTORS:
        async with _serving_many(directory / "many.yaml", number) as running:
            pid = running.process.pid
            begun, slowest = cpu_seconds(pid), 0.0
            for _ in range(MANY_SCRAPES):
                asked = time.monotonic()
                await running.get("/metrics", **SCRAPE_HEADERS)
                slowest = max(slowest, time.monotonic() - asked)
            costs[number] = 1000 * (cpu_seconds(pid) - begun) / MANY_SCRAPES / number
            rows += [
                figure(f"{number} predictors, a scrape", [costs[number]], "ms of CPU a predictor"),
                figure(f"{number} predictors, the longest of {MANY_SCRAPES} scrapes", [slowest], "s"),
                figure(f"{number} predictors, highest RSS", [memory(pid).peak], "MiB"),
            ]
    few, many = MANY_PREDICTORS
    growth = costs[many] / costs[few]
    return [*rows, figure(f"cost of a predictor / with {few}", [growth], "x", at_most=MANY_GROWTH)]


def _best(what: str, tries: list[float], unit: str, at_most: float) -> Row:
    row = figure(what, [min(tries)], unit, at_most=at_most)
    if len(tries) == 1:
        return row
    return Row(row.what, f"{row.measured} (best of {len(tries)} attempts)", row.budget, row.holds)


@contextlib.asynccontextmanager
async def serving(log_path: Path, *, log_from: str, fetches: int = 1) -> AsyncIterator[Exporter]:
    """Run an exporter beside a stand-in whose counters go up with every so many fetches."""
    async with _counting_predictor(fetches) as standing_in:
        arguments = (
            f"--predictor.url={standing_in.url}",
            f"--predictor.log-path={log_path}",
            f"--predictor.log-from={log_from}",
        )
        async with exporter(*arguments, stdin=None, **ENVIRONMENT) as running:
            yield running


@contextlib.asynccontextmanager
async def _serving_many(config: Path, number: int) -> AsyncIterator[Exporter]:
    """Run an exporter whose file lists so many predictors, after all have been read."""
    async with _counting_predictor(number) as standing_in:
        listed = [{"name": f"service-{each}", "url": standing_in.url} for each in range(number)]
        config.write_text(json.dumps({"predictors": listed}), encoding="utf-8")
        async with exporter(f"--config.file={config}", stdin=None, **ENVIRONMENT) as running:
            await running.until(lambda samples: total(samples, "specdec_up") == number)
            yield running


def total(samples: dict[str, float], family: str) -> float:
    """The sum of a family's samples."""
    return sum(value for series, value in samples.items() if series.partition("{")[0] == family)


@contextlib.asynccontextmanager
async def _counting_predictor(readers: int = 1) -> AsyncIterator[Predictor]:
    """A stand-in whose counters go up whenever so many have fetched them."""
    capture = ONE_ENGINE.read_bytes()
    fetches = itertools.count(readers)

    @functools.lru_cache(maxsize=1)
    def body(factor: int) -> bytes:
        return count_up(capture, factor)

    async def answer(_request: web.Request) -> web.StreamResponse:
        return web.Response(body=body(next(fetches) // readers), headers=standing_in.headers)

    async with predictor() as standing_in:
        standing_in.answer = answer
        yield standing_in


async def _until_read(running: Exporter, size_bytes: int) -> None:
    """Wait until the exporter has read so much, without asking it."""
    async with asyncio.timeout(_LONGEST_WAIT_SECONDS):
        while bytes_read(running.process.pid) < size_bytes:
            await asyncio.sleep(0.02)


async def _check_totals(running: Exporter, log: PredictorLog) -> None:
    samples = await running.samples()
    names = ("windows", "accepted_tokens", "draft_tokens")
    found = tuple(total(samples, f"specdec_log_{name}_total") for name in names)
    if found != log.totals:
        raise BenchError(f"serve found {found} in the log, there are {log.totals}")


async def _memory_rows(running: Exporter, log: PredictorLog) -> list[Row]:
    pid = running.process.pid
    after_log = memory(pid)
    at: dict[int, float] = {}
    for number in range(1, 2 * SCRAPES + 1):
        await running.get("/metrics", **SCRAPE_HEADERS)
        at[number] = memory(pid).now
    half = SCRAPES // 2
    least = await _minimal_memory()
    return [
        figure(f"RSS after reading {log.size_bytes / 1e6:.0f} MB of log", [after_log.now], "MiB"),
        figure(f"RSS after {SCRAPES} scrapes", [at[SCRAPES]], "MiB"),
        figure("highest RSS", [memory(pid).peak], "MiB"),
        figure(f"RSS of a minimal exporter after {SCRAPES} scrapes", [least], "MiB"),
        figure(f"RSS after {SCRAPES} scrapes", [at[SCRAPES] / least], "of a minimal exporter's", at_most=MEMORY_RATIO),
        figure(f"growth from scrape {half} to {SCRAPES}", [at[SCRAPES] - at[half]], "MiB", at_most=GROWTH_MIB),
        figure(f"growth over another {SCRAPES}", [at[2 * SCRAPES] - at[SCRAPES]], "MiB", at_most=GROWTH_MIB),
    ]


async def _minimal_memory() -> float:
    """RSS in MiB of an exporter that only fetches, after as many scrapes."""
    async with predictor(ONE_ENGINE.read_bytes()) as standing_in:
        program = (sys.executable, "-m", "bench.minimal_exporter", f"{standing_in.url}/metrics")
        async with exporter(program=program, stdin=None, **ENVIRONMENT) as running:
            for _ in range(SCRAPES):
                await running.get("/metrics", **SCRAPE_HEADERS)
            return memory(running.process.pid).now


async def _idle(running: Exporter, seconds: float) -> float:
    """CPU seconds over so long."""
    pid = running.process.pid
    begun, ends = cpu_seconds(pid), time.monotonic() + seconds
    while True:
        due = time.monotonic() + SCRAPE_INTERVAL_SECONDS
        await running.get("/metrics", **SCRAPE_HEADERS)
        await asyncio.sleep(max(0.0, min(due, ends) - time.monotonic()))
        if due >= ends:
            return cpu_seconds(pid) - begun
