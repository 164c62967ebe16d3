"""The arithmetic: definitions and undefined cases."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specdec_exporter.speculation import acceptance
from specdec_exporter.speculation.acceptance import Counts

whole = st.integers(min_value=0, max_value=10_000).map(float)
maybe = st.none() | whole


counts = st.builds(
    Counts,
    drafts=maybe,
    draft_tokens=maybe,
    accepted_tokens=maybe,
    accepted_per_position=st.lists(whole, max_size=5).map(tuple),
    generation_tokens=maybe,
    first_tokens=maybe,
    steps=maybe,
)


def test_the_worked_example_of_five_drafts() -> None:
    positions = (4.0, 3.0, 2.0)
    assert acceptance.acceptance_ratio(9, 15) == pytest.approx(0.6)
    assert acceptance.mean_acceptance_length(9, 5) == pytest.approx(2.8)
    assert acceptance.mean_draft_length(15, 5) == pytest.approx(3.0)
    assert acceptance.position_ratios(positions, 5) == pytest.approx((0.8, 0.6, 0.4))
    assert acceptance.conditional_ratios(positions, 5) == pytest.approx((0.8, 0.75, 2 / 3))
    assert acceptance.tokens_per_step(1600, 8, 464) == pytest.approx(1592 / 464)


@given(numerator=maybe, denominator=maybe)
def test_a_ratio_is_absent_rather_than_zero_or_nan(numerator: float | None, denominator: float | None) -> None:
    result = acceptance.ratio(numerator, denominator)
    if numerator is None or not denominator:
        assert result is None
    else:
        assert result == numerator / denominator


def test_without_drafts_nothing_is_derived() -> None:
    assert acceptance.acceptance_ratio(0, 0) is None
    assert acceptance.mean_acceptance_length(0, 0) is None
    assert acceptance.position_ratios((0.0, 0.0), 0) == ()
    assert acceptance.conditional_ratios((0.0, 0.0), 0) == ()
    assert acceptance.tokens_per_step(5, 5, 0) is None
    assert acceptance.tokens_per_step(5, 5, 3) is None


def test_a_position_that_was_never_reached_has_no_conditional_ratio() -> None:
    assert acceptance.conditional_ratios((2.0, 0.0, 0.0), 4) == (0.5, 0.0, None)


@given(a=counts, b=counts)
def test_what_was_added_can_be_taken_away(a: Counts, b: Counts) -> None:
    difference = (a + b) - a
    for name in acceptance.SCALARS:
        mine, result = getattr(b, name), getattr(difference, name)
        if mine is None:
            assert result in (None, 0.0)
        else:
            assert result == mine
    for i, value in enumerate(difference.accepted_per_position):
        assert value == acceptance.at(b.accepted_per_position, i)


def test_a_missing_count_keeps_its_last_value() -> None:
    before = Counts(drafts=5, accepted_tokens=9)
    after = Counts(drafts=6)
    assert after.or_else(before) == Counts(drafts=6, accepted_tokens=9)


def test_short_drafts_are_seen_from_draft_tokens_below_k_times_drafts() -> None:
    assert acceptance.has_short_drafts(14, 5, 3)
    assert not acceptance.has_short_drafts(15, 5, 3)
    assert not acceptance.has_short_drafts(None, 5, 3)
    assert not acceptance.has_short_drafts(15, 5, None)
