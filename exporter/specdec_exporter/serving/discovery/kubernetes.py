"""Targets from Kubernetes: the running pods that a label selector names, listed once and then watched.

The service account must be allowed to ``list`` and ``watch`` pods: in each namespace, or in all of them.
https://kubernetes.io/docs/reference/using-api/api-concepts/#efficient-detection-of-changes
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import AsyncIterator, Callable
from http import HTTPStatus
from itertools import chain
from typing import Final, TypeVar

import aiohttp
import msgspec

from specdec_exporter import bounds
from specdec_exporter.config import KubernetesSettings
from specdec_exporter.errors import FetchError
from specdec_exporter.predictor.sources.kubeapi import KubernetesApi, Refused
from specdec_exporter.serving.discovery.target import ProviderHealth, Target

LOG = logging.getLogger("specdec")
T = TypeVar("T")

_PAGE: Final = 100  # pods; with all that Kubernetes keeps of each, some 20 KB
_LONGEST_RETRY_SECONDS: Final = 30.0
_RIGHT: Final = '"list" and "watch" "pods"'
# The API ends a watch after some minutes, so that the next one may go to another server. Silence for longer is a
# connection that nobody closed.
_WATCH_SECONDS: Final = 240
_LIST_TIMEOUT: Final = aiohttp.ClientTimeout(total=60, sock_connect=10)
_WATCH_TIMEOUT: Final = aiohttp.ClientTimeout(total=None, sock_connect=10, sock_read=_WATCH_SECONDS + 60)


class _Meta(msgspec.Struct):
    name: str = ""
    namespace: str = ""
    labels: dict[str, str] | None = None
    resource_version: str = msgspec.field(name="resourceVersion", default="")
    continue_: str = msgspec.field(name="continue", default="")


class _Port(msgspec.Struct):
    number: int = msgspec.field(name="containerPort")
    name: str = ""


class _Container(msgspec.Struct):
    ports: list[_Port] | None = None


class _Spec(msgspec.Struct):
    containers: list[_Container] | None = None


class _Status(msgspec.Struct):
    phase: str = ""
    ip: str = msgspec.field(name="podIP", default="")


class _Pod(msgspec.Struct):
    metadata: _Meta
    spec: _Spec = msgspec.field(default_factory=_Spec)
    status: _Status = msgspec.field(default_factory=_Status)


class _Pods(msgspec.Struct):
    metadata: _Meta
    items: list[_Pod] | None = None


class _Change(msgspec.Struct):
    type: str
    object: msgspec.Raw


class _Error(msgspec.Struct):
    code: int = 0
    message: str = ""


class KubernetesProvider:
    """Follows the pods of each namespace of the settings, or of all."""

    name = "kubernetes"

    def __init__(
        self,
        api: KubernetesApi,
        settings: KubernetesSettings,
        changed: Callable[[], None],
        *,
        first_retry_seconds: float = 1.0,
    ) -> None:
        self.health = ProviderHealth()
        self._watches = [
            _PodWatch(
                api,
                settings,
                namespace,
                changed=changed,
                outcome=self._note,
                first_retry_seconds=first_retry_seconds,
            )
            for namespace in settings.namespaces or ("",)
        ]

    @property
    def left_out(self) -> int:
        """Pods beyond the bound."""
        return sum(watch.left_out for watch in self._watches)

    @property
    def targets(self) -> list[Target]:
        """The targets of all namespaces."""
        return list(chain.from_iterable(watch.pods.values() for watch in self._watches))

    def _note(self, problem: str | None) -> None:
        """Take in how an attempt went. It goes well if it goes well with every namespace."""
        if problem:
            self.health.failed(problem)
        elif not any(watch.problem for watch in self._watches):
            self.health.succeeded()

    async def run(self) -> None:
        """Follow all namespaces."""
        async with (
            aiohttp.ClientSession(trust_env=False, cookie_jar=aiohttp.DummyCookieJar()) as session,
            asyncio.TaskGroup() as tasks,
        ):
            for watch in self._watches:
                tasks.create_task(watch.run(session))


class _PodWatch:
    """The pods of one namespace, or of all if it is empty. Keeps no more than the bound of targets."""

    def __init__(
        self,
        api: KubernetesApi,
        settings: KubernetesSettings,
        namespace: str,
        *,
        changed: Callable[[], None],
        outcome: Callable[[str | None], None],
        first_retry_seconds: float,
    ) -> None:
        self.pods: dict[str, Target] = {}  # by namespace and name
        self.left_out = 0
        self._api = api
        self._settings = settings
        self._path = f"/api/v1/namespaces/{namespace}/pods" if namespace else "/api/v1/pods"
        self._what = f"pods of {namespace or 'all namespaces'}"
        self._changed = changed
        self._outcome = outcome
        self._first_retry_seconds = first_retry_seconds
        self._retry_seconds = first_retry_seconds
        self._version = ""  # up to here all changes are known; empty: the pods must be listed
        self._page = _PAGE
        self.problem: str | None = "not listed yet"
        self._said_unusable = False

    async def run(self, session: aiohttp.ClientSession) -> None:
        """List, then watch, and go on from there whenever the connection ends."""
        while True:
            try:
                if not self._version:
                    await self._list(session)
                await self._watch(session)
            except Refused as error:
                if error.status in (HTTPStatus.OK, HTTPStatus.GONE):  # the changes since then are no longer known
                    self._version = ""
                if error.status != HTTPStatus.GONE:
                    self._failed(str(error))
            except (aiohttp.ClientError, OSError, UnicodeError, FetchError) as error:
                self._failed(f"the Kubernetes API: {str(error) or type(error).__name__}")
            except Exception:
                self._version = ""
                self._failed("the exporter failed; its own log has the traceback")
                LOG.exception("discovery failed", extra={"of": self._what})
            # With jitter: all exporters of a cluster lose the API at the same moment.
            await asyncio.sleep(self._retry_seconds * random.uniform(0.5, 1.0))  # noqa: S311  no secret
            self._retry_seconds = min(2 * self._retry_seconds, _LONGEST_RETRY_SECONDS)

    async def _list(self, session: aiohttp.ClientSession) -> None:
        """Read all pods, page by page. Those that are known already stay, however many there are."""
        known: dict[str, Target] = {}
        new: dict[str, Target] = {}
        left_out, after = 0, ""
        while True:
            page = await self._read_page(session, after)
            for pod in page.items or ():
                key, target = self._found(pod)
                if target is None:
                    continue
                if key in self.pods:
                    known[key] = target
                elif len(new) < bounds.PREDICTORS:
                    new[key] = target
                else:
                    left_out += 1
            after = page.metadata.continue_
            if not after:
                break
        room = bounds.PREDICTORS - len(known)
        self.left_out = left_out + max(len(new) - room, 0)
        self.pods = known | dict(list(new.items())[: max(room, 0)])
        self._version = page.metadata.resource_version
        self._worked()
        self._changed()

    async def _read_page(self, session: aiohttp.ClientSession, after: str) -> _Pods:
        parameters = self._selected | {"limit": str(self._page)} | ({"continue": after} if after else {})
        async with self._api.get(session, self._path, parameters, limits=_LIST_TIMEOUT, right=_RIGHT) as response:
            body = bytearray()
            async for chunk in response.content.iter_any():
                body += chunk
                if len(body) > bounds.API_BODY_BYTES:
                    self._page = max(self._page // 4, 1)
                    raise Refused(HTTPStatus.OK, f"the Kubernetes API: more than {bounds.API_BODY_BYTES} bytes of pods")
        return _decoded(body, _Pods)

    async def _watch(self, session: aiohttp.ClientSession) -> None:
        """Take in changes until the server ends the connection, or until the pods must be listed again."""
        parameters = self._selected | {
            "watch": "true",
            "allowWatchBookmarks": "true",
            "resourceVersion": self._version,
            "timeoutSeconds": str(_WATCH_SECONDS),
        }
        async with self._api.get(session, self._path, parameters, limits=_WATCH_TIMEOUT, right=_RIGHT) as response:
            self._worked()
            async for line in _lines(response.content):
                self._take(_decoded(line, _Change))
                if not self._version:
                    return

    @property
    def _selected(self) -> dict[str, str]:
        # A pod that ends leaves the selection, and the watch calls it deleted.
        return {"labelSelector": self._settings.label_selector, "fieldSelector": "status.phase=Running"}

    def _take(self, change: _Change) -> None:
        """Take in one change. ``_version`` is empty afterwards if the pods must be listed again."""
        if change.type == "ERROR":
            error = _decoded(change.object, _Error)
            raise Refused(error.code, f"the Kubernetes API ended the watch with {error.code}: {error.message[:300]}")
        pod = _decoded(change.object, _Pod)
        self._version = pod.metadata.resource_version
        self._worked()
        if change.type == "BOOKMARK":
            return
        key, target = self._found(pod)
        if change.type == "DELETED" or target is None:
            if self.pods.pop(key, None) is None:
                return
            if self.left_out:
                self._version = ""  # there is room for one of them
        elif self.pods.get(key) == target:
            return
        elif key in self.pods or len(self.pods) < bounds.PREDICTORS:
            self.pods[key] = target
        else:
            self.left_out += 1
        self._changed()

    def _found(self, pod: _Pod) -> tuple[str, Target | None]:
        """Return the key of a pod, and its target: none without an address, a port or a name."""
        meta, settings = pod.metadata, self._settings
        key = f"{meta.namespace}/{meta.name}"
        if not pod.status.ip or pod.status.phase != "Running":
            return key, None
        ports = [port for container in pod.spec.containers or () for port in container.ports or ()]
        wanted = str(settings.port)
        port = int(wanted) if wanted.isdigit() else next((each.number for each in ports if each.name == wanted), None)
        name = (meta.labels or {}).get(settings.name_label)
        if port is None or not name:
            if not self._said_unusable:
                self._said_unusable = True
                missing = f"label {settings.name_label}" if port else f"port {wanted}"
                LOG.warning("pods are left out", extra={"pod": key, "reason": f"no {missing}"})
            return key, None
        instance = f"[{pod.status.ip}]:{port}" if ":" in pod.status.ip else f"{pod.status.ip}:{port}"
        return key, Target(
            url=f"{settings.scheme}://{instance}",
            inference_service=name,
            instance=instance,
            namespace=meta.namespace,
            pod=meta.name,
        )

    def _worked(self) -> None:
        self._retry_seconds = self._first_retry_seconds
        if self.problem is not None:
            LOG.info("discovery works", extra={"of": self._what})
        self.problem = None
        self._outcome(None)

    def _failed(self, problem: str) -> None:
        if problem != self.problem:
            LOG.warning("discovery fails; what was found stays", extra={"of": self._what, "reason": problem})
        self.problem = problem
        self._outcome(problem)
        self._changed()  # at the start, somebody waits for the first attempt


async def _lines(content: aiohttp.StreamReader) -> AsyncIterator[bytes]:
    """Return the whole lines of a stream. What follows the last newline was cut off, and comes again."""
    held = bytearray()
    async for chunk in content.iter_any():
        start = len(held)
        held += chunk
        while (end := held.find(b"\n", start)) >= 0:
            yield bytes(held[:end])
            del held[: end + 1]
            start = 0
        if len(held) > bounds.WATCH_LINE_BYTES:
            raise Refused(HTTPStatus.OK, f"the Kubernetes API: more than {bounds.WATCH_LINE_BYTES} bytes of one pod")


def _decoded(text: bytes | bytearray | msgspec.Raw, kind: type[T]) -> T:
    try:
        return msgspec.json.decode(text, type=kind)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise Refused(HTTPStatus.OK, f"the Kubernetes API answered with something else than pods: {error}") from error
