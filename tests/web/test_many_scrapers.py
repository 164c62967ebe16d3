"""Many scrapers at once: they share a rendering, and one that has given up costs none."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterable

import aiohttp
from aiohttp import web
from aiohttp.typedefs import Handler
from prometheus_client.metrics_core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from specdec_exporter.config import Settings
from specdec_exporter.web.server import Endpoints
from support.running import listening

SCRAPERS = 8


class Counting(Collector):
    """Counts how often it is rendered, and shows the count."""

    collected = 0

    def describe(self) -> Iterable[Metric]:
        return ()

    def collect(self, fetched: object = None) -> Iterable[Metric]:
        self.collected += 1
        return [GaugeMetricFamily("collected", "How often.", self.collected)]


class SlowExporter:
    """Every scrape's fetch ends at the same time: when the test says so."""

    settings = Settings()

    def __init__(self) -> None:
        self.asked = 0
        self.answered = asyncio.Event()

    async def refresh(self, timeout_seconds: float) -> None:
        self.asked += 1
        await self.answered.wait()

    async def look(self) -> None:
        raise NotImplementedError

    async def reload(self) -> str | None:
        raise NotImplementedError

    def status(self) -> object:
        raise NotImplementedError


class Served:
    """The endpoints on a port."""

    def __init__(self) -> None:
        self.exporter = SlowExporter()
        self.counting = Counting()
        self.requests: list[web.Request] = []
        self.finished = asyncio.Event()
        self.port = 0

    @web.middleware
    async def watch(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        self.requests.append(request)
        try:
            return await handler(request)
        finally:
            self.finished.set()

    async def asked(self, times: int) -> None:
        while self.exporter.asked < times:
            await asyncio.sleep(0)


@contextlib.asynccontextmanager
async def served() -> AsyncIterator[Served]:
    found = Served()
    app = web.Application(middlewares=[found.watch])
    app.add_routes(Endpoints(found.exporter, found.counting.collect).routes())
    async with listening(app) as found.port, asyncio.timeout(30):
        yield found


async def scrape(at: Served) -> tuple[int, str]:
    async with aiohttp.ClientSession() as session, session.get(f"http://127.0.0.1:{at.port}/metrics") as response:
        return response.status, await response.text()


async def test_scrapers_at_once_share_a_rendering_and_the_next_gets_its_own() -> None:
    async with served() as at:
        scrapes = [asyncio.create_task(scrape(at)) for _ in range(SCRAPERS)]
        await at.asked(SCRAPERS)
        at.exporter.answered.set()
        bodies = {body for _, body in await asyncio.gather(*scrapes)}
        assert len(bodies) == at.counting.collected == 1
        assert "collected 2.0" in (await scrape(at))[1]


async def test_nothing_is_rendered_for_a_scraper_that_has_left() -> None:
    async with served() as at:
        _, writer = await asyncio.open_connection("127.0.0.1", at.port)
        writer.write(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n")
        await at.asked(1)
        writer.transport.abort()
        while at.requests[0].transport is not None:
            await asyncio.sleep(0)
        at.exporter.answered.set()
        await at.finished.wait()
        assert at.counting.collected == 0
