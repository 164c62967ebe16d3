"""Other collectors bring the sidecars' series as Prometheus does with the PodMonitors: the same names and labels."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import pytest
import yaml

from acted.asking import until
from acted.test_podmonitor import FOUND, discovered, job
from deploy.manifests import DEPLOY, KUBERNETES, read
from support.fieldtools import ROOT, run, tool
from support.processes import Server, beside, free_port
from support.running import exporter, predictor
from support.tsdb import prometheus_of

COLLECTORS = DEPLOY / "collectors"
BODY = ROOT / "tests/fixtures/captures/0.32.0-draft_model-k3/metrics-2-p30.txt"


@pytest.mark.field
def test_alloys_own_parser_and_printer_take_the_file_as_it_is() -> None:
    answer = run("alloyfmt", COLLECTORS / "config.alloy")
    assert answer.returncode == 0, answer.stdout


def test_alloy_selects_the_podmonitors_of_the_pack() -> None:
    label = '"app.kubernetes.io/name" = "specdec-exporter"'

    assert label in (COLLECTORS / "config.alloy").read_text(encoding="utf-8")
    for file in FOUND:
        assert read(KUBERNETES / file)["metadata"]["labels"]["app.kubernetes.io/name"] == "specdec-exporter"


@pytest.mark.nightly
def test_the_collector_takes_the_file_as_it_is() -> None:
    answer = run("otelcol", "validate", "--config", COLLECTORS / "otelcol.yaml")
    assert answer.returncode == 0, answer.stdout


def collecting(target: str, file: str, receiver: str, own_port: int) -> dict[str, Any]:
    """The collector's configuration with a pod in place of the cluster."""
    config: dict[str, Any] = read(COLLECTORS / "otelcol.yaml")
    (scrape,) = config["receivers"]["prometheus"]["config"]["scrape_configs"]
    assert scrape.pop("kubernetes_sd_configs") == [{"role": "pod"}]
    scrape |= {"scrape_interval": "1s", "static_configs": [discovered(target, file)]}
    config["exporters"]["prometheusremotewrite"]["endpoint"] = f"{receiver}/api/v1/write"
    own = {"pull": {"exporter": {"prometheus": {"host": "127.0.0.1", "port": own_port}}}}
    config["service"]["telemetry"] = {"metrics": {"readers": [own]}}
    return config


def series(data: Any) -> set[frozenset[tuple[str, str]]]:
    """Each series by its labels. Bounds of buckets by their value: the collector writes 40 for 40.0."""
    found = [sample["metric"] for sample in data["result"]]
    return {frozenset((one | ({"le": str(float(one["le"]))} if "le" in one else {})).items()) for one in found}


@pytest.mark.nightly
@pytest.mark.parametrize("file", FOUND)
async def test_the_collector_brings_the_same_series_as_prometheus(file: str, tmp_path: Path) -> None:
    own_port = free_port()
    query = '/api/v1/query?query={job="specdec-exporter",__name__=~"specdec_.%2B"}'

    def prometheus(name: str, config: Any) -> AbstractAsyncContextManager[Server]:
        text = yaml.safe_dump(config)
        return beside(**prometheus_of(tmp_path / name, text, "--web.enable-remote-write-receiver"))

    async with predictor(BODY.read_bytes()) as vllm, exporter("--predictor.url=" + vllm.url) as sidecar:
        target = sidecar.url.removeprefix("http://")
        own = {"scrape_configs": [job(target, file)]}
        async with prometheus("direct", own) as direct, prometheus("received", {}) as received:
            config = collecting(target, file, received.url, own_port)
            (tmp_path / "otelcol.yaml").write_text(yaml.safe_dump(config), encoding="utf-8")
            command = [tool("otelcol"), f"--config={tmp_path}/otelcol.yaml"]
            async with beside("otelcol", command, port=own_port, ready="/metrics", directory=tmp_path):
                expected = await until(direct.url, query, lambda data: data["result"])
                found = await until(received.url, query, lambda data: len(data["result"]) >= len(expected["result"]))

    assert {dict(one)["inference_service"] for one in series(expected)} == {FOUND[file][1]["inference_service"]}
    assert series(found) == series(expected)
