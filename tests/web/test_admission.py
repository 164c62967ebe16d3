"""Clients that send nothing, too little or too slowly, do not read, or are too many at once."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncIterator

import pytest
from aiohttp import web

from specdec_exporter import bounds
from specdec_exporter.web.admission import Admission, limited_runner
from support.builders import CAPTURES
from support.running import exporter, listening, predictor

BODY = (CAPTURES / "0.32.0-draft_model-k3" / "metrics-8-p90.txt").read_bytes()
REQUEST = b"GET /small HTTP/1.1\r\nHost: h\r\n\r\n"
HALF = b"GET /metrics HTTP/1.1\r\nHost: h\r\nX-Slow: "
BUSY_CLIENTS = 200
Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


@contextlib.asynccontextmanager
async def opened(port: int, count: int, *, send: bytes = b"") -> AsyncIterator[list[Streams]]:
    """Connections to ``port`` that have sent no more than ``send``."""
    made: list[Streams] = []
    try:
        for _ in range(count):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(send)
            made.append((reader, writer))
        yield made
    finally:
        for _, writer in made:
            writer.close()


async def ended(streams: Streams) -> bytes:
    """Whatever still comes until the server closes the connection."""
    async with asyncio.timeout(30):
        with contextlib.suppress(ConnectionError):
            return await streams[0].read()
    return b""


class Serving:
    def __init__(self) -> None:
        self.port = 0
        self.dropped: Counter[str] = Counter()
        self.holding = 0
        self.release = asyncio.Event()

    async def small(self, _request: web.Request) -> web.Response:
        return web.Response(text="done")

    async def held(self, _request: web.Request) -> web.Response:
        self.holding += 1
        await self.release.wait()
        return web.Response(text="held")

    async def large(self, _request: web.Request) -> web.Response:
        return web.Response(body=bytes(64 * 1024 * 1024))  # more than the kernel buffers


@contextlib.asynccontextmanager
async def serving() -> AsyncIterator[Serving]:
    playing = Serving()
    app = web.Application(middlewares=[Admission(playing.dropped).middleware])
    app.add_routes([web.get(f"/{each.__name__}", each) for each in (playing.small, playing.held, playing.large)])
    app.add_routes([web.get("/-/healthy", playing.small)])
    async with listening(limited_runner(app, 0.1)) as playing.port:
        yield playing


async def answer(port: int, path: str = "/small") -> tuple[str, bytes]:
    """Status and body."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    with contextlib.closing(writer):
        writer.write(f"GET {path} HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n".encode())
        head, _, body = (await reader.read()).partition(b"\r\n\r\n")
        return head.split()[1].decode(), body


async def test_beyond_the_bound_requests_are_refused_but_not_health_checks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounds, "REQUESTS", 2)
    async with serving() as server:
        held = [asyncio.create_task(answer(server.port, "/held")) for _ in range(2)]
        while server.holding < 2:
            await asyncio.sleep(0)
        assert (await answer(server.port))[0] == "503"
        assert await answer(server.port, "/-/healthy") == ("200", b"done")
        assert server.dropped == {"requests": 1}
        server.release.set()
        assert await asyncio.gather(*held) == [("200", b"held")] * 2
        assert await answer(server.port) == ("200", b"done")


@pytest.mark.parametrize("sent", [b"", HALF, REQUEST + HALF, b"POST /small HTTP/1.1\r\nContent-Length: 9\r\n\r\nab"])
async def test_who_sends_no_whole_request_is_cut_off(monkeypatch: pytest.MonkeyPatch, sent: bytes) -> None:
    monkeypatch.setattr(bounds, "IDLE_SECONDS", 0.2)
    async with serving() as server, opened(server.port, 1, send=sent) as (streams,):
        assert (b"done" in await ended(streams)) == sent.startswith(REQUEST)


async def test_a_huge_head_is_refused() -> None:
    async with serving() as server:
        head = REQUEST[:-2] + b"X-Long: " + b"x" * 20_000 + b"\r\n\r\n"
        async with opened(server.port, 1, send=head) as (streams,):
            assert (await ended(streams)).startswith(b"HTTP/1.0 400")


async def test_who_does_not_read_the_answer_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounds, "ANSWER_SECONDS", 0.2)
    monkeypatch.setattr(bounds, "REQUESTS", 1)
    async with serving() as server, opened(server.port, 1, send=REQUEST.replace(b"small", b"large")) as (streams,):
        async with asyncio.timeout(30):
            while not streams[1].is_closing():  # its buffer fills, so nothing is read until the connection is reset
                await asyncio.sleep(0.02)
                streams[1].write(b"\r\n")
                with contextlib.suppress(ConnectionError):
                    await streams[1].drain()
        assert await answer(server.port) == ("200", b"done")  # its place is free


# --- the whole exporter ----------------------------------------------------------------------------------------------


async def test_scrapes_and_health_checks_are_answered_beside_many_busy_connections() -> None:
    """Slow clients hold no place. Beyond the bound on requests only health checks are promised."""
    async with predictor(BODY) as vllm, exporter(f"--predictor.url={vllm.url}") as running, asyncio.timeout(60):
        port = int(running.url.rpartition(":")[2])
        scrape = b"GET /metrics HTTP/1.1\r\nHost: h\r\n\r\n"
        async with opened(port, BUSY_CLIENTS, send=HALF):
            assert (await answer(port, "/metrics"))[0] == "200"
            async with opened(port, BUSY_CLIENTS, send=scrape * 5):  # as fast as they are answered
                assert (await answer(port, "/-/healthy"))[0] == "200"
        while (await answer(port, "/metrics"))[0] != "200":  # until those who have left are forgotten
            await asyncio.sleep(0.05)
