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
from collections import Counter
from collections.abc import AsyncIterator, Callable
from typing import Literal

Change = Callable[[bytes], bytes]


@dataclasses.dataclass(frozen=True, slots=True)
class Fault:
    """``change``: what is sent in place of a body, head and all; ``end``: what follows; ``up``: whether it is sound."""

    name: str
    change: Change
    end: Literal["close", "reset", "wait", "drip"] = "close"
    up: bool = False


def http(body: bytes, *more: str, status: str = "200 OK", length: bool = True) -> bytes:
    """An answer; without ``length`` the body ends with the connection."""
    known = (f"Content-Length: {len(body)}",) if length else ()
    lines = (
        f"HTTP/1.1 {status}",
        "Content-Type: text/plain; version=0.0.4",
        "Connection: close",
        *known,
        *more,
        "\r\n",
    )
    return "\r\n".join(lines).encode() + body


def cut(name: str, before: str, more: int = 0, **told: bool) -> Fault:
    """The body ends where ``before`` begins, or ``more`` bytes later, and nothing tells its length."""
    return Fault(name, lambda body: http(body[: body.index(before.encode()) + more], length=False), **told)  # type: ignore[arg-type]


def wrong(name: str, value: Callable[[float], float]) -> Fault:
    """A sound answer in which vLLM's sample of this name has another value."""
    sample = re.compile(rb"(?m)^(vllm:" + name.encode() + rb"\{.*\} )(.*)$")
    return Fault(
        f"wrong {name}",
        lambda body: http(sample.sub(lambda line: line[1] + repr(value(float(line[2]))).encode(), body)),
        up=True,
    )


def letters_for_digits(body: bytes) -> bytes:
    """A line in three that ends in a digit ends in a letter."""
    chance = random.Random(1)
    ends = re.compile(rb"(?m)^(vllm:.*)\d$")
    return http(ends.sub(lambda line: line[1] + b"x" if chance.random() < 0.3 else line[0], body))


SOUND = Fault("sound", http, up=True)
NO_ANSWER = Fault("connection reset at once", lambda _: b"", "reset")
SLOW = (Fault("no answer in time", lambda _: b"", "wait"), Fault("byte by byte", http, "drip"))
REFUSED = (
    NO_ANSWER,
    Fault("cut in the head", lambda body: http(body)[:30]),
    Fault("no HTTP", lambda body: body),
    Fault("cut in the body", lambda body: http(body)[: -len(body) // 2]),
    Fault("reset in the body", lambda body: http(body)[: -len(body) // 2], "reset"),
    cut("cut in mid-line", "vllm:spec_decode_num_accepted_tokens_total{", 40),
    Fault("cut before the last newline", lambda body: http(body[:-1], length=False)),
    Fault("compressed, unasked", lambda body: http(gzip.compress(body), "Content-Encoding: gzip")),
    Fault("status 503 with a good body", lambda body: http(body, status="503 Service Unavailable")),
    Fault("redirect", lambda _: http(b"", "Location: http://127.0.0.1:9/metrics", status="302 Found")),
    Fault("an empty 200", lambda _: http(b"")),
    Fault("a web page", lambda _: http(b"<!doctype html>\n<title>It works</title>\n")),
    Fault("letters for digits", letters_for_digits),
)
CUTS = (
    cut("cut between two counters", "# HELP vllm:spec_decode_num_accepted_tokens_total", up=True),
    cut("cut before the histograms", "# HELP vllm:time_to_first_token_seconds_bucket", up=True),
    cut("cut before the first counter", "# HELP vllm:", up=True),
)


class Server:
    """Serves ``/metrics``: every request gets ``body`` with this ``fault``. It counts what it is asked, by path."""

    def __init__(self) -> None:
        self.body = b""
        self.fault = NO_ANSWER
        self.version_fault = SOUND
        self.url = ""
        self.requests: Counter[str] = Counter()
        self.connections = 0  # open now
        self.most_connections = 0
        self.longest_request = 0  # bytes

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self.most_connections = max(self.most_connections, self.connections)
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            head = await reader.readuntil(b"\r\n\r\n")
            path = head.split()[1]
            self.requests[path.decode()] += 1
            self.longest_request = max(self.longest_request, len(head))
            fault = self.version_fault if path == b"/version" else self.fault
            data = fault.change(b'{"version": "0.32.0"}' if path == b"/version" else self.body)
            left = asyncio.create_task(reader.read())
            while fault.end == "drip" and data and not left.done():
                writer.write(data[:1])
                data = data[1:]
                await asyncio.wait({left}, timeout=0.01)
            writer.write(data if fault.end != "drip" else b"")
            await writer.drain()
            if fault.end == "wait":
                await left
            elif fault.end == "reset":  # RST instead of an orderly end
                plug = writer.get_extra_info("socket")
                plug.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                writer.transport.abort()
            left.cancel()
        writer.close()
        self.connections -= 1


@contextlib.asynccontextmanager
async def serving() -> AsyncIterator[Server]:
    """Serve on a port that the kernel chooses."""
    serving = Server()
    server = await asyncio.start_server(serving.answer, "127.0.0.1", 0)
    async with server:
        serving.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        yield serving
