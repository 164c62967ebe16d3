"""Method, draft model and k from wherever they stand: the engine first, then its curve, then the arguments."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specdec_exporter import bounds
from specdec_exporter.inspection.logstory import Analysis, LogStory
from specdec_exporter.predictor.facts.deployment import Deployment, of_arguments
from specdec_exporter.predictor.log.events import REPORT_KINDS, EngineConfig
from specdec_exporter.predictor.log.speculator import Speculator, speculator
from specdec_exporter.predictor.sources.inputs import LogInputs
from specdec_exporter.state.observing import observe_event, observe_snapshot
from specdec_exporter.state.record import PredictorState
from specdec_exporter.state.view import evidence_of
from support.builders import FIXTURES, Clock, arguments, config, engine, snapshot

LOGS = FIXTURES / "speculators"

sizes = st.none() | st.integers(1, bounds.POSITIONS - 1)
methods = st.none() | st.sampled_from(["eagle3", "mtp", "ngram", "dspark"])
engines = st.none() | st.builds(EngineConfig, speculative=st.just(True), method=methods, num_speculative_tokens=sizes)
given_arguments = st.builds(Deployment, method=methods, num_speculative_tokens=sizes)


@given(engines, given_arguments, st.integers(0, 2 * bounds.POSITIONS))
def test_each_figure_is_that_of_the_source_that_is_named(
    said: EngineConfig | None, written: Deployment, positions: int
) -> None:
    found = speculator(said, written, positions)
    sources = {
        "engine": (said.method, said.num_speculative_tokens) if said else (None, None),
        "curve": (None, positions if 0 < positions < bounds.POSITIONS else None),
        "arguments": (written.method, written.num_speculative_tokens),
    }
    method, k = (next(((by, each[i]) for by, each in sources.items() if each[i]), (None, None)) for i in (0, 1))
    assert (found.method_by, found.method) == method
    assert (found.num_speculative_tokens_by, found.num_speculative_tokens) == k


def test_an_engine_that_says_it_does_not_draft_is_believed() -> None:
    off = EngineConfig(speculative=False)
    assert speculator(off, Deployment(method="eagle3", num_speculative_tokens=3), 3) == Speculator(on=False)
    extracting = EngineConfig(speculative=False, method="extract_hidden_states", num_speculative_tokens=1)
    assert speculator(extracting, Deployment(), 3).num_speculative_tokens == 1


OFF, ON, SILENT = EngineConfig(speculative=False), EngineConfig(speculative=True), EngineConfig()


@pytest.mark.parametrize(
    ("said", "written", "positions", "is_on"),
    [
        (None, {}, 0, None),
        (None, {"model": "org/eagle3-speculator", "max_num_seqs": 8}, 0, None),
        (None, {"speculative_config": {"method": "mtp"}}, 0, True),
        (None, {"spec_tokens": 3}, 0, True),
        (None, {"speculative_config": {"method": "extract_hidden_states", "num_speculative_tokens": 1}}, 1, False),
        (None, {"model": "m"}, 3, True),
        (OFF, {"spec_method": "ngram"}, 3, False),
        (ON, {"model": "m"}, 0, True),
        (SILENT, {"model": "m"}, 0, None),
        (SILENT, {"spec_method": "ngram"}, 0, True),
    ],
)
def test_what_nobody_told_is_not_known_and_never_off(
    said: EngineConfig | None, written: dict[str, object], positions: int, is_on: bool | None
) -> None:
    assert speculator(said, of_arguments(written), positions).on is is_on


@pytest.mark.parametrize("positions", [bounds.POSITIONS, 500])
def test_a_curve_that_may_be_cut_tells_no_k(positions: int) -> None:
    assert speculator(None, Deployment(), positions) == Speculator(on=True)
    assert speculator(None, Deployment(num_speculative_tokens=100), positions).num_speculative_tokens == 100


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ({"spec_method": "dspark", "spec_model": "d", "spec_tokens": 7}, ("dspark", "d", 7)),
        ({"spec_method": "ngram", "speculative_config": {"num_speculative_tokens": 2}}, ("ngram", None, 2)),
        ({"speculative_config": {"method": "mtp", "num_speculative_tokens": "6"}}, ("mtp", None, 6)),
        ({"speculative_config": {"method": "mtp"}}, ("mtp", None, None)),
        ({"speculative_config": {"model": "[ngram]", "num_speculative_tokens": 4}}, ("ngram", None, 4)),
        ({"speculative_model": "[ngram]", "num_speculative_tokens": 4}, ("ngram", None, 4)),
        ({"speculative_config": {"model": "x/EAGLE3-y", "num_speculative_tokens": 3}}, (None, "x/EAGLE3-y", 3)),
        ({"max_num_seqs": 8}, (None, None, None)),
    ],
)
def test_arguments_are_read_in_every_spelling_and_a_method_is_not_guessed(
    written: dict[str, object], expected: tuple[str | None, str | None, int | None]
) -> None:
    found = of_arguments(written)
    assert (found.method, found.draft_model, found.num_speculative_tokens) == expected
    assert found.speculative is any(expected)


# --- a log as a whole, and a running server ---


def analysis_of(name: str) -> tuple[Analysis, Deployment]:
    story = LogStory()
    story.add(LogInputs([str(LOGS / name)]).events(REPORT_KINDS))
    return story.analysis(), story.deployment()


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("arguments.log", ("dflash", "arguments", 15, "curve")),
        ("excerpt.log", (None, None, 15, "curve")),
    ],
)
def test_a_log_without_the_engine_init_line_tells_what_it_can(
    name: str, expected: tuple[str | None, str | None, int | None, str | None]
) -> None:
    analysis, deployment = analysis_of(name)
    assert analysis.judged is not None
    said = analysis.judged.speculator
    assert (said.method, said.method_by, said.num_speculative_tokens, said.num_speculative_tokens_by) == expected
    assert (deployment.method, deployment.num_speculative_tokens) == (said.method, said.num_speculative_tokens)
    assert deployment.speculative is True
    assert analysis.judged.requests_running == 16


def test_flags_alone_say_that_speculation_is_configured() -> None:
    analysis, deployment = analysis_of("flags.log")
    assert analysis.verdict.headline == "Speculation is configured, but the log holds no stats line"
    assert (deployment.method, deployment.draft_model, deployment.num_speculative_tokens) == (
        "dspark",
        "example/GLM-5.2-speculator.dspark",
        7,
    )


def test_a_running_server_is_named_by_its_arguments_and_k_by_its_metrics(state: PredictorState, clock: Clock) -> None:
    observe_event(state, arguments(method="eagle3", model="/models/head", num_speculative_tokens=5))
    assert (state.running.method, state.running.draft_model, state.num_speculative_tokens) == (
        "eagle3",
        "/models/head",
        5,
    )
    observe_snapshot(state, snapshot(engine(10, (5.0, 3.0, 1.0), requests=1)))
    clock.advance(60)
    observe_snapshot(state, snapshot(engine(20, (9.0, 6.0, 2.0), requests=2)))
    assert state.num_speculative_tokens == 3
    assert evidence_of(state).method == "eagle3"
    observe_event(state, config(method="mtp", num_speculative_tokens=1))
    assert (state.running.method, state.num_speculative_tokens) == ("mtp", 1)


def test_the_most_tokens_of_a_schedule_are_k(state: PredictorState) -> None:
    schedule = [[1, 4, 3], [5, 64, 1], [65, 512, 0]]
    observe_event(state, arguments(method="mtp", num_speculative_tokens_per_batch_size=schedule))
    observe_snapshot(state, snapshot(engine(100, (50.0, 3.0, 1.0), k=1, requests=1)))
    assert (state.running.method, state.num_speculative_tokens) == ("mtp", 3)
