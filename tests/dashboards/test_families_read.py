"""The families that rules and dashboards read keep their names, types and labels: a change shows in one golden file."""

from __future__ import annotations

import re

import metrictables
import rulelint
from dashboards.test_usage import RULES, names, read_by_dashboards
from fieldtools import ROOT

READ = ROOT / "tests" / "golden" / "families-read.txt"


def test_the_families_that_are_read_are_served_as_they_were() -> None:
    rules = rulelint.load(RULES / "specdec.rules.yaml", {}).rules
    series = read_by_dashboards() | {name for rule in rules for name in names(rule.expr)}
    read = {re.sub(r"_(bucket|sum|count)$", "", name) for name in series if re.match(r"specdec_[a-z_]+$", name)}
    served = {
        family.name: f"{family.name} {family.type} {','.join((*group.labels, *family.labels))}"
        for _, groups in metrictables.FAMILIES.values()
        for group in groups
        for family in group.families
    }

    assert [served.get(name, f"{name} is not served") for name in sorted(read)] == READ.read_text().splitlines()
