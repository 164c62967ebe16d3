"""Published lengths: each row is sound and has a source, and the nearest one is what a service is compared with."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from builders import known
from specdec_exporter.predictor.versions import canonical_method
from specdec_exporter.speculation.policy import load_policy
from specdec_exporter.speculation.references import (
    Reference,
    ReferencesError,
    load_references,
    nearest,
    parse_references,
)

ROWS = load_references()
ROW = """\
references:
  - method: eagle3
    num_speculative_tokens: 3
    mean_acceptance_length: 2.26
    per_position: [0.65, 0.40, 0.20]
    target: Qwen3-8B
    target_family: qwen3
    drafter: a/drafter
    data_set: MT-Bench
    source: https://example.com/1
"""


def published(method: str, k: int | None, *names: str) -> str | None:
    found = nearest(ROWS, method, k, names)
    return found.text if found else None


def row(k: int, length: float, *, method: str = "eagle3", target: str = "Org-1", family: str = "org") -> Reference:
    return Reference(
        method=method,
        num_speculative_tokens=k,
        mean_acceptance_length=length,
        source="https://example.com/1",
        target=target,
        target_family=family,
    )


# --- the table ---


def test_every_row_is_of_a_method_that_the_policy_knows_and_names_its_source_at_one_version() -> None:
    assert 15 <= len(ROWS) <= 40
    for each in ROWS:
        assert each.method in load_policy().methods
        assert "/blob/main/" not in each.source
        assert (each.target is None) is (each.target_family is None)
        if each.target is not None:
            assert each.is_family([each.target])
            assert each.is_target([f"org/{each.target}"])


def test_no_row_is_there_twice() -> None:
    keys = [(each.method, each.target, each.drafter, each.num_speculative_tokens, each.data_set) for each in ROWS]
    assert len(set(keys)) == len(keys)


def test_block_drafters_are_healthy_at_what_is_published_of_them() -> None:
    for each in ROWS:
        policy = load_policy().for_method(each.method)
        if policy.fixed_k:
            rate = (each.mean_acceptance_length - 1) / each.num_speculative_tokens
            assert rate > policy.acceptance_ratio_min, each


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("2.26", "4.1", "line 4: references[0].mean_acceptance_length: expected 1 to 4"),
        ("tokens: 3", "tokens: 0", "line 3: references[0].num_speculative_tokens: expected at least 1"),
        ("0.65, 0.40", "0.40, 0.65", "line 5: references[0].per_position: expected 3 rates that do not rise"),
        ("[0.65, 0.40, 0.20]", "[0.65]", "line 5: references[0].per_position: expected 3 rates"),
        ("0.20", "0.10", "line 5: references[0].per_position: expected rates that sum to 1.26"),
        ("0.65", "1.65", "line 5: references[0].per_position[0]: expected a ratio from 0 to 1"),
        ("eagle3", "deepseek_mtp", "line 2: references[0].method: expected mtp"),
        ("https://example.com/1", "somewhere", "line 10: references[0].source: expected a URL"),
        ("drafter:", "draughter:", "line 8: references[0].draughter: unknown key"),
        ("2.26", "about two", "line 4: references[0].mean_acceptance_length: expected a finite number"),
    ],
)
def test_a_fault_is_named_by_file_line_and_key(old: str, new: str, words: str) -> None:
    assert parse_references(ROW.encode())
    with pytest.raises(ReferencesError) as raised:
        parse_references(ROW.replace(old, new).encode())
    assert str(raised.value).startswith(f"references.yaml, {words}")


# --- the nearest row ---


def test_the_model_itself_comes_first() -> None:
    assert published("eagle3", 3, "Qwen/Qwen3-8B") == "published: 2.26 for Qwen3-8B, eagle3, k = 3, on MT-Bench"
    assert published("eagle3", 3, "alias", "/models/qwen3-8b") == published("eagle3", 3, "Qwen/Qwen3-8B")


def test_a_curve_tells_the_length_at_a_smaller_k() -> None:
    assert published("eagle3", 2, "Qwen/Qwen3-14B") == "published: 2.05 for Qwen3-8B, eagle3, k = 2, on MT-Bench"


def test_several_data_sets_of_a_model_are_a_range() -> None:
    expected = "published: 4.24 to 6.54 for Qwen3-8B, dflash, k = 16, on GSM8K, HumanEval, MT-Bench"
    assert published("dflash", 16, "Qwen/Qwen3-8B") == expected


def test_another_k_is_named_as_such_and_only_for_the_family() -> None:
    found = known(nearest(ROWS, "eagle3", 5, ["gpt-oss-120b"]))
    assert found.text == "published, at another k: 2.56 for gpt-oss-20b, eagle3, k = 3, on MT-Bench"
    assert found.num_speculative_tokens == 3
    assert nearest(ROWS, "medusa", 5, ["gpt-oss-120b"]) is None


def test_an_unknown_model_gets_the_methods_range() -> None:
    found = known(nearest(ROWS, "eagle3", 3, ["my-model"]))
    of_method = [each.length_at(3) for each in ROWS if each.method == "eagle3" and each.length_at(3) is not None]
    assert found.text == f"published for eagle3 at k = 3: 1.35 to 2.88, in {len(of_method)} measurements"
    assert (found.shortest, found.longest) == (1.35, 2.88)
    assert all(source.startswith("https://") for source in found.sources)


@pytest.mark.parametrize(
    ("method", "k", "names"),
    [(None, 3, ["Qwen3-8B"]), ("eagle3", None, ["Qwen3-8B"]), ("a_method_of_tomorrow", 3, ["Qwen3-8B"])],
)
def test_without_method_or_k_nothing_is_said(method: str | None, k: int | None, names: list[str]) -> None:
    assert nearest(ROWS, method, k, names) is None


def test_a_method_is_the_same_by_its_old_name() -> None:
    assert published("deepseek_mtp", 1, "deepseek-ai/DeepSeek-V3.2") == published("mtp", 1, "DeepSeek-V3.2")


@pytest.mark.parametrize(
    ("family", "name", "same"),
    [
        ("qwen3", "Qwen/Qwen3-14B", True),
        ("qwen3", "Qwen/Qwen3.5-4B", False),
        ("qwen3", "Qwen/Qwen30-4B", False),
        ("qwen3", "my-qwen3", True),
        ("qwen3", "myqwen3", False),
        ("qwen3.5", "Qwen/Qwen3.5-4B", True),
        ("qwen3.5", "Qwen/Qwen3x5-4B", False),
        ("llama-3.1", "Meta-Llama-3.1-8B", True),
        ("llama-3.1", "llama3.1", True),
        ("llama-3", "Llama-3.1-8B", False),
        ("gpt-oss", "/models/gpt_oss_20b", True),
    ],
)
def test_a_family_is_known_by_its_name(family: str, name: str, same: bool) -> None:
    assert row(3, 2.0, family=family).is_family([name]) is same


@given(k=st.integers(1, 20), name=st.text(max_size=40), method=st.sampled_from(sorted(load_policy().methods)))
def test_whatever_is_compared_was_published_of_the_method(k: int, name: str, method: str) -> None:
    found = nearest(ROWS, method, k, [name])
    if found is None:
        return
    of_method = [each for each in ROWS if each.method == canonical_method(method)]
    lengths = [each.length_at(found.num_speculative_tokens) for each in of_method]
    assert found.shortest in lengths
    assert found.longest in lengths
    assert found.shortest <= found.longest <= 1 + found.num_speculative_tokens
    assert ("another k" in found.text) is (found.num_speculative_tokens != k)
