"""Every form of KServe's service in deploy/kubernetes has the sidecar once, and the models where its arguments say.

lab/cluster holds the same folders against KServe's own controllers.
"""

from __future__ import annotations

import functools
import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from deploy.kustomize import built, component, variables
from deploy.manifests import KUBERNETES, SERVE_VARIABLES
from support.crd import refused
from support.processes import exporter_ran

pytestmark = pytest.mark.field

# Folder -> kind, and where its containers are.
PREDICTOR = ("InferenceService", ("spec", "predictor"))
FORMS: dict[str, tuple[str, tuple[str, ...]]] = {
    "predictor": PREDICTOR,
    "eagle3": PREDICTOR,
    "runtime": ("ServingRuntime", ("spec",)),
    "llm": ("LLMInferenceService", ("spec", "template")),
}
OTHERS = {"model", "monitoring"}  # without a sidecar of their own


@functools.cache
def objects(folder: str) -> dict[str, Any]:
    """What a folder gives, by kind."""
    return {one["kind"]: one for one in built(KUBERNETES / folder)}


def pod_of(folder: str) -> Any:
    """The part of a folder's service that becomes its pod."""
    kind, path = FORMS[folder]
    return functools.reduce(lambda node, key: node[key], path, objects(folder)[kind])


def sidecar_of(folder: str) -> Any:
    (found,) = (one for one in pod_of(folder)["containers"] if one["name"] == "specdec-exporter")
    return found


@pytest.mark.parametrize("folder", FORMS)
def test_each_form_has_the_sidecar_and_it_takes_its_settings(folder: str) -> None:
    sidecar = sidecar_of(folder)
    given = {name: text for name, text in variables(sidecar).items() if name.startswith("SPECDEC_")}

    assert given.keys() <= SERVE_VARIABLES
    answer = exporter_ran("serve", "--config.check", **given)
    assert answer.returncode == 0, answer.stderr
    assert sidecar["image"].startswith("registry.example.com/specdec-exporter:")
    assert sidecar["securityContext"] == sidecar_of("predictor")["securityContext"]
    assert sidecar["resources"] == sidecar_of("predictor")["resources"]


def test_every_folder_is_a_form_or_a_part_of_one_and_is_documented() -> None:
    complete = {
        str(file.parent.relative_to(KUBERNETES))
        for file in KUBERNETES.rglob("kustomization.yaml")
        if "kind: Component" not in file.read_text(encoding="utf-8") and file.parent.name != "base"
    }
    text = (KUBERNETES / "README.md").read_text(encoding="utf-8")

    assert complete == {*FORMS, *OTHERS}
    assert [folder for folder in complete if f"({folder}/)" not in text] == []


def service(predictor: dict[str, Any]) -> dict[str, Any]:
    metadata = {"name": "theirs", "namespace": "prod"}
    return {
        "apiVersion": "serving.kserve.io/v1beta1",
        "kind": "InferenceService",
        "metadata": metadata,
        "spec": {"predictor": predictor},
    }


MODEL = {"model": {"modelFormat": {"name": "vLLM"}, "runtime": "theirs", "storageUri": "hf://a/b"}}


def test_the_component_adds_the_sidecar_to_a_service_with_a_model(tmp_path: Path) -> None:
    answer = component(tmp_path, service({**MODEL, "volumes": [{"name": "theirs", "emptyDir": {}}]}), "sidecar")

    assert answer.returncode == 0, answer.stdout
    (found,) = (one for one in yaml.safe_load_all(answer.stdout) if one["kind"] == "InferenceService")
    predictor = found["spec"]["predictor"]
    assert predictor["model"] == MODEL["model"]
    assert [one["name"] for one in predictor["containers"]] == ["specdec-exporter"]
    assert [one["name"] for one in predictor["volumes"]] == ["theirs", "specdec-token"]
    assert predictor["serviceAccountName"] == "specdec-predictor"


def test_a_native_sidecar_is_an_init_container_that_restarts_and_knows_its_service(tmp_path: Path) -> None:
    vllm = {"name": "kserve-container", "image": "vllm"}
    parts = ("sidecar/container", "sidecar/log-api", "sidecar/native")
    answer = component(tmp_path, service({"containers": [vllm]}), *parts)

    assert answer.returncode == 0, answer.stdout
    (found,) = (one for one in yaml.safe_load_all(answer.stdout) if one["kind"] == "InferenceService")
    predictor = found["spec"]["predictor"]
    (sidecar,) = predictor["initContainers"]
    assert refused(found) == []
    assert predictor["containers"] == [vllm]
    assert (sidecar["name"], sidecar["restartPolicy"]) == ("specdec-exporter", "Always")
    assert variables(sidecar)["SPECDEC_PREDICTOR_NAME"] == "metadata.labels['serving.kserve.io/inferenceservice']"
    assert {mount["name"] for mount in sidecar["volumeMounts"]} == {one["name"] for one in predictor["volumes"]}


@pytest.mark.parametrize(
    ("predictor", "components"),
    [
        ({**MODEL, "serviceAccountName": "theirs"}, ["sidecar"]),
        (MODEL, ["sidecar/container", "sidecar/log-file", "sidecar/add"]),
    ],
)
def test_no_part_takes_an_account_away_or_invents_a_container(
    predictor: dict[str, Any], components: list[str], tmp_path: Path
) -> None:
    answer = component(tmp_path, service(predictor), *components)

    assert answer.returncode != 0
    assert re.search(r"/spec/predictor/(serviceAccountName failed|containers/0/name: missing)", answer.stdout)


def test_with_tls_the_exporter_trusts_kserves_own_certificate(tmp_path: Path) -> None:
    plain = {"apiVersion": "serving.kserve.io/v1alpha2", "kind": "LLMInferenceService", "metadata": {"name": "agent"}}
    parts = ("sidecar/container", "sidecar/llm", "sidecar/llm/tls", "sidecar/add")
    answer = component(tmp_path, {**plain, "spec": {"model": {"uri": "hf://a/b"}}}, *parts)

    assert answer.returncode == 0, answer.stdout
    (sidecar,) = yaml.safe_load(answer.stdout)["spec"]["template"]["containers"]
    given = variables(sidecar)
    assert given["SPECDEC_PREDICTOR_URL"] == "https://127.0.0.1:8000"
    assert Path(given["SPECDEC_PREDICTOR_CA_FILE"]).parent == Path(sidecar["volumeMounts"][0]["mountPath"])


def test_eagle3_has_target_and_draft_where_the_arguments_say_and_kserve_allows_it() -> None:
    found = objects("eagle3")["InferenceService"]
    vllm, _ = found["spec"]["predictor"]["containers"]
    speculative = json.loads(vllm["args"][-1])

    assert refused(found) == []
    target, draft = (one["mountPath"] for one in found["spec"]["predictor"]["storageUris"])
    assert f"--model={target}" in vllm["args"]
    assert (speculative["method"], speculative["model"]) == ("eagle3", draft)
    assert found["metadata"]["annotations"]["serving.knative.dev/progress-deadline"] == "1800s"
