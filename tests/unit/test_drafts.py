"""Which source the served counts of drafts come from, and that nothing counts twice."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specdec_exporter.predictor.log.counters import ReaderCounters
from specdec_exporter.predictor.log.events import SpecDecoding
from specdec_exporter.predictor.metrics.snapshot import EngineSnapshot, Snapshot
from specdec_exporter.speculation.acceptance import Counts
from specdec_exporter.state.observing import observe_event, observe_failure, observe_snapshot
from specdec_exporter.state.record import PredictorState
from specdec_exporter.state.view import drafts_of
from support.builders import Clock, config, engine, snapshot, window

KEY = ("tiny", "0")
LINE = window((4, 3, 2), 5, engine="000")
OF_LINE = Counts(drafts=5, draft_tokens=15, accepted_tokens=9, accepted_per_position=(4, 3, 2))


def old(version: str) -> Snapshot:
    """What the metrics of these releases have of drafts that there were."""
    counts: dict[str, dict[str, Any]] = {
        "0.8.2": {},
        "0.8.4": {"draft_tokens": 900.0, "accepted_tokens": 400.0},
        "v0": {"draft_tokens": 90_000.0, "accepted_tokens": 40_000.0, "lifetime_acceptance_ratio": 0.45},
    }
    one = EngineSnapshot(model_name="tiny", engine="0", generation_tokens=500.0, **counts[version])
    return Snapshot(engines=(one,), engine_generation="v0" if version == "v0" else "v1", stats_present=True)


def four(counts: Counts) -> Counts:
    """The counts of drafts alone."""
    names = ("drafts", "draft_tokens", "accepted_tokens", "accepted_per_position")
    return Counts(**{name: getattr(counts, name) for name in names})


def served(state: PredictorState) -> dict[tuple[str, str], Counts]:
    return {key: four(counts) for key, counts in drafts_of(state).items()}


@pytest.mark.parametrize("version", ["0.8.2", "0.8.4", "v0"])
def test_where_the_metrics_count_no_drafts_all_counts_are_those_of_the_log(state: PredictorState, version: str) -> None:
    observe_snapshot(state, old(version))
    assert served(state) == {}
    observe_event(state, LINE)
    assert served(state) == {KEY: OF_LINE}
    observe_failure(state, "timeout")  # the log can be read all the same
    assert served(state) == {KEY: OF_LINE}


def test_without_a_log_the_metrics_are_served_as_they_are(clock: Clock) -> None:
    state = PredictorState("svc", clock=clock.monotonic, wall_clock=clock.wall)
    observe_snapshot(state, old("v0"))
    assert served(state) == {KEY: Counts(draft_tokens=90_000.0, accepted_tokens=40_000.0)}


def test_metrics_that_count_drafts_are_served_whatever_the_log_says(state: PredictorState) -> None:
    observe_snapshot(state, snapshot(engine(10, (8.0, 6.0, 4.0))))
    observe_event(state, LINE)
    observe_event(state, msgspec.structs.replace(LINE, engine="001"))  # an engine that the metrics do not name
    counted = {KEY: Counts(drafts=10, draft_tokens=30, accepted_tokens=18, accepted_per_position=(8, 6, 4))}
    assert served(state) == counted
    observe_failure(state, "timeout")
    assert served(state) == {}
    without = msgspec.structs.replace(engine(10, (8.0, 6.0, 4.0)), drafts=None)
    observe_snapshot(state, snapshot(without))
    assert served(state)[KEY].drafts is None
    observe_snapshot(state, snapshot(engine(10, (8.0, 6.0, 4.0))))
    assert served(state) == counted


def test_each_engine_has_a_source_of_its_own(state: PredictorState) -> None:
    other = msgspec.structs.replace(engine(name="1"), drafts=None, draft_tokens=None, accepted_tokens=None)
    observe_snapshot(state, snapshot(engine(10, (8.0, 6.0, 4.0)), other))
    for name in ("000", "001"):
        observe_event(state, msgspec.structs.replace(LINE, engine=name))
    assert {key: counts.drafts for key, counts in served(state).items()} == {KEY: 10, ("tiny", "1"): 5}


def test_a_log_alone_is_served_once_a_fetch_has_failed(state: PredictorState) -> None:
    observe_event(state, config())
    observe_event(state, LINE)
    assert served(state) == {}
    observe_failure(state, "cannot connect", lost=True)
    assert served(state) == {KEY: OF_LINE}


def test_a_server_that_is_known_to_speculate_has_zeros_until_the_first_line(state: PredictorState) -> None:
    observe_snapshot(state, old("0.8.4"))
    observe_event(state, config())
    assert served(state) == {KEY: Counts(drafts=0, draft_tokens=0, accepted_tokens=0)}
    observe_event(state, config(speculative=False))
    assert served(state) == {}


def test_lines_that_do_not_tell_drafts_give_none(state: PredictorState) -> None:
    """As those of 0.8.3 and 0.8.4."""
    observe_snapshot(state, old("0.8.4"))
    observe_event(state, SpecDecoding(accepted_tokens=9, draft_tokens=15, acceptance_ratio=0.6))
    assert served(state) == {KEY: Counts(draft_tokens=15, accepted_tokens=9)}


def test_of_several_models_of_an_engine_one_has_its_lines(state: PredictorState) -> None:
    observe_snapshot(state, Snapshot(engines=(), engine_generation="v1", stats_present=True))
    names = [msgspec.structs.replace(old("0.8.4").engines[0], model_name=name) for name in ("adapter", "tiny")]
    observe_snapshot(state, snapshot(*names))
    observe_event(state, LINE)
    assert list(served(state)) == [("adapter", "0")]
    observe_event(state, config())  # names the served model
    assert list(served(state)) == [KEY]


def increase(samples: Sequence[float]) -> float:
    """As PromQL counts: what is below the sample before it began again at 0."""
    return sum(now - before if now >= before else now for before, now in pairwise(samples))


def test_metrics_that_come_late_go_on_where_the_log_was_until_a_restart(state: PredictorState, clock: Clock) -> None:
    observe_event(state, config(historical=True))
    observe_failure(state, "timeout")
    observe_event(state, LINE)
    for steps, expected in ((1000, 5), (1010, 15)):
        observe_snapshot(state, started(900.0, steps))
        assert served(state)[KEY].drafts == expected
        clock.advance(15)
    observe_failure(state, "cannot connect", lost=True)
    observe_snapshot(state, started(clock.wall() - 5, 3))
    assert served(state)[KEY].drafts == 3


def started(at: float, steps: float) -> Snapshot:
    one = snapshot(engine(steps, (steps, 0.0, 0.0)))
    return msgspec.structs.replace(one, process_start_time_seconds=at)


@settings(max_examples=200)
@given(
    steps=st.lists(st.sampled_from(["read", "read", "fail", "line", "glitch", "restart"]), max_size=40),
    before=st.integers(0, 1000),
    k=st.integers(1, 5),
)
def test_no_draft_counts_twice_whatever_fails_and_whoever_counts(steps: list[str], before: int, k: int) -> None:
    """``before``: drafts before the exporter started."""
    clock = Clock()
    state = PredictorState("svc", reader=ReaderCounters(), clock=clock.monotonic, wall_clock=clock.wall)
    observe_event(state, config(historical=True))
    started, total, since_line, drafted = clock.wall() - 500, before, 0, 0
    samples: list[float] = []
    by_metrics = True

    def answer(drafts: float | None) -> Snapshot:
        counted = engine(total, (float(total),) + (0.0,) * (k - 1), k=k)
        one = counted if drafts is not None else msgspec.structs.replace(counted, drafts=None)
        return msgspec.structs.replace(snapshot(one), process_start_time_seconds=started)

    for step in steps:
        clock.advance(10)
        total, since_line, drafted = total + 7, since_line + 7, drafted + 7
        if step == "line":
            observe_event(state, window((since_line,) + (0,) * (k - 1), since_line, engine="000"))
            since_line = 0
            continue
        if step == "restart":
            clock.advance(10)
            started, total, since_line = clock.wall() - 5, 0, 0
            observe_failure(state, "refused", lost=True)
        elif step == "fail":
            observe_failure(state, "timeout")
        else:
            observe_snapshot(state, answer(total if step == "read" else None))
        by_metrics &= step == "read"
        if (counts := served(state).get(KEY)) is not None and counts.drafts is not None:
            samples.append(counts.drafts)
            assert counts.drafts >= 0
            assert not by_metrics or counts.drafts == total  # to the digit
    assert increase(samples) <= drafted
