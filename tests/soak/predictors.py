"""Simulated predictors: captured bytes with moving counters, on real sockets. Half of them go away and come back."""

from __future__ import annotations

import asyncio
import dataclasses
import itertools
from collections import Counter
from typing import Literal, cast

from bench.counting import ONE_ENGINE, count_up

Mood = Literal["well", "refused", "silent", "closed", "cut"]

_DRAFTS = 2675  # of the capture
_START_TIME = b"process_start_time_seconds 1.79521062627e+09"


class Counting:
    """The counters of a group of predictors; :meth:`go_on` moves them, :meth:`restart` begins at the start again."""

    def __init__(self) -> None:
        self._capture = ONE_ENGINE.read_bytes()
        assert _START_TIME in self._capture
        self._processes = itertools.count(1)
        self.restart()

    @property
    def drafts(self) -> int:
        return self._factor * _DRAFTS

    def go_on(self) -> None:
        self._factor += 1
        self.body = count_up(self._capture, self._factor).replace(_START_TIME, self._start_time)

    def restart(self) -> None:
        self._factor = 0
        self._start_time = b"process_start_time_seconds %d" % (1_795_210_626 + 60 * next(self._processes))
        self.go_on()


@dataclasses.dataclass(slots=True)
class Seen:
    """What a predictor sees of the exporter."""

    requests: Counter[str] = dataclasses.field(default_factory=Counter)  # by path
    connections: int = 0  # open now
    most_connections: int = 0
    longest_request: int = 0  # bytes


class Predictor:
    """One server of ``/metrics`` and ``/version``."""

    def __init__(self, counting: Counting) -> None:
        self.counting = counting
        self.mood: Mood = "well"
        self.silent_paths: set[str] = set()
        self.seen = Seen()
        self.transports: set[asyncio.Transport] = set()
        self._server: asyncio.Server | None = None
        self._port = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._port}"

    async def open(self) -> None:
        self.mood = "well"
        if self._server is None:
            loop = asyncio.get_running_loop()
            self._server = await loop.create_server(lambda: _Connection(self), "127.0.0.1", self._port)
            self._port = self._server.sockets[0].getsockname()[1]

    async def suffer(self, mood: Mood) -> None:
        self.mood = mood
        if mood == "refused":
            await self.close()

    async def close(self) -> None:
        if self._server is not None:
            self._server.close()
            for transport in list(self.transports):
                transport.abort()
            await self._server.wait_closed()
            self._server = None


class _Connection(asyncio.Protocol):
    def __init__(self, predictor: Predictor) -> None:
        self._predictor = predictor
        self._request = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._predictor.transports.add(self._transport)
        seen = self._predictor.seen
        seen.connections += 1
        seen.most_connections = max(seen.most_connections, seen.connections)

    def connection_lost(self, _reason: Exception | None) -> None:
        self._predictor.transports.discard(self._transport)
        self._predictor.seen.connections -= 1

    def data_received(self, data: bytes) -> None:
        self._request += data
        if not self._request.endswith(b"\r\n\r\n"):
            return
        path = self._request.split(b" ", 2)[1].decode()
        seen = self._predictor.seen
        seen.requests[path] += 1
        seen.longest_request = max(seen.longest_request, len(self._request))
        self._request = b""
        if self._predictor.mood == "silent" or path in self._predictor.silent_paths:
            return
        if self._predictor.mood == "closed":
            self._transport.close()
            return
        body = b'{"version": "0.32.0"}' if path == "/version" else self._predictor.counting.body
        kind = b"application/json" if path == "/version" else b"text/plain; version=0.0.4; charset=utf-8"
        head = b"HTTP/1.1 200 OK\r\nContent-Type: %s\r\nContent-Length: %d\r\nConnection: close\r\n\r\n"
        self._transport.write(head % (kind, len(body)))
        if self._predictor.mood == "cut":
            self._transport.write(body[: len(body) // 2])
            self._transport.close()
            return
        self._transport.write(body)
        self._transport.close()
