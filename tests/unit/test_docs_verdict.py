"""docs/verdict.md says what the policy says. ``tools/render.py --check`` holds its other tables."""

from __future__ import annotations

from typing import get_args

from specdec_exporter.speculation.policy import load_policy
from specdec_exporter.speculation.verdict import VerdictCode
from support.fieldtools import ROOT
from unit.test_docs import section, tables

PAGE = (ROOT / "docs" / "verdict.md").read_text(encoding="utf-8")
POLICY = load_policy()
VERDICTS = [row["Verdict"].strip("`") for row in tables(PAGE) if "Verdict" in row]


def test_every_verdict_is_explained_and_no_other() -> None:
    assert sorted(VERDICTS) == sorted(get_args(VerdictCode))


def test_the_thresholds_in_the_text_are_the_policys() -> None:
    latency = POLICY.latency
    acceptance = " ".join(section(PAGE, "Acceptance: an estimate").split())
    assert f"above {POLICY.acceptance_ratio_suspicious:g} with at least {POLICY.suspicious_positions}" in acceptance
    assert f"position 0 below {POLICY.head_acceptance_ratio_min:g}" in acceptance
    assert f"position 1 below {POLICY.tail_acceptance_ratio_min:g}" in acceptance
    speedup = " ".join(section(PAGE, "The measured speed-up").split())
    cost, chance = POLICY.cost, POLICY.chance
    assert f"fewer than {cost.min_steps} request-steps or {chance.fewest_batches} intervals" in speedup
    assert f"the last {cost.window_seconds / 60:g} minutes, in intervals of {cost.interval_seconds:g} s" in speedup
    assert f"cut into {chance.batches} batches of time" in speedup
    assert f"standard error is at least {100 * chance.runs_differ:g} %, and more below five minutes" in speedup
    assert chance.enough_seconds == 300
    assert f"left out where {cost.enough_intervals} others remain" in speedup
    assert f"wider than a factor of {chance.widest_interval:g}" in speedup
    assert f"F of the first stage below {cost.first_stage_f_min:g}" in speedup
    assert f"a standard deviation below {cost.even_load_spread:g}" in speedup
    assert f"a factor of at least {1.0 + latency.traffic_tolerance:g}" in speedup
    assert f"less than {cost.small_prefill_share:g} of a step" in speedup
    assert f"by a factor of at most {1.0 + latency.traffic_tolerance:g}" in speedup
    assert f"within {100 * cost.arrivals_tolerance:g} %" in speedup
    assert f"less than {cost.compared_min:g} of the step time" in speedup
    assert f"the interval is {latency.word_reach:g} times as wide" in speedup
    assert f"at least {latency.harmful_ratio:g} times as slow" in speedup
    assert f"two readings in a row, at least {POLICY.harm_apart_seconds:g} s apart" in " ".join(PAGE.split())
    measured = " ".join(section(PAGE, "Without step times: the speed-up of requests").split())
    assert f"{latency.harmful_ratio:g} times as slow" in measured
    assert f"z = {latency.z_score:g}, cv = {latency.time_per_output_token_cv:g}" in measured
    assert f"at least {latency.min_requests} requests" in measured
