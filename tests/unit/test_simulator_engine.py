"""The simulated engine counts as vLLM counts, and runs the same however its time is sliced."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from specdec_exporter.errors import ConfigError
from specdec_exporter.simulator.curve import geometric_rates, position_rates
from specdec_exporter.simulator.engine import Engine, SpecStats, Started
from specdec_exporter.simulator.exposition import render_metrics
from specdec_exporter.simulator.log import log_lines
from specdec_exporter.simulator.scenario import parse_incident
from specdec_exporter.simulator.settings import LatencyModel, SimulatorSettings
from specdec_exporter.simulator.totals import Totals


def engine(seconds: float = 0, *incidents: str, **settings: Any) -> Engine:
    made = Engine(SimulatorSettings(**settings, incidents=tuple(map(parse_incident, incidents))))
    made.advance(seconds)
    return made


def totals(of: Engine) -> Totals:
    return of.ranks[0].totals


def acceptance_between(run: Engine, start: float, end: float) -> float:
    run.advance_to(start)
    before = totals(run).accepted_tokens, totals(run).draft_tokens
    run.advance_to(end)
    return (totals(run).accepted_tokens - before[0]) / (totals(run).draft_tokens - before[1])


curves = st.lists(st.floats(0, 1), min_size=1, max_size=6).map(lambda rates: tuple(sorted(rates, reverse=True)))


def with_k(found: dict[str, Any]) -> dict[str, Any]:
    return {**found, "k": len(found["acceptance"])}


any_settings = st.fixed_dictionaries(
    {
        "acceptance": curves,
        "seed": st.integers(0, 1000),
        "load": st.sampled_from(["0", "2/s", "6/s", 1, 5, 40]),
        "short_draft_share": st.sampled_from([0.0, 0.4, 1.0]),
        "no_draft_share": st.sampled_from([0.0, 0.3, 1.0]),
        "output_tokens": st.integers(1, 60),
        "max_num_seqs": st.sampled_from([1, 4, 64]),
        "engines": st.sampled_from([1, 3]),
        "vllm_version": st.sampled_from(["0.11.0", "0.11.2", "0.32.0"]),
    }
).map(with_k)


@given(any_settings)
@hypothesis_settings(max_examples=40, deadline=None)
def test_counters_add_up(settings: dict[str, Any]) -> None:
    run = engine(25, **settings)
    windows = [record for record in run.take_records() if isinstance(record, SpecStats)]
    for rank in run.ranks:
        counted = rank.totals
        assert sum(counted.accepted_per_position) == counted.accepted_tokens
        assert counted.accepted_per_position == sorted(counted.accepted_per_position, reverse=True)
        assert counted.drafts <= counted.draft_tokens <= counted.drafts * settings["k"]
        assert counted.accepted_tokens <= counted.draft_tokens
        if settings["short_draft_share"] == 0 and settings["vllm_version"] != "0.11.2":
            assert counted.draft_tokens == counted.drafts * settings["k"]
        # one inter-token sample per request-step, each with at most one draft
        assert counted.drafts <= counted.inter_token.count
        # every token after the first came out of a step; accepted ones past the end were not returned
        started = counted.time_to_first_token.count
        steps = counted.inter_token.count
        assert steps <= counted.generation_tokens - started <= steps + counted.accepted_tokens
        finished = sum(counted.finished.values())
        for histogram in (counted.request_latency, counted.request_tpot, counted.request_decode):
            assert histogram.count == finished
        assert finished <= started
        assert rank.running <= settings["max_num_seqs"]
        logged = [*(window for window in windows if window.engine == rank.index), rank.window]
        for name in ("drafts", "draft_tokens", "accepted_tokens"):
            assert sum(getattr(window, name) for window in logged) == getattr(counted, name)


@given(any_settings, st.lists(st.floats(0, 7), max_size=8))
@hypothesis_settings(max_examples=12, deadline=None)
def test_slicing_time_changes_nothing(settings: dict[str, Any], slices: list[float]) -> None:
    incidents = ("drift at=1 for=5 acceptance=0.1", "load at=3 load=9", "restart at=6 for=1", "latency at=2 factor=2")
    whole, sliced = engine(12, *incidents, **settings), engine(0, *incidents, **settings)
    for seconds in slices:
        sliced.advance_to(min(12, sliced.now + seconds))
    sliced.advance_to(12)
    assert render_metrics(sliced) == render_metrics(whole)
    assert log_lines(sliced) == log_lines(whole)


@given(curves.filter(lambda rates: rates[0] > 0), st.integers(0, 100))
@hypothesis_settings(max_examples=8, deadline=None)
def test_positions_accept_at_their_rates(rates: tuple[float, ...], seed: int) -> None:
    counted = totals(engine(30, acceptance=rates, k=len(rates), seed=seed, load=16))
    for rate, accepted in zip(rates, counted.accepted_per_position, strict=True):
        five_sigma = 5 * math.sqrt(max(rate * (1 - rate), 1e-9) / counted.drafts)
        assert accepted / counted.drafts == pytest.approx(rate, abs=five_sigma + 1e-3)


@given(st.floats(0, 1), st.integers(1, 10))
def test_a_geometric_curve_has_the_rate_asked_for(rate: float, k: int) -> None:
    curve = geometric_rates(rate, k)
    assert sum(curve) / k == pytest.approx(rate, abs=1e-9)
    assert list(curve) == sorted(curve, reverse=True)


@pytest.mark.parametrize("bad", [(0.5, 0.6, 0.1), (0.5, 0.4), (1.2, 0.5, 0.1), 1.5, -0.1])
def test_impossible_curves_are_refused(bad: Any) -> None:
    with pytest.raises(ConfigError, match="acceptance"):
        position_rates(bad, 3)


def test_one_request_is_accounted_to_the_token() -> None:
    """k=3, everything accepted: 1 token from prefill, 4 per step, the last step cut at max_tokens but counted."""
    run = engine(load="0", acceptance=1.0, k=3)
    tokens: list[tuple[int, str | None]] = []
    run.submit(prompt_tokens=8, max_tokens=11, on_tokens=lambda count, reason: tokens.append((count, reason)))
    run.advance(60)
    counted = totals(run)
    assert tokens == [(1, None), (4, None), (4, None), (2, "length")]
    assert (counted.drafts, counted.draft_tokens, counted.accepted_tokens) == (3, 9, 9)
    assert counted.generation_tokens == 11
    assert counted.inter_token.count == 3
    assert counted.request_decode.sum == pytest.approx(counted.inter_token.sum)
    assert counted.request_tpot.sum == pytest.approx(counted.request_decode.sum / 10)
    assert (counted.finished["length"], sum(counted.finished.values())) == (1, 1)


def test_0_11_2_cuts_a_draft_at_max_tokens() -> None:
    run = engine(load="0", acceptance=1.0, k=3, vllm_version="0.11.2")
    run.submit(prompt_tokens=8, max_tokens=11)
    run.advance(60)
    assert totals(run).draft_tokens == 7  # 3 + 3 + 1: the last of the 11 tokens is the bonus


def test_a_request_that_goes_away_finishes_nowhere_and_stays_counted() -> None:
    run = engine(load="0")
    request = run.submit(prompt_tokens=8, max_tokens=1000)
    run.advance(1)
    run.abort(request)
    drafts = totals(run).drafts
    run.advance(60)
    assert totals(run).drafts == drafts > 0
    assert sum(totals(run).finished.values()) == 0
    assert totals(run).request_latency.count == 0
    assert run.ranks[0].running == 0


def test_requests_beyond_the_limit_wait_and_their_wait_is_in_ttft() -> None:
    run = engine(load="0", max_num_seqs=1)
    for _ in range(3):
        run.submit(prompt_tokens=8, max_tokens=50)
    assert (run.ranks[0].running, run.ranks[0].waiting) == (1, 2)
    run.advance(60)
    counted = totals(run)
    assert counted.finished["length"] == 3
    assert counted.time_to_first_token.sum > counted.request_decode.sum
    assert counted.request_latency.sum == pytest.approx(counted.time_to_first_token.sum + counted.request_decode.sum)


def test_a_closed_loop_keeps_its_concurrency() -> None:
    run = engine(load=7)
    for _ in range(50):
        run.advance(0.37)
        assert run.ranks[0].running + run.ranks[0].waiting == 7


def test_v0_counters_sum_lifetime_totals() -> None:
    run = engine(300, vllm_version="0.9.2", engine_generation="v0", load=3)
    reports = [record for record in run.take_records() if isinstance(record, SpecStats)]
    counted = totals(run)
    assert len(reports) == 60
    assert counted.v0_summed_accepted == sum(report.accepted_tokens for report in reports)
    assert counted.v0_summed_drafted == sum(report.draft_tokens for report in reports)
    assert counted.v0_summed_drafted is not None
    assert counted.v0_summed_drafted > 20 * counted.v0_drafts * 3
    assert counted.v0_acceptance_ratio == reports[-1].accepted_tokens / reports[-1].draft_tokens
    # V0 counts steps and first tokens as generated tokens
    assert counted.v0_generation_steps == counted.inter_token.count + counted.time_to_first_token.count
    assert counted.v0_generation_steps < counted.generation_tokens


# -- incidents ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("incident", "ratios"),
    [
        ("collapse at=60 for=1m acceptance=0.2", {(0, 60): 0.72, (60, 120): 0.2, (120, 180): 0.72}),
        ("drift at=10 for=100 acceptance=0.2", {(50, 70): (0.72 + 0.2) / 2, (120, 150): 0.2}),
    ],
)
def test_a_collapse_ends_and_a_drift_moves_linearly_and_stays(
    incident: str, ratios: dict[tuple[float, float], float]
) -> None:
    run = engine(0, incident, load=16)
    for (start, end), ratio in ratios.items():
        assert acceptance_between(run, start, end) == pytest.approx(ratio, abs=0.03)


def test_a_position_cliff_spares_the_positions_before_it() -> None:
    counted = totals(engine(60, "position_cliff at=0 position=1 factor=0.1", load=16, acceptance=(0.9, 0.8, 0.7)))
    rates = [accepted / counted.drafts for accepted in counted.accepted_per_position]
    assert rates == pytest.approx([0.9, 0.08, 0.07], abs=0.02)


def test_stopped_drafting_freezes_the_counters_and_not_the_tokens() -> None:
    run = engine(30, "stop_drafting at=30 for=30")
    drafts, tokens = totals(run).drafts, totals(run).generation_tokens
    run.advance_to(60)
    assert totals(run).drafts - drafts <= 64  # the step under way drafted already
    assert totals(run).generation_tokens > tokens + 1000
    run.advance_to(70)
    assert totals(run).drafts > drafts + 500


def test_a_latency_regression_slows_steps_and_not_acceptance() -> None:
    def mean_tpot(run: Engine) -> float:
        return totals(run).request_tpot.sum / totals(run).request_tpot.count

    slow, normal = engine(200, "latency at=0 factor=1.5"), engine(200)
    assert mean_tpot(slow) / mean_tpot(normal) == pytest.approx(1.5, rel=0.1)
    assert acceptance_between(slow, 200, 300) == pytest.approx(0.72, abs=0.02)


def test_a_tail_regression_slows_a_share_of_the_requests() -> None:
    quiet = LatencyModel(tail_share=0.0)
    slow = engine(300, "latency at=0 tail_share=0.1 tail_factor=10", latency=quiet, load=16)
    normal = engine(300, latency=quiet, load=16)

    def share_above(run: Engine, seconds: float) -> float:
        found = totals(run).request_tpot.histogram
        return 1 - found.counts[found.bounds.index(seconds)] / found.count

    assert share_above(normal, 0.05) < 0.01
    assert share_above(slow, 0.05) == pytest.approx(0.1, abs=0.05)


def test_a_restart_loses_requests_and_counts_from_zero() -> None:
    run = engine(0, "restart at=30 for=3", load="0")
    outcome: list[str | None] = []
    run.advance_to(29.5)
    run.submit(prompt_tokens=8, max_tokens=5000, on_tokens=lambda _, reason: outcome.append(reason))
    run.advance_to(31)
    assert run.serving is False
    assert outcome[-1] == "restart"
    run.advance_to(33)
    assert totals(run).drafts == 0
    assert [record.at for record in run.take_records() if isinstance(record, Started)] == [0, 33]
    assert b"process_start_time_seconds 1790000033.0" in render_metrics(run)


def test_every_process_says_that_it_began_earlier_by_its_uptime() -> None:
    assert b"process_start_time_seconds 1789999400.0" in render_metrics(engine(0, uptime_seconds=600.0))
    ran = render_metrics(engine(40, "restart at=28 for=2", uptime_seconds=600.0))
    assert b"process_start_time_seconds 1789999430.0" in ran


def test_speed_is_taken_out_of_the_start_time_that_a_scraper_sees() -> None:
    ran = render_metrics(engine(40, "restart at=28 for=2", speed=10.0))
    assert b"process_start_time_seconds 1790000003.0" in ran
    assert ran != render_metrics(engine(40, "restart at=28 for=2", speed=10.0, seed=2))


def test_a_load_change_changes_the_load() -> None:
    run = engine(100, "load at=100 for=100 load=20/s", load="2/s")

    def arrivals(until: float) -> int:
        before = totals(run).time_to_first_token.count
        run.advance_to(until)
        return totals(run).time_to_first_token.count - before

    assert arrivals(200) == pytest.approx(2000, rel=0.15)
    assert arrivals(300) == pytest.approx(200, rel=0.35)


def test_speculation_switched_off_neither_drafts_nor_reports() -> None:
    run = engine(60, method=None)
    assert totals(run).drafts == 0
    assert totals(run).generation_tokens > 0
    assert not any(isinstance(record, SpecStats) for record in run.take_records())
    assert b"spec_decode" not in render_metrics(run)
    assert b"vllm:spec_decode_num_draft_tokens_total" in render_metrics(engine(60, method=None, vllm_version="0.8.3"))


@pytest.mark.parametrize(("running", "seconds"), [(1, 0.026), (4, 0.026 + 3 * 0.001 + 9 * 0.0005)])
def test_a_step_takes_longer_with_every_draft_token_of_the_batch(running: int, seconds: float) -> None:
    latency = LatencyModel(
        step_seconds=0.02,
        draft_token_seconds=0.002,
        request_seconds=0.001,
        batched_token_seconds=0.0005,
        step_sigma=0.0,
        prefill_seconds=0.001,
        tail_share=0.0,
    )
    run = engine(60, load=running, k=3, output_tokens=2000, output_sigma=0.0, latency=latency)
    steps = totals(run).inter_token

    assert steps.sum / steps.count == pytest.approx(seconds, rel=0.01)
