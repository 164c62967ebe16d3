"""The cases of one run do not touch each other, and what is wrong with one of them is said with its name."""

from __future__ import annotations

import dataclasses

import pytest

from rules.scenario import CONTROL, Case, Pack, Phase, service
from support.promtool import PromtoolError

DOWN = {"SpecDecodeTargetDown critical"}
UP = 'count(ALERTS{alertname="SpecDecodeTargetDown", inference_service="chat"})'

down = Case(
    name="Nobody answers",
    series=service(Phase(minutes=12), Phase(minutes=10, up=False)),
    firing={10: set(), 20: DOWN},
    values={20: {UP: 1, "inference_service:specdec_acceptance:ratio30m": 0.8}},
)
# One name begins like the other; the control fires beside its service.
well = Case(name="nobody", series=service(Phase(minutes=22)), firing={20: set()}, values={20: {UP: None}})
beside = Case(
    name="The control is down",
    series=[*service(Phase(minutes=22)), *service(Phase(minutes=12), Phase(minutes=10, up=False), labels=CONTROL)],
    firing={20: DOWN},
)


def test_each_case_is_judged_by_its_own_services(pack: Pack) -> None:
    pack.run(down, well, beside)


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (dataclasses.replace(down, firing={20: set()}), "nobody-answers"),
        (dataclasses.replace(well, firing={20: DOWN}), r"\(nobody\[\.\]"),
        (dataclasses.replace(well, values={20: {UP: 1}}), r"nobody\.chat"),
    ],
)
def test_a_wrong_expectation_fails_with_the_name_of_its_case(wrong: Case, said: str, pack: Pack) -> None:
    with pytest.raises(PromtoolError, match=said):
        pack.run(*(case for case in (down, well) if case.name != wrong.name), wrong, beside)
