"""A real Alertmanager as a process of its own, and a receiver that keeps what it is sent."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import aiohttp
import yaml
from aiohttp import web

from support.processes import beside, free_port
from support.running import listening

START_SECONDS = 30.0
Labels = Mapping[str, str]


class Receiver:
    """Takes any JSON that is posted to it, and keeps it by path."""

    def __init__(self) -> None:
        self.url = ""
        self.received: list[tuple[str, Any]] = []
        self._changed = asyncio.Condition()

    async def take(self, request: web.Request) -> web.Response:
        body = await request.json()
        async with self._changed:
            self.received.append((request.path, body))
            self._changed.notify_all()
        return web.Response(text="ok")

    async def until(self, enough: Callable[[], bool]) -> None:
        """Wait until what was received is enough."""
        async with asyncio.timeout(START_SECONDS), self._changed:
            await self._changed.wait_for(enough)

    def at(self, path: str) -> list[Any]:
        """What was received under ``path``."""
        return [body for received_at, body in self.received if received_at == path]

    async def got(self, path: str, count: int = 1) -> list[Any]:
        """Wait for ``count`` bodies under ``path``."""
        await self.until(lambda: len(self.at(path)) >= count)
        return self.at(path)


@contextlib.asynccontextmanager
async def receiver() -> AsyncIterator[Receiver]:
    """Listen on a port that the kernel chose."""
    taking = Receiver()
    app = web.Application()
    app.add_routes([web.post("/{path:.*}", taking.take)])
    async with listening(app) as port:
        taking.url = f"http://127.0.0.1:{port}"
        yield taking


def lead_to(taking: Receiver, configuration: Any) -> None:
    """Turn every receiver of a configuration into a webhook whose path is its name; every hour is a business hour."""
    configuration["templates"] = []
    configuration["time_intervals"][0]["time_intervals"] = [{"times": [{"start_time": "00:00", "end_time": "24:00"}]}]
    configuration["receivers"] = [
        {"name": one["name"], "webhook_configs": [{"url": f"{taking.url}/{one['name']}"}]}
        for one in configuration["receivers"]
    ]


class Alertmanager:
    """Its API, as far as a Prometheus and a person use it."""

    def __init__(self, url: str, session: aiohttp.ClientSession) -> None:
        self.url = url
        self._session = session

    async def post(self, *alerts: Labels, annotations: Labels | None = None, ended: bool = False) -> None:
        """Post alerts that begin now, since a group with an older one does not wait; or that ended after 42 minutes."""
        now = datetime.now(UTC)
        times = {"startsAt": now.isoformat()}
        if ended:
            times = {"startsAt": (now - timedelta(minutes=42)).isoformat(), "endsAt": now.isoformat()}
        body = [{"labels": dict(labels), "annotations": dict(annotations or {}), **times} for labels in alerts]
        async with self._session.post(self.url + "/api/v2/alerts", json=body) as answer:
            assert answer.status == 200, await answer.text()

    async def inhibited(self) -> list[tuple[Labels, bool]]:
        """All alerts, and whether each is inhibited."""
        async with self._session.get(self.url + "/api/v2/alerts") as answer:
            assert answer.status == 200, await answer.text()
            alerts = await answer.json()
        return [(alert["labels"], bool(alert["status"]["inhibitedBy"])) for alert in alerts]


@contextlib.asynccontextmanager
async def alertmanager(program: str, configuration: Any, directory: Path) -> AsyncIterator[Alertmanager]:
    """Run the server with a configuration, its data in ``directory``; it is stopped at the end, whatever happens."""
    file = directory / "alertmanager.yaml"
    file.write_text(yaml.safe_dump(configuration), encoding="utf-8")
    port = free_port()
    command = (
        program,
        f"--config.file={file}",
        f"--storage.path={directory / 'data'}",
        f"--web.listen-address=127.0.0.1:{port}",
        "--web.external-url=https://alertmanager.example.com",
        "--web.route-prefix=/",
        "--cluster.listen-address=",
    )
    async with (
        beside("alertmanager", command, port=port, directory=directory) as server,
        aiohttp.ClientSession() as session,
    ):
        yield Alertmanager(server.url, session)
