"""Every fact is well-formed, holds for its own cases and for no others, and is told where it holds."""

from __future__ import annotations

import ast
import re
from typing import Any

import msgspec
import msgspec.yaml
import pytest
from hypothesis import given
from hypothesis import strategies as st

from specdec_exporter.doctor.diagnosis import known_facts
from specdec_exporter.inspection.logstory import LogStory
from specdec_exporter.predictor.facts.deployment import Deployment, of_arguments
from specdec_exporter.predictor.facts.known import Fact, pitfalls_of
from specdec_exporter.predictor.log.events import EngineConfig, EngineStats, SpecDecoding
from specdec_exporter.predictor.servercommand import read_command
from specdec_exporter.predictor.versions import parse_release
from specdec_exporter.state.observing import observe_event, observe_snapshot, observe_version
from specdec_exporter.state.record import PredictorState
from specdec_exporter.state.report import status_of
from support.builders import FIXTURES, Clock, engine, snapshot

FACTS = known_facts()
by_code = pytest.mark.parametrize("fact", FACTS, ids=[fact.code for fact in FACTS])


class Cases(msgspec.Struct, forbid_unknown_fields=True):
    holds: list[dict[str, Any]]
    fails: list[dict[str, Any]]


CASES = {
    code: cases
    for name in ("running", "doctor")
    for code, cases in msgspec.yaml.decode(
        (FIXTURES / "facts" / f"{name}.yaml").read_bytes(), type=dict[str, Cases]
    ).items()
}


def deployment(case: dict[str, Any]) -> Deployment:
    sets = {key: frozenset(value) for key, value in case.items() if isinstance(value, list)}
    release = {"release": parse_release(case["release"])} if "release" in case else {}
    return Deployment(**{**case, **sets, **release})


def codes(given: Deployment) -> set[str]:
    return {fact.code for fact in FACTS if fact.holds(given)}


@by_code
def test_a_fact_holds_for_its_cases_only(fact: Fact) -> None:
    cases = CASES[fact.code]
    assert cases.holds
    assert cases.fails
    for case in cases.holds:
        assert fact.holds(deployment(case)), case
        told = fact.told(deployment(case))
        assert "None" not in told.meaning + told.action
    for case in cases.fails:
        assert not fact.holds(deployment(case)), case


@by_code
def test_a_fact_is_well_formed(fact: Fact) -> None:
    fields = set(Deployment.__struct_fields__)
    names = {(*field.split("."), None)[:2] for field in (*fact.when, *fact.unless)}
    assert {name for name, _ in names} <= fields
    assert {name for name, key in names if key} <= {"speculative_config"}
    since, until = (parse_release(each) if each else None for each in (fact.since, fact.until))
    assert since is None or until is None or since <= until
    assert (since is None) == (fact.since is None)
    assert fact.when or since or until, "it would hold for everybody"
    for text in (fact.found, fact.action):
        assert re.fullmatch(r"(vLLM|[A-Z`{]).*[a-z0-9)}]\.", text), text
        assert "  " not in text
        assert set(re.findall(r"\{(\w*)\}", text)) <= fields
    assert fact.sources
    assert bool(fact.checked) != bool(fact.unchecked)
    assert all(parse_release(each) for each in fact.checked)


@pytest.mark.parametrize(
    ("test", "value", "holds"),
    [
        (True, True, True),
        (True, False, False),
        (["fp8", "nvfp4"], "fp8", True),
        ({"above": 5}, 6, True),
        ({"above": 5}, 5, False),
        ({"above": 5}, "6", False),
        ({"matches": "^fp"}, "FP8", True),
        ({"matches": "^fp"}, 8, False),
        ({"given": True}, [[1, 8, 4]], True),
        ({"given": False}, False, False),
    ],
)
def test_a_key_of_the_speculative_config_is_tested_by_its_value(test: Any, value: Any, holds: bool) -> None:
    told = {"code": "c", "level": "note", "found": "F.", "action": "A.", "sources": ["s"]}
    fact = msgspec.convert({**told, "when": {"speculative_config.key": test}}, Fact)
    assert fact.holds(of_arguments({"speculative_config": {"key": value}})) is holds
    assert fact.holds(Deployment()) is (test == {"given": False})


# --- Of servers that started -----------------------------------------------------------------------------------------

STARTS = sorted([*FIXTURES.glob("captures/*/server.log"), *FIXTURES.glob("starts/*.log")])
WITHOUT_ASYNC = {"ngram_without_async_scheduling"}
TRUE_OF = {
    "0.25.1-ngram-k5": WITHOUT_ASYNC,
    "0.32.0-ngram-k5": WITHOUT_ASYNC,
    "0.32.0-draft_model-disable-log-stats": {"statistics_disabled"},
    "0.32.0-synthetic": {"synthetic_acceptance"},
}


def test_a_real_start_has_only_true_findings() -> None:
    found = {}
    for log in STARTS:
        name = log.parent.name if log.stem == "server" else log.stem
        content = log.read_text(encoding="utf-8", errors="replace")
        if arguments := re.search(r"^[^{]* non-default args: (\{.*\})$", content, re.MULTILINE):
            given = of_arguments(ast.literal_eval(arguments[1]))
            found[name] = pitfalls_of(msgspec.structs.replace(given, release=parse_release(name)))
    assert len(found) >= 10
    for name, pitfalls in found.items():
        assert {pitfall.code for pitfall in pitfalls if pitfall.costly} == TRUE_OF.get(name, set()), name


# --- On the page and in a log's analysis -----------------------------------------------------------------------------

NGRAM = EngineConfig(speculative=True, vllm_version="0.20.2", engine_generation="v1", method="ngram")


def test_the_status_of_a_predictor_has_its_pitfalls() -> None:
    clock = Clock()
    state = PredictorState("chat", clock=clock.monotonic, wall_clock=clock.wall)
    observe_snapshot(state, snapshot(engine()))
    assert status_of(state).pitfalls == ()
    observe_event(state, NGRAM)
    (found,) = status_of(state).pitfalls
    assert {found.code} == WITHOUT_ASYNC
    assert (found.releases, found.costly) == ("0.14.0 to 0.32.0", True)
    observe_version(state, "0.33.0")
    assert status_of(state).pitfalls == ()


def analyzed(*events: EngineConfig | EngineStats | SpecDecoding) -> set[str]:
    story = LogStory()
    story.add(events)
    return {pitfall.code for pitfall in story.analysis().pitfalls}


def test_a_log_has_the_pitfalls_of_what_ran_when_it_ended() -> None:
    window = SpecDecoding(accepted_tokens=60, draft_tokens=100)
    assert analyzed(NGRAM, window) == WITHOUT_ASYNC
    later = EngineConfig(speculative=True, vllm_version="0.33.0", engine_generation="v1", method="draft_model")
    assert analyzed(NGRAM, window, later, window) == set()
    assert analyzed(window) == set()


# --- Arguments as fields of a deployment -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("command", "release", "code"),
    [
        ("vllm serve M --reasoning-parser qwen3 -sc '{\"method\": \"mtp\", \"num_speculative_tokens\": 3}'", "0.24.0",
         "structured_output_after_reasoning"),
        ("VLLM_USE_V2_MODEL_RUNNER=1 vllm serve M --spec-method dflash --spec-model D --spec-tokens 7", "0.25.1",
         "dflash_on_second_runner"),
        ("vllm serve M -pp 2 --spec-method mtp --spec-tokens 1", "0.29.0", "mtp_with_pipeline_parallelism"),
        ("vllm serve V4-DSpark --spec-method mtp --spec-tokens 1", "0.26.0", "target_name_makes_dspark"),
        ("vllm serve M --disable-log-stats", "0.33.0", "statistics_disabled"),
    ],
)  # fmt: skip
def test_a_command_has_the_pitfall_of_its_release(command: str, release: str, code: str) -> None:
    given = msgspec.structs.replace(read_command(command).deployment(), release=parse_release(release))
    assert code in {pitfall.code for pitfall in pitfalls_of(given) if pitfall.costly}


WORDS = st.sampled_from([*of_arguments({}).__struct_fields__, "speculative_config", "backend", "--x", ""])
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(WORDS, inner, max_size=4),
    max_leaves=12,
)


@given(st.dictionaries(WORDS, VALUES, max_size=6))
def test_any_arguments_make_a_deployment(arguments: dict[str, Any]) -> None:
    found = of_arguments(arguments)
    assert msgspec.convert(msgspec.to_builtins(found), Deployment) == found
    codes(found)
    assert found.arguments == frozenset(arguments)
