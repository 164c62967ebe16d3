"""What the simulator writes, the exporter reads: the two were written apart, and agree release by release."""

from __future__ import annotations

from typing import Any

import pytest

from specdec_exporter.predictor.log.events import EngineConfig, EngineStats, SpecDecoding
from specdec_exporter.predictor.log.logline import parse_line
from specdec_exporter.predictor.metrics.exposition import parse_exposition
from specdec_exporter.simulator.engine import Engine
from specdec_exporter.simulator.exposition import render_metrics
from specdec_exporter.simulator.log import log_lines
from specdec_exporter.simulator.settings import SimulatorSettings

V1 = (
    "0.8.5",
    "0.9.0",
    "0.9.2",
    "0.10.1",
    "0.10.2",
    "0.11.0",
    "0.12.0",
    "0.15.1",
    "0.16.0",
    "0.24.0",
    "0.31.0",
    "0.33.0",
)
RUST: dict[str, Any] = {"vllm_version": "0.32.0", "frontend": "rust"}


def finished(**settings: Any) -> Engine:
    engine = Engine(SimulatorSettings(**settings))
    engine.advance(30)
    return engine


@pytest.mark.parametrize("settings", [*({"vllm_version": version} for version in V1), RUST, {"engines": 2}], ids=str)
def test_counters_are_read_from_the_metrics(settings: dict[str, Any]) -> None:
    engine = finished(**settings)
    snapshot = parse_exposition(render_metrics(engine), engine.release.content_type)
    assert snapshot.engine_generation == "v1"
    assert len(snapshot.engines) == len(engine.ranks)
    for read, rank in zip(snapshot.engines, engine.ranks, strict=True):
        told = rank.totals
        assert (read.drafts, read.draft_tokens, read.accepted_tokens) == (
            told.drafts,
            told.draft_tokens,
            told.accepted_tokens,
        )
        assert read.accepted_tokens_per_position == dict(enumerate(told.accepted_per_position))
        assert read.generation_tokens == told.generation_tokens
        assert read.requests_running == rank.running
        assert read.step_latency is not None
        assert read.step_latency.count == told.inter_token.count
        assert read.request_latency is not None
        assert read.request_latency.sum == told.request_latency.sum


@pytest.mark.parametrize("settings", [*({"vllm_version": version} for version in V1), RUST], ids=str)
def test_windows_and_configuration_are_read_from_the_log(settings: dict[str, Any]) -> None:
    engine = finished(**settings)
    events = [parse_line(line.encode()) for line in log_lines(engine)]
    windows = [event for event in events if isinstance(event, SpecDecoding)]
    (config,) = [event for event in events if isinstance(event, EngineConfig) and event.engine_generation]
    assert len(windows) == 3
    assert sum(isinstance(event, EngineStats) for event in events) == 3
    told = engine.ranks[0].totals
    assert sum(window.accepted_tokens for window in windows) == told.accepted_tokens
    assert sum(window.draft_tokens for window in windows) == told.draft_tokens
    assert {window.bonus_included for window in windows} == {settings["vllm_version"] != "0.8.5"}
    assert (config.vllm_version, config.method, config.draft_model, config.num_speculative_tokens) == (
        settings["vllm_version"],
        "eagle3",
        "simulated/draft-head",
        3,
    )


@pytest.mark.parametrize("version", ["0.7.3", "0.8.2"])
def test_v1_is_read_as_v1_before_it_said_its_engine(version: str) -> None:
    snapshot = parse_exposition(render_metrics(finished(vllm_version=version, engine_generation="v1")))
    assert snapshot.engine_generation == "v1"


@pytest.mark.parametrize("version", ["0.6.6.post1", "0.9.2"])
def test_v0_is_read_as_v0(version: str) -> None:
    engine = finished(vllm_version=version, engine_generation="v0")
    snapshot = parse_exposition(render_metrics(engine), engine.release.content_type)
    assert snapshot.engine_generation == "v0"
    assert snapshot.engines[0].lifetime_acceptance_ratio == engine.ranks[0].totals.v0_acceptance_ratio
    windows = [event for line in log_lines(engine) if isinstance(event := parse_line(line.encode()), SpecDecoding)]
    assert len(windows) == 6
    assert all(window.cumulative for window in windows)
    assert windows[-1].accepted_tokens == engine.ranks[0].totals.v0_accepted
