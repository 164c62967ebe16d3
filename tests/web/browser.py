"""A real browser by its WebDriver, and a server that shows it the page."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import time
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import msgspec
from aiohttp import web

from specdec_exporter.state.status import Status
from specdec_exporter.web.page import PAGE, SECURITY_HEADERS
from support.running import listening


@dataclasses.dataclass
class Exporter:
    """Serves the page under a sub-path, as behind an ingress, and answers as many status requests as it is told to."""

    statuses: list[Status]  # one per request, the last one for ever
    silent: bool = False  # the connection is dropped instead
    instead: str | None = None  # answered instead of JSON
    requests: list[str] = dataclasses.field(default_factory=list)
    port: int = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/behind/ingress/"

    @contextlib.asynccontextmanager
    async def serving(self) -> AsyncIterator[Exporter]:
        app = web.Application()
        app.router.add_get("/behind/ingress/", self._page)
        app.router.add_get("/behind/ingress/api/v1/status", self._status)
        app.router.add_get("/{anything:.*}", self._stray)
        async with listening(app) as self.port:
            yield self

    async def _page(self, _request: web.Request) -> web.Response:
        return web.Response(body=PAGE, content_type="text/html", charset="utf-8", headers=SECURITY_HEADERS)

    async def _status(self, request: web.Request) -> web.Response:
        self.requests.append(request.path)
        if self.silent:
            assert request.transport is not None
            request.transport.abort()
        if self.instead is not None:
            return web.Response(text=self.instead)
        body = msgspec.json.encode(self.statuses[min(len(self.requests), len(self.statuses)) - 1])
        return web.Response(body=body, content_type="application/json")

    async def _stray(self, request: web.Request) -> web.Response:
        self.requests.append(f"stray {request.path}")
        return web.Response(status=404)


PATIENCE_SECONDS = 60


@dataclasses.dataclass
class Browser:
    """The few commands of the WebDriver protocol that are needed here."""

    http: aiohttp.ClientSession
    session_url: str

    async def command(self, method: str, path: str, body: object = None) -> Any:
        async with self.http.request(method, self.session_url + path, json=body) as response:
            value = (await response.json())["value"]
            assert response.status == 200, value
            return value

    async def devtools(self, command: str, **params: object) -> Any:
        return await self.command("POST", "/goog/cdp/execute", {"cmd": command, "params": params})

    async def script(self, script: str) -> Any:
        return await self.command("POST", "/execute/sync", {"script": script, "args": []})

    async def resize(self, width: int, height: int = 900) -> None:
        await self.devtools(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False
        )

    async def colours(self, scheme: str) -> None:
        await self.devtools("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])

    async def open(self, url: str) -> None:
        """Go to the page and wait until it has had an answer or has said that there is none."""
        await self.command("POST", "/url", {"url": url})
        await self.until("return document.querySelector('.card') !== null || !document.getElementById('notice').hidden")

    async def until(self, condition: str) -> None:
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not await self.script(condition):
            assert time.monotonic() < deadline, f"never true: {condition}; page: {await self.text()}"
            await asyncio.sleep(0.05)  # a browser has no event to await from outside

    async def refresh_now(self) -> None:
        """What the page does when its tab is shown again."""
        await self.script("document.dispatchEvent(new Event('visibilitychange'))")

    async def text(self) -> str:
        """What a reader sees, with white space made plain."""
        return " ".join(str(await self.script("return document.body.innerText")).split())

    async def complaints(self) -> list[str]:
        """Everything on the console since last asked: script errors, CSP violations, failed requests."""
        return [entry["message"] for entry in await self.command("POST", "/se/log", {"type": "browser"})]
