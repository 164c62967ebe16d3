"""Baseline files of simulated services without speculation, as ``baseline record`` writes them."""

from __future__ import annotations

import functools
from datetime import UTC, datetime
from pathlib import Path

from msgspec.structs import replace

from demo.simulator.engine import Engine
from demo.simulator.exposition import render_metrics
from demo.simulator.scenario import ChangeLoad
from demo.simulator.settings import SimulatorSettings
from specdec_exporter.baseline.file import Baseline, Context, as_utc
from specdec_exporter.baseline.recording import Recorder, with_increases
from specdec_exporter.baseline.writing import write_baseline
from specdec_exporter.predictor.metrics.exposition import parse_exposition
from specdec_exporter.predictor.metrics.snapshot import Snapshot

BEGUN = 1_789_200_000  # some days before the first scrape
WARM_UP_SECONDS = 60
POLL_SECONDS = 5
USUAL_SECONDS = 1800
# Then so many requests at a time, to know the step times at other loads.
LOADS, LOAD_SECONDS = (2, 4, 8, 16, 32), 40


def write(path: str, settings: SimulatorSettings) -> None:
    """Write the baseline of one engine with these settings."""
    Path(path).unlink(missing_ok=True)
    write_baseline(path, _recorded(settings))


@functools.cache
def _recorded(settings: SimulatorSettings) -> Baseline:
    first = WARM_UP_SECONDS + USUAL_SECONDS
    loads = tuple(ChangeLoad(at=first + number * LOAD_SECONDS, load=load) for number, load in enumerate(LOADS))
    engine = Engine(replace(settings, incidents=loads), start_unix=BEGUN)
    engine.advance(WARM_UP_SECONDS)
    recorder = Recorder(_snapshot(engine), engine.now)
    for _ in range(0, USUAL_SECONDS + len(LOADS) * LOAD_SECONDS, POLL_SECONDS):
        engine.advance(POLL_SECONDS)
        recorder.observe(_snapshot(engine), engine.now)
    return with_increases(
        Baseline(
            name="spec-off",
            recorded_at=as_utc(datetime.fromtimestamp(BEGUN + engine.now, UTC)),
            duration_seconds=recorder.seconds,
            context=Context(hardware="1x H100"),
            vllm_version=settings.vllm_version,
            model_name=settings.model_name,
        ),
        recorder.increases(),
    )


def _snapshot(engine: Engine) -> Snapshot:
    return parse_exposition(render_metrics(engine), engine.release.content_type)
