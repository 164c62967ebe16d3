"""What alertmanager/README.md names is there."""

from __future__ import annotations

import re

import pytest

from alertmanager.catalogue import rules
from alertmanager.test_configuration import KINDS, rendered_with
from support.fieldtools import ROOT

README = ROOT / "alertmanager" / "README.md"


@pytest.fixture(scope="module")
def text() -> str:
    return README.read_text(encoding="utf-8")


def test_its_alerts_exist(text: str) -> None:
    named = set(re.findall(r"SpecDecode\w+", text))

    assert len(named) >= 5
    assert named <= {rule.name for rule in rules()}


def test_it_names_every_secret(text: str) -> None:
    named = " ".join(str(rendered_with(f"{{ alertmanager+: {{ chat: ['{kind}'] }} }}")["fragment"]) for kind in KINDS)
    secrets = set(re.findall(r"/etc/alertmanager/secrets/([\w-]+)", named))

    assert len(secrets) == len(KINDS)
    assert [secret for secret in secrets if f"`{secret}`" not in text] == []
