"""Speculation that pays, and the same that does not, on a real server: ``compare`` and the rule pack say so alike."""

from __future__ import annotations

import asyncio
import dataclasses
import json
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from promtool import REPOSITORY, promtool
from rules.scenario import Case, Pack, Series
from rules.test_verdict import as_series
from running import exporter
from specdec_exporter.baseline.reading import read_baseline
from specdec_exporter.speculation.policy import load_policy
from vllm import saturated
from vllm.checkpoints import write_checkpoints
from vllm.exporter import SERVICE_NAME, run_command
from vllm.language import Language
from vllm.server import Installation, Server, running

pytestmark = pytest.mark.nightly

REQUESTS: Final = 210  # compare decides from 200 on
HIGH, LOW = 1.0, 0.0  # shares of the successors that the draft model knows
SHARES: Final = {"high": HIGH, "low": LOW}
RULES: Final = REPOSITORY / "rules" / "rendered" / "specdec.rules.yaml"
MINUTE: Final = 40  # of as_series, whose counters grow by one recording in each window of 30 minutes
SLIS: Final = {"time_per_output_token": "tpot", "time_to_first_token": "ttft", "request_latency": "e2e"}


@dataclasses.dataclass(frozen=True, slots=True)
class Recorded:
    """Baseline files by what was recorded, and the exporter's ``/metrics`` before and after those of a draft model."""

    files: dict[str, Path]
    served: dict[str, tuple[str, str]]


@pytest.fixture(scope="module")
def recorded(installation: Installation, language: Language, tmp_path_factory: pytest.TempPathFactory) -> Recorded:
    directory = tmp_path_factory.mktemp("compare")
    models = directory / "models"
    models.mkdir()
    write_checkpoints(models, language, target_layers=saturated.TARGET_LAYERS)
    files = {name: directory / f"{name}.yaml" for name in ("plain", *SHARES)}
    with running(saturated.server(saturated.PLAIN, installation, models=models, directory=directory)) as plain:
        saturated.warm_up(plain, share=HIGH)
        saturated.record(plain, files["plain"], share=HIGH, requests=REQUESTS)
    with running(saturated.server(saturated.DRAFT_MODEL, installation, models=models, directory=directory)) as drafting:
        saturated.warm_up(drafting, share=HIGH)
        served = asyncio.run(record_beside_the_exporter(drafting, files))
    return Recorded(files, served)


async def record_beside_the_exporter(server: Server, files: dict[str, Path]) -> dict[str, tuple[str, str]]:
    """Record high and low acceptance while the exporter serves the baseline; what it served before and after each."""
    served = {}
    arguments = (
        f"--predictor.url={server.url}",
        f"--predictor.log-path={server.log_path}",
        f"--predictor.name={SERVICE_NAME}",
        f"--baseline.file={files['plain']}",
    )
    async with exporter(*arguments) as beside:
        # The method is known when the log is read.
        await beside.until(lambda samples: any('method="draft_model"' in series for series in samples))
        for name, share in SHARES.items():
            before = await beside.get("/metrics")
            await asyncio.to_thread(saturated.record, server, files[name], share=share, requests=REQUESTS)
            served[name] = (before, await beside.get("/metrics"))
    return served


def compare(recorded: Recorded, candidate: str) -> dict[str, Any]:
    files = map(str, (recorded.files["plain"], recorded.files[candidate]))
    result = run_command("compare", *files, "--output", "json")
    assert result.returncode == 0, result.stderr
    comparison: dict[str, Any] = json.loads(result.stdout)
    return comparison


@pytest.mark.parametrize(("candidate", "decision"), [("high", "faster"), ("low", "slower")])
def test_the_decision_turns_with_acceptance(recorded: Recorded, candidate: str, decision: str) -> None:
    comparison = compare(recorded, candidate)
    assert comparison["decision"]["code"] == decision, comparison["decision"]
    outcomes = {latency["sli"]: latency["outcome"] for latency in comparison["latencies"]}
    # Waiting scatters more than decoding does, and a recording of some seconds has few blocks to tell chance by.
    assert outcomes["time_per_output_token"] == decision
    assert {"high": "slower", "low": "faster"}[candidate] not in outcomes.values()
    assert comparison["decision"]["regression"] is (decision == "slower")
    reasons = "\n".join(comparison["decision"]["reasons"])
    assert "time per output token" in reasons
    assert "acceptance of the candidate" in reasons
    assert comparison["decision"]["action"]


@pytest.mark.parametrize(("candidate", "acceptance", "length"), [("high", 1.0, 1.0 + saturated.K), ("low", 0.0, 1.0)])
def test_the_figures_are_those_that_the_traffic_chose(
    recorded: Recorded, candidate: str, acceptance: float, length: float
) -> None:
    comparison = compare(recorded, candidate)
    assert comparison["candidate"]["method"] == "draft_model"
    assert comparison["candidate"]["requests"] == REQUESTS
    assert comparison["candidate"]["acceptance_ratio"]["value"] == pytest.approx(acceptance)
    assert comparison["candidate"]["mean_acceptance_length"]["value"] == pytest.approx(length)
    speedup = comparison["speedup"]
    assert speedup["ceiling"] == pytest.approx(length)
    assert speedup["realised"]["value"] < speedup["ceiling"]
    assert (speedup["realised"]["low"] > 1.0) is (candidate == "high")
    assert (speedup["realised"]["high"] < 1.0) is (candidate == "low")


def test_recordings_of_one_traffic_are_alike(recorded: Recorded) -> None:
    for candidate in SHARES:
        flags = {flag["code"] for flag in compare(recorded, candidate)["flags"]}
        blocks = {len(read_baseline(str(recorded.files[name])).blocks) for name in ("plain", candidate)}
        short = {"few_blocks"} if min(blocks) < load_policy().latency.enough_blocks else set()
        # Whether the steps of a longer recording wander, and how long requests wait to begin, is up to the machine.
        assert flags - {"blocks_correlated", "first_token_bound"} == {"context_missing", "interrupted"} | short


def test_the_served_baseline_gives_the_rules_the_values_of_compare(recorded: Recorded, tmp_path: Path) -> None:
    groups = yaml.safe_load(RULES.read_text())["groups"]
    records = tmp_path / "records.yaml"
    records.write_text(yaml.safe_dump({"groups": [group for group in groups if "record" in group["rules"][0]]}))
    cases = []
    for candidate, exposed in recorded.served.items():
        values: dict[str, float | None] = {}
        for latency in compare(recorded, candidate)["latencies"]:
            labels = f'inference_service="{SERVICE_NAME}", sli="{SLIS[latency["sli"]]}"'
            now, then = (f"inference_service:specdec_latency_seconds:mean{each}" for each in ("30m", "_baseline"))
            ratio = f"{now}{{{labels}}} / ignoring (baseline_source) {then}{{{labels}}}"
            values[ratio] = round(latency["mean_ratio"]["value"], 3)
            shift = f"inference_service:specdec_latency:tail_shift30m{{{labels}}}"
            values[shift] = round(latency["tail_shift"]["share"], 3)
        if candidate == "low":
            assert any(value for expression, value in values.items() if "tail_shift" in expression), values
        cases.append(Case(name=candidate, series=series(*exposed), values={MINUTE: values}))
    Pack(promtool(), records, tmp_path).run(*cases)


def series(before: str, after: str) -> list[Series]:
    """The series of the predictor; the rules need nothing of the exporter itself."""
    return [each for each in as_series(before, after) if "inference_service" in each.labels]
