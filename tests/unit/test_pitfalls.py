"""Known pitfalls of releases are raised where the facts show them, and only there."""

from __future__ import annotations

import re

import msgspec
import pytest

from builders import Clock, engine, snapshot
from specdec_exporter.inspection.logstory import LogStory
from specdec_exporter.predictor.log.events import EngineConfig, EngineStats, PredictorWarning, SpecDecoding
from specdec_exporter.predictor.versions import (
    KNOWN_PITFALLS,
    WARNINGS,
    Facts,
    KnownPitfall,
    Release,
    Warned,
    parse_release,
    pitfalls_of,
    releases_in_words,
)
from specdec_exporter.serving.state import PredictorState
from specdec_exporter.speculation.facts import warning_counts

QUIET = Facts(release=(0, 32, 0), engine_generation="v1", method="draft_model", drafting=True, log_windows=3)


def codes(facts: Facts) -> set[str]:
    return {pitfall.code for pitfall in pitfalls_of(facts)}


def at(release: str, **facts: object) -> Facts:
    return msgspec.structs.replace(QUIET, release=parse_release(release), **facts)


def test_a_predictor_without_peculiarities_has_none() -> None:
    assert codes(QUIET) == set()
    assert codes(Facts()) == set()


@pytest.mark.parametrize(
    ("facts", "code"),
    [
        (at("0.9.2", engine_generation="v0"), "v0_counters_sum_lifetimes"),
        (at("dev", engine_generation="v0"), "v0_counters_sum_lifetimes"),
        (at("0.8.4"), "no_draft_counter"),
        (at("0.8.5"), "length_without_bonus"),
        (at("0.8.5"), "line_depends_on_last_step"),
        (at("0.9.1", engines=2), "last_engine_only"),
        (at("0.10.2", engines=2), "several_engines_refused"),
        (at("0.13.0", drafting=False), "unsupported_params_skip_drafts"),
        (at("0.16.0", drafting=False), "batch_size_switches_off"),
        (at("0.24.0", drafting=False), "dynamic_k_is_silent"),
        (at("0.32.0", method="ngram"), "ngram_without_async_scheduling"),
        (at("0.10.1", method="deepseek_mtp"), "method_name_changes"),
        (at("0.20.2", engines=4, log_windows=0), "data_parallel_disables_log"),
        (at("0.32.0", warnings=frozenset({"cpu_without_intel_openmp"})), "cpu_draft_model_temperature"),
    ],
)
def test_a_pitfall_is_raised_where_it_is_seen(facts: Facts, code: str) -> None:
    assert code in codes(facts)


@pytest.mark.parametrize(
    ("facts", "code"),
    [
        (at("0.9.2"), "v0_counters_sum_lifetimes"),  # V1 runs
        (at("0.9.0"), "length_without_bonus"),
        (at("0.8.5", log_windows=None), "length_without_bonus"),  # no log is read
        (at("0.14.1", drafting=False), "unsupported_params_skip_drafts"),
        (at("0.13.0"), "unsupported_params_skip_drafts"),  # it drafts
        (at("0.33.0", method="ngram"), "ngram_without_async_scheduling"),
        (at("0.32.0", method="ngram_gpu"), "ngram_without_async_scheduling"),
        (at("0.20.2", engines=4), "data_parallel_disables_log"),  # lines are there
        (at("0.20.2", engines=4, log_windows=None), "data_parallel_disables_log"),
        (at("dev", method="ngram"), "ngram_without_async_scheduling"),  # no release, no claim
    ],
)
def test_a_pitfall_is_not_raised_where_it_is_not(facts: Facts, code: str) -> None:
    assert code not in codes(facts)


@pytest.mark.parametrize(
    ("known", "since", "until"),
    [
        *((rule.pitfall, rule.since, rule.until) for rule in KNOWN_PITFALLS),
        *((warned, warned.since, warned.until) for warned in WARNINGS.values()),
    ],
    ids=lambda value: getattr(value, "code", ""),
)
def test_what_is_known_has_a_meaning_and_a_next_step(
    known: KnownPitfall | Warned, since: Release | None, until: Release | None
) -> None:
    for text in (known.meaning, known.action):
        assert re.fullmatch(r"[A-Z].*[a-z0-9)]\.", text)
    assert since is None or until is None or since <= until


def test_what_costs_requests_something_comes_first() -> None:
    found = pitfalls_of(at("0.13.0", drafting=False))
    assert [pitfall.costly for pitfall in found] == [True, False]


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
        "0.14.1 to 0.32.0",
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
    config = EngineConfig(speculative=True, vllm_version="0.13.0", engine_generation="v1", method="eagle3")
    busy = EngineStats(generation_throughput=40.0)
    assert analyzed(config, busy) == {"unsupported_params_skip_drafts", "batch_size_switches_off"}
    off = EngineConfig(speculative=False, vllm_version="0.13.0", engine_generation="v1")
    assert analyzed(off, busy) == set()
