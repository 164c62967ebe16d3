"""What scrapers and others send to the exporter: credentials, raw bytes on its port."""

from __future__ import annotations

import asyncio
import base64
import functools
import re

from fuzz.target import KIB, Target
from specdec_exporter.config import PredictorSettings, Settings, WebSettings
from specdec_exporter.serving import serve
from specdec_exporter.serving.runtime import ExporterRuntime
from specdec_exporter.web.basicauth import _credentials


def check_credentials(content: bytes) -> None:
    header = content.decode("latin-1")
    if (found := _credentials(header)) is not None:
        user, password = found
        assert ":" not in user
        assert _credentials("Basic " + base64.b64encode(user.encode() + b":" + password).decode()) == found


class Serving:
    """The exporter's own endpoints on a port, in this process, beside nobody."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        nobody = PredictorSettings(url="http://127.0.0.1:9")
        settings = Settings(web=WebSettings(listen_addresses=("127.0.0.1:0",)), predictors=(nobody,))
        self.loop.run_until_complete(self._start(ExporterRuntime(settings, lambda: settings)))

    async def _start(self, runtime: ExporterRuntime) -> None:
        await runtime.start()
        site = serve._site(runtime)
        self.endpoints = site.endpoints
        self.runner = await serve._bind(site, runtime.settings.web.listen_addresses)
        self.port = self.runner.addresses[0][1]

    async def ask(self, request: bytes) -> tuple[bytes, bytes]:
        """Send bytes, then a sound request by another connection; hang up. Return both answers."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        answer = asyncio.create_task(reader.read())
        writer.write(request)
        other_reader, other = await asyncio.open_connection("127.0.0.1", self.port)
        other.write(b"GET /-/healthy HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
        healthy = await asyncio.wait_for(other_reader.read(), 20)
        other.close()
        writer.close()
        try:
            return await asyncio.wait_for(answer, 20), healthy
        except OSError:  # it hung up first
            return b"", healthy


@functools.cache
def serving() -> Serving:
    return Serving()


STATUS = re.compile(rb"HTTP/\d\.\d (\d{3}) ")
# aiohttp itself fails to word its answer to an Expect header that is not UTF-8.
OUTSIDE_US = re.compile(rb"(?i)\nexpect:[^\n]*[\x80-\xff]")


def check_request(request: bytes) -> None:
    server = serving()
    answer, healthy = server.loop.run_until_complete(server.ask(request))
    assert healthy.startswith(b"HTTP/1.1 200"), healthy
    assert not answer or STATUS.match(answer), answer[:80]
    assert b" 500 " not in answer[:14] or OUTSIDE_US.search(request), answer
    assert b"Traceback" not in answer


def requests() -> list[bytes]:
    return [
        b"GET /metrics HTTP/1.1\r\nHost: a\r\nAccept: text/*;version=1.0.0\r\nAccept-Encoding: gzip\r\n\r\n",
        b"GET /metrics HTTP/1.1\r\nX-Prometheus-Scrape-Timeout-Seconds: 10\r\nConnection: close\r\n\r\n",
        b"GET /-/healthy HTTP/1.1\r\nHost: a\r\n\r\nGET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n",
        b"POST /-/reload HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\nConnection: close\r\n\r\nabc",
        b"POST /-/reload HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n",
        b"HEAD /api/v1/status?x=%00 HTTP/1.0\r\nAuthorization: Basic YTpi\r\n\r\n",
        b"OPTIONS * HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n",
    ]


TARGETS = (
    Target("Authorization", check_credentials, lambda: [b"Basic YTpi", b"basic Og==", b"Bearer x"], largest=8 * KIB),
    Target(
        "HTTP request",
        check_request,
        requests,
        (
            *(
                b"GET ",
                b"POST ",
                b" HTTP/1.1\r\n",
                b"\r\n\r\n",
                b"Host: ",
                b"Content-Length: ",
                b"Transfer-Encoding: chunked\r\n",
            ),
            *(
                b"Accept: ",
                b"Accept-Encoding: gzip\r\n",
                b"/metrics",
                b"/api/v1/status",
                b"/-/ready",
                b"Connection: ",
                b"http://",
            ),
        ),
        largest=64 * KIB,
    ),
)
