"""What fuzzing once found stays mended, and every target of the fuzzer runs. ``make fuzz`` tries many more inputs."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path

import pytest

from fuzz import run
from fuzz.mutation import Mutator, pieces
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


def test_a_fault_is_found_and_kept_with_the_command_that_repeats_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fragile(data: bytes) -> None:
        assert b"NaN" not in data, "cannot read NaN"

    monkeypatch.setattr(run, "FOUND", tmp_path)
    target = replace(TARGETS["log line"], check=fragile)
    mutator = Mutator(random.Random(1), target.seeds(), target.words, target.largest)
    inputs = (mutator.next() for _ in range(10_000))
    found = next(data for data in inputs if run.finding(target, data))
    run.keep(target.name, found, run.finding(target, found) or "")
    (kept,) = tmp_path.glob("log-line/*")
    assert kept.read_bytes() == found
    assert f"--repeat {kept}" in capsys.readouterr().out
    assert run.target_of(kept) is TARGETS["log line"]


def test_an_input_that_takes_too_long_is_a_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    def endless(_: bytes) -> None:
        while True:
            pass

    monkeypatch.setattr(run, "HANG_SECONDS", 0.01)
    assert "Hang" in (run.finding(replace(TARGETS["log line"], check=endless), b"") or "")


def test_equal_seeds_give_equal_inputs_within_the_bound() -> None:
    target = TARGETS["log line"]
    one, two = (Mutator(random.Random(7), target.seeds(), target.words, 5000) for _ in range(2))
    inputs = [one.next() for _ in range(300)]
    assert inputs == [two.next() for _ in range(300)]
    assert max(map(len, inputs)) <= 5000
    assert all(b"".join(pieces(data, random.Random(1), 7)) == data for data in inputs[:20])
