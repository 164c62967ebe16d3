"""What ``compare`` takes for chance: requests that are slow together, other loads and lengths."""

from __future__ import annotations

import math
import random
import statistics
from collections.abc import Sequence
from functools import reduce
from operator import add
from typing import Any

import msgspec
import pytest

from specdec_exporter.baseline.file import Baseline, Block
from specdec_exporter.comparison.compare import Comparison
from specdec_exporter.comparison.latency import LatencyComparison, Outcome
from specdec_exporter.comparison.traffic import difference
from specdec_exporter.errors import ComparisonError
from specdec_exporter.speculation.acceptance import Counts
from specdec_exporter.speculation.chance import Estimate
from specdec_exporter.speculation.policy import load_policy
from support.builders import known
from support.recordings import CURVE, codes, compared, loaded, lognormal, recording

replace = msgspec.structs.replace
POLICY = load_policy()
CODE = (0.5, 0.4, 0.33)


def tpot_of(comparison: Comparison) -> LatencyComparison:
    return comparison.latencies[0]


def outcomes(comparison: Comparison) -> tuple[Outcome, ...]:
    return tuple(latency.outcome for latency in comparison.latencies)


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
        found = tpot_of(compared(one, other))
        ratio = known(found.mean_ratio)
        held.append(known(ratio.low) <= 1.0 <= known(ratio.high))
        wrong.append(found.outcome in {"faster", "slower", "tail_worse"})
    assert statistics.mean(held) >= 0.9
    assert statistics.mean(wrong) <= 0.1


def test_one_stall_decides_nothing() -> None:
    """Half of all seconds to the first token passed in one of twelve blocks of time."""
    stalled = [1.0 if 400 <= i < 450 else 0.05 for i in range(1000)]
    comparison = compared(
        recording(tpot=[0.02] * 1000, blocks=12), recording(tpot=[0.02] * 1000, ttft=stalled, blocks=12)
    )
    first = comparison.latencies[1]
    assert known(first.mean_ratio).value > 1.5
    assert (known(first.mean_ratio).low, first.outcome) == (None, "undecided")
    assert "has one long stall" in known(first.undecided_because)


# --- The same minutes ------------------------------------------------------------------------------------------------

GAIN = 1.1


def replica(name: str, faster: float, curve: Sequence[float], bursts: Sequence[float]) -> Baseline:
    """One of two replicas: the minutes are slow alike, the rest is its own."""
    source, per_step = random.Random(name), 1.0 + sum(curve)
    steps = [0.02 * burst * per_step / faster for burst in bursts]
    made = [loaded(f"{name} {i}", {8.0: step}, curve, intervals=2) for i, step in enumerate(steps)]
    tpot = [step / per_step * each for step in steps for each in lognormal(source, 1.0, 40, 0.3)]
    counts = reduce(add, (each.counts for each in made))
    intervals = tuple(interval for each in made for interval in each.intervals)
    facts: dict[str, Any] = {"duration_seconds": 30.0 * len(bursts), "counts": counts, "intervals": intervals}
    return recording(name, tpot=tpot, curve=curve, blocks=20, **facts)


def pair(trial: int) -> tuple[Baseline, Baseline]:
    source = random.Random(f"bursts {trial}")
    bursts = [level for _ in range(10) for level in [source.lognormvariate(0.0, 0.2)] * 2]
    return replica(f"plain {trial}", 1.0, (), bursts), replica(f"drafting {trial}", GAIN, (0.5, 0.3), bursts)


def width(found: Estimate) -> float:
    """Where an interval is too wide to be said, that of a factor of 3."""
    return math.log(found.high / found.low) if found.high and found.low else math.log(3.0)


def test_bursts_that_both_replicas_had_cancel() -> None:
    held, narrower = [], []
    for trial in range(6):
        both = pair(trial)
        apart, together = compared(*both), compared(*both, paired=True)
        ratios = [known(tpot_of(each).mean_ratio) for each in (apart, together)]
        speedups = [known(each.speedup.judged) for each in (apart, together)]
        narrower += [width(one) / width(other) for one, other in (ratios, speedups)]
        held += [
            known(each.low) <= truth <= known(each.high) for each, truth in ((ratios[1], 1 / GAIN), (speedups[1], GAIN))
        ]
        assert together.paired
    assert statistics.median(narrower) > 3.0
    assert statistics.mean(held) >= 0.9


@pytest.mark.parametrize(
    "changes", [{"recorded_at": "2026-11-21T02:05:00Z"}, {"duration_seconds": 300.0}], ids=["later", "shorter"]
)
def test_a_pair_of_other_minutes_is_refused(changes: dict[str, Any]) -> None:
    before, after = recording(tpot=[0.02] * 1000, blocks=12), recording(tpot=[0.02] * 1000, blocks=12)
    with pytest.raises(ComparisonError, match="start `baseline record` for both replicas at once"):
        compared(before, replace(after, **changes), paired=True)
    near = replace(after, recorded_at="2026-11-21T02:00:20Z")
    assert compared(before, near, paired=True).paired


@pytest.mark.parametrize(("requests", "flagged"), [(1170, False), (1300, True)])
def test_replicas_that_share_requests_at_random_differ_a_little_in_load(requests: int, flagged: bool) -> None:
    before, after = recording(tpot=[0.02] * 1000, blocks=12), recording(tpot=[0.02] * requests, blocks=12)
    assert "load_differs" in codes(compared(before, after))
    assert ("load_differs" in codes(compared(before, after, paired=True))) is flagged


# --- Load ------------------------------------------------------------------------------------------------------------

STEPS = {6.0: 0.02, 12.0: 0.022, 24.0: 0.03}


def at_loads(name: str, loads: Sequence[float], faster: float = 1.0, curve: Sequence[float] = ()) -> Baseline:
    """A server whose step takes longer with more requests in decode."""
    per_step = 1.0 + sum(curve)
    steps = {load: STEPS[load] * per_step / faster for load in loads}
    return loaded(name, steps, curve, intervals=60, blocks=12)


def test_the_same_server_with_more_to_do_is_neither_slower_nor_faster() -> None:
    quiet, full = at_loads("quiet", (6.0, 12.0)), at_loads("full", (12.0, 24.0))
    for pair in ((quiet, full), (full, quiet)):
        comparison = compared(*pair)
        assert "load_differs" in codes(comparison)
        assert not {"faster", "slower", "tail_worse"} & {*outcomes(comparison)}
        assert outcomes(comparison)[1:] == ("undecided", "undecided")
        assert not comparison.decision.regression


def test_at_another_load_time_per_token_is_compared_at_the_loads_of_both() -> None:
    comparison = compared(at_loads("quiet", (6.0, 12.0)), at_loads("full", (12.0,), 1.3, CODE))
    assert known(tpot_of(comparison).like_load_ratio).value == pytest.approx(1 / 1.3, abs=0.02)
    assert outcomes(comparison) == ("faster", "undecided", "undecided")
    speculating = compared(at_loads("quiet", (6.0, 12.0), 1.0, CODE), at_loads("full", (12.0,), 1.3, CODE))
    assert outcomes(speculating)[0] == "faster"


def test_without_a_common_load_nothing_is_decided() -> None:
    comparison = compared(at_loads("quiet", (6.0,)), at_loads("full", (24.0,), 1.3, CODE))
    assert outcomes(comparison) == ("undecided",) * 3
    assert "24.0 requests are in decode at a time and 8.2 come per second" in comparison.decision.headline
    assert (comparison.decision.code, comparison.decision.regression) == ("undecided", False)


@pytest.mark.parametrize(("requests", "gain"), [(1000, 1.5), (1800, 1.8), (700, 0.7)])
def test_a_faster_server_has_fewer_requests_in_flight_or_answers_more(requests: int, gain: float) -> None:
    """At a fixed rate, with a fixed number of clients, and the latter with a slower server."""
    comparison = compared(
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
    )


@pytest.mark.parametrize("turns", [1, 5])
def test_the_same_lengths_are_hardly_ever_taken_for_others(turns: int) -> None:
    pairs = ((served(f"one {trial}", turns), served(f"other {trial}", turns)) for trial in range(40))
    found = [difference(*pair, POLICY) for pair in pairs]
    assert sum(bool(each.load or each.prompts or each.answers) for each in found) <= 2


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
    comparison = compared(before, after)
    assert ("answers_differ" in codes(comparison)) is flagged
    assert outcomes(comparison)[2] != "slower"


# --- Words -----------------------------------------------------------------------------------------------------------


def test_no_proof_of_a_gain_is_no_proof_of_none() -> None:
    """A true gain of 1.10 with 300 requests: nothing may ask to switch it off."""
    for trial in range(30):
        source = random.Random(f"gain {trial}")
        before, after = (lognormal(source, seconds, 300) for seconds in (0.02, 0.02 / 1.1))
        comparison = compared(recording(tpot=before, blocks=12), recording(tpot=after, curve=CURVE, blocks=12))
        said = " ".join((comparison.decision.headline, *comparison.decision.reasons, comparison.decision.action))
        assert "without speculation at" not in said
