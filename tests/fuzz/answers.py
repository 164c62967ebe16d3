"""What a predictor answers: raw HTTP, and saved responses."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import gzip
from typing import Any

from builders import FIXTURES
from fuzz.metrics import reduced, require_sound
from fuzz.target import MIB, Target, captured, require_numbers, require_one_line
from specdec_exporter.errors import FetchError
from specdec_exporter.predictor.metrics.fetch import MetricsFetcher, open_session
from specdec_exporter.predictor.responses import Junk, ResponseSpeculation, parse_response

REASONS = ("connect", "http_status", "too_large", "redirect", "not_metrics", "truncated", "encoding")

# --- a saved response -------------------------------------------------------------------------------------------------


def check_response(line: bytes) -> None:
    found = parse_response(line, "X-Tenant")
    if isinstance(found, Junk):
        require_one_line(found.reason)
    if isinstance(found, ResponseSpeculation):
        assert 0 <= found.accepted_tokens <= found.draft_tokens <= found.drafts * found.num_speculative_tokens
        assert sum(found.steps_by_accepted) == found.drafts
        assert sum(j * steps for j, steps in enumerate(found.steps_by_accepted)) == found.accepted_tokens
        assert found.steps is None or sum(drafted for _, drafted in found.steps) == found.draft_tokens
        require_numbers([found.acceptance_ratio, found.temperature])


def responses() -> list[bytes]:
    return [
        line
        for path in sorted((FIXTURES / "responses").glob("*.jsonl"))
        for line in path.read_bytes().splitlines()
        if b"speculative_decoding" in line
    ]


# --- raw HTTP from a predictor ----------------------------------------------------------------------------------------


class Answering:
    """A server that gives every connection the same bytes and hangs up; and a fetcher that asks it."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self.answer = b""
        self.session = self.loop.run_until_complete(self._opened())
        server = self.loop.run_until_complete(asyncio.start_server(self._serve, "127.0.0.1", 0))
        port = server.sockets[0].getsockname()[1]
        self.fetcher = MetricsFetcher(self.session, f"http://127.0.0.1:{port}")

    async def _opened(self) -> Any:
        return open_session()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            await reader.readuntil(b"\r\n\r\n")
            writer.write(self.answer)
            await writer.drain()
        writer.close()

    async def ask(self) -> None:
        try:
            snapshot = await self.fetcher.fetch(5)
        except FetchError as error:
            require_refusal(error)
        else:
            for engine in snapshot.engines:
                require_sound(engine)
        version = await self.fetcher.version(5)
        assert version is None or 0 < len(version) <= 64
        assert isinstance(await self.fetcher.models(5), dict)


def require_refusal(error: FetchError) -> None:
    assert error.reason in REASONS
    require_one_line(str(error))


@functools.cache
def answering() -> Answering:
    return Answering()


def check_answer(answer: bytes) -> None:
    server = answering()
    server.answer = answer
    server.loop.run_until_complete(server.ask())


def http(body: bytes, *headers: bytes, status: bytes = b"200 OK") -> bytes:
    return b"\r\n".join([b"HTTP/1.1 " + status, *headers, b"Content-Length: %d" % len(body), b"", body])


def answers() -> list[bytes]:
    metrics = reduced(captured("metrics-*.txt")[0])
    zipped = gzip.compress(metrics, mtime=0)
    chunks = b"".join(b"%x\r\n%b\r\n" % (len(part), part) for part in (metrics[:900], metrics[900:])) + b"0\r\n\r\n"
    return [
        http(metrics, b"Content-Type: text/plain; version=0.0.4"),
        http(zipped, b"Content-Encoding: gzip", b"Content-Type: text/plain"),
        http(zipped + zipped, b"Content-Encoding: deflate"),
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + chunks,
        b"HTTP/1.0 200 OK\r\n\r\n" + metrics,
        http(b'{"version": "0.32.0"}', b"Content-Type: application/json"),
        http(b'{"data": [{"id": "tiny", "root": "/models/tiny"}]}', b"Content-Type: application/json"),
        http(b"", b"Location: /elsewhere", status=b"302 Found"),
        http(b"gone", b"Location: http://user:secret@other/", status=b"308 Permanent Redirect"),
        http(b"no", status=b"503 Service Unavailable"),
    ]


TARGETS = (
    Target(
        "saved response",
        check_response,
        responses,
        (b'"per_step_accepted": [', b"data: ", b"[DONE]", b"event: ", b'"response": ', b'"request": {', b'"prompt": '),
    ),
    Target(
        "HTTP answer",
        check_answer,
        answers,
        (
            *(
                b"HTTP/1.1 200 OK\r\n",
                b"HTTP/1.1 302 Found\r\n",
                b"Content-Length: ",
                b"Transfer-Encoding: chunked\r\n",
            ),
            *(
                b"Content-Encoding: gzip\r\n",
                b"Location: ",
                b"\r\n\r\n",
                b"Set-Cookie: a=b\r\n",
                b"0\r\n\r\n",
                b"ffff\r\n",
            ),
        ),
        largest=MIB // 4,
    ),
)
