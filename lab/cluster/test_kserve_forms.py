"""What KServe's own controllers make of each form: containers, volumes, arguments and names of the pods."""

from __future__ import annotations

import json
import os
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from cluster import shipped
from cluster.api import Object, RefusedError
from cluster.controlplane import ControlPlane
from cluster.predictors import pod_of
from deploy.kustomize import component, variables
from deploy.manifests import KUBERNETES
from report import Transcript
from specdec_exporter.predictor.facts.failures import known_cause
from specdec_exporter.predictor.servercommand import read_command
from support.processes import said

DEPLOYMENTS = "apps/v1/deployments"
NAME = "INFERENCE_SERVICE_NAME"
SPECULATIVE = "--speculative-config"


def containers(pod: Object) -> dict[str, Any]:
    """Containers of a pod or of its template, by name."""
    return {one["name"]: one for one in pod["spec"]["containers"]}


def service_of(folder: str) -> Object:
    """The InferenceService of a folder, alone."""
    (found,) = (one for one in shipped.objects(KUBERNETES / folder) if one["kind"] == "InferenceService")
    return found


def deployed(plane: ControlPlane, namespace: str, folder: str) -> Object:
    """The pod of a folder's service."""
    plane.apply(shipped.into(namespace, shipped.objects(KUBERNETES / folder)))
    return pod_of(plane, namespace)


def template(plane: ControlPlane, namespace: str, name: str, enough: Callable[[Object], Any] = bool) -> Object:
    """The pod template of a Deployment, once ``enough`` of it is true."""
    found = plane.api.wait(DEPLOYMENTS, namespace, name, lambda one: enough(one["spec"]["template"]))
    return dict(found["spec"]["template"])


# --- Two models in one pod -------------------------------------------------------------------------------------------


def test_storage_uris_are_downloaded_to_where_the_arguments_say(kserve: ControlPlane, namespace: str) -> None:
    pod = deployed(kserve, namespace, "eagle3")

    (initializer,) = pod["spec"]["initContainers"]
    assert initializer["args"] == [
        *("hf://meta-llama/Llama-3.1-8B-Instruct", "/mnt/models/target"),
        *("hf://RedHatAI/Llama-3.1-8B-Instruct-speculator.eagle3", "/mnt/models/draft"),
    ]
    mounts = {mount["mountPath"]: mount["name"] for mount in containers(pod)["kserve-container"]["volumeMounts"]}
    assert mounts["/mnt/models"] in {mount["name"] for mount in initializer["volumeMounts"]}


# --- Where the sidecar comes from ------------------------------------------------------------------------------------


def test_a_service_gets_the_sidecar_of_its_runtime(kserve: ControlPlane, namespace: str) -> None:
    pod = deployed(kserve, namespace, "model")

    vllm, sidecar = pod["spec"]["containers"]
    assert (vllm["name"], sidecar["name"]) == ("kserve-container", "specdec-exporter")
    # The runtime's arguments, then the service's.
    assert vllm["args"][:4] == ["--model=/mnt/models", "--served-model-name=code", "--port=8080", SPECULATIVE]
    assert variables(sidecar)[NAME] == "code"
    (initializer,) = pod["spec"]["initContainers"]
    assert initializer["args"] == ["hf://Qwen/Qwen3-8B", "/mnt/models"]


def test_the_component_adds_it_to_a_service_of_somebody_else(
    kserve: ControlPlane, namespace: str, tmp_path: Path
) -> None:
    service = service_of("model")
    service["spec"]["predictor"]["model"] |= {
        "runtime": "kserve-huggingfaceserver",
        "modelFormat": {"name": "huggingface"},
    }
    answer = component(tmp_path, service, "sidecar")
    kserve.apply(shipped.into(namespace, list(yaml.safe_load_all(answer.stdout))))

    pod = pod_of(kserve, namespace)
    assert list(containers(pod)) == ["kserve-container", "specdec-exporter"]
    assert pod["spec"]["serviceAccountName"] == "specdec-predictor"
    assert variables(containers(pod)["specdec-exporter"])[NAME] == "code"


# --- Back, and what is refused ---------------------------------------------------------------------------------------


def test_to_go_back_is_a_rollout_and_frees_no_disk_until_the_draft_is_taken_away(
    kserve: ControlPlane, namespace: str
) -> None:
    deployed(kserve, namespace, "eagle3")
    before = template(kserve, namespace, "chat-predictor")

    def patch(*changes: Object) -> None:
        kserve.kubectl(
            *("patch", "inferenceservice", "chat", f"--namespace={namespace}", "--type=json", "-p", json.dumps(changes))
        )

    def speculates(pod: Object) -> bool:
        return SPECULATIVE in pod["spec"]["containers"][0]["args"]

    assert speculates(before)
    path = f"/spec/predictor/containers/0/args/{before['spec']['containers'][0]['args'].index(SPECULATIVE)}"
    remove = {"op": "remove", "path": path}
    patch({"op": "test", "path": path, "value": SPECULATIVE}, remove, remove)
    after = template(kserve, namespace, "chat-predictor", lambda pod: not speculates(pod))
    assert after["spec"]["initContainers"] == before["spec"]["initContainers"]

    patch({"op": "remove", "path": "/spec/predictor/storageUris/1"})
    freed = template(
        kserve, namespace, "chat-predictor", lambda pod: len(pod["spec"]["initContainers"][0]["args"]) == 2
    )
    assert freed["spec"]["initContainers"][0]["args"][1] == "/mnt/models/target"


def test_what_kserve_says_of_two_storages_is_known(kserve: ControlPlane, namespace: str) -> None:
    service = service_of("model")
    service["spec"]["predictor"]["storageUris"] = [{"uri": "hf://a/b", "mountPath": "/mnt/models/target"}]

    with pytest.raises(RefusedError) as refused:
        kserve.apply(shipped.into(namespace, [service]))

    assert known_cause(str(refused.value)) == "storage_uri"


def test_what_kubernetes_says_of_a_deadline_is_known(control_plane: ControlPlane, namespace: str) -> None:
    """The Deployment only reports it, and goes on: its pod stays."""
    labels = {"app": "late"}
    pod = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "a", "image": "a"}]}}
    spec = {"progressDeadlineSeconds": 1, "selector": {"matchLabels": labels}, "template": pod}
    metadata = {"name": "late", "namespace": namespace}
    control_plane.apply([{"apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata, "spec": spec}])

    def reported(one: Object) -> list[Any]:
        return [each for each in one["status"].get("conditions", ()) if each["reason"] == "ProgressDeadlineExceeded"]

    found = reported(control_plane.api.wait(DEPLOYMENTS, namespace, "late", reported))
    assert known_cause(found[0]["message"]) == "progress_deadline"
    assert control_plane.api.items("v1/pods", namespace)


# --- LLMInferenceService ---------------------------------------------------------------------------------------------

LLM = "KServe deploys an LLMInferenceService"


def started_with(main: Object, directory: Path) -> list[str]:
    """What vLLM gets from command and arguments of a container: KServe's presets run a script."""
    stub = directory / "vllm"
    stub.write_text('#!/bin/sh\n[ "$1" = --version ] && echo 0.33.0 || printf "%s\\n" "$@"\n', encoding="utf-8")
    stub.chmod(0o755)
    variables = {"PATH": f"{directory}:{os.environ['PATH']}"}
    return said(*main["command"], *main["args"], environment=variables).splitlines()


def test_the_sidecar_stands_beside_main(
    llm: ControlPlane, namespace: str, transcript: Transcript, tmp_path: Path
) -> None:
    llm.apply(shipped.into(namespace, shipped.objects(KUBERNETES / "llm")))

    pod = template(llm, namespace, "agent-kserve")
    main, sidecar = (containers(pod)[name] for name in ("main", "specdec-exporter"))
    assert main["ports"][0]["containerPort"] == 8000
    words = started_with(main, tmp_path)
    config = read_command(shlex.join(["vllm", *words[words.index("serve") :]])).arguments["speculative_config"]
    assert config == {"method": "ngram", "num_speculative_tokens": 4, "prompt_lookup_max": 4}
    assert "--ssl-certfile" not in words  # unless KServe's ConfigMap says enableLLMInferenceServiceTLS
    assert variables(sidecar)["SPECDEC_PREDICTOR_URL"] == "http://127.0.0.1:8000"
    assert pod["metadata"]["labels"]["app.kubernetes.io/name"] == "agent"
    assert NAME not in variables(sidecar)
    assert {"tls-certs", "specdec-log"} <= {one["name"] for one in pod["spec"]["volumes"]}
    transcript.row(
        LLM, Manifest="`deploy/kubernetes/llm`", Deployment="agent-kserve", Containers=", ".join(containers(pod))
    )
