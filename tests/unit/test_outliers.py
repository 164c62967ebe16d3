"""An engine that accepts far less than the other engines is named: in `check`, on the page, in the API."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from specdec_exporter.predictor.metrics.snapshot import EngineSnapshot
from specdec_exporter.state.observing import observe_snapshot
from specdec_exporter.state.record import PredictorState
from specdec_exporter.state.report import status_of
from support.builders import Clock, engine, snapshot

Curve = tuple[float, ...]
GOOD, BAD, FAIR = (0.9, 0.86, 0.82), (0.02, 0.008, 0.002), (0.75, 0.71, 0.68)


def named(state: PredictorState) -> list[str]:
    return [pitfall.meaning for pitfall in status_of(state).pitfalls if pitfall.code == "engine_outlier"]


def ranks(bad: Mapping[int, Curve], count: int = 8, steps: float = 1000) -> list[EngineSnapshot]:
    return [
        engine(steps, tuple(steps * rate for rate in bad.get(rank, GOOD)), requests=steps / 5, name=str(rank))
        for rank in range(count)
    ]


def test_one_poor_engine_of_eight_is_named(state: PredictorState) -> None:
    observe_snapshot(state, snapshot(*ranks({5: BAD})))
    assert named(state) == ["Engine 5 accepts 1.0% of its draft tokens; 8 engines together 75.4%."]


def test_the_window_is_asked_first_and_the_lifetime_when_it_is_idle(state: PredictorState, clock: Clock) -> None:
    for bad, steps, poor in (({5: BAD}, 1000, 1), ({5: BAD}, 1000, 1), ({5: FAIR}, 20_000, 0)):
        observe_snapshot(state, snapshot(*ranks(bad, steps=steps)))
        assert len(named(state)) == poor
        clock.advance(60)


@pytest.mark.parametrize(
    ("bad", "count", "steps"),
    [
        pytest.param({}, 8, 1000, id="all alike"),
        pytest.param({0: BAD}, 1, 1000, id="no other engine"),
        pytest.param({5: BAD}, 8, 40, id="too few drafts"),
        pytest.param({5: FAIR}, 8, 1000, id="a little less"),
    ],
)
def test_no_other_is_named(state: PredictorState, bad: Mapping[int, Curve], count: int, steps: float) -> None:
    observe_snapshot(state, snapshot(*ranks(bad, count, steps)))
    assert named(state) == []
