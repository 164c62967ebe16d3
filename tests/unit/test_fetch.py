"""Fetching from real servers that answer well, badly, slowly or not at all."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import gzip
import socket
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from specdec_exporter import bounds
from specdec_exporter.errors import ConfigError, FetchError
from specdec_exporter.predictor.metrics import fetch
from specdec_exporter.predictor.metrics.exposition import parse_exposition
from specdec_exporter.predictor.metrics.fetch import MetricsFetcher
from specdec_exporter.predictor.metrics.snapshot import Snapshot

BODY = (
    b"# HELP vllm:num_requests_running Running.\n# TYPE vllm:num_requests_running gauge\n"
    b'vllm:num_requests_running{engine="0",model_name="m"} 3.0\n'
)
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


def answer(
    body: bytes = BODY, *, status: int = 200, content_type: str = "text/plain; version=0.0.4", **headers: str
) -> web.Response:
    extra = {name.replace("_", "-"): value for name, value in headers.items()}
    return web.Response(body=body, status=status, headers={"Content-Type": content_type, **extra})


@asynccontextmanager
async def serving(*routes: tuple[str, Handler | web.Response]) -> AsyncIterator[str]:
    """The base URL of a server with these GET routes; a response is given again and again."""

    def again(response: web.Response) -> Handler:
        async def handler(_: web.Request) -> web.Response:
            return web.Response(body=response.body, status=response.status, headers=response.headers)

        return handler

    app = web.Application()
    app.add_routes([web.get(path, again(to) if isinstance(to, web.Response) else to) for path, to in routes])
    async with TestServer(app) as server:
        yield str(server.make_url("")).rstrip("/")


Talk = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@asynccontextmanager
async def raw_server(talk: Talk | bytes) -> AsyncIterator[str]:
    """The URL of a server that talks in bytes: to each connection anew, or the same after every request."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.closing(writer), contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            if isinstance(talk, bytes):
                await reader.readuntil(b"\r\n\r\n")
                writer.write(talk)
                await writer.drain()
            else:
                await talk(reader, writer)

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"


async def failure(fetcher: MetricsFetcher, timeout_seconds: float = 5.0) -> FetchError:
    with pytest.raises(FetchError) as caught:
        await fetcher.fetch(timeout_seconds)
    return caught.value


# -- addresses -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("suffix", ["", "/", "/metrics", "/metrics/", "/#fragment", "/v1", "/v1/", "/v1/models"])
async def test_the_base_or_the_whole_address_will_do(session: aiohttp.ClientSession, suffix: str) -> None:
    async with serving(
        ("/metrics", answer()),
        ("/version", web.json_response({"version": "0.32.0", "rust_frontend_version": "0.32.0"})),
    ) as url:
        fetcher = MetricsFetcher(session, url + suffix)
        assert (await fetcher.fetch(5)).engines[0].requests_running == 3.0
        assert await fetcher.version(5) == "0.32.0"


async def test_a_path_in_front_and_a_query_are_kept(session: aiohttp.ClientSession) -> None:
    async def metrics(request: web.Request) -> web.Response:
        return answer() if request.query_string == "a=b" else answer(status=404)

    async with serving(("/some/where/metrics", metrics)) as url:
        assert (await MetricsFetcher(session, f"{url}/some/where/metrics?a=b").fetch(5)).stats_present


async def test_credentials_are_sent_and_never_shown(session: aiohttp.ClientSession) -> None:
    sent: list[str | None] = []

    async def metrics(request: web.Request) -> web.Response:
        sent.append(request.headers.get("Authorization"))
        return answer(status=403)

    async with serving(("/metrics", metrics)) as url:
        error = await failure(MetricsFetcher(session, url.replace("//", "//admin:s3cret@") + "/?token=s3cret"))
    assert sent == ["Basic " + base64.b64encode(b"admin:s3cret").decode()]
    assert "s3cret" not in str(error)
    assert "admin" not in str(error)
    assert str(error) == f"GET {url}/metrics answered 403 Forbidden"


@pytest.mark.parametrize(
    "url",
    ["", "ftp://host/", "http://", "http://u:s3cret@host:port/", "u:s3cret@host:80"],
)
async def test_what_is_no_address_is_a_configuration_error(session: aiohttp.ClientSession, url: str) -> None:
    with pytest.raises(ConfigError, match="expected a predictor URL such as") as caught:
        MetricsFetcher(session, url)
    assert "s3cret" not in str(caught.value)


async def test_the_classic_text_format_is_asked_for(session: aiohttp.ClientSession) -> None:
    seen: dict[str, str] = {}

    async def metrics(request: web.Request) -> web.Response:
        seen.update(request.headers)
        return answer()

    async with serving(("/metrics", metrics)) as url:
        await MetricsFetcher(session, url).fetch(5)
    assert seen["Accept"] == "text/plain;version=0.0.4"
    assert seen["Accept-Encoding"] == "identity"
    assert "Cookie" not in seen


# -- answers ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("response", "reason", "says"),
    [
        (answer(status=503), "http_status", "answered 503 Service Unavailable"),
        (answer(b"", status=204), "http_status", "answered 204 No Content"),
        (answer(status=299), "http_status", "answered 299"),
        (answer(b"<html>login</html>", content_type="text/html"), "not_metrics", "found '<html>login"),
        (answer(b""), "not_metrics", "found nothing"),
        (answer(BODY[:-1]), "truncated", "breaks off in mid-line"),
        (answer(BODY, content_type="application/openmetrics-text; version=1.0.0"), "truncated", "# EOF"),
        (answer(BODY, Content_Encoding="br"), "encoding", "Content-Encoding 'br'"),
        (answer(gzip.compress(BODY), Content_Encoding="gzip"), "encoding", "'gzip'; expected identity"),
        (answer(gzip.compress(BODY)), "encoding", "found gzip"),
        *(
            (answer(status=302, Location=elsewhere), "redirect", "expected the same host and port")
            for elsewhere in ("http://localhost:1/metrics", "//other/metrics", "ftp://x/", "http://[", "")
        ),
        (answer(status=302), "redirect", "expected the same host and port"),
    ],
)
async def test_a_bad_answer_says_what_was_found(
    session: aiohttp.ClientSession, response: web.Response, reason: str, says: str
) -> None:
    async with serving(("/metrics", response)) as url:
        error = await failure(MetricsFetcher(session, url))
    assert error.reason == reason
    assert str(error).startswith(f"GET {url}/metrics")
    assert says in str(error)


@pytest.mark.parametrize("announced", [False, True])
async def test_a_body_over_the_limit_is_not_taken_in(
    session: aiohttp.ClientSession, monkeypatch: pytest.MonkeyPatch, announced: bool
) -> None:
    monkeypatch.setattr(bounds, "BODY_BYTES", 100_000)
    body = b"\n" * 200_000
    sent_all = False

    async def metrics(request: web.Request) -> web.StreamResponse:
        nonlocal sent_all
        if announced:
            return answer(body)
        response = web.StreamResponse()
        await response.prepare(request)
        for _ in range(1000):
            await response.write(body)
        sent_all = True
        return response

    async with serving(("/metrics", metrics)) as url:
        error = await failure(MetricsFetcher(session, url))
    assert error.reason == "too_large"
    assert not sent_all


async def test_scrapers_who_give_up_leave_one_body_in_flight(
    session: aiohttp.ClientSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bounds, "SMALL_BODY_BYTES", 1)
    parsing, go_on = threading.Event(), threading.Event()
    bodies = 0

    def parse(body: bytes, **settings: Any) -> Snapshot:
        nonlocal bodies
        bodies += 1
        parsing.set()
        go_on.wait(20)
        return parse_exposition(body, **settings)

    monkeypatch.setattr(fetch, "parse_exposition", parse)
    async with serving(("/metrics", answer())) as url:
        fetcher = MetricsFetcher(session, url)
        first = asyncio.create_task(fetcher.fetch(20))
        await asyncio.to_thread(parsing.wait, 20)
        first.cancel()
        assert [(await failure(fetcher, 0.01)).reason for _ in range(3)] == ["timeout"] * 3
        last = asyncio.create_task(fetcher.fetch(20))
        await asyncio.sleep(0)
        go_on.set()
        assert (await last).stats_present
        assert bodies == 1
        assert (await fetcher.fetch(20)).stats_present
        assert bodies == 2


async def test_only_one_large_body_is_held_at_a_time(
    session: aiohttp.ClientSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bounds, "SMALL_BODY_BYTES", 1000)
    monkeypatch.setattr(bounds, "LARGE_BODY_SECONDS", 0.1)
    dripping = asyncio.Event()

    async def drip(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        await response.write(b"# " + b"x" * 2000)
        dripping.set()
        await asyncio.Event().wait()
        return response

    large = answer(BODY + b"# HELP other " + b"x" * 5000 + b"\n")
    lock = asyncio.Lock()
    async with serving(("/slow/metrics", drip), ("/metrics", large), ("/small/metrics", answer())) as url:
        slow = asyncio.create_task(failure(MetricsFetcher(session, f"{url}/slow", large_body=lock), 20))
        await dripping.wait()
        assert (await MetricsFetcher(session, f"{url}/small", large_body=lock).fetch(20)).stats_present
        assert (await MetricsFetcher(session, url, large_body=lock).fetch(20)).stats_present
        assert "large body" in str(await slow)
    assert not lock.locked()


async def test_known_engines_keep_their_place(session: aiohttp.ClientSession) -> None:
    names = ["b", "c"]

    async def metrics(_: web.Request) -> web.Response:
        return answer(b"".join(b'vllm:num_requests_running{engine="%b"} 1\n' % name.encode() for name in names))

    async with serving(("/metrics", metrics)) as url:
        fetcher = MetricsFetcher(session, url, most_engines=2)
        await fetcher.fetch(5)
        names[:0] = ["a"]
        found = await fetcher.fetch(5)
    assert [engine.engine for engine in found.engines] == ["b", "c"]
    assert found.dropped == {"engines": 1}


# -- redirects -------------------------------------------------------------------------------------------------------


async def test_a_redirect_on_the_same_server_is_followed_with_the_credentials(session: aiohttp.ClientSession) -> None:
    async def real(request: web.Request) -> web.Response:
        return answer() if "Authorization" in request.headers else answer(status=401)

    async with serving(("/metrics", answer(status=307, Location="/metrics/")), ("/metrics/", real)) as url:
        assert (await MetricsFetcher(session, url.replace("//", "//u:p@")).fetch(5)).stats_present


async def test_a_redirect_to_a_page_of_login_is_named(session: aiohttp.ClientSession) -> None:
    page = web.Response(body=b"<!doctype html><title>Sign in</title>", content_type="text/html")
    async with serving(("/metrics", answer(status=302, Location="/login?next=x")), ("/login", page)) as url:
        error = await failure(MetricsFetcher(session, url))
    assert error.reason == "redirect"
    assert f"GET {url}/metrics was redirected to {url}/login: expected Prometheus text" in str(error)


async def test_the_full_url_of_metrics_below_v1_is_kept(session: aiohttp.ClientSession) -> None:
    async with serving(("/team/v1/metrics", answer())) as url:
        assert (await MetricsFetcher(session, f"{url}/team/v1/metrics").fetch(5)).stats_present


async def test_a_redirect_loop_ends(session: aiohttp.ClientSession) -> None:
    requests = 0

    async def metrics(_: web.Request) -> web.Response:
        nonlocal requests
        requests += 1
        return answer(status=301, Location="/metrics")

    async with serving(("/metrics", metrics)) as url:
        error = await failure(MetricsFetcher(session, url))
    assert (error.reason, requests) == ("redirect", 4)


# -- connections -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("host", "said"),
    [("predictor.invalid", "cannot resolve predictor.invalid"), ("127.0.0.1", "cannot connect")],
)
async def test_an_unknown_name_and_nobody_listening_are_connect_failures(
    session: aiohttp.ClientSession, host: str, said: str
) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        # A resolver takes its time on a busy machine.
        error = await failure(MetricsFetcher(session, f"http://{host}:{free.getsockname()[1]}"), 60.0)
    assert error.reason == "connect"
    assert said in str(error)


@pytest.mark.parametrize(
    ("spoken", "reason"),
    [
        (b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n" + BODY, "truncated"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 20\r\n\r\n" + BODY[:20], "truncated"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n10\r\n" + BODY[:16] + b"\r\n", "truncated"),
        (b"HTTP/1.1 200 OK\r\n\r\n" + BODY[:-20], "truncated"),
        (b"", "connect"),
        (b"SSH-2.0-OpenSSH_9.2\r\n", "not_metrics"),
    ],
)
async def test_a_connection_cut_or_abused_is_told_apart(
    session: aiohttp.ClientSession, spoken: bytes, reason: str
) -> None:
    async with raw_server(spoken) as url:
        assert (await failure(MetricsFetcher(session, url))).reason == reason


async def test_a_kept_connection_that_the_server_has_closed_is_no_failed_scrape(session: aiohttp.ClientSession) -> None:
    connections = 0

    async def behave(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal connections
        connections += 1
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nConnection: keep-alive\r\nContent-Length: %d\r\n\r\n" % len(BODY) + BODY)
        await writer.drain()
        if connections == 1:
            await reader.readuntil(b"\r\n\r\n")  # the second request comes, and the server is gone

    async with raw_server(behave) as url:
        fetcher = MetricsFetcher(session, url)
        for _ in range(3):
            assert (await fetcher.fetch(5)).stats_present


# -- deadlines and sharing -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("headers", [b"", b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n"])
async def test_an_answer_that_drips_is_a_timeout(session: aiohttp.ClientSession, headers: bytes) -> None:
    async def behave(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(headers)
        while True:
            writer.write(b"#" if headers else b"")
            await writer.drain()
            await asyncio.sleep(0.01)

    async with raw_server(behave) as url:
        error = await failure(MetricsFetcher(session, url), 0.1)
    assert error.reason == "timeout"
    assert str(error) == f"GET {url}/metrics did not answer in full within 0.1 s"


class Gate:
    """A predictor that answers when it is allowed to."""

    def __init__(self) -> None:
        self.requests = 0
        self.asked = asyncio.Event()
        self.open = asyncio.Event()

    async def metrics(self, _: web.Request) -> web.Response:
        self.requests += 1
        self.asked.set()
        await self.open.wait()
        return answer()


async def test_a_caller_that_leaves_or_runs_out_of_time_does_not_disturb_the_others(
    session: aiohttp.ClientSession,
) -> None:
    gate = Gate()
    async with serving(("/metrics", gate.metrics)) as url:
        fetcher = MetricsFetcher(session, url)
        leaving = asyncio.create_task(fetcher.fetch(5))
        await gate.asked.wait()
        hurried = asyncio.create_task(fetcher.fetch(0.02))
        patient = asyncio.create_task(fetcher.fetch(5))
        await asyncio.sleep(0)
        leaving.cancel()
        with pytest.raises(asyncio.CancelledError):
            await leaving
        with pytest.raises(FetchError) as caught:
            await hurried
        assert caught.value.reason == "timeout"
        gate.open.set()
        assert (await patient).stats_present
        assert gate.requests == 1


async def test_a_request_that_fails_is_counted_once_whoever_waits_for_it(session: aiohttp.ClientSession) -> None:
    gate = Gate()
    async with serving(("/metrics", gate.metrics), ("/bad/metrics", answer(status=500))) as url:
        fetcher = MetricsFetcher(session, url)
        found = await asyncio.gather(*(fetcher.fetch(0.05) for _ in range(8)), return_exceptions=True)
        assert [type(each) for each in found] == [FetchError] * 8
        assert fetcher.failures == {"timeout": 1}
        fetcher = MetricsFetcher(session, f"{url}/bad")
        for number in (1, 2):
            await asyncio.gather(*(fetcher.fetch(5) for _ in range(8)), return_exceptions=True)
            assert fetcher.failures == {"http_status": number}


@pytest.mark.parametrize("url", ["http://u:p@h:1/x?token=p", "http://h:1/x?token=p#p", "http://u@h:1/x"])
def test_a_shown_url_has_no_credentials(url: str) -> None:
    assert fetch.without_credentials(url) == "http://h:1/x"


# -- version ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("response", "version"),
    [
        (answer(b'{"version": "0.9.2"}'), "0.9.2"),
        (answer(b'{"version": "0.25.1.dev3+gabc123.cpu"}'), "0.25.1.dev3+gabc123.cpu"),
        (answer(b'{"version": "a b\\n"}'), None),
        (answer(b'{"version": "' + b"9" * 100 + b'"}'), None),
        (answer(b"\xff"), None),
        (answer(b"[" * 30_000), None),
        (answer(b"{}", status=404), None),
        (answer(b" " * 2_000_000 + b'{"version": "0.9.2"}'), None),
    ],
)
async def test_a_version_is_what_looks_like_one(
    session: aiohttp.ClientSession, response: web.Response, version: str | None
) -> None:
    async with serving(("/version", response)) as url:
        assert await MetricsFetcher(session, url).version(5) == version


async def test_a_version_that_does_not_come_in_time_is_none(session: aiohttp.ClientSession) -> None:
    gate = Gate()
    async with serving(("/version", gate.metrics)) as url:
        assert await MetricsFetcher(session, url).version(0.05) is None
