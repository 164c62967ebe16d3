"""The story told to several engines at once, and what was seen and heard of each."""

from __future__ import annotations

import asyncio
import dataclasses
import time
from collections.abc import Awaitable, Callable, Iterable
from contextlib import AsyncExitStack
from datetime import datetime
from pathlib import Path
from typing import Any

from alertmanager.catalogue import EXAMPLE, document
from alertmanager.server import Receiver, alertmanager, lead_to, receiver
from bench.fleet import exposing
from fleet import otlp
from fleet.engines import ENGINES, FEDERATED, FEDERATION, SCRAPE_SECONDS, Engine, Setting
from fleet.story import CLUSTER, DOWN, NEW, PAGES, PROBE, Story
from support.fieldtools import tool

PAGER = "/specdec-pager"
DOWN_AFTER_SECONDS = 75.0
PAGES_SECONDS = 1200.0
RECOVERY_SECONDS = 420.0
# A record of each service with drafts, and one of the same group that is made of it.
MADE_OF_SAMPLES = "inference_service:specdec_drafts:increase30m"
MADE_OF_A_RECORD = "inference_service:specdec_acceptance:length30m"
GROUP = "specdec-drafts"
SLOW_RECORD = "inference_service:specdec_requests:increase30m"
SLOW_SECONDS = 120
MANY_LABELS = "fleet_many_labels"
COUNTER = "vllm:spec_decode_num_draft_tokens_total"
GAUGE = "vllm:num_requests_running"
HISTOGRAM = "vllm:time_to_first_token_seconds"
LATE = "fleet_late_total"  # its second sample is older than its first


@dataclasses.dataclass(slots=True)
class Seen:
    """What one engine did."""

    failure: str = ""
    down_at: float = 0.0
    pages: list[dict[str, Any]] = dataclasses.field(default_factory=list)  # bodies of the pager's notifications
    groups: list[dict[str, Any]] = dataclasses.field(default_factory=list)
    kept: bool | None = None  # an alert fires although its cause is over
    gone: bool | None = None  # what is no longer on a page, two scrapes later
    increase: float = 0.0  # of the probe, which has 60 more at the end of five minutes
    unmarked: dict[int, bool] = dataclasses.field(default_factory=dict)  # a series without an end, seconds later
    first: dict[str, float] = dataclasses.field(default_factory=dict)  # time of a new service's first record, by name
    behind: float = 0.0  # seconds between the newest record and the last evaluation
    slow_phases: set[float] = dataclasses.field(default_factory=set)  # of the times of a slow group's records
    late: str = ""  # the complaint about a sample that comes late
    tokens: dict[str, float] = dataclasses.field(default_factory=dict)
    labels: int = 0  # of the series with most of them
    many_labels: str = ""  # the complaint about a series with 50 labels
    many_labels_kept: bool | None = None
    long_group: str = ""  # Mimir's complaint about 21 rules in a group
    otlp: str = ""  # the complaint about vLLM's metrics by OTLP
    names: set[str] = dataclasses.field(default_factory=set)  # that they have got
    federated: float | None = None

    def paged(self) -> list[tuple[str, str]]:
        """Service and name of each alert that fired."""
        return sorted(
            {
                (alert["labels"].get("inference_service", ""), alert["labels"]["alertname"])
                for body in self.pages
                for alert in body["alerts"]
                if alert["status"] == "firing"
            }
        )

    def seconds_until_down(self) -> float:
        """From the last answer of the predictor that goes down until its alert begins to fire."""
        starts = [
            _moment(alert["startsAt"])
            for body in self.pages
            for alert in body["alerts"]
            if alert["labels"].get("inference_service") == DOWN
        ]
        return min(starts) - self.down_at


@dataclasses.dataclass(frozen=True, slots=True)
class Witness:
    """An engine with its own Alertmanager and receiver."""

    engine: Engine
    taking: Receiver
    seen: Seen
    story: Story

    async def pages(self) -> None:
        def woken() -> bool:
            alerts = [alert for body in self.taking.at(PAGER) for alert in body["alerts"]]
            services = {alert["labels"].get("inference_service") for alert in alerts}
            return set(PAGES) <= services

        await within(PAGES_SECONDS, woken, every=1.0)
        self.seen.pages = list(self.taking.at(PAGER))

    async def recovery(self) -> None:
        """Wait until the cause of the outage is over by the records, then see what its alert does."""
        down = f'inference_service="{DOWN}"'
        up = f"inference_service:specdec_up:max{{{down}}}"
        page = f'ALERTS{{alertname="SpecDecodeTargetDown", alertstate="firing", severity="critical", {down}}}'

        async def well() -> bool:
            return list((await self.engine.query(up, time.time())).values()) == [1.0]

        if await within(RECOVERY_SECONDS, well, every=5.0):
            # One more evaluation, a minute late at most, and the write of what it gave.
            await asyncio.sleep(135)
            self.seen.kept = bool(await self.engine.query(page, time.time()))

    async def _behind(self) -> float:
        """Seconds between the last evaluation and its newest record; one too old if a record is on its way."""
        await asyncio.sleep(10)
        newest = await self.engine.samples(f'{MADE_OF_SAMPLES}{{inference_service="{NEW}"}}[10m]', time.time())
        groups = await self.engine.groups()
        evaluated = next(_moment(group["lastEvaluation"]) for group in groups if group["name"] == GROUP)
        return evaluated - max(at for samples in newest.values() for at, _ in samples)

    async def looks(self) -> None:
        """Ask for all that does not change any more."""
        engine, seen, now = self.engine, self.seen, self.story.now
        gone = await engine.query(
            f'specdec_drafts_total{{inference_service="{DOWN}"}}', seen.down_at + 2.5 * SCRAPE_SECONDS
        )
        seen.gone = not gone
        (seen.increase,) = (await engine.query(f"increase({PROBE}[5m])", now)).values()
        for after in (120, 420):
            seen.unmarked[after] = bool(await engine.query(PROBE, now + after))
        for name in (MADE_OF_SAMPLES, MADE_OF_A_RECORD):
            found = await engine.samples(f'{name}{{inference_service="{NEW}"}}[50m]', time.time())
            seen.first[name] = min(at for samples in found.values() for at, _ in samples)
        slow = await engine.samples(f"{SLOW_RECORD}[{int(time.time() - now)}s]", time.time())
        seen.slow_phases = {at % SLOW_SECONDS for samples in slow.values() for at, _ in samples}
        tokens = await engine.query("inference_service:specdec_generation_tokens:rate5m", time.time())
        seen.tokens = {dict(labels)["inference_service"]: value for labels, value in tokens.items()}
        seen.labels = max(
            map(len, await engine.query('{__name__=~"(inference_service:|ALERTS|specdec_).*"}', time.time()))
        )
        seen.groups = await engine.groups()
        seen.behind = min([await self._behind() for _ in range(3)])
        labels = {"__name__": LATE, "cluster": CLUSTER, "namespace": "dev"}
        for ago in (0, 600):
            seen.late = await engine.push([(labels, [(time.time() - ago, 1.0)])])
        labels |= {"__name__": MANY_LABELS, **{f"label_{number}": "x" for number in range(50)}}
        seen.many_labels = await engine.push([(labels, [(time.time(), 1.0)])])
        seen.otlp = await engine.push_otlp(_otlp())
        await asyncio.sleep(45)  # VictoriaMetrics answers with what is half a minute old
        seen.names = {dict(labels)["__name__"] for labels in await engine.query('{fleet="otlp"}', time.time())}
        seen.many_labels_kept = bool(await engine.query(MANY_LABELS, time.time()))
        if engine.tenants:
            rules = [{"record": f"fleet:long:{number}", "expr": "1"} for number in range(21)]
            seen.long_group = await engine.load({"name": "long", "rules": rules})
            federation = dataclasses.replace(engine, tenants=[FEDERATION])
            (seen.federated,) = (await federation.query(FEDERATED, time.time())).values()


def _otlp() -> list[bytes]:
    """A counter, a gauge and a histogram of vLLM."""
    at: tuple[dict[str, str], int] = ({"fleet": "otlp"}, time.time_ns())
    return [
        otlp.counter(COUNTER, 5.0, *at),
        otlp.gauge(GAUGE, 5.0, *at),
        otlp.histogram(HISTOGRAM, [1, 2], [0.5], *at),
    ]


def _moment(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()


async def within(seconds: float, condition: Callable[[], bool | Awaitable[bool]], *, every: float) -> bool:
    """Whether a condition comes true in time."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        answer = condition()
        if answer is True or (not isinstance(answer, bool) and await answer):
            return True
        await asyncio.sleep(every)
    return False


async def told(names: Iterable[str], folder: Path) -> dict[str, Seen]:
    """Start the engines, tell them the story, stop them; what each did, by name. It takes a quarter of an hour."""
    now = (int(time.time()) // 60 + 2) * 60  # the past takes seconds
    story = Story(now)
    past = await asyncio.to_thread(story.read_past, folder)
    seen = {name: Seen() for name in names}
    async with AsyncExitStack() as stack:
        address = stack.enter_context(exposing(story.page))
        await asyncio.sleep(max(0.0, now - time.time()))

        async def start(name: str) -> Witness | None:
            directory = folder / name
            directory.mkdir()
            try:
                taking = await stack.enter_async_context(receiver())
                configuration = document(EXAMPLE.name)
                lead_to(taking, configuration)
                # The rulers of a pair are seconds apart.
                (ours,) = configuration["route"]["routes"]
                for route in (ours, *ours["routes"]):
                    route |= {"group_wait": "5s", "group_interval": "1s"}
                server = await stack.enter_async_context(
                    alertmanager(tool("prometheus-alertmanager"), configuration, directory)
                )
                setting = Setting(directory, past, story.targets(address), server.url.removeprefix("http://"))
                engine = await stack.enter_async_context(ENGINES[name](setting))
            except Exception as error:  # noqa: BLE001  the others go on, and its tests say it
                seen[name].failure = f"{type(error).__name__}: {error}"
                return None
            return Witness(engine, taking, seen[name], story)

        witnesses = [found for name in seen if (found := await start(name))]

        async def each(act: Callable[[Witness], Awaitable[None]]) -> None:
            results = await asyncio.gather(*map(act, witnesses), return_exceptions=True)
            for witness, error in zip(witnesses, results, strict=True):
                if error is not None:
                    witness.seen.failure = f"{type(error).__name__}: {error}"

        await asyncio.sleep(max(0.0, now + DOWN_AFTER_SECONDS - time.time()))
        story.down.add(DOWN)
        for one in seen.values():
            one.down_at = time.time()
        await each(Witness.pages)
        story.down.remove(DOWN)
        await each(Witness.recovery)
        await each(Witness.looks)
    return seen
