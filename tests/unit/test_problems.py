"""What one exporter sees itself that makes figures, or their comparison, hard to believe; load beside the file's."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from specdec_exporter.baseline.file import Baseline, as_utc
from specdec_exporter.baseline.pinned import NOT_SEEN, PinnedBaseline, fit
from specdec_exporter.baseline.writing import write_baseline
from specdec_exporter.config import PredictorSettings
from specdec_exporter.predictor.metrics.snapshot import EngineSnapshot, Snapshot
from specdec_exporter.serving.predictorruntime import PredictorRuntime
from specdec_exporter.speculation.acceptance import Counts
from specdec_exporter.state.benefits import load_ratio_of
from specdec_exporter.state.observing import observe_event, observe_failure, observe_snapshot, observe_version
from specdec_exporter.state.problems import Problem, problems_of
from specdec_exporter.state.record import PredictorState
from specdec_exporter.state.report import status_of
from specdec_exporter.state.traffic import TrafficWindow
from specdec_exporter.state.view import said_of
from support.builders import Clock, arguments, config, engine, exposed, known, latency, snapshot

NOW = 1_790_000_000.0
HOUR = 3600.0


def recording(**changes: Any) -> Baseline:
    """An hour of a request every 10 s, each of 20 ms, with prompts of 8 tokens."""
    usual = Baseline(
        name="base",
        recorded_at=as_utc(datetime.fromtimestamp(NOW, UTC)),
        duration_seconds=HOUR,
        vllm_version="0.32.0",
        method="eagle3",
        model_name="tiny",
        request_latency_seconds=latency(360, mean=0.02),
        counts=Counts(prompt_tokens=2880.0, first_tokens=360.0),
    )
    return msgspec.structs.replace(usual, **changes)


@pytest.fixture
def pin(tmp_path: Path) -> Any:
    def pinned(**changes: Any) -> PinnedBaseline:
        path = tmp_path / f"{len(list(tmp_path.iterdir()))}.yaml"
        write_baseline(str(path), recording(**changes))
        return PinnedBaseline(str(path))

    return pinned


def pin_to(state: PredictorState, pinned: PinnedBaseline | None, now: float = NOW) -> None:
    state.pinned, state.wall_clock = pinned, lambda: now
    state.fit = fit(pinned.baseline, snapshot(engine()), None) if pinned else NOT_SEEN


def seen(state: PredictorState, pinned: PinnedBaseline | None = None, now: float = NOW) -> list[Problem]:
    pin_to(state, pinned, now)
    return list(problems_of(state))


# --- positions ---


def drafted(accepted: float, positions: tuple[float, ...], drafts: float = 1000.0) -> Snapshot:
    return snapshot(msgspec.structs.replace(engine(drafts, positions), accepted_tokens=accepted))


def test_positions_that_do_not_add_up_to_all_accepted_tokens(state: PredictorState, clock: Clock) -> None:
    observe_snapshot(state, drafted(0.0, (0.0, 0.0, 0.0), 0.0))
    clock.advance(60)
    observe_snapshot(state, drafted(1000.0, (500.0, 300.0, 181.0)))
    assert seen(state) == []
    clock.advance(60)
    observe_snapshot(state, drafted(2000.0, (1000.0, 600.0, 350.0), 2000.0))
    assert seen(state) == ["positions_differ"]
    observe_event(state, arguments(method="eagle3", enable_adaptive_verification=True))
    assert seen(state) == []


@pytest.mark.parametrize("drafts", [999.0, None])
def test_few_drafts_or_releases_without_positions_say_nothing_of_positions(
    state: PredictorState, clock: Clock, drafts: float | None
) -> None:
    for factor in (0.0, 1.0):
        found = engine(factor * (drafts or 5000.0), (900.0 * factor, 0.0, 0.0))
        positions = found.accepted_tokens_per_position if drafts else None
        one = msgspec.structs.replace(found, accepted_tokens=1000.0 * factor, accepted_tokens_per_position=positions)
        observe_snapshot(state, snapshot(one))
        clock.advance(60)
    assert seen(state) == []


# --- engines ---


def both(steps: float, *, names: tuple[str, ...] = ("0", "1"), model: str = "tiny") -> Snapshot:
    return snapshot(*(engine(steps, name=name, model=model) for name in names))


def working(state: PredictorState, clock: Clock) -> None:
    """Two engines that draft."""
    for steps in (0.0, 100.0):
        observe_snapshot(state, both(steps))
        clock.advance(15)


def test_an_engine_that_worked_and_left(state: PredictorState, clock: Clock) -> None:
    working(state, clock)
    observe_snapshot(state, both(100.0, names=("0",)))
    assert seen(state) == ["engine_left"]
    observe_failure(state, "timeout")  # nothing can be read
    assert seen(state) == []
    clock.advance(6 * HOUR - 60)
    observe_snapshot(state, both(100.0, names=("0",)))
    assert seen(state) == ["engine_left"]
    clock.advance(120)
    assert seen(state) == []


def test_an_engine_that_comes_back_or_never_worked_has_not_left(state: PredictorState, clock: Clock) -> None:
    working(state, clock)
    observe_snapshot(state, both(100.0, names=("0", "2")))
    clock.advance(15)
    observe_snapshot(state, both(100.0))  # 2 is gone, and 1 is back
    assert seen(state) == []


def test_a_model_that_leaves_an_engine_is_no_engine_that_left(state: PredictorState, clock: Clock) -> None:
    for steps in (0.0, 100.0):
        observe_snapshot(state, snapshot(engine(steps), engine(steps, model="adapter")))
        clock.advance(15)
    observe_snapshot(state, snapshot(engine(100.0)))
    assert seen(state) == []


def test_engines_of_a_process_before_are_not_missed(state: PredictorState, clock: Clock) -> None:
    working(state, clock)
    observe_failure(state, "cannot connect", lost=True)
    clock.advance(60)
    observe_snapshot(state, both(0.0, names=("0",)))
    assert (seen(state), state.restarts) == ([], 1)


def test_processes_that_answer_in_turn(state: PredictorState, clock: Clock) -> None:
    starts = (clock.wall() - 5000, clock.wall() - 4000)
    for turn in range(6):
        one = both(100.0 * turn, names=("0", "1") if turn % 2 else ("0",))
        observe_snapshot(state, msgspec.structs.replace(one, process_start_time_seconds=starts[turn % 2]))
        clock.advance(15)
    assert seen(state) == ["several_processes"]  # and no engine left: the other process has it
    clock.advance(700)
    observe_snapshot(state, msgspec.structs.replace(both(900.0), process_start_time_seconds=starts[1]))
    assert seen(state) == []


# --- the baseline ---


def test_an_old_baseline(state: PredictorState, pin: Any) -> None:
    day = 86400.0
    assert seen(state, pin(), NOW + 60 * day) == []
    assert seen(state, pin(), NOW + 60 * day + 1) == ["baseline_old"]
    refused = pin(model_name="large")
    assert seen(state, refused, NOW + 90 * day) == []  # nothing is compared with it


def test_a_baseline_of_another_release_or_method(state: PredictorState, pin: Any) -> None:
    assert seen(state, pin()) == []  # nothing is known of what runs
    observe_event(state, config(method="eagle3"))
    assert seen(state, pin()) == []
    observe_failure(state, "timeout")
    observe_version(state, None)
    assert seen(state, pin()) == []
    observe_event(state, config(method="ngram", vllm_version="0.33.0"))
    assert seen(state, pin()) == ["baseline_other_release", "baseline_other_method"]
    assert seen(state, pin(vllm_version=None, method=None)) == []
    observe_event(state, config(method="deepseek_mtp"))
    assert seen(state, pin(method="mtp")) == []


def prompts(count: float, tokens: float) -> Snapshot:
    return snapshot(msgspec.structs.replace(engine(requests=count), prompt_tokens=tokens))


@pytest.mark.parametrize(("count", "length", "longer"), [(200, 12.1, True), (200, 12.0, False), (199, 90.0, False)])
def test_prompts_longer_than_those_of_the_recording(pin: Any, count: int, length: float, longer: bool) -> None:
    clock, expected = Clock(), ["prompts_longer"] if longer else []
    state = PredictorState("svc", clock=clock.monotonic, wall_clock=clock.wall)
    observe_snapshot(state, prompts(1000, 99_000))
    clock.advance(60)
    observe_snapshot(state, prompts(1000 + count, 99_000 + count * length))
    assert seen(state, pin()) == expected
    observe_failure(state, "timeout")
    assert seen(state, pin()) == expected
    clock.advance(1800)
    assert seen(state, pin()) == []


# --- load ---


def served(requests: float, seconds: float) -> EngineSnapshot:
    return msgspec.structs.replace(engine(requests=requests), request_latency=latency(requests, seconds))


def ratio(state: PredictorState, pinned: PinnedBaseline) -> float | None:
    pin_to(state, pinned)
    return load_ratio_of(state)


def test_the_load_is_that_of_the_rate_or_of_requests_in_flight_if_that_is_less(
    state: PredictorState, clock: Clock, pin: Any
) -> None:
    for minute in range(11):
        assert ratio(state, pin()) is None
        observe_snapshot(state, snapshot(served(12.0 * minute, 0.02)))
        clock.advance(60)
    assert ratio(state, pin()) == pytest.approx(2.0)
    assert ratio(state, pin(request_latency_seconds=latency(360, mean=0.04))) == pytest.approx(1.0)
    assert ratio(state, pin(request_latency_seconds=latency(360, mean=0.01))) == pytest.approx(2.0)
    assert ratio(state, pin(request_latency_seconds=None, time_to_first_token_seconds=latency(360))) is None
    observe_failure(state, "timeout")
    assert ratio(state, pin()) is None
    without = msgspec.structs.replace(served(132.0, 0.02), request_latency=None)
    observe_snapshot(state, snapshot(without))
    assert ratio(state, pin()) is None  # it is not known, and no load of 0


def test_the_load_is_of_all_engines_and_of_one_model(state: PredictorState, clock: Clock, pin: Any) -> None:
    for minute in range(11):
        one = served(6.0 * minute, 0.02)
        others = [msgspec.structs.replace(one, engine="1"), msgspec.structs.replace(one, model_name="other")]
        observe_snapshot(state, snapshot(one, *others))
        clock.advance(60)
    assert ratio(state, pin()) == pytest.approx(2.0)


@given(st.lists(st.tuples(st.floats(1.0, 3000.0), st.integers(0, 50)), min_size=2, max_size=80))
def test_a_window_holds_what_was_counted_within_it_and_few_samples(steps: list[tuple[float, int]]) -> None:
    window, now, total = TrafficWindow(1800.0), 0.0, 0
    window.spacing = 30.0
    samples = [(now, total)]
    window.sample(now)
    before = served(0, 0.02)
    for seconds, requests in steps:
        now, total = now + seconds, total + requests
        engine_now = served(float(total), 0.02)
        window.count(before, engine_now)
        window.sample(now)
        before = engine_now
        samples.append((now, total))
        if (found := window.lately(now)) is not None:
            assert found.seconds <= 1.5 * 1800
            (then,) = {count for at, count in samples if at == pytest.approx(now - found.seconds)}
            assert found.requests == pytest.approx(total - then)
    assert len(window._samples) <= 63


# --- served ---


async def test_problems_and_load_are_served_and_gone_with_their_cause(tmp_path: Path) -> None:
    path = tmp_path / "base.yaml"
    write_baseline(str(path), recording(recorded_at="2020-01-01T00:00:00Z"))

    def prepare(predictor: PredictorRuntime) -> None:
        predictor.observe(snapshot(engine()))

    settings = PredictorSettings(name="svc", baseline=str(path))
    text = "".join(await exposed(settings, prepare))
    assert 'specdec_data_problem{inference_service="svc",reason="baseline_old"} 1.0\n' in text
    assert "specdec_baseline_load_ratio" not in text
    assert "specdec_data_problem{" not in "".join(await exposed(PredictorSettings(name="svc"), prepare))


def test_the_verdict_that_is_served_is_that_of_the_page(state: PredictorState, clock: Clock) -> None:
    for steps in (0, 1000, 1010, 5000):
        observe_snapshot(state, snapshot(engine(steps, (0.8 * steps, 0.7 * steps, 0.6 * steps), requests=steps / 10)))
        assert said_of(state).shown.code == status_of(state).verdict.code
        clock.advance(200)
    observe_failure(state, "timeout")
    assert said_of(state).shown.code == status_of(state).verdict.code == "no_metrics"
    assert known(status_of(state).verdict).code == "no_metrics"
