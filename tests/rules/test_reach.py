"""What a run leaves out of the rules is empty in it: the whole rules give the same records and alerts."""

from __future__ import annotations

import dataclasses

import pytest

from promtool import PromtoolError
from rules.scenario import CONTROL, NOWHERE, Case, Pack, Phase, Source, measured, pinned, service

EVERYTHING = '{__name__=~"inference_service:.+|ALERTS"}'
MINUTES = 45


@pytest.mark.parametrize("source", ["exporter", "vllm"])
def test_the_whole_rules_give_the_same(source: Source, pack: Pack, vllm_pack: Pack) -> None:
    def told(pack: Pack) -> str:
        """All records and alerts at the end: promtool prints them where a test expects nothing."""
        nothing = {"expr": EVERYTHING, "eval_time": f"{MINUTES - 1}m", "exp_samples": []}
        with pytest.raises(PromtoolError) as error:
            pack._test(cases, 4, 1, promql_expr_test=[nothing])
        return str(error.value)

    few, slow = Phase(minutes=MINUTES, curve=(0.5, 0.3, 0.2)), {"tpot": ((0.03, 1.0),)}
    plain = Phase(minutes=MINUTES, latency=slow)
    compared = service(plain, families=("tpot",), source=source)
    control = service(plain, families=("tpot",), source=source, speculative=False, labels=CONTROL)
    cases = [
        Case(name="drafts", series=service(few, source=source, labels=NOWHERE)),
        Case(name="control", series=compared + control),
    ]
    if source == "exporter":
        cases.append(Case(name="baseline", series=compared + pinned(MINUTES) + measured(MINUTES, 0.8, (0.7, 0.9))))
    reached = pack if source == "exporter" else vllm_pack

    found = told(reached)

    assert all(case.prefix in found for case in cases)
    assert "ALERTS" in found
    assert found == told(dataclasses.replace(reached, whole=True))
