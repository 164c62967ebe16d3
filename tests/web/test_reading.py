"""When predictors are read: by a scrape, for a look at the page, and by the exporter itself."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import msgspec
import pytest
from aiohttp import web

from specdec_exporter.config import Duration, PredictorSettings, Settings
from specdec_exporter.serving.collector import SpecdecCollector
from specdec_exporter.serving.predictorruntime import PredictorRuntime
from specdec_exporter.serving.runtime import ExporterRuntime
from specdec_exporter.web.server import Endpoints
from support.counting import ONE_ENGINE, count_up
from support.running import Predictor, exporter, listening, predictor

BODY = ONE_ENGINE.read_bytes()
PATIENT = Duration(600)


class Serving:
    """The exporter's endpoints in this process; ``settings`` are those of the next reload."""

    def __init__(self, *predictors: PredictorSettings) -> None:
        self.settings = Settings(predictors=predictors)
        self.runtime = ExporterRuntime(self.settings, lambda: self.settings)
        self.url = ""

    async def get(self, path: str, **headers: str) -> str:
        async with aiohttp.ClientSession() as session, session.get(self.url + path, headers=headers) as response:
            return await response.text()

    async def status(self) -> dict[str, Any]:
        answer = json.loads(await self.get("/api/v1/status"))
        return {each["inference_service"]: each for each in answer["predictors"]}

    async def reload(self, **changes: Any) -> None:
        """Reload with other settings of all predictors."""
        changed = tuple(msgspec.structs.replace(each, **changes) for each in self.settings.predictors)
        self.settings = msgspec.structs.replace(self.settings, predictors=changed)
        assert await self.runtime.reload() is None


@contextlib.asynccontextmanager
async def serving(*predictors: PredictorSettings) -> AsyncIterator[Serving]:
    found = Serving(*predictors)
    await found.runtime.start()
    app = web.Application()
    app.add_routes(Endpoints(found.runtime, SpecdecCollector(found.runtime).collect).routes())
    try:
        async with listening(app) as port:
            found.url = f"http://127.0.0.1:{port}"
            yield found
    finally:
        await found.runtime.stop()


class Gate:
    """A predictor answers when the gate is open."""

    def __init__(self, vllm: Predictor) -> None:
        self.reached = asyncio.Event()
        self.open = asyncio.Event()
        vllm.answer = self._answer

    async def _answer(self, _request: web.Request) -> web.Response:
        self.reached.set()
        await self.open.wait()
        return web.Response(body=BODY, headers={"Content-Type": "text/plain; version=0.0.4"})


async def test_the_first_request_gets_figures_because_the_exporter_has_read_by_itself() -> None:
    async with predictor() as vllm:
        vllm.bodies = [count_up(BODY, factor) for factor in range(1, 100)]
        async with exporter(f"--predictor.url={vllm.url}", "--predictor.interval=1s") as running:
            async with asyncio.timeout(30):
                while vllm.requests < 3:
                    await asyncio.sleep(0.05)
            assert "\nspecdec_acceptance_ratio{" in await running.get("/metrics")


async def test_it_reads_only_what_nobody_has_asked_for_well_or_not() -> None:
    async with predictor(BODY) as vllm, serving(PredictorSettings(url=vllm.url)) as served:
        (running,) = served.runtime.predictors
        for status in (200, 500):
            vllm.status = status
            assert status == 500 or running.due_seconds == 0
            await served.get("/metrics")
            assert 14 < running.due_seconds <= 15
        assert vllm.requests == 2


async def test_a_predictor_that_hangs_holds_up_neither_the_status_nor_the_others() -> None:
    async with predictor(BODY) as one, predictor(BODY) as two, predictor() as slow:
        gate = Gate(slow)
        names = {"one": one, "slow": slow, "two": two}
        settings = [PredictorSettings(name=name, url=each.url, timeout=PATIENT) for name, each in names.items()]
        async with serving(*settings) as served, asyncio.timeout(30):
            await served.status()
            found = await served.status()
            assert [found[name]["up"] for name in names] == [True, False, True]
            assert found["slow"]["age_seconds"] is None
            assert found["slow"]["up_reason"] == "not read yet"
            text = await served.get("/metrics", **{"X-Prometheus-Scrape-Timeout-Seconds": "2"})
            for name, up in (("one", 1), ("slow", 0), ("two", 1)):
                assert f'specdec_up{{inference_service="{name}"}} {up}.0' in text
            await served.reload(timeout=Duration(0.5))  # of each predictor, without a hint of the scraper
            assert 'specdec_up{inference_service="two"} 1.0' in await served.get("/metrics")
            gate.open.set()


async def test_a_predictor_that_hangs_delays_neither_readiness_nor_the_end() -> None:
    async with predictor() as vllm:
        gate = Gate(vllm)
        async with exporter(f"--predictor.url={vllm.url}", "--predictor.timeout=10m") as running:
            async with asyncio.timeout(30):
                await gate.reached.wait()
            async with asyncio.timeout(5):
                assert await running.stop() == 0


@pytest.mark.parametrize("change", [{"timeout": PATIENT}, {"server_name": "vllm"}])
async def test_a_scrape_during_a_reload_shows_the_answer_of_before_or_after(change: dict[str, Any]) -> None:
    async with predictor() as vllm, serving(PredictorSettings(url=vllm.url)) as served, asyncio.timeout(30):
        gate = Gate(vllm)
        scrape = asyncio.create_task(served.get("/metrics"))
        await gate.reached.wait()
        before = served.runtime.predictors
        await served.reload(**change)
        gate.open.set()
        for text in (await scrape, await served.get("/metrics")):
            assert 'specdec_up{inference_service="default"} 1.0' in text
            assert "specdec_drafts_total{" in text
        kept = served.runtime.predictors == before
        assert kept == ("timeout" in change)


async def test_a_read_that_nobody_waits_for_ends_with_its_predictor() -> None:
    async with predictor() as vllm, serving(PredictorSettings(url=vllm.url, timeout=PATIENT)) as served:
        gate = Gate(vllm)
        async with asyncio.timeout(30):
            await served.status()
            await gate.reached.wait()
            reading = served.runtime.predictors[0].read()
            assert not reading.done()
            await served.reload(server_name="another")
        assert reading.cancelled()


async def test_an_error_of_ours_does_not_end_the_reading(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def fail(_: PredictorRuntime, timeout_seconds: float) -> None:
        raise ArithmeticError(timeout_seconds)

    monkeypatch.setattr(PredictorRuntime, "refresh", fail)
    async with serving(PredictorSettings()) as served:
        (running,) = served.runtime.predictors
        await running.read()
        assert running.due_seconds > 14
    assert [record.message for record in caplog.records] == ["reading a predictor failed"]
