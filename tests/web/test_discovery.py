"""Predictors that come and go while the exporter serves them, and the series that a scrape gets of them."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import json
import logging
import os
import re
import weakref
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import msgspec
import pytest
from aiohttp import web
from aiohttp.typedefs import Handler
from prometheus_client.exposition import generate_latest

from bench.counting import ONE_ENGINE
from bench.processes import descriptors
from kubeapi import PodApi, pod, pod_api
from running import exporter, predictor
from specdec_exporter import bounds
from specdec_exporter.config import DiscoverySettings, KubernetesSettings, Settings
from specdec_exporter.serving.collector import SpecdecCollector
from specdec_exporter.serving.discovery.files import FileProvider
from specdec_exporter.serving.runtime import ExporterRuntime, PredictorRuntime

BODY = ONE_ENGINE.read_bytes()
LABELS = ("inference_service", "namespace", "pod", "instance")


@contextlib.asynccontextmanager
async def everywhere(body: bytes = BODY, answer: Handler | None = None) -> AsyncIterator[int]:
    """A predictor on every loopback address; yields its port."""

    async def usual(_request: web.Request) -> web.Response:
        return web.Response(body=body, content_type="text/plain")

    app = web.Application()
    app.add_routes([web.get("/metrics", answer or usual)])
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "0.0.0.0", 0).start()
    try:
        yield runner.addresses[0][1]
    finally:
        await runner.cleanup()


@contextlib.asynccontextmanager
async def discovering(api: PodApi, **settings: object) -> AsyncIterator[ExporterRuntime]:
    kubernetes = KubernetesSettings(api_server=api.url, namespaces=("prod",), **settings)  # type: ignore[arg-type]
    found = Settings(predictors=(), discovery=DiscoverySettings(kubernetes=kubernetes))
    runtime = ExporterRuntime(found, lambda: found)
    await runtime.start()
    try:
        await runtime.begun()
        yield runtime
    finally:
        await runtime.stop()


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(20):
        while not condition():
            await asyncio.sleep(0.005)


def pods(runtime: ExporterRuntime) -> set[str]:
    return {predictor.target.pod for predictor in runtime.predictors if predictor.target}


def series(text: str, name: str) -> list[dict[str, str]]:
    """The labels of the series of a family."""
    found = re.findall(rf"^{name}\{{(.*)\}} ", text, re.MULTILINE)
    return [dict(re.findall(r'(\w+)="([^"]*)"', each)) for each in found]


async def test_two_pods_of_a_service_have_no_series_in_common() -> None:
    async with pod_api() as api, everywhere() as port:
        api.keep(pod("chat-0", "127.0.1.1"), pod("chat-1", "127.0.1.2"), pod("code-0", "127.0.1.3", service="code"))
        async with discovering(api, port=str(port)) as runtime:
            await runtime.refresh(5)
            text = generate_latest(SpecdecCollector(runtime)).decode()
            lines = [line.rpartition(" ")[0] for line in text.splitlines() if not line.startswith("#")]
            assert len(lines) == len(set(lines)) > 500
            drafts = series(text, "specdec_drafts_total")
            assert [tuple(labels[name] for name in LABELS) for labels in drafts] == [
                ("chat", "prod", "chat-0", f"127.0.1.1:{port}"),
                ("chat", "prod", "chat-1", f"127.0.1.2:{port}"),
                ("code", "prod", "code-0", f"127.0.1.3:{port}"),
            ]
            assert 'specdec_discovery_targets{provider="kubernetes"} 3.0' in text
            assert [(each.inference_service, each.pod) for each in runtime.status().predictors] == [
                ("chat", "chat-0"),
                ("chat", "chat-1"),
                ("code", "code-0"),
            ]


async def test_pods_that_come_and_go_leave_nothing() -> None:
    body = b"\n".join(line for line in BODY.splitlines() if b"spec_decode" in line) + b"\n"
    async with pod_api() as api, everywhere(body) as port, discovering(api, port=str(port)) as runtime:
        left: list[tuple[int, int]] = []
        seen: weakref.WeakSet[PredictorRuntime] = weakref.WeakSet()
        for batch in range(6):
            made = [pod(f"pod-{batch}-{n}", f"127.0.1.{n + 1}") for n in range(50)]
            for each in made:
                await api.put(each)
            await until(lambda: len(pods(runtime)) == 50)
            seen.update(runtime.predictors)
            if batch % 5 == 0:
                await runtime.refresh(5)
                assert all(each.state.up for each in runtime.predictors)
            for each in made:
                await api.put(each, "DELETED")
            await until(lambda: not pods(runtime))
            left.append((len(asyncio.all_tasks()), descriptors(os.getpid())))
        await until(lambda: gc.collect() >= 0 and not seen)  # the last of them may still be stopping
        await until(lambda: len(asyncio.all_tasks()) <= left[0][0] and descriptors(os.getpid()) <= left[0][1])


async def test_a_pod_that_stays_keeps_its_state_and_one_with_another_address_begins_anew() -> None:
    async with pod_api() as api, everywhere() as port:
        api.keep(pod("a", "127.0.1.1"), pod("b", "127.0.1.2"))
        async with discovering(api, port=str(port)) as runtime:
            a, b = runtime.predictors
            await api.put(pod("b", "127.0.1.9"), "MODIFIED")
            await api.put(pod("c", "127.0.1.3"))
            await until(lambda: len(runtime.predictors) == 3 and b not in runtime.predictors)
            assert a in runtime.predictors
            assert [each.fetcher.most_engines for each in runtime.predictors] == [bounds.ENGINES // 3] * 3
            await runtime.reload()
            assert a in runtime.predictors


async def test_predictors_that_hang_hold_up_no_other() -> None:
    released = asyncio.Event()

    async def answer(request: web.Request) -> web.Response:
        if not request.host.startswith("127.0.1.200:"):
            await released.wait()
        return web.Response(body=BODY, content_type="text/plain")

    async with pod_api() as api, everywhere(answer=answer) as port:
        api.keep(*(pod(f"hangs-{n:03}", f"127.0.1.{n + 1}") for n in range(110)), pod("well", "127.0.1.200"))
        async with discovering(api, port=str(port)) as runtime:
            for each in runtime.predictors:
                each.settings = msgspec.structs.replace(each.settings, timeout=60.0)
            scrape = asyncio.create_task(runtime.refresh(60))
            await until(lambda: runtime.predictors[-1].state.up)
            released.set()
            await scrape
            assert runtime.predictors[-1].state.name.startswith("chat@127.0.1.200")


async def test_a_reload_may_bring_discovery_and_take_it_away() -> None:
    async with pod_api() as api:
        api.keep(pod("a"))
        kubernetes = KubernetesSettings(api_server=api.url)
        with_it = Settings(predictors=(), discovery=DiscoverySettings(kubernetes=kubernetes))
        settings = [Settings(), with_it, with_it, Settings()]
        runtime = ExporterRuntime(settings.pop(0), lambda: settings.pop(0))
        await runtime.start()
        await runtime.reload()
        await until(lambda: pods(runtime) == {"a"})
        (found,) = runtime.predictors
        await runtime.reload()
        assert runtime.predictors == [found]
        await runtime.reload()
        assert [each.state.name for each in runtime.predictors] == ["default"]
        assert runtime.discovery is None
        await runtime.stop()


async def test_a_log_is_read_from_its_pod() -> None:
    asked = asyncio.Event()

    async def log(request: web.Request) -> web.StreamResponse:
        assert request.path.endswith("/namespaces/prod/pods/a/log")
        assert request.query["container"] == "vllm"
        asked.set()
        raise web.HTTPNotFound

    async with pod_api(web.get("/api/v1/namespaces/{namespace}/pods/{pod}/log", log)) as api:
        api.keep(pod("a"))
        async with discovering(api, log=True, container="vllm") as runtime:
            async with asyncio.timeout(10):
                await asked.wait()
            (found,) = runtime.predictors
            assert found.state.reader is not None


async def test_targets_of_a_file_are_served_by_the_process(tmp_path: Path) -> None:
    async with predictor(BODY) as one, predictor(BODY) as two:
        targets, configuration = tmp_path / "targets.json", tmp_path / "specdec.yaml"
        addresses = [each.url.removeprefix("http://") for each in (one, two)]
        group = {"targets": addresses, "labels": {"inference_service": "chat", "namespace": "prod"}}
        targets.write_text(json.dumps([group]))
        configuration.write_text(f"discovery: {{files: ['{tmp_path}/*.json']}}")
        async with exporter(f"--config.file={configuration}") as running:
            text = await running.get("/metrics")
    found = [tuple(labels.get(name) for name in LABELS) for labels in series(text, "specdec_drafts_total")]
    assert found == [("chat", "prod", None, address) for address in addresses]
    assert 'specdec_discovery_success{provider="files"} 1.0' in text


async def test_a_bad_file_changes_nothing_and_is_told(tmp_path: Path) -> None:
    path = tmp_path / "targets.yaml"
    path.write_text("- targets: ['127.0.0.1:1']")
    found = Settings(predictors=(), discovery=DiscoverySettings(files=(str(path),)))
    runtime = ExporterRuntime(found, lambda: found)
    await runtime.start()
    await runtime.begun()
    path.write_text("- target: ['127.0.0.1:1']")
    assert runtime.discovery
    (provider,) = runtime.discovery.providers
    assert isinstance(provider, FileProvider)
    provider.look()
    text = generate_latest(SpecdecCollector(runtime)).decode()
    assert len(series(text, "specdec_up")) == 1
    assert 'specdec_discovery_success{provider="files"} 0.0' in text
    assert 'specdec_discovery_failures_total{provider="files"} 1.0' in text
    await runtime.stop()


async def test_a_service_s_baseline_is_found_by_its_name(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    folder = tmp_path / "baselines"
    folder.mkdir()
    (folder / "chat.yaml").write_text("no: baseline")
    (tmp_path / "outside.yaml").write_text("no: baseline")
    targets = tmp_path / "targets.yaml"
    targets.write_text(
        "- {targets: ['h:1'], labels: {inference_service: chat}}\n"
        "- {targets: ['h:2'], labels: {inference_service: ../outside}}\n"
        "- {targets: ['h:3'], labels: {inference_service: code}}\n"
    )
    found = Settings(predictors=(), discovery=DiscoverySettings(files=(str(targets),), baselines=str(folder)))
    runtime = ExporterRuntime(found, lambda: found)
    with caplog.at_level(logging.WARNING):
        await runtime.start()
        await runtime.begun()
    assert len(runtime.predictors) == 3
    said = [vars(each)["path"] for each in caplog.records if "baseline" in each.message]
    assert said == [str(folder / "chat.yaml")]
    await runtime.stop()
