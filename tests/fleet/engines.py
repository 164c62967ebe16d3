"""Engines that evaluate the rules: each starts with the same past, loads the rendered file, and pages by itself.

An engine is an async context manager of a :class:`Setting` that yields a :class:`Engine`. What it starts is stopped by
its own handle when the block ends.
"""

from __future__ import annotations

import asyncio
import dataclasses
import shutil
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import yaml

import tsdb
from demo.processes import Server, free_port, running
from fieldtools import tool
from fleet.story import RULES, Past

SCRAPE_SECONDS = 15
REPLICA = "replica"


@dataclasses.dataclass(frozen=True, slots=True)
class Setting:
    """What an engine is given. ``alertmanager``: host and port; ``targets``: static configurations of Prometheus."""

    directory: Path
    past: Past
    targets: Sequence[Mapping[str, Any]]
    alertmanager: str


@dataclasses.dataclass(frozen=True, slots=True)
class Engine:
    """A running engine. ``rules_url`` has the rules of its ruler, ``write_url`` takes remote writes."""

    url: str
    rules_url: str
    write_url: str
    processes: Sequence[Server]
    headers: Mapping[str, str] = dataclasses.field(default_factory=dict)

    async def query(self, expression: str, at: float) -> tsdb.Vector:
        return await asyncio.to_thread(tsdb.query, self.url, expression, at, self.headers)

    async def samples(self, selector: str, at: float) -> dict[tuple[tuple[str, str], ...], list[tuple[float, float]]]:
        """Raw samples of a selector with a range, by sorted labels."""
        data = await asyncio.to_thread(tsdb.ask, self.url, "query", self.headers, query=selector, time=f"{at:.3f}")
        return {
            tuple(sorted(each["metric"].items())): [(moment, float(value)) for moment, value in each["values"]]
            for each in data["result"]
        }

    async def groups(self) -> list[dict[str, Any]]:
        """The groups of the rules, with the state of each rule."""
        data = await asyncio.to_thread(tsdb.ask, self.rules_url, "rules", self.headers)
        groups: list[dict[str, Any]] = data["groups"]
        return groups


Starter = Callable[[Setting], AbstractAsyncContextManager[Engine]]


def written(file: Path, content: Any) -> Path:
    file.write_text(yaml.safe_dump(content), encoding="utf-8")
    return file


def _scraping(setting: Setting) -> dict[str, Any]:
    return {
        "global": {"scrape_interval": f"{SCRAPE_SECONDS}s", "scrape_timeout": "10s"},
        "scrape_configs": [{"job_name": "predictors", "static_configs": list(setting.targets)}],
    }


def _alerting(setting: Setting) -> dict[str, Any]:
    return {"alertmanagers": [{"static_configs": [{"targets": [setting.alertmanager]}]}]}


@asynccontextmanager
async def _prometheus(
    name: str, directory: Path, configuration: Any, past: Past | None, *flags: str, program: str = "prometheus3"
) -> AsyncIterator[Server]:
    port = free_port()
    data = directory / f"{name}-data"
    if past is not None:
        await asyncio.to_thread(shutil.copytree, past.blocks, data)
    command = (
        tool(program),
        f"--config.file={written(directory / f'{name}.yml', configuration)}",
        f"--storage.tsdb.path={data}",
        f"--web.listen-address=127.0.0.1:{port}",
        *flags,
    )
    async with running(name, command, port=port, ready="/-/ready", directory=directory) as server:
        yield server


TAKES_WRITES = "--web.enable-remote-write-receiver"


def prometheus(program: str) -> Starter:
    """One Prometheus that does everything."""

    @asynccontextmanager
    async def start(setting: Setting) -> AsyncIterator[Engine]:
        configuration = {**_scraping(setting), "rule_files": [str(RULES)], "alerting": _alerting(setting)}
        arguments = ("prometheus", setting.directory, configuration, setting.past, TAKES_WRITES)
        async with _prometheus(*arguments, program=program) as server:
            yield Engine(server.url, server.url, f"{server.url}/api/v1/write", [server])

    return start


@asynccontextmanager
async def pair(setting: Setting) -> AsyncIterator[Engine]:
    """Two Prometheus that do the same, told apart by an external label that alerts do not keep."""
    async with AsyncExitStack() as stack:
        servers = []
        for name in ("a", "b"):
            configuration = {
                **_scraping(setting),
                "rule_files": [str(RULES)],
                "alerting": {
                    **_alerting(setting),
                    "alert_relabel_configs": [{"action": "labeldrop", "regex": REPLICA}],
                },
            }
            configuration["global"] |= {"external_labels": {REPLICA: name}}
            arguments = (f"prometheus-{name}", setting.directory, configuration, setting.past, TAKES_WRITES)
            servers.append(await stack.enter_async_context(_prometheus(*arguments)))
        first = servers[0]
        yield Engine(first.url, first.url, f"{first.url}/api/v1/write", servers)


@asynccontextmanager
async def agent(setting: Setting) -> AsyncIterator[Engine]:
    """An agent that scrapes and writes by remote write 2.0; the Prometheus that it writes to evaluates."""
    central = {"rule_files": [str(RULES)], "alerting": _alerting(setting)}
    async with _prometheus("prometheus", setting.directory, central, setting.past, TAKES_WRITES) as server:
        write_url = f"{server.url}/api/v1/write"
        remote = {"url": write_url, "protobuf_message": "io.prometheus.write.v2.Request"}
        port = free_port()
        configuration = written(setting.directory / "agent.yml", {**_scraping(setting), "remote_write": [remote]})
        command = (
            tool("prometheus3"),
            "--agent",
            f"--config.file={configuration}",
            f"--storage.agent.path={setting.directory / 'agent-data'}",
            f"--web.listen-address=127.0.0.1:{port}",
        )
        async with running("agent", command, port=port, ready="/-/ready", directory=setting.directory) as scraper:
            yield Engine(server.url, server.url, write_url, [server, scraper])


@asynccontextmanager
async def victoria_metrics(setting: Setting) -> AsyncIterator[Engine]:
    """The single-node database, which scrapes, and vmalert beside it."""
    folder = setting.directory
    port, ruler_port = free_port(), free_port()
    command = (
        tool("victoria-metrics-current"),
        f"-storageDataPath={folder / 'data'}",
        f"-httpListenAddr=127.0.0.1:{port}",
        f"-promscrape.config={written(folder / 'scrape.yml', _scraping(setting))}",
        "-retentionPeriod=100y",
        "-memory.allowedBytes=256MB",
    )
    async with running("victoria-metrics", command, port=port, ready="/health", directory=folder) as database:
        await asyncio.to_thread(tsdb.import_samples, database.url, "".join(setting.past.lines(milliseconds=True)))
        command = (
            tool("vmalert-current"),
            f"-rule={RULES}",
            *(f"-{what}.url={database.url}" for what in ("datasource", "remoteWrite", "remoteRead")),
            f"-notifier.url=http://{setting.alertmanager}",
            f"-httpListenAddr=127.0.0.1:{ruler_port}",
            "-remoteWrite.flushInterval=1s",
        )
        async with running("vmalert", command, port=ruler_port, ready="/health", directory=folder) as ruler:
            yield Engine(database.url, ruler.url, f"{database.url}/api/v1/write", [database, ruler])


ENGINES: Mapping[str, Starter] = {
    "prometheus-2.42": prometheus("prometheus"),
    "prometheus-3": prometheus("prometheus3"),
    "prometheus-pair": pair,
    "prometheus-agent": agent,
    "victoria-metrics": victoria_metrics,
}
