"""What ``compare`` takes for chance: requests that are slow together, other loads and lengths."""

from __future__ import annotations

import random
import statistics
from collections.abc import Sequence

import msgspec
import pytest

from builders import known
from recordings import CURVE, histogram, loaded, lognormal, recording
from specdec_exporter.baseline.file import Baseline, Block
from specdec_exporter.comparison import compare as comparing
from specdec_exporter.comparison.compare import Comparison
from specdec_exporter.comparison.latency import LatencyComparison, Outcome
from specdec_exporter.comparison.traffic import difference
from specdec_exporter.speculation.acceptance import Counts
from specdec_exporter.speculation.policy import load_policy

replace = msgspec.structs.replace
POLICY = load_policy()
LENGTHS = (1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0, 1000.0, 2000.0, 5000.0, float("inf"))
CODE = (0.5, 0.4, 0.33)


def compare(baseline: Baseline, candidate: Baseline) -> Comparison:
    return comparing.compare(baseline, candidate, POLICY)


def tpot_of(comparison: Comparison) -> LatencyComparison:
    return comparison.latencies[0]


def outcomes(comparison: Comparison) -> tuple[Outcome, ...]:
    return tuple(latency.outcome for latency in comparison.latencies)


def codes(comparison: Comparison) -> set[str]:
    return {flag.code for flag in comparison.flags}


# --- Blocks ----------------------------------------------------------------------------------------------------------


def busy(name: str) -> Baseline:
    """A recording whose requests are slow together: each block of time has a speed of its own."""
    source = random.Random(name)
    speeds = [0.02 * source.lognormvariate(0.0, 0.08) for _ in range(15)]
    return recording(name, tpot=[each for speed in speeds for each in lognormal(source, speed, 60, 0.3)], blocks=15)


def test_requests_that_are_slow_together_do_not_make_intervals_too_narrow() -> None:
    held, wrong = [], []
    for trial in range(40):
        one, other = busy(f"one {trial}"), busy(f"other {trial}")
        found = tpot_of(compare(one, other))
        ratio = known(found.mean_ratio)
        held.append(known(ratio.low) <= 1.0 <= known(ratio.high))
        wrong.append(found.outcome in {"faster", "slower", "tail_worse"})
    assert statistics.mean(held) >= 0.9
    assert statistics.mean(wrong) <= 0.1


@pytest.mark.parametrize(("blocks", "code"), [(0, "no_blocks"), (3, "few_blocks"), (6, "few_blocks"), (12, None)])
def test_few_blocks_are_flagged(blocks: int, code: str | None) -> None:
    found = codes(compare(recording(blocks=12), recording(curve=CURVE, blocks=blocks)))
    assert found == ({code} if code else set())


# --- Load ------------------------------------------------------------------------------------------------------------

STEPS = {6.0: 0.02, 12.0: 0.022, 24.0: 0.03}


def at_loads(name: str, loads: Sequence[float], faster: float = 1.0, curve: Sequence[float] = ()) -> Baseline:
    """A server whose step takes longer with more requests in decode."""
    per_step = 1.0 + sum(curve)
    return loaded(name, {load: STEPS[load] * per_step / faster for load in loads}, curve, intervals=60)


def test_the_same_server_with_more_to_do_is_neither_slower_nor_faster() -> None:
    quiet, full = at_loads("quiet", (6.0, 12.0)), at_loads("full", (12.0, 24.0))
    for pair in ((quiet, full), (full, quiet)):
        comparison = compare(*pair)
        assert "load_differs" in codes(comparison)
        assert not {"faster", "slower", "tail_worse"} & {*outcomes(comparison)}
        assert outcomes(comparison)[1:] == ("undecided", "undecided")
        assert not comparison.decision.regression


def test_at_another_load_time_per_token_is_compared_at_the_loads_of_both() -> None:
    comparison = compare(at_loads("quiet", (6.0, 12.0)), at_loads("full", (12.0, 24.0), 1.3, CODE))
    assert known(tpot_of(comparison).like_load_ratio).value == pytest.approx(1 / 1.3, abs=0.02)
    assert outcomes(comparison) == ("faster", "undecided", "undecided")
    speculating = compare(at_loads("quiet", (6.0, 12.0), 1.0, CODE), at_loads("full", (12.0, 24.0), 1.3, CODE))
    assert outcomes(speculating)[0] == "faster"


def test_without_a_common_load_nothing_is_decided() -> None:
    comparison = compare(at_loads("quiet", (6.0,)), at_loads("full", (24.0,), 1.3, CODE))
    assert outcomes(comparison) == ("undecided",) * 3
    assert "no load was recorded in both" in comparison.decision.reasons[0]
    assert (comparison.decision.code, comparison.decision.regression) == ("undecided", False)


@pytest.mark.parametrize(("requests", "gain"), [(1000, 1.5), (1800, 1.8), (700, 0.7)])
def test_a_faster_server_has_fewer_requests_in_flight_or_answers_more(requests: int, gain: float) -> None:
    """At a fixed rate, with a fixed number of clients, and the latter with a slower server."""
    comparison = compare(
        recording(tpot=[0.02] * 1000, blocks=12), recording(tpot=[0.02 / gain] * requests, curve=CURVE, blocks=12)
    )
    assert "load_differs" not in codes(comparison)
    assert outcomes(comparison)[0] == ("faster" if gain > 1 else "slower")


# --- Lengths ---------------------------------------------------------------------------------------------------------


def served(seed: str, turns: int) -> Baseline:
    """15 blocks of time with 67 requests each. Those of a conversation, ``turns`` in a row, are alike."""
    source, each = random.Random(seed), 67
    count = 15 * each

    def draw(mean: float, sigma: float) -> list[float]:
        found = [mean * source.lognormvariate(-sigma * sigma / 2, sigma) for _ in range(-(-count // turns))]
        return [value for value in found for _ in range(turns)][:count]

    def counted(counts: Counts, place: slice) -> Counts:
        return replace(counts, prompt_tokens=sum(prompts[place]), generation_tokens=sum(answers[place]))

    prompts, answers = draw(300.0, 1.0), draw(128.0, 0.7)
    made = recording(tpot=[0.02] * count, blocks=15)
    return replace(
        made,
        counts=counted(made.counts, slice(None)),
        blocks=tuple(
            replace(block, counts=counted(block.counts, slice(each * place, each * (place + 1))))
            for place, block in enumerate(made.blocks)
        ),
        prompt_length=histogram(prompts, LENGTHS),
        generation_length=histogram(answers, LENGTHS),
    )


@pytest.mark.parametrize("turns", [1, 5])
def test_the_same_lengths_are_hardly_ever_taken_for_others(turns: int) -> None:
    pairs = ((served(f"one {trial}", turns), served(f"other {trial}", turns)) for trial in range(40))
    found = [difference(*pair, POLICY.latency) for pair in pairs]
    assert sum(bool(each.load or each.prompts or each.answers) for each in found) <= 2


def test_prompts_of_equal_mean_may_differ_in_length_all_the_same() -> None:
    alike, unlike = (
        recording(tpot=[0.02] * 1000, blocks=12, prompt_length=histogram(lengths * 500, LENGTHS))
        for lengths in ([300.0, 300.0], [100.0, 500.0])
    )
    assert "prompts_differ" not in codes(compare(alike, alike))
    (flag,) = (each for each in compare(alike, unlike).flags if each.code == "prompts_differ")
    assert "50% more of the prompts have at most 100 tokens in the candidate" in flag.message


def longer(recorded: Baseline, tokens: float) -> Baseline:
    """The same with answers of so many tokens in the mean."""

    def grown(counts: Counts) -> Counts:
        return replace(counts, generation_tokens=known(counts.first_tokens) * tokens)

    blocks: list[Block] = [replace(block, counts=grown(block.counts)) for block in recorded.blocks]
    return replace(recorded, counts=grown(recorded.counts), blocks=tuple(blocks))


@pytest.mark.parametrize(("tokens", "flagged"), [(150, True), (132, False)])
def test_longer_answers_do_not_make_a_server_slower(tokens: int, flagged: bool) -> None:
    before = recording(tpot=[0.02] * 1000, blocks=12)
    after = longer(recording(tpot=[0.02] * 1000, e2e=[0.05 + tokens * 0.02] * 1000, blocks=12), tokens)
    comparison = compare(before, after)
    assert ("answers_differ" in codes(comparison)) is flagged
    assert outcomes(comparison)[2] != "slower"


# --- Words -----------------------------------------------------------------------------------------------------------


def test_no_proof_of_a_gain_is_no_proof_of_none() -> None:
    """A true gain of 1.10 with 300 requests: nothing may ask to switch it off."""
    for trial in range(30):
        source = random.Random(f"gain {trial}")
        before, after = (lognormal(source, seconds, 300) for seconds in (0.02, 0.02 / 1.1))
        for blocks in (0, 12):
            comparison = compare(
                recording(tpot=before, blocks=blocks), recording(tpot=after, curve=CURVE, blocks=blocks)
            )
            said = " ".join((comparison.decision.headline, *comparison.decision.reasons, comparison.decision.action))
            assert "witch" not in said
            assert "gives no" not in said


def test_a_later_first_token_alone_is_no_reason_to_switch_off() -> None:
    before = recording(tpot=[0.02] * 1000, ttft=[0.05] * 1000, e2e=[2.5] * 1000, blocks=12)
    after = recording(tpot=[0.0196] * 1000, ttft=[0.06] * 1000, e2e=[2.5] * 1000, curve=CURVE, blocks=12)
    decision = compare(before, after).decision
    assert (decision.code, decision.regression) == ("slower", True)
    assert decision.action.startswith("Look at waiting requests")
