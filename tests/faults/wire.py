"""A server of raw sockets that answers as it is told, soundly or not."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import gzip
import random
import re
import socket
import struct
from collections.abc import AsyncIterator, Awaitable, Callable


class Wire:
    """The connection of one answer."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer

    def send(self, data: bytes) -> None:
        self._writer.write(data)

    def head(self, length: int | None, *more: str, status: str = "200 OK") -> None:
        """Send the head; without ``length`` the body ends with the connection."""
        known = () if length is None else (f"Content-Length: {length}",)
        lines = (f"HTTP/1.1 {status}", "Content-Type: text/plain; version=0.0.4", "Connection: close", *known, *more)
        self.send(("\r\n".join(lines) + "\r\n\r\n").encode())

    async def left(self) -> None:
        """Wait until the other side has gone."""
        with contextlib.suppress(ConnectionError):
            await self._reader.read()

    async def reset(self) -> None:
        """Send what was written, then RST instead of an orderly end."""
        await self._writer.drain()
        plug = self._writer.get_extra_info("socket")
        plug.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._writer.transport.abort()


async def whole(wire: Wire, body: bytes) -> None:
    wire.head(len(body))
    wire.send(body)


@dataclasses.dataclass(frozen=True, slots=True)
class Fault:
    """``send``: how an answer goes over the wire; ``change``: what it says instead; ``up``: whether it is sound."""

    name: str
    send: Callable[[Wire, bytes], Awaitable[None]] = whole
    change: Callable[[bytes], bytes] = lambda body: body
    up: bool = False


async def drip(wire: Wire, body: bytes) -> None:
    """A byte at a time, until the other side has had enough."""
    wire.head(len(body))
    left = asyncio.create_task(wire.left())
    for byte in body:
        wire.send(bytes([byte]))
        if (await asyncio.wait({left}, timeout=0.01))[0]:
            return


async def never(wire: Wire, _body: bytes) -> None:
    await wire.left()


async def nothing(wire: Wire, _body: bytes) -> None:
    await wire.reset()


async def half_a_head(wire: Wire, _body: bytes) -> None:
    wire.send(b"HTTP/1.1 200 OK\r\nContent-Ty")


async def no_http(wire: Wire, body: bytes) -> None:
    wire.send(body)


async def half(wire: Wire, body: bytes) -> None:
    wire.head(len(body))
    wire.send(body[: len(body) // 2])


async def half_then_reset(wire: Wire, body: bytes) -> None:
    await half(wire, body)
    await wire.reset()


async def no_length(wire: Wire, body: bytes) -> None:
    wire.head(None)
    wire.send(body)


async def in_gzip(wire: Wire, body: bytes) -> None:
    packed = gzip.compress(body[:1000]) + gzip.compress(body[1000:])
    wire.head(len(packed), "Content-Encoding: gzip")
    wire.send(packed)


async def in_mid_gzip(wire: Wire, body: bytes) -> None:
    packed = gzip.compress(body)
    wire.head(None, "Content-Encoding: gzip")
    wire.send(packed[: len(packed) // 2])


async def damaged_gzip(wire: Wire, body: bytes) -> None:
    packed = bytearray(gzip.compress(body))
    packed[len(packed) // 2] ^= 0xFF
    wire.head(len(packed), "Content-Encoding: gzip")
    wire.send(bytes(packed))


async def server_error(wire: Wire, body: bytes) -> None:
    wire.head(len(body), status="503 Service Unavailable")
    wire.send(body)


async def redirected(wire: Wire, _body: bytes) -> None:
    wire.head(0, "Location: http://127.0.0.1:9/metrics", status="302 Found")


def cut(before: bytes, more: int = 0) -> Callable[[bytes], bytes]:
    """End the answer where ``before`` begins, or ``more`` bytes later."""
    return lambda body: body[: body.index(before) + more]


def value(name: str, change: Callable[[float], float]) -> Callable[[bytes], bytes]:
    """Change the values of vLLM's sample of this name."""
    sample = re.compile(rb"(?m)^(vllm:" + name.encode() + rb"\{.*\} )(.*)$")
    return lambda body: sample.sub(lambda line: line[1] + repr(change(float(line[2]))).encode(), body)


def letters_for_digits(body: bytes) -> bytes:
    """A line in three that ends in a digit ends in a letter."""
    chance = random.Random(1)
    ends = re.compile(rb"(?m)^(vllm:.*)\d$")
    return ends.sub(lambda line: line[1] + b"x" if chance.random() < 0.3 else line[0], body)


NO_ANSWER = Fault("connection reset at once", nothing)
SLOW = (Fault("no answer in time", never), Fault("byte by byte", drip))
REFUSED = (
    NO_ANSWER,
    Fault("cut in the head", half_a_head),
    Fault("no HTTP", no_http),
    Fault("cut in the body", half),
    Fault("reset in the body", half_then_reset),
    Fault("cut in mid-line, no length", no_length, cut(b"vllm:spec_decode_num_accepted_tokens_total{", 40)),
    Fault("cut before the last newline, no length", no_length, lambda body: body[:-1]),
    Fault("cut in mid-gzip, no length", in_mid_gzip),
    Fault("damaged gzip", damaged_gzip),
    Fault("status 503 with a good body", server_error),
    Fault("redirect to another port", redirected),
    Fault("an empty 200", change=lambda _: b""),
    Fault("a web page", change=lambda _: b"<!doctype html>\n<title>It works</title>\n"),
    Fault("letters for digits", change=letters_for_digits),
)
IN_GZIP = Fault("gzip of several members", in_gzip, up=True)
CUTS = (
    Fault("cut between two counters", no_length, cut(b"# HELP vllm:spec_decode_num_accepted_tokens_total"), up=True),
    Fault("cut before the histograms", no_length, cut(b"# HELP vllm:time_to_first_token_seconds_bucket"), up=True),
    Fault("cut before the first counter", no_length, cut(b"# HELP vllm:"), up=True),
)


def spoilt(name: str, change: Callable[[float], float]) -> Fault:
    """A sound answer in which one figure is wrong."""
    return Fault(f"wrong {name}", change=value(name, change), up=True)


class Server:
    """Serves ``/metrics``: every request gets ``body`` in the way of ``fault``."""

    def __init__(self) -> None:
        self.body = b""
        self.fault = NO_ANSWER
        self.url = ""

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        wire = Wire(reader, writer)
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            path = (await reader.readuntil(b"\r\n\r\n")).split()[1]
            if path == b"/version":
                await whole(wire, b'{"version": "0.32.0"}')
            else:
                await self.fault.send(wire, self.fault.change(self.body))
            await writer.drain()
        writer.close()


@contextlib.asynccontextmanager
async def serving() -> AsyncIterator[Server]:
    """Serve on a port that the kernel chooses."""
    serving = Server()
    server = await asyncio.start_server(serving.answer, "127.0.0.1", 0)
    async with server:
        serving.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        yield serving
