"""Every fact of ``predictor/facts`` is well-formed, and holds for its own cases and for no others."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import msgspec
import msgspec.yaml
import pytest
from hypothesis import given
from hypothesis import strategies as st

from specdec_exporter.predictor.facts.deployment import Deployment, of_arguments
from specdec_exporter.predictor.facts.known import TOPICS, Check, Fact, facts_of, load_facts, pitfalls_of
from specdec_exporter.predictor.versions import parse_release

CASES = Path(__file__).parents[1] / "fixtures" / "facts"
FACTS = [fact for topic in TOPICS for fact in load_facts(topic)]
by_code = pytest.mark.parametrize("fact", FACTS, ids=[fact.code for fact in FACTS])


class Cases(msgspec.Struct, forbid_unknown_fields=True):
    holds: list[dict[str, Any]]
    fails: list[dict[str, Any]]


def cases_of(topic: str) -> dict[str, Cases]:
    return msgspec.yaml.decode((CASES / f"{topic}.yaml").read_bytes(), type=dict[str, Cases])


KNOWN_CASES = {code: cases for topic in TOPICS for code, cases in cases_of(topic).items()}


def deployment(case: dict[str, Any]) -> Deployment:
    sets = {key: frozenset(value) for key, value in case.items() if isinstance(value, list)}
    release = {"release": parse_release(case["release"])} if "release" in case else {}
    return Deployment(**{**case, **sets, **release})


def test_each_file_has_its_cases_in_the_order_of_its_facts() -> None:
    for topic in TOPICS:
        assert list(cases_of(topic)) == [fact.code for fact in load_facts(topic)]
    assert len(KNOWN_CASES) == len(FACTS)


@by_code
def test_a_fact_holds_for_its_cases_only(fact: Fact) -> None:
    cases = KNOWN_CASES[fact.code]
    assert cases.holds
    assert cases.fails
    for case in cases.holds:
        assert fact.holds(deployment(case)), case
        assert fact in facts_of(deployment(case))
    for case in cases.fails:
        assert not fact.holds(deployment(case)), case


@by_code
def test_a_fact_is_well_formed(fact: Fact) -> None:
    fields = {*Deployment.__struct_fields__, "draft_ratio", "draft_memory_share", "target_memory_share"}
    assert {*fact.when, *fact.unless} <= fields
    for check in (*fact.when.values(), *fact.unless.values()):
        if isinstance(check, Check):
            assert {check.differs_from, check.no_multiple_of, check.above_field} - {None} <= fields
            spans = check.known_in or {}
            assert all(re.fullmatch(r"(\d+\.\d+\.\d+)?-(\d+\.\d+\.\d+)?", span) for span in spans)
            words = [word for span in spans.values() for word in span]
            assert len(words) == len(set(words))
    since, until = (parse_release(each) if each else None for each in (fact.since, fact.until))
    assert since is None or until is None or since <= until
    assert (since is None) == (fact.since is None)
    assert fact.when or since or until, "it would hold for everybody"
    for text in (fact.found, fact.action):
        assert re.fullmatch(r"[A-Z`{].*[a-z0-9)}]\.", text), text
        assert "  " not in text
        assert set(re.findall(r"\{(\w*)\}", text)) <= {*fields, "missing"}
    assert fact.sources
    assert bool(fact.checked) != bool(fact.unchecked)
    assert all(parse_release(each) for each in fact.checked)


@by_code
def test_a_fact_is_told_in_words_about_its_cases(fact: Fact) -> None:
    for case in KNOWN_CASES[fact.code].holds:
        told = fact.told(deployment(case))
        assert "None" not in told.meaning + told.action
        assert "{" not in told.meaning + told.action.replace("'{", "")


def test_nothing_known_has_no_fact() -> None:
    assert list(facts_of(Deployment())) == []
    assert list(facts_of(of_arguments({"model": "m"}))) == []


def test_what_costs_requests_something_comes_first() -> None:
    found = pitfalls_of(Deployment(release=(0, 9, 2), method="ngram", drafting=False))
    assert [pitfall.costly for pitfall in found] == [True, False]


def test_what_a_release_lacks_is_named_with_the_releases_that_have_it() -> None:
    config = {"method": "dflash", "model": "d", "moe_backend": "x", "nmu_speculative_tokens": 3}
    given = of_arguments({"speculative_config": config})
    found = {
        pitfall.code: pitfall.meaning for pitfall in pitfalls_of(msgspec.structs.replace(given, release=(0, 18, 0)))
    }
    assert found["method_not_known"].endswith("the method dflash (since 0.20.0).")
    assert "moe_backend (since 0.19.0), nmu_speculative_tokens (in no release)" in found["key_not_known"]


def test_a_server_that_generated_tokens_was_not_refused() -> None:
    given = Deployment(release=(0, 19, 1), method="dflash")
    assert [pitfall.code for pitfall in pitfalls_of(given)] == ["method_not_known"]
    assert pitfalls_of(msgspec.structs.replace(given, drafting=True)) == ()


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
    list(facts_of(found))
    assert found.arguments == frozenset(arguments)


def test_arguments_are_read_by_their_names() -> None:
    config = {"method": "eagle3", "model": "d", "num_speculative_tokens": 3, "draft_tensor_parallel_size": 1}
    found = of_arguments({"model": "m", "tensor_parallel_size": 8, "speculative_config": config, "api_key": ["secret"]})
    assert (found.model, found.method, found.draft_model, found.num_speculative_tokens) == ("m", "eagle3", "d", 3)
    assert (found.tensor_parallel_size, found.draft_tensor_parallel_size) == (8, 1)
    assert found.speculative
    assert found.speculative_keys == frozenset(config)
    assert "api_key" in found.arguments
    assert "secret" not in str(found)
    assert of_arguments({"model": "m"}).speculative is False
    assert of_arguments({"speculative_config": {"method": "extract_hidden_states"}}).speculative is False
