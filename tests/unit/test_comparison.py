"""What two recordings say about each other: figures, what is not like for like, and the decision."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Sequence
from typing import Any

import msgspec
import pytest

from builders import known
from recordings import CONTEXT, CURVE, E2E, INF, histogram, loaded, lognormal, recording
from specdec_exporter.baseline.file import Baseline
from specdec_exporter.comparison.compare import Comparison
from specdec_exporter.comparison.compare import compare as compare_by_policy
from specdec_exporter.comparison.latency import LatencyComparison
from specdec_exporter.errors import ComparisonError
from specdec_exporter.speculation.acceptance import Counts
from specdec_exporter.speculation.policy import load_policy

replace = msgspec.structs.replace


def compare(baseline: Baseline, candidate: Baseline) -> Comparison:
    return compare_by_policy(baseline, candidate, load_policy())


def drawn(median: float, requests: int = 1000, seed: int = 1) -> list[float]:
    return lognormal(random.Random(seed), median, requests)


def latency_of(comparison: Comparison, sli: str) -> LatencyComparison:
    (found,) = (latency for latency in comparison.latencies if latency.sli == sli)
    return found


def tpot_of(comparison: Comparison) -> LatencyComparison:
    return latency_of(comparison, "time_per_output_token")


def codes(comparison: Comparison) -> set[str]:
    return {flag.code for flag in comparison.flags}


CODE, CHAT = (0.5, 0.4, 0.33), (0.16, 0.02, 0.01)


def loads(name: str, step_seconds: float, curve: Sequence[float] = ()) -> Baseline:
    """A recording of five minutes at eight requests in decode."""
    return loaded(name, {8.0: step_seconds}, curve, intervals=60)


PLAIN = recording("plain", tpot=drawn(0.0209), blocks=12)
FASTER = recording("faster", tpot=drawn(0.0113, seed=2), curve=CURVE, blocks=12)


# --- Speed-up --------------------------------------------------------------------------------------------------------


def test_published_figures_come_out_of_bucket_data() -> None:
    """47.84 tokens/s without, 88.25 with EAGLE-3 at a mean acceptance length of 2.54: 1.84x, 0.72 of it."""
    baseline = recording(tpot=[1 / 47.84] * 500)
    candidate = recording(tpot=[1 / 88.25] * 500, curve=CURVE)
    candidate = replace(candidate, counts=replace_steps(candidate.counts, None))
    speedup = compare(baseline, candidate).speedup
    realised = round(known(speedup.realised).value, 2)
    assert realised == 1.84
    assert speedup.ceiling == pytest.approx(2.54)
    assert speedup.ceiling_from == "mean_acceptance_length"
    assert known(speedup.efficiency).value == pytest.approx(88.25 / 47.84 / 2.54)
    assert round(realised / 2.54, 2) == 0.72


def replace_steps(counts: Counts, steps: float | None) -> Counts:
    return msgspec.structs.replace(counts, steps=steps)


def test_the_ceiling_is_tokens_per_step_which_counts_steps_without_a_draft() -> None:
    counts = FASTER.counts
    assert counts.steps is not None
    with_idle_steps = replace(FASTER, counts=replace_steps(counts, counts.steps * 1.27))
    speedup = compare(PLAIN, with_idle_steps).speedup
    assert speedup.ceiling == pytest.approx(2.0)
    assert speedup.ceiling_from == "tokens_per_step"
    assert speedup.efficiency == known(speedup.realised).scaled(0.5)


def test_without_time_per_output_token_it_is_end_to_end() -> None:
    old = [replace(side, time_per_output_token_seconds=None) for side in (PLAIN, FASTER)]
    comparison = compare(*old)
    assert comparison.speedup.realised_from == "request_latency"
    assert "sli_missing" in codes(comparison)
    assert comparison.decision.code == "faster"


def test_against_a_baseline_that_speculates_there_is_no_efficiency() -> None:
    comparison = compare(recording(tpot=drawn(0.0209), curve=CURVE), FASTER)
    assert comparison.speedup.realised is not None
    speedup = comparison.speedup
    assert (speedup.ceiling, speedup.efficiency, speedup.at_like_load) == (None, None, None)
    assert (speedup.draft_cost_ratio, speedup.break_even_acceptance_ratio) == (None, None)
    assert "baseline_speculates" in codes(comparison)


# --- Latency ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("median", "code"), [(0.0113, "faster"), (0.0209, "inconclusive"), (0.0215, "inconclusive"), (0.03, "slower")]
)
def test_it_is_decided_by_what_is_beyond_doubt(median: float, code: str) -> None:
    comparison = compare(PLAIN, recording(tpot=drawn(median, seed=2), curve=CURVE, blocks=12))
    assert tpot_of(comparison).outcome == code
    assert comparison.decision.code == code
    assert comparison.decision.regression is (code == "slower")


def test_a_worse_tail_is_told_although_the_body_is_faster() -> None:
    """Before and after, the median lies in one bucket, and the tail drags the mean along."""
    slow = [*drawn(0.0113, 900, seed=2), *drawn(0.2, 100, seed=3)]
    comparison = compare(PLAIN, recording(tpot=slow, e2e=[1.0] * 1000, curve=CURVE))
    tpot = tpot_of(comparison)
    assert known(tpot.mean_ratio).value > 1.2
    assert tpot.outcome == "tail_worse"
    decision = comparison.decision
    assert (decision.code, decision.regression) == ("tail_worse", True)
    assert decision.headline == (
        "The slowest requests became slower in time per output token, the typical one did not; faster in end-to-end "
        "latency"
    )
    assert any("more of the requests than expected are slower than" in reason for reason in decision.reasons)
    assert any("more of the requests are faster than 10 ms" in reason for reason in decision.reasons)


def test_a_later_first_token_is_told_beside_faster_tokens() -> None:
    late = recording(tpot=drawn(0.0113, seed=2), ttft=drawn(0.2, seed=3), curve=CURVE)
    baseline = replace(PLAIN, time_to_first_token_seconds=recording(ttft=drawn(0.05)).time_to_first_token_seconds)
    decision = compare(baseline, late).decision
    assert (decision.code, decision.regression) == ("mixed", True)
    assert decision.headline.startswith("Slower in time to first token, faster in time per output token")


# --- Like for like ---------------------------------------------------------------------------------------------------


def context(**changes: str | None) -> dict[str, Any]:
    return {"context": replace(CONTEXT, **changes)}


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        (context(hardware="8 x H100"), "hardware_differs"),
        (context(runtime="vLLM 0.32.0, CUDA graphs off"), "runtime_differs"),
        (context(request_parameters="temperature 1"), "request_parameters_differ"),
        (context(command=None), "context_missing"),
        ({"vllm_version": "0.33.0"}, "vllm_version_differs"),
        ({"model_name": "llama-2"}, "served_name_differs"),
        ({"interrupted": True}, "interrupted"),
        ({"counts": replace(FASTER.counts, prompt_tokens=1000 * 900.0)}, "prompts_differ"),
        ({"counts": Counts(generation_tokens=1000 * 64.0, first_tokens=1000.0)}, "answers_differ"),
        ({"counts": Counts()}, "candidate_does_not_speculate"),
        ({"time_to_first_token_seconds": None}, "sli_missing"),
        ({"time_to_first_token_seconds": histogram([0.05] * 1000, (0.05, 1.0, INF))}, "buckets_differ"),
        ({"time_to_first_token_seconds": histogram([0.05] * 50, (0.05, 1.0, INF))}, "too_few_requests"),
    ],
)
def test_what_is_not_like_for_like_is_flagged(changes: dict[str, Any], code: str) -> None:
    assert codes(compare(PLAIN, FASTER)) == set()
    comparison = compare(PLAIN, replace(FASTER, **changes))
    assert code in codes(comparison)
    assert all(flag.message and flag.action for flag in comparison.flags)


@pytest.mark.parametrize(
    ("tokens", "words"),
    [
        (
            900.0,
            "prompts are 3.0 times as long as those of the baseline (900 tokens, there 300): the speed-up compares",
        ),
        (
            150.0,
            "prompts are 0.50 times as long as those of the baseline (150 tokens, there 300): the speed-up compares",
        ),
        (400.0, "the mean prompt has 300 tokens in the baseline, 400 in the candidate: time to first token"),
    ],
)
def test_prompts_of_another_length_are_other_work(tokens: float, words: str) -> None:
    other = replace(FASTER, counts=replace(FASTER.counts, prompt_tokens=1000 * tokens))
    (flag,) = (flag for flag in compare(PLAIN, other).flags if flag.code == "prompts_differ")
    assert flag.message.startswith(words)
    assert "decide nothing" in flag.message


def test_another_spelling_is_no_other_hardware() -> None:
    changes = context(hardware=" 1 X l4  24 gb", model="/models/llama-3.1-8b/")
    assert codes(compare(PLAIN, replace(FASTER, **changes))) == set()


@pytest.mark.parametrize(
    ("baseline", "candidate"),
    [
        (context(), context(model="Qwen/Qwen3-8B")),
        (context(model=None) | {"model_name": "llama"}, {"model_name": "qwen"}),
    ],
)
def test_two_models_are_refused(baseline: dict[str, Any], candidate: dict[str, Any]) -> None:
    with pytest.raises(ComparisonError, match=r"expected recordings of one model, found model(_name)? '"):
        compare(replace(PLAIN, **baseline), replace(FASTER, **candidate))


def test_recordings_without_a_common_latency_are_refused() -> None:
    only_first = replace(PLAIN, time_per_output_token_seconds=None, request_latency_seconds=None)
    rest = replace(FASTER, time_to_first_token_seconds=None)
    with pytest.raises(ComparisonError, match="found time to first token in the baseline and time per output token"):
        compare(only_first, rest)


def test_too_few_requests_decide_nothing() -> None:
    decision = compare(recording(tpot=[0.02] * 150), recording(tpot=[0.01] * 150, curve=CURVE)).decision
    assert (decision.code, decision.regression) == ("undecided", False)
    assert "150 requests, at least 200 are needed on both sides" in decision.reasons[0]


def test_unlike_traffic_decides_nothing_of_what_follows_its_length() -> None:
    longer = replace(FASTER, counts=replace(FASTER.counts, prompt_tokens=1000 * 900.0))
    outcomes = {latency.sli: latency.outcome for latency in compare(PLAIN, longer).latencies}
    assert outcomes == {
        "time_per_output_token": "faster",
        "time_to_first_token": "undecided",
        "request_latency": "undecided",
    }


# --- What to do ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("baseline", "candidate", "words"),
    [
        (recording(tpot=drawn(0.02)), recording(tpot=drawn(0.01), curve=CURVE), "Keep speculation on"),
        (recording(tpot=drawn(0.02), curve=CURVE), recording(tpot=drawn(0.01)), "Leave speculation off"),
        (recording(tpot=drawn(0.02), curve=CURVE), recording(tpot=drawn(0.03)), "Leave speculation on"),
        (recording(tpot=drawn(0.02)), recording(tpot=drawn(0.02), curve=CURVE), "Record longer"),
        (recording(tpot=drawn(0.02)), recording(tpot=drawn(0.03), curve=(0.7, 0.2, 0.1)), "or record another k"),
        (loads("plain", 0.02), loads("code", 0.0252, CODE), "Record k = 4 too: the last position still pays"),
        (loads("plain", 0.02), loads("chat", 0.0252, CHAT), "The best k is 0 or 1, and these recordings do not tell"),
        (loads("plain", 0.02), loads("poor", 0.03, (0.05, 0.01)), "Switch speculation off at this load: no k up to 2"),
    ],
)
def test_the_next_step_follows_from_speed_and_acceptance(baseline: Baseline, candidate: Baseline, words: str) -> None:
    assert words in compare(baseline, candidate).decision.action


@pytest.mark.parametrize("curve", [(0.9, 0.8, 0.7), (0.7, 0.2, 0.1), (0.05, 0.01)])
def test_without_a_measured_cost_no_other_k_is_named(curve: tuple[float, ...]) -> None:
    """However bad or good acceptance is: what a draft costs is then a guess."""
    for seconds in (0.01, 0.02, 0.03):
        decision = compare(recording(tpot=drawn(0.02)), recording(tpot=drawn(seconds), curve=curve)).decision
        assert not re.search(r"k = \d|k from", decision.action)
        assert decision.reasons[-1].endswith("(break-even not measured, assumed 0.50 for this method)")


def test_no_difference_is_not_taken_for_proof_of_none() -> None:
    comparison = compare(PLAIN, recording(tpot=drawn(0.0209, seed=2), curve=CURVE, blocks=12))
    tpot, decision = tpot_of(comparison), comparison.decision
    assert known(known(tpot.mean_ratio).high) > 1.05
    assert (tpot.outcome, decision.code, decision.regression) == ("inconclusive", "inconclusive", False)
    assert "is neither shown nor ruled out" in decision.headline
    assert "times as many requests" in decision.reasons[1]
    assert decision.action.startswith("Record longer")


def test_no_difference_needs_an_interval_that_leaves_none() -> None:
    same = [recording(tpot=drawn(0.0209, 20_000, seed), blocks=20) for seed in (1, 2)]
    comparison = compare(*same)
    ratio = known(tpot_of(comparison).mean_ratio)
    assert 1 / 1.05 < known(ratio.low) < known(ratio.high) < 1.05
    assert comparison.decision.code == "no_difference"
    assert comparison.decision.headline.startswith("No difference in time per output token")


# --- The measured cost -----------------------------------------------------------------------------------------------


def test_the_guides_code_is_worth_its_cost() -> None:
    """EAGLE-3, k = 3, curve 0.50 / 0.40 / 0.33: 88.25 against 47.84 tokens/s. At 2.23 tokens per step, c is 0.07."""
    comparison = compare(loads("plain", 1 / 47.84), loads("code", 2.23 / 88.25, CODE))
    speedup, decision = comparison.speedup, comparison.decision
    assert known(speedup.at_like_load).value == pytest.approx(1.84, abs=0.02)
    assert known(speedup.draft_cost_ratio).value == pytest.approx(0.07, abs=0.01)
    assert speedup.break_even_acceptance_ratio == speedup.draft_cost_ratio
    assert known(speedup.break_even_acceptance_length).value == pytest.approx(1.21, abs=0.03)
    assert known(speedup.concurrency) == pytest.approx(8.0)
    assert decision.code == "faster"
    assert decision.action.startswith("Keep speculation on.")
    assert re.search(r"acceptance of the candidate 0.41 \(break-even 0.0\d \(.*\), measured\)", decision.reasons[-1])


def test_the_guides_chat_gains_nothing_with_this_k() -> None:
    """0.16 / 0.02 / 0.01 and 47.45 against 47.87 tokens/s: 0.99x. Whether k = 1 pays, one recording does not tell."""
    comparison = compare(loads("plain", 1 / 47.87), loads("chat", 1.19 / 47.45, CHAT))
    assert known(comparison.speedup.at_like_load).value == pytest.approx(0.99, abs=0.02)
    assert known(comparison.speedup.draft_cost_ratio).value == pytest.approx(0.067, abs=0.01)
    assert comparison.decision.code == "no_difference"
    assert comparison.decision.action == (
        "Speculation gives no speed-up at this load. The best k is 0 or 1, and these recordings do not tell which: "
        "record k = 1 too, and compare all."
    )


def test_loads_that_were_not_both_recorded_tell_no_cost() -> None:
    speedup = compare(loads("plain", 0.02), loaded("busy", {40.0: 0.03}, CODE)).speedup
    assert (speedup.at_like_load, speedup.draft_cost_ratio, speedup.break_even_acceptance_length) == (None, None, None)


# --- Shape -----------------------------------------------------------------------------------------------------------


def test_the_json_has_no_number_that_json_does_not_know() -> None:
    empty = replace(FASTER, request_latency_seconds=histogram([9000.0] * 1000, E2E), counts=Counts())
    text = msgspec.json.encode(compare(PLAIN, empty))
    assert json.loads(text, parse_constant=pytest.fail)["decision"]["code"]
    assert msgspec.json.decode(text, type=Comparison) == compare(PLAIN, empty)
