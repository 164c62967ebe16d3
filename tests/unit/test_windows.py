"""Windows over counters that reset, pause and are read at any rhythm."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from builders import known
from specdec_exporter.serving.windows import SampleRing
from specdec_exporter.speculation.acceptance import Counts


def drafts(value: float) -> Counts:
    return Counts(drafts=value)


def test_a_window_is_the_increase_since_the_newest_sample_old_enough() -> None:
    ring = SampleRing(300)
    for at in range(0, 901, 60):
        ring.add(at, drafts(at * 2))
    window = known(ring.window(300, 900))
    assert (window.seconds, window.counts.drafts) == (300, 600)


def test_a_gap_in_one_figure_adds_nothing() -> None:
    ring = SampleRing(300)
    for at, totals in enumerate((Counts(drafts=5, steps=5), Counts(steps=7), Counts(drafts=8, steps=9))):
        ring.add(at * 60, totals)
    assert known(ring.window(300, 120)).counts == Counts(drafts=3, steps=4)


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


@given(st.lists(st.floats(min_value=0.01, max_value=2.0), min_size=100, max_size=400))
def test_memory_does_not_depend_on_how_often_it_is_read(gaps: list[float]) -> None:
    ring = SampleRing(60)
    now = 0.0
    for gap in gaps:
        now += gap
        ring.add(now, drafts(now))
    assert len(ring._samples) <= 60 * 1.5 + 3
