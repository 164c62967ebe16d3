"""Known pitfalls of releases are raised where the facts show them, and only there."""

from __future__ import annotations

import re

import pytest

from builders import Clock, engine, snapshot
from specdec_exporter.inspection.logstory import LogStory
from specdec_exporter.predictor.log.events import EngineConfig, EngineStats, PredictorWarning, SpecDecoding
from specdec_exporter.predictor.versions import (
    WARNINGS,
    Warned,
    releases_in_words,
)
from specdec_exporter.serving.state import PredictorState
from specdec_exporter.speculation.facts import warning_counts


@pytest.mark.parametrize("warned", WARNINGS.values(), ids=lambda warned: warned.code)
def test_a_warning_has_a_meaning_and_a_next_step(warned: Warned) -> None:
    for text in (warned.meaning, warned.action):
        assert re.fullmatch(r"[A-Z].*[a-z0-9)]\.", text)
    assert warned.since is None or warned.until is None or warned.since <= warned.until


@pytest.mark.parametrize(
    ("since", "until", "words"),
    [
        ((0, 8, 5), (0, 8, 5), "0.8.5"),
        ((0, 8, 3), (0, 8, 5), "0.8.3 to 0.8.5"),
        ((0, 15, 1), None, "since 0.15.1"),
        (None, (0, 9, 2), "up to 0.9.2"),
        (None, None, "all releases"),
    ],
)
def test_a_range_of_releases_is_said_in_words(
    since: tuple[int, int, int] | None, until: tuple[int, int, int] | None, words: str
) -> None:
    assert releases_in_words(since, until) == words


def test_warnings_carry_their_releases_and_what_to_do() -> None:
    (counted,) = warning_counts({"mtp_layer_reused": 2})
    assert (counted.count, counted.releases) == (2, "since 0.11.0")
    assert counted.action == WARNINGS["mtp_layer_reused"].action


NGRAM = EngineConfig(speculative=True, vllm_version="0.20.2", engine_generation="v1", method="ngram")


def test_the_status_of_a_predictor_has_its_pitfalls() -> None:
    clock = Clock()
    state = PredictorState("chat", clock=clock.monotonic, wall_clock=clock.wall)
    state.observe_snapshot(snapshot(engine()))
    assert state.status().pitfalls == ()
    state.observe_event(NGRAM)
    (found,) = state.status().pitfalls
    assert (found.code, found.releases, found.costly) == (
        "ngram_without_async_scheduling",
        "0.14.0 to 0.32.0",
        True,
    )
    state.observe_version("0.33.0")
    assert state.status().pitfalls == ()


def analyzed(*events: EngineConfig | EngineStats | PredictorWarning | SpecDecoding) -> set[str]:
    story = LogStory()
    story.add(events)
    return {pitfall.code for pitfall in story.analysis().pitfalls}


def test_a_log_has_the_pitfalls_of_what_ran_when_it_ended() -> None:
    window = SpecDecoding(accepted_tokens=60, draft_tokens=100)
    assert analyzed(NGRAM, window) == {"ngram_without_async_scheduling"}
    later = EngineConfig(speculative=True, vllm_version="0.33.0", engine_generation="v1", method="draft_model")
    assert analyzed(NGRAM, window, later, window) == set()
    assert analyzed(window) == set()


def test_a_log_of_a_busy_server_that_never_drafts_says_what_can_be_behind_it() -> None:
    config = EngineConfig(speculative=True, vllm_version="0.13.0", engine_generation="v1", method="ngram")
    busy = EngineStats(generation_throughput=40.0)
    assert analyzed(config, busy) == {"unsupported_params_skip_drafts"}
    off = EngineConfig(speculative=False, vllm_version="0.13.0", engine_generation="v1")
    assert analyzed(off, busy) == set()
