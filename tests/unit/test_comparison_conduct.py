"""What a comparison says about how its recordings were made, and about the three that must improve."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from builders import known
from recordings import CONTEXT, CURVE, loaded, recording
from specdec_exporter.baseline.file import Baseline, Block
from specdec_exporter.comparison.compare import Comparison, compare
from specdec_exporter.comparison.requests import runs_per_prompt, temperatures_of, without_temperature
from specdec_exporter.speculation.acceptance import Counts
from specdec_exporter.speculation.policy import load_policy

replace = msgspec.structs.replace
PLAIN = recording("plain", tpot=[0.02] * 1200, blocks=12)


def speculating(tpot: Sequence[float] = (0.011,) * 1200, **context: Any) -> Baseline:
    return recording("fast", tpot=tpot, curve=CURVE, blocks=12, context=replace(CONTEXT, **context))


def flagged(candidate: Baseline, baseline: Baseline = PLAIN) -> dict[str, str]:
    return {flag.code: flag.message for flag in compared(candidate, baseline).flags}


def compared(candidate: Baseline, baseline: Baseline = PLAIN) -> Comparison:
    return compare(baseline, candidate, load_policy())


def test_a_careful_recording_has_no_flag() -> None:
    assert flagged(speculating()) == {}


@pytest.mark.parametrize(
    ("context", "code", "words"),
    [
        ({"command": f"{CONTEXT.command} --seed 7"}, "seed_differs", "not given in the baseline, 7 in the candidate"),
        ({"request_parameters": "chat"}, "temperature_not_given", "name no temperature"),
        ({"request_parameters": "temperature 0.2 to 1.0"}, "temperature_mixed", "temperatures from 0.2 to 1"),
        ({"request_parameters": "temperature=0.8"}, "temperature_high", "up to 0.8, above 0.7"),
        ({"request_parameters": "temperature 0, 3 runs per prompt"}, "few_runs", "3 runs of each prompt, fewer than 5"),
    ],
)
def test_what_the_context_says_is_read(context: dict[str, Any], code: str, words: str) -> None:
    assert words in flagged(speculating((0.011,) * 1200, **context))[code]


def test_a_slow_first_block_is_a_warm_up() -> None:
    cold = speculating([0.03] * 100 + [0.011] * 1100)
    assert "time per output token is 2.7 times that of the rest" in flagged(cold)["cold_start"]
    assert "cold_start" not in flagged(speculating([0.011] * 600 + [0.03] * 100 + [0.011] * 500))


def test_a_median_that_turns_against_the_mean_is_flagged() -> None:
    """The typical request became far faster, and one in ten so slow that the mean is slower."""
    plain = recording("plain", tpot=[0.06] * 1200, blocks=12)
    found = flagged(speculating(([0.02] * 9 + [0.8]) * 120), plain)
    assert found["median_contradicts_mean"] == "time per output token: the mean is slower, the median (P50) is faster"


def test_parts_of_other_acceptance_are_flagged() -> None:
    fast = speculating()

    def part(index: int, block: Block) -> Block:
        counts: Counts = block.counts
        accepted = known(counts.draft_tokens) * (0.2 if index % 2 else 0.8)
        return replace(block, counts=replace(counts, accepted_tokens=accepted))

    varied = replace(fast, blocks=tuple(part(index, each) for index, each in enumerate(fast.blocks)))
    assert "20% to 80% in 12 blocks" in flagged(varied)["acceptance_varies"]


def test_requests_that_wait_for_their_first_token_gain_little() -> None:
    waiting = recording("plain", tpot=[0.02] * 1200, ttft=[8.0] * 1200, e2e=[10.0] * 1200, blocks=12)
    assert "80% of a request's time" in flagged(speculating(), waiting)["first_token_bound"]


def test_a_decision_says_which_of_the_three_improve() -> None:
    pair = loaded("plain", {8.0: 0.02}, intervals=60), loaded("fast", {8.0: 0.02}, (0.7, 0.5), intervals=60)
    comparison = compared(pair[1], pair[0])
    rule = known(comparison.rule)
    assert rule.time_per_output_token == "faster"
    assert rule.summary.startswith("time to first token no difference; time per output token better; throughput ")
    assert f"keep only if all three improve: {rule.summary}" in comparison.decision.reasons
    assert known(rule.speedup).value == pytest.approx(2.2, rel=0.05)
    assert compared(speculating(), speculating()).rule is None


@pytest.mark.parametrize(
    ("text", "temperatures", "rest"),
    [
        (None, (), None),
        ("chat, temperature 0, 16 at once", (0.0,), "chat, 16 at once"),
        ("temperature=0.8 max_tokens=128", (0.8,), "max_tokens=128"),
        ("temperature: 0.4, 64 tokens", (0.4,), "64 tokens"),
        ("temp 0.4 to 1.0", (0.4, 1.0), ""),
        ("room temperature, 20 at once", (), "room temperature, 20 at once"),
        ("temperatures 0 and 1", (0.0, 1.0), ""),
    ],
)
def test_temperatures_are_read_from_the_request_parameters(
    text: str | None, temperatures: tuple[float, ...], rest: str | None
) -> None:
    assert temperatures_of(text) == temperatures
    assert without_temperature(text) == rest


@given(st.floats(0.0, 2.0).map(lambda value: round(value, 2)), st.sampled_from(["temperature {}", "temperature={}"]))
def test_any_temperature_is_read_back(value: float, form: str) -> None:
    text = f"chat, {form.format(value)}, 8 clients"
    assert temperatures_of(text) == (value,)
    assert without_temperature(text) == "chat, 8 clients"


@given(st.text())
def test_any_text_is_read(text: str) -> None:
    assert all(0.0 <= each < 10_000.0 for each in temperatures_of(text))
    runs_per_prompt(text)
    without_temperature(text)
