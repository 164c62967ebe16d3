"""Following a container's log through the Kubernetes API, played here by a real HTTP server."""

from __future__ import annotations

import asyncio
import itertools
import json
import logging
from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from aiohttp import web
from hypothesis import given
from hypothesis import strategies as st

from specdec_exporter.config import Access
from specdec_exporter.errors import ConfigError
from specdec_exporter.predictor.log.counters import ReaderCounters
from specdec_exporter.predictor.log.events import Event, PredictorWarning
from specdec_exporter.predictor.sources.kubelog import (
    Container,
    KubernetesLogReader,
    StampedLines,
    predictors_container,
)
from support.logfiles import Following, LineScanner, texts
from support.running import listening

LONG_AGO = "2026-01-01T00:00:0"
PATH = "/api/v1/namespaces/prod/pods/llama-0/log"


class EveryLine(LineScanner):
    """Puts a label before every line, and counts the ends."""

    def __init__(self, label: str = "") -> None:
        super().__init__()
        self.label = label
        self.finished = 0

    def scan(self, buffer: bytearray, end: int) -> list[Event]:
        return [PredictorWarning(warning=self.label + text) for text in texts(super().scan(buffer, end))]

    def finish(self, tail: bytes = b"") -> list[Event]:
        assert not tail
        self.finished += 1
        return []


class Api:
    """The part of the Kubernetes API server that serves logs."""

    def __init__(self) -> None:
        self.log: list[str] = []  # lines with their timestamps
        self.requests: list[web.Request] = []
        self.refusal: tuple[int, object] | None = None  # status and body
        self.token = "first-token"
        self.url = ""
        self._changed = asyncio.Condition()
        self._streams = 0
        self._hang_ups = 0
        self._endings = 0

    async def write(self, *lines: str) -> None:
        """Log lines such as ``1.5Z text``, which begin with a second of long ago."""
        async with self._changed:
            self.log += [f"{LONG_AGO}{line}\n" for line in lines]
            self._changed.notify_all()

    async def hang_up(self) -> None:
        """Cut the connections in the middle of a line."""
        async with self._changed:
            self._hang_ups = self._streams
            self._changed.notify_all()

    async def end(self) -> None:
        """End the streams in good order, as when the container has ended."""
        async with self._changed:
            self._endings = self._streams
            self._changed.notify_all()

    async def requested(self, count: int) -> None:
        async with self._changed:
            await self._changed.wait_for(lambda: len(self.requests) >= count)

    async def handle(self, request: web.Request) -> web.StreamResponse:
        async with self._changed:
            self.requests.append(request)
            self._changed.notify_all()
            self._streams += 1
            number = self._streams
        if self.refusal is not None:
            status, body = self.refusal
            return web.Response(status=status, text=body if isinstance(body, str) else json.dumps(body))
        if request.headers.get("Authorization") != f"Bearer {self.token}":
            return web.json_response({"kind": "Status", "message": "Unauthorized"}, status=401)
        since = request.query.get("sinceTime", "")
        response = web.StreamResponse()
        await response.prepare(request)
        sent = 0
        while True:
            lines = [line for line in self.log[sent:] if line[:19] >= since[:19]]
            sent = len(self.log)
            await response.write("".join(lines).encode())
            async with self._changed:
                await self._changed.wait_for(
                    lambda: len(self.log) > sent or number <= self._hang_ups or number <= self._endings  # noqa: B023
                )
            if number <= self._endings:
                return response
            if number <= self._hang_ups:
                await response.write(b"2026-01-01T00:00:09Z half a li")
                assert request.transport
                request.transport.abort()
                return response


@pytest.fixture
async def api() -> AsyncIterator[Api]:
    api = Api()
    app = web.Application()
    app.add_routes([web.get(PATH, api.handle)])
    async with listening(web.AppRunner(app, shutdown_timeout=0.1, handler_cancellation=True)) as port:
        api.url = f"http://127.0.0.1:{port}"
        yield api


Followed = Following[KubernetesLogReader]


@pytest.fixture
def token(tmp_path: Path) -> Path:
    path = tmp_path / "token"
    path.write_text("first-token\n")
    return path


@pytest.fixture
def scanner() -> EveryLine:
    return EveryLine()


def reader(url: str, token: Path, scanner: EveryLine, history: EveryLine | None = None) -> KubernetesLogReader:
    return KubernetesLogReader(
        Container(url, Access(bearer_token_file=str(token)), "prod", "llama-0", "kserve-container"),
        scanner=scanner,
        counters=ReaderCounters(),
        history_scanner=history,
        start="end" if history else "start",
        first_retry_seconds=0.01,
    )


@pytest.fixture
async def followed(api: Api, token: Path, scanner: EveryLine) -> AsyncIterator[Followed]:
    async with Following(reader(api.url, token, scanner)) as followed:
        yield followed
    assert scanner.finished


async def test_lines_come_as_they_are_written_and_without_their_timestamps(api: Api, followed: Followed) -> None:
    await api.write("1.5Z one", "1.52Z two")
    await followed.until("one", "two")
    await api.write("2Z 2026-01-01T00:00:02Z three")
    await followed.until("one", "two", "2026-01-01T00:00:02Z three")
    query = api.requests[0].query
    assert dict(query) == {"container": "kserve-container", "follow": "true", "timestamps": "true"}
    assert followed.source.problem is None
    assert followed.source.counters.bytes == sum(len(line) for line in api.log)


async def test_a_cut_connection_loses_and_repeats_nothing(api: Api, followed: Followed) -> None:
    await api.write("1.1Z one", "1.25Z two")
    await followed.until("one", "two")
    await api.hang_up()
    await api.requested(2)
    await api.write("1.3Z three", "9Z half a line")
    await followed.until("one", "two", "three", "half a line")
    assert api.requests[1].query["sinceTime"] == f"{LONG_AGO}1Z"
    assert followed.source.counters.read_errors == 1
    assert followed.source.problem is None


async def test_a_restarted_container_is_followed_on(api: Api, followed: Followed, scanner: EveryLine) -> None:
    await api.write("1Z old life")
    await followed.until("old life")
    await api.end()
    await api.requested(2)
    assert scanner.finished == 1
    api.log = []
    await api.write("2Z new life")
    await api.end()
    await followed.until("old life", "new life")
    assert followed.source.counters.read_errors == 0


async def test_what_was_written_before_the_start_is_history(api: Api, token: Path) -> None:
    later = f"{datetime.now(UTC) + timedelta(hours=1):%Y-%m-%dT%H:%M:%S}.000000001Z"
    await api.write("1Z engine init", "2Z window")
    api.log.append(f"{later} window\n")
    async with Following(reader(api.url, token, EveryLine("after: "), EveryLine("before: "))) as followed:
        await followed.until("before: engine init", "before: window", "after: window")


async def test_a_renewed_token_is_used(api: Api, followed: Followed, token: Path) -> None:
    await api.write("1Z one")
    await followed.until("one")
    api.token = "second-token"
    await api.hang_up()
    await api.requested(3)  # refused at least once
    assert followed.source.problem == "the Kubernetes API answered 401: Unauthorized"
    token.write_text("second-token")
    await api.write("2Z two")
    await followed.until("one", "two")
    assert followed.source.problem is None


@pytest.mark.parametrize(
    ("status", "body", "problem"),
    [
        (403, {"message": 'pods "x" is forbidden'}, 'pods "x" is forbidden; let the service account "get" "pods/log"'),
        (400, {"message": "x" * 1000}, "x" * 300),
    ],
)
async def test_a_refusal_is_reported_once_in_the_api_s_words(
    api: Api, token: Path, caplog: pytest.LogCaptureFixture, *, status: int, body: object, problem: str
) -> None:
    problem = f"the Kubernetes API answered {status}: {problem}"
    with caplog.at_level(logging.INFO, "specdec_exporter"):
        api.refusal = (status, body)
        async with Following(reader(api.url, token, EveryLine())) as followed:
            await api.requested(4)
            assert followed.source.problem == problem
            assert followed.source.counters.read_errors >= 2
            api.refusal = None
            await api.write("1Z at last")
            await followed.until("at last")
            assert not followed.source.problem
    warnings = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert warnings == [f"cannot read the log of container kserve-container of pod prod/llama-0: {problem}"]


@pytest.mark.parametrize(("has_token", "problem"), [(True, "127.0.0.1:1"), (False, "No such file")])
async def test_nobody_listening_and_a_missing_token_are_problems_not_crashes(
    token: Path, has_token: bool, problem: str
) -> None:
    if not has_token:
        token.unlink()
    async with Following(reader("http://127.0.0.1:1", token, EveryLine())) as followed:
        async with asyncio.timeout(5):
            while followed.source.counters.read_errors < 2:
                await asyncio.sleep(0.005)
        assert problem in (followed.source.problem or "")


async def test_a_line_too_long_to_hold_and_a_broken_sink_cost_one_event(api: Api, followed: Followed) -> None:
    await api.write(f"1Z {'x' * 600_000}", "2Z bad", "3Z next")
    await followed.until("next")
    assert followed.source.counters.oversized_lines == 1
    assert followed.source.counters.read_errors == 1


# -- timestamps ------------------------------------------------------------------------------------------------------

STAMPS = st.datetimes(datetime(2020, 1, 1), datetime(2035, 1, 1)).map(lambda moment: moment.replace(microsecond=0))  # noqa: DTZ001


def stamp(moment: datetime, nanoseconds: int, zone_hours: int) -> str:
    fraction = f".{nanoseconds:09}".rstrip("0").rstrip(".")
    zone = "Z" if not zone_hours else f"{zone_hours:+03}:00"
    return f"{moment + timedelta(hours=zone_hours):%Y-%m-%dT%H:%M:%S}{fraction}{zone}"


def blocks(lines: list[str], cuts: list[int]) -> Iterator[bytes]:
    edges = sorted({0, len(lines), *(cut % (len(lines) + 1) for cut in cuts)})
    for start, end in itertools.pairwise(edges):
        yield "".join(lines[start:end]).encode()


@given(
    st.lists(
        st.tuples(STAMPS, st.integers(0, 999_999_999), st.integers(-11, 12)), min_size=1, max_size=12, unique=True
    ),
    st.lists(st.integers(0, 12), max_size=3),
    st.integers(0, 12),
)
def test_whatever_is_repeated_after_a_cut_is_read_once(
    moments: list[tuple[datetime, int, int]], cuts: list[int], read_before: int
) -> None:
    ordered = sorted({(moment, nanoseconds) for moment, nanoseconds, _ in moments})
    zone = moments[0][2]
    lines = [f"{stamp(moment, nanoseconds, zone)} {index}\n" for index, (moment, nanoseconds) in enumerate(ordered)]
    stamped = StampedLines(EveryLine(), None, -1)
    seen: list[Event] = []
    for part in (lines[:read_before], lines):
        stamped.resume()
        for block in blocks(part, cuts):
            if block:
                seen += stamped.scan(bytearray(block), len(block))
    assert [event.warning for event in seen if isinstance(event, PredictorWarning)] == [
        str(index) for index in range(len(lines))
    ]


def test_a_line_without_a_usable_timestamp_belongs_to_the_line_before() -> None:
    stamped = StampedLines(EveryLine(), None, -1)
    block = bytearray(b"2026-02-30T00:00:00Z never\nno stamp\n2026-01-01T00:00:01Z new\nmore of it\n")
    assert [getattr(event, "warning", "") for event in stamped.scan(block, len(block))] == ["new", "more of it"]


# -- configuration ---------------------------------------------------------------------------------------------------

IN_POD = {"KUBERNETES_SERVICE_HOST": "10.0.0.1", "KUBERNETES_SERVICE_PORT": "6443", "POD_NAME": "llama-0"}


def from_environment(service_account: Path, environ: dict[str, str], lacks: str = "") -> KubernetesLogReader:
    for name, text in {"token": "t", "ca.crt": "", "namespace": "prod\n"}.items():
        if name != lacks:
            (service_account / name).write_text(text)
    given = {name: value for name, value in (IN_POD | environ).items() if name != lacks}
    container = predictors_container(given, service_account)
    return KubernetesLogReader(container, scanner=EveryLine(), counters=ReaderCounters())


def test_the_pod_tells_what_to_read(tmp_path: Path) -> None:
    found = from_environment(tmp_path, {})
    assert found._url == f"https://10.0.0.1:6443{PATH}"
    environ = {"KUBERNETES_SERVICE_HOST": "fd00::1", "POD_NAMESPACE": "n", "SPECDEC_PREDICTOR_CONTAINER": "vllm"}
    other = from_environment(tmp_path, environ)
    assert other._url == "https://[fd00::1]:6443/api/v1/namespaces/n/pods/llama-0/log"
    assert other._container == "vllm"


@pytest.mark.parametrize(
    ("lacks", "says"),
    [
        ("KUBERNETES_SERVICE_HOST", "KUBERNETES_SERVICE_HOST"),
        ("POD_NAME", "POD_NAME"),
        ("token", "automountServiceAccountToken"),
        ("namespace", "POD_NAMESPACE"),
    ],
)
def test_what_is_missing_is_named(tmp_path: Path, lacks: str, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        from_environment(tmp_path, {}, lacks)
