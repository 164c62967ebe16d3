"""A simulated predictor trims drafts in busy hours, and nobody is woken: simulator, exporter, rules in Prometheus."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import pytest
import rjsonnet
from msgspec.structs import replace

from bench.alert_replay import Samples, replay
from dashboards.traces import END, START, Replica, collect
from demo.simulator.engine import Engine
from demo.simulator.exposition import render_metrics
from demo.simulator.scenario import ChangeLoad
from demo.simulator.settings import LatencyModel, SimulatorSettings
from promtool import REPOSITORY

LIGHT_SECONDS = 100 * 60
# Four requests at a time have two tokens of each draft verified, and eight have one.
BUSY = SimulatorSettings(
    vllm_version="0.33.0",
    k=3,
    acceptance=(0.72, 0.52, 0.37),
    load=1,
    latency=LatencyModel(step_seconds=0.1, draft_token_seconds=0.0025, batched_token_seconds=0.0135),
    incidents=(ChangeLoad(at=LIGHT_SECONDS, load=8),),
    adaptive_verification=True,
)
TRIMMED = Replica(service="trimmed", pod="trimmed-0", settings=BUSY)
# The same counters, of a server that verifies all: there they mean what they say.
WHOLE = Replica(service="whole", pod="whole-0", settings=replace(BUSY, adaptive_verification=False))


def of_vllm(replica: Replica) -> list[Samples]:
    """What Prometheus scrapes from the predictor itself."""
    engine, found = Engine(replica.settings, start_unix=START), {}
    target = "".join(f'{name}="{value}",' for name, value in replica.target.items())
    target += f'inference_service="{replica.service}",'
    for at in range(START + 60, END + 1, 60):
        engine.advance(60)
        for line in render_metrics(engine).decode().splitlines():
            if line.startswith("vllm:"):
                series, _, value = line.rpartition(" ")
                name, _, labels = series.partition("{")
                found.setdefault(f"{name}{{{target}{labels}", []).append((at, float(value)))
    return [Samples(series, *zip(*points, strict=True)) for series, points in found.items()]
