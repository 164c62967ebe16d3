"""A simulated predictor trims drafts in busy hours and nobody is woken: simulator, exporter, rules in Prometheus."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import rjsonnet

from bench.alert_replay import RULES, Samples, replay
from dashboards.traces import END, START, Replica, collect
from demo.simulator.engine import Engine
from demo.simulator.exposition import render_metrics
from demo.simulator.scenario import ChangeLoad
from demo.simulator.settings import LatencyModel, SimulatorSettings
from promtool import REPOSITORY

pytestmark = [pytest.mark.debian, pytest.mark.slow]

# All of a draft is verified while one request is in decode, and one token of it while there are eight.
TRIMMED = SimulatorSettings(
    vllm_version="0.33.0",
    acceptance=(0.72, 0.52, 0.37),
    load=1,
    latency=LatencyModel(step_seconds=0.1, draft_token_seconds=0.0025, batched_token_seconds=0.0135),
    incidents=(ChangeLoad(at=100 * 60, load=8),),
    adaptive_verification=True,
)
REPLICA = Replica(service="trimmed", pod="pod-0", settings=TRIMMED)


def of_exporter() -> list[Samples]:
    return [
        Samples(name + "{" + ",".join(f'{label}="{text}"' for label, text in labels) + "}", *zip(*points, strict=True))
        for (name, labels), points in collect([REPLICA]).items()
    ]


def of_vllm() -> list[Samples]:
    """What Prometheus scrapes from the predictor itself."""
    engine = Engine(TRIMMED, start_unix=START)
    found: dict[str, tuple[list[int], list[float]]] = {}
    target = ",".join(f'{name}="{text}"' for name, text in (REPLICA.target | {"inference_service": "trimmed"}).items())
    for at in range(START + 60, END + 1, 60):
        engine.advance(60)
        for line in render_metrics(engine).decode().splitlines():
            if line.startswith("vllm:"):
                series, _, value = line.replace("{", f"{{{target},", 1).rpartition(" ")
                times, values = found.setdefault(series, ([], []))
                times.append(at)
                values.append(float(value))
    return [Samples(series, *points) for series, points in found.items()]


def rules_that_are_told(folder: Path) -> Path:
    """The rules without the exporter: only its operator knows what vLLM verifies."""
    snippet = """
        local mixin = (import 'mixin.libsonnet') + { _config+:: {
          source: 'vllm', vllm_adaptive_verification_selector: 'inference_service="trimmed"',
        } };
        { groups: mixin.prometheusRules.groups + mixin.prometheusAlerts.groups }
    """
    path = folder / "told.rules.yaml"
    path.write_text(json.dumps(json.loads(rjsonnet.evaluate_snippet("", snippet, jpathdir=[str(REPOSITORY)]))))
    return path


def of_another_server(samples: Samples) -> Samples:
    """The same counters, where all is verified: there they mean what they say."""
    series = samples.series.replace('"trimmed"', '"whole"').replace('verification="adaptive"', 'verification="full"')
    return Samples(series, samples.at, samples.values)


@pytest.mark.parametrize("source", ["exporter", "vllm"])
def test_busy_hours_wake_nobody(source: str, tmp_path: Path) -> None:
    trimmed = of_exporter() if source == "exporter" else of_vllm()
    rules = RULES if source == "exporter" else rules_that_are_told(tmp_path)
    whole = [of_another_server(each) for each in trimmed if '"trimmed"' in each.series]
    fired = replay([*trimmed, *whole], tmp_path, (START + 1800, END), rules=rules)
    assert ("SpecDecodeAcceptanceLow", "warning") in {(each.alert, each.severity) for each in fired["whole"]}
    assert fired.get("trimmed", []) == []
