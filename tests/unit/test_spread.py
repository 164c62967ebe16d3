"""Percentiles of acceptance over windows and over drafts."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specdec_exporter.inspection.spread import FEWEST_PARTS, AcceptanceSpread, SpreadCounter

parts = st.lists(st.tuples(st.floats(0, 1.5), st.integers(1, 30)), min_size=1, max_size=100)
RANKS = (10, 50, 90)


def counted(some: list[tuple[float, int]]) -> AcceptanceSpread:
    counter = SpreadCounter()
    for each, drafts in some:
        counter.add(each, drafts)
    return counter.spread(RANKS)


def nearest_rank(values: list[float], rank: int) -> float:
    return sorted(values)[math.ceil(len(values) * rank / 100) - 1]


@given(parts)
def test_percentiles_count_each_part_once_or_each_draft_once_to_a_thousandth(some: list[tuple[float, int]]) -> None:
    found = counted(some)
    rounded = [(min(round(ratio * 1000), 1000) / 1000, drafts) for ratio, drafts in some]
    assert found.parts == len(some)
    for rank in RANKS if len(some) >= FEWEST_PARTS else ():
        assert found.by_part[f"p{rank}"] == nearest_rank([ratio for ratio, _ in rounded], rank)
        assert found.by_draft[f"p{rank}"] == nearest_rank(
            [ratio for ratio, drafts in rounded for _ in range(drafts)], rank
        )


@pytest.mark.parametrize("few", [0, 1, 3, 4])
def test_a_few_parts_have_no_percentiles(few: int) -> None:
    assert counted([(0.5, 9)] * few) == AcceptanceSpread(parts=few, by_part={}, by_draft={})
