"""A scraper that has given up costs no rendering, so that an overloaded exporter gets back to those that still wait."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from aiohttp import web
from aiohttp.typedefs import Handler
from prometheus_client import CollectorRegistry
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from specdec_exporter.config import Settings
from specdec_exporter.web.server import Endpoints


class Counting(Collector):
    collected = 0

    def collect(self) -> Iterable[Metric]:
        self.collected += 1
        return ()


class SlowExporter:
    settings = Settings()

    def __init__(self) -> None:
        self.asked = asyncio.Event()
        self.answered = asyncio.Event()

    async def refresh(self, timeout_seconds: float) -> None:
        self.asked.set()
        await self.answered.wait()

    async def reload(self) -> str | None:
        raise NotImplementedError

    def status(self) -> object:
        raise NotImplementedError


async def test_nothing_is_rendered_for_a_scraper_that_has_left() -> None:
    registry, counting, exporter = CollectorRegistry(), Counting(), SlowExporter()
    registry.register(counting)
    counting.collected = 0
    requests: list[web.Request] = []
    finished = asyncio.Event()

    @web.middleware
    async def watch(request: web.Request, handler: Handler) -> web.StreamResponse:
        requests.append(request)
        try:
            return await handler(request)
        finally:
            finished.set()

    app = web.Application(middlewares=[watch])
    app.add_routes(Endpoints(exporter, registry).routes())
    runner = web.AppRunner(app)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        async with asyncio.timeout(30):
            _, writer = await asyncio.open_connection(*runner.addresses[0][:2])
            writer.write(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n")
            await exporter.asked.wait()
            writer.transport.abort()
            while requests[0].transport is not None:
                await asyncio.sleep(0)
            exporter.answered.set()
            await finished.wait()
    finally:
        await runner.cleanup()
    assert counting.collected == 0
