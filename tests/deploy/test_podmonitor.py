"""What the PodMonitor's rules make of a pod's labels and the exporter's, in a real Prometheus."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from demo.processes import free_port, running
from deploy.asking import until
from deploy.manifests import KUBERNETES, read
from fieldtools import tool

SERVICE = "__meta_kubernetes_pod_label_serving_kserve_io_inferenceservice"


def as_prometheus_has_it(rules: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Relabelling as the operator writes it: the same keys in snake case."""
    return [{re.sub("[A-Z]", lambda up: f"_{up[0].lower()}", key): rule[key] for key in rule} for rule in rules]


@pytest.mark.debian
async def test_a_service_has_the_name_of_its_pods_even_where_nobody_told_the_exporter(tmp_path: Path) -> None:
    (endpoint,) = read(KUBERNETES / "monitoring/podmonitor.yaml")["spec"]["podMetricsEndpoints"]
    exporter_port, port = free_port(), free_port()
    target = {"targets": [f"127.0.0.1:{exporter_port}"], "labels": {SERVICE: "chat", "namespace": "prod"}}
    job = {
        "job_name": "monitoring/specdec-exporter",
        "scrape_interval": "1s",
        "static_configs": [target],
        "relabel_configs": as_prometheus_has_it(endpoint["relabelings"]),
        "metric_relabel_configs": as_prometheus_has_it(endpoint["metricRelabelings"]),
    }
    (tmp_path / "prometheus.yaml").write_text(yaml.safe_dump({"scrape_configs": [job]}), encoding="utf-8")
    serve = [
        *(sys.executable, "-m", "specdec_exporter", "serve"),
        f"--web.listen-address=127.0.0.1:{exporter_port}",
        "--predictor.url=http://127.0.0.1:1",  # nobody answers, which `specdec_up` says
    ]
    prometheus = [
        tool("prometheus"),
        f"--config.file={tmp_path}/prometheus.yaml",
        f"--storage.tsdb.path={tmp_path}/data",
        f"--web.listen-address=127.0.0.1:{port}",
    ]
    async with (
        running("exporter", serve, port=exporter_port, ready="/-/ready", directory=tmp_path),
        running("prometheus", prometheus, port=port, ready="/-/ready", directory=tmp_path) as server,
    ):
        found = await until(server.url, "/api/v1/query?query=specdec_up", lambda data: data["result"])

    (sample,) = found["result"]
    labels = sample["metric"]
    assert (labels["namespace"], labels["inference_service"]) == ("prod", "chat")
    assert [name for name in labels if name.startswith("exported_")] == []
