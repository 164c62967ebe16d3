"""The endpoints, with negotiation, compression and deadlines."""

from __future__ import annotations

import asyncio
import gzip
import logging
from typing import NamedTuple, Protocol

import msgspec
from aiohttp import web
from aiohttp.typedefs import Handler
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import generate_latest as render_text
from prometheus_client.openmetrics.exposition import generate_latest as render_openmetrics

from specdec_exporter.config import Settings
from specdec_exporter.web.negotiation import ExpositionFormat, accepts_gzip, choose_format
from specdec_exporter.web.page import PAGE, SECURITY_HEADERS

LOG = logging.getLogger("specdec")

# Rendering and the network need this part of the scraper's timeout.
TIMEOUT_OFFSET_SECONDS = 0.5
SHORTEST_TIMEOUT_SECONDS = 0.1
GZIP_FROM_BYTES = 1024


class Exporter(Protocol):
    """The part of the exporter that the endpoints use."""

    settings: Settings

    async def refresh(self, timeout_seconds: float) -> None:
        """Fetch everything that is served, within ``timeout_seconds``."""

    async def reload(self) -> str | None:
        """Load the configuration again; return the error, if any."""

    def status(self) -> object:
        """Return the current status, which msgspec can encode."""


class _Body(NamedTuple):
    """The bytes of an answer, with the headers that say how they are packed."""

    data: bytes
    headers: dict[str, str]


class Endpoints:
    """The handlers. The owner sets ``ready`` when the sockets are bound."""

    def __init__(self, exporter: Exporter, registry: CollectorRegistry) -> None:
        self._exporter = exporter
        self._registry = registry
        # Changing a link is allowed: the Content-Security-Policy hashes only script and style.
        link = f'href="{exporter.settings.web.telemetry_path.removeprefix("/")}"'
        self._page = PAGE.replace(b'href="metrics"', link.encode())
        self._renderings: dict[tuple[ExpositionFormat, bool], asyncio.Future[_Body]] = {}
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

    async def metrics(self, request: web.Request) -> web.Response:
        """Fetch the predictors within the scraper's timeout, then render their metrics."""
        await self._exporter.refresh(scrape_timeout(request.headers.get("X-Prometheus-Scrape-Timeout-Seconds")))
        if request.transport is None:  # the scraper has left; rendering for it would make the next ones leave too
            return web.Response()
        chosen = choose_format(_joined(request, "Accept"))
        return _response(await self._rendering(chosen, gzipped=_wants_gzip(request)), chosen.content_type)

    async def _rendering(self, chosen: ExpositionFormat, *, gzipped: bool) -> _Body:
        """Return what stands in the metrics now. Scrapes that get here at once share it, so that eight cost one."""
        key = chosen, gzipped
        if key not in self._renderings:
            loop = asyncio.get_running_loop()
            self._renderings[key] = loop.create_future()
            loop.call_soon(self._render, chosen, gzipped)  # not before the others that go on in this round of the loop
        return await asyncio.shield(self._renderings[key])

    def _render(self, chosen: ExpositionFormat, gzipped: bool) -> None:
        rendering = self._renderings.pop((chosen, gzipped))
        render = render_openmetrics if chosen is ExpositionFormat.OPENMETRICS_1_0_0 else render_text
        try:
            rendering.set_result(_packed(render(self._registry), gzipped=gzipped))
        except Exception as error:  # noqa: BLE001  it is raised in those that wait
            rendering.set_exception(error)

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


def _wants_gzip(request: web.Request) -> bool:
    return accepts_gzip(_joined(request, "Accept-Encoding"))


def _packed(body: bytes, *, gzipped: bool) -> _Body:
    """Compress what is worth it."""
    if gzipped and len(body) >= GZIP_FROM_BYTES:
        return _Body(gzip.compress(body, compresslevel=4, mtime=0), {"Content-Encoding": "gzip"})
    return _Body(body, {})


def _response(body: _Body, content_type: str) -> web.Response:
    headers = {"Content-Type": content_type, "Vary": "Accept, Accept-Encoding", "Cache-Control": "no-store"}
    return web.Response(body=body.data, headers=headers | body.headers)


def _answer(request: web.Request, body: bytes, content_type: str) -> web.Response:
    return _response(_packed(body, gzipped=_wants_gzip(request)), content_type)
