"""Answers that cannot follow the one before: refused at first, since Prometheus would count everything twice."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from builders import Clock, engine, latency, snapshot
from specdec_exporter import bounds
from specdec_exporter.errors import FetchError
from specdec_exporter.predictor.metrics.continuity import Continuity
from specdec_exporter.predictor.metrics.snapshot import EngineSnapshot, Snapshot

NO_STATISTICS = Snapshot(engines=(), engine_generation=None, stats_present=False, process_start_time_seconds=1000.0)


def answer(steps: float, started: float | None = 1000.0, **changes: object) -> Snapshot:
    whole = engine(steps, (steps * 0.8, steps * 0.6, steps * 0.4), requests=steps / 100)
    return msgspec.structs.replace(
        snapshot(msgspec.structs.replace(whole, **changes)), process_start_time_seconds=started
    )


@dataclass
class Watch:
    """Shows one answer after the other, 15 s apart; ``refusals`` are the reasons in words."""

    clock: Clock = field(default_factory=Clock)
    refusals: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.continuity = Continuity(self.clock.monotonic, self.clock.wall)

    def takes(self, *answers: Snapshot) -> list[bool]:
        return [self._takes(each) for each in answers]

    def _takes(self, shown: Snapshot) -> bool:
        self.clock.advance(15)
        try:
            self.continuity.check(shown)
        except FetchError as error:
            self.refusals.append(f"{error.reason}: {error}")
            return False
        return True


@pytest.fixture
def watch() -> Watch:
    return Watch()


@pytest.mark.parametrize("started", [1000.0, None])
def test_an_old_answer_is_refused_and_the_next_fresh_one_taken(watch: Watch, started: float | None) -> None:
    assert watch.takes(*(answer(steps, started) for steps in (100, 200, 150, 300))) == [True, True, False, True]
    assert watch.refusals[0].startswith("went_back: ")
    assert "drafts fell from 200 to 150" in watch.refusals[0]


def test_an_answer_that_comes_again_is_no_fault(watch: Watch) -> None:
    assert watch.takes(answer(100), answer(100), answer(100)) == [True] * 3


def test_a_process_that_started_after_the_last_answer_is_a_restart(watch: Watch) -> None:
    assert watch.takes(answer(100)) == [True]
    for early in (-1, 1):  # start times are coarse: a second may be missing
        started = watch.clock.wall() - early
        assert watch.takes(answer(3, started), answer(5, started)) == [True] * 2


def test_after_a_time_without_answer_a_later_process_is_a_restart_whatever_the_clock_says(watch: Watch) -> None:
    assert watch.takes(answer(100, 1000.0)) == [True]
    watch.continuity.failed(lost=True)
    assert watch.takes(answer(80, 500.0), answer(80, 1001.0)) == [False, True]


@pytest.mark.parametrize("generations", [("v0", "v1"), ("v1", "v0")])
def test_another_engine_generation_is_a_restart(watch: Watch, generations: tuple[str, str]) -> None:
    answers = (
        msgspec.structs.replace(answer(steps, None), engine_generation=generation)
        for steps, generation in zip((100, 3), generations, strict=True)
    )
    assert watch.takes(*answers) == [True] * 2


def test_without_start_time_a_restart_shows_by_a_time_without_answer(watch: Watch) -> None:
    watch.takes(answer(100, None))
    watch.continuity.failed(lost=True)
    assert watch.takes(answer(80, None), answer(90, None), answer(85, None)) == [True, True, False]


def test_an_answer_lost_on_the_way_does_not_excuse_an_old_one_of_the_same_process(watch: Watch) -> None:
    watch.takes(answer(100), answer(200))
    watch.continuity.failed(lost=True)
    assert watch.takes(answer(150), answer(300)) == [False, True]


def test_of_two_predictors_in_turn_one_is_followed() -> None:
    for started in ((1000.0, 2000.0), (2000.0, 1000.0), (None, None)):
        watch = Watch()
        steps = ((4000, 5000) if started[0] else (5000, 4000), started)
        answers = [answer(steps[0][turn % 2] + turn, started[turn % 2]) for turn in range(20)]
        assert watch.takes(*answers) == [turn % 2 == 0 for turn in range(20)]


def test_what_lasts_is_taken_for_a_restart(watch: Watch) -> None:
    """The wall clock was set back before the restart, or the server began to count anew by itself."""
    earlier = [answer(70 + steps, 500.0) for steps in range(10)]
    assert watch.takes(answer(100), *earlier) == [True, *[False] * 4, *[True] * 6]
    anew = [answer(60 + steps, 500.0) for steps in range(8)]
    assert watch.takes(*anew) == [*[False] * 4, *[True] * 4]
    assert bounds.DOUBT_SECONDS == 60


@pytest.mark.parametrize("started", [1000.0, None])
def test_counters_that_all_begin_anew_are_a_restart(watch: Watch, started: float | None) -> None:
    assert watch.takes(answer(100, started), answer(50, started), answer(60, started)) == [True] * 3


def test_a_process_with_other_counters_is_of_another_release(watch: Watch) -> None:
    assert watch.takes(answer(100), answer(200, 500.0, time_to_first_token=None)) == [True, True]


def test_nothing_lasts_over_a_failed_fetch(watch: Watch) -> None:
    watch.takes(answer(100))
    for steps in range(20):
        assert watch.takes(answer(60 + steps)) == [False]
        watch.continuity.failed(lost=False)


@pytest.mark.parametrize(
    ("cut", "words"),
    [
        (answer(200, accepted_tokens=None), "accepted_tokens is missing"),
        (answer(200, accepted_tokens_per_position={0: 160.0}), "accepted_tokens_per_position is missing"),
        (answer(200, step_latency=None), "step_latency is missing"),
        (answer(200, step_latency=msgspec.structs.replace(latency(200), bounds=(1.0, 2.0, float("inf")))), "buckets"),
        (msgspec.structs.replace(snapshot(), process_start_time_seconds=1000.0), "of engine 0, it is missing"),
        (NO_STATISTICS, "of engine 0, it is missing"),
    ],
)
def test_an_answer_that_lacks_counters_was_cut_off_between_two_lines(watch: Watch, cut: Snapshot, words: str) -> None:
    assert watch.takes(answer(100), cut, answer(300)) == [True, False, True]
    assert words in watch.refusals[0]


def test_gauges_may_go_and_counters_may_come(watch: Watch) -> None:
    first = answer(100, time_to_first_token=None, requests_finished={"stop": 1.0})
    later = answer(200, requests_running=None, kv_cache_usage_ratio=None, requests_finished={"stop": 2.0, "abort": 1.0})
    assert watch.takes(first, later) == [True, True]


def _drafts(shown: Snapshot) -> float:
    return shown.engines[0].drafts or 0.0


@given(
    runs=st.lists(st.lists(st.integers(0, 50), min_size=1, max_size=8), min_size=1, max_size=5),
    old=st.sets(st.integers(0, 40)),
)
def test_whatever_is_old_prometheus_never_counts_more_than_happened(runs: list[list[int]], old: set[int]) -> None:
    """Each run is a process that tells its start; before some answers, an older one of any process comes again.

    One at half or less could be a restart; no others are old here.
    """
    watch, sent, taken = Watch(), list[Snapshot](), list[EngineSnapshot]()
    for increases in runs:
        steps, started = 0, watch.clock.wall() + 1
        for increase in increases:
            steps += increase
            fresh = answer(steps, started)
            again = sent[len(sent) // 2] if sent and len(sent) in old else fresh
            for shown in (again, fresh) if 2 * _drafts(again) > _drafts(sent[-1] if sent else fresh) else (fresh,):
                taken += shown.engines if watch.takes(shown) == [True] else ()
            sent.append(fresh)
    drafts: list[float] = [each.drafts or 0.0 for each in taken]
    assert sum(now - before if now >= before else now for before, now in pairwise(drafts)) <= sum(map(sum, runs))
