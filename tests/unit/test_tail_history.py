"""The engine configuration in what was written before the exporter came."""

from __future__ import annotations

from pathlib import Path

import pytest

from specdec_exporter.predictor.log.counters import ReaderCounters
from specdec_exporter.predictor.log.events import START_KINDS, EngineConfig, Event, KVCache, ServerArguments, StartPhase
from specdec_exporter.predictor.log.scan import LogScanner
from specdec_exporter.predictor.sources.tail import LogFollower
from support.builders import CAPTURES
from support.logfiles import Log, Reader


@pytest.fixture
def log(tmp_path: Path) -> Log:
    return Log(tmp_path / "vllm.log")


def models(events: list[Event]) -> list[str | None]:
    return [event.model for event in events if isinstance(event, EngineConfig)]


def test_only_the_last_configuration_before_the_start_is_given_and_nothing_else(log: Log) -> None:
    log.write("config A", "line", "config B", *["line"] * 100_000)
    reader = Reader(log.path, search_history=True)
    events = reader.events()
    assert len(events) == 1
    assert models(events) == ["B"]
    assert reader.events() == []


@pytest.fixture
def searching(log: Log) -> Reader:
    """In the middle of a long search."""
    log.write("config A", *["x" * 99] * 50_000)
    reader = Reader(log.path, search_history=True)
    assert reader.follower.poll(max_bytes=300_000) == []
    assert reader.follower.more
    return reader


def test_new_lines_are_read_while_the_search_goes_on(log: Log, searching: Reader) -> None:
    log.write("new")
    assert len(searching.follower.poll(max_bytes=300_000)) == 1
    assert models(searching.events()) == ["A"]


def test_a_configuration_read_live_is_newer_than_any_found(log: Log, searching: Reader) -> None:
    log.write("config B")
    assert models(searching.events()) == ["B"]


def test_it_is_searched_for_in_rotated_files_newest_first(log: Log) -> None:
    log.sibling(".3").write("config A")
    log.sibling(".2").write("config B", "config C")
    log.sibling(".1").write("line")
    log.write("line")
    assert models(Reader(log.path, search_history=True).events()) == ["C"]


def test_it_is_searched_for_before_a_saved_position(log: Log, tmp_path: Path) -> None:
    state = tmp_path / "positions.json"
    log.write("config A")
    reader = Reader(log.path, search_history=True, state=state)
    assert models(reader.events()) == ["A"]
    reader.close()
    log.write("two")
    events = Reader(log.path, search_history=True, state=state).events()
    assert models(events) == ["A"]
    assert len(events) == 2


@pytest.mark.parametrize("release", ["0.32.0-ngram-k5", "0.32.0-draft_model-jsonlog"])
def test_a_real_log_gives_its_arguments_its_configuration_and_none_of_its_windows(log: Log, release: str) -> None:
    log.path.write_bytes((CAPTURES / release / "server.log").read_bytes())
    counters = ReaderCounters()
    follower = LogFollower(
        [str(log.path)],
        lambda: LogScanner(counters),
        lambda: LogScanner(ReaderCounters(), kinds=START_KINDS),
        counters=counters,
    )
    events = follower.poll()
    arguments, config, *progress = events
    assert isinstance(arguments, ServerArguments)
    assert isinstance(config, EngineConfig)
    given = arguments.arguments["speculative_config"]
    assert (given["method"], given.get("model")) == (config.method, config.draft_model)
    assert config.vllm_version == release.partition("-")[0]
    assert {type(event) for event in progress} == {StartPhase, KVCache}
    assert counters.lines == 0
