"""Percentiles of acceptance over windows and over drafts."""

from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st

from specdec_exporter.inspection.spread import AcceptanceSpread, SpreadCounter

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
    for rank in RANKS:
        assert found.by_part[f"p{rank}"] == nearest_rank([ratio for ratio, _ in rounded], rank)
        assert found.by_draft[f"p{rank}"] == nearest_rank(
            [ratio for ratio, drafts in rounded for _ in range(drafts)], rank
        )


def test_without_a_part_nothing_is_known() -> None:
    assert counted([]) == AcceptanceSpread(parts=0, by_part={}, by_draft={})
