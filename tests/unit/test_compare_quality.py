"""The bench of ``compare`` simulates what it says: known cases, the laws of queues, and the same again from a seed."""

from __future__ import annotations

import dataclasses
import math
import random

import pytest

from bench import compare_quality
from bench.compare_counters import POLL_SECONDS, recorded
from bench.compare_machine import Machine, Server, Trace
from bench.compare_services import services
from bench.compare_traffic import Traffic, tokens_per_step
from bench.compare_trials import Advised, Case, Judged, Trial, run_all, run_trial
from bench.compare_truth import Truth, intervals, speedup, truth_of
from builders import known
from specdec_exporter.baseline.file import Baseline
from specdec_exporter.speculation.acceptance import ratio
from specdec_exporter.speculation.chance import Estimate

ALIKE = {"prompt_sigma": 0.0, "answer_sigma": 0.0}


def record(side: Server, *, seconds: float = 600.0, seed: int = 1) -> Baseline:
    return recorded("side", side.polls(random.Random(seed), seconds), k=side.k)


def test_a_step_takes_the_sum_on_a_line_and_the_larger_part_on_a_roofline() -> None:
    line = Machine(base=0.02, request=0.001, token=0.0001, draft=0.001, draft_request=0.0002)
    sharp, soft = (dataclasses.replace(line, sharpness=sharpness) for sharpness in (math.inf, 4.0))

    memory, arithmetic, drafting = 0.02 + 0.01, 0.0001 * (30 + 100), 2 * (0.001 + 0.002)
    assert line.step(10, 2, 100) == pytest.approx(memory + arithmetic + drafting)
    assert sharp.step(10, 2, 100) == pytest.approx(memory + drafting)
    assert memory + drafting < soft.step(10, 2, 100) < line.step(10, 2, 100)


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


def test_a_recording_has_every_poll_and_every_request_of_its_span() -> None:
    polls = list(Server(traffic=Traffic(per_second=2.0)).polls(random.Random(3), 60.0))

    assert [at for at, _ in polls] == [POLL_SECONDS * number for number in range(13)]
    found = recorded("side", polls, k=0)
    assert found.duration_seconds == 60.0
    assert sum(known(block.request_latency_seconds).count for block in found.blocks) == found.requests_finished


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


def test_services_are_of_every_kind_and_come_again_from_their_seed() -> None:
    drawn = services(1, 3)

    assert len(drawn) == len({each.what for each in drawn}) == 54
    assert sum(each.rough for each in drawn) == 18
    assert drawn == services(1, 3)
    assert drawn[0].server != services(2, 3)[0].server


def test_the_same_seed_gives_the_same_trials_in_any_number_of_processes() -> None:
    side = Server(traffic=Traffic(per_second=3.0))
    case = Case(what="same", baseline=side, candidate=side, trials=2)
    work = [(run_trial, (case, 5, trial)) for trial in range(2)]

    one, again = (run_all(work, processes) for processes in (1, 2))

    assert one == again
    assert one[0] != one[1]
    assert run_trial(case, 6, 0) != one[0]


def rows(code: str, speedup: float, flags: tuple[str, ...] = (), *, says_off: bool = False) -> list[str]:
    """What is missed, if ``compare`` always said the same."""
    said = Estimate(speedup, 0.99 * speedup, 1.01 * speedup)
    trial = Trial(code, frozenset(flags), says_off, said, said, 1.0 / speedup)
    judged = [Judged(service, Truth(1.0 / speedup, 0.01, None), [trial]) for service in services(1, 1)[:2]]
    advised = [Advised("loop", "use", speedup - 1.0)]
    found = (
        *compare_quality.judged_rows(judged),
        *compare_quality.case_rows({case.what: [trial] * 20 for case in compare_quality.all_cases()}),
        *compare_quality.advice_rows(advised),
    )
    return [row.what for row in found if row.holds is False]


def test_every_budget_is_missed_by_a_comparison_that_is_always_wrong() -> None:
    assert {
        "harmful at a gain, long run",
        "1.1x: found",
        "1.3x: found",
        "1.1x, bursts and noise of 8 %: wrong side",
        "300 requests, 1.1x: 0.5/s",
        "one setting twice: a difference",
        "unlike: 4/s against 5/s",
    } <= set(rows("slower", 0.5, says_off=True))
    assert {"healthy at a loss, same minutes", "advice: its loss against the best k"} <= set(rows("faster", 2.0))


def test_a_flag_excuses_unlike_traffic_and_nothing_else() -> None:
    missed = rows("faster", 1.0, flags=("load_differs",))

    assert missed == ["one setting twice: a difference", "twice, bursts and noise of 8 %: a difference"]


def test_a_comparison_that_never_decides_misses_the_gains_only() -> None:
    assert rows("inconclusive", 1.0) == ["1.1x: found", "1.3x: found"]
