"""The kustomization of docs/integrations.md, over a stand-in for llm-d's folder: the same names, labels and prefix."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from deploy.kustomize import built, variables
from deploy.manifests import SERVE_VARIABLES
from support.crd import refused
from support.fieldtools import ROOT
from support.processes import exporter_ran

pytestmark = pytest.mark.field

LABELS = {"llm-d.ai/model": "Qwen3-32B", "llm-d.ai/guide": "spec-decoding"}
EAGLE3 = '{"model": "RedHatAI/Qwen3-32B-speculator.eagle3", "method": "eagle3", "num_speculative_tokens": 3}'


def deployment(name: str, role: str, *arguments: str) -> dict[str, Any]:
    labels = {"llm-d.ai/role": role}
    vllm = {
        "name": "modelserver",
        "image": "vllm/vllm-openai:v0.32.0",
        "command": ["vllm", "serve"],
        "args": ["Qwen/Qwen3-32B", *arguments],
        "ports": [{"name": "modelserver", "containerPort": 8000}],
    }
    template = {"metadata": {"labels": labels}, "spec": {"containers": [vllm]}}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name, "labels": labels},
        "spec": {"selector": {"matchLabels": labels}, "template": template},
    }


@pytest.fixture
def objects(tmp_path: Path) -> dict[tuple[str, str], Any]:
    """What it gives, by kind and name."""
    guide = tmp_path / "guide"
    guide.mkdir()
    theirs = [deployment("decode", "both", "--speculative-config", EAGLE3), deployment("prefill", "prefill")]
    (guide / "deployments.yaml").write_text(yaml.safe_dump_all(theirs), encoding="utf-8")
    labels = [{"pairs": LABELS, "includeSelectors": True, "includeTemplates": True}]
    layer = {"resources": ["deployments.yaml"], "namePrefix": "spec-decoding-", "labels": labels}
    (guide / "kustomization.yaml").write_text(yaml.safe_dump(layer), encoding="utf-8")

    page = (ROOT / "docs/integrations.md").read_text(encoding="utf-8")
    (block,) = re.findall(r"```yaml\n(.*?)```", page, re.DOTALL)
    ours = yaml.safe_load(block)
    assert len(ours["resources"]) == len(ours["components"]) == 1
    (name,) = re.findall(r"//(deploy/kubernetes/\S+)\?ref=", ours["components"][0])
    ours |= {"resources": ["guide"], "components": [os.path.relpath(ROOT / name, tmp_path)]}
    (tmp_path / "kustomization.yaml").write_text(yaml.safe_dump(ours), encoding="utf-8")
    return {(one["kind"], one["metadata"]["name"]): one for one in built(tmp_path)}


def containers(objects: dict[tuple[str, str], Any], name: str) -> dict[str, Any]:
    pod = objects["Deployment", f"spec-decoding-{name}"]["spec"]["template"]["spec"]
    return {one["name"]: one for one in pod["containers"]}


def test_the_decode_pods_have_the_sidecar_and_it_takes_its_settings(objects: dict[tuple[str, str], Any]) -> None:
    sidecar = containers(objects, "decode")["specdec-exporter"]
    given = variables(sidecar)

    assert given == {
        "SPECDEC_PREDICTOR_URL": "http://127.0.0.1:8000",
        "SPECDEC_PREDICTOR_NAME": "metadata.labels['llm-d.ai/model']",
    }
    assert given.keys() <= SERVE_VARIABLES
    assert exporter_ran("serve", "--config.check", **given).returncode == 0
    assert sidecar["image"].startswith("registry.example.com/specdec-exporter:")
    assert containers(objects, "prefill").keys() == {"modelserver"}


def test_the_podmonitor_finds_them_and_the_operator_allows_it(objects: dict[tuple[str, str], Any]) -> None:
    monitor = objects["PodMonitor", "specdec-exporter-llm-d"]
    decode = objects["Deployment", "spec-decoding-decode"]
    (endpoint,) = monitor["spec"]["podMetricsEndpoints"]
    (wanted,) = monitor["spec"]["selector"]["matchExpressions"]

    assert monitor["metadata"]["namespace"] == decode["metadata"]["namespace"]
    assert wanted["key"] in decode["spec"]["template"]["metadata"]["labels"]
    assert endpoint["port"] in [port["name"] for port in containers(objects, "decode")["specdec-exporter"]["ports"]]
    assert refused(monitor) == []


def test_doctor_reads_the_speculation_of_these_manifests(objects: dict[tuple[str, str], Any], tmp_path: Path) -> None:
    manifest = tmp_path / "built.yaml"
    manifest.write_text(yaml.safe_dump_all(objects.values()), encoding="utf-8")

    said = exporter_ran("doctor", "--manifest", str(manifest)).stdout
    assert "eagle3, k = 3, RedHatAI/Qwen3-32B-speculator.eagle3" in said
