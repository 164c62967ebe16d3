"""Connections that send nothing, too little or too slowly, too many of them, and no free descriptor."""

from __future__ import annotations

import asyncio
import contextlib
import resource
import ssl
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from aiohttp import web

from builders import CAPTURES
from certificates import issue
from running import Exporter, exporter, predictor
from specdec_exporter import bounds
from specdec_exporter.web.listening import Connections

BODY = (CAPTURES / "0.32.0-draft_model-k3" / "metrics-8-p90.txt").read_bytes()
UP = 'specdec_up{inference_service="default"}'
REQUEST = b"GET /small HTTP/1.1\r\nHost: h\r\n\r\n"
HALF = b"GET /small HTTP/1.1\r\nHost: h\r\nX-Slow: "
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


# --- the listener in this process ------------------------------------------------------------------------------------


class Listening:
    def __init__(self, port: int, dropped: Counter[str]) -> None:
        self.port = port
        self.dropped = dropped
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
async def listening(tls: ssl.SSLContext | None = None) -> AsyncIterator[Listening]:
    dropped: Counter[str] = Counter()
    connections = Connections(dropped)
    playing = Listening(0, dropped)
    app = web.Application(middlewares=[connections.middleware])
    app.add_routes([web.get(f"/{each.__name__}", each) for each in (playing.small, playing.held, playing.large)])
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    assert runner.server is not None
    try:
        await connections.listen(runner.server, "127.0.0.1", 0, tls)
        ((_, playing.port),) = connections.addresses
        yield playing
    finally:
        connections.close()
        await runner.cleanup()


async def answer(port: int, path: str = "/small", tls: ssl.SSLContext | None = None) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=tls)
    with contextlib.closing(writer):
        writer.write(f"GET {path} HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n".encode())
        return (await reader.read()).rpartition(b"\r\n")[2]


@pytest.mark.parametrize("sent", [b"", HALF, REQUEST + HALF, b"POST /small HTTP/1.1\r\nContent-Length: 9\r\n\r\nab"])
async def test_who_sends_no_whole_request_is_cut_off(monkeypatch: pytest.MonkeyPatch, sent: bytes) -> None:
    monkeypatch.setattr(bounds, "IDLE_SECONDS", 0.2)
    async with listening() as server, opened(server.port, 1, send=sent) as (streams,):
        assert (b"done" in await ended(streams)) == sent.startswith(REQUEST)
        assert server.dropped == {}


async def test_who_does_not_read_the_answer_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounds, "ANSWER_SECONDS", 0.2)
    async with listening() as server, opened(server.port, 1, send=REQUEST.replace(b"small", b"large")) as (streams,):
        async with asyncio.timeout(30):
            while not streams[1].is_closing():  # its buffer fills, so nothing is read until the connection is reset
                await asyncio.sleep(0.02)
                streams[1].write(b"\r\n")
                with contextlib.suppress(ConnectionError):
                    await streams[1].drain()


async def test_beyond_the_bound_the_longest_waiting_makes_room_and_requests_under_way_go_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(bounds, "CONNECTIONS", 3)
    async with listening() as server, opened(server.port, 2) as idle:
        held = asyncio.create_task(answer(server.port, "/held"))
        while server.holding < 1:
            await asyncio.sleep(0)
        assert await answer(server.port) == b"done"  # the fourth
        assert await ended(idle[0]) == b""
        assert server.dropped == {"connections": 1}
        others = [asyncio.create_task(answer(server.port, "/held")) for _ in range(2)]
        while server.holding < 3:
            await asyncio.sleep(0)
        assert await ended(idle[1]) == b""
        late = [asyncio.create_task(answer(server.port)) for _ in range(4)]  # all are being answered, so these wait
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(asyncio.shield(late[0]), 0.1)
        server.release.set()
        assert await asyncio.gather(held, *others, *late) == [b"held"] * 3 + [b"done"] * 4
        assert server.dropped == {"connections": 2}


async def test_a_host_with_many_connections_takes_no_place_of_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounds, "CONNECTIONS", 3)
    async with listening() as server:
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port, local_addr=("127.0.0.2", 0))
        async with opened(server.port, 20) as many:
            for each in many[:18]:
                assert await ended(each) == b""
            writer.write(REQUEST.replace(b"Host", b"Connection: close\r\nHost"))
            assert b"done" in await ended((reader, writer))
        writer.close()


async def test_connections_that_never_agree_upon_tls_make_room_too(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(bounds, "CONNECTIONS", 3)
    issue("server").write(tmp_path, "server")
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(tmp_path / "server.crt", tmp_path / "server.key")
    client = ssl.create_default_context(cafile=tmp_path / "server.crt")
    client.check_hostname = False
    async with listening(tls) as server, opened(server.port, 5) as idle:
        assert await answer(server.port, tls=client) == b"done"
        assert [await ended(each) for each in idle[:3]] == [b""] * 3
        assert server.dropped == {"connections": 3}
        monkeypatch.setattr(bounds, "IDLE_SECONDS", 0.2)
        async with opened(server.port, 1) as (streams,):
            assert await ended(streams) == b""


# --- the whole exporter ----------------------------------------------------------------------------------------------


def port_of(running: Exporter) -> int:
    return int(running.url.rpartition(":")[2])


async def test_a_scrape_is_answered_beside_hundreds_of_idle_and_slow_connections_with_few_descriptors() -> None:
    async with predictor(BODY) as vllm, exporter(f"--predictor.url={vllm.url}", descriptors="100") as running:
        async with opened(port_of(running), 400), opened(port_of(running), 400, send=HALF):
            for _ in range(20):
                assert (await running.samples())[UP] == 1
        assert (await running.samples())[UP] == 1
        complaints = [line for line in running.log if "level=info" not in line]
        assert len(complaints) == 1
        assert 'msg="connections are dropped" reason="more than 50 at once"' in complaints[0]


async def test_without_a_free_descriptor_it_says_so_once_and_goes_on_when_there_is_one() -> None:
    async with predictor(BODY) as vllm, exporter(f"--predictor.url={vllm.url}") as running:
        limits = resource.prlimit(running.process.pid, resource.RLIMIT_NOFILE)
        resource.prlimit(running.process.pid, resource.RLIMIT_NOFILE, (3, limits[1]))
        async with opened(port_of(running), 40) as waiting:
            assert "Too many open files" in await running.said("connections are dropped")
            resource.prlimit(running.process.pid, resource.RLIMIT_NOFILE, limits)
            assert (await running.samples())[UP] == 1
            assert waiting
        assert await running.stop() == 0
        assert len([line for line in running.log if "level=info" not in line]) == 1
