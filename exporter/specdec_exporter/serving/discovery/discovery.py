"""Runs the providers, and tells which targets there are whenever that changes."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable
from pathlib import Path

from specdec_exporter import bounds
from specdec_exporter.config import DiscoverySettings, KubernetesSettings
from specdec_exporter.predictor.log.counters import ReaderCounters
from specdec_exporter.predictor.sources.kubeapi import KubernetesApi
from specdec_exporter.serving.discovery.files import FileProvider
from specdec_exporter.serving.discovery.kubernetes import KubernetesProvider
from specdec_exporter.serving.discovery.target import Provider, Target
from specdec_exporter.serving.logsource import LogSource, pod_log

LOG = logging.getLogger("specdec")

Meet = Callable[[dict[str, Target]], Awaitable[None]]


class Discovery:
    """All that is found by ``settings``. Raises :class:`ConfigError` where the Kubernetes API cannot be reached at all.

    ``meet`` gets the targets by title. ``first_retry_seconds``: of the Kubernetes API.
    """

    def __init__(self, settings: DiscoverySettings, meet: Meet, *, first_retry_seconds: float = 1.0) -> None:
        self.settings = settings
        self.left_out = 0  # beyond a bound, added up
        self.providers: list[Provider] = []
        self._meet = meet
        self._changed = asyncio.Event()
        self._begun = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._known: dict[str, Target] = {}
        self._api = _api(settings.kubernetes) if settings.kubernetes else None
        if settings.kubernetes and self._api:
            self.providers.append(
                KubernetesProvider(
                    self._api, settings.kubernetes, self._changed.set, first_retry_seconds=first_retry_seconds
                )
            )
        if settings.files:
            self.providers.append(FileProvider(settings.files, self._changed.set))

    def start(self) -> None:
        """Begin to look."""
        self._task = asyncio.create_task(self._run())

    async def begun(self) -> None:
        """Wait until every provider has looked once."""
        await self._begun.wait()

    async def stop(self) -> None:
        """Look no more."""
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task

    async def _run(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            for provider in self.providers:
                tasks.create_task(provider.run())
            while True:
                await self._changed.wait()
                self._changed.clear()
                self._known = self._chosen()
                try:
                    await self._meet(self._known)
                except Exception:
                    LOG.exception("the predictors that were found are not all served")
                if all(provider.health.last_success or provider.health.failures for provider in self.providers):
                    self._begun.set()

    def _chosen(self) -> dict[str, Target]:
        """Return the targets by title, those that are known first, and no more than the bound."""
        found: dict[str, Target] = {}
        urls: set[str] = set()
        for provider in self.providers:
            targets = provider.targets
            provider.health.targets = len(targets)
            self.left_out += provider.left_out
            for target in sorted(targets, key=lambda each: self._known.get(each.title) != each):
                if target.title not in found and target.url not in urls:
                    found[target.title] = target
                    urls.add(target.url)
        known = [title for title in found if title in self._known]
        new = [title for title in found if title not in self._known]
        chosen = {*known, *new[: max(bounds.PREDICTORS - len(known), 0)]}
        self.left_out += len(found) - len(chosen)
        return {title: target for title, target in found.items() if title in chosen}

    def baseline_path(self, target: Target) -> str | None:
        """Return the path of the service's baseline, if there is one."""
        if self.settings.baselines is None:
            return None
        path = Path(self.settings.baselines) / f"{target.inference_service}.yaml"
        # The name comes from a label: it may name no other folder.
        return str(path) if path.parent == Path(self.settings.baselines) and path.is_file() else None

    def open_log(self, target: Target) -> Callable[[ReaderCounters], LogSource] | None:
        """Return what opens the log of a pod, if logs are asked for."""
        kubernetes, api = self.settings.kubernetes, self._api
        if kubernetes is None or api is None or not kubernetes.log or not target.pod:
            return None
        return pod_log(api, target.namespace, target.pod, kubernetes.container)


def _api(settings: KubernetesSettings) -> KubernetesApi:
    if settings.api_server is None:
        return KubernetesApi.in_pod("discovery.kubernetes")
    token, authority = settings.api_token_file, settings.api_ca_file
    return KubernetesApi(
        settings.api_server, token_path=Path(token) if token else None, ca_path=Path(authority) if authority else None
    )
