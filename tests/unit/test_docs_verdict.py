"""docs/verdict.md says what the policy and the table of pitfalls say."""

from __future__ import annotations

import re
from typing import get_args

from specdec_exporter.predictor.versions import KNOWN_PITFALLS
from specdec_exporter.speculation.policy import load_policy
from specdec_exporter.speculation.verdict import VerdictCode
from unit.test_docs import ROOT, rows, section

PAGE = (ROOT / "docs" / "verdict.md").read_text(encoding="utf-8")
POLICY = load_policy()
VERDICTS = rows(PAGE, "Verdict")


def test_every_verdict_is_explained_and_no_other() -> None:
    assert set(VERDICTS) == set(get_args(VerdictCode))


def test_a_verdict_has_the_number_that_the_rules_record() -> None:
    signals = (ROOT / "rules" / "baselines.libsonnet").read_text(encoding="utf-8")
    (text,) = re.findall(r"help: '(0 idle.*?),\n      local enough", signals, re.DOTALL)
    numbered = {words: number for number, words in re.findall(r"(\d) ([a-z]+)", text)}
    names = {"does": "harmful"} | {name: name for name in ("idle", "healthy", "watch", "broken")}
    found = {names[words]: number for words, number in numbered.items() if words in names}
    documented = {code: row["Enum"] for code, row in VERDICTS.items() if row["Enum"] != "absent"}
    assert documented == found | {"not_paying": "3"}


def test_the_thresholds_are_the_policys() -> None:
    latency = POLICY.latency
    assert f"below {POLICY.acceptance_ratio_broken:g}" in VERDICTS["broken"]["When"]
    assert f"above {latency.harmful_ratio:g} times" in VERDICTS["harmful"]["When"]
    assert f"below {latency.speedup_min:g}" in VERDICTS["not_paying"]["When"]
    assert f"fewer than {POLICY.min_drafts} drafts" in VERDICTS["unknown"]["When"]
    acceptance = " ".join(section(PAGE, "Acceptance: an estimate").split())
    assert f"above {POLICY.acceptance_ratio_suspicious:g} with at least {POLICY.suspicious_positions}" in acceptance
    assert f"position 0 below {POLICY.head_acceptance_ratio_min:g}" in acceptance
    assert f"position 1 below {POLICY.tail_acceptance_ratio_min:g}" in acceptance
    measured = section(PAGE, "Time: a measurement")
    assert f"z = {latency.z_score:g}, cv = {latency.time_per_output_token_cv:g}" in measured
    assert f"at least {latency.min_requests} requests" in measured


def test_every_method_has_its_thresholds() -> None:
    methods = rows(PAGE, "Method")
    assert set(methods) == {"any other, or not known", *POLICY.methods}
    for name, row in methods.items():
        policy = POLICY.for_method(name)
        expected = policy.acceptance_ratio_expected
        assert row["Minimum"] == f"{policy.acceptance_ratio_min:g}"
        assert row["Watch level"] == f"{policy.acceptance_ratio_watch:g}"
        assert row["Usual"] == ("-" if expected is None else f"{expected[0]:g} to {expected[1]:g}")


def test_every_pitfall_is_told_with_its_releases_and_what_to_do() -> None:
    found = {code: (row["Releases"], row["Meaning"], row["What to do"]) for code, row in rows(PAGE, "Pitfall").items()}
    assert found == {
        rule.pitfall.code: (rule.pitfall.releases, rule.pitfall.meaning, rule.pitfall.action) for rule in KNOWN_PITFALLS
    }
