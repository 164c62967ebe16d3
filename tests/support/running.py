"""Real processes and servers for tests: the exporter as a subprocess, a predictor that answers what it is told to."""

from __future__ import annotations

import asyncio
import contextlib
import io
import re
import signal
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from pathlib import Path

import aiohttp
from aiohttp import web
from click.testing import CliRunner

from specdec_exporter.commands.cli import cli
from support.processes import EXPORTER

START_SECONDS = 60.0


class Printed:
    """What this process prints in a ``with`` block; known at its end."""

    out = err = ""


@contextlib.contextmanager
def printed() -> Iterator[Printed]:
    """Catch what the code in the block prints, as text and as bytes."""
    found = Printed()
    out, err = io.TextIOWrapper(io.BytesIO(), encoding="utf-8"), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        yield found
    out.seek(0)
    found.out, found.err = out.read(), err.getvalue()


def commanded(*arguments: str | Path, told: bytes = b"", **environment: str) -> tuple[int, str]:
    """Run ``specdec-exporter`` in this process: exit code, and what it prints. Its errors are raised."""
    words = list(map(str, arguments))
    run = CliRunner().invoke(cli, words, input=told, env=environment, standalone_mode=False, catch_exceptions=False)
    return run.return_value, run.output


class Exporter:
    """``specdec-exporter serve`` as a process of its own, listening on a port that the kernel chose."""

    def __init__(self, process: asyncio.subprocess.Process, session: aiohttp.ClientSession, awaited: str) -> None:
        self.process = process
        self.session = session
        self.url = ""
        self.log: list[str] = []
        self._awaited = awaited
        self._started = asyncio.Event()
        self._changed = asyncio.Condition()
        self._reader = asyncio.create_task(self._read_log())

    async def _read_log(self) -> None:
        assert self.process.stderr is not None
        while line := await self.process.stderr.readline():
            text = line.decode().rstrip()
            if match := re.search(r"msg=listening address=127\.0\.0\.1:(\d+) tls=(\w+)", text):
                self.url = f"{'https' if match[2] == 'true' else 'http'}://127.0.0.1:{match[1]}"
            if self._awaited in text:
                self._started.set()
            async with self._changed:
                self.log.append(text)
                self._changed.notify_all()
        self._started.set()

    async def started(self) -> None:
        async with asyncio.timeout(START_SECONDS):
            await self._started.wait()
        assert self.url, "\n".join(self.log)

    async def said(self, text: str) -> str:
        """Wait for a log line that holds ``text``."""
        async with asyncio.timeout(START_SECONDS), self._changed:
            while not (found := [line for line in self.log if text in line]):
                await self._changed.wait()
            return found[0]

    async def get(self, path: str, **headers: str) -> str:
        async with self.session.get(self.url + path, headers=headers) as response:
            assert response.status == 200, (path, response.status)
            return await response.text()

    async def samples(self, **headers: str) -> dict[str, float]:
        """The exposition as ``name{labels}`` -> value."""
        lines = (await self.get("/metrics", **headers)).splitlines()
        pairs = (line.rpartition(" ") for line in lines if line and not line.startswith("#"))
        return {series: float(value) for series, _, value in pairs}

    async def until(self, condition: Callable[[dict[str, float]], bool], seconds: float = 60.0) -> dict[str, float]:
        """Scrape until ``condition`` holds of the samples."""
        async with asyncio.timeout(seconds):
            while not condition(samples := await self.samples()):
                await asyncio.sleep(0.05)
        return samples

    async def reloaded(self, said: str) -> dict[str, float]:
        """Send SIGHUP and wait until the log says ``said``; return the samples then."""
        self.log.clear()
        self.process.send_signal(signal.SIGHUP)
        await self.said(said)
        return await self.samples()

    async def stop(self) -> int:
        """SIGTERM; return the exit code."""
        if self.process.returncode is None:
            self.process.terminate()
        try:
            async with asyncio.timeout(10):
                code = await self.process.wait()
        except TimeoutError:
            self.process.kill()
            await self.process.wait()
            raise
        await self._reader
        return code


@contextlib.asynccontextmanager
async def exporter(
    *arguments: str,
    stdin: int | None = None,
    awaited: str = "msg=ready",
    descriptors: str = "",
    program: Sequence[str] = EXPORTER,
    **environment: str,
) -> AsyncIterator[Exporter]:
    """Run the exporter with ``arguments`` from the time its log says ``awaited``. It is stopped in any case.

    ``descriptors``: the most that it may have open. ``program``: what is run.
    """
    process = await asyncio.create_subprocess_exec(
        *(("prlimit", f"--nofile={descriptors}") if descriptors else ()),
        *program,
        "serve",
        "--web.listen-address=127.0.0.1:0",
        *arguments,
        stdin=asyncio.subprocess.DEVNULL if stdin is None else stdin,
        stderr=asyncio.subprocess.PIPE,
        env=environment or None,
    )
    async with aiohttp.ClientSession() as session:
        running = Exporter(process, session, awaited)
        try:
            await running.started()
            yield running
        finally:
            await running.stop()


class Predictor:
    """Serves a body as ``/metrics`` (or whatever ``answer`` does) and a version; counts the requests."""

    def __init__(self) -> None:
        self.body = b""
        self.bodies: list[bytes] = []  # instead: one after the other, the last one for ever
        self.headers = {"Content-Type": "text/plain; version=0.0.4; charset=utf-8"}
        self.status = 200
        self.version: str | None = "0.32.0"
        self.requests = 0
        self.answer: Callable[[web.Request], Awaitable[web.StreamResponse]] | None = None
        self.url = ""

    async def metrics(self, request: web.Request) -> web.StreamResponse:
        self.requests += 1
        if self.answer is not None:
            return await self.answer(request)
        if self.bodies:
            self.body = self.bodies[min(self.requests, len(self.bodies)) - 1]
        return web.Response(body=self.body, headers=self.headers, status=self.status)

    async def say_version(self, _request: web.Request) -> web.Response:
        if self.version is None:
            raise web.HTTPNotFound
        return web.json_response({"version": self.version})


async def answer_nothing(request: web.Request) -> web.StreamResponse:
    assert request.transport is not None
    request.transport.abort()
    return web.Response()


@contextlib.asynccontextmanager
async def listening(
    app: web.Application | web.AppRunner, port: int = 0, tls: ssl.SSLContext | None = None
) -> AsyncIterator[int]:
    """Serve an application on 127.0.0.1; its port, which the kernel chose unless it is given."""
    runner = app if isinstance(app, web.AppRunner) else web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", port, ssl_context=tls).start()
        yield runner.addresses[0][1]
    finally:
        await runner.cleanup()


@contextlib.asynccontextmanager
async def predictor(body: bytes = b"", port: int = 0, tls: ssl.SSLContext | None = None) -> AsyncIterator[Predictor]:
    """Run a real HTTP server that plays the predictor."""
    playing = Predictor()
    playing.body = body
    app = web.Application()
    app.add_routes([web.get("/metrics", playing.metrics), web.get("/version", playing.say_version)])
    async with listening(app, port, tls) as chosen:
        playing.url = f"{'https' if tls else 'http'}://127.0.0.1:{chosen}"
        yield playing
