"""Whoever answers: predictors of every kind, whose truth is known, and what a real Prometheus counts of them.

The clocks are turned by hand; HTTP, exporter and Prometheus are real.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

from builders import Clock
from faults.judge import Scrape, problems, truths
from faults.kinds import KINDS, Kind
from faults.processes import series
from faults.wire import NO_ANSWER, Fault, serving, whole
from promtool import promtool
from specdec_exporter.config import PredictorSettings, Settings, WebSettings
from specdec_exporter.serving.collector import SpecdecCollector
from specdec_exporter.serving.runtime import ExporterRuntime
from tsdb import ask, prometheus

BEGIN = 1_790_001_000
SOUND = Fault("sound", whole, up=True)
ASKED = ("specdec_generation_tokens_total", "specdec_drafts_total", "specdec_step_latency_seconds_sum")


async def scraped(kind: Kind) -> list[Scrape]:
    """Scrape an exporter in front of such a predictor."""
    clock, found = Clock(), []
    async with serving() as server:
        settings = Settings(
            predictors=(PredictorSettings(name="svc", url=server.url),), web=WebSettings(disable_exporter_metrics=True)
        )
        runtime = ExporterRuntime(settings, lambda: settings)
        await runtime.start()
        (running,) = runtime.predictors
        state = running.state
        state._clock, state._wall_clock, state._born = clock.monotonic, clock.wall, clock.now
        collector = SpecdecCollector(runtime)
        try:
            for number, letter in enumerate(kind.order):
                at, clock.now = float(number * kind.interval), 1000.0 + number * kind.interval
                clock.ahead = BEGIN - 1000.0 + next(
                    (ahead for since, ahead in kind.set_clock.items() if since <= number), 0.0
                )
                server.fault = NO_ANSWER if letter == "-" else kind.faults.get(number, SOUND)
                process, shown = kind.who.get(letter), at - kind.age(number)
                server.body = process.body(shown, BEGIN + shown) if process else b""
                await runtime.refresh(kind.timeout_seconds)
                samples = {
                    series(each.name, each.labels): each.value
                    for family in collector.collect()
                    for each in family.samples
                }
                figures = process.figures(shown) if process else {}
                found.append(Scrape(at, letter, server.fault, figures, samples))
        finally:
            await runtime.stop()
    return found


@pytest.mark.parametrize("name", KINDS)
async def test_counts_are_true_whoever_answers(name: str) -> None:
    assert list(problems(KINDS[name], await scraped(KINDS[name]))) == []
