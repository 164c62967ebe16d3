"""Sums of log lines: exact tokens, V0 lifetimes differenced, nothing counted that was not seen to happen."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specdec_exporter.predictor.log.events import SpecDecoding
from specdec_exporter.speculation.logtotals import LogTotals, engine_label


def line(accepted: int, drafted: int, **more: object) -> SpecDecoding:
    return SpecDecoding(accepted_tokens=accepted, draft_tokens=drafted, **more)  # type: ignore[arg-type]


def lifetime(accepted: int, drafted: int) -> SpecDecoding:
    return line(accepted, drafted, cumulative=True, num_speculative_tokens=3)


def test_a_line_adds_its_tokens_and_its_reconstructed_drafts() -> None:
    totals = LogTotals()
    totals.add(line(9, 15, mean_acceptance_length=2.8, bonus_included=True, per_position=(0.8, 0.6, 0.4)), "0")
    engine = totals.engine("0")
    assert (engine.windows, engine.draft_tokens, engine.accepted_tokens) == (1, 15, 9)
    assert (engine.drafts, engine.accepted_per_position) == (5, [4, 3, 2])


def test_a_length_without_the_bonus_token_gives_the_same_drafts() -> None:
    totals = LogTotals()
    totals.add(line(9, 15, mean_acceptance_length=1.8, bonus_included=False, per_position=(0.8, 0.6, 0.4)), "0")
    assert totals.engine("0").drafts == 5


@pytest.mark.parametrize("k", [None, 3])
def test_a_line_without_a_list_gives_the_drafts_of_its_length(k: int | None) -> None:
    totals = LogTotals()
    totals.add(line(9, 15, mean_acceptance_length=2.8, bonus_included=True), "0", k)
    engine = totals.engine("0")
    assert (engine.drafts, engine.accepted_per_position) == (5, [])


def test_a_line_with_neither_list_nor_length_gives_no_drafts() -> None:
    totals = LogTotals()
    totals.add(line(9, 15), "0", 3)  # as 0.8.3 prints: its metrics do not count drafts either
    assert totals.engine("0").drafts == 0


def test_lifetime_lines_of_a_log_seen_from_its_start_add_up_to_the_last() -> None:
    totals = LogTotals()
    totals.predictor_started()
    for accepted, drafted in ((9, 15), (18, 30), (18, 45)):
        totals.add(lifetime(accepted, drafted), "0")
    engine = totals.engine("0")
    assert (engine.windows, engine.accepted_tokens, engine.draft_tokens, engine.drafts) == (3, 18, 45, 15)


def test_the_first_lifetime_line_of_a_log_joined_late_only_says_where_to_count_from() -> None:
    totals = LogTotals()
    totals.add(lifetime(900, 1500), "0")
    totals.add(lifetime(909, 1515), "0")
    assert (totals.engine("0").accepted_tokens, totals.engine("0").draft_tokens) == (9, 15)


def test_a_lifetime_that_falls_is_a_restart_and_counts_from_zero() -> None:
    totals = LogTotals()
    totals.predictor_started()
    totals.add(lifetime(900, 1500), "0")
    totals.add(lifetime(9, 15), "0")
    assert (totals.engine("0").accepted_tokens, totals.engine("0").draft_tokens) == (909, 1515)


@given(st.lists(st.tuples(st.integers(0, 50), st.integers(0, 50)), max_size=30))
def test_lifetimes_of_any_history_add_up_to_its_end(increments: list[tuple[int, int]]) -> None:
    totals = LogTotals()
    totals.predictor_started()
    accepted = drafted = 0
    for extra_accepted, rejected in increments:
        accepted += extra_accepted
        drafted += extra_accepted + rejected
        totals.add(lifetime(accepted, drafted), "0")
    assert (totals.engine("0").accepted_tokens, totals.engine("0").draft_tokens) == (accepted, drafted)


def test_engines_are_named_as_the_metrics_name_them() -> None:
    assert engine_label("000") == "0"
    assert engine_label("012") == "12"
    assert engine_label("aggregated") == "aggregated"
    assert engine_label(None) == "0"
    assert engine_label(None, ("3",)) == "3"
    assert engine_label(None, ("0", "1")) == "aggregated"
