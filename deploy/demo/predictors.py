"""The simulated predictors of the demo, at ten times real speed.

One stays well. One is restarted with a draft model that does not fit, and later with the old one again. One gets slow
for another reason than its drafts, so its baseline is its own past, with speculation.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Mapping
from pathlib import Path

import yaml

from specdec_exporter.simulator.scenario import Collapse, Incident, Latency, Restart
from specdec_exporter.simulator.server import run
from specdec_exporter.simulator.settings import LatencyModel, SimulatorSettings

SPEED = 10.0
LOAD = "3/s"
INCIDENT_AT_SECONDS = 15.0  # real seconds, as are all times of the demo
INCIDENT_SECONDS = 120.0
ACCEPTANCE = 0.72
COLLAPSED_ACCEPTANCE = 0.17
SLOWER_BY = 2.0

# A draft token costs about a third of a step without drafts. At the usual acceptance drafts make the service about 1.5
# times as fast; after the collapse, about 0.77 times.
_LATENCY = LatencyModel(step_seconds=0.02, draft_token_seconds=0.007)
# Simulated predictors are fast from the start, so they need no warm-up that the exporter would leave out.
_UPTIME_SECONDS = 600.0

_AT = INCIDENT_AT_SECONDS * SPEED
_FOR = INCIDENT_SECONDS * SPEED

PREDICTORS: Mapping[str, tuple[Incident, ...]] = {
    "chat": (),
    "code": (
        Restart(at=_AT),
        Collapse(at=_AT, duration=_FOR, acceptance=COLLAPSED_ACCEPTANCE),
        Restart(at=_AT + _FOR),
    ),
    "search": (Latency(at=_AT, duration=_FOR, factor=SLOWER_BY),),
}

_HERE = Path(__file__).resolve().parent
PLAIN, BEFORE = _HERE / "baseline.yaml", _HERE / "before.yaml"
BASELINES: Mapping[str, Path] = {"chat": PLAIN, "code": PLAIN, "search": BEFORE}


def settings(name: str, log: Path) -> SimulatorSettings:
    """The simulated predictor called ``name``."""
    return SimulatorSettings(
        speed=SPEED,
        acceptance=ACCEPTANCE,
        k=3,
        load=LOAD,
        latency=_LATENCY,
        seed=len(name),
        uptime_seconds=_UPTIME_SECONDS,
        listen_address="127.0.0.1:0",
        log_path=str(log),
        incidents=PREDICTORS[name],
    )


@contextlib.asynccontextmanager
async def predictors(directory: Path) -> AsyncIterator[dict[str, tuple[str, Path]]]:
    """Run all of them in this process (there is no model). Yields the URL and the log of each by name."""
    async with contextlib.AsyncExitStack() as stack:
        yield {
            name: (await stack.enter_async_context(predictor(settings(name, log))), log)
            for name in PREDICTORS
            for log in [directory / f"{name}.log"]
        }


@contextlib.asynccontextmanager
async def predictor(told: SimulatorSettings) -> AsyncIterator[str]:
    """Run one. Yields its URL."""
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


def exporter_config(running: Mapping[str, tuple[str, Path]]) -> str:
    """The exporter's configuration file: all predictors, each with its baseline."""
    return yaml.safe_dump(
        {
            "window": "30s",  # short, so that an incident shows, and goes, while one watches
            "log": {"level": "warn"},
            "predictors": [
                {"name": name, "url": url, "log_paths": [str(log)], "baseline": str(BASELINES[name])}
                for name, (url, log) in running.items()
            ],
        }
    )
