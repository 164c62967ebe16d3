"""What the pages say of limits: they are those of bounds.py."""

from __future__ import annotations

import re

import pytest

from specdec_exporter import bounds
from support.fieldtools import ROOT

THREATS = ROOT / "docs" / "evidence" / "threats.md"
UNITS = {"": 1, "KiB": 1024, "MiB": 1024 * 1024}


@pytest.mark.parametrize("page", ["evidence/threats.md", "limits.md", "read-a-log.md"])
def test_limits_are_those_of_the_code(page: str) -> None:
    text = (ROOT / "docs" / page).read_text()
    found = re.findall(r"([\d,.]+) ?(KiB|MiB|) \(`([A-Z_]+)`\)", text)
    assert len(found) == len(re.findall(r"\(`[A-Z_]+`\)", text)) > 0
    for number, unit, name in found:
        assert float(number.replace(",", "")) * UNITS[unit] == getattr(bounds, name), name


def test_no_limit_stands_there_without_its_name() -> None:
    page = THREATS.read_text()
    assert len(re.findall(r"\d (?:KiB|MiB|GiB)", page)) == len(re.findall(r"\d (?:KiB|MiB|GiB) \(`[A-Z_]+`\)", page))
