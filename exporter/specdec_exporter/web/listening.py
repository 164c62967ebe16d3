"""Listening: a bounded number of connections, and none that holds its place without sending a request.

asyncio's own server takes in every connection, and without a free descriptor it logs each try, with a traceback. Here
accepting is ours, and requests stay aiohttp's.
"""

from __future__ import annotations

import asyncio
import logging
import resource
import socket
import ssl
import time
from collections import Counter
from typing import cast

from aiohttp import web
from aiohttp.typedefs import Handler

from specdec_exporter import bounds

LOG = logging.getLogger("specdec")

_BACKLOG = 128
_GRACE_SECONDS = 0.1  # a connection's first request may have come already and not been read yet
_PAUSE_SECONDS = 1.0  # after an accept without a free descriptor
_REPORT_SECONDS = 60.0


class Connection(web.RequestHandler):
    """One connection from ``host``. It tells ``owner`` when it waits for a request again, and when it is gone."""

    __slots__ = ("_open_transport", "_owner", "host")

    def __init__(self, server: web.Server, owner: Connections, host: str) -> None:
        super().__init__(
            server,
            loop=asyncio.get_running_loop(),
            keepalive_timeout=bounds.IDLE_SECONDS,  # also for the first request, and until a head is complete
            access_log=None,  # type: ignore[arg-type]  # aiohttp takes None, and its own server gets it
        )
        self.host = host
        self._owner = owner
        self._open_transport: asyncio.WriteTransport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Wait for a request."""
        self._open_transport = cast("asyncio.WriteTransport", transport)  # it is a socket's
        super().connection_made(transport)

    def cut(self) -> None:
        """Close at once. aiohttp's own way of closing first waits until the other side has read everything."""
        if self._open_transport is not None:
            self._open_transport.abort()

    async def finish_response(
        self, request: web.BaseRequest, resp: web.StreamResponse, start_time: float | None
    ) -> tuple[web.StreamResponse, bool]:
        """Send the response; cut the connection if the other side does not read it in time."""
        try:
            async with asyncio.timeout(bounds.ANSWER_SECONDS):
                return await super().finish_response(request, resp, start_time)
        except TimeoutError:
            self.cut()
            raise ConnectionResetError("the answer was not read") from None
        finally:
            self._owner.waits(self)

    def connection_lost(self, exc: BaseException | None) -> None:
        """Give up the place."""
        self._owner.gone(self)
        super().connection_lost(exc)


class Connections:
    """The connections of all listeners: at most :data:`bounds.CONNECTIONS`, and half of the process's descriptors.

    A new one beyond that takes the place of one that waits for a request: of the host with most of them, the one that
    has waited longest, which ``dropped["connections"]`` counts. So a host that opens many takes no place of others. If
    all are being answered or have only just come, new ones wait in the kernel.
    """

    def __init__(self, dropped: Counter[str]) -> None:
        self._dropped = dropped
        descriptors, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        unlimited = descriptors == resource.RLIM_INFINITY
        self._limit = bounds.CONNECTIONS if unlimited else min(bounds.CONNECTIONS, descriptors // 2)
        self._waiting: dict[Connection, float] = {}  # for a request, since when; the longest first
        self._answering: set[Connection] = set()
        self._openings: dict[Connection, asyncio.Task[None]] = {}  # until TLS is agreed upon
        self._sockets: list[socket.socket] = []
        self._held: list[tuple[socket.socket, web.Server, ssl.SSLContext | None]] = []  # until one is answered
        self._quiet_until = 0.0

    @web.middleware
    async def middleware(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Note that this connection's request is being answered."""
        if (connection := request.protocol) in self._waiting:
            del self._waiting[connection]
            self._answering.add(connection)
        return await handler(request)

    def waits(self, connection: Connection) -> None:
        """Note that this connection has been answered."""
        if connection in self._answering:
            self._answering.discard(connection)
            self._waiting[connection] = time.monotonic()
            self._look_at_held()

    def gone(self, connection: Connection) -> None:
        """Forget this connection."""
        self._waiting.pop(connection, None)
        self._answering.discard(connection)
        self._look_at_held()

    @property
    def addresses(self) -> list[tuple[str, int]]:
        """Host and port of each listener."""
        return [each.getsockname()[:2] for each in self._sockets]

    async def listen(self, server: web.Server, host: str | None, port: int, tls: ssl.SSLContext | None) -> None:
        """Listen on every address of ``host``. Raises :class:`OSError`."""
        loop = asyncio.get_running_loop()
        # asyncio resolves and binds, but does not serve.
        bound = await loop.create_server(asyncio.Protocol, host, port, start_serving=False)
        sockets = [each.dup() for each in bound.sockets]
        bound.close()
        self._sockets += sockets
        for each in sockets:
            each.setblocking(False)
            each.listen(_BACKLOG)
            loop.add_reader(each, self._accept, each, server, tls)

    def close(self) -> None:
        """Take in no more connections, and give up those without TLS yet."""
        for each in self._sockets:
            asyncio.get_running_loop().remove_reader(each)
            each.close()
        self._sockets.clear()
        for opening in self._openings.values():
            opening.cancel()

    def _accept(self, listener: socket.socket, server: web.Server, tls: ssl.SSLContext | None) -> None:
        """Take in one connection; the event loop asks again if there are more."""
        loop = asyncio.get_running_loop()
        full = len(self._waiting) + len(self._answering) >= self._limit
        if full and self._longest_waiting() is None:
            loop.remove_reader(listener)
            self._held.append((listener, server, tls))
            if self._waiting:
                loop.call_later(_GRACE_SECONDS, self._look_at_held)
            return
        try:
            accepted, address = listener.accept()
        except (BlockingIOError, InterruptedError, ConnectionAbortedError):
            return
        except OSError as error:
            # The listener stays readable, so look away for a while; the kernel keeps some connections waiting.
            loop.remove_reader(listener)
            loop.call_later(_PAUSE_SECONDS, self._look_again, listener, server, tls)
            self._drop(self._longest_waiting())
            self._report(error.strerror or str(error))
            return
        if full:
            self._drop(self._longest_waiting())
            self._report(f"more than {self._limit} at once")
        accepted.setblocking(False)
        connection = Connection(server, self, address[0])
        self._waiting[connection] = time.monotonic()
        self._openings[connection] = loop.create_task(self._open(connection, accepted, tls))

    async def _open(self, connection: Connection, accepted: socket.socket, tls: ssl.SSLContext | None) -> None:
        loop = asyncio.get_running_loop()
        timeout = bounds.IDLE_SECONDS if tls else None
        try:
            await loop.connect_accepted_socket(lambda: connection, accepted, ssl=tls, ssl_handshake_timeout=timeout)
        except (OSError, ssl.SSLError):  # the other side left, or has no certificate that we demand
            self.gone(connection)
        except BaseException:
            self.gone(connection)
            raise
        finally:
            del self._openings[connection]

    def _look_again(self, listener: socket.socket, server: web.Server, tls: ssl.SSLContext | None) -> None:
        if listener in self._sockets:
            asyncio.get_running_loop().add_reader(listener, self._accept, listener, server, tls)

    def _look_at_held(self) -> None:
        held, self._held = self._held, []
        for each in held:
            self._look_again(*each)

    def _longest_waiting(self) -> Connection | None:
        """Return the connection to make room; ``None`` if none has waited long enough."""
        waiting = Counter(each.host for each in self._waiting)
        most = max(waiting.values(), default=0)
        longest = next((each for each in self._waiting if waiting[each.host] == most), None)
        if longest is None or time.monotonic() - self._waiting[longest] < _GRACE_SECONDS:
            return None
        return longest

    def _drop(self, unlucky: Connection | None) -> None:
        """Close a connection at once, and count it."""
        if unlucky is None:
            return
        self._dropped["connections"] += 1
        self.gone(unlucky)
        if opening := self._openings.get(unlucky):
            opening.cancel()
        else:
            unlucky.cut()

    def _report(self, reason: str) -> None:
        """Log that connections are dropped, once in a while."""
        now = time.monotonic()
        if now >= self._quiet_until:
            self._quiet_until = now + _REPORT_SECONDS
            LOG.warning("connections are dropped", extra={"reason": reason, "dropped": self._dropped["connections"]})
