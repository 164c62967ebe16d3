"""Percentiles of acceptance over windows and over drafts, and those of chance."""

from __future__ import annotations

import math
from itertools import accumulate
from statistics import fmean, pstdev

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from specdec_exporter.speculation.spread import AcceptanceSpread, SpreadCounter, draft_deviation

parts = st.lists(st.tuples(st.floats(0, 1.5), st.integers(1, 30)), min_size=1, max_size=100)
RANKS = (10, 50, 90)


def counted(
    some: list[tuple[float, int]], curve: tuple[float, ...] = (), ratio: float | None = None
) -> AcceptanceSpread:
    counter = SpreadCounter()
    for each, drafts in some:
        counter.add(each, drafts)
    return counter.spread(RANKS, ratio, curve, len(curve))


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


def test_without_a_part_nothing_is_known_and_without_a_curve_nothing_of_chance() -> None:
    assert counted([]) == AcceptanceSpread(parts=0, by_part={}, by_draft={}, chance_by_part={}, chance_by_draft={})
    assert counted([], (0.8, 0.5), 0.65).chance_by_part == {}
    found = counted([(0.65, 100)], ratio=0.65)
    assert (found.chance_by_part, found.chance_by_draft) == ({}, {})


@given(st.lists(st.integers(0, 5), min_size=1, max_size=300))
def test_the_curve_tells_how_much_the_tokens_of_a_draft_vary(accepted: list[int]) -> None:
    curve = [fmean(each > position for each in accepted) for position in range(5)]
    assert draft_deviation(curve, 5.0) == pytest.approx(pstdev(each / 5 for each in accepted), abs=1e-7)


def binomial_cdf(draws: int, probability: float) -> list[float]:
    steps = (
        math.comb(draws, hits) * probability**hits * (1 - probability) ** (draws - hits) for hits in range(draws + 1)
    )
    return list(accumulate(steps))


@settings(max_examples=30)
@given(st.lists(st.integers(50, 600), min_size=1, max_size=5), st.floats(0.2, 0.8))
def test_chance_is_the_spread_of_windows_with_one_acceptance(sizes: list[int], probability: float) -> None:
    assume(max(sizes) >= 100)
    found = counted([(probability, drafts) for drafts in sizes], (probability,), probability)
    exact = [binomial_cdf(drafts, probability) for drafts in sizes]
    for chance, weights in ((found.chance_by_part, [1] * len(sizes)), (found.chance_by_draft, sizes)):
        for rank in RANKS:
            ratio = chance[f"p{rank}"]
            at = [cdf[math.floor(ratio * drafts)] for cdf, drafts in zip(exact, sizes, strict=True)]
            below = sum(weight * share for weight, share in zip(weights, at, strict=True)) / sum(weights)
            assert below == pytest.approx(rank / 100, abs=0.06)  # whole drafts, and sizes within an octave as one


def test_chance_stays_within_0_and_1() -> None:
    found = counted([(0.99, 2)] * 3, (0.99,), 0.99)
    assert found.chance_by_part["p90"] == 1.0
    assert counted([(0.01, 2)] * 3, (0.01,), 0.01).chance_by_draft["p10"] == 0.0
