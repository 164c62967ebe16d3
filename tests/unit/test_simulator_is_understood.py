"""What the simulator writes, the exporter reads: the two were written apart, and agree release by release."""

from __future__ import annotations

from typing import Any

import pytest

from specdec_exporter.predictor.log.events import EngineConfig, EngineStats, SpecDecoding
from specdec_exporter.predictor.log.logline import parse_line
from specdec_exporter.predictor.metrics.exposition import parse_exposition
from specdec_exporter.simulator import engine as simulated
from specdec_exporter.simulator.engine import Engine
from specdec_exporter.simulator.exposition import render_metrics
from specdec_exporter.simulator.log import log_lines
from specdec_exporter.simulator.settings import SimulatorSettings

V1 = ["0.8.5", "0.9.0", "0.9.2", "0.10.1", "0.10.2", "0.11.0"]
V1 += ["0.12.0", "0.15.1", "0.16.0", "0.24.0", "0.31.0", "0.33.0"]
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
        for name in ("drafts", "draft_tokens", "accepted_tokens", "generation_tokens"):
            assert getattr(read, name) == getattr(told, name)
        assert read.accepted_tokens_per_position == dict(enumerate(told.accepted_per_position))
        assert read.requests_running == rank.running
        assert read.step_latency is not None
        assert read.step_latency.count == told.inter_token.count
        assert read.request_latency is not None
        assert read.request_latency.sum == told.request_latency.sum


@pytest.mark.parametrize("settings", [*({"vllm_version": version} for version in V1), RUST], ids=str)
def test_windows_and_configuration_are_read_from_the_log(settings: dict[str, Any]) -> None:
    engine = finished(**settings)
    told = finished(**settings).take_records()
    events = [parse_line(line.encode()) for line in log_lines(engine)]
    (config,) = [event for event in events if isinstance(event, EngineConfig) and event.engine_generation]
    windows = [event for event in events if isinstance(event, SpecDecoding)]
    records = [record for record in told if isinstance(record, simulated.SpecStats)]
    assert len(windows) == 3
    for event, record in zip(windows, records, strict=True):
        assert (event.accepted_tokens, event.draft_tokens) == (record.accepted_tokens, record.draft_tokens)
        assert event.bonus_included == (settings["vllm_version"] != "0.8.5")
        length = bool(event.bonus_included) + record.accepted_tokens / record.drafts
        assert event.mean_acceptance_length == pytest.approx(length, abs=0.00501)
        rates = [accepted / record.drafts for accepted in record.accepted_per_position]
        assert event.per_position == pytest.approx(rates, abs=0.000501)
    lines = [event for event in events if isinstance(event, EngineStats)]
    stats = [record for record in told if isinstance(record, simulated.EngineStats)]
    assert len(lines) == 3
    for line, told_stats in zip(lines, stats, strict=True):
        assert (line.running, line.waiting) == (told_stats.running, told_stats.waiting)
        assert line.generation_throughput == pytest.approx(told_stats.generation_throughput, abs=0.0501)
        assert line.prompt_throughput == pytest.approx(told_stats.prompt_throughput, abs=0.0501)
    assert (config.vllm_version, config.method) == (settings["vllm_version"], "eagle3")
    assert (config.draft_model, config.num_speculative_tokens) == ("simulated/draft-head", 3)


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
    assert windows[-1].emitted_tokens == engine.ranks[0].totals.v0_emitted
    assert all(window.cumulative for window in windows)
    assert windows[-1].accepted_tokens == engine.ranks[0].totals.v0_accepted
