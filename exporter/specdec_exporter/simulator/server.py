"""The simulated predictor over HTTP: it moves the simulated clock, writes the log and answers requests."""

from __future__ import annotations

import asyncio
import contextlib
import pathlib
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator
from typing import TextIO

from aiohttp import web
from aiohttp.typedefs import Handler

from specdec_exporter.errors import ConfigError
from specdec_exporter.simulator.engine import Engine
from specdec_exporter.simulator.exposition import render_metrics
from specdec_exporter.simulator.log import NOTICE, log_lines
from specdec_exporter.simulator.openai_api import OWNED_BY, OpenAIApi
from specdec_exporter.simulator.settings import SimulatorSettings

HEADER = "X-Simulated-By"
_SHORTEST_SLEEP_SECONDS = 0.002  # times the speed, because a fast clock needs fewer wake-ups
_LONGEST_SLEEP_SECONDS = 0.02
_LONGEST_ADVANCE_SECONDS = 1.0  # simulated; between two such steps the server answers requests
_HTML = "<!doctype html><title>Bad gateway</title><p>Not metrics: a simulated fault.</p>"

Ready = Callable[[int], None]


async def run(settings: SimulatorSettings, *, ready: Ready | None = None, stop: asyncio.Event | None = None) -> None:
    """Serve until ``stop`` is set or ``settings.duration_seconds`` (real) have passed.

    ``ready`` is called with the port when the server listens. Raises :class:`ConfigError` for an address or a log file
    that cannot be opened.
    """
    stop = stop or asyncio.Event()
    with _open_log(settings.log_path) as log:
        predictor = _Predictor(settings, log)
        async with _listening(predictor, settings.listen_address) as listener:
            if ready:
                ready(listener.port)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(settings.duration_seconds):
                    await predictor.live(listener, stop)


def describe(settings: SimulatorSettings, port: int) -> str:
    """Return what the command says at start: that it is a simulation, where it listens and what it imitates."""
    host = settings.listen_address.rpartition(":")[0] or "127.0.0.1"
    what = f"{settings.method}, k={settings.k}" if settings.speculates else "no speculation"
    return f"{NOTICE}\nsimulating vLLM {settings.vllm_version} ({what}) at {settings.speed:g}x on http://{host}:{port}"


class _Listener:
    """One address that closes and opens again: a restarting predictor refuses connections for a while."""

    def __init__(self, runner: web.AppRunner, host: str, port: int) -> None:
        self._runner = runner
        self._host = host
        self.port = port
        self._site: web.TCPSite | None = None

    async def follow(self, *, serving: bool) -> None:
        """Listen if the predictor serves, and only then. Raises :class:`ConfigError` for a bad address."""
        if serving == (self._site is not None):
            return
        if self._site:
            await self._site.stop()
            self._site = None
            return
        try:
            site = web.TCPSite(self._runner, self._host, self.port)
            await site.start()
        except OSError as error:
            raise ConfigError(f"listen_address {self._host}:{self.port}: {error.strerror or error}") from None
        self._site = site
        server = site._server  # noqa: SLF001  # the only way to the port of one site
        if isinstance(server, asyncio.Server):
            self.port = server.sockets[0].getsockname()[1]


class _Predictor:
    def __init__(self, settings: SimulatorSettings, log: TextIO) -> None:
        self._started = time.monotonic()
        self._speed = settings.speed
        self._log = log
        self._wake = asyncio.Event()
        self.engine = Engine(settings, start_unix=time.time())
        self._api = OpenAIApi(self._now, self._wake.set, created=int(self.engine.start_unix))

    def application(self) -> web.Application:
        application = web.Application(middlewares=[self._middleware])
        application.on_response_prepare.append(_sign)
        application.add_routes(self._api.routes())
        application.add_routes(
            [
                web.get("/health", self._health),
                web.get("/version", self._version),
                web.get("/metrics", self._metrics),
                web.get("/metrics/", self._metrics),
            ]
        )
        return application

    async def live(self, listener: _Listener, stop: asyncio.Event) -> None:
        """Until ``stop``: move the simulated clock with the real one, write the log, listen while the engine serves."""
        self._write_log()
        stopping = asyncio.create_task(stop.wait())
        stopping.add_done_callback(lambda _: self._wake.set())
        shortest = min(_SHORTEST_SLEEP_SECONDS * self._speed, _LONGEST_SLEEP_SECONDS)
        try:
            while not stop.is_set():
                await self._catch_up(listener)
                seconds = (self.engine.next_event_at - self._clock()) / self._speed
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._wake.wait(), min(max(seconds, shortest), _LONGEST_SLEEP_SECONDS))
                self._wake.clear()
        finally:
            stopping.cancel()
            self._write_log()

    async def _catch_up(self, listener: _Listener) -> None:
        target = self._clock()
        while self.engine.now < target:
            self.engine.advance_to(min(target, self.engine.now + _LONGEST_ADVANCE_SECONDS))
            self._write_log()
            await listener.follow(serving=self.engine.serving)
            await asyncio.sleep(0)

    def _clock(self) -> float:
        return (time.monotonic() - self._started) * self._speed

    def _now(self) -> Engine:
        """Return the engine at this moment. If the machine is too slow for the speed, a request does not catch up."""
        if self._clock() - self.engine.now < _LONGEST_ADVANCE_SECONDS:
            self.engine.advance_to(self._clock())
        return self.engine

    def _write_log(self) -> None:
        if lines := log_lines(self.engine):
            self._log.write("\n".join(lines) + "\n")
            self._log.flush()

    # -- HTTP ----------------------------------------------------------------------------------------------------------

    @web.middleware
    async def _middleware(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        if not self._now().serving:  # a connection from before the restart
            if request.transport:
                request.transport.abort()
            return web.Response(status=503)
        status = "500 Internal Server Error"
        try:
            response = await handler(request)
            status = f"{response.status} {response.reason}"
        except web.HTTPException as error:
            status = f"{error.status} {error.reason}"
            raise
        finally:
            line = f"{request.method} {request.path_qs} HTTP/{request.version.major}.{request.version.minor}"
            self.engine.record_access(_client(request), line, status)
        return response

    async def _health(self, _: web.Request) -> web.Response:
        return web.Response()

    async def _version(self, _: web.Request) -> web.Response:
        version = self.engine.release.text
        rust = {"rust_frontend_version": version} if self.engine.release.frontend == "rust" else {}
        return web.json_response({"version": version, **rust})

    async def _metrics(self, _: web.Request) -> web.Response:
        engine = self._now()
        match engine.conditions.metrics_fault:
            case "http_500":
                raise web.HTTPInternalServerError(text="Internal Server Error")
            case "html":
                return web.Response(text=_HTML, content_type="text/html")
            case "slow":
                await asyncio.sleep(engine.conditions.metrics_delay_seconds)
        return web.Response(body=render_metrics(engine), headers={"Content-Type": engine.release.content_type})


@contextlib.asynccontextmanager
async def _listening(predictor: _Predictor, address: str) -> AsyncIterator[_Listener]:
    host, colon, port = address.rpartition(":")
    if not colon or not port.isdecimal() or int(port) > 65535:
        raise ConfigError(f"listen_address: expected HOST:PORT, found {address!r}")
    runner = web.AppRunner(
        predictor.application(), access_log=None, handler_cancellation=True, handle_signals=False, shutdown_timeout=0.1
    )
    await runner.setup()
    listener = _Listener(runner, host.strip("[]") or "0.0.0.0", int(port))
    try:
        await listener.follow(serving=True)
        yield listener
    finally:
        await runner.cleanup()


@contextlib.contextmanager
def _open_log(path: str) -> Iterator[TextIO]:
    if path == "-":
        yield sys.stdout
        return
    try:
        log = pathlib.Path(path).open("a", encoding="utf-8")  # noqa: SIM115  # closed below
    except OSError as error:
        raise ConfigError(f"log_path {path}: {error.strerror}") from None
    with log:
        yield log


async def _sign(_: web.Request, response: web.StreamResponse) -> None:
    response.headers[HEADER] = OWNED_BY


def _client(request: web.Request) -> str:
    peer = request.transport.get_extra_info("peername") if request.transport else None
    return f"{peer[0]}:{peer[1]}" if peer else "127.0.0.1:0"
