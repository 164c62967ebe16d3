"""Windows over counters that reset, pause and are read at any rhythm."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from specdec_exporter.speculation.acceptance import Counts
from specdec_exporter.state.windows import SampleRing, Window, concurrency
from support.builders import known


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


# --- the load that a step met ---


def running(requests: list[float], seconds: float = 10.0) -> Window:
    """A window with so many requests in decode between each two samples."""
    ring, timed = SampleRing(seconds * len(requests)), 0.0
    ring.add(0.0, Counts(step_seconds=0.0))
    for number, load in enumerate(requests, start=1):
        timed += load * seconds
        ring.add(number * seconds, Counts(step_seconds=timed))
    return known(ring.window(seconds * len(requests), seconds * len(requests)))


def test_a_burst_is_a_large_batch_however_long_the_server_idles() -> None:
    assert concurrency([running([0.0] * 14 + [200.0] + [0.0] * 15)]) == 200.0
    assert concurrency([running([3.0] * 30)]) == 3.0
    assert concurrency([running([8.0] * 30), running([2.0] * 30)]) == (8 * 8 + 2 * 2) / 10
    assert concurrency([running([0.0] * 30)]) is None
    assert concurrency([]) is None


@given(st.lists(st.floats(0, 1000), min_size=4, max_size=40))
def test_the_load_of_steps_lies_between_its_mean_over_time_and_its_highest(requests: list[float]) -> None:
    found = concurrency([running(requests)])
    if found is not None:
        mean = sum(requests) / len(requests)
        assert mean * (1 - 1e-9) - 1e-9 <= found <= max(requests) * (1 + 1e-9) + 1e-9


def test_reading_more_often_than_samples_are_kept_changes_no_load() -> None:
    ring = SampleRing(600)  # keeps one sample in 10 s
    for at in range(601):
        ring.add(at, Counts(step_seconds=5.0 * at))
    assert round(known(concurrency([known(ring.window(600, 600))])), 6) == 5.0
