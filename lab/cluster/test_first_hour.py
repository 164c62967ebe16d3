"""docs/first-hour.md: its ``kubectl`` commands, as they stand, on a real API server with KServe's controllers."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from acted.firsthour import blocks
from cluster.controlplane import ControlPlane
from cluster.predictors import pod_of
from support.fieldtools import ROOT, tool
from support.processes import said

SERVICES = "serving.kserve.io/v1beta1/inferenceservices"


def run_block(plane: ControlPlane, block: str, recordings: Path) -> set[str]:
    """The lines that a block prints, run in the repository; ``plain.yaml`` is that of ``recordings``."""
    script = block.replace("plain.yaml", str(recordings / "plain.yaml")) if "--from-file" in block else block
    path = f"{Path(tool('kubectl')).parent}:{os.environ['PATH']}"
    variables = {**os.environ, "KUBECONFIG": str(plane.kubeconfig), "PATH": path}
    return set(said("bash", "-euo", "pipefail", "-c", script, directory=ROOT, environment=variables).splitlines())


def until_pod(plane: ControlPlane, enough: Callable[[Any], Any]) -> Any:
    """The first pod of the predictor for which it is so."""
    return plane.api.until("v1/pods", "prod", lambda pods: next((one for one in pods if enough(one)), None))


def arguments(pod: Any) -> str:
    return str(pod["spec"]["containers"][0]["args"])


def environment(pod: Any) -> set[str]:
    return {one["name"] for one in pod["spec"]["containers"][1]["env"]}


def test_the_commands_of_the_first_hour(kserve: ControlPlane, operator: ControlPlane, tmp_path: Path) -> None:
    plane = operator
    (tmp_path / "plain.yaml").write_text("name: plain\n", encoding="utf-8")
    deploy, _ = blocks("2.")
    (monitoring,) = blocks("4.")
    _, off, _ = blocks("6.")
    (on,) = blocks("7.")
    (remove,) = blocks("To remove it")
    # Other tests of the run may have made them.
    there = {one["metadata"]["name"] for one in plane.api.items("v1/namespaces")}
    if "prod" in there:
        deploy = deploy.replace("kubectl create namespace prod\n", "")

    said = run_block(plane, deploy, tmp_path)
    shown = set(blocks("2.", "text")[0].splitlines())
    assert {line for line in shown if "prod" not in line or "prod" not in there} <= said
    names = [container["name"] for container in pod_of(plane, "prod")["spec"]["containers"]]
    assert names == ["kserve-container", "specdec-exporter"]

    said = run_block(plane, monitoring, tmp_path)
    assert set(blocks("4.", "text")[0].splitlines()) <= said

    run_block(plane, off, tmp_path)
    until_pod(plane, lambda pod: "speculative" not in arguments(pod))

    # KServe writes into the service meanwhile, and the patch is of what is there.
    run_block(plane, on, tmp_path)
    until_pod(plane, lambda pod: "speculative" in arguments(pod) and "SPECDEC_BASELINE_FILE" in environment(pod))

    run_block(plane, remove, tmp_path)
    plane.api.gone(SERVICES, "prod", "chat")
