"""A small Kubernetes API server that lists and watches pods, and does what a test tells it to."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from typing import Any

from aiohttp import web

SERVICE_LABEL = "serving.kserve.io/inferenceservice"


def pod(name: str, ip: str = "10.0.0.1", *, service: str | None = "chat", **fields: Any) -> dict[str, Any]:
    """A running pod of the service. ``fields``: ``phase``, ``namespace``, ``ports`` (by name)."""
    labels = {"app": "x", **({SERVICE_LABEL: service} if service else {})}
    ports = [{"name": port, "containerPort": number} for port, number in fields.get("ports", {}).items()]
    return {
        "metadata": {"name": name, "namespace": fields.get("namespace", "prod"), "labels": labels, "uid": name},
        "spec": {"containers": [{"name": "kserve-container", "ports": ports}, {"name": "other"}]},
        "status": {"phase": fields.get("phase", "Running"), "podIP": ip},
    }


class PodApi:
    """Pods with a history of changes. A watch from before ``forgotten`` gets 410."""

    def __init__(self) -> None:
        self.pods: dict[str, dict[str, Any]] = {}
        self.requests: list[web.Request] = []
        self.refusals: list[int] = []  # statuses for the next requests
        self.forgotten = 0
        self.version = 100
        self.url = ""
        self._changes: list[tuple[int, bytes]] = []
        self._changed = asyncio.Condition()
        self._cuts = 0  # connections up to this one are cut
        self._streams = 0

    def keep(self, *pods: dict[str, Any]) -> None:
        """Have pods without a change that a watch would show."""
        for each in pods:
            self.version += 1
            each["metadata"]["resourceVersion"] = str(self.version)
            self.pods[each["metadata"]["name"]] = each

    async def put(self, each: dict[str, Any], kind: str = "ADDED") -> None:
        """Add or change a pod, or delete it."""
        self.keep(each)
        if kind == "DELETED":
            del self.pods[each["metadata"]["name"]]
        await self.say({"type": kind, "object": each})

    async def bookmark(self) -> None:
        """Tell watchers how far the history has got."""
        self.version += 1
        meta = {"resourceVersion": str(self.version), "creationTimestamp": None}
        each = {"kind": "Pod", "metadata": meta, "spec": {"containers": None}, "status": {}}
        await self.say({"type": "BOOKMARK", "object": each})

    async def say(self, change: object) -> None:
        """Send a change, or bytes as they are."""
        line = change if isinstance(change, bytes) else json.dumps(change).encode() + b"\n"
        async with self._changed:
            self._changes.append((self.version, line))
            self._changed.notify_all()

    async def cut(self) -> None:
        """Cut the connection of the watch in the middle of a line, when there is one."""
        async with self._changed:
            await self._changed.wait_for(lambda: self._streams > self._cuts)
            self._cuts = self._streams
            self._changed.notify_all()

    def forget(self) -> None:
        """Answer 410 to whoever wants to watch from what was so far."""
        self.version += 1
        self.forgotten = self.version
        self._changes.clear()

    async def handle(self, request: web.Request) -> web.StreamResponse:
        self.requests.append(request)
        if self.refusals:
            return web.json_response({"kind": "Status", "message": "no"}, status=self.refusals.pop(0))
        if "watch" in request.query:
            return await self._watch(request)
        pods = sorted(self.pods.values(), key=lambda each: str(each["metadata"]["name"]))
        first, limit = int(request.query.get("continue", 0)), int(request.query["limit"])
        after = str(first + limit) if len(pods) > first + limit else ""
        meta = {"resourceVersion": str(self.version), "continue": after}
        return web.json_response({"kind": "PodList", "metadata": meta, "items": pods[first : first + limit]})

    async def _watch(self, request: web.Request) -> web.StreamResponse:
        since = int(request.query["resourceVersion"])
        response = web.StreamResponse()
        await response.prepare(request)
        if since < self.forgotten:
            gone = {"kind": "Status", "code": 410, "message": "too old resource version"}
            await response.write(json.dumps({"type": "ERROR", "object": gone}).encode() + b"\n")
            return response
        async with self._changed:
            self._streams += 1
            number, sent = self._streams, 0
            self._changed.notify_all()
        while True:
            lines = [line for version, line in self._changes[sent:] if version > since]
            sent = len(self._changes)
            for line in lines:  # in two pieces, as a network may deliver it
                await response.write(line[:50])
                await response.write(line[50:])
            async with self._changed:
                while len(self._changes) == sent and number > self._cuts:
                    await self._changed.wait()
            if number <= self._cuts:
                await response.write(b'{"type":"ADDED","obj')
                assert request.transport is not None
                request.transport.abort()
                return response


@contextlib.asynccontextmanager
async def pod_api(*routes: web.RouteDef) -> AsyncIterator[PodApi]:
    """Run the server."""
    api = PodApi()
    app = web.Application()
    app.add_routes([web.get(path, api.handle) for path in ("/api/v1/pods", "/api/v1/namespaces/{namespace}/pods")])
    app.add_routes(routes)
    runner = web.AppRunner(app, shutdown_timeout=0.1, handler_cancellation=True)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    api.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    try:
        yield api
    finally:
        await runner.cleanup()
