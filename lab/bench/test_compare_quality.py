"""The bench of ``compare`` simulates what it says: known cases and the laws of queues."""

from __future__ import annotations

import dataclasses
import math
import random

import pytest

from bench.compare_counters import recorded
from bench.compare_machine import Machine, Server, Trace, side_by_side
from bench.compare_traffic import Traffic, tokens_per_step
from bench.compare_trials import Case, live_looks, run_trial
from bench.compare_truth import Run, calm_runs, intervals, overloaded, speedup, truth_of
from specdec_exporter.baseline.file import Baseline
from specdec_exporter.speculation.acceptance import ratio
from support.builders import known

ALIKE = Traffic(prompt_sigma=0.0, answer_sigma=0.0)


def record(side: Server, *, seconds: float = 600.0, seed: int = 1) -> Baseline:
    return recorded("side", side.polls(random.Random(seed), seconds), k=side.k)


def test_a_request_alone_on_a_server_takes_prefill_and_its_steps() -> None:
    traffic = dataclasses.replace(ALIKE, clients=1, prompt_tokens=3000, answer_tokens=100)
    found = record(Server(traffic=traffic, machine=Machine(base=0.02, request=0.001, token=0.0001)))

    # 3,000 tokens take two steps of at most 2,048.
    assert known(found.time_to_first_token_seconds).mean == pytest.approx(2 * 0.02 + 0.3)
    assert known(found.time_per_output_token_seconds).mean == pytest.approx(0.0211)
    assert known(found.request_latency_seconds).mean == pytest.approx(0.34 + 99 * 0.0211)


@pytest.mark.parametrize("burst_seconds", [0.0, 20.0])
def test_little_s_law_holds(burst_seconds: float) -> None:
    """Requests in decode at a time are their rate times how long each decodes; bursts leave the rate as it is."""
    found = record(Server(traffic=Traffic(per_second=4.0, burst_seconds=burst_seconds)), seconds=3600.0)

    latency, first = known(found.request_latency_seconds), known(found.time_to_first_token_seconds)
    decoding = known(ratio(found.counts.step_seconds, found.duration_seconds))

    assert latency.count == pytest.approx(3600 * 4.0, rel=0.08)
    assert decoding == pytest.approx(latency.count / 3600 * (latency.mean - first.mean), rel=0.03)


def test_the_shadow_takes_the_steps_that_the_server_took() -> None:
    server = Server(traffic=Traffic(per_second=3.0, prompt_tokens=3000.0))
    trace = Trace.empty()
    found = intervals(server.polls(random.Random(4), 600.0, trace))

    assert speedup([Run(server, trace, found)]) == pytest.approx(1.0, rel=0.01)


def test_drafts_that_cost_nothing_gain_what_is_accepted() -> None:
    """One client without prompts to speak of: the truth is known in closed form."""
    traffic = dataclasses.replace(ALIKE, clients=1, prompt_tokens=1, answer_tokens=400)
    machine = Machine(base=0.02, token=1e-9, draft=0.002)
    truth = truth_of([Server(traffic=traffic, machine=machine, k=2)], "seed", 7200.0)

    # Requests differ in acceptance, and slow ones take more steps.
    rng = random.Random(5)
    steps = [1.0 / tokens_per_step(traffic.request(rng, 0.0).acceptance, 2) for _ in range(20_000)]
    expected = len(steps) / math.fsum(steps) * 0.02 / 0.024
    assert truth.speedup == pytest.approx(expected, rel=0.02)
    assert truth.same_traffic == pytest.approx(expected, rel=0.02)


def test_the_machines_noise_is_no_speed_up() -> None:
    calm = Server(traffic=Traffic(per_second=3.0), machine=Machine(draft=0.004), k=2)
    rough = dataclasses.replace(calm, wander=0.3, wander_seconds=300.0)
    found = []
    for server in (calm, rough):
        trace = Trace.empty()
        found.append(speedup([Run(server, trace, intervals(server.polls(random.Random(6), 1800.0, trace)))]))

    assert found[1] == pytest.approx(found[0], rel=0.03)


def test_constant_arrivals_come_at_a_fixed_interval() -> None:
    requests = Traffic(per_second=4.0, constant=True).arrivals(random.Random(7), 60.0)
    assert [request.arrival for request in requests] == [n / 4.0 for n in range(1, 241)]


def test_nobody_reads_what_the_prefix_cache_holds() -> None:
    traffic = dataclasses.replace(ALIKE, clients=1, prompt_tokens=3000, answer_tokens=100, cached=0.8)
    found = record(Server(traffic=traffic, machine=Machine(base=0.02, token=0.0001)))

    assert known(found.time_to_first_token_seconds).mean == pytest.approx(0.02 + 600 * 0.0001)
    assert known(found.mean_prompt_tokens) == pytest.approx(3000)


def test_two_engines_are_polled_together_and_their_truths_weighed() -> None:
    machine = Machine(base=0.015, token=0.00016, draft=0.001, draft_request=0.0001)
    busy = Server(traffic=Traffic(per_second=4.0), machine=machine, k=3)
    idle = dataclasses.replace(busy, traffic=Traffic(per_second=1.0))
    for _, snapshot in side_by_side((busy, idle), "seed", 60.0):
        assert [engine.engine for engine in snapshot.engines] == ["0", "1"]
        busiest, least = (known(engine.generation_tokens) for engine in snapshot.engines)
        assert busiest > 2.0 * least

    both, one, other = (truth_of(engines, "seed", 1200.0).speedup for engines in ((busy, idle), (busy,), (idle,)))
    assert one < both < other


def test_a_server_that_cannot_keep_up_has_no_truth_for_the_same_requests() -> None:
    traffic = Traffic(per_second=4.0, prompt_tokens=1000, acceptance=0.3)
    server = Server(traffic=traffic, machine=Machine(draft=0.1), k=3)

    assert not overloaded(calm_runs([server.plain], "seed", 1800.0)[0])
    assert overloaded(calm_runs([server], "seed", 1800.0)[0])
    assert truth_of([server], "seed", 1800.0).same_traffic is None


@pytest.mark.parametrize("constant", [False, True])
def test_the_same_requests_reach_the_plain_server(constant: bool) -> None:
    server = Server(traffic=Traffic(per_second=3.0, constant=constant), k=3)
    plain, drafting = (calm_runs([side], "seed", 600.0)[0] for side in (server.plain, server))
    met, also_met = ([tokens for _, tokens in run.trace.prompts] for run in (plain, drafting))

    assert met[:1000] == also_met[:1000]
    truth = truth_of([server], "seed", 600.0)
    assert known(truth.same_traffic) > truth.speedup > 1.0  # fewer in decode at a time: steps are shorter too


@pytest.mark.parametrize("burst_seconds", [0.0, 45.0])
def test_a_pair_shares_one_stream(burst_seconds: float) -> None:
    side = Server(traffic=Traffic(per_second=2.0, burst_seconds=burst_seconds))
    found = run_trial(Case(what="pair", baseline=(side,), candidate=(side,), trials=1, paired=True), 1, 0)
    assert known(found.like_load).value == pytest.approx(1.0, abs=0.1)


def test_a_running_exporter_says_what_is_plain_to_see() -> None:
    traffic = Traffic(per_second=3.0, acceptance=0.8)
    server = Server(traffic=traffic, k=3)
    plain = record(server.plain, seconds=600.0)
    looks = live_looks(plain, [server], "seed", every=60.0, seconds=300.0)

    assert {look.code for look in looks} == {"healthy"}
    assert len(looks) == 6
    assert known(looks[-1].speedup).value == pytest.approx(truth_of([server], "seed", 3600.0).speedup, rel=0.1)
