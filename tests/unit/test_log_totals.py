"""Sums of log lines: exact tokens, V0 lifetimes differenced, nothing counted that was not seen to happen."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from specdec_exporter.predictor.log.events import SpecDecoding
from specdec_exporter.predictor.log.totals import LogTotals, engine_label


def line(accepted: int, drafted: int, **more: object) -> SpecDecoding:
    return SpecDecoding(accepted_tokens=accepted, draft_tokens=drafted, **more)  # type: ignore[arg-type]


def lifetime(accepted: int, drafted: int) -> SpecDecoding:
    return line(accepted, drafted, cumulative=True, num_speculative_tokens=3)


lines_with_loads = st.lists(st.tuples(st.integers(1, 900), st.none() | st.integers(0, 64), st.sampled_from("01")))


@given(lines_with_loads)
def test_the_load_is_that_of_the_mean_draft_token_whose_own_request_runs(
    lines: list[tuple[int, int | None, str]],
) -> None:
    totals = LogTotals()
    for drafted, running, label in lines:
        totals.add(line(0, drafted, requests_running=running), label)
    seen = [(drafted, max(running, 1)) for drafted, running, _ in lines if running is not None]
    if not seen:
        assert totals.requests_running is None
        return
    expected = sum(drafted * running for drafted, running in seen) / sum(drafted for drafted, _ in seen)
    assert totals.requests_running == pytest.approx(expected)
    assert min(running for _, running in seen) <= expected <= max(running for _, running in seen)


def test_the_load_of_lifetime_lines_is_weighed_by_what_they_add() -> None:
    totals = LogTotals()
    for drafted, running in ((1000, 50), (1100, 4), (1400, 8)):
        totals.add(msgspec.structs.replace(lifetime(10, drafted), requests_running=running), "0")
    assert totals.requests_running == (100 * 4 + 300 * 8) / 400


PRINTED = {"per_position": (0.8, 0.6, 0.4)}


@pytest.mark.parametrize(
    ("printed", "k", "drafts", "positions"),
    [
        ({"mean_acceptance_length": 2.8, "bonus_included": True, **PRINTED}, None, 5, [4, 3, 2]),
        ({"mean_acceptance_length": 1.8, "bonus_included": False, **PRINTED}, None, 5, [4, 3, 2]),
        ({"mean_acceptance_length": 2.8, "bonus_included": True}, None, 5, []),
        ({"mean_acceptance_length": 2.8, "bonus_included": True}, 3, 5, []),
        ({}, 3, 0, []),  # as 0.8.3 prints: its metrics do not count drafts either
    ],
)
def test_a_line_adds_its_tokens_and_the_drafts_of_its_list_or_length(
    printed: dict[str, object], k: int | None, drafts: int, positions: list[int]
) -> None:
    totals = LogTotals()
    totals.add(line(9, 15, **printed), "0", k)
    engine = totals.engine("0")
    assert (engine.windows, engine.draft_tokens, engine.accepted_tokens) == (1, 15, 9)
    assert (engine.drafts, engine.accepted_per_position) == (drafts, positions)


@given(
    history=st.lists(st.lists(st.tuples(st.integers(0, 50), st.integers(1, 50)), min_size=1, max_size=15), max_size=4),
    from_start=st.booleans(),
)
def test_lifetimes_add_up_over_restarts_from_the_first_line_that_counts(
    history: list[list[tuple[int, int]]], from_start: bool
) -> None:
    totals = LogTotals()
    if from_start:
        totals.predictor_started()
    expected = [0, 0]
    last: tuple[int, int] | None = (0, 0) if from_start else None
    for run in history:  # lifetime totals of one process; a lower total is a restart
        accepted = drafted = 0
        for extra_accepted, rejected in run:
            accepted, drafted = accepted + extra_accepted, drafted + extra_accepted + rejected
            totals.add(lifetime(accepted, drafted), "0")
            if last is not None:
                before = last if accepted >= last[0] and drafted >= last[1] else (0, 0)
                expected = [expected[0] + accepted - before[0], expected[1] + drafted - before[1]]
            last = accepted, drafted
    assert [totals.engine("0").accepted_tokens, totals.engine("0").draft_tokens] == expected
    assert totals.engine("0").windows == sum(map(len, history))


def test_engines_are_named_as_the_metrics_name_them() -> None:
    assert engine_label("000") == "0"
    assert engine_label("012") == "12"
    assert engine_label("aggregated") == "aggregated"
    assert engine_label(None) == "0"
    assert engine_label(None, ("3",)) == "3"
    assert engine_label(None, ("0", "1")) == "aggregated"
