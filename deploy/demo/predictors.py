"""The simulated predictors of the demo, at ten times real speed. One stays well, one loses its draft, one gets slow."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Mapping
from pathlib import Path

import yaml

from specdec_exporter.simulator.scenario import Collapse, Incident, Latency
from specdec_exporter.simulator.server import run
from specdec_exporter.simulator.settings import SimulatorSettings

SPEED = 10.0
INCIDENT_AT_SECONDS = 15.0  # real seconds, as are all times of the demo
INCIDENT_SECONDS = 90.0
ACCEPTANCE = 0.72
COLLAPSED_ACCEPTANCE = 0.22
SLOWER_BY = 1.6


_AT = INCIDENT_AT_SECONDS * SPEED
_FOR = INCIDENT_SECONDS * SPEED

PREDICTORS: Mapping[str, tuple[Incident, ...]] = {
    "chat": (),
    "code": (Collapse(at=_AT, duration=_FOR, acceptance=COLLAPSED_ACCEPTANCE),),
    "search": (Latency(at=_AT, duration=_FOR, factor=SLOWER_BY),),
}


def settings(name: str, log: Path) -> SimulatorSettings:
    """The simulated predictor called ``name``."""
    return SimulatorSettings(
        speed=SPEED,
        acceptance=ACCEPTANCE,
        k=3,
        load="3/s",
        seed=len(name),
        listen_address="127.0.0.1:0",
        log_path=str(log),
        incidents=PREDICTORS[name],
    )


@contextlib.asynccontextmanager
async def predictors(directory: Path) -> AsyncIterator[dict[str, tuple[str, Path]]]:
    """Run all of them in this process (there is no model). Yields the URL and the log of each by name."""
    async with contextlib.AsyncExitStack() as stack:
        yield {
            name: (await stack.enter_async_context(_predictor(settings(name, log))), log)
            for name in PREDICTORS
            for log in [directory / f"{name}.log"]
        }


@contextlib.asynccontextmanager
async def _predictor(told: SimulatorSettings) -> AsyncIterator[str]:
    stop = asyncio.Event()
    port: asyncio.Future[int] = asyncio.get_running_loop().create_future()
    task = asyncio.create_task(run(told, ready=port.set_result, stop=stop))
    try:
        await asyncio.wait((task, port), return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            await task  # raises what kept it from starting
        yield f"http://127.0.0.1:{port.result()}"
    finally:
        stop.set()
        await task


def exporter_config(running: Mapping[str, tuple[str, Path]], baseline: Path) -> str:
    """The exporter's configuration file: all predictors, each with the same baseline."""
    return yaml.safe_dump(
        {
            "window": "30s",  # short, so that an incident shows, and goes, while one watches
            "log": {"level": "warn"},
            "predictors": [
                {"name": name, "url": url, "log_paths": [str(log)], "baseline": str(baseline)}
                for name, (url, log) in running.items()
            ],
        }
    )
