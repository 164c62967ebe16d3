"""The person on call: receives Alertmanager's webhooks and shows each page once, and when it is over."""

from __future__ import annotations

import contextlib
import textwrap
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import datetime
from typing import Any

from aiohttp import web

_WIDTH = 100
Show = Callable[[str, str | None], Awaitable[None]]
"""Shows a page: its text, and the service whose figures belong to it."""


class Pager:
    """A webhook receiver for Alertmanager's notifications (version 4). A page ends with its kind of the service."""

    def __init__(self, show: Show) -> None:
        self.url = ""
        self.pages: list[dict[str, Any]] = []  # all notifications so far
        self._show = show
        self._incidents: dict[str, dict[str, list[str]]] = {}  # alerts shown so far, by group and service

    async def receive(self, request: web.Request) -> web.Response:
        """Take one notification. Each repeats what fires of its group; tickets go to the chat only."""
        page = await request.json()
        self.pages.append(page)
        if not page["receiver"].endswith("pager"):
            return web.Response()
        incidents = self._incidents.setdefault(page["groupKey"], {})
        firing = [alert for alert in page["alerts"] if alert["status"] == "firing"]
        for alert in firing:
            name = alert["labels"]["alertname"]
            if name not in (names := incidents.setdefault(_where(alert["labels"]), [])):
                names.append(name)
                await self._show(_alert_text(alert), alert["labels"]["inference_service"])
        for service in incidents.keys() - {_where(alert["labels"]) for alert in firing}:
            what = f"{service}: {' and '.join(incidents.pop(service))}"
            await self._show(f"RESOLVED  {what} at {datetime.now().astimezone():%H:%M:%S}", None)
        return web.Response()


def _where(labels: dict[str, str]) -> str:
    return "/".join(labels[name] for name in ("namespace", "inference_service") if name in labels)


def _alert_text(alert: dict[str, Any]) -> str:
    """Return an alert as text: what, where, the numbers, the impact, the first action, and the runbook."""
    labels, annotations = alert["labels"], alert["annotations"]
    start = datetime.fromisoformat(alert["startsAt"]).astimezone()
    head = f"FIRING  {_where(labels)}: {labels['alertname']} since {start:%H:%M:%S}"
    parts = (
        _paragraph("", annotations["summary"]),
        _paragraph("", annotations["description"]),
        _paragraph("Impact: ", annotations["impact"]),
        _paragraph("First: ", annotations["action"]),
        f"    Runbook: {annotations['runbook_url']}",
    )
    return "\n".join((head, *parts))


def _paragraph(label: str, text: str) -> str:
    return textwrap.fill(label + text, _WIDTH, initial_indent="    ", subsequent_indent="    ")


@contextlib.asynccontextmanager
async def pager(show: Show) -> AsyncIterator[Pager]:
    """Receive on a free local port, under any path."""
    receiver = Pager(show)
    app = web.Application()
    app.add_routes([web.post("/{receiver:.*}", receiver.receive)])
    runner = web.AppRunner(app, shutdown_timeout=0.5)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        receiver.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
        yield receiver
    finally:
        await runner.cleanup()
