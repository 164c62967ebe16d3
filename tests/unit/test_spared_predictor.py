"""How little the exporter asks of a predictor, whoever scrapes it and whatever the predictor does; nothing piles up."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import msgspec
import pytest

from faults.wire import REFUSED, SLOW, SOUND, Server
from faults.wire import serving as answering
from specdec_exporter.config import PredictorSettings, Settings
from specdec_exporter.errors import FetchError
from specdec_exporter.predictor.metrics.fetch import MetricsFetcher
from specdec_exporter.serving.predictorruntime import PredictorRuntime
from specdec_exporter.serving.runtime import ExporterRuntime
from support.builders import started
from support.counting import ONE_ENGINE

SCRAPERS = 8


@contextlib.asynccontextmanager
async def serving() -> AsyncIterator[Server]:
    async with answering() as predictor:
        predictor.body, predictor.fault = ONE_ENGINE.read_bytes(), SOUND
        yield predictor


async def all_closed(predictor: Server) -> None:
    async with asyncio.timeout(30):
        while predictor.connections:
            await asyncio.sleep(0)


async def test_scrapers_share_a_request_and_no_connection_stays_open(session: aiohttp.ClientSession) -> None:
    async with serving() as predictor:
        fetcher = MetricsFetcher(session, predictor.url)
        rounds = 5
        for _ in range(rounds):
            await asyncio.gather(*(fetcher.fetch(30) for _ in range(SCRAPERS)))
        assert predictor.requests == {"/metrics": rounds}
        assert predictor.most_connections == 1
        assert predictor.longest_request <= 512
        await all_closed(predictor)


async def test_a_predictor_that_is_silent_has_one_request_to_answer_and_then_none(
    session: aiohttp.ClientSession,
) -> None:
    async with serving() as predictor:
        predictor.fault = SLOW[0]
        fetcher = MetricsFetcher(session, predictor.url)
        rounds = 5
        for _ in range(rounds):
            found = await asyncio.gather(*(fetcher.fetch(0.05) for _ in range(SCRAPERS)), return_exceptions=True)
            assert [error.reason for error in found if isinstance(error, FetchError)] == ["timeout"] * SCRAPERS
            await all_closed(predictor)
        assert predictor.requests.total() <= rounds
        assert predictor.most_connections == 1


async def test_scrapers_share_the_question_for_the_version_too() -> None:
    async with serving() as predictor, started(PredictorSettings(url=predictor.url)) as runtime:
        await asyncio.gather(*(runtime.refresh(30) for _ in range(SCRAPERS)))
        assert predictor.requests == {"/metrics": 1, "/version": 1}
        assert runtime.predictors[0].state.running.vllm_version == "0.32.0"


async def test_a_scraper_waits_for_the_version_of_another_within_its_own_deadline() -> None:
    async with serving() as predictor, started(PredictorSettings(url=predictor.url)) as runtime:
        predictor.version_fault = SLOW[0]
        patient = asyncio.create_task(runtime.refresh(30))
        async with asyncio.timeout(30):
            while not predictor.requests["/version"]:
                await asyncio.sleep(0)
            await runtime.refresh(0.2)
        assert not patient.done()
        assert predictor.requests["/version"] == 1
        patient.cancel()
        await asyncio.wait({patient})


async def test_a_reload_waits_for_the_one_before(monkeypatch: pytest.MonkeyPatch) -> None:
    stopped: set[PredictorRuntime] = set()
    late: list[PredictorRuntime] = []

    async def stop(self: PredictorRuntime) -> None:
        await asyncio.sleep(0)
        stopped.add(self)

    monkeypatch.setattr(PredictorRuntime, "stop", stop)
    monkeypatch.setattr(PredictorRuntime, "start", lambda self: late.append(self) if self in stopped else None)
    number = itertools.count()

    def changing() -> Settings:
        return Settings(predictors=(PredictorSettings(server_name=f"vllm-{next(number)}"),))

    runtime = ExporterRuntime(changing(), changing)
    await runtime.start()
    assert await asyncio.gather(*(runtime.reload() for _ in range(4))) == [None] * 4
    await runtime.stop()
    assert late == []


async def test_no_task_and_no_descriptor_stays_after_scrapes_failures_and_reloads() -> None:
    async with serving() as one, serving() as other:
        urls = (one.url, other.url, "http://127.0.0.1:1")  # nobody listens at the last
        settings = Settings(predictors=tuple(PredictorSettings(name=url, url=url) for url in urls))
        names = ["here", "there"]

        def load() -> Settings:
            """Change the predictors' settings, so that they are built anew."""
            names.reverse()
            return msgspec.structs.replace(
                settings,
                predictors=tuple(msgspec.structs.replace(each, server_name=names[0]) for each in settings.predictors),
            )

        runtime = ExporterRuntime(settings, load)
        await runtime.start()
        held: list[tuple[int, int]] = []
        for _ in range(4):
            for other.fault in (SOUND, *SLOW, *REFUSED):
                await asyncio.gather(*(runtime.refresh(0.05 if other.fault in SLOW else 30) for _ in range(SCRAPERS)))
            assert await runtime.reload() is None
            await asyncio.gather(all_closed(one), all_closed(other))
            held.append((len(asyncio.all_tasks()), len([*Path("/proc/self/fd").iterdir()])))
        await runtime.stop()
    assert held[1:] == [held[1]] * 3
