"""The simulated predictor over HTTP: it moves the simulated clock, writes the log and answers requests."""

from __future__ import annotations

import asyncio
import contextlib
import pathlib
import time
from collections.abc import AsyncIterator
from typing import TextIO

from aiohttp import web
from aiohttp.typedefs import Handler

from demo.simulator.engine import Engine
from demo.simulator.exposition import render_metrics
from demo.simulator.log import log_lines
from demo.simulator.settings import SettingsError, SimulatorSettings

_SLEEP_SECONDS = 0.02
_LONGEST_ADVANCE_SECONDS = 1.0  # simulated; between two such steps the server answers requests


@contextlib.asynccontextmanager
async def serving(settings: SimulatorSettings) -> AsyncIterator[str]:
    """Serve a simulated predictor meanwhile. Yields its URL.

    Raises :class:`SettingsError` for a release, an address or a log file that cannot be had.
    """
    with _open(settings.log_path) as log:
        predictor = _Predictor(settings, log)
        async with _listening(predictor, settings.listen_address) as url:
            living = asyncio.create_task(predictor.live())
            try:
                yield url
            finally:
                living.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await living


def _open(path: str) -> TextIO:
    try:
        return pathlib.Path(path).open("a", encoding="utf-8")
    except OSError as error:
        raise SettingsError(f"log_path {path}: {error.strerror}") from None


class _Predictor:
    def __init__(self, settings: SimulatorSettings, log: TextIO) -> None:
        self._started = time.monotonic()
        self._log = log
        try:
            self.engine = Engine(settings, start_unix=time.time())
        except ValueError as error:
            raise SettingsError(str(error)) from None

    def application(self) -> web.Application:
        application = web.Application(middlewares=[self._middleware])
        application.add_routes(
            [
                web.get("/health", self._health),
                web.get("/version", self._version),
                web.get("/v1/models", self._models),
                web.get("/metrics", self._metrics),
            ]
        )
        return application

    async def live(self) -> None:
        """Move the simulated clock with the real one, and write the log."""
        while True:
            target = (time.monotonic() - self._started) * self.engine.settings.speed
            while self.engine.now < target:
                self.engine.advance_to(min(target, self.engine.now + _LONGEST_ADVANCE_SECONDS))
                if lines := log_lines(self.engine):
                    self._log.write("\n".join(lines) + "\n")
                    self._log.flush()
                await asyncio.sleep(0)
            await asyncio.sleep(_SLEEP_SECONDS)

    @web.middleware
    async def _middleware(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        if self.engine.serving:
            return await handler(request)
        if request.transport:  # it restarts
            request.transport.abort()
        return web.Response(status=503)

    async def _health(self, _: web.Request) -> web.Response:
        return web.Response()

    async def _version(self, _: web.Request) -> web.Response:
        return web.json_response({"version": self.engine.release.text})

    async def _models(self, _: web.Request) -> web.Response:
        settings = self.engine.settings
        model = {"id": settings.model_name, "owned_by": "specdec-exporter simulator", "root": settings.model}
        return web.json_response({"object": "list", "data": [model]})

    async def _metrics(self, _: web.Request) -> web.Response:
        engine = self.engine
        if engine.conditions.metrics_broken:
            raise web.HTTPInternalServerError
        return web.Response(body=render_metrics(engine), headers={"Content-Type": engine.release.content_type})


@contextlib.asynccontextmanager
async def _listening(predictor: _Predictor, address: str) -> AsyncIterator[str]:
    host, _, port = address.rpartition(":")
    runner = web.AppRunner(
        predictor.application(), access_log=None, handler_cancellation=True, handle_signals=False, shutdown_timeout=0.1
    )
    await runner.setup()
    try:
        try:
            await web.TCPSite(runner, host, int(port)).start()
        except (OSError, ValueError) as error:
            raise SettingsError(f"listen_address {address}: {error}") from None
        yield f"http://{host}:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()
