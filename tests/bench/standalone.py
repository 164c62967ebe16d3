"""``serve`` as one exporter for many predictors: CPU and memory while each of them counts on."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import tempfile
import time
from collections.abc import AsyncIterator
from pathlib import Path

from aiohttp import web

from bench.counting import ONE_ENGINE, count_up
from bench.processes import ENVIRONMENT, cpu_seconds, memory
from bench.rows import BenchError, Row, figure
from bench.serving import SCRAPE_HEADERS, SCRAPE_INTERVAL_SECONDS
from running import Exporter, exporter

PREDICTORS = 64
MEMORY_MIB = 150.0
PERCENT_OF_CORE = 15.0


async def measure(scrapes: int) -> list[Row]:
    """Rows of so many scrapes, one every 15 s, after two that learn the predictors' layouts."""
    async with _reading(PREDICTORS) as running:
        pid = running.process.pid
        for _ in range(2):
            await _scrape(running)
        begun, started = cpu_seconds(pid), time.monotonic()
        took: list[float] = []
        for number in range(1, scrapes + 1):
            asked = time.monotonic()
            await _scrape(running)
            took.append(time.monotonic() - asked)
            await asyncio.sleep(max(0.0, started + number * SCRAPE_INTERVAL_SECONDS - time.monotonic()))
        percent = 100 * (cpu_seconds(pid) - begun) / (time.monotonic() - started)
        used = memory(pid)
    return [
        figure(f"CPU, a scrape every {SCRAPE_INTERVAL_SECONDS:g} s", [percent], "% of a core", at_most=PERCENT_OF_CORE),
        figure("highest RSS", [used.peak], "MiB", at_most=MEMORY_MIB),
        figure("a scrape, with the answers of all predictors", took, "s"),
    ]


@contextlib.asynccontextmanager
async def _reading(predictors: int) -> AsyncIterator[Exporter]:
    """Run an exporter with a file of targets: one stand-in at many addresses, whose counters go up with each fetch."""
    capture = ONE_ENGINE.read_bytes()
    factors = itertools.count(1)

    async def answer(_request: web.Request) -> web.Response:
        return web.Response(body=count_up(capture, next(factors)), content_type="text/plain")

    app = web.Application()
    app.add_routes([web.get("/metrics", answer)])
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    with tempfile.TemporaryDirectory() as folder:
        try:
            await web.TCPSite(runner, "0.0.0.0", 0).start()
            port = runner.addresses[0][1]
            targets = [{"targets": [f"127.0.1.{number + 1}:{port}" for number in range(predictors)]}]
            (Path(folder) / "targets.json").write_text(json.dumps(targets))
            (Path(folder) / "specdec.yaml").write_text(f"discovery: {{files: ['{folder}/targets.json']}}")
            async with exporter(f"--config.file={folder}/specdec.yaml", stdin=None, **ENVIRONMENT) as running:
                yield running
        finally:
            await runner.cleanup()


async def _scrape(running: Exporter) -> None:
    text = await running.get("/metrics", **SCRAPE_HEADERS)
    found = sum(line.startswith("specdec_up{") and line.endswith(" 1.0") for line in text.splitlines())
    if found != PREDICTORS:
        raise BenchError(f"{found} of {PREDICTORS} predictors answered")
