"""The bench of ``compare`` simulates what it says: known cases and the laws of queues."""

from __future__ import annotations

import math
import random

import pytest

from bench.compare_counters import recorded
from bench.compare_machine import Machine, Server, Trace
from bench.compare_traffic import Traffic, tokens_per_step
from bench.compare_truth import intervals, speedup, truth_of
from builders import known
from specdec_exporter.baseline.file import Baseline
from specdec_exporter.speculation.acceptance import ratio

ALIKE = {"prompt_sigma": 0.0, "answer_sigma": 0.0}


def record(side: Server, *, seconds: float = 600.0, seed: int = 1) -> Baseline:
    return recorded("side", side.polls(random.Random(seed), seconds), k=side.k)


def test_a_request_alone_on_a_server_takes_prefill_and_its_steps() -> None:
    traffic = Traffic(clients=1, prompt_tokens=3000, answer_tokens=100, **ALIKE)
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
    trace = Trace([], [])
    found = intervals(server.polls(random.Random(4), 600.0, trace))

    assert speedup(server, trace, found) == pytest.approx(1.0, rel=0.01)


def test_drafts_that_cost_nothing_gain_what_is_accepted() -> None:
    """One client without prompts to speak of: the truth is known in closed form."""
    traffic = Traffic(clients=1, prompt_tokens=1, answer_tokens=400, **ALIKE)
    machine = Machine(base=0.02, token=1e-9, draft=0.002)
    truth = truth_of(Server(traffic=traffic, machine=machine, k=2), "seed", 7200.0)

    # Requests differ in acceptance, and slow ones take more steps.
    rng = random.Random(5)
    steps = [1.0 / tokens_per_step(traffic.request(rng, 0.0).acceptance, 2) for _ in range(20_000)]
    expected = len(steps) / math.fsum(steps) * 0.02 / 0.024
    assert truth.speedup == pytest.approx(expected, rel=0.02)
    assert truth.closed_loop == pytest.approx(expected, rel=0.02)
