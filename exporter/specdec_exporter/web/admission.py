"""A bound on the requests in work, and on the time that an answer may take to be read."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter

from aiohttp import web
from aiohttp.typedefs import Handler

from specdec_exporter import bounds

LOG = logging.getLogger("specdec")

CONSTANT_TIME = ("/-/healthy", "/-/ready")
_REPORT_SECONDS = 60.0


class Admission:
    """Refuses requests beyond :data:`bounds.REQUESTS`, which ``dropped["requests"]`` counts.

    Health checks cost nothing, so they are always answered.
    """

    def __init__(self, dropped: Counter[str]) -> None:
        self._dropped = dropped
        self._in_work = 0
        self._quiet_until = 0.0

    @web.middleware
    async def middleware(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Answer the request completely, or refuse it."""
        if request.path in CONSTANT_TIME:
            return await handler(request)
        if self._in_work >= bounds.REQUESTS:
            self._refused()
            return web.Response(text="Too many requests at once.\n", status=503)
        self._in_work += 1
        try:
            response = await handler(request)
            await _send(request, response)
        finally:
            self._in_work -= 1
        return response

    def _refused(self) -> None:
        """Count a refusal, and log it once in a while."""
        self._dropped["requests"] += 1
        now = time.monotonic()
        if now >= self._quiet_until:
            self._quiet_until = now + _REPORT_SECONDS
            reason = f"more than {bounds.REQUESTS} at once"
            LOG.warning("requests are refused", extra={"reason": reason, "refused": self._dropped["requests"]})


def limited_runner(app: web.Application, shutdown_seconds: float) -> web.AppRunner:
    """Return what runs ``app`` with aiohttp's limits: on long heads by itself, and on connections that send none."""
    return web.AppRunner(
        app,
        handle_signals=False,
        access_log=None,
        keepalive_timeout=bounds.IDLE_SECONDS,  # also for the first request, and until a head is complete
        shutdown_timeout=shutdown_seconds,
    )


async def _send(request: web.Request, response: web.StreamResponse) -> None:
    """Send the whole answer; cut the connection of a client that does not read it in time."""
    try:
        async with asyncio.timeout(bounds.ANSWER_SECONDS):
            await response.prepare(request)
            await response.write_eof()
    except (TimeoutError, ConnectionError):  # the client does not read, or has gone
        if request.transport is not None:
            request.transport.abort()
