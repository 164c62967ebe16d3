"""The Kubernetes API over HTTPS: one request, and a watch until an object is as a test wants it."""

from __future__ import annotations

import contextlib
import http.client
import json
import ssl
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlencode

WAIT_SECONDS = 60.0
Object = dict[str, Any]
T = TypeVar("T")


class RefusedError(Exception):
    """The API server, or a webhook that it asked, refused a request. The message is theirs."""


def where(resource: str, namespace: str | None = None, name: str | None = None, subresource: str | None = None) -> str:
    """Path of a resource, which is named ``v1/pods`` or ``apps/v1/deployments``."""
    *group, version, plural = resource.split("/")
    parts = ["apis", *group, version] if group else ["api", version]
    parts += ["namespaces", namespace] if namespace else []
    parts += [plural, *filter(None, (name, subresource))]
    return "/" + "/".join(parts)


class Api:
    """Asks as one user: with a client certificate, or with a token."""

    def __init__(
        self, port: int, authority: Path, *, identity: tuple[Path, Path] | None = None, token: str = ""
    ) -> None:
        self.port = port
        self.token = token
        self._tls = ssl.create_default_context(cafile=authority)
        if identity:
            self._tls.load_cert_chain(*identity)

    @contextlib.contextmanager
    def _answer(
        self, method: str, path: str, body: Any, content_type: str, seconds: float
    ) -> Iterator[http.client.HTTPResponse]:
        connection = http.client.HTTPSConnection("127.0.0.1", self.port, context=self._tls, timeout=seconds)
        headers = {"Content-Type": content_type, "Accept": "application/json"}
        if self.token:
            headers["Authorization"] = f"Bearer {self.token}"
        with contextlib.closing(connection):
            connection.request(method, path, None if body is None else json.dumps(body), headers)
            answer = connection.getresponse()
            if answer.status >= 400:
                text = answer.read().decode()
                with contextlib.suppress(ValueError, KeyError):
                    text = json.loads(text)["message"]
                raise RefusedError(f"{method} {path}: {answer.status} {text}")
            yield answer

    def request(self, method: str, path: str, body: Any = None, *, content_type: str = "application/json") -> Any:
        """The answer, parsed. Raises :class:`RefusedError`, and ``OSError`` where nobody listens."""
        with self._answer(method, path, body, content_type, WAIT_SECONDS) as answer:
            text = answer.read()
        return json.loads(text) if text.startswith((b"{", b"[")) else text.decode()

    def get(self, resource: str, namespace: str | None = None, name: str | None = None, **query: str) -> Any:
        """One object, or all of a namespace, or of the cluster."""
        return self.request("GET", f"{where(resource, namespace, name)}?{urlencode(query)}")

    def items(self, resource: str, namespace: str | None = None, **query: str) -> list[Object]:
        """Objects, by default of all namespaces. ``labelSelector`` and ``fieldSelector`` choose."""
        found: list[Object] = self.get(resource, namespace, **query)["items"]
        return found

    def merge(self, path: str, body: Any) -> Object:
        """Merge ``body`` into the object at ``path`` (:func:`where`); returns it."""
        changed: Object = self.request("PATCH", path, body, content_type="application/merge-patch+json")
        return changed

    def until(
        self,
        resource: str,
        namespace: str | None,
        enough: Callable[[list[Object]], T],
        *,
        seconds: float = WAIT_SECONDS,
        **query: str,
    ) -> T:
        """Watch a resource until ``enough`` of its objects is true; returns what it returned.

        ``fieldSelector="metadata.name=x"`` or a ``labelSelector`` chooses. Raises ``TimeoutError`` with what is there.
        """
        listed = self.get(resource, namespace, **query)
        there = {one["metadata"]["uid"]: one for one in listed["items"]}
        version = listed["metadata"]["resourceVersion"]
        path = f"{where(resource, namespace)}?{urlencode({**query, 'watch': 'true', 'resourceVersion': version})}"
        deadline = time.monotonic() + seconds
        with contextlib.suppress(TimeoutError), self._answer("GET", path, None, "application/json", seconds) as answer:
            while True:
                if found := enough(list(there.values())):
                    return found
                if time.monotonic() > deadline or not (line := answer.readline()):
                    break
                event = json.loads(line)
                identity = event["object"]["metadata"]["uid"]
                if event["type"] == "DELETED":
                    there.pop(identity, None)
                else:
                    there[identity] = event["object"]
        seen = {one["metadata"]["name"]: one.get("status") for one in there.values()}
        raise TimeoutError(f"{resource} {query} are not so within {seconds:g} s: {json.dumps(seen, indent=1)}")

    def wait(self, resource: str, namespace: str | None, name: str, enough: Callable[[Object], Any] = bool) -> Object:
        """The object ``name``, once it is there and ``enough`` of it is true."""
        return self.until(
            resource,
            namespace,
            lambda found: next((one for one in found if enough(one)), {}),
            fieldSelector=f"metadata.name={name}",
        )

    def gone(self, resource: str, namespace: str | None, name: str) -> None:
        """Wait until the object ``name`` is no longer there."""
        self.until(resource, namespace, lambda found: not found, fieldSelector=f"metadata.name={name}")
