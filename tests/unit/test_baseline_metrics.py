"""A pinned baseline beside a predictor: its families, whole, and whether it fits.

After a deliberate change: ``pytest tests/unit/test_baseline_metrics.py --update-golden`` and read the diff.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from specdec_exporter.baseline.file import Baseline, Context
from specdec_exporter.baseline.pinned import PinnedBaseline, fit
from specdec_exporter.baseline.writing import write_baseline
from specdec_exporter.config import PredictorSettings
from specdec_exporter.histogram import Histogram
from specdec_exporter.predictor.metrics.exposition import parse_exposition
from specdec_exporter.speculation.acceptance import Counts
from specdec_exporter.speculation.evidence import DecodingBaseline
from specdec_exporter.state.observing import observe_snapshot, pin
from specdec_exporter.state.record import PredictorState
from support.builders import CAPTURES, engine, exposed, latency, snapshot

DUMP = CAPTURES / "0.32.0-draft_model-k3/metrics-8-p90.txt"
INF = float("inf")
WITHOUT_SPECULATION = Baseline(
    name="no speculation",
    recorded_at="2026-01-31T12:00:00Z",
    duration_seconds=1800.0,
    context=Context(hardware="1x L4", model="org/tiny", runtime="vLLM 0.32.0", command="vllm serve --api-key secret"),
    vllm_version="0.32.0",
    model_name="tiny",
    time_to_first_token_seconds=Histogram((0.001, 1.0, 2560.0, INF), (1.0, 90.0, 100.0, 100.0), 99.5),
    time_per_output_token_seconds=latency(100),
    requests_finished=100.0,
)
WITH_SPECULATION = msgspec.structs.replace(
    WITHOUT_SPECULATION,
    name="k = 3",
    method="eagle3",
    request_latency_seconds=latency(100),
    counts=Counts(100.0, 300.0, 180.0, (90.0, 60.0, 30.0), prompt_tokens=81_250.0, first_tokens=100.0),
)


async def render(path: Path) -> str:
    """The baseline's part of the exposition beside the predictor of the dump."""
    settings = PredictorSettings(name="svc", baseline=str(path))
    lines = await exposed(settings, lambda predictor: predictor.observe(parse_exposition(DUMP.read_bytes())))
    return "".join(line for line in lines if re.match(r"(# (HELP|TYPE) )?specdec_baseline_", line))


@pytest.mark.parametrize(
    ("name", "baseline"), [("baseline", WITH_SPECULATION), ("baseline-no-speculation", WITHOUT_SPECULATION)]
)
async def test_the_families_are_the_golden_ones(
    name: str, baseline: Baseline, tmp_path: Path, golden: Callable[[str, str], None]
) -> None:
    path = tmp_path / "base.yaml"
    write_baseline(str(path), baseline)
    text = await render(path)
    golden(name, text)
    assert "secret" not in text


def test_a_baseline_that_names_no_model_is_of_the_only_one_there_is() -> None:
    nameless = msgspec.structs.replace(WITH_SPECULATION, model_name=None)
    assert fit(nameless, snapshot(engine(model="large")), None).model_name == "large"
    refused = fit(nameless, snapshot(engine(model="large"), engine(model="tiny")), None)
    assert refused.refusal == "it has no model_name, and the predictor serves several: large, tiny"


def test_the_verdict_gets_the_mean_only_while_the_baseline_fits(tmp_path: Path) -> None:
    path = tmp_path / "base.yaml"
    write_baseline(str(path), WITHOUT_SPECULATION)
    state = PredictorState("svc")
    pin(state, PinnedBaseline(str(path)))
    decoding = [state.baseline]
    for answer in (snapshot(engine()), snapshot(engine(model="large"))):
        observe_snapshot(state, answer)
        decoding.append(state.baseline)
    assert decoding == [
        None,
        DecodingBaseline(0.04, 100.0, speculative=False, model_name="tiny", times=latency(100), seconds=1800.0),
        None,
    ]
    observe_snapshot(state, snapshot())  # a predictor that shows no engine says nothing new
    assert state.fit.refusal == "it is of model 'tiny', the predictor serves large"


async def test_a_baseline_of_drafts_that_were_verified_in_part_has_no_acceptance_rate(tmp_path: Path) -> None:
    """It counts as one with speculation all the same: its times are no times without drafts."""
    command = """vllm serve m --speculative-config '{"enable_adaptive_verification": true}'"""
    context = msgspec.structs.replace(WITH_SPECULATION.context, command=command)
    path = tmp_path / "base.yaml"
    write_baseline(str(path), msgspec.structs.replace(WITH_SPECULATION, context=context))
    text = await render(path)
    assert "specdec_baseline_acceptance_ratio{" not in text
    assert 'specdec_baseline_mean_acceptance_length{inference_service="svc",model_name="tiny"} 2.8' in text
    decoding = PinnedBaseline(str(path)).decoding("tiny")
    assert decoding is not None
    assert (decoding.speculative, decoding.step_times, decoding.mean_prompt_tokens) == (True, None, 812.5)
