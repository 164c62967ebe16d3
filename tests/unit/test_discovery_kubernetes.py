"""Pods that come and go, through an API server that forgets, hangs up, refuses and sends too much."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Iterable
from typing import Any

import pytest

from kubeapi import SERVICE_LABEL, PodApi, pod, pod_api
from specdec_exporter import bounds
from specdec_exporter.config import DiscoverySettings, KubernetesSettings
from specdec_exporter.serving.discovery.discovery import Discovery
from specdec_exporter.serving.discovery.target import Target


class Found:
    """A discovery and the targets that it told last."""

    def __init__(self, url: str, **settings: Any) -> None:
        kubernetes = KubernetesSettings(api_server=url, **{"namespaces": ("prod",), **settings})
        self.discovery = Discovery(DiscoverySettings(kubernetes=kubernetes), self.meet, first_retry_seconds=0.01)
        self.targets: dict[str, Target] = {}
        self._changed = asyncio.Condition()

    async def meet(self, targets: dict[str, Target]) -> None:
        async with self._changed:
            self.targets = targets
            self._changed.notify_all()

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(20), self._changed:
            await self._changed.wait_for(condition)

    async def are(self, *names: str) -> None:
        """Wait until these pods are the targets."""
        await self.until(lambda: sorted(names) == sorted(target.pod for target in self.targets.values()))

    @property
    def health(self) -> Any:
        return self.discovery.providers[0].health


@contextlib.asynccontextmanager
async def finding(api: PodApi, **settings: Any) -> AsyncIterator[Found]:
    found = Found(api.url, **settings)
    found.discovery.start()
    try:
        yield found
    finally:
        await found.discovery.stop()


@pytest.fixture
async def api() -> AsyncIterator[PodApi]:
    async with pod_api() as api:
        yield api


def watches(api: PodApi) -> int:
    return sum("watch" in request.query for request in api.requests)


def lists(api: PodApi) -> int:
    return sum("watch" not in request.query and "continue" not in request.query for request in api.requests)


def names(count: int) -> list[str]:
    return [f"pod-{number:04}" for number in range(count)]


def pods(names: Iterable[str]) -> list[dict[str, Any]]:
    return [pod(name, f"10.0.{number // 250}.{number % 250}") for number, name in enumerate(names)]


async def test_pods_are_listed_once_and_then_watched(api: PodApi) -> None:
    api.keep(pod("a", "10.0.0.1"), pod("b", "fd00::1"))
    async with finding(api) as found:
        await found.discovery.begun()
        await found.are("a", "b")
        assert found.targets["chat@10.0.0.1:8080"].labels == {
            "inference_service": "chat",
            "namespace": "prod",
            "pod": "a",
            "instance": "10.0.0.1:8080",
        }
        assert found.targets["chat@[fd00::1]:8080"].url == "http://[fd00::1]:8080"
        await api.put(pod("c", "10.0.0.3"))
        await found.are("a", "b", "c")
        await api.put(pod("a", "10.0.0.1"), "DELETED")
        await found.are("b", "c")
        await api.put(pod("b", "fd00::1", phase="Succeeded"), "MODIFIED")
        await found.are("c")
        assert found.health.problem is None
        assert found.health.targets == 1
    assert (lists(api), watches(api)) == (1, 1)
    selected = {"labelSelector": SERVICE_LABEL, "fieldSelector": "status.phase=Running"}
    assert all(dict(request.query).items() >= selected.items() for request in api.requests)


@pytest.mark.parametrize(
    ("settings", "target"),
    [
        ({"port": "http1", "scheme": "https"}, "https://10.0.0.1:9000"),
        ({"port": "8000"}, "http://10.0.0.1:8000"),
        ({"port": "none"}, None),
        ({"name_label": "app"}, "http://10.0.0.1:8080"),
        ({"name_label": "other"}, None),
    ],
)
async def test_port_scheme_and_name_come_from_the_settings(
    api: PodApi, settings: dict[str, str], target: str | None
) -> None:
    api.keep(pod("a", ports={"http1": 9000}), pod("no-address", ""), pod("pending", "10.0.0.9", phase="Pending"))
    async with finding(api, **settings) as found:
        await found.discovery.begun()
        assert [each.url for each in found.targets.values()] == ([target] if target else [])


async def test_a_cut_connection_loses_and_repeats_nothing(api: PodApi) -> None:
    api.keep(pod("a"))
    async with finding(api) as found:
        await found.are("a")
        await api.bookmark()
        await api.put(pod("b", "10.0.0.2"))
        await found.are("a", "b")
        await api.cut()
        await api.put(pod("a"), "DELETED")
        await found.are("b")
    assert lists(api) == 1
    assert watches(api) >= 2


async def test_a_bookmark_is_where_the_next_watch_begins(api: PodApi) -> None:
    async with finding(api) as found:
        await found.discovery.begun()
        await api.put(pod("a"))
        await api.bookmark()
        bookmarked = api.version
        await found.are("a")
        while found.discovery.providers[0]._watches[0]._version != str(bookmarked):  # type: ignore[attr-defined]
            await asyncio.sleep(0)
        await api.cut()
        await api.put(pod("b", "10.0.0.2"))
        await found.are("a", "b")
    since = [int(request.query["resourceVersion"]) for request in api.requests if "watch" in request.query]
    assert bookmarked in since


async def test_after_a_history_that_is_gone_pods_are_listed_again(api: PodApi) -> None:
    api.keep(pod("a"), pod("b", "10.0.0.2"))
    async with finding(api) as found:
        await found.are("a", "b")
        del api.pods["a"]  # nobody is told
        await api.cut()
        api.forget()
        await found.are("b")
        assert found.health.failures <= 1  # the cut, not the 410
    assert lists(api) == 2


NONSENSE = [b"{half\n", b'{"type":"ADDED","object":{"metadata":[]}}\n', b"\xff\n", b"[" * 9999 + b"\n"]


@pytest.mark.parametrize("line", NONSENSE)
async def test_nonsense_costs_a_list(api: PodApi, line: bytes) -> None:
    api.keep(pod("a"))
    async with finding(api) as found:
        await found.are("a")
        del api.pods["a"]
        api.keep(pod("b", "10.0.0.2"))
        await api.say(line)
        await found.are("b")
        assert found.health.failures == 1


async def test_a_huge_change_is_not_held(api: PodApi, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounds, "WATCH_LINE_BYTES", 10_000)
    async with finding(api) as found:
        await found.discovery.begun()
        api.keep(pod("b", "10.0.0.2"))
        await api.say(b"x" * 100_000)
        await found.are("b")
    assert lists(api) == 2


async def test_huge_pods_are_asked_for_one_by_one(api: PodApi, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounds, "API_BODY_BYTES", 1500)
    api.keep(*pods(names(6)))
    async with finding(api) as found:
        await found.are(*names(6))
    sizes = [int(request.query["limit"]) for request in api.requests if "limit" in request.query]
    assert sizes == sorted(sizes, reverse=True)
    assert (sizes[0], sizes[-1]) == (100, 1)


async def test_refusals_are_waited_out_and_what_was_found_stays(api: PodApi, caplog: pytest.LogCaptureFixture) -> None:
    api.keep(pod("a"))
    async with finding(api) as found:
        await found.are("a")
        await api.cut()
        api.refusals = [500, 401, 403]
        await found.until(lambda: found.health.failures >= 4)
        assert found.targets
        await api.put(pod("b", "10.0.0.2"))
        await found.are("a", "b")
        assert found.health.problem is None
    said = [str(vars(record).get("reason")) for record in caplog.records]
    assert any(reason.endswith('no; let the service account "list" and "watch" "pods"') for reason in said)
    assert lists(api) == 1


async def test_nobody_listening_does_not_hold_up_the_start() -> None:
    found = Found("http://127.0.0.1:1")
    found.discovery.start()
    await found.discovery.begun()
    assert (found.targets, found.health.last_success) == ({}, None)
    await found.discovery.stop()


async def test_beyond_the_bound_known_pods_stay_and_others_wait(api: PodApi, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounds, "PREDICTORS", 3)
    api.keep(*pods(["d", "e", "f"]))
    async with finding(api) as found:
        await found.are("d", "e", "f")
        await api.put(pod("a", "10.0.0.9"))
        await found.until(lambda: found.discovery.left_out > 0)
        await api.put(pod("e", "10.0.0.1"), "DELETED")
        await found.are("a", "d", "f")


async def test_pages_make_one_list(api: PodApi) -> None:
    api.keep(*pods(names(bounds.PREDICTORS + 30)))
    async with finding(api) as found:
        await found.are(*names(bounds.PREDICTORS))
        assert found.discovery.left_out == 30


async def test_all_namespaces_are_one_watch_and_several_are_several(api: PodApi) -> None:
    api.keep(pod("a"), pod("b", "10.0.0.2", namespace="test"))
    async with finding(api, namespaces=()) as found:
        await found.are("a", "b")
    assert {request.path for request in api.requests} == {"/api/v1/pods"}
    async with finding(api, namespaces=("prod", "test")) as found:
        await found.until(lambda: len(found.targets) == 2)
        await found.discovery.begun()
    assert {request.path for request in api.requests} > {"/api/v1/namespaces/test/pods"}
