"""Waiting for a restarted predictor: when it is ready for a recording, and each reason why it is not."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator

import pytest
from aiohttp import web

from builders import CAPTURES, known
from running import Predictor, predictor
from specdec_exporter.baseline import restart
from specdec_exporter.baseline.restart import Asked, glance, wait_until_ready
from specdec_exporter.errors import BaselineError
from specdec_exporter.predictor.metrics.snapshot import Snapshot

FOLDER = CAPTURES / "0.32.0-draft_model-k3"
LOG = str(FOLDER / "server.log")
IDLE = (FOLDER / "metrics-0-before-any-request.txt").read_bytes()
SERVED = (FOLDER / "metrics-8-p90.txt").read_bytes()
PLAIN = (CAPTURES / "0.32.0-baseline-nospec/metrics-1-after.txt").read_bytes()
NO_STATS = (CAPTURES / "0.32.0-draft_model-disable-log-stats/metrics-1-after.txt").read_bytes()
START = re.compile(rb"^process_start_time_seconds .*$", re.MULTILINE)
GONE = None  # a predictor that does not answer


def started(body: bytes, at: float) -> bytes:
    return START.sub(b"process_start_time_seconds %g" % at, body)


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(restart, "_POLL_SECONDS", 0.01)


@pytest.fixture
async def server() -> AsyncIterator[Predictor]:
    async with predictor() as running:
        yield running


async def wait(
    server: Predictor,
    before: bytes | None,
    *then: bytes | None,
    asked: Asked | None = None,
    log_paths: tuple[str, ...] = (),
    limit: float = 0.2,
) -> list[str]:
    """Wait while the predictor gives one answer after the other, the last one again and again; return what was said."""
    answers = list(then)

    async def answer(_: web.Request) -> web.Response:
        body = answers.pop(0) if len(answers) > 1 else answers[0]
        if body is None:
            raise web.HTTPServiceUnavailable
        return web.Response(body=body, headers=server.headers)

    shot: Snapshot | None = None
    if before is not None:
        server.body = before
        shot = await glance(server.url, 5.0)
        assert shot is not None
    server.answer = answer
    said: list[str] = []
    await wait_until_ready(
        server.url,
        shot,
        asked or Asked(3),
        log_paths=log_paths,
        warm_up_seconds=0.01,
        limit_seconds=limit,
        timeout_seconds=5.0,
        say=said.append,
    )
    return said


async def test_another_process_that_finished_a_request_is_ready(server: Predictor) -> None:
    old, idle, served = started(SERVED, 1.0), started(IDLE, 2.0), started(SERVED, 2.0)
    said = await wait(server, old, old, GONE, idle, idle, idle, served, limit=5.0)
    assert said == [
        "The same process as before still answers. Waiting for its restart.",
        "The predictor answers. Warm-up for 0.01 s.",
        "Waiting for requests to finish.",
    ]


async def test_a_predictor_that_did_not_run_before_needs_no_other_start_time(server: Predictor) -> None:
    assert await glance("http://127.0.0.1:9", 5.0) is None
    await wait(server, None, GONE, IDLE, SERVED, limit=5.0)


async def test_without_start_times_fallen_counters_tell_the_restart(server: Predictor) -> None:
    old, idle, served = (START.sub(b"", body) for body in (SERVED, IDLE, SERVED))
    await wait(server, old, idle, served, limit=5.0)


async def test_without_start_times_a_refused_connection_tells_the_restart() -> None:
    idle, served = (START.sub(b"", body) for body in (IDLE, SERVED))
    async with predictor(idle) as server:
        shot = known(await glance(server.url, 5.0))
        port = int(server.url.rpartition(":")[2])
    waiting = asyncio.create_task(
        wait_until_ready(
            server.url, shot, Asked(3), log_paths=(), warm_up_seconds=0.0, limit_seconds=10.0, timeout_seconds=5.0,
            say=lambda _: None,
        )
    )  # fmt: skip
    await asyncio.sleep(0.1)  # connections are refused meanwhile
    async with predictor(idle, port=port) as server:
        while server.requests < 2:
            assert not waiting.done()
            await asyncio.sleep(0.01)
        server.body = served
        await waiting


@pytest.mark.parametrize(
    ("before", "then", "asked", "said"),
    [
        (IDLE, (IDLE,), Asked(3), "has not come back within 0.2 s: the same process as before still answers"),
        (None, (GONE,), Asked(3), "has not come back within 0.2 s: it does not answer: GET http"),
        (None, (NO_STATS,), Asked(3), "has not come back within 0.2 s: its metrics have no engine statistics"),
        (None, (IDLE,), Asked(6), "the predictor runs with k = 3: restart it with k = 6"),
        (None, (IDLE,), Asked(0), "the predictor runs with k = 3: restart it without speculation"),
        (None, (IDLE, IDLE), Asked(3), "no request has finished within 0.2 s after the warm-up"),
        (None, (IDLE, GONE), Asked(3), "the predictor has stopped answering: GET http"),
        (None, (started(IDLE, 1.0), started(SERVED, 2.0)), Asked(3), "restarted again before the recording"),
    ],
)
async def test_what_is_not_as_asked_is_said(
    before: bytes | None, then: tuple[bytes | None, ...], asked: Asked, said: str, server: Predictor
) -> None:
    with pytest.raises(BaselineError, match=re.escape(said)):
        await wait(server, before, *then, asked=asked)


async def test_a_predictor_without_speculation_is_not_recorded_as_one_with_it(server: Predictor) -> None:
    idle = re.sub(rb"(request_success_total\{.*\}) .*", rb"\1 0.0", PLAIN)
    await wait(server, None, idle, PLAIN, asked=Asked(0), limit=5.0)
    with pytest.raises(BaselineError, match="the predictor runs without speculation: restart it with k = 3"):
        await wait(server, None, idle, PLAIN, limit=5.0)


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        (Asked(3, "eagle3"), "the predictor's log says that its method is draft_model: restart it with eagle3"),
        (Asked(3, "draft_model", "org/other"), "its draft model is /.*: restart it with org/other"),
    ],
)
async def test_the_log_tells_method_and_draft_model(asked: Asked, said: str, server: Predictor) -> None:
    with pytest.raises(BaselineError, match=said):
        await wait(server, None, IDLE, SERVED, asked=asked, log_paths=(LOG,), limit=5.0)


async def test_a_log_of_another_start_is_noticed(server: Predictor) -> None:
    other = str(CAPTURES / "0.32.0-ngram-k5/server.log")
    with pytest.raises(BaselineError, match="the predictor's log says k = 5, asked was k = 3: is it its own log"):
        await wait(server, None, IDLE, SERVED, log_paths=(other,), limit=5.0)


async def test_the_log_of_the_predictor_as_it_was_asked_for_is_right(server: Predictor) -> None:
    asked = Asked(3, "draft_model", "elsewhere/draft")
    await wait(server, None, IDLE, SERVED, asked=asked, log_paths=(LOG,), limit=5.0)
