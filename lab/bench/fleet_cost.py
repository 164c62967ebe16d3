"""What a fleet costs the engines: CPU of ingestion and of the rules, memory, panels.

    make bench-fleet ARGS="[--engines NAME...] [--services N...] [--scrapes SECONDS...] [--record]"

CPU, and the clock for panels only: other work on the machine stretches the clock more. ``--record`` writes
docs/scale.md.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import dataclasses
import json
import re
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Container, Iterator, Sequence
from pathlib import Path
from typing import Any

from bench.fleet import Page, exposing, real_page, serving, targets
from bench.processes import cpu_seconds, memory
from dashboards.grafana import chosen, interpolate, load, window
from fleet.engines import ENGINES, Engine, Setting, tenant, written
from fleet.story import RULES, STEADY_ONE, TARGET, Past, Story
from generated import table
from panels.database import Database
from report import measured_by, record
from support.fieldtools import ROOT
from support.processes import Server

SERVICES = (100, 1000)
SCRAPES = (60, 15)
MEASURED = ("prometheus-3", "victoria-metrics", "thanos", "mimir")
# By default a tenant may have 150,000 series and 10,000 samples a second (docs/scale.md).
MORE_OF_MIMIR = (
    "-ingester.max-global-series-per-user=0",
    "-distributor.ingestion-rate-limit=1000000",
    "-distributor.ingestion-burst-size=1000000",
)
SETTLING_SECONDS = 240  # the past that the first scrapes bring costs for three minutes
INGESTION_SECONDS = 120
CYCLE_SECONDS = 240  # of the slowest groups but those of the week, which run once an hour
SHARDS = 10
EVERYBODY = 10_000
OF_ALL = ("specdec-fleet", "specdec-pack")  # dashboards that can show all services at once
HEADER = ("services", "engine", "scrapes", "ingestion", "rules", "memory", "slowest panel")


@dataclasses.dataclass(frozen=True, slots=True)
class Cost:
    """CPU in seconds a minute; memory of all processes in MiB."""

    ingestion: float
    rules: float
    mib: float
    slowest: tuple[float, str] = (0.0, "")


def used(processes: Sequence[Server]) -> tuple[float, float]:
    """CPU seconds since their start, and resident MiB, of all together."""
    pids = [server.process.pid for server in processes]
    return sum(map(cpu_seconds, pids)), sum(memory(pid).now for pid in pids)


async def per_minute(processes: Sequence[Server], seconds: float) -> float:
    """CPU seconds a minute, over so many seconds."""
    before, begun = used(processes)[0], time.monotonic()
    await asyncio.sleep(seconds)
    return 60 * (used(processes)[0] - before) / (time.monotonic() - begun)


@contextlib.asynccontextmanager
async def started(
    name: str, fleet: Sequence[dict[str, Any]], scrape_seconds: int
) -> AsyncIterator[tuple[Engine, Path]]:
    """An engine that scrapes; and the file of its rules, which has none yet."""
    with tempfile.TemporaryDirectory(prefix="fleet-") as directory:
        folder = Path(directory)
        (folder / "nothing").mkdir()
        rules = written(folder / "rules.yaml", {"groups": []})
        # Nobody listens: alerts are the tests' matter.
        past = Past([], folder / "nothing")
        setting = Setting(folder, past, fleet, "127.0.0.1:9", rules, scrape_seconds, {"everybody": ".*"}, MORE_OF_MIMIR)
        async with ENGINES[name](setting) as engine:
            yield engine, rules


async def evaluated(engine: Engine, file: Path, rules: str) -> float:
    """CPU seconds a minute with rules, once every group was evaluated twice."""
    file.write_text(rules)
    await engine.evaluate(file)
    await asyncio.sleep(2 * CYCLE_SECONDS)
    return await per_minute(engine.processes, CYCLE_SECONDS)


async def costs(
    page: Page, names: Sequence[str], sizes: Sequence[int], scrape_seconds: int
) -> list[tuple[int, str, Cost]]:
    """What each engine costs at each size. They run beside each other: it saves hours, and ingestion looks dearer."""
    panels = asyncio.Lock()
    each = [(services, name) for services in sizes for name in names]
    found = await asyncio.gather(*(cost(page, name, services, scrape_seconds, panels) for services, name in each))
    return [(services, name, one) for (services, name), one in zip(each, found, strict=True)]


async def cost(page: Page, name: str, services: int, scrape_seconds: int, panels: asyncio.Lock) -> Cost:
    """``panels``: of one engine at a time, because their latency is by the clock."""
    with serving(page) as address:
        async with started(name, targets(address, services), scrape_seconds) as (engine, file):
            async with asyncio.timeout(600):
                while sum((await engine.query("count(specdec_up)", time.time())).values()) < services:
                    await asyncio.sleep(1)
            await asyncio.sleep(SETTLING_SECONDS)
            ingestion = await per_minute(engine.processes, INGESTION_SECONDS)
            both = await evaluated(engine, file, RULES.read_text())
            memory = used(engine.processes)[1]
            async with panels:
                names = {each.name for each in load()}
                slowest = max(await asyncio.to_thread(lambda: list(latencies(engine, names))))
    return Cost(ingestion, both - ingestion, memory, slowest)


def latencies(engine: Engine, names: Container[str]) -> Iterator[tuple[float, str]]:
    """Seconds that each panel's queries take one after the other, for all services where that can be chosen."""
    source, now = Database(engine.url, tenant(*engine.tenants)), time.time()
    for dashboard in (each for each in load() if each.name in names):
        variables = chosen(dashboard, {}, source, now)
        for panel in dashboard.panels:
            begun = time.monotonic()
            for target in panel.targets:
                over = window(panel, target, now, dashboard.range_seconds)
                expression = interpolate(target["expr"], variables, over.macros)
                if target.get("instant"):
                    source.instant(expression, over.end)
                else:
                    source.range(expression, over.start, over.end, over.step)
            yield time.monotonic() - begun, str(panel)


# --- Panels of everybody ----------------------------------------------------------------------------------------------


@contextlib.contextmanager
def shards(lines: Callable[[int], Iterator[str]]) -> Iterator[list[dict[str, Any]]]:
    """Targets of :data:`SHARDS` shards, which say ``lines`` of each of :data:`EVERYBODY` services."""
    bodies = {
        f"shard-{shard}": "".join(line for service in range(shard, EVERYBODY, SHARDS) for line in lines(service))
        for shard in range(SHARDS)
    }
    with exposing(lambda shard: bodies[shard].encode()) as address:
        yield [{"targets": [address], "labels": {"__param_service": shard, "shard": shard}} for shard in bodies]


def seen_at_once(page: Page) -> list[tuple[str, str, float]]:
    """What the dashboards of all services read of one service: names, other labels, values."""
    dashboards = [one for one in load() if one.name in OF_ALL]
    read = {name for one in dashboards for name in re.findall(r"[a-z_:]*specdec_[\w:]+", json.dumps(one.json))}
    with tempfile.TemporaryDirectory(prefix="fleet-") as folder:
        past = Story(int(time.time()) // 60 * 60).read_past(Path(folder))
    found = []
    for labels, samples in past.series:
        if labels.get("inference_service") == STEADY_ONE and ":" in labels["__name__"]:
            own = ",".join(f'{key}="{value}"' for key, value in labels.items() if key not in (*TARGET, "__name__"))
            found.append((labels["__name__"], own, samples[-1][1]))
    for line in page.at_second(int(time.time())).decode().splitlines():
        name, own, value = re.fullmatch(r"([\w:]+)(?:\{(.*)\})? (\S+)", line).groups(default="")  # type: ignore[union-attr]
        found.append((name, own, float(value)))
    return [each for each in found if each[0] in read]


async def everybody(page: Page, name: str) -> Cost:
    """Panels of :data:`EVERYBODY` services on one engine, one of 500 with an alert that fires."""
    template = seen_at_once(page)

    def lines(service: int) -> Iterator[str]:
        labels = f'cluster="eu-1",namespace="team-{service // 10:04}",inference_service="service-{service:05}"'
        for family, own, value in template:
            yield f"{family}{{{labels}{',' * bool(own)}{own}}} {value!r}\n"
        if service % 500 == 0:
            alert = f'{labels},alertname="SpecDecodeAcceptanceLow",component="specdec",severity="critical"'
            yield f'ALERTS{{{alert},alertstate="firing"}} 1\nALERTS_FOR_STATE{{{alert}}} {time.time() - 3600:.0f}\n'

    with shards(lines) as fleet:
        async with started(name, fleet, 60) as (engine, _):
            async with asyncio.timeout(600):
                while sum((await engine.query("count(specdec_up)", time.time())).values()) < EVERYBODY:
                    await asyncio.sleep(1)
            ingestion = await per_minute(engine.processes, INGESTION_SECONDS)
            slowest = max(await asyncio.to_thread(lambda: list(latencies(engine, OF_ALL))))
            return Cost(ingestion, 0, used(engine.processes)[1], slowest)


def row(services: int, name: str, scrape_seconds: int, found: Cost) -> tuple[str, ...]:
    return (
        f"{services:,}",
        name,
        f"{scrape_seconds} s",
        f"{found.ingestion:.2f} s",
        f"{found.rules:.2f} s" if found.rules else "",
        f"{found.mib:,.0f} MiB",
        f"{found.slowest[0]:.2f} s" if found.slowest[1] else "",
    )


async def measured(page: Page, arguments: argparse.Namespace) -> list[tuple[str, ...]]:
    """The rows of the table, each printed as soon as it is known. Panels come last: nothing else runs then."""
    rows: list[tuple[str, ...]] = []

    def add(*of_row: Any) -> None:
        rows.append(row(*of_row))
        print(*rows[-1], sep="\t", flush=True)

    for scrape_seconds in () if arguments.everybody == "only" else arguments.scrapes:
        for services, name, found in await costs(page, arguments.engines, arguments.services, scrape_seconds):
            add(services, name, scrape_seconds, found)
    for name in () if arguments.everybody == "not" else arguments.engines:
        add(EVERYBODY, f"panels on {name}", 60, await everybody(page, name))
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--engines", nargs="*", default=MEASURED, choices=MEASURED)
    parser.add_argument("--services", nargs="*", type=int, default=SERVICES)
    parser.add_argument("--scrapes", nargs="*", type=int, default=SCRAPES)
    parser.add_argument("--everybody", choices=("too", "only", "not"), default="too", help="panels of all services")
    parser.add_argument("--record", action="store_true", help="write the table into docs/scale.md")
    arguments = parser.parse_args()
    rows = asyncio.run(measured(real_page(), arguments))
    print(table(HEADER, rows))
    if arguments.record:
        record(ROOT / "docs" / "scale.md", "cost", HEADER, rows, measured_by("make bench-fleet ARGS=--record"))


if __name__ == "__main__":
    main()
