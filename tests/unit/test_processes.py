"""Which process answered, and what its counts add: what ``web/test_who_answers.py`` leaves open."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from specdec_exporter import bounds
from specdec_exporter.histogram import Histogram
from specdec_exporter.predictor.metrics.processes import Answer, Processes
from specdec_exporter.predictor.metrics.snapshot import EngineSnapshot, Snapshot
from support.builders import Clock, engine, snapshot

STARTED = 1_789_000_000.0  # long before the clock of the tests


def answer(steps: float, start: float | None = STARTED, **changes: object) -> Snapshot:
    whole = engine(steps, (steps * 0.8, steps * 0.6, steps * 0.4), requests=steps / 100)
    return msgspec.structs.replace(
        snapshot(msgspec.structs.replace(whole, **changes)), process_start_time_seconds=start
    )


class Exporter:
    """Takes one answer every 15 s."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.processes = Processes()

    def take(self, raw: Snapshot, seconds: float = 15.0, *, lost: bool = False) -> Answer:
        self.clock.advance(seconds)
        now, wall = self.clock.monotonic(), self.clock.wall()
        return self.processes.take(raw, now, wall, lost=lost)

    def serves(self, *answers: Snapshot) -> list[float | None]:
        return [self.take(each).snapshot.engines[0].drafts for each in answers]

    @property
    def count(self) -> int:
        return self.processes.count(self.clock.monotonic())


@pytest.fixture
def exporter() -> Exporter:
    return Exporter()


@pytest.mark.parametrize("start", [STARTED, None])
def test_a_glitch_leaves_out_that_figure_alone(exporter: Exporter, start: float | None) -> None:
    exporter.take(answer(100, start))
    found = exporter.take(answer(110, start, drafts=1e15))
    assert (found.left_out, found.snapshot.engines[0].drafts, found.snapshot.engines[0].draft_tokens) == (1, None, 330)
    assert exporter.serves(answer(120, start)) == [120]
    assert exporter.count == 1


def test_the_first_answer_may_have_a_glitch_too(exporter: Exporter) -> None:
    assert exporter.take(answer(100, exporter.clock.wall(), drafts=1e15)).left_out == 1
    assert exporter.serves(answer(110, exporter.clock.wall() - 15)) == [110]


def test_buckets_of_another_release_begin_at_zero(exporter: Exporter) -> None:
    exporter.take(answer(100))
    other = Histogram((1.0, math.inf), (5.0, 9.0), 4.0)
    for grown in (0.0, 1.0):
        found = exporter.take(
            answer(1, STARTED - 500, request_latency=Histogram(other.bounds, (5.0 + grown, 9.0 + grown), 4.0))
        )
        assert found.snapshot.engines[0].request_latency == Histogram(other.bounds, (grown, grown), 0.0)


def test_many_processes_and_engines_are_forgotten(exporter: Exporter) -> None:
    for number in range(bounds.PROCESSES + 9):
        exporter.take(answer(100, STARTED + 10 * number), 1.0)
    assert len(exporter.processes._known) == bounds.PROCESSES
    wide = [EngineSnapshot(model_name="m", engine=str(number), drafts=1.0) for number in range(bounds.ENGINES)]
    for number in range(5):
        exporter.take(msgspec.structs.replace(snapshot(*wide), process_start_time_seconds=STARTED + 10 * number))
    assert sum(len(each.last) for each in exporter.processes._known) <= bounds.PROCESSES_ENGINES


def test_names_that_change_with_every_answer_are_forgotten(exporter: Exporter) -> None:
    for number in range(1500):
        raw = answer(100, requests_finished={f"{number} {reason}": 1.0 for reason in range(30)})
        other = EngineSnapshot(model_name=f"m{number}", engine="0", drafts=1.0)
        exporter.take(msgspec.structs.replace(raw, engines=(*raw.engines, other)))
    (process,) = exporter.processes._known
    for kept in (exporter.processes._served, process.last):
        assert len(kept) <= bounds.PROCESSES_ENGINES
        finished = kept["tiny", "0"]["requests_finished"]
        assert isinstance(finished, dict)
        assert len(finished) <= bounds.SERIES


Turns = list[tuple[int, int]]  # which process answers, and what each process counts before


@given(
    turns=st.lists(st.tuples(st.integers(0, 2), st.integers(0, 50)), min_size=2, max_size=30),
    levels=st.lists(st.integers(0, 100_000), min_size=3, max_size=3, unique=True),
)
def test_prometheus_never_counts_more_than_happened(turns: Turns, levels: Sequence[int]) -> None:
    """Processes that began at different times, in any order."""
    exporter, totals, begun = Exporter(), list(levels), list[int](levels)
    served: list[float] = []
    for which, counted in turns:
        totals = [total + counted for total in totals]
        served += [each or 0.0 for each in exporter.serves(answer(totals[which], STARTED + 100 * which))]
    growth = sum(now - before for before, now in pairwise(served))
    assert all(now >= before for before, now in pairwise(served))
    assert growth <= sum(totals) - sum(begun)
