"""The simulated predictors of the demo, as busy as it takes to judge them within a minute.

``chat`` is well. ``code`` runs with a draft model that does not fit, until it restarts with one that does. ``search``
gets slow for another reason than its drafts, so its baseline is its own past, with speculation.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Mapping
from pathlib import Path

import yaml

from demo.simulator.scenario import Collapse, Incident, Latency, Restart
from demo.simulator.server import serving
from demo.simulator.settings import LatencyModel, SimulatorSettings

LOAD = "30/s"
# Seconds, so far apart that the pages come in the same order on any machine.
SEARCH_SLOW, SEARCH_WELL = 60.0, 120.0
CODE_RESTARTS = 80.0
ACCEPTANCE = 0.72
MISFIT_ACCEPTANCE = 0.17
SLOWER_BY = 2.0

# A draft token costs about a third of a step without drafts. At the usual acceptance drafts make the service about 1.5
# times as fast; with the draft model that does not fit, about 0.77 times.
_LATENCY = LatencyModel(step_seconds=0.02, draft_token_seconds=0.007, request_seconds=0.00002)
# The predictors ran before the demo began, so nobody waits for their warm-up.
_UPTIME_SECONDS = 600.0
_DOWN_SECONDS = 2.0

PREDICTORS: Mapping[str, tuple[Incident, ...]] = {
    "chat": (),
    "code": (
        Collapse(at=0, duration=CODE_RESTARTS, acceptance=MISFIT_ACCEPTANCE),
        Restart(at=CODE_RESTARTS, duration=_DOWN_SECONDS),
    ),
    "search": (Latency(at=SEARCH_SLOW, duration=SEARCH_WELL - SEARCH_SLOW, factor=SLOWER_BY),),
}

_HERE = Path(__file__).resolve().parent
PLAIN, BEFORE = _HERE / "baseline.yaml", _HERE / "before.yaml"
BASELINES: Mapping[str, Path] = {"chat": PLAIN, "code": PLAIN, "search": BEFORE}


def settings(name: str, log: Path) -> SimulatorSettings:
    """The simulated predictor called ``name``."""
    return SimulatorSettings(
        acceptance=ACCEPTANCE,
        k=3,
        load=LOAD,
        max_num_seqs=256,
        latency=_LATENCY,
        seed=list(PREDICTORS).index(name),
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
            name: (await stack.enter_async_context(serving(settings(name, log))), log)
            for name in PREDICTORS
            for log in [directory / f"{name}.log"]
        }


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
