"""The person on call: receives Alertmanager's webhooks and prints them as pages."""

from __future__ import annotations

import contextlib
import textwrap
from collections.abc import AsyncIterator, Callable
from datetime import datetime
from typing import Any

from aiohttp import web

_WIDTH = 100


class Pager:
    """A webhook receiver. ``pages`` holds all notifications so far, as Alertmanager sends them (webhook version 4)."""

    def __init__(self, show: Callable[[str], None]) -> None:
        self.pages: list[dict[str, Any]] = []
        self.url = ""
        self._show = show

    async def receive(self, request: web.Request) -> web.Response:
        """Take one notification."""
        page = await request.json()
        self.pages.append(page)
        # Alertmanager also sends pages to the chat. Here they are printed once.
        if page["receiver"].endswith("pager") or not any(map(_is_page, page["alerts"])):
            self._show(page_text(page))
        return web.Response()


def _is_page(alert: dict[str, Any]) -> bool:
    severity: str = alert["labels"]["severity"]
    return severity == "critical"


def page_text(page: dict[str, Any]) -> str:
    """Return a notification as text: what, where, the numbers, the impact, the first action, and the runbook."""
    return "\n".join(_alert_text(alert) for alert in page["alerts"])


def _alert_text(alert: dict[str, Any]) -> str:
    labels, annotations = alert["labels"], alert["annotations"]
    when = datetime.fromisoformat(alert["startsAt"]).astimezone()
    head = f"{alert['status'].upper()}  {labels['severity']}  {labels['alertname']}  since {when:%H:%M:%S}"
    if alert["status"] == "resolved":
        lasted = datetime.fromisoformat(alert["endsAt"]) - datetime.fromisoformat(alert["startsAt"])
        return f"{head}, over after {lasted.total_seconds():.0f} s\n{_paragraph('', annotations['summary'])}"
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
async def pager(show: Callable[[str], None]) -> AsyncIterator[Pager]:
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
