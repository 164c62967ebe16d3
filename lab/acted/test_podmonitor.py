"""What the PodMonitor's rules make of a pod's labels and the exporter's, in a real Prometheus."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from acted.asking import until
from deploy.manifests import KUBERNETES, read
from support.running import exporter
from support.tsdb import prometheus

# The labels of a pod as Kubernetes discovery tells them, by PodMonitor; then what every series has.
FOUND = {
    "monitoring/podmonitor.yaml": (
        {"pod_label_serving_kserve_io_inferenceservice": "chat", "pod_controller_name": "chat-predictor-5d7f9"},
        {"inference_service": "chat", "revision": "chat-predictor-5d7f9"},
    ),
    "monitoring/podmonitor-llm.yaml": (
        {
            "pod_label_app_kubernetes_io_part_of": "llminferenceservice",
            "pod_label_app_kubernetes_io_name": "chat",
            "pod_label_llm_d_ai_role": "decode",
            "pod_controller_name": "chat-kserve-649dc",
        },
        {"inference_service": "chat", "llm_isvc_role": "decode", "revision": "chat-kserve-649dc"},
    ),
    "llm-d/podmonitor.yaml": (
        {
            "pod_label_llm_d_ai_model": "Qwen3-32B",
            "pod_label_llm_d_ai_role": "both",
            "pod_controller_name": "decode-5f6c",
        },
        {"inference_service": "Qwen3-32B", "llm_isvc_role": "both", "revision": "decode-5f6c"},
    ),
}


def as_prometheus_has_it(rules: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Relabelling as the operator writes it: the same keys in snake case."""
    return [{re.sub("[A-Z]", lambda up: f"_{up[0].lower()}", key): rule[key] for key in rule} for rule in rules]


OF_ALL_PODS = {"namespace": "prod", "pod_name": "chat-0", "pod_container_port_name": "specdec"}


def discovered(target: str, file: str) -> dict[str, Any]:
    labels = {f"__meta_kubernetes_{name}": value for name, value in (OF_ALL_PODS | FOUND[file][0]).items()}
    return {"targets": [target], "labels": labels}


def job(target: str, file: str) -> dict[str, Any]:
    """A pod as discovery tells it, in the scrape that a PodMonitor asks for."""
    (endpoint,) = read(KUBERNETES / file)["spec"]["podMetricsEndpoints"]
    named = [
        {"source_labels": [f"__meta_kubernetes_{label}"], "target_label": name}
        for label, name in (("namespace", "namespace"), ("pod_name", "pod"))
    ]
    return {
        "job_name": "specdec-exporter",
        "scrape_interval": "1s",
        "static_configs": [discovered(target, file)],
        "relabel_configs": named + as_prometheus_has_it(endpoint["relabelings"]),
        "metric_relabel_configs": as_prometheus_has_it(endpoint["metricRelabelings"]),
    }


@pytest.mark.slow
@pytest.mark.debian
async def test_a_service_has_the_name_of_its_pods_even_where_nobody_told_the_exporter(tmp_path: Path) -> None:
    # Nobody answers at that URL, which `specdec_up` says.
    async with exporter("--predictor.url=http://127.0.0.1:1", awaited="msg=listening") as sidecar:
        address = sidecar.url.removeprefix("http://")
        jobs = [job(address, file) | {"job_name": file} for file in FOUND]
        with prometheus(tmp_path / "data", "prometheus", yaml.safe_dump({"scrape_configs": jobs})) as url:
            found = await until(url, "/api/v1/query?query=specdec_up", lambda data: len(data["result"]) == len(FOUND))

    own = {"__name__": "specdec_up", "namespace": "prod", "pod": "chat-0", "instance": address}
    assert {sample["metric"]["job"]: sample["metric"] for sample in found["result"]} == {
        file: {**own, "job": file, **expected} for file, (_, expected) in FOUND.items()
    }
