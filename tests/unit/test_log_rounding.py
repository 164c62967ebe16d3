"""What a spec-decode line rounds away: drafts, and accepted tokens by position."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specdec_exporter.predictor.log.rounding import reconstruct_window


@st.composite
def window(draw: st.DrawFn, most: int) -> tuple[int, list[int], int, int]:
    """Drafts, accepted per position, draft tokens and k, as an engine produces them; ``most`` drafts, some short."""
    k = draw(st.integers(1, 8))
    accepted = draw(st.lists(st.integers(0, k), min_size=1, max_size=60))
    times = draw(st.integers(1, most // len(accepted)))
    shortest = draw(st.sampled_from([1, k]))
    offered = [draw(st.integers(max(shortest, count), k)) for count in accepted]
    positions = [times * sum(count > i for count in accepted) for i in range(k)]
    return times * len(accepted), positions, times * sum(offered), k


def printed(positions: list[int], drafts: int) -> tuple[list[float], float]:
    return [float(f"{count / drafts:.3f}") for count in positions], float(f"{sum(positions) / drafts:.2f}")


@given(window(1000))
def test_up_to_a_thousand_full_drafts_are_exact(case: tuple[int, list[int], int, int]) -> None:
    drafts, positions, _, k = case
    assert reconstruct_window(sum(positions), drafts * k, *printed(positions, drafts), k) == (drafts, positions)


@given(window(1_000_000))
def test_all_others_are_as_exact_as_what_is_printed(case: tuple[int, list[int], int, int]) -> None:
    drafts, positions, draft_tokens, k = case
    per_position, length = printed(positions, drafts)
    found, counts = reconstruct_window(sum(positions), draft_tokens, per_position, length, k)
    assert math.floor(draft_tokens / k) <= found <= draft_tokens
    if any(per_position):
        assert sum(counts) == sum(positions)
    if not sum(positions):
        assert counts == positions  # how many drafts made these tokens is not known
        return
    digits = 0.0005 * k / sum(per_position) if sum(per_position) else 1.0
    assert abs(found - drafts) <= 2 * digits * drafts + 1
    for count, position in zip(counts, positions, strict=True):
        assert abs(count - position) <= 2 * (digits * position + 0.0005 * drafts) + 1


@given(window(1_000_000))
def test_without_a_list_the_drafts_are_those_of_the_mean_length(case: tuple[int, list[int], int, int]) -> None:
    drafts, positions, draft_tokens, k = case
    accepted, (_, length) = sum(positions), printed(positions, drafts)
    assert reconstruct_window(accepted, drafts * k, (), length, k) == (drafts, [])
    found, _ = reconstruct_window(accepted, draft_tokens, (), length, None)
    if accepted and length:
        assert abs(found - drafts) <= 2 * 0.005 / length * drafts + 1
    else:
        assert found <= draft_tokens


@pytest.mark.parametrize(
    ("accepted", "drafted", "per_position", "length", "k", "drafts"),
    [
        pytest.param(0, 0, (0.0, 0.0, 0.0), 0.0, 3, 0, id="nothing drafted"),
        # vLLM 0.32.0, n-gram with k = 5 on prompts that allow three tokens a draft.
        pytest.param(5, 15, (1.0, 0.0, 0.0, 0.0, 0.0), 1.0, 5, 5, id="short n-gram drafts"),
        # vllm#56137: the length leaves out tokens behind a stop.
        pytest.param(1909, 3579, (0.72, 0.52, 0.36), 1.52, 3, 1193, id="a length below its positions"),
        pytest.param(9, 15, (), 1.8, 3, 5, id="no list"),
        pytest.param(9, 15, (), 1.8, None, 5, id="only a length"),
        pytest.param(9, 15, (), None, None, 0, id="neither k nor length"),
        pytest.param(0, 15, (), 0.0, None, 0, id="nothing accepted, and no k"),
        pytest.param(9, 15, (), 0.1, None, 15, id="length below any possible"),
    ],
)
def test_drafts_are_recovered_from_what_the_line_has(  # noqa: PLR0917
    accepted: int, drafted: int, per_position: tuple[float, ...], length: float | None, k: int | None, drafts: int
) -> None:
    assert reconstruct_window(accepted, drafted, per_position, length, k)[0] == drafts
