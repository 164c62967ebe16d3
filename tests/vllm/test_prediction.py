"""The prediction itself, where it can be worked out by hand. Needs no vLLM."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vllm.language import CHORUS, CYCLE_LENGTH, SHARES, Language, Prompt, build_language, cycle, excerpt, flawed_copy
from vllm.predict import Counts, draft_model, no_proposer, predict, prompt_lookup

LANGUAGE = build_language()


def one(prompt: Prompt, *, max_tokens: int, k: int, language: Language = LANGUAGE) -> Counts:
    return predict(language, [prompt], max_tokens=max_tokens, propose=draft_model(language, k=k), k=k)


@pytest.mark.parametrize("share", SHARES)
def test_the_draft_model_knows_exactly_its_share_of_a_cycle(share: float) -> None:
    known = sum(LANGUAGE.draft[token] == LANGUAGE.target[token] for token in cycle(share))
    assert known == round(share * CYCLE_LENGTH)


def test_both_tables_are_permutations() -> None:
    tokens = list(range(LANGUAGE.vocabulary_size))
    assert sorted(LANGUAGE.target) == tokens
    assert sorted(LANGUAGE.draft) == tokens


def test_a_draft_model_that_knows_all_is_accepted_in_full() -> None:
    # The first token comes with the prompt; each step then gives 3 accepted tokens and one more: 4, 8, 12.
    counts = one(excerpt(1.0, start=0), max_tokens=13, k=3)
    assert counts == Counts(1, 8, 13, steps=3, drafts=3, draft_tokens=9, accepted_per_position=(3, 3, 3))
    assert counts.accepted_tokens == 9


def test_tokens_past_the_last_one_returned_count_as_accepted() -> None:
    assert one(excerpt(1.0, start=0), max_tokens=2, k=4).accepted_per_position == (1, 1, 1, 1)


def test_a_draft_model_that_knows_nothing_costs_a_draft_per_token() -> None:
    counts = one(excerpt(0.0, start=0), max_tokens=11, k=2)
    assert counts == Counts(1, 8, 11, steps=10, drafts=10, draft_tokens=20, accepted_per_position=(0, 0))


def test_without_speculation_every_token_is_a_step() -> None:
    counts = predict(LANGUAGE, [excerpt(0.6, start=5)] * 2, max_tokens=7, propose=no_proposer, k=0)
    assert counts == Counts(2, 16, 14, steps=12)


@given(
    share=st.sampled_from(SHARES),
    start=st.integers(0, CYCLE_LENGTH - 1),
    max_tokens=st.integers(1, 150),
    k=st.integers(1, 6),
)
def test_the_counts_of_a_draft_model_hang_together(share: float, start: int, max_tokens: int, k: int) -> None:
    counts = one(excerpt(share, start=start), max_tokens=max_tokens, k=k)
    curve = counts.accepted_per_position
    assert list(curve) == sorted(curve, reverse=True)
    assert counts.draft_tokens == k * counts.drafts == k * counts.steps
    # All tokens but the first come from the steps, the last of which may give up to k more than were asked for.
    surplus = counts.accepted_tokens + counts.steps - (max_tokens - 1)
    assert 0 <= surplus <= k


@pytest.mark.parametrize(
    ("text", "proposed"),
    [
        ((1, 2, 3, 4, 5, 9, 1, 2), (3, 4, 5)),  # what followed
        ((1, 2, 3, 4), ()),  # nothing repeats
        ((7, 1, 2), ()),
        ((5, 3, 5, 4, 5), ()),  # a single token is too short to match
        ((1, 2, 7, 1, 2, 8, 1, 2), (7, 1, 2)),  # the earliest occurrence
        ((1, 2, 7, 0, 1, 2, 8, 0, 1, 2), (8, 0, 1)),  # but the longest match first: 0 1 2
        ((1, 2, 1, 2), (1, 2)),  # the text ends after two
        ((4, 4, 4, 4, 4), (4,)),  # a match may overlap the ending
    ],
)
def test_prompt_lookup_proposes_what_followed_the_longest_earliest_match(text: Prompt, proposed: Prompt) -> None:
    assert tuple(prompt_lookup(k=3, shortest=2, longest=4)(text)) == proposed


def test_flawed_copies_are_wrong_at_their_flaws_only() -> None:
    prompt = flawed_copy(1.0, start=0, length=12, flaw_every=5, quoted=3)
    truth = excerpt(1.0, start=0, length=12)
    assert [index for index in range(12) if prompt[index] != truth[index]] == [4, 9]
    assert prompt[12:] == truth[:3]


def test_prompt_lookup_repeats_a_chorus_with_drafts_shorter_than_k() -> None:
    lookup = prompt_lookup(k=5, shortest=2, longest=4)
    counts = predict(LANGUAGE, [CHORUS], max_tokens=9, propose=lookup, k=5)
    # 0123, and token 0 with the prompt. Step 1 finds nothing and says 1; step 2 finds 01 again and proposes the 2301
    # that followed; step 3 finds 3012, after which the text has 3012 and ends.
    assert counts == Counts(1, 4, 9, steps=3, drafts=2, draft_tokens=8, accepted_per_position=(2, 2, 2, 2, 0))


def test_counts_of_different_k_do_not_add_up() -> None:
    with pytest.raises(ValueError, match="different numbers"):
        Counts(accepted_per_position=(0,)) + Counts(accepted_per_position=(0, 0))
