"""From end to end: whatever a predictor and its log say, the exporter's own exposition is sound."""

from __future__ import annotations

import asyncio
import math
from typing import Any

import msgspec
from prometheus_client.exposition import generate_latest
from prometheus_client.openmetrics.exposition import generate_latest as generate_openmetrics
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families

from fuzz.log import WORDS as LOG_WORDS
from fuzz.log import plain_logs, read
from fuzz.metrics import reduced
from fuzz.target import Target, captured
from specdec_exporter.config import PredictorSettings, Settings, WebSettings
from specdec_exporter.errors import ExpositionError
from specdec_exporter.predictor.log.counters import ReaderCounters
from specdec_exporter.predictor.metrics.exposition import parse_exposition
from specdec_exporter.serving.collector import SpecdecCollector
from specdec_exporter.serving.predictorruntime import PredictorRuntime
from specdec_exporter.serving.runtime import ExporterRuntime
from specdec_exporter.state.observing import observe_event, observe_failure
from specdec_exporter.state.record import PredictorState
from support.builders import Clock

SETTINGS = Settings(
    predictors=(PredictorSettings(log_paths=("vllm.log",)),), web=WebSettings(disable_exporter_metrics=True)
)
BREAK = b"\n%%\n"  # between what comes one after the other: a body of /metrics, or a part of the log
NO_SESSION: Any = None


def check(story: bytes) -> None:
    clock = Clock()
    runtime = ExporterRuntime(SETTINGS, lambda: SETTINGS)
    predictor = PredictorRuntime(SETTINGS.predictors[0], SETTINGS.window, NO_SESSION, asyncio.Lock())
    state = PredictorState("default", reader=ReaderCounters(), clock=clock.monotonic, wall_clock=clock.wall)
    predictor.state = state
    runtime._predictors = {"default": predictor}
    for part in story.split(BREAK)[:6]:
        clock.advance(15)
        if part.startswith((b"#", b"vllm:")):
            try:
                predictor.observe(parse_exposition(part))
            except ExpositionError as error:
                observe_failure(state, str(error))
        else:
            for event in read([part], "plain")[0]:
                observe_event(state, event)
        require_sound(runtime)


def require_sound(runtime: ExporterRuntime) -> None:
    registry = SpecdecCollector(runtime)
    text = generate_latest(registry).decode()
    families = list(text_string_to_metric_families(text))
    for family in families:
        for sample in family.samples:
            assert math.isfinite(sample.value), sample
            if family.type in ("counter", "histogram"):
                assert sample.value >= 0, sample
    names = {family.name for family in families}
    openmetrics = generate_openmetrics(registry).decode()  # type: ignore[no-untyped-call]
    try:
        assert {family.name for family in parse_openmetrics(openmetrics)} <= names  # type: ignore[no-untyped-call]
    except ValueError as error:
        # The predictor's own: prometheus_client refuses fractions here, Prometheus does not.
        assert "must be an integer" in str(error)  # noqa: PT017
    msgspec.json.decode(msgspec.json.encode(runtime.status()))


def stories() -> list[bytes]:
    bodies = [reduced(dump) for dump in captured("metrics-*.txt")]
    logs = [b"\n".join(log.splitlines()[-12:]) + b"\n" for log in plain_logs()]
    return [
        BREAK.join((bodies[i], logs[i % len(logs)], bodies[(i + 1) % len(bodies)], bodies[i + 2 - i % 2]))
        for i in range(len(bodies) - 3)
    ]


TARGETS = (
    Target("own exposition", check, stories, (BREAK, b"vllm:num_requests_running 1\n", *LOG_WORDS), 64 * 1024, 3),
)
