"""Engines that evaluate the rules: each starts with the same past, loads the rendered file, and pages by itself.

An engine is an async context manager of a :class:`Setting` that yields a :class:`Engine`. What it starts is stopped by
its own handle when the block ends.
"""

from __future__ import annotations

import asyncio
import dataclasses
import shutil
import signal
import urllib.error
import urllib.request
from asyncio.subprocess import PIPE, STDOUT
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import yaml

from fleet import otlp
from fleet.remotewrite import Labels, Sample, write
from fleet.story import NAMESPACES, RULES, Past
from support import tsdb
from support.fieldtools import tool
from support.processes import Server, beside, free_port
from victoriametrics import import_samples

SCRAPE_SECONDS = 15
REPLICA = "replica"


@dataclasses.dataclass(frozen=True, slots=True)
class Setting:
    """What an engine is given. ``alertmanager``: host and port; ``targets``: static configurations of Prometheus.

    ``tenants``: those of Mimir, and the namespaces of each as a regular expression. ``limits``: flags of Mimir.
    """

    directory: Path
    past: Past
    targets: Sequence[Mapping[str, Any]]
    alertmanager: str
    rules: Path = RULES
    scrape_seconds: int = SCRAPE_SECONDS
    tenants: Mapping[str, str] = dataclasses.field(default_factory=lambda: {name: name for name in NAMESPACES.values()})
    limits: Sequence[str] = ()


@dataclasses.dataclass(frozen=True, slots=True)
class Engine:
    """A running engine. ``rules_url`` has the rules of its ruler; two URLs take remote writes and OTLP.

    The last of ``processes`` is the ruler. ``tenants``: whose data are read together.
    """

    url: str
    rules_url: str
    write_url: str
    otlp_url: str
    processes: Sequence[Server]
    tenants: Sequence[str] = ()

    async def query(self, expression: str, at: float) -> tsdb.Vector:
        found = await asyncio.to_thread(tsdb.query, self.url, expression, at, tenant(*self.tenants))
        return {tuple(pair for pair in labels if pair[0] != "__tenant_id__"): value for labels, value in found.items()}

    async def samples(self, selector: str, at: float) -> dict[tuple[tuple[str, str], ...], list[tuple[float, float]]]:
        """Raw samples of a selector with a range, by sorted labels."""
        headers = tenant(*self.tenants)
        data = await asyncio.to_thread(tsdb.ask_for, headers, self.url, "query", query=selector, time=f"{at:.3f}")
        return {
            tuple(sorted(each["metric"].items())): [(moment, float(value)) for moment, value in each["values"]]
            for each in data["result"]
        }

    async def groups(self) -> list[dict[str, Any]]:
        """The groups of the rules, with the state of each rule, tenant by tenant."""
        headers = [tenant(one) for one in self.tenants or ("",)]
        answers = [await asyncio.to_thread(tsdb.rules, self.rules_url, each) for each in headers]
        return [group for answer in answers for group in answer]

    async def push(self, series: Iterable[tuple[Labels, Sequence[Sample]]]) -> str:
        """Send samples by remote write; what the engine complains of, if it does."""
        return await asyncio.to_thread(write, self.write_url, series, tenant(*self.tenants[:1]))

    async def push_otlp(self, metrics: Iterable[bytes]) -> str:
        """Send metrics by OTLP; what the engine complains of, if it does."""
        return await self._post(self.otlp_url, otlp.request(metrics), "application/x-protobuf")

    async def load(self, group: Mapping[str, Any]) -> str:
        """Give Mimir a group of rules; what it complains of, if it does."""
        return await self._post(f"{self.url}/config/v1/rules/more", yaml.safe_dump(group).encode(), "application/yaml")

    async def evaluate(self, file: Path) -> None:
        """Take the rules of a file that has changed."""
        if self.tenants:
            for name in self.tenants:
                await self.give_rules(name, file)
        else:
            self.processes[-1].process.send_signal(signal.SIGHUP)

    async def give_rules(self, name: str, file: Path) -> None:
        """Give a tenant of Mimir the rules of a file, in place of those that a file of this name had."""
        address = f"--address={self.processes[-1].url}"
        command = (tool("mimirtool"), "rules", "load", str(file), address, f"--id={name}")
        process = await asyncio.create_subprocess_exec(*command, stdout=PIPE, stderr=STDOUT)
        output, _ = await process.communicate()
        assert process.returncode == 0, output.decode()

    async def _post(self, url: str, body: bytes, kind: str) -> str:
        headers = {"Content-Type": kind, **tenant(*self.tenants[:1])}
        request = urllib.request.Request(url, body, headers)
        try:
            with await asyncio.to_thread(urllib.request.urlopen, request, timeout=30):
                return ""
        except urllib.error.HTTPError as error:
            return f"{error.code} {error.read().decode()}"


def tenant(*names: str) -> dict[str, str]:
    """Mimir's header for requests in the name of one tenant, or of several."""
    return {"X-Scope-OrgID": "|".join(names)} if any(names) else {}


Starter = Callable[[Setting], AbstractAsyncContextManager[Engine]]


def written(file: Path, content: Any) -> Path:
    file.write_text(yaml.safe_dump(content), encoding="utf-8")
    return file


def _scraping(setting: Setting) -> dict[str, Any]:
    return {
        "global": dict.fromkeys(("scrape_interval", "scrape_timeout"), f"{setting.scrape_seconds}s"),
        "scrape_configs": [{"job_name": "predictors", "static_configs": list(setting.targets)}],
    }


def _alerting(setting: Setting) -> dict[str, Any]:
    return {"alertmanagers": [{"static_configs": [{"targets": [setting.alertmanager]}]}]}


@asynccontextmanager
async def _prometheus(
    name: str, directory: Path, configuration: Any, past: Past | None, *flags: str, program: str = "prometheus3"
) -> AsyncIterator[Server]:
    data = directory / name
    if past is not None:
        await asyncio.to_thread(shutil.copytree, past.blocks, data)
    async with beside(**tsdb.prometheus_of(data, yaml.safe_dump(configuration), *flags, program=program)) as server:
        yield server


@asynccontextmanager
async def _agent(directory: Path, configuration: Any) -> AsyncIterator[Server]:
    port = free_port()
    command = (
        tool("prometheus3"),
        "--agent",
        f"--config.file={written(directory / 'agent.yml', configuration)}",
        f"--storage.agent.path={directory / 'agent-data'}",
        f"--web.listen-address=127.0.0.1:{port}",
    )
    async with beside("agent", command, port=port, directory=directory) as server:
        yield server


TAKES_WRITES = ("--web.enable-remote-write-receiver",)
TAKES_ALL = (*TAKES_WRITES, "--web.enable-otlp-receiver")  # not in Prometheus 2.42
OTLP = "/api/v1/otlp/v1/metrics"


def prometheus(program: str) -> Starter:
    """One Prometheus that does everything."""

    @asynccontextmanager
    async def start(setting: Setting) -> AsyncIterator[Engine]:
        configuration = {**_scraping(setting), "rule_files": [str(setting.rules)], "alerting": _alerting(setting)}
        arguments = ("prometheus", setting.directory, configuration, setting.past)
        flags = TAKES_WRITES if program == "prometheus" else TAKES_ALL
        async with _prometheus(*arguments, *flags, program=program) as server:
            yield Engine(server.url, server.url, f"{server.url}/api/v1/write", server.url + OTLP, [server])

    return start


@asynccontextmanager
async def pair(setting: Setting) -> AsyncIterator[Engine]:
    """Two Prometheus that do the same, told apart by an external label that alerts do not keep."""
    async with AsyncExitStack() as stack:
        servers = []
        for name in ("a", "b"):
            configuration = {
                **_scraping(setting),
                "rule_files": [str(setting.rules)],
                "alerting": {
                    **_alerting(setting),
                    "alert_relabel_configs": [{"action": "labeldrop", "regex": REPLICA}],
                },
            }
            configuration["global"] |= {"external_labels": {REPLICA: name}}
            arguments = (f"prometheus-{name}", setting.directory, configuration, setting.past, *TAKES_ALL)
            servers.append(await stack.enter_async_context(_prometheus(*arguments)))
        first = servers[0]
        yield Engine(first.url, first.url, f"{first.url}/api/v1/write", first.url + OTLP, servers)


@asynccontextmanager
async def agent(setting: Setting) -> AsyncIterator[Engine]:
    """An agent that scrapes and writes by remote write 2.0; the Prometheus that it writes to evaluates."""
    central = {"rule_files": [str(setting.rules)], "alerting": _alerting(setting)}
    async with _prometheus("prometheus", setting.directory, central, setting.past, *TAKES_ALL) as server:
        write_url = f"{server.url}/api/v1/write"
        remote = {"url": write_url, "protobuf_message": "io.prometheus.write.v2.Request"}
        configuration = {**_scraping(setting), "remote_write": [remote]}
        async with _agent(setting.directory, configuration) as scraper:
            yield Engine(server.url, server.url, write_url, server.url + OTLP, [scraper, server])


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
    )
    async with beside("victoria-metrics", command, port=port, ready="/health", directory=folder) as database:
        await asyncio.to_thread(import_samples, database.url, "".join(setting.past.lines(milliseconds=True)))
        ruling = (
            tool("vmalert-current"),
            f"-rule={setting.rules}",
            *(f"-{what}.url={database.url}" for what in ("datasource", "remoteWrite", "remoteRead")),
            f"-notifier.url=http://{setting.alertmanager}",
            f"-httpListenAddr=127.0.0.1:{ruler_port}",
            "-remoteWrite.flushInterval=1s",
        )
        async with beside("vmalert", ruling, port=ruler_port, ready="/health", directory=folder) as ruler:
            otlp_url = f"{database.url}/opentelemetry/v1/metrics"
            yield Engine(database.url, ruler.url, f"{database.url}/api/v1/write", otlp_url, [database, ruler])


@asynccontextmanager
async def thanos(setting: Setting) -> AsyncIterator[Engine]:
    """A Prometheus that scrapes, its sidecar, a querier, and a ruler without storage: it writes to the Prometheus."""
    folder = setting.directory
    ports = {name: (free_port(), free_port()) for name in ("sidecar", "query", "rule")}

    def command(name: str, *flags: str) -> tuple[str, ...]:
        http, grpc = ports[name]
        addresses = (f"--http-address=127.0.0.1:{http}", f"--grpc-address=127.0.0.1:{grpc}")
        return (tool("thanos"), name, *addresses, *flags)

    async with AsyncExitStack() as stack:

        async def started(name: str, *flags: str) -> Server:
            return await stack.enter_async_context(
                beside(name, command(name, *flags), port=ports[name][0], directory=folder)
            )

        configuration = _scraping(setting)
        configuration["global"] |= {"external_labels": {REPLICA: "a"}}
        database = await stack.enter_async_context(
            _prometheus("prometheus", folder, configuration, setting.past, *TAKES_ALL)
        )
        write_url = f"{database.url}/api/v1/write"
        sidecar = await started("sidecar", f"--prometheus.url={database.url}", f"--tsdb.path={folder / 'prometheus'}")
        querier = await started(
            "query", f"--endpoint=127.0.0.1:{ports['sidecar'][1]}", f"--query.replica-label={REPLICA}"
        )
        ruler = await started(
            "rule",
            f"--data-dir={folder / 'rule-data'}",
            f"--rule-file={setting.rules}",
            f"--query={querier.url.removeprefix('http://')}",
            f"--remote-write.config-file={written(folder / 'write.yml', {'remote_write': [{'url': write_url}]})}",
            f"--alertmanagers.url=http://{setting.alertmanager}",
            f'--label={REPLICA}="rule-a"',
            f"--alert.label-drop={REPLICA}",
        )
        processes = [database, sidecar, querier, ruler]
        yield Engine(querier.url, ruler.url, write_url, database.url + OTLP, processes)


FEDERATED = "fleet:specdec_presence:count"
FEDERATION = "fleet"  # a tenant without samples of its own


@asynccontextmanager
async def mimir(setting: Setting) -> AsyncIterator[Engine]:
    """One binary for its tenants, each with the rules, and one more whose rules read them all; an agent scrapes."""
    folder = setting.directory
    port, grpc, gossip = free_port(), free_port(), free_port()
    tenants = sorted(setting.tenants)
    parts = ("ingester", "distributor", "ruler", "compactor", "query-scheduler", "querier", "overrides-exporter")
    rings = [*(f"{part}.ring" for part in parts), "store-gateway.sharding-ring"]
    command = (
        tool("mimir"),
        "-target=all",
        "-auth.multitenancy-enabled=true",
        "-server.http-listen-address=127.0.0.1",
        f"-server.http-listen-port={port}",
        "-server.grpc-listen-address=127.0.0.1",
        f"-server.grpc-listen-port={grpc}",
        "-memberlist.bind-addr=127.0.0.1",
        f"-memberlist.bind-port={gossip}",
        *(f"-{ring}.instance-addr=127.0.0.1" for ring in rings),
        "-query-frontend.instance-addr=127.0.0.1",
        "-ingester.ring.replication-factor=1",
        "-ingester.ring.min-ready-duration=0s",
        "-store-gateway.sharding-ring.replication-factor=1",
        "-common.storage.backend=filesystem",
        f"-common.storage.filesystem.dir={folder / 'objects'}",
        "-blocks-storage.storage-prefix=blocks",
        "-ruler-storage.storage-prefix=rules",
        f"-blocks-storage.tsdb.dir={folder / 'tsdb'}",
        f"-blocks-storage.bucket-store.sync-dir={folder / 'sync'}",
        f"-compactor.data-dir={folder / 'compactor'}",
        f"-ruler.rule-path={folder / 'rules'}",
        f"-activity-tracker.filepath={folder / 'activity'}",
        f"-ruler.alertmanager-url=http://{setting.alertmanager}",
        "-ruler.tenant-federation.enabled=true",
        "-tenant-federation.enabled=true",
        "-usage-stats.enabled=false",
        *setting.limits,
    )
    async with AsyncExitStack() as stack:
        server = await stack.enter_async_context(beside("mimir", command, port=port, ready="/ready", directory=folder))
        write_url = f"{server.url}/api/v1/push"
        api = f"{server.url}/prometheus"
        processes = [server]
        engine = Engine(api, api, write_url, f"{server.url}/otlp/v1/metrics", processes, tenants)
        for name in tenants:
            await _give(name, engine, setting.past)
        federated = {
            "name": "federated",
            "interval": "1m",
            "source_tenants": tenants,
            "rules": [{"record": FEDERATED, "expr": "count(inference_service:specdec_up:max)"}],
        }
        own = written(folder / "federated.yml", {"namespace": "fleet", "groups": [federated]})
        for name, file in [*((name, setting.rules) for name in tenants), (FEDERATION, own)]:
            await engine.give_rules(name, file)
        remotes = [
            {
                "url": write_url,
                "headers": tenant(name),
                "write_relabel_configs": [{"source_labels": ["namespace"], "regex": namespaces, "action": "keep"}],
            }
            for name, namespaces in setting.tenants.items()
        ]
        scraper = _agent(folder, {**_scraping(setting), "remote_write": remotes})
        processes.insert(0, await stack.enter_async_context(scraper))
        yield engine


async def _give(name: str, engine: Engine, past: Past) -> None:
    """Write the past of a tenant: an agent sends nothing that is older than its own start.

    An ingester takes no sample that is an hour older than its newest.
    """
    own = dataclasses.replace(engine, tenants=[name])
    for minutes in past.slices(name, seconds=1800):
        assert not (complaint := await own.push(minutes)), complaint


ENGINES: Mapping[str, Starter] = {
    "prometheus-2.42": prometheus("prometheus"),
    "prometheus-3": prometheus("prometheus3"),
    "prometheus-pair": pair,
    "prometheus-agent": agent,
    "victoria-metrics": victoria_metrics,
    "thanos": thanos,
    "mimir": mimir,
}
