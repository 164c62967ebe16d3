"""What fuzzing once found stays mended, and every target of the fuzzer runs. ``make fuzz`` tries many more inputs."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path

import pytest

from fuzz import run
from fuzz.mutation import Mutator
from fuzz.targets import TARGETS

FOUND = sorted(path for path in run.FOUND.glob("*/*") if path.is_file())


@pytest.mark.parametrize("path", FOUND, ids=lambda path: f"{path.parent.name}/{path.name}")
def test_what_fuzzing_found_stays_mended(path: Path) -> None:
    assert run.finding(run.target_of(path), path.read_bytes()) is None


@pytest.mark.parametrize("name", TARGETS)
def test_every_target_takes_real_inputs_and_a_few_changed_ones(name: str) -> None:
    target = TARGETS[name]
    seeds = target.seeds()
    mutator = Mutator(random.Random(name), seeds, target.words, target.largest)
    for data in (*seeds[:2], *(mutator.next() for _ in range(20))):
        assert run.finding(target, data) is None


def test_an_input_that_takes_too_long_is_a_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    def endless(_: bytes) -> None:
        while True:
            pass

    monkeypatch.setattr(run, "HANG_SECONDS", 0.01)
    assert "Hang" in (run.finding(replace(TARGETS["log line"], check=endless), b"") or "")
