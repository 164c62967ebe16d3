"""Fetching ``/metrics``, ``/version`` and ``/v1/models`` of a predictor over HTTP. Every failure is a FetchError."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import functools
import math
import os
import re
import time
import traceback
from collections import Counter
from collections.abc import Awaitable, Callable
from http import HTTPStatus
from typing import Any, Final, TypeVar
from urllib.parse import urlsplit, urlunsplit

import aiohttp
import msgspec
from yarl import URL

from specdec_exporter import __version__, bounds
from specdec_exporter.config import SYSTEM_TRUST, Access
from specdec_exporter.errors import ConfigError, ExpositionError, FetchError, FetchReason
from specdec_exporter.formatting import plain
from specdec_exporter.predictor.engines.engine import VLLM, InferenceEngine
from specdec_exporter.predictor.metrics.access import Credentials
from specdec_exporter.predictor.metrics.exposition import parse_exposition
from specdec_exporter.predictor.metrics.reading import EngineKey
from specdec_exporter.predictor.metrics.snapshot import Snapshot, with_model

_CLOSED: Final = "the connection was closed without an answer"
_MAX_REDIRECTS: Final = 3
# For the name of a model, where no metric tells that. A fetch waits only a moment, as long as there is no name.
_MODEL_SECONDS: Final = 2.0
_MODEL_WAIT_SECONDS: Final = 0.2
_MODEL_AGAIN_SECONDS: Final = 60.0
_REDIRECTS: Final = frozenset({301, 302, 303, 307, 308})
_API_PATH: Final = re.compile(r"/v1(?:/models|/completions|/chat/completions)?$")
_VERSION: Final = re.compile(r"[0-9A-Za-z][0-9A-Za-z.+_-]{0,63}")
# In OpenMetrics, prometheus_client 0.23 to 0.26 (vLLM 0.32.0) renames "vllm:x" to "vllm_x" in the samples only.
# Keep-alive gains nothing: vLLM keeps a connection for 5 s, and scrapes come every 15 s.
_HEADERS: Final = {
    "Accept": "text/plain;version=0.0.4",
    "Accept-Encoding": "identity",
    "Connection": "close",
    "User-Agent": f"specdec-exporter/{__version__}",
}
# Several callers with different deadlines may wait for one request.
_NO_TIMEOUT: Final = aiohttp.ClientTimeout(total=None)


class _Model(msgspec.Struct):
    id: str
    root: str | None = None


class _Models(msgspec.Struct):
    data: list[_Model]


_Answer = TypeVar("_Answer")


class _Flight:
    """A request under way; ``waiting`` callers want its result."""

    def __init__(self, task: asyncio.Task[Snapshot]) -> None:
        self.task = task
        self.waiting = 0
        self.failed = False  # and counted
        task.add_done_callback(_free_body)


def _free_body(task: asyncio.Task[Snapshot]) -> None:
    """Free the body of a failed request, which its error would keep. Perhaps nobody waits for the error any more."""
    error = None if task.cancelled() else task.exception()
    while error is not None:
        traceback.clear_frames(error.__traceback__)
        error = error.__cause__


def open_session() -> aiohttp.ClientSession:
    """Open a session without cookies and without proxies or passwords from the environment. The caller closes it.

    It opens as many connections as there are predictors. With aiohttp's limit of 100, predictors that hang would hold
    up the others.
    """
    connector = aiohttp.TCPConnector(limit=0)
    return aiohttp.ClientSession(connector=connector, trust_env=False, cookie_jar=aiohttp.DummyCookieJar())


class MetricsFetcher:
    """Fetches from one predictor.

    ``url`` is its base, such as ``http://127.0.0.1:8080/path``, or the full URL of its ``/metrics``. A user and
    password in it are sent as basic authentication and appear in no message. ``access`` has its TLS and token, which
    only this host and port gets. ``lengths``: the snapshots also hold the lengths of requests. ``most_engines`` are
    read; known ones keep their place. All fetchers of a process share ``large_body``, so that only one of them holds a
    large body. Raises :class:`ConfigError` if it is no http(s) URL, or for an ``access`` that cannot work.
    """

    def __init__(
        self,
        session: aiohttp.ClientSession,
        url: str,
        *,
        access: Access = SYSTEM_TRUST,
        lengths: bool = False,
        most_engines: int = bounds.ENGINES,
        large_body: asyncio.Lock | None = None,
    ) -> None:
        self.most_engines = most_engines
        self.failures: Counter[FetchReason] = Counter()  # requests for the metrics
        self._session = session
        self._lengths = lengths
        self._large_body = large_body or asyncio.Lock()
        self._known: frozenset[EngineKey] = frozenset()
        self._metrics_url, self._base = _endpoints(url)
        # The model, where the metrics do not tell; a router of llama.cpp takes it in the query.
        self._model_name = self._metrics_url.query.get("model", "")
        self._ask_model_at = math.inf if self._model_name else 0.0  # monotonic
        self._asking_model: asyncio.Task[None] | None = None
        self._credentials = Credentials(access, has_password=self._base.user is not None)
        self._flight: _Flight | None = None
        self._parsing = False

    async def fetch(self, timeout_seconds: float) -> Snapshot:
        """Fetch the predictor's ``/metrics``.

        Concurrent calls share one request, which is cancelled when its last caller leaves. While its body is being
        parsed it goes on, for the next caller: so there is never more than one body. Raises :class:`FetchError`, with
        reason ``timeout`` after this caller's ``timeout_seconds``.
        """
        flight = self._flight
        if flight is None or flight.task.done():
            flight = self._flight = _Flight(asyncio.create_task(self._fetch()))
        flight.waiting += 1
        try:
            return await self._landed(flight, timeout_seconds)
        except FetchError as error:
            self.failures[error.reason] += not flight.failed
            flight.failed = True
            if self._ask_model_at < math.inf:
                self._ask_model_at = 0.0  # what answers next may serve another model
            raise
        finally:
            flight.waiting -= 1
            if not flight.waiting and (flight.task.done() or not self._parsing):
                flight.task.cancel()
                if self._flight is flight:
                    self._flight = None

    async def _landed(self, flight: _Flight, timeout_seconds: float) -> Snapshot:
        try:
            async with asyncio.timeout(timeout_seconds):
                return await asyncio.shield(flight.task)
        except TimeoutError as error:
            raise FetchError(
                "timeout",
                f"GET {without_credentials(self._metrics_url)} did not answer in full within {timeout_seconds:g} s",
            ) from error

    async def version(self, timeout_seconds: float, engine: InferenceEngine = VLLM) -> str | None:
        """Return the release of ``engine``, e.g. ``0.32.0`` from ``GET /version``; ``None`` if it does not tell."""
        if (asked := engine.version) is None:
            return None
        answer = await self.ask(asked.path, dict[str, Any], timeout_seconds, max_bytes=bounds.VERSION_BODY_BYTES)
        version = answer.get(asked.field) if answer else None
        return version if isinstance(version, str) and _VERSION.fullmatch(version) else None

    async def models(self, timeout_seconds: float, path: str = "v1/models") -> dict[str, str | None]:
        """Return loaded models by served name, from ``GET /v1/models``; empty if there is no such answer."""
        answer = await self.ask(path, _Models, timeout_seconds, max_bytes=bounds.MODELS_BODY_BYTES)
        return {plain(model.id): model.root and plain(model.root) for model in answer.data} if answer else {}

    async def ask(
        self, path: str, kind: type[_Answer], timeout_seconds: float, *, max_bytes: int = bounds.BODY_BYTES
    ) -> _Answer | None:
        """Return the JSON at ``path`` below the base; ``None`` if there is no such answer."""
        try:
            async with asyncio.timeout(timeout_seconds):
                async with contextlib.AsyncExitStack() as held:
                    body, _, _ = await self._get(self._base / path, max_bytes, held)
            return msgspec.json.decode(body, type=kind)
        except (FetchError, TimeoutError, msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            return None

    async def _fetch(self) -> Snapshot:
        async with contextlib.AsyncExitStack() as held:
            body, content_type, answered = await self._get(self._metrics_url, bounds.BODY_BYTES, held)
            parse = functools.partial(
                parse_exposition,
                content_type=content_type,
                lengths=self._lengths,
                most_engines=self.most_engines,
                known=self._known,
            )
            try:
                if len(body) > bounds.SMALL_BODY_BYTES:  # parsing 256 KiB takes 20 to 50 ms
                    self._parsing = True  # the thread cannot be stopped
                    snapshot = await asyncio.to_thread(parse, body)
                else:
                    snapshot = parse(body)
            except ExpositionError as error:
                what = f"GET {without_credentials(self._metrics_url)}"
                if answered != self._metrics_url:
                    what = f"{what} was redirected to {without_credentials(answered)}: {error}"
                    raise FetchError("redirect", what) from error
                raise FetchError(error.reason, f"{what}: {error}") from error
            finally:
                self._parsing = False
        snapshot = await self._named(snapshot)
        self._known = frozenset((engine.model_name, engine.engine) for engine in snapshot.engines)
        return snapshot

    async def _named(self, snapshot: Snapshot) -> Snapshot:
        """Name the model of an engine whose metrics do not. A name holds until another one is told."""
        engine = snapshot.inference_engine
        if engine is None or engine.models is None:
            return snapshot
        if time.monotonic() >= self._ask_model_at:
            self._ask_model_at = time.monotonic() + _MODEL_AGAIN_SECONDS
            self._asking_model = asyncio.create_task(self._ask_model(engine.models))
            if not self._model_name:
                await asyncio.wait({self._asking_model}, timeout=_MODEL_WAIT_SECONDS)
        return with_model(snapshot, self._model_name)

    async def stop(self) -> None:
        """Give up what nobody waits for."""
        if self._asking_model is not None:
            self._asking_model.cancel()
            await asyncio.wait({self._asking_model})

    async def _ask_model(self, path: str) -> None:
        """Learn the name of the one model that is served. Of several, nobody knows which one the metrics are of."""
        if len(names := [*await self.models(_MODEL_SECONDS, path)]) == 1:
            self._model_name = names[0]

    async def _get(self, url: URL, max_bytes: int, held: contextlib.AsyncExitStack) -> tuple[bytes, str | None, URL]:
        """Return body and Content-Type of ``url``, and what answered after redirects within its host and port.

        A large body waits for ``large_body``, which ``held`` then keeps.
        """
        target = url
        secure = url.scheme == "https"  # redirects do not change it
        for _ in range(_MAX_REDIRECTS + 1):
            what = f"GET {without_credentials(target)}"
            try:
                # aiohttp retries once if the connection is cut before the answer begins.
                response = await self._session.get(
                    target,
                    headers=_HEADERS | self._credentials.headers(),
                    timeout=_NO_TIMEOUT,
                    allow_redirects=False,
                    auto_decompress=False,
                    ssl=self._credentials.context() if secure else True,
                    server_hostname=self._credentials.access.server_name if secure else None,
                )
            except aiohttp.ClientResponseError as error:
                words = " ".join(error.message.split())[:120]
                raise FetchError("not_metrics", f"{what}: expected an HTTP answer: {words}") from error
            except (aiohttp.ClientError, OSError, UnicodeError) as error:
                raise self._connect_failure(what, error) from error
            async with response:
                if response.status in _REDIRECTS:
                    target = _redirected(target, response.headers.get("Location"))
                    continue
                if response.status != HTTPStatus.OK:
                    raise FetchError("http_status", f"{what} answered {_status(response.status)}", response.status)
                large = functools.partial(held.enter_async_context, self._large_body)
                return await _read(response, max_bytes, what, large), response.headers.get("Content-Type"), target
        raise FetchError("redirect", f"GET {without_credentials(url)} was redirected more than {_MAX_REDIRECTS} times")

    def _connect_failure(self, what: str, error: Exception) -> FetchError:
        reason, why = no_connection(error)
        if why == _CLOSED and self._metrics_url.scheme == "http":
            why += "; if it speaks TLS, its URL begins with https://"
        elif why == _CLOSED and self._credentials.access.cert_file is None:
            why += "; if it demands a client certificate, give cert_file and key_file"
        return FetchError(reason, f"{what}: {why}")


def no_connection(error: Exception) -> tuple[FetchReason, str]:
    """Return why there is no connection, in words."""
    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        cause = error.certificate_error
        return "tls", f"its certificate is not trusted: {getattr(cause, 'verify_message', '') or cause}"
    if isinstance(error, aiohttp.ClientConnectorSSLError):
        return "tls", "nothing speaks TLS there, or none that fits; the URL of plain HTTP begins with http://"
    if isinstance(error, aiohttp.ClientConnectorDNSError):
        return "connect", f"cannot resolve {error.host}"
    cause = error.os_error if isinstance(error, aiohttp.ClientConnectorError) else error
    reset = getattr(error, "errno", None) == errno.ECONNRESET
    if reset or isinstance(cause, aiohttp.ServerDisconnectedError | ConnectionResetError):
        return "connect", _CLOSED
    if isinstance(error, OSError) and error.errno is not None and error.errno in errno.errorcode:
        return "connect", f"cannot connect: {os.strerror(error.errno)}"
    return "connect", f"cannot connect: {cause or type(cause).__name__}"


def _endpoints(text: str) -> tuple[URL, URL]:
    """Return the URL of the metrics, and the base of all others."""
    try:
        url = URL(text.strip()).with_fragment(None)
    except ValueError:
        url = URL()
    if url.scheme not in ("http", "https") or not url.host:
        shown = text.rpartition("@")[2]
        raise ConfigError(f"expected a predictor URL such as http://127.0.0.1:8080, found {shown!r}")
    path = url.path.rstrip("/")
    # A client of the API is given http://HOST/v1, below which vLLM has no metrics.
    above = path.removesuffix("/metrics") if path.endswith("/metrics") else _API_PATH.sub("", path)
    base = url.with_path(above or "/")
    return (base / "metrics").with_query(url.query), base


def _status(code: int) -> str:
    try:
        return f"{code} {HTTPStatus(code).phrase}"
    except ValueError:
        return str(code)


def _redirected(source: URL, location: str | None) -> URL:
    """Return the target of a redirect, with the credentials of ``source``. Refuses other servers."""
    try:
        target = source.join(URL(location or "")).with_fragment(None)
        if location and target.origin() == source.origin():
            return target.with_user(source.user).with_password(source.password)
        where = without_credentials(target)
    except ValueError:  # also without a host
        where = "an unusable address"
    raise FetchError(
        "redirect", f"GET {without_credentials(source)} was redirected to {where}; expected the same host and port"
    )


async def _read(
    response: aiohttp.ClientResponse, max_bytes: int, what: str, large: Callable[[], Awaitable[object]]
) -> bytes:
    """Return the body. One that grows large waits for ``large`` first, and must then arrive soon."""
    too_large = FetchError("too_large", f"{what} answered more than {max_bytes} bytes")
    if (response.content_length or 0) > max_bytes:
        raise too_large
    encoding = response.headers.get("Content-Encoding", "").strip().lower()
    if encoding not in ("", "identity"):
        raise FetchError("encoding", f"{what} answered in Content-Encoding {encoding[:40]!r}; expected identity")
    body = bytearray()
    try:
        if not await _read_until(body, response.content, bounds.SMALL_BODY_BYTES):
            await large()
            async with asyncio.timeout(bounds.LARGE_BODY_SECONDS):
                if not await _read_until(body, response.content, max_bytes):
                    raise too_large
    except TimeoutError as error:
        raise FetchError(
            "timeout", f"{what}: a large body did not arrive within {bounds.LARGE_BODY_SECONDS:g} s"
        ) from error
    except (aiohttp.ClientError, OSError) as error:
        raise FetchError(
            "truncated", f"{what}: the connection was cut after {len(body)} bytes of the answer"
        ) from error
    return bytes(body)


async def _read_until(body: bytearray, content: aiohttp.StreamReader, most: int) -> bool:
    """Add to ``body`` what arrives; return whether it ended before there were more than ``most`` bytes."""
    while len(body) <= most:
        if not (chunk := await content.readany()):
            return True
        body += chunk
    return False


def without_credentials(url: URL | str) -> str:
    """Return ``url`` without user, password and query, which may hold a token."""
    parts = urlsplit(str(url))
    host = parts.netloc.rpartition("@")[2]
    return urlunsplit((parts.scheme, host, parts.path, "", ""))
