"""One predictor over time: windows, restarts, states, the log beside the metrics, V0."""

from __future__ import annotations

import json
import math
from itertools import pairwise

import msgspec
import pytest

from specdec_exporter.predictor.log.events import SpecDecoding
from specdec_exporter.predictor.metrics.exposition import parse_exposition
from specdec_exporter.predictor.metrics.snapshot import EngineSnapshot, Snapshot
from specdec_exporter.state.history import HISTORY_POINTS
from specdec_exporter.state.observing import observe_event, observe_failure, observe_snapshot, observe_version
from specdec_exporter.state.record import PredictorState
from specdec_exporter.state.report import status_of
from specdec_exporter.state.view import engines_of, lifetime_of, log_engines_of, state_name, window_of
from support.builders import CAPTURES, Clock, arguments, config, engine, known, numbers, snapshot


def test_engines_are_summed_before_dividing(state: PredictorState, clock: Clock) -> None:
    observe_snapshot(state, snapshot(engine(name="0"), engine(name="1")))
    clock.advance(60)
    busy, quiet = engine(900, (90.0, 0.0, 0.0), name="0"), engine(100, (100.0, 100.0, 100.0), name="1")
    observe_snapshot(state, snapshot(busy, quiet))
    window = known(window_of(state))
    assert window.acceptance_ratio == pytest.approx(390 / 3000)
    by_engine = {view.engine: view.window for view in engines_of(state)}
    assert by_engine["1"] is not None
    assert by_engine["1"].acceptance_ratio == pytest.approx(1.0)


def drafting(drafts: float, draft_tokens: float, accepted: float, generated: float) -> EngineSnapshot:
    return EngineSnapshot(
        model_name="tiny",
        engine="0",
        drafts=drafts,
        draft_tokens=draft_tokens,
        accepted_tokens=accepted,
        generation_tokens=generated,
    )


NO_SAMPLES = b"""\
# HELP vllm:cache_config_info Information of the LLMEngine CacheConfig
# TYPE vllm:cache_config_info gauge
vllm:cache_config_info{block_size="128",engine="0"} 1.0
"""


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (
            (CAPTURES / "0.9.2-v0-ngram-k5" / "metrics-3-low.txt").read_bytes(),
            (CAPTURES / "0.9.2-v0-ngram-k5" / "metrics-0-before-any-request.txt").read_bytes(),
        ),
        ((CAPTURES / "0.32.0-draft_model-k3" / "metrics-8-p90.txt").read_bytes(), NO_SAMPLES),
    ],
    ids=["v0", "v1"],
)
def test_a_restarted_predictor_without_a_sample_yet_leaves_nothing_stale(
    state: PredictorState, clock: Clock, before: bytes, after: bytes
) -> None:
    observe_snapshot(state, msgspec.structs.replace(parse_exposition(before), process_start_time_seconds=1000.0))
    begun = clock.wall() + 5
    (former,) = engines_of(state)
    assert former.snapshot is not None
    observe_version(state, "0.9.2")
    for _ in range(2):
        clock.advance(15)
        observe_snapshot(state, msgspec.structs.replace(parse_exposition(after), process_start_time_seconds=begun))
        (view,) = engines_of(state)
        assert view.snapshot == EngineSnapshot(model_name=former.model_name, engine=former.engine)
        assert (view.window, view.has_windows) == (None, False)
        status = status_of(state)
        assert (status.up, status.window, status.lifetime, status.requests_running) == (True, None, None, None)
        assert status.state == "speculation_off"  # as of any predictor of which neither log nor metrics show it
        assert (state.restarts, state.version_asked) == (1, False)
    observe_event(state, config())
    assert state_name(state) == "idle"
    clock.advance(15)
    observe_snapshot(state, msgspec.structs.replace(parse_exposition(before), process_start_time_seconds=begun))
    assert state.restarts == 1
    assert status_of(state).requests_running is not None


def started(at: float | None, engine: EngineSnapshot) -> Snapshot:
    return msgspec.structs.replace(snapshot(engine), process_start_time_seconds=at)


def test_a_restart_empties_the_windows_and_counts_anew(state: PredictorState, clock: Clock) -> None:
    observe_snapshot(state, started(1000.0, drafting(100, 300, 60, 160)))
    clock.advance(60)
    observe_snapshot(state, started(1000.0, drafting(200, 600, 120, 320)))
    observe_version(state, "0.32.0")
    clock.advance(60)
    begun = clock.wall() - 30
    observe_snapshot(state, started(begun, drafting(10, 30, 24, 34)))
    assert (state.restarts, state.version_asked, window_of(state)) == (1, False, None)
    assert known(lifetime_of(state)).drafts == 10
    clock.advance(60)
    observe_snapshot(state, started(begun, drafting(15, 45, 30, 51)))
    assert known(window_of(state)).drafts == 5


def test_what_a_v0_engine_counted_is_in_no_window_of_the_v1_engine_after_it(
    state: PredictorState, clock: Clock
) -> None:
    v0 = EngineSnapshot(model_name="tiny", engine="0", draft_tokens=50_000.0, accepted_tokens=49_000.0)
    for factor in (1, 2, 3):
        later = msgspec.structs.replace(v0, draft_tokens=50_000.0 * factor, accepted_tokens=49_000.0 * factor)
        observe_snapshot(state, Snapshot(engines=(later,), engine_generation="v0", stats_present=True))
        clock.advance(15)
    for steps in (100, 200):
        observe_snapshot(state, snapshot(drafting(steps, steps * 3, steps * 1.5, steps * 2.5)))
        clock.advance(15)
    window = known(window_of(state))
    assert (window.drafts, window.acceptance_ratio, window.mean_acceptance_length) == (100, 0.5, 2.5)
    assert state.restarts == 1


def test_metrics_of_two_processes_in_one_answer_do_not_say_that_speculation_is_off(state: PredictorState) -> None:
    text = (CAPTURES / "0.32.0-draft_model-k3" / "metrics-5-p60.txt").read_text(encoding="utf-8")
    lines = [line for line in text.splitlines() if line.startswith("vllm:") and "{" in line]
    twice = [
        line.replace("{", f'{{pod="{pod}",', 1) + digit for line in lines for pod, digit in (("a", ""), ("b", "1"))
    ]
    observe_snapshot(state, parse_exposition("\n".join([*twice, ""]).encode()))
    assert state_name(state) == "stats_disabled"


def test_k_is_known_on_while_nothing_answers_as_the_release_is(state: PredictorState) -> None:
    """Otherwise a dead replica changes what its service seems to run."""
    observe_snapshot(state, snapshot(engine(10, (5.0, 3.0, 1.0), requests=1)))
    observe_failure(state, "cannot connect", lost=True)
    assert state.num_speculative_tokens == 3


def test_states_follow_what_the_predictor_does(state: PredictorState, clock: Clock) -> None:
    def step(later: EngineSnapshot) -> str:
        clock.advance(61)
        observe_snapshot(state, snapshot(later))
        return state_name(state)

    before: str = state_name(state)
    assert before == "unreachable"
    assert step(engine()) == "idle"
    assert step(engine(10, (5.0, 3.0, 1.0), requests=1)) == "drafting"
    assert step(engine(10, (5.0, 3.0, 1.0), requests=1)) == "idle"
    without_drafts = msgspec.structs.replace(engine(10, (5.0, 3.0, 1.0), requests=1), generation_tokens=500.0)
    assert step(msgspec.structs.replace(without_drafts, step_latency=engine(50).step_latency)) == "not_drafting"
    off = EngineSnapshot(model_name="tiny", engine="0", generation_tokens=900.0)
    assert step(off) == "speculation_off"
    observe_snapshot(state, Snapshot(engines=(), engine_generation=None, stats_present=False))
    after: str = state_name(state)
    assert after == "stats_disabled"


def test_without_speculation_the_log_has_no_counters_that_stand_at_zero(state: PredictorState) -> None:
    observe_snapshot(state, snapshot(EngineSnapshot(model_name="tiny", engine="0", generation_tokens=900.0)))
    assert log_engines_of(state) == []
    observe_event(state, config())
    assert [(name, totals.drafts) for name, totals in log_engines_of(state)] == [("0", 0)]
    observe_event(state, config(speculative=False))
    assert log_engines_of(state) == []


WITHOUT_LIST = SpecDecoding(accepted_tokens=9, draft_tokens=15, mean_acceptance_length=2.8, bonus_included=True)


def test_a_line_without_positions_takes_k_from_the_init_line_or_the_metrics(state: PredictorState) -> None:
    nothing_accepted = msgspec.structs.replace(WITHOUT_LIST, accepted_tokens=0, mean_acceptance_length=1.0)
    observe_event(state, nothing_accepted)
    assert state.log.engine("0").drafts == 0  # k is not known, and the length tells no number
    observe_snapshot(state, snapshot(engine(k=3)))
    observe_event(state, nothing_accepted)
    assert state.log.engine("0").drafts == 5
    observe_event(state, config(num_speculative_tokens=5))
    observe_event(state, nothing_accepted)
    assert state.log.engine("0").drafts == 8


def v0(ratio: float | None) -> Snapshot:
    v0_engine = EngineSnapshot(
        model_name="tiny",
        engine="0",
        draft_tokens=3000.0,
        accepted_tokens=900.0,
        lifetime_acceptance_ratio=ratio,
        generation_tokens=100.0,
    )
    return Snapshot(engines=(v0_engine,), engine_generation="v0", stats_present=True)


def test_v0_takes_its_window_from_the_differences_of_the_log(state: PredictorState, clock: Clock) -> None:
    observe_snapshot(state, v0(0.6))
    for accepted, drafted in ((900, 1500), (909, 1530)):
        clock.advance(5)
        observe_event(
            state,
            SpecDecoding(accepted_tokens=accepted, draft_tokens=drafted, cumulative=True, num_speculative_tokens=3),
        )
    observe_snapshot(state, v0(0.6))
    window = known(window_of(state))
    assert (window.source, window.acceptance_ratio, window.drafts) == ("log", 0.3, 10)
    assert window.mean_acceptance_length is None  # V0 counts tokens accepted after a rejected one too


def test_an_init_line_from_before_our_start_does_not_say_that_lifetimes_begin_now(state: PredictorState) -> None:
    observe_event(state, config(engine_generation="v0", historical=True))
    observe_event(
        state, SpecDecoding(accepted_tokens=900, draft_tokens=1500, cumulative=True, num_speculative_tokens=3)
    )
    assert state.log.engine("0").draft_tokens == 0
    assert state.running.method == "draft_model"


def test_short_windows_enter_the_histogram_only_with_enough_drafts(state: PredictorState, clock: Clock) -> None:
    observe_snapshot(state, snapshot(engine()))
    for drafts, positions in ((10, (10.0, 10.0, 10.0)), (110, (60.0, 60.0, 60.0))):
        clock.advance(61)
        observe_snapshot(state, snapshot(engine(drafts, positions)))
    (view,) = engines_of(state)
    assert view.has_windows
    assert (view.track.ratios.count, view.track.ratios.sum) == (1, 0.5)


@pytest.mark.parametrize("every", [5.0, 61.0])
def test_the_history_has_points_from_the_second_reading_on_and_is_an_hour_long_at_most(
    state: PredictorState, clock: Clock, every: float
) -> None:
    for step in range(int(5000 / every)):
        observe_snapshot(state, snapshot(engine(step * 100, (50.0 * step, 0.0, 0.0))))
        if step < 5:
            assert len(status_of(state).history) == step
        clock.advance(every)
    times = [point.timestamp for point in status_of(state).history]
    assert len(times) <= HISTORY_POINTS
    distances = [later - earlier for earlier, later in pairwise(times)]
    assert 3500 <= times[-2] - times[0] <= 3600
    assert max(distances[:-1]) <= 64


@pytest.mark.parametrize("step", [3600.0, -1_790_000_000.0])
def test_the_history_goes_on_when_the_wall_clock_is_set(state: PredictorState, clock: Clock, step: float) -> None:
    for number in range(40):
        clock.ahead += step if number == 20 else 0.0
        observe_snapshot(state, snapshot(engine(number * 100, (50.0 * number, 0.0, 0.0))))
        clock.advance(60)
    times = [point.timestamp for point in status_of(state).history]
    assert times == pytest.approx([clock.wall() - 60 * number for number in range(39, 1, -1)] + [clock.wall()])


def test_the_status_is_json_without_nan(state: PredictorState, clock: Clock) -> None:
    for later in (engine(), engine(100, (0.0, 0.0, 0.0))):
        observe_snapshot(state, snapshot(later))
        clock.advance(60)
    decoded = json.loads(msgspec.json.encode(status_of(state)), parse_constant=pytest.fail)
    assert all(map(math.isfinite, numbers(status_of(state))))
    assert decoded["window"]["conditional"] == [0.0, None, None]


# --- what the line of arguments says ---


def test_lossless_rejection_sampling_is_not_mentioned(state: PredictorState) -> None:
    lossy = ("fly", "synthetic")
    for name, expected in (("standard", None), ("block", None), *zip(lossy, lossy, strict=True), (None, None)):
        observe_event(state, arguments(rejection_sample_method=name))
        assert status_of(state).rejection_sampling == expected


def test_a_server_that_extracts_hidden_states_drafts_nothing(state: PredictorState, clock: Clock) -> None:
    observe_event(state, config(speculative=False, method="extract_hidden_states", num_speculative_tokens=1))
    observe_snapshot(state, snapshot(engine(k=1, positions=(0.0,))))
    clock.advance(60)
    observe_event(
        state, SpecDecoding(accepted_tokens=0, draft_tokens=1000, num_speculative_tokens=1, per_position=(0.0,))
    )
    observe_snapshot(state, snapshot(engine(1000, (0.0,), k=1)))
    status = status_of(state)
    assert (status.state, status.verdict.code) == ("speculation_off", "off")
    assert (status.window, status.lifetime) == (None, None)
    (view,) = engines_of(state)
    assert view.snapshot is not None
    assert (view.snapshot.drafts, view.snapshot.draft_tokens, view.snapshot.accepted_tokens) == (None, None, None)
    assert view.snapshot.generation_tokens


def test_requests_of_one_token_leave_nothing_to_draft(state: PredictorState, clock: Clock) -> None:
    """A prefill server (vllm-project.github.io#279): first tokens alone, and no step of decoding."""
    for requests in (100.0, 1300.0):
        observe_snapshot(state, snapshot(engine(0, requests=requests)))
        clock.advance(60)
    verdict = status_of(state).verdict
    assert (verdict.code, verdict.headline) == ("idle", "Each request gets one token: nothing to draft here")


def test_the_break_even_of_a_predictor_that_cannot_be_read_stays(state: PredictorState, clock: Clock) -> None:
    observe_snapshot(state, snapshot(engine(0)))
    clock.advance(60)
    observe_snapshot(state, snapshot(engine(60_000, (50_000.0, 40_000.0, 30_000.0), requests=90)))
    before = status_of(state).break_even
    assert before.concurrency == pytest.approx(40.0)
    clock.advance(15)
    observe_failure(state, "gone", lost=True)
    assert status_of(state).break_even == before
