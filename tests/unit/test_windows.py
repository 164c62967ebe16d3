"""Windows over counters that reset, pause and are read at any rhythm."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from builders import known
from specdec_exporter import bounds
from specdec_exporter.speculation.acceptance import Counts
from specdec_exporter.speculation.windows import SampleRing


def drafts(value: float) -> Counts:
    return Counts(drafts=value)


def test_a_window_is_the_increase_since_the_newest_sample_old_enough() -> None:
    ring = SampleRing(300)
    for at in range(0, 901, 60):
        ring.add(at, drafts(at * 2))
    window = known(ring.window(300, 900))
    assert (window.seconds, window.counts.drafts) == (300, 600)


@pytest.mark.parametrize(
    ("readings", "totals", "resets"),
    [
        pytest.param((drafts(100), drafts(150), drafts(30)), drafts(80), 1, id="a counter falls"),
        pytest.param((drafts(100), Counts(), Counts(), drafts(130)), drafts(130), 1, id="all counters are gone"),
        pytest.param(
            (Counts(drafts=5, steps=5), Counts(steps=7), Counts(drafts=8, steps=9)),
            Counts(drafts=3, steps=4),
            0,
            id="a gap in one counter is no restart",
        ),
        pytest.param(
            (
                Counts(drafts=1_000_000, accepted_per_position=(800_000.0,), generation_tokens=3_500_000),
                Counts(drafts=1_000_010, accepted_per_position=(800_009.0,), generation_tokens=3_500_034),
                Counts(generation_tokens=50),
                Counts(drafts=20, accepted_per_position=(3.0,), generation_tokens=70),
            ),
            Counts(drafts=30, accepted_per_position=(12.0,), generation_tokens=104),
            1,
            id="restarted without speculation",
        ),
    ],
)
def test_totals_start_at_zero_after_a_restart(readings: tuple[Counts, ...], totals: Counts, resets: int) -> None:
    ring = SampleRing(300)
    for at, raw in enumerate(readings):
        ring.add(at * 60, raw)
    assert (ring.totals, ring.resets) == (totals, resets)
    assert known(ring.window(300, at * 60)).counts == totals


def test_a_known_restart_counts_though_nothing_fell() -> None:
    ring = SampleRing(300)
    ring.add(0, drafts(100))
    ring.add(60, drafts(1000), restarted=True)
    assert (ring.totals, ring.resets) == (drafts(1000), 1)


def test_after_a_long_pause_the_window_does_not_reach_back_over_it() -> None:
    ring = SampleRing(300)
    ring.add(0, drafts(0))
    ring.add(60, drafts(60))
    ring.add(5000, drafts(5000))
    assert ring.window(300, 5000) is None
    ring.add(5060, drafts(5010))
    window = known(ring.window(300, 5060))
    assert (window.seconds, window.counts.drafts) == (60, 10)


def test_samples_that_ended_long_ago_give_no_window_now() -> None:
    ring = SampleRing(300)
    ring.add(0, drafts(0))
    ring.add(60, drafts(60))
    assert ring.window(300, 1000) is None


@given(
    increases=st.lists(st.integers(0, 50), min_size=2, max_size=60),
    resets=st.sets(st.integers(0, 59)),
    gap=st.floats(min_value=0.1, max_value=120),
)
def test_totals_are_the_sum_of_increases_whatever_resets(increases: list[int], resets: set[int], gap: float) -> None:
    ring = SampleRing(300)
    raw, total = 0.0, 0.0
    for i, increase in enumerate(increases):
        if i in resets and increase < raw:  # a restart that scraping can see: the counter is lower than before
            raw = 0.0
        raw += increase
        total += increase if i else 0
        ring.add(i * gap, drafts(raw))
    assert ring.totals.drafts in (total, None if total == 0 else total)


@given(st.lists(st.floats(min_value=0.01, max_value=2.0), min_size=100, max_size=400))
def test_memory_does_not_depend_on_how_often_it_is_read(gaps: list[float]) -> None:
    ring = SampleRing(60)
    now = 0.0
    for gap in gaps:
        now += gap
        ring.add(now, drafts(now))
    assert len(ring._samples) <= 60 * 1.5 + 3


FAST = 1e7
SERIES = st.lists(st.floats(0, bounds.COUNT) | st.integers(0, 10**6).map(float), min_size=2, max_size=20)


@pytest.mark.parametrize("glitch", [1e12, 2.0**53])
def test_a_glitch_adds_nothing_and_ends_with_it(glitch: float) -> None:
    ring = SampleRing(300, fastest=FAST)
    for at, value in enumerate((5000, 5100, glitch, glitch, 5400, 5500)):
        ring.add(at * 15, drafts(value))
    assert (ring.totals, ring.resets, ring.glitches) == (drafts(500), 0, 1)


def test_counters_that_stay_after_a_jump_go_on_from_there() -> None:
    ring = SampleRing(300, fastest=FAST)
    for at, value in enumerate((5000, 1e12, 1e12 + 50, 1e12 + 90)):
        ring.add(at * 15, drafts(value))
    assert ring.totals == drafts(90)


@given(SERIES, SERIES)
def test_a_window_holds_no_more_than_the_fastest_engine_does(drafted: list[float], accepted: list[float]) -> None:
    ring = SampleRing(300, fastest=FAST)
    for at, (tokens, kept) in enumerate(zip(drafted, accepted, strict=False)):
        ring.add(at * 15, Counts(draft_tokens=tokens, accepted_tokens=kept))
        if window := ring.window(300, at * 15):
            for counted in (window.counts.draft_tokens, window.counts.accepted_tokens):
                assert counted is None or 0 <= counted <= FAST * 25 * (at + 1)
