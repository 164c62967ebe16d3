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
from fieldtools import tool
from fleet.engines import ENGINES, Engine, Setting
from fleet.story import DOWN, NEW, PAGES, PROBE, Story

PAGER = "/specdec-pager"
DOWN_AFTER_SECONDS = 75.0
PAGES_SECONDS = 1200.0
RECOVERY_SECONDS = 420.0
# A record of each service with drafts, and one of the same group that is made of it.
MADE_OF_SAMPLES = "inference_service:specdec_drafts:at_least30m"
MADE_OF_A_RECORD = "inference_service:specdec_acceptance_min:threshold"
SLOW_RECORD = "inference_service:specdec_position_acceptance:ratio_rate30m"
SLOW_SECONDS = 240

Labels = dict[str, str]


@dataclasses.dataclass(slots=True)
class Seen:
    """What one engine did."""

    failure: str = ""
    pages: list[dict[str, Any]] = dataclasses.field(default_factory=list)  # bodies of the pager's notifications
    groups: list[dict[str, Any]] = dataclasses.field(default_factory=list)
    down_at: float = 0.0
    vanished: bool = False  # a page's series, one scrape after they are no longer in it
    kept: bool | None = None  # an alert fires although its cause is over
    increase: dict[int, float] = dataclasses.field(
        default_factory=dict
    )  # of the probe, by seconds after the story's begin
    unmarked: dict[int, bool] = dataclasses.field(default_factory=dict)  # whether a series that just ends is there
    first: dict[str, float] = dataclasses.field(default_factory=dict)  # time of a new service's first record, by name
    slow_phases: set[float] = dataclasses.field(default_factory=set)  # of the times of a slow group's records
    verdicts: dict[str, float] = dataclasses.field(default_factory=dict)
    cpu_seconds: float = 0.0
    mib: float = 0.0

    def paged(self) -> list[tuple[str, str]]:
        """Service and name of each alert that fired, once for each notification that brought it."""
        return sorted(
            (alert["labels"].get("inference_service", ""), alert["labels"]["alertname"])
            for body in self.pages
            for alert in body["alerts"]
            if alert["status"] == "firing"
        )

    def began(self, service: str) -> float:
        """When the alert of a page began to fire, Unix time."""
        return min(
            datetime.fromisoformat(alert["startsAt"]).timestamp()
            for body in self.pages
            for alert in body["alerts"]
            if alert["labels"].get("inference_service") == service
        )


@dataclasses.dataclass(frozen=True, slots=True)
class Witness:
    """An engine with its own Alertmanager and receiver."""

    engine: Engine
    taking: Receiver
    seen: Seen
    story: Story

    async def pages(self) -> None:
        def woken() -> bool:
            services = {body["groupLabels"].get("inference_service") for body in self.taking.at(PAGER)}
            return set(PAGES) <= services

        await within(PAGES_SECONDS, woken, every=1.0)

    async def disappearance(self) -> None:
        """Two scrapes after the predictor is gone; the look-back for unmarked series is longer."""
        self.seen.vanished = not await self.engine.query(
            f'specdec_drafts_total{{inference_service="{DOWN}"}}', time.time()
        )

    async def recovery(self) -> None:
        presence = f'inference_service:specdec_presence:enum{{inference_service="{DOWN}"}}'
        alert = f'ALERTS{{alertname="SpecDecodeTargetDown", alertstate="firing", severity="critical", inference_service="{DOWN}"}}'

        async def well() -> bool:
            return list((await self.engine.query(presence, time.time())).values()) == [0.0]

        if await within(RECOVERY_SECONDS, well, every=5.0):
            await asyncio.sleep(75)  # one more evaluation, and the write of what it gave
            self.seen.kept = bool(await self.engine.query(alert, time.time()))

    async def looks(self) -> None:
        """Ask for all that does not change any more."""
        engine, seen, now = self.engine, self.seen, self.story.now
        for after in (0, 30):
            seen.increase[after] = next(iter((await engine.query(f"increase({PROBE}[5m])", now + after)).values()))
        for after in (120, 420):
            seen.unmarked[after] = bool(await engine.query(PROBE, now + after))
        for name in (MADE_OF_SAMPLES, MADE_OF_A_RECORD):
            found = await engine.samples(f'{name}{{inference_service="{NEW}"}}[50m]', time.time())
            seen.first[name] = min(at for samples in found.values() for at, _ in samples)
        slow = await engine.samples(f"{SLOW_RECORD}[{int(time.time() - now)}s]", time.time())
        seen.slow_phases = {at % SLOW_SECONDS for samples in slow.values() for at, _ in samples}
        verdicts = await engine.query("inference_service:specdec_verdict:enum", time.time())
        seen.verdicts = {dict(labels)["inference_service"]: value for labels, value in verdicts.items()}
        seen.groups = await engine.groups()
        seen.pages = self.taking.at(PAGER)


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
                # Two rulers of a pair may be seconds apart.
                configuration["route"]["routes"][0] |= {"group_wait": "5s", "group_interval": "1s"}
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
            for witness, error in zip(
                witnesses, await asyncio.gather(*map(act, witnesses), return_exceptions=True), strict=True
            ):
                if error is not None:
                    witness.seen.failure = f"{type(error).__name__}: {error}"

        await asyncio.sleep(max(0.0, now + DOWN_AFTER_SECONDS - time.time()))
        story.down.add(DOWN)
        for one in seen.values():
            one.down_at = time.time()
        await asyncio.sleep(40)
        await each(Witness.disappearance)
        await each(Witness.pages)
        story.down.remove(DOWN)
        await each(Witness.recovery)
        await each(Witness.looks)
    return seen
