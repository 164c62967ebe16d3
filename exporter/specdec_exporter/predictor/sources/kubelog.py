"""The predictor's log through the Kubernetes API (``GET .../pods/POD/log?follow=true``), without a shared file.

The service account must be allowed to ``get`` the subresource ``pods/log``. The container runtime stamps every line
(RFC 3339, nanoseconds without trailing zeros). After a broken connection the reader asks for lines since the last stamp
and skips those that it may have read before.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
import os
import re
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from http import HTTPStatus
from pathlib import Path
from typing import Final, Literal, NamedTuple

import aiohttp
import msgspec

from specdec_exporter.config import Access
from specdec_exporter.errors import ConfigError, FetchError
from specdec_exporter.formatting import plain
from specdec_exporter.predictor.log.counters import ReaderCounters
from specdec_exporter.predictor.log.events import EngineConfig, Event
from specdec_exporter.predictor.log.lines import Scanner
from specdec_exporter.predictor.metrics.access import Credentials
from specdec_exporter.predictor.sources.stream import Pieces, deliver

_logger = logging.getLogger(__name__)

DEFAULT_CONTAINER: Final = "kserve-container"
SERVICE_ACCOUNT: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount")
_ASKER: Final = "--predictor.log-source=kubernetes"
_LONGEST_REFUSAL_BYTES: Final = 16 * 1024

_STAMP: Final = re.compile(
    rb"(?P<second>\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(?:\.(?P<fraction>\d{1,9}))?(?P<zone>Z|[+-]\d\d:\d\d) ?"
)
_STAMPS: Final = re.compile(rb"^" + _STAMP.pattern, re.MULTILINE)
_LINE: Final = re.compile(rb"[^\n]*\n")
_LONGEST_RETRY_SECONDS: Final = 30.0
# A stream falls silent for good when the kubelet loses a rotated file, so ask again after some silence.
_TIMEOUT: Final = aiohttp.ClientTimeout(total=None, sock_connect=10, sock_read=300)


class StampedLines:
    """A scanner that removes the timestamp of each line and passes no line on twice.

    Lines up to ``live_after`` (nanoseconds since the epoch) go to ``history``, later ones to ``live``. Lines of one
    connection may share a timestamp. After :meth:`resume`, lines count as repeated up to the newest timestamp seen.
    """

    def __init__(self, live: Scanner, history: Scanner | None, live_after: int) -> None:
        self.last = -1  # timestamp of the newest line, nanoseconds since the epoch
        self._live = live
        self._history = history
        self._live_after = live_after
        self._resume_after = -1
        self._checking = True  # until this connection brings a new line later than live_after

    def resume(self) -> None:
        """Note that a new connection begins, which may repeat lines."""
        self._resume_after = self.last
        self._checking = True

    def scan(self, buffer: bytearray, end: int) -> list[Event]:
        """Return the events of the whole lines in ``buffer[:end]``."""
        block = bytes(buffer[:end])
        old, new = self._divide(block) if self._checking else (b"", block)
        # The last line may not be the newest: stdout and stderr are stamped separately.
        self.last = max(self.last, *map(_nanoseconds, _STAMPS.finditer(block)), -1)
        events = []
        if old and self._history:
            events += [
                msgspec.structs.replace(event, historical=True) if isinstance(event, EngineConfig) else event
                for event in _scan(self._history, old)
            ]
        if new:
            events += _scan(self._live, new)
        return events

    def finish(self, tail: bytes = b"") -> list[Event]:  # noqa: ARG002  an unterminated line comes again in full
        """Return the events that the live scanner held back."""
        return self._live.finish()

    def reset(self) -> None:
        """Forget what the live scanner held back."""
        self._live.reset()

    def _divide(self, block: bytes) -> tuple[bytes, bytes]:
        """Return the lines that were not seen yet: those up to ``live_after``, and the later ones."""
        old: list[bytes] = []
        for line in _LINE.finditer(block):
            stamp = _STAMP.match(line[0])
            nanoseconds = _nanoseconds(stamp) if stamp else -1
            if nanoseconds <= self._resume_after:
                continue
            if nanoseconds > self._live_after:
                self._checking = False
                return b"".join(old), block[line.start() :]
            old.append(line[0])
        return b"".join(old), b""


class _ApiStatus(msgspec.Struct):
    """The API's answer where it refuses."""

    message: str = ""


class Container(NamedTuple):
    """A container of a pod, the ``url`` of the API that has its log, and the token and certificate for it."""

    url: str
    access: Access
    namespace: str
    pod: str
    name: str


def predictors_container(environ: Mapping[str, str] = os.environ, service_account: Path = SERVICE_ACCOUNT) -> Container:
    """Return the predictor's container in the exporter's own pod.

    Reads KUBERNETES_SERVICE_HOST and _PORT, POD_NAME, POD_NAMESPACE (default: the service account's) and
    SPECDEC_PREDICTOR_CONTAINER (default: ``kserve-container``). Raises :class:`ConfigError` if one is missing.
    """
    host, port = environ.get("KUBERNETES_SERVICE_HOST"), environ.get("KUBERNETES_SERVICE_PORT", "443")
    if not host:
        raise ConfigError(f"{_ASKER} works only inside a pod: KUBERNETES_SERVICE_HOST is not set")
    token = service_account / "token"
    if not token.is_file():
        raise ConfigError(
            f"{_ASKER} needs a service account token, but {token} does not exist"
            " (is automountServiceAccountToken false?)"
        )
    pod = environ.get("POD_NAME")
    if not pod:
        raise ConfigError(f"{_ASKER} needs POD_NAME in the environment (valueFrom: fieldRef: fieldPath: metadata.name)")
    return Container(
        url=f"https://{f'[{host}]' if ':' in host else host}:{port}",
        access=Access(ca_file=str(service_account / "ca.crt"), bearer_token_file=str(token)),
        namespace=environ.get("POD_NAMESPACE") or _namespace(service_account / "namespace"),
        pod=pod,
        name=environ.get("SPECDEC_PREDICTOR_CONTAINER") or DEFAULT_CONTAINER,
    )


class KubernetesLogReader:
    """Follows the log of one container of one pod.

    Its token and certificate are read anew for every request, because the kubelet renews them. With ``start="end"``,
    ``scanner`` gets the lines written from now on, and ``history_scanner`` gets the earlier ones, where it finds the
    engine-init line.
    """

    def __init__(
        self,
        container: Container,
        *,
        scanner: Scanner,
        counters: ReaderCounters,
        history_scanner: Scanner | None = None,
        start: Literal["end", "start"] = "end",
        first_retry_seconds: float = 1.0,
    ) -> None:
        self.counters = counters
        self.problem: str | None = None  # why the log cannot be read
        self._url = f"{container.url}/api/v1/namespaces/{container.namespace}/pods/{container.pod}/log"
        self._credentials = Credentials(container.access, has_password=False)
        self._what = f"container {container.name} of pod {container.namespace}/{container.pod}"
        self._container = container.name
        self._lines = StampedLines(scanner, history_scanner, time.time_ns() if start == "end" else -1)
        self._first_retry_seconds = first_retry_seconds
        self._retry_seconds = first_retry_seconds

    async def begin(self) -> None:
        """Do nothing: the constructor noted the time of the start."""

    async def follow(self, sink: Callable[[Event], None], stop: asyncio.Event) -> None:
        """Give events to ``sink`` until ``stop`` is set. Connects again whenever the connection ends."""
        reading = asyncio.create_task(self._read_on(sink))
        try:
            await stop.wait()
        finally:
            reading.cancel()
            await asyncio.wait({reading})
            self._deliver(self._lines.finish(), sink)

    async def _read_on(self, sink: Callable[[Event], None]) -> None:
        async with aiohttp.ClientSession(trust_env=False, cookie_jar=aiohttp.DummyCookieJar()) as session:
            while True:
                await self._connect(session, sink)
                await asyncio.sleep(self._retry_seconds)
                self._retry_seconds = min(2 * self._retry_seconds, _LONGEST_RETRY_SECONDS)

    async def _connect(self, session: aiohttp.ClientSession, sink: Callable[[Event], None]) -> None:
        """Read until the connection ends. Notes every error and raises none."""
        try:
            await self._read(session, sink)
        except aiohttp.SocketTimeoutError:
            return  # no line for minutes
        except aiohttp.ClientPayloadError:
            self._note("the connection to the Kubernetes API was cut")
        except (aiohttp.ClientError, OSError, UnicodeError, FetchError) as error:
            self._note(str(error) or type(error).__name__)
        except Exception:
            self._note("the exporter failed; its own log has the traceback")
            _logger.exception("reading the log of %s failed", self._what)
        else:
            # The container has ended, or the API server has closed the connection.
            self._deliver(self._lines.finish(), sink)

    async def _read(self, session: aiohttp.ClientSession, sink: Callable[[Event], None]) -> None:
        pieces = Pieces(self._lines, self.counters)  # a new one, because an unterminated line comes again
        self._lines.resume()
        parameters = {"container": self._container, "follow": "true", "timestamps": "true"}
        if self._lines.last >= 0:
            # The API promises to understand whole seconds only.
            since = datetime.fromtimestamp(self._lines.last // 1_000_000_000, UTC)
            parameters["sinceTime"] = f"{since:%Y-%m-%dT%H:%M:%SZ}"
        async with session.get(
            self._url,
            params=parameters,
            headers={**self._credentials.headers(), "Accept-Encoding": "identity"},
            ssl=self._credentials.context() if self._url.startswith("https:") else True,
            timeout=_TIMEOUT,
            allow_redirects=False,
        ) as response:
            if response.status != HTTPStatus.OK:
                raise FetchError("http_status", await _refusal(response))
            self._retry_seconds = self._first_retry_seconds
            if self.problem is not None:
                self.problem = None
                _logger.info("reading the log of %s again", self._what)
            async for chunk in response.content.iter_any():
                self._deliver(pieces.feed(chunk), sink)

    def _deliver(self, events: list[Event], sink: Callable[[Event], None]) -> None:
        deliver(events, sink, self.counters, f"the log of {self._what}")

    def _note(self, problem: str) -> None:
        self.counters.read_errors += 1
        if problem != self.problem:
            _logger.warning("cannot read the log of %s: %s", self._what, problem)
        self.problem = problem


async def _refusal(response: aiohttp.ClientResponse) -> str:
    """Return the API's reason for its refusal, and what to do about it."""
    said = ""
    with contextlib.suppress(aiohttp.ClientError, msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        said = msgspec.json.decode(await response.content.read(_LONGEST_REFUSAL_BYTES), type=_ApiStatus).message
    allow = '; let the service account "get" "pods/log"' if response.status == HTTPStatus.FORBIDDEN else ""
    return plain(f"the Kubernetes API answered {response.status}: {said[:300] or response.reason}{allow}")


def _namespace(path: Path) -> str:
    try:
        return path.read_text("utf-8").strip()
    except OSError as error:
        raise ConfigError(f"{_ASKER} needs POD_NAMESPACE in the environment or {path}: {error.strerror}") from error


def _scan(scanner: Scanner, block: bytes) -> list[Event]:
    text = bytearray(_STAMPS.sub(b"", block))
    return scanner.scan(text, len(text))


def _nanoseconds(stamp: re.Match[bytes]) -> int:
    """Return nanoseconds since the epoch; -1 where there is no such time, such as the 30th of February."""
    seconds = _seconds(stamp["second"] + stamp["zone"].replace(b"Z", b"+00:00"))
    return -1 if seconds < 0 else seconds * 1_000_000_000 + int((stamp["fraction"] or b"").ljust(9, b"0"))


@functools.lru_cache(maxsize=16)
def _seconds(text: bytes) -> int:
    try:
        return int(datetime.fromisoformat(text.decode()).timestamp())
    except ValueError:
        return -1
