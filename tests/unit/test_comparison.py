"""What two recordings say about each other: figures, what is not like for like, and the decision."""

from __future__ import annotations

import random
import re
from collections.abc import Sequence
from typing import Any

import msgspec
import pytest

from specdec_exporter.baseline.file import Baseline
from specdec_exporter.comparison.compare import Comparison
from specdec_exporter.comparison.latency import TITLES, LatencyComparison
from specdec_exporter.errors import ComparisonError
from specdec_exporter.speculation.acceptance import Counts
from specdec_exporter.speculation.policy import load_policy
from support.builders import known
from support.recordings import CONTEXT, CURVE, INF, codes, compared, histogram, loaded, lognormal, recording

replace = msgspec.structs.replace


def drawn(median: float, requests: int = 1000, seed: int = 1) -> list[float]:
    return lognormal(random.Random(seed), median, requests)


def latency_of(comparison: Comparison, sli: str) -> LatencyComparison:
    (found,) = (latency for latency in comparison.latencies if latency.sli == sli)
    return found


def tpot_of(comparison: Comparison) -> LatencyComparison:
    return latency_of(comparison, "time_per_output_token")


CODE, CHAT = (0.5, 0.4, 0.33), (0.16, 0.02, 0.01)


def loads(name: str, step_seconds: float, curve: Sequence[float] = ()) -> Baseline:
    """A recording of fifteen minutes at eight requests in decode."""
    return loaded(name, {8.0: step_seconds}, curve, intervals=60, blocks=12)


PLAIN = recording("plain", tpot=drawn(0.0209), blocks=12)
FASTER = recording("faster", tpot=drawn(0.0113, seed=2), curve=CURVE, blocks=12)


# --- Speed-up --------------------------------------------------------------------------------------------------------


def test_the_guides_code_is_worth_its_cost() -> None:
    """EAGLE-3, k = 3, curve 0.50 / 0.40 / 0.33: 88.25 against 47.84 tokens/s. At 2.23 tokens per step, c is 0.07."""
    comparison = compared(loads("plain", 1 / 47.84), loads("code", 2.23 / 88.25, CODE))
    speedup, decision = comparison.speedup, comparison.decision
    # As many requests in decode all the time: a fixed number of clients.
    assert (speedup.compared, speedup.at_like_load) == ("closed_loop", None)
    assert known(speedup.closed_loop).value == known(speedup.judged).value == pytest.approx(1.84, abs=0.02)
    assert known(speedup.break_even_acceptance_ratio).value == pytest.approx(0.07, abs=0.01)
    assert known(speedup.break_even_acceptance_length).value == pytest.approx(1.21, abs=0.03)
    assert (known(speedup.concurrency), known(speedup.compared_ratio)) == pytest.approx((8.0, 1.0))
    assert decision.code == "faster"
    assert re.fullmatch(
        r"Faster: decoding is 1\.8\dx \(.*\) as fast with the same number of clients, 8\.0 requests in decode",
        decision.headline,
    )
    assert decision.action.startswith("Keep speculation on.")


def test_between_two_settings_of_speculation_a_draft_has_no_cost() -> None:
    speedup = compared(loads("k3", 0.025, CODE), loads("k4", 0.0275, (*CODE, 0.3))).speedup
    assert known(speedup.judged).value == pytest.approx(2.53 / 2.23 * 0.025 / 0.0275, abs=0.02)
    assert (speedup.break_even_acceptance_ratio, speedup.break_even_acceptance_length) == (None, None)


def test_at_another_load_than_the_recorded_ones_no_speedup_is_known() -> None:
    comparison = compared(loads("plain", 0.02), loaded("busy", {40.0: 0.05}, CODE, blocks=12))
    speedup = comparison.speedup
    assert (speedup.judged, speedup.compared, speedup.closed_loop, speedup.same_arrivals) == (None,) * 4
    assert comparison.decision.headline == f"The speed-up of decoding is not known: {speedup.why_unknown}"
    assert comparison.decision.action.casefold().startswith(known(speedup.remedy))


def test_a_server_that_answers_more_requests_and_is_much_faster_gains_at_whatever_load() -> None:
    comparison = compared(loads("plain", 0.02), loaded("busy", {40.0: 0.03}, CODE, blocks=12))
    assert comparison.speedup.compared == "unlike_arrivals"
    assert (comparison.decision.code, comparison.speedup.same_arrivals) == ("faster", None)
    assert "as fast beyond what the requests per second explain" in comparison.decision.headline


# --- Latency ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("median", "code"), [(0.0113, "faster"), (0.0209, "inconclusive"), (0.0215, "inconclusive"), (0.03, "slower")]
)
def test_it_is_decided_by_what_is_beyond_doubt(median: float, code: str) -> None:
    comparison = compared(PLAIN, recording(tpot=drawn(median, seed=2), curve=CURVE, blocks=12))
    assert tpot_of(comparison).outcome == code
    assert comparison.decision.code == code
    assert comparison.decision.regression is (code == "slower")


def test_a_worse_tail_is_told_although_the_body_is_faster() -> None:
    source = random.Random(2)
    slow = [0.1 if i % 10 == 0 else 0.008 * source.lognormvariate(0.0, 0.2) for i in range(1000)]
    comparison = compared(PLAIN, recording(tpot=slow, curve=CURVE, blocks=12))
    tpot, decision = tpot_of(comparison), comparison.decision
    assert known(tpot.mean_ratio).value < 1.0
    assert tpot.outcome == "tail_worse"
    assert (decision.code, decision.regression) == ("tail_worse", True)
    assert decision.headline.startswith("The slowest requests became slower: time per output token is 0.7")
    assert any("of the requests, on top of those expected, are slower than" in reason for reason in decision.reasons)


def test_a_later_first_token_is_told_beside_faster_tokens() -> None:
    early = recording(tpot=drawn(0.0209), ttft=drawn(0.05), blocks=12)
    late = recording(tpot=drawn(0.0113, seed=2), ttft=drawn(0.2, seed=3), curve=CURVE, blocks=12)
    decision = compared(early, late).decision
    assert (decision.code, decision.regression) == ("faster", False)
    assert any(reason.startswith("time to first token: slower, ") for reason in decision.reasons)
    assert decision.action.startswith("Keep speculation on.")
    assert "Another latency became longer: weigh it for your users" in decision.action


# --- Like for like ---------------------------------------------------------------------------------------------------


def context(**changes: str | None) -> dict[str, Any]:
    return {"context": replace(CONTEXT, **changes)}


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        (context(hardware="8 x H100"), "settings_differ"),
        (context(runtime="vLLM 0.32.0, CUDA graphs off"), "settings_differ"),
        (context(request_parameters="temperature 1"), "settings_differ"),
        (context(command=None), "context_missing"),
        ({"vllm_version": "0.33.0"}, "settings_differ"),
        ({"interrupted": True}, "interrupted"),
        ({"blocks": ()}, "short_recording"),
        ({"blocks": FASTER.blocks[:6]}, "short_recording"),
        ({"counts": replace(FASTER.counts, prompt_tokens=1000 * 900.0)}, "prompts_differ"),
        ({"counts": Counts(generation_tokens=1000 * 64.0, first_tokens=1000.0)}, "answers_differ"),
        ({"counts": Counts()}, "candidate_does_not_speculate"),
        ({"time_to_first_token_seconds": histogram([0.05] * 1000, (0.05, 1.0, INF))}, "buckets_differ"),
    ],
)
def test_what_is_not_like_for_like_is_flagged(changes: dict[str, Any], code: str) -> None:
    assert codes(compared(PLAIN, FASTER)) == set()
    comparison = compared(PLAIN, replace(FASTER, **changes))
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
    comparison = compared(PLAIN, other)
    (flag,) = (flag for flag in comparison.flags if flag.code == "prompts_differ")
    assert flag.message.startswith(words)
    assert "decide nothing" in flag.message
    assert {latency.sli: latency.outcome for latency in comparison.latencies} == {
        "time_per_output_token": "faster",
        "time_to_first_token": "undecided",
        "request_latency": "undecided",
    }


def cached(recording: Baseline, ratio: float | None) -> Baseline:
    tokens = None if ratio is None else ratio * (recording.counts.prompt_tokens or 0.0)
    return replace(recording, counts=replace(recording.counts, cached_prompt_tokens=tokens))


@pytest.mark.parametrize(
    ("then", "now", "words"),
    [
        (
            0.02,
            0.8,
            "a prefix cache held 80% of the prompt tokens in the candidate, 2% in the baseline: only decoding",
        ),
        (None, 0.8, "the baseline does not count the prompt tokens that a prefix cache held, 80% on the other side"),
        (0.8, None, "the candidate does not count the prompt tokens that a prefix cache held, 80% on the other side"),
        (0.7, 0.75, None),
        (None, 0.05, None),
    ],
)
def test_another_share_of_cached_prompts_is_flagged(then: float | None, now: float | None, words: str | None) -> None:
    comparison = compared(cached(PLAIN, then), cached(FASTER, now))
    found = [flag for flag in comparison.flags if flag.code == "prompts_differ"]
    assert [flag.message.startswith(words or "") for flag in found] == ([True] if words else [])
    differ = bool(words and words.startswith("a prefix"))
    assert latency_of(comparison, "time_to_first_token").outcome == ("undecided" if differ else "no_difference")
    # These recordings have no step times, which would decide.
    assert ("and step times" in str(tpot_of(comparison).undecided_because)) is differ


def test_another_spelling_is_no_other_hardware() -> None:
    changes = context(hardware=" 1 X l4  24 gb", model="/models/llama-3.1-8b/")
    assert codes(compared(PLAIN, replace(FASTER, **changes))) == set()


@pytest.mark.parametrize(
    ("baseline", "candidate"),
    [
        (context(), context(model="Qwen/Qwen3-8B")),
        (context(model=None) | {"model_name": "llama"}, {"model_name": "qwen"}),
    ],
)
def test_two_models_are_refused(baseline: dict[str, Any], candidate: dict[str, Any]) -> None:
    with pytest.raises(ComparisonError, match=r"expected recordings of one model, found model(_name)? '"):
        compared(replace(PLAIN, **baseline), replace(FASTER, **candidate))


def test_recordings_without_a_common_latency_decide_nothing() -> None:
    only_first = replace(PLAIN, time_per_output_token_seconds=None, request_latency_seconds=None)
    decision = compared(only_first, replace(FASTER, time_to_first_token_seconds=None)).decision
    assert decision.code == "undecided"
    assert decision.headline == "Nothing is decided: 0 requests, at least 200 are needed on both sides"
    assert len(decision.reasons) == 2


def test_too_few_requests_decide_nothing() -> None:
    decision = compared(recording(tpot=[0.02] * 150), recording(tpot=[0.01] * 150, curve=CURVE)).decision
    assert (decision.code, decision.regression) == ("undecided", False)
    assert "150 requests, at least 200 are needed on both sides" in decision.headline


@pytest.mark.parametrize(("speedup", "code"), [(1.5, "faster"), (0.6, "slower"), (1.02, "inconclusive")])
def test_of_too_few_requests_their_steps_decide(speedup: float, code: str) -> None:
    """A draft that helps or harms is told, whether or not a request takes minutes."""

    def long_answers(name: str, step_seconds: float, curve: Sequence[float] = ()) -> Baseline:
        return loaded(name, {8.0: step_seconds}, curve, blocks=12, tokens_per_answer=6000, noise=0.05)

    comparison = compared(long_answers("plain", 0.02), long_answers("k3", 0.02 * 2.23 / speedup, CODE))
    tpot = tpot_of(comparison)
    assert known(tpot.requests.baseline) < load_policy().latency.min_requests
    assert known(tpot.like_load_ratio).value == pytest.approx(1 / speedup, rel=0.03)
    assert (tpot.outcome, comparison.decision.code) == (code, code)


def test_without_blocks_of_time_means_are_shown_and_nothing_is_decided() -> None:
    comparison = compared(PLAIN, replace(FASTER, blocks=()))
    ratio = known(tpot_of(comparison).mean_ratio)
    assert ratio.value < 0.6
    assert (ratio.low, ratio.high) == (None, None)
    assert comparison.decision.code == "undecided"
    assert "a recording is too short" in comparison.decision.headline


# --- What to do ------------------------------------------------------------------------------------------------------


def timed(seconds: float, curve: Sequence[float] = ()) -> Baseline:
    return recording(tpot=drawn(seconds), curve=curve, blocks=12)


@pytest.mark.parametrize(
    ("baseline", "candidate", "words"),
    [
        (timed(0.02), timed(0.01, CURVE), "Keep speculation on"),
        (timed(0.02, CURVE), timed(0.01), "Run without speculation at this load"),
        (timed(0.02, CURVE), timed(0.03), "Keep speculation on"),
        (timed(0.02), timed(0.0195, CURVE), "Record longer"),
        (timed(0.02), timed(0.03, CHAT), "Run without speculation at this load"),
        (timed(0.02, CURVE), timed(0.01, CURVE), "Keep the candidate's setting"),
        (loads("plain", 0.02), loads("poor", 0.03, (0.05, 0.01)), "Run without speculation at this load"),
    ],
)
def test_the_next_step_follows_from_what_was_found(baseline: Baseline, candidate: Baseline, words: str) -> None:
    decision = compared(baseline, candidate).decision
    assert words in decision.action
    assert not re.search(r"k = \d", decision.action)


def test_a_gain_in_decoding_is_kept_although_latencies_do_not_show_it() -> None:
    """Requests scatter so widely that their means decide nothing; step times do."""
    scattered = lognormal(random.Random(3), 0.02, 1000, 1.5)
    wide = [recording(tpot=tpot, blocks=12) for tpot in (scattered, scattered[::-1])]
    latencies = [{f"{sli}_seconds": getattr(each, f"{sli}_seconds") for sli in TITLES} for each in wide]
    plain, code = (
        replace(each, blocks=scattered.blocks, **latency)
        for each, scattered, latency in zip(
            (loads("plain", 0.02), loads("code", 0.025, CODE)), wide, latencies, strict=True
        )
    )
    decision = compared(plain, code).decision
    assert decision.code == "faster"
    assert decision.action.startswith("Keep speculation on.")
    assert "decoding is 1.7" in decision.headline


def test_a_later_first_token_alone_is_no_reason_to_switch_off() -> None:
    before = recording(tpot=[0.02] * 1000, ttft=[0.05] * 1000, e2e=[2.5] * 1000, blocks=12)
    after = recording(tpot=[0.0196] * 1000, ttft=[0.06] * 1000, e2e=[2.5] * 1000, curve=CURVE, blocks=12)
    decision = compared(before, after).decision
    assert (decision.code, decision.regression) == ("inconclusive", False)
    assert "time to first token: slower, 1.20x" in decision.reasons[0]


def test_no_difference_needs_an_interval_that_leaves_none() -> None:
    comparison = compared(recording(tpot=[0.02] * 1000, blocks=12), recording(tpot=[0.0201] * 1000, blocks=12))
    ratio = known(tpot_of(comparison).mean_ratio)
    assert 1 / 1.05 < known(ratio.low) < 1.0 < known(ratio.high) < 1.05
    assert comparison.decision.code == "no_difference"
    assert comparison.decision.headline.startswith("No difference: time per output token is 1.00x (")
