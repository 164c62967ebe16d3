"""The endpoints: what each of them answers, and within which time."""

from __future__ import annotations

import asyncio
import gzip
import logging
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Protocol

import msgspec
from aiohttp import web
from aiohttp.typedefs import Handler
from prometheus_client import Metric
from prometheus_client.exposition import choose_encoder, gzip_accepted
from prometheus_client.registry import Collector

from specdec_exporter.config import Settings
from specdec_exporter.web.page import PAGE, SECURITY_HEADERS

LOG = logging.getLogger("specdec")

# Rendering and the network need this part of the scraper's timeout.
TIMEOUT_OFFSET_SECONDS = 0.5
SHORTEST_TIMEOUT_SECONDS = 0.1
_NO_STORE = {"Vary": "Accept, Accept-Encoding", "Cache-Control": "no-store"}


class Exporter(Protocol):
    """The part of the exporter that the endpoints use."""

    settings: Settings

    async def refresh(self, timeout_seconds: float) -> Any:
        """Fetch everything that is served, within ``timeout_seconds``; return what was fetched."""

    async def look(self) -> None:
        """Begin to fetch what is not fresh, and wait for it a moment at most."""

    async def reload(self) -> str | None:
        """Load the configuration again; return the error, if any."""

    def status(self) -> object:
        """Return the current status, which msgspec can encode."""


class Endpoints:
    """The handlers. ``collect`` gives the metrics of what ``exporter`` fetched.

    The owner sets ``ready`` when the sockets are bound.
    """

    def __init__(self, exporter: Exporter, collect: Callable[[Any], Iterable[Metric]]) -> None:
        self._exporter = exporter
        self._collect = collect
        # Changing a link is allowed: the Content-Security-Policy hashes only script and style.
        link = f'href="{exporter.settings.web.telemetry_path.removeprefix("/")}"'
        self._page = PAGE.replace(b'href="metrics"', link.encode())
        self._renderings: dict[tuple[str, bool], asyncio.Future[bytes]] = {}
        self._renderer = ThreadPoolExecutor(max_workers=1, thread_name_prefix="render")
        self.ready = False

    def routes(self) -> list[web.RouteDef]:
        """Return the routes. GET routes answer HEAD too; other methods get 405."""
        return [
            web.get(self._exporter.settings.web.telemetry_path, self.metrics),
            web.get("/", self.page),
            web.get("/api/v1/status", self.status),
            web.get("/-/healthy", self.healthy),
            web.get("/-/ready", self.is_ready),
            web.post("/-/reload", self.reload),
        ]

    async def metrics(self, request: web.Request) -> web.Response:
        """Fetch the predictors within the scraper's timeout, then render their metrics."""
        seconds = scrape_timeout(request.headers.get("X-Prometheus-Scrape-Timeout-Seconds"))
        fetched = await self._exporter.refresh(seconds)
        if request.transport is None:  # the scraper has left; rendering for it would make the next ones leave too
            return web.Response()
        encode, content_type = _encoder(request)
        packed = _takes_gzip(request)
        # Scrapes that get here at once share a rendering, so that eight cost one.
        key = content_type, packed
        if key not in self._renderings:
            # The states are looked at here and now; the thread writes down what they were.
            taken = _Taken(self._collect(fetched))
            rendering = asyncio.get_running_loop().run_in_executor(self._renderer, _render, encode, taken, packed)
            self._renderings[key] = rendering
            rendering.add_done_callback(lambda _: self._renderings.pop(key))
        body = await asyncio.shield(self._renderings[key])
        headers = {"Content-Type": content_type, **_NO_STORE}
        return web.Response(body=body, headers={**headers, "Content-Encoding": "gzip"} if packed else headers)

    async def status(self, request: web.Request) -> web.Response:
        """Return everything that the page shows, as JSON. A predictor that hangs delays nobody."""
        await self._exporter.look()
        return _answer(request, msgspec.json.encode(self._exporter.status()), {"Content-Type": "application/json"})

    async def page(self, request: web.Request) -> web.Response:
        """Return the status page, which reads its data from the API."""
        return _answer(request, self._page, {"Content-Type": "text/html; charset=utf-8", **SECURITY_HEADERS})

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
    except (web.HTTPException, asyncio.CancelledError, ConnectionError):
        raise
    except Exception as error:
        LOG.exception("request failed", extra={"path": request.path})
        return web.Response(text=f"Internal error: {type(error).__name__}\n", status=500)


class _Taken(Collector):
    """Metrics that were collected before."""

    def __init__(self, metrics: Iterable[Metric]) -> None:
        self._metrics = metrics

    def collect(self) -> Iterable[Metric]:
        return self._metrics


def _encoder(request: web.Request) -> tuple[Callable[[Collector], bytes], str]:
    """Return prometheus_client's choice; the text format for a version that is none."""
    try:
        return choose_encoder(",".join(request.headers.getall("Accept", [])))
    except (TypeError, ValueError):
        return choose_encoder("")


def _takes_gzip(request: web.Request) -> bool:
    return gzip_accepted(",".join(request.headers.getall("Accept-Encoding", [])))


def _render(encode: Callable[[Collector], bytes], taken: Collector, packed: bool) -> bytes:
    body = encode(taken)
    return gzip.compress(body, compresslevel=4, mtime=0) if packed else body


def _answer(request: web.Request, body: bytes, headers: dict[str, str]) -> web.Response:
    response = web.Response(body=body, headers={**headers, **_NO_STORE})
    if _takes_gzip(request):
        response.enable_compression(web.ContentCoding.gzip)
    return response
