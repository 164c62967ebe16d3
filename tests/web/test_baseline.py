"""The baseline of a running exporter: served, reloaded, refused."""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from specdec_exporter.baseline.file import Baseline, Context
from specdec_exporter.baseline.recording import Recorder, with_increases
from specdec_exporter.baseline.writing import to_yaml
from specdec_exporter.predictor.metrics.exposition import parse_exposition
from support.builders import CAPTURES
from support.running import Exporter, Predictor, exporter, predictor

FIRST = (CAPTURES / "0.32.0-draft_model-k3/metrics-8-p90.txt").read_bytes()
RESTARTED = FIRST.replace(b"process_start_time_seconds 1.79521", b"process_start_time_seconds 2.79521")
MODEL = 'inference_service="default",model_name="tiny"'
RATIO = f"specdec_baseline_acceptance_ratio{{{MODEL}}}"
RELOADED = "specdec_exporter_config_last_reload_successful"


def baseline(**changes: Any) -> str:
    """A baseline of what the dump ``FIRST`` counts."""
    first = parse_exposition(FIRST)
    idle = parse_exposition(b'vllm:num_requests_running{model_name="tiny",engine="0"} 0\n')
    begun = msgspec.structs.replace(idle, process_start_time_seconds=first.process_start_time_seconds)
    recorder = Recorder(begun, 0.0)
    recorder.observe(first, 60.0)
    shell: dict[str, Any] = {"name": "first", "model_name": "tiny", "context": Context(hardware="1x L4")}
    whole = Baseline(recorded_at="2026-01-31T12:00:00Z", duration_seconds=60.0, **(shell | changes))
    return to_yaml(with_increases(whole, recorder.increases()))


async def shown(running: Exporter) -> list[Any]:
    return [each["baseline"] for each in json.loads(await running.get("/api/v1/status"))["predictors"]]


@contextlib.asynccontextmanager
async def serving(folder: Path, **changes: Any) -> AsyncIterator[tuple[Predictor, Exporter]]:
    """A predictor that answers ``FIRST``, and an exporter with a baseline of it."""
    path = folder / "base.yaml"
    path.write_text(baseline(**changes))
    async with predictor(FIRST) as vllm, exporter(f"--predictor.url={vllm.url}", f"--baseline.file={path}") as running:
        yield vllm, running


async def test_a_baseline_is_served_as_it_was_recorded_with_the_buckets_of_its_tail(tmp_path: Path) -> None:
    async with serving(tmp_path) as (_, running):
        samples = await running.samples()
        (status,) = await shown(running)
    live = {
        series.replace("specdec_", "specdec_baseline_", 1).replace('engine="0",', ""): value
        for series, value in samples.items()
        if series.startswith("specdec_time_per_output_token")
    }
    served = {series: value for series, value in samples.items() if series in live}
    assert served == {series: round(live[series], 9) for series in served}
    buckets = re.compile(r"_bucket{.*")
    assert {buckets.sub("", series) for series in served} == {buckets.sub("", series) for series in live}
    assert len(served) < len(live) / 2
    for sli, name in (("tpot", "time_per_output_token"), ("ttft", "time_to_first_token"), ("e2e", "request_latency")):
        total, count = (samples[f'specdec_{name}_seconds_{part}{{engine="0",{MODEL}}}'] for part in ("sum", "count"))
        mean = f'specdec_baseline_latency_seconds{{{MODEL},sli="{sli}",stat="mean"}}'
        assert samples[mean] == pytest.approx(total / count)
    assert samples[RATIO] == 1136 / 1392
    assert samples[f"specdec_baseline_recorded_timestamp_seconds{{{MODEL}}}"] == 1769860800
    assert (status["name"], status["served"], status["refusal"]) == ("first", True, None)
    assert status["remarks"][:2] == ["model not given (--model)", "runtime not given (--runtime)"]


async def test_a_reload_takes_a_new_baseline_and_keeps_the_old_one_if_it_is_bad(tmp_path: Path) -> None:
    path, log = tmp_path / "base.yaml", tmp_path / "vllm.log"
    path.write_text(baseline())
    log.write_bytes((CAPTURES / "0.32.0-draft_model-k3/server.log").read_bytes())
    arguments = (f"--baseline.file={path}", f"--predictor.log-path={log}", "--predictor.log-from=start")
    async with predictor(FIRST) as vllm, exporter(f"--predictor.url={vllm.url}", *arguments) as running:
        lines = 'specdec_log_windows_total{engine="0",inference_service="default",model_name="tiny"}'
        before = await running.until(lambda samples: samples.get(lines, 0) > 0)
        path.write_text(baseline(name="second"))
        samples = await running.reloaded("configuration loaded")
        assert [series for series in samples if 'name="second"' in series]
        assert samples[lines] >= before[lines]  # the predictor's log was not read anew
        path.write_text(baseline().replace("name:", "nmae:"))
        samples = await running.reloaded(f"{path}: nmae: unknown key, expected one of")
        assert samples[RELOADED] == 0
        assert [series for series in samples if 'name="second"' in series]
        path.write_text(baseline(name="third"))
        samples = await running.reloaded("configuration loaded")
        assert samples[RELOADED] == 1
        assert [series for series in samples if 'name="third"' in series]


async def test_a_baseline_of_another_model_is_refused_and_said_once(tmp_path: Path) -> None:
    async with serving(tmp_path, model_name="large") as (vllm, running):
        for _ in range(3):
            assert not [series for series in await running.samples() if "baseline" in series]
        (status,) = await shown(running)
        assert (status["served"], status["refusal"]) == (False, "it is of model 'large', the predictor serves tiny")
        vllm.body = RESTARTED.replace(b'"tiny"', b'"large"')
        assert [series for series in await running.samples() if "baseline_acceptance_ratio" in series]
        await running.said("baseline is served")
        assert len([line for line in running.log if "baseline is not served" in line]) == 1


async def test_each_predictor_of_a_file_has_its_own(tmp_path: Path) -> None:
    path, config = tmp_path / "base.yaml", tmp_path / "specdec.yaml"
    path.write_text(baseline())
    async with predictor(FIRST) as vllm:
        config.write_text(
            f"predictors: [{{name: one, url: '{vllm.url}', baseline: '{path}'}}, {{name: two, url: '{vllm.url}'}}]"
        )
        async with exporter(f"--config.file={config}") as running:
            found = [series for series in await running.samples() if "baseline_acceptance_ratio" in series]
            assert [each and each["name"] for each in await shown(running)] == ["first", None]
    assert found == ['specdec_baseline_acceptance_ratio{inference_service="one",model_name="tiny"}']
