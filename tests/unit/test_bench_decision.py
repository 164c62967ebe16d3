"""What ``compare`` decides from results of a benchmark, load by load."""

from __future__ import annotations

import math
import random
from typing import Any

import pytest

from specdec_exporter.speculation.policy import load_policy
from specdec_exporter.terminal.bench import report
from specdec_exporter.terminal.sections import as_markdown
from support.benchruns import codes, compared, detailed, ran, result


def test_the_first_lines_say_what_was_found_at_which_load_and_what_to_do(write: Any) -> None:
    plain = write("plain.json", result(20.0, clients=1), result(30.0, clients=32))
    spec = write("spec.json", result(10.0, clients=1, drafts=True), result(26.0, clients=32, drafts=True))
    code, text = ran(plain, spec)
    head = " ".join(text.split("\n\n")[0].split())
    assert max(map(len, ran(plain, spec, "--verbose")[1].splitlines())) <= 80
    assert code == 2  # short_recording
    assert head.startswith("Faster: decoding is 2.00x (1.")
    assert " as fast at 1 client, 1.15x (1." in head
    assert "at 32 clients. Keep speculation on." in head
    assert max(map(len, text.splitlines())) <= 80


def test_each_load_has_both_speedups_ceiling_and_break_even() -> None:
    (load,) = compared([result(20.0)], [result(10.0, drafts=True, mean_ttft_ms=120.0)]).loads
    assert load.speedup is not None
    assert load.speedup.value == pytest.approx(2.0)
    assert load.tokens_per_second_ratio is not None
    assert load.tokens_per_second_ratio.value == pytest.approx((0.06 + 2.54) / (0.06 + 1.27))
    assert load.tokens_per_second_ratio.low is None  # one run does not tell how its tokens per second scatter
    assert load.ceiling == 2.5
    assert load.reached_ratio == pytest.approx(0.8)
    assert load.break_even_acceptance_length is not None
    assert load.break_even_acceptance_length.value == pytest.approx(1.25)
    assert load.candidate.acceptance_ratio == 0.5  # vLLM writes percent
    assert load.time_to_first_token_ratio == pytest.approx(2.0)


def test_a_load_that_loses_is_a_regression_whatever_others_gain(write: Any) -> None:
    plain = write("plain.json", result(20.0, clients=1), result(30.0, clients=128, duration=200.0))
    slower = result(36.0, clients=128, drafts=True, duration=200.0)
    spec = write("spec.json", result(10.0, clients=1, drafts=True), slower)
    code, text = ran(plain, spec, "--fail-on-regression")
    head = " ".join(text.split())
    assert code == 1
    assert head.startswith("Mixed by load: decoding is slower, 0.83x (")
    assert "; faster, 2.00x (" in head
    assert "Drop speculation at 128 clients; keep it at 1 client." in head
    assert ran(plain, spec)[0] == 2


@pytest.mark.parametrize(
    ("tpot", "outcome"), [(18.0, "faster"), (19.4, "inconclusive"), (20.6, "inconclusive"), (22.5, "slower")]
)
def test_one_run_cannot_tell_five_percent_apart(tpot: float, outcome: str) -> None:
    found = compared([result(20.0, duration=400.0)], [result(tpot, drafts=True, duration=400.0)])
    assert found.loads[0].outcome == found.decision.code == outcome
    assert "short_recording" in codes(found)
    assert found.decision.regression is (outcome == "slower")


def test_an_interval_is_never_narrower_than_two_runs_of_one_setting_differ() -> None:
    calm = [result(each, std_tpot_ms=0.001, duration=600.0) for each in (20.0, 20.001, 20.0, 19.999, 20.0)]
    (load,) = compared(calm, [{**each, **result(10.0, drafts=True, duration=600.0)} for each in calm]).loads
    assert load.speedup is not None
    assert load.speedup.low is not None
    assert load.speedup.value / load.speedup.low >= math.exp(1.95 * load_policy().chance.runs_differ)


def test_repeats_give_medians_and_their_scatter_the_interval() -> None:
    plain = [result(each) for each in (20.0, 20.4, 19.8, 20.1, 60.0)]
    spec = [result(each, drafts=True) for each in (10.0, 10.2, 9.9, 10.1, 10.0)]
    (load,) = compared(plain, spec).loads
    assert (load.baseline.runs, load.candidate.runs) == (5, 5)
    assert load.baseline.time_per_output_token_seconds == pytest.approx(0.0201)
    assert load.speedup is not None
    assert load.speedup.low is None or load.speedup.low < 1.2  # one run of five was far off
    (calm,) = compared(plain[:4], spec[:4]).loads
    assert calm.outcome == "faster"
    assert calm.tokens_per_second_ratio is not None
    assert calm.tokens_per_second_ratio.low is not None
    assert "few runs" not in str(compared(plain, spec).flags)


def test_two_runs_that_differ_widen_the_interval() -> None:
    def width(*baseline: float) -> float:
        found = compared([result(each) for each in baseline], [result(10.0, drafts=True)]).loads[0].speedup
        assert found is not None
        assert found.low is not None
        return found.value / found.low

    assert width(18.0, 22.0) > width(20.0, 20.0) + 0.05


def test_details_give_the_interval_by_batches_of_requests_in_the_order_of_their_start() -> None:
    source = random.Random(1)
    steady = [0.02 * source.lognormvariate(0.0, 0.1) for _ in range(240)]
    drifting = [each * (1.0 + i / 240) for i, each in enumerate(steady)]
    shuffled = source.sample(list(enumerate(drifting)), 240)
    mixed = detailed([each for _, each in shuffled], start_times=[float(i) for i, _ in shuffled])
    widths = []
    for document in (detailed(steady), detailed(drifting), mixed):
        found = compared([document], [detailed([each / 2 for each in steady])]).loads[0].speedup
        assert found is not None
        assert found.low is not None
        widths.append(found.value / found.low)
    assert widths[1] > widths[0] * 1.1
    assert widths[2] == pytest.approx(widths[1])


def test_a_slow_tail_behind_a_faster_mean_is_found_with_details() -> None:
    plain = detailed([0.02] * 400)
    spec = detailed([0.01] * 340 + [0.03] * 60) | {"start_times": [float(i * 7 % 400) for i in range(400)]}
    found = compared([plain], [spec])
    assert found.decision.code == "tail_worse"
    assert found.decision.regression
    assert "15.0% more requests than the baseline explains are slower than 26 ms" in " ".join(found.decision.reasons)
    for harmless in ([0.01] * 400, [0.01] * 340 + [0.024] * 60):  # texts with few accepted drafts gain less
        assert compared([plain], [detailed(harmless)]).decision.code != "tail_worse"


def test_at_a_fixed_rate_tokens_per_second_say_nothing() -> None:
    sides = [[result(tpot, clients=None, request_rate=4.0, drafts=tpot < 20)] for tpot in (20.0, 14.0)]
    found = compared(*sides)
    assert found.loads[0].tokens_per_second_ratio is None
    assert found.decision.headline.endswith("at 4 requests/s")
    assert "| same rate |" not in as_markdown(report(found))


def test_a_ramp_of_request_rates_is_a_load_of_its_own() -> None:
    ramp = {"ramp_up_strategy": "linear", "ramp_up_start_rps": 1, "ramp_up_end_rps": 8, "max_concurrency": None}
    (load,) = compared([result(20.0) | ramp], [result(10.0, drafts=True) | ramp, result(10.0, drafts=True)]).loads
    assert (load.request_rate, load.tokens_per_second_ratio) == (8.0, None)


def test_where_tokens_per_second_contradict_decoding_a_reason_says_so() -> None:
    found = compared([result(20.0)], [result(15.0, drafts=True, output_throughput=300.0, mean_ttft_ms=1500.0)])
    assert found.decision.code == "faster"
    throughput, first_token = found.decision.reasons
    assert "tokens per second are 0.76x" in throughput
    assert "time to first token is 25.00x" in first_token
    assert "prompts_differ" in codes(found)  # vllm#50722: a prefix cache on one side


def test_without_a_limit_all_prompts_are_the_load() -> None:
    (load,) = compared([result(20.0, clients=None)], [result(10.0, clients=None, drafts=True)]).loads
    assert (load.clients, load.request_rate) == (400, None)
