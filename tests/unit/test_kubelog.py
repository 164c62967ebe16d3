"""Following a container's log through the Kubernetes API, played here by a real HTTP server."""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from aiohttp import web
from hypothesis import given
from hypothesis import strategies as st

from specdec_exporter.errors import ConfigError
from specdec_exporter.predictor.log.counters import ReaderCounters
from specdec_exporter.predictor.log.events import Event, PredictorWarning
from specdec_exporter.predictor.sources.kubelog import KubernetesLogReader, StampedLines

LONG_AGO = "2026-01-01T00:00:0"
PATH = "/api/v1/namespaces/prod/pods/llama-0/log"


class EveryLine:
    """A scanner that makes an event of every line."""

    def __init__(self, label: str = "") -> None:
        self.label = label
        self.finished = 0

    def scan(self, buffer: bytearray, end: int) -> list[Event]:
        assert buffer[:end].endswith(b"\n")
        return [PredictorWarning(warning=self.label + line.decode()) for line in bytes(buffer[:end]).splitlines()]

    def finish(self, tail: bytes = b"") -> list[Event]:
        assert not tail
        self.finished += 1
        return []

    def reset(self) -> None:
        raise AssertionError("nothing here is ever cut")


class Api:
    """The part of the Kubernetes API server that serves logs. Lines are ``(timestamp, text)``."""

    def __init__(self) -> None:
        self.log: list[tuple[str, str]] = []
        self.requests: list[web.Request] = []
        self.refuse: web.Response | None = None
        self.token = "first-token"
        self._changed = asyncio.Condition()
        self._streams = 0
        self._hang_ups = 0
        self._endings = 0

    async def write(self, *lines: tuple[str, str]) -> None:
        async with self._changed:
            self.log += lines
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
        if self.refuse is not None:
            return self.refuse
        if request.headers.get("Authorization") != f"Bearer {self.token}":
            return web.json_response({"kind": "Status", "message": "Unauthorized"}, status=401)
        since = request.query.get("sinceTime", "")
        response = web.StreamResponse()
        await response.prepare(request)
        sent = 0
        while True:
            lines = [f"{stamp} {text}\n" for stamp, text in self.log[sent:] if stamp[:19] >= since[:19]]
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


@asynccontextmanager
async def serving(api: Api) -> AsyncIterator[str]:
    app = web.Application()
    app.add_routes([web.get(PATH, api.handle)])
    runner = web.AppRunner(app, shutdown_timeout=0.1, handler_cancellation=True)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


class Followed:
    """A reader at work, and what it gave."""

    def __init__(self, reader: KubernetesLogReader) -> None:
        self.reader = reader
        self.seen: list[str] = []
        self._more = asyncio.Event()

    def sink(self, event: Event) -> None:
        assert isinstance(event, PredictorWarning)
        self._more.set()
        if event.warning == "explode":
            raise RuntimeError("the sink is broken")
        self.seen.append(event.warning)

    async def until(self, *expected: str) -> None:
        async with asyncio.timeout(5):
            while len(self.seen) < len(expected):
                self._more.clear()
                await self._more.wait()
        assert self.seen == list(expected)


@asynccontextmanager
async def following(reader: KubernetesLogReader) -> AsyncIterator[Followed]:
    followed, stop = Followed(reader), asyncio.Event()
    task = asyncio.create_task(reader.follow(followed.sink, stop))
    try:
        yield followed
    finally:
        stop.set()
        async with asyncio.timeout(5):
            await task


@pytest.fixture
def token(tmp_path: Path) -> Path:
    path = tmp_path / "token"
    path.write_text("first-token\n")
    return path


def reader(url: str, token: Path, *, start: str = "start", **options: EveryLine) -> KubernetesLogReader:
    return KubernetesLogReader(
        api_url=url,
        token_path=token,
        ca_path=None,
        namespace="prod",
        pod="llama-0",
        container="kserve-container",
        scanner=options.pop("scanner", EveryLine()),
        counters=ReaderCounters(),
        start="start" if start == "start" else "end",
        first_retry_seconds=0.01,
        **options,
    )


async def test_lines_come_as_they_are_written_and_without_their_timestamps(token: Path) -> None:
    api = Api()
    async with serving(api) as url, following(reader(url, token)) as followed:
        await api.write((f"{LONG_AGO}1.5Z", "one"), (f"{LONG_AGO}1.52Z", "two"))
        await followed.until("one", "two")
        await api.write((f"{LONG_AGO}2Z", "2026-01-01T00:00:02Z three"))
        await followed.until("one", "two", "2026-01-01T00:00:02Z three")
        query = api.requests[0].query
        assert dict(query) == {"container": "kserve-container", "follow": "true", "timestamps": "true"}
        assert followed.reader.healthy
        assert followed.reader.counters.bytes == sum(len(f"{stamp} {text}\n") for stamp, text in api.log)


async def test_a_cut_connection_loses_and_repeats_nothing(token: Path) -> None:
    api = Api()
    async with serving(api) as url, following(reader(url, token)) as followed:
        await api.write((f"{LONG_AGO}1.1Z", "one"), (f"{LONG_AGO}1.25Z", "two"))
        await followed.until("one", "two")
        await api.hang_up()
        await api.requested(2)
        await api.write((f"{LONG_AGO}1.3Z", "three"), (f"{LONG_AGO}9Z", "half a line"))
        await followed.until("one", "two", "three", "half a line")
        assert api.requests[1].query["sinceTime"] == f"{LONG_AGO}1Z"
        assert followed.reader.counters.read_errors == 1
        assert followed.reader.healthy


async def test_within_a_connection_equal_timestamps_are_different_lines(token: Path) -> None:
    api = Api()
    api.log = [(f"{LONG_AGO}1Z", "one"), (f"{LONG_AGO}1Z", "two"), (f"{LONG_AGO}1Z", "three")]
    async with serving(api) as url, following(reader(url, token)) as followed:
        await followed.until("one", "two", "three")
        await api.write((f"{LONG_AGO}1Z", "four"))
        await followed.until("one", "two", "three", "four")
        await api.hang_up()
        await api.requested(2)
        await api.write((f"{LONG_AGO}1Z", "in doubt"), (f"{LONG_AGO}2Z", "five"))
        await followed.until("one", "two", "three", "four", "five")


async def test_lines_of_two_streams_slightly_out_of_order_are_not_repeated(token: Path) -> None:
    api = Api()
    api.log = [(f"{LONG_AGO}2Z", "stdout"), (f"{LONG_AGO}1Z", "stderr")]
    async with serving(api) as url, following(reader(url, token)) as followed:
        await followed.until("stdout", "stderr")
        await api.hang_up()
        await api.requested(2)
        await api.write((f"{LONG_AGO}3Z", "next"))
        await followed.until("stdout", "stderr", "next")


async def test_a_restarted_container_is_followed_on(token: Path) -> None:
    api, scanner = Api(), EveryLine()
    async with serving(api) as url, following(reader(url, token, scanner=scanner)) as followed:
        await api.write((f"{LONG_AGO}1Z", "old life"))
        await followed.until("old life")
        await api.end()
        await api.requested(2)
        assert scanner.finished == 1
        api.log = [(f"{LONG_AGO}2Z", "new life")]
        await api.write()
        await api.end()
        await followed.until("old life", "new life")
        assert followed.reader.counters.read_errors == 0
    assert scanner.finished >= 2


async def test_what_was_written_before_the_start_is_history(token: Path) -> None:
    api = Api()
    later = f"{datetime.now(UTC) + timedelta(hours=1):%Y-%m-%dT%H:%M:%S}.000000001Z"
    api.log = [(f"{LONG_AGO}1Z", "engine init"), (f"{LONG_AGO}2Z", "window"), (later, "window")]
    at_end = reader("", token, start="end", history_scanner=EveryLine("before: "), scanner=EveryLine("after: "))
    async with serving(api) as url:
        at_end._url = url + PATH
        async with following(at_end) as followed:
            await followed.until("before: engine init", "before: window", "after: window")


async def test_a_renewed_token_is_used(token: Path) -> None:
    api = Api()
    async with serving(api) as url, following(reader(url, token)) as followed:
        await api.write((f"{LONG_AGO}1Z", "one"))
        await followed.until("one")
        api.token = "second-token"
        await api.hang_up()
        await api.requested(3)  # refused at least once
        assert followed.reader.problem == "the Kubernetes API answered 401: Unauthorized"
        token.write_text("second-token")
        await api.write((f"{LONG_AGO}2Z", "two"))
        await followed.until("one", "two")
        assert followed.reader.healthy


@pytest.mark.parametrize(
    ("response", "problem"),
    [
        (
            web.json_response({"message": 'pods "llama-0" is forbidden'}, status=403),
            'the Kubernetes API answered 403: pods "llama-0" is forbidden; let the service account "get" "pods/log"',
        ),
        (web.Response(status=404, text="<html>"), "the Kubernetes API answered 404: Not Found"),
        (web.json_response({"message": "x" * 1000}, status=400), f"the Kubernetes API answered 400: {'x' * 300}"),
    ],
)
async def test_a_refusal_is_reported_once_in_the_api_s_words(
    token: Path, response: web.Response, problem: str, caplog: pytest.LogCaptureFixture
) -> None:
    api = Api()
    body = response.body
    with caplog.at_level(logging.INFO, "specdec_exporter"):
        async with serving(api) as url, following(reader(url, token)) as followed:
            for _ in range(3):
                api.refuse = web.Response(body=body, status=response.status)
                await api.requested(len(api.requests) + 1)
            assert (followed.reader.problem, followed.reader.healthy) == (problem, False)
            assert followed.reader.counters.read_errors >= 2
            api.refuse = None
            await api.write((f"{LONG_AGO}1Z", "at last"))
            await followed.until("at last")
            assert (followed.reader.problem, followed.reader.healthy) == (None, True)
    warnings = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert warnings == [f"cannot read the log of container kserve-container of pod prod/llama-0: {problem}"]


async def test_nobody_listening_and_a_missing_token_are_problems_not_crashes(token: Path) -> None:
    async with following(reader("http://127.0.0.1:1", token)) as followed:
        async with asyncio.timeout(5):
            while followed.reader.counters.read_errors < 2:
                await asyncio.sleep(0.005)
        assert "127.0.0.1:1" in (followed.reader.problem or "")
    token.unlink()
    async with following(reader("http://127.0.0.1:1", token)) as followed:
        async with asyncio.timeout(5):
            while followed.reader.healthy:
                await asyncio.sleep(0.005)
        assert "No such file" in (followed.reader.problem or "")


async def test_a_line_too_long_to_hold_is_skipped(token: Path) -> None:
    api = Api()
    async with serving(api) as url, following(reader(url, token)) as followed:
        await api.write((f"{LONG_AGO}1Z", "x" * 600_000), (f"{LONG_AGO}2Z", "next"))
        await followed.until("next")
        assert followed.reader.counters.oversized_lines == 1


async def test_a_broken_sink_costs_one_event(token: Path) -> None:
    api = Api()
    async with serving(api) as url, following(reader(url, token)) as followed:
        await api.write((f"{LONG_AGO}1Z", "explode"), (f"{LONG_AGO}2Z", "next"))
        await followed.until("next")
        assert followed.reader.counters.read_errors == 1


async def test_an_abandoned_follow_leaves_no_task_behind(token: Path) -> None:
    api = Api()
    async with serving(api) as url:
        before = asyncio.all_tasks()
        task = asyncio.create_task(reader(url, token).follow(lambda _: None, asyncio.Event()))
        await api.requested(1)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert {
            left for left in asyncio.all_tasks() - before if "follow" in repr(left) or "_connect" in repr(left)
        } == set()


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


@pytest.fixture
def service_account(tmp_path: Path) -> Path:
    for name, text in {"token": "t", "ca.crt": "", "namespace": "prod\n"}.items():
        (tmp_path / name).write_text(text)
    return tmp_path


IN_POD = {"KUBERNETES_SERVICE_HOST": "10.0.0.1", "KUBERNETES_SERVICE_PORT": "6443", "POD_NAME": "llama-0"}


def from_environment(environ: dict[str, str], service_account: Path) -> KubernetesLogReader:
    return KubernetesLogReader.from_environment(
        scanner=EveryLine(), counters=ReaderCounters(), environ=environ, service_account=service_account
    )


def test_the_pod_tells_what_to_read(service_account: Path) -> None:
    assert from_environment(IN_POD, service_account)._url == f"https://10.0.0.1:6443{PATH}"
    other = from_environment(
        {**IN_POD, "KUBERNETES_SERVICE_HOST": "fd00::1", "POD_NAMESPACE": "n", "SPECDEC_PREDICTOR_CONTAINER": "vllm"},
        service_account,
    )
    assert other._url == "https://[fd00::1]:6443/api/v1/namespaces/n/pods/llama-0/log"
    assert other._container == "vllm"


@pytest.mark.parametrize("missing", ["KUBERNETES_SERVICE_HOST", "POD_NAME"])
def test_a_missing_variable_is_named(service_account: Path, missing: str) -> None:
    environ = {name: value for name, value in IN_POD.items() if name != missing}
    with pytest.raises(ConfigError, match=missing):
        from_environment(environ, service_account)


@pytest.mark.parametrize(("file", "says"), [("token", "automountServiceAccountToken"), ("namespace", "POD_NAMESPACE")])
def test_a_missing_file_is_named(service_account: Path, file: str, says: str) -> None:
    (service_account / file).unlink()
    with pytest.raises(ConfigError, match=says):
        from_environment(IN_POD, service_account)
