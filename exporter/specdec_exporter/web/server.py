"""The endpoints, with negotiation, compression and deadlines."""

from __future__ import annotations

import asyncio
import gzip
import logging
import math
import zlib
from collections.abc import Iterable, Mapping
from typing import Protocol

import msgspec
from aiohttp import web
from aiohttp.typedefs import Handler
from prometheus_client import Metric
from prometheus_client.exposition import generate_latest as render_text
from prometheus_client.openmetrics.exposition import generate_latest as render_openmetrics
from prometheus_client.registry import Collector

from specdec_exporter import bounds
from specdec_exporter.config import Settings
from specdec_exporter.web.negotiation import ExpositionFormat, accepts_gzip, choose_format
from specdec_exporter.web.page import PAGE, SECURITY_HEADERS

LOG = logging.getLogger("specdec")

# Rendering and the network need this part of the scraper's timeout.
TIMEOUT_OFFSET_SECONDS = 0.5
SHORTEST_TIMEOUT_SECONDS = 0.1
GZIP_FROM_BYTES = 1024
RENDERED_AT_ONCE_BYTES = 64 * 1024  # takes some 10 ms; what is longer is rendered beside the event loop
_PIECE_BYTES = 64 * 1024
_EOF = b"# EOF\n"


class Exporter(Protocol):
    """The part of the exporter that the endpoints use."""

    settings: Settings

    async def refresh(self, timeout_seconds: float) -> None:
        """Fetch everything that is served, within ``timeout_seconds``."""

    async def reload(self) -> str | None:
        """Load the configuration again; return the error, if any."""

    def status(self) -> object:
        """Return the current status, which msgspec can encode."""


class Endpoints:
    """The handlers. The owner sets ``ready`` when the sockets are bound."""

    def __init__(self, exporter: Exporter, registry: Collector) -> None:
        self._exporter = exporter
        self._registry = registry
        # Changing a link is allowed: the Content-Security-Policy hashes only script and style.
        link = f'href="{exporter.settings.web.telemetry_path.removeprefix("/")}"'
        self._page = PAGE.replace(b'href="metrics"', link.encode())
        self._renderings: dict[tuple[ExpositionFormat, bool], asyncio.Task[bytes]] = {}
        self.ready = False

    def routes(self) -> list[web.RouteDef]:
        """Return the routes. GET routes answer HEAD too; other methods get 405."""
        settings = self._exporter.settings.web
        return [
            web.get(settings.telemetry_path, self.metrics),
            web.get("/", self.page),
            web.get("/api/v1/status", self.status),
            web.get("/-/healthy", self.healthy),
            web.get("/-/ready", self.is_ready),
            web.post("/-/reload", self.reload),
        ]

    async def metrics(self, request: web.Request) -> web.StreamResponse:
        """Fetch the predictors within the scraper's timeout, then render their metrics."""
        await self._exporter.refresh(scrape_timeout(request.headers.get("X-Prometheus-Scrape-Timeout-Seconds")))
        if request.transport is None:  # the scraper has left; rendering for it would make the next ones leave too
            return web.Response()
        chosen = choose_format(_joined(request, "Accept"))
        packed = accepts_gzip(_joined(request, "Accept-Encoding"))
        body = await self._rendering(chosen, packed=packed)
        if len(body) <= RENDERED_AT_ONCE_BYTES or request.method == "HEAD":
            return _response(body, chosen.content_type, packed=packed)
        return await _send(request, body, _headers(chosen.content_type, packed=packed))

    async def _rendering(self, chosen: ExpositionFormat, *, packed: bool) -> bytes:
        """Return what stands in the metrics now. Scrapes that get here at once share it, so that eight cost one."""
        key = chosen, packed
        if key not in self._renderings:
            # A task begins after the others that go on in this round of the loop.
            task = self._renderings[key] = asyncio.create_task(_render(self._registry, chosen, packed=packed))
            task.add_done_callback(lambda _: self._renderings.pop(key))
        return await asyncio.shield(self._renderings[key])

    async def status(self, request: web.Request) -> web.Response:
        """Return everything that the page shows, as JSON."""
        await self._exporter.refresh(float("inf"))
        return _answer(request, msgspec.json.encode(self._exporter.status()), "application/json")

    async def page(self, request: web.Request) -> web.Response:
        """Return the status page, which reads its data from the API."""
        response = _answer(request, self._page, "text/html; charset=utf-8")
        response.headers.update(SECURITY_HEADERS)
        return response

    async def healthy(self, _request: web.Request) -> web.Response:
        """Answer without asking a predictor."""
        return web.Response(text="specdec-exporter is healthy.\n")

    async def is_ready(self, _request: web.Request) -> web.Response:
        """Answer 200 when the configuration is loaded and the sockets are bound, without asking a predictor."""
        if self.ready:
            return web.Response(text="specdec-exporter is ready.\n")
        return web.Response(text="specdec-exporter is not ready.\n", status=503)

    async def reload(self, _request: web.Request) -> web.Response:
        """Load the configuration again if ``--web.enable-lifecycle`` allows it."""
        if not self._exporter.settings.web.enable_lifecycle:
            return web.Response(text="Start with --web.enable-lifecycle to allow this.\n", status=403)
        if wrong := await self._exporter.reload():
            return web.Response(text=f"{wrong}\n", status=500)
        return web.Response(text="Configuration loaded.\n")


async def _render(collector: Collector, chosen: ExpositionFormat, *, packed: bool) -> bytes:
    """Render the metrics, a long exposition in a thread. The values are those of its beginning."""
    exposition = _Exposition(collector.collect(), chosen, packed=packed)
    if exposition.render(RENDERED_AT_ONCE_BYTES):
        return bytes(exposition.body)
    return await asyncio.to_thread(exposition.render_rest)


def scrape_timeout(header: str | None) -> float:
    """Return the seconds that a fetch may take; infinity if the scraper's header is missing or invalid."""
    try:
        seconds = float(header or "")
    except ValueError:
        return float("inf")
    if not 0.0 < seconds < float("inf"):
        return float("inf")
    return max(seconds - TIMEOUT_OFFSET_SECONDS, SHORTEST_TIMEOUT_SECONDS)


@web.middleware
async def one_line_errors(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Turn an unexpected exception into status 500 and one line in the log."""
    try:
        return await handler(request)
    except (web.HTTPException, asyncio.CancelledError):
        raise
    except Exception as error:
        LOG.exception("request failed", extra={"path": request.path})
        return web.Response(text=f"Internal error: {type(error).__name__}\n", status=500)


def _joined(request: web.Request, header: str) -> str | None:
    """Return all values of a repeated header as one, joined by commas."""
    values = request.headers.getall(header, [])
    return ", ".join(values) if values else None


def _answer(request: web.Request, body: bytes, content_type: str) -> web.Response:
    packed = len(body) >= GZIP_FROM_BYTES and accepts_gzip(_joined(request, "Accept-Encoding"))
    return _response(gzip.compress(body, compresslevel=4, mtime=0) if packed else body, content_type, packed=packed)


def _response(body: bytes, content_type: str, *, packed: bool) -> web.Response:
    return web.Response(body=body, headers=_headers(content_type, packed=packed))


def _headers(content_type: str, *, packed: bool) -> dict[str, str]:
    headers = {"Content-Type": content_type, "Vary": "Accept, Accept-Encoding", "Cache-Control": "no-store"}
    return {**headers, "Content-Encoding": "gzip"} if packed else headers


async def _send(request: web.Request, body: bytes, headers: Mapping[str, str]) -> web.StreamResponse:
    """Send a long body piece by piece, so that a slow reader has no copy of it, and for a limited time."""
    response = web.StreamResponse(headers={**headers, "Content-Length": str(len(body))})
    try:
        async with asyncio.timeout(bounds.ANSWER_SECONDS):
            await response.prepare(request)
            for start in range(0, len(body), _PIECE_BYTES):
                await response.write(body[start : start + _PIECE_BYTES])
            await response.write_eof()
    except (TimeoutError, ConnectionError):  # whoever asked has gone, or does not read
        if request.transport is not None:
            request.transport.abort()
    return response


class _Exposition:
    """Metrics rendered one after the other, so that not all of them are in memory at once."""

    def __init__(self, metrics: Iterable[Metric], chosen: ExpositionFormat, *, packed: bool) -> None:
        self.body = bytearray()
        self.packed = packed
        self._metrics = iter(metrics)
        self._openmetrics = chosen is ExpositionFormat.OPENMETRICS_1_0_0
        self._render = render_openmetrics if self._openmetrics else render_text
        self._pack = zlib.compressobj(4, wbits=zlib.MAX_WBITS | 16) if packed else None

    def render(self, until_bytes: float = math.inf) -> bool:
        """Render metrics until more than ``until_bytes`` of text; return whether these were all."""
        rendered = 0
        for metric in self._metrics:
            text = self._render(_One(metric)).removesuffix(_EOF)
            self._add(text)
            rendered += len(text)
            if rendered > until_bytes:
                return False
        if self._openmetrics:
            self._add(_EOF)
        if self._pack is not None:
            self.body += self._pack.flush()
        return True

    def render_rest(self) -> bytes:
        """Render all that is left; return the whole body."""
        self.render()
        return bytes(self.body)

    def _add(self, text: bytes) -> None:
        self.body += self._pack.compress(text) if self._pack is not None else text


class _One(Collector):
    """A single metric, as prometheus_client renders it."""

    def __init__(self, metric: Metric) -> None:
        self._metric = metric

    def collect(self) -> Iterable[Metric]:
        return (self._metric,)
