"""Inference engines other than vLLM, by what their own code wrote of numbers that were fed to it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from specdec_exporter.predictor.engines.engine import ENGINES, VLLM
from specdec_exporter.predictor.metrics.exposition import parse_exposition
from specdec_exporter.predictor.metrics.snapshot import Snapshot
from specdec_exporter.speculation.acceptance import Counts
from specdec_exporter.speculation.figures import timed_counts_of
from specdec_exporter.state.observing import observe_snapshot
from specdec_exporter.state.record import PredictorState
from specdec_exporter.state.report import status_of
from support.builders import FIXTURES, Clock, known

ENGINE_CAPTURES = FIXTURES / "engines"
RECORDED = sorted(path.parent for path in ENGINE_CAPTURES.glob("*/*/truth.json"))


def truth(capture: Path) -> dict[str, Any]:
    told: dict[str, Any] = json.loads((capture / "truth.json").read_text(encoding="utf-8"))
    return told


def dumps() -> Iterator[Any]:
    for capture in RECORDED:
        for name, fed in truth(capture)["dumps"].items():
            yield pytest.param(capture, name, fed, id=f"{capture.parent.name}-{capture.name}-{name}")


def read(capture: Path, name: str) -> Snapshot:
    return parse_exposition((capture / name).read_bytes())


def told(snapshot: Snapshot) -> Counts:
    """The counts of the one engine of a dump."""
    (engine,) = snapshot.engines
    return timed_counts_of(engine)


def test_every_engine_that_is_read_has_a_capture() -> None:
    assert {path.parent.name for path in RECORDED} == {
        code for code, engine in ENGINES.items() if engine.is_read and engine is not VLLM
    }


@pytest.mark.parametrize(("capture", "name", "fed"), list(dumps()))
def test_an_engine_counts_what_it_was_fed(capture: Path, name: str, fed: dict[str, Any]) -> None:
    snapshot = read(capture, name)
    assert known(snapshot.inference_engine).code == capture.parent.name
    assert not snapshot.dropped
    if not any(fed.values()):
        assert not any(engine.draft_tokens or engine.generation_tokens for engine in snapshot.engines)
        return
    counts = told(snapshot)
    for field, value in fed.items():
        counted = getattr(counts, field)
        if isinstance(value, list):
            assert counted in ((), tuple(value))
            assert counted or not any(value)
        elif counted is not None or value:
            assert counted == pytest.approx(value)


@pytest.mark.parametrize("capture", RECORDED, ids=lambda path: f"{path.parent.name}-{path.name}")
def test_what_is_served_of_an_engine_follows_from_its_counts(
    capture: Path, state: PredictorState, clock: Clock
) -> None:
    fed = truth(capture)["dumps"]
    for name in fed:
        observe_snapshot(state, read(capture, name))
        clock.advance(60)
    clock.advance(-60)
    last, engine, status = list(fed.values())[-1], ENGINES[capture.parent.name], status_of(state)
    assert status.inference_engine == engine.name
    assert [note.meaning for note in status.pitfalls if note.code == "untold"] == [f"{engine.untold}."]
    assert not [note for note in status.pitfalls if note.releases]  # those are vLLM's
    if "drafts" not in last:  # SGLang before 0.5.13
        assert (status.state, status.verdict.code, status.lifetime) == ("drafting", "unknown", None)
        assert "tokens a step in the last interval" in status.verdict.reasons[0]
        return
    if not last["drafts"]:
        assert status.state == "speculation_off"
        assert status.verdict.code == ("unknown" if engine.counts_without_speculation else "off")
        return
    assert status.state == "drafting"
    assert status.num_speculative_tokens in (truth(capture)["num_speculative_tokens"], None)
    lifetime = known(status.lifetime)
    assert lifetime.mean_acceptance_length == pytest.approx(1 + last["accepted_tokens"] / last["drafts"])
    drafted = last.get("draft_tokens")
    assert lifetime.acceptance_ratio == (pytest.approx(last["accepted_tokens"] / drafted) if drafted else None)
    positions = last.get("accepted_per_position", [])
    reached = last.get("drafted_per_position") or [last["drafts"]] * len(positions)
    assert lifetime.per_position == pytest.approx([a / d for a, d in zip(positions, reached, strict=True)])
