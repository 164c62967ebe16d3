"""``tools/refusals.py``: what a source refuses, and what of it is known."""

from __future__ import annotations

from pathlib import Path

import pytest

import refusals
from specdec_exporter.predictor.facts.failures import known_cause

SPECULATIVE = """
class SpeculativeConfig:
    k: int = Field(default=None, gt=0)
    name: str = Field(default="")

    def verify(self):
        if self.method == "a":
            raise ValueError(f"k={self.k} " "is too large")
        elif self.k:
            try:
                check()
            except KeyError as error:
                raise error from None
"""
WHOLE = """
class VllmConfig:
    def verify(self):
        if self.model is None:
            raise ValueError("No model")
        if self.speculative_config is None:
            return
        raise NotImplementedError("Not both")

    def lacks(self):
        if self.lora:
            unsupported.append("LoRA")
        if self.draft:
            unsupported.append("drafts")
"""


@pytest.fixture
def source(tmp_path: Path) -> Path:
    for name, content in zip(refusals.FILES, (SPECULATIVE, WHOLE), strict=True):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
    return tmp_path


def test_refusals_are_listed_with_the_conditions_that_lead_there(source: Path) -> None:
    first, second = refusals.FILES
    assert refusals.refusals(source) == [
        (f"{first}:3", "field k: gt=0", ()),
        (f"{first}:8", "k={} is too large", ("self.method == 'a'",)),
        (f"{first}:13", "error", ("not (self.method == 'a')", "self.k")),
        (f"{second}:8", "Not both", ("not (self.speculative_config is None)",)),
        (f"{second}:14", "unsupported: drafts", ("self.draft",)),
    ]


def test_new_and_vanished_refusals_are_told(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    waived = tmp_path / "refusals.yaml"
    monkeypatch.setattr(refusals, "WAIVED", waived)
    every = 'vLLM says so: ["field k: gt=0", "k=*", error, "Not both", "unsupported: drafts"]'
    waived.write_text(every)
    assert refusals.main([str(source)]) == 0
    waived.write_text(every.replace('"k=*", ', "").replace("Not both", "Not three"))
    assert refusals.main([str(source)]) == 1
    told = capsys.readouterr().out
    assert f"{source}: 5 refusals, 0 explained by doctor, 2 new" in told
    assert "new vllm/config/speculative.py:8: k={} is too large\n      if self.method == 'a'\n" in told
    assert "gone: Not three" in told


def test_what_doctor_explains_is_known() -> None:
    refusal = refusals.Refusal("", "num_speculative_tokens:{} must be divisible by n_predict={}", ())
    assert refusals.known(refusal, ()) == "num_speculative_tokens_no_multiple"


def test_the_list_has_each_refusal_once_and_none_that_doctor_explains() -> None:
    reasons = refusals.read_reasons()
    texts = [text for listed in reasons.values() for text in listed]
    assert all(reasons)
    assert len(set(texts)) == len(texts) > 50
    assert [text for text in texts if known_cause(text)] == []
