"""The bench of ``compare`` simulates what it says: known cases, the laws of queues, and the same again from a seed."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Collection

import pytest

from bench import compare_quality
from bench.compare_counters import POLL_SECONDS, recorded
from bench.compare_server import Server
from bench.compare_traffic import Traffic
from bench.compare_trials import Case, Outcome, Trial, run_cases, run_trial
from bench.rows import Row
from builders import known
from specdec_exporter.baseline.file import Baseline
from specdec_exporter.speculation.acceptance import ratio

ALIKE = {"prompt_sigma": 0.0, "answer_sigma": 0.0}


def record(side: Server, *, seconds: float = 600.0, seed: int = 1) -> Baseline:
    return recorded("side", side.polls(random.Random(seed), seconds), k=side.k)


def test_a_request_alone_on_a_server_takes_prefill_and_its_steps() -> None:
    traffic = Traffic(clients=1, prompt_tokens=1000, answer_tokens=100, **ALIKE)
    server = Server(traffic=traffic, base_seconds=0.02, request_seconds=0.001, prompt_token_seconds=0.0001)

    found = record(server)

    assert known(found.time_to_first_token_seconds).mean == pytest.approx(0.02 + 0.1)
    assert known(found.time_per_output_token_seconds).mean == pytest.approx(0.021)
    assert known(found.request_latency_seconds).mean == pytest.approx(0.12 + 99 * 0.021)
    assert known(found.requests_finished) == pytest.approx(600 / (0.12 + 99 * 0.021), abs=1)


@pytest.mark.parametrize("rate", [2.0, 6.0])
def test_little_s_law_holds(rate: float) -> None:
    """Requests in decode at a time are their rate times how long each decodes."""
    found = record(Server(traffic=Traffic(per_second=rate)), seconds=600.0)

    latency, first = known(found.request_latency_seconds), known(found.time_to_first_token_seconds)
    decoding = known(ratio(found.counts.step_seconds, found.duration_seconds))

    assert latency.count == pytest.approx(600 * rate, rel=0.08)
    assert decoding == pytest.approx(latency.count / 600 * (latency.mean - first.mean), rel=0.03)


@pytest.mark.parametrize("speedup", [1.1, 1.8])
def test_drafts_have_the_speedup_that_is_asked_for(speedup: float) -> None:
    """At a fixed number of clients, and without prefill, load is alike."""
    plain = Server(traffic=Traffic(clients=32, answer_tokens=200.0, answer_sigma=0.3), prompt_token_seconds=0.0)
    drafting = dataclasses.replace(plain, k=2, tokens_per_step=speedup)

    before, after = (record(side, seconds=300.0) for side in (plain, drafting))
    means = [known(side.time_per_output_token_seconds).mean for side in (before, after)]
    counts = after.counts

    assert means[0] / means[1] == pytest.approx(speedup, rel=0.03)
    assert 1 + known(ratio(counts.accepted_tokens, counts.drafts)) == pytest.approx(speedup, rel=0.05)


def test_a_recording_has_one_poll_every_few_seconds_and_every_request_of_its_span() -> None:
    server = Server(traffic=Traffic(per_second=2.0))

    polls = list(server.polls(random.Random(3), 60.0))

    assert [at for at, _ in polls] == [POLL_SECONDS * number for number in range(13)]
    found = recorded("side", polls, k=0)
    assert found.duration_seconds == 60.0
    assert sum(block.seconds for block in found.blocks) == 60.0
    assert sum(known(block.request_latency_seconds).count for block in found.blocks) == found.requests_finished
    assert known(found.generation_length).count == found.requests_finished


def test_the_same_seed_gives_the_same_trials_in_any_number_of_processes() -> None:
    side = Server(traffic=Traffic(per_second=3.0))
    case = Case(what="same", baseline=side, candidate=side, trials=2, minutes=2)

    one, again = (run_cases([case], seed=5, processes=processes)[0].trials for processes in (1, 2))

    assert list(one) == list(again)
    assert one[0] != one[1]
    assert run_trial(case, 6, 0) != one[0]


def test_a_clear_difference_is_counted_as_found_and_one_setting_is_not() -> None:
    plain = Server(traffic=Traffic(clients=8, prompt_tokens=50.0))
    drafting = dataclasses.replace(plain, k=2, tokens_per_step=2.0)
    cases = [
        Case(what="same", baseline=plain, candidate=plain, trials=2, minutes=4),
        Case(what="twice as fast", baseline=plain, candidate=drafting, trials=2, minutes=4),
    ]

    same, faster = run_cases(cases, seed=1, processes=1)

    assert same.case.identical
    assert not faster.case.identical
    assert faster.decided("faster") == 2
    assert same.decided("faster") == 0


ALL_CASES = [*compare_quality._same(), *compare_quality._different(), *compare_quality._unlike()]


def rows(code: str, *, flags: Collection[str] = (), says_off: bool = False) -> list[Row]:
    """What must hold, if ``compare`` always said the same."""
    said = Trial(code, frozenset(flags), (None,) * 3, says_off)
    return list(compare_quality._must_show([Outcome(case, [said] * 20) for case in ALL_CASES]))


def test_a_budget_is_missed_by_a_comparison_that_always_finds_something() -> None:
    missed = [row.what for row in rows("slower", says_off=True) if not row.holds]

    assert len(missed) == len(rows("slower")) == 12


def test_a_flag_excuses_unlike_traffic_and_nothing_else() -> None:
    missed = [row.what for row in rows("faster", flags={"load_differs"}) if not row.holds]

    assert missed == [f"{rate}/s twice" for rate in compare_quality.RATES]


def test_a_comparison_that_never_decides_misses_the_speedups_only() -> None:
    missed = [row.what for row in rows("inconclusive") if not row.holds]

    assert missed == list(compare_quality.SPEEDUPS)
