"""Recovery of what a spec-decode line rounds away."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specdec_exporter.predictor.log.rounding import reconstruct_window


@st.composite
def window(draw: st.DrawFn) -> tuple[int, list[int], int, int, bool]:
    """Drafts, accepted per position, draft tokens, k and whether all drafts were full, as an engine produces them."""
    k = draw(st.integers(1, 8))
    full = draw(st.booleans())
    drafts = draw(st.lists(st.integers(0, k), min_size=1, max_size=300))
    offered = [k if full else draw(st.integers(max(1, accepted), k)) for accepted in drafts]
    positions = [sum(accepted > i for accepted in drafts) for i in range(k)]
    return len(drafts), positions, sum(offered), k, full


def printed(positions: list[int], drafts: int) -> tuple[list[float], float]:
    return [float(f"{count / drafts:.3f}") for count in positions], float(f"{sum(positions) / drafts:.2f}")


@given(window())
def test_whatever_the_drafts_positions_sum_to_accepted_and_agree_with_what_is_printed(
    case: tuple[int, list[int], int, int, bool],
) -> None:
    drafts, positions, draft_tokens, k, full = case
    per_position, length = printed(positions, drafts)
    found, counts = reconstruct_window(sum(positions), draft_tokens, per_position, length, k)
    if full:  # up to 300 drafts, three decimals identify whole numbers
        assert (found, counts) == (drafts, positions)
    assert sum(counts) == sum(positions)
    assert math.ceil(draft_tokens / k) <= found <= draft_tokens
    for count, rate in zip(counts, per_position, strict=True):
        assert abs(count / found - rate) <= 0.0005 + 1 / found


@pytest.mark.parametrize(
    ("accepted", "drafted", "per_position", "length", "k", "drafts"),
    [
        pytest.param(0, 0, (0.0, 0.0, 0.0), 0.0, 3, 0, id="nothing drafted"),
        # vLLM 0.32.0, n-gram with k = 5 on prompts that allow three tokens a draft.
        pytest.param(5, 15, (1.0, 0.0, 0.0, 0.0, 0.0), 1.0, 5, 5, id="short n-gram drafts"),
        pytest.param(9, 15, (), 1.8, 3, 5, id="no list"),
        pytest.param(9, 15, (), 1.8, None, 5, id="only a length"),
        pytest.param(9, 15, (), None, None, 0, id="neither k nor length"),
        pytest.param(9, 15, (), 0.1, None, 15, id="length below any possible"),
        pytest.param(640, 6400, (), 64.0, None, 100, id="length above any possible"),
    ],
)
def test_drafts_are_recovered_from_what_the_line_has(  # noqa: PLR0917
    accepted: int, drafted: int, per_position: tuple[float, ...], length: float | None, k: int | None, drafts: int
) -> None:
    assert reconstruct_window(accepted, drafted, per_position, length, k)[0] == drafts


@given(window())
def test_without_a_list_the_drafts_are_those_nearest_the_mean_length(
    case: tuple[int, list[int], int, int, bool],
) -> None:
    drafts, positions, draft_tokens, k, full = case
    accepted, (_, length) = sum(positions), printed(positions, drafts)
    if full:
        assert reconstruct_window(accepted, draft_tokens, (), length, k)[0] == drafts
    for k_or_none in (k, None):
        found, counts = reconstruct_window(accepted, draft_tokens, (), length, k_or_none)
        assert counts == []
        if accepted:
            assert math.ceil(draft_tokens / (k_or_none or 64)) <= found <= draft_tokens
            assert abs(accepted / found - length) <= 0.005 + accepted / found**2


@given(st.integers(1_000, 1_000_000), st.lists(st.integers(0, 1000), min_size=1, max_size=8), st.integers(-3, 3))
def test_of_many_drafts_positions_are_as_exact_as_what_is_printed(
    drafts: int, thousandths: list[int], noise: int
) -> None:
    positions = sorted((min(drafts, max(0, drafts * each // 1000 + noise)) for each in thousandths), reverse=True)
    per_position, length = printed(positions, drafts)
    found, counts = reconstruct_window(sum(positions), drafts * len(positions), per_position, length, None)
    assert (found, sum(counts)) == (drafts, sum(positions))
    assert [drafts, *counts, 0] == sorted([drafts, *counts, 0], reverse=True)  # nested
    for count, rate in zip(counts, per_position, strict=True):
        assert abs(count - rate * drafts) <= 0.0005 * drafts + 1
