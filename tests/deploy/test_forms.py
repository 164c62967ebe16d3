"""Every form of KServe's service in deploy/kubernetes has the sidecar once, and the models where its arguments say.

tests/cluster holds the same folders against KServe's own controllers.
"""

from __future__ import annotations

import functools
import json
import os
import re
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
import yaml

from alertmanager.test_operator import faults
from deploy.cli import SERVE_VARIABLES
from deploy.kustomize import built, component, schema, variables
from deploy.manifests import KUBERNETES
from specdec_exporter.commands.serve import command as serve

pytestmark = pytest.mark.field

# Folder -> kind, and where its containers are.
PREDICTOR = ("InferenceService", ("spec", "predictor"))
FORMS: dict[str, tuple[str, tuple[str, ...]]] = {
    "predictor": PREDICTOR,
    "eagle3/storage-uris": PREDICTOR,
    "eagle3/modelcar": PREDICTOR,
    "eagle3/pvc": PREDICTOR,
    "native": PREDICTOR,
    "knative": PREDICTOR,
    "runtime": ("ServingRuntime", ("spec",)),
    "runtime/cluster": ("ClusterServingRuntime", ("spec",)),
    "llm": ("LLMInferenceService", ("spec", "template")),
    "llm/disaggregated": ("LLMInferenceService", ("spec", "template")),
}
OTHERS = {"model", "monitoring", "injection"}  # without a sidecar of their own
EAGLE3 = ("storage-uris", "modelcar", "pvc")


@functools.cache
def objects(folder: str) -> dict[str, Any]:
    """What a folder gives, by kind."""
    return {one["kind"]: one for one in built(KUBERNETES / folder)}


def pod_of(folder: str) -> Any:
    """The part of a folder's service that becomes its pod."""
    kind, path = FORMS[folder]
    return functools.reduce(lambda node, key: node[key], path, objects(folder)[kind])


def sidecar_of(folder: str) -> Any:
    pod = pod_of(folder)
    (found,) = (
        one
        for part in ("containers", "initContainers")
        for one in pod.get(part, ())
        if one["name"] == "specdec-exporter"
    )
    return found


@pytest.mark.parametrize("folder", FORMS)
def test_each_form_has_the_sidecar_and_it_takes_its_settings(folder: str) -> None:
    sidecar = sidecar_of(folder)
    given = {name: text for name, text in variables(sidecar).items() if name.startswith("SPECDEC_")}
    own = given.keys() & SERVE_VARIABLES

    with mock.patch.dict(os.environ, given):
        serve.make_context("serve", [])  # they are valid
    assert given.keys() - own <= {"SPECDEC_PREDICTOR_CONTAINER"}
    assert sidecar["image"].startswith("registry.example.com/specdec-exporter:")
    assert sidecar["securityContext"] == sidecar_of("predictor")["securityContext"]
    assert sidecar["resources"] == sidecar_of("predictor")["resources"]


@pytest.mark.parametrize("folder", FORMS)
def test_each_mount_has_its_volume(folder: str) -> None:
    pod = pod_of(folder)
    mounted = {mount["name"] for one in pod["containers"] for mount in one.get("volumeMounts", ())}
    mounted |= {mount["name"] for mount in sidecar_of(folder).get("volumeMounts", ())}

    assert mounted == {volume["name"] for volume in pod.get("volumes", ())}


def test_every_folder_is_a_form_or_a_part_of_one() -> None:
    complete = {
        str(file.parent.relative_to(KUBERNETES))
        for file in KUBERNETES.rglob("kustomization.yaml")
        if "kind: Component" not in file.read_text(encoding="utf-8") and file.parent.name != "base"
    }

    assert complete == {*FORMS, *OTHERS}


def test_the_documentation_names_each_form() -> None:
    text = (KUBERNETES / "README.md").read_text(encoding="utf-8")

    assert [folder for folder in (*FORMS, *OTHERS) if f"({folder}/)" not in text] == []


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


def test_knative_sees_one_port_and_no_probe_of_the_sidecar() -> None:
    sidecar = sidecar_of("knative")

    assert {"ports", "livenessProbe", "readinessProbe", "startupProbe"} & sidecar.keys() == set()
    assert all("value" in one for one in sidecar["env"])  # fieldRef needs a feature of Knative


def test_a_native_sidecar_is_told_its_name() -> None:
    (sidecar,) = pod_of("native")["initContainers"]

    assert sidecar["restartPolicy"] == "Always"
    assert variables(sidecar)["SPECDEC_PREDICTOR_NAME"] == "metadata.labels['serving.kserve.io/inferenceservice']"


def test_the_decode_pods_have_vllm_behind_the_routing_sidecar() -> None:
    assert variables(sidecar_of("llm"))["SPECDEC_PREDICTOR_URL"] == "http://127.0.0.1:8000"
    assert variables(sidecar_of("llm/disaggregated"))["SPECDEC_PREDICTOR_URL"] == "http://127.0.0.1:8001"
    prefill = objects("llm/disaggregated")["LLMInferenceService"]["spec"]["prefill"]
    assert [one["name"] for one in prefill["template"]["containers"]] == ["main"]


@pytest.mark.parametrize(("part", "port"), [("tls", 8000), ("decode-tls", 8001)])
def test_with_tls_the_exporter_trusts_kserves_own_certificate(part: str, port: int, tmp_path: Path) -> None:
    plain = {"apiVersion": "serving.kserve.io/v1alpha2", "kind": "LLMInferenceService", "metadata": {"name": "agent"}}
    parts = ("sidecar/container", "sidecar/llm", f"sidecar/llm/{part}", "sidecar/add")
    answer = component(tmp_path, {**plain, "spec": {"model": {"uri": "hf://a/b"}}}, *parts)

    assert answer.returncode == 0, answer.stdout
    (sidecar,) = yaml.safe_load(answer.stdout)["spec"]["template"]["containers"]
    given = variables(sidecar)
    assert given["SPECDEC_PREDICTOR_URL"] == f"https://127.0.0.1:{port}"
    assert Path(given["SPECDEC_PREDICTOR_CA_FILE"]).parent == Path(sidecar["volumeMounts"][0]["mountPath"])


# --- EAGLE-3: a target and its draft head ----------------------------------------------------------------------------


@pytest.mark.parametrize("example", EAGLE3)
def test_kserve_allows_each_way_to_bring_two_models(example: str) -> None:
    service = objects(f"eagle3/{example}")["InferenceService"]
    known = schema("serving.kserve.io_inferenceservices.yaml", "v1beta1")

    assert list(faults(known["properties"]["spec"], service["spec"])) == []
    assert service["metadata"]["annotations"]["serving.knative.dev/progress-deadline"] == "1800s"


@pytest.mark.parametrize("example", EAGLE3)
def test_both_models_are_where_the_arguments_say(example: str) -> None:
    predictor = pod_of(f"eagle3/{example}")
    vllm, sidecar = predictor["containers"]
    speculative = json.loads(vllm["args"][-1])
    stored = {one["name"]: one["value"] for one in vllm.get("env", ())}

    places = ["/mnt/models/target", "/mnt/models/draft"]
    assert f"--model={places[0]}" in vllm["args"]
    assert (speculative["method"], speculative["model"]) == ("eagle3", places[1])
    assert sidecar["name"] == "specdec-exporter"
    # One storageUri, or several storageUris: KServe refuses both together.
    assert bool(stored) != ("storageUris" in predictor)
    if stored:
        assert re.fullmatch(r"(oci://[^/]+/.+|pvc://[a-z]+)", stored["STORAGE_URI"])
    else:
        assert [one["mountPath"] for one in predictor["storageUris"]] == places


def test_storage_uris_below_model_are_found() -> None:
    known = schema("serving.kserve.io_inferenceservices.yaml", "v1beta1")["properties"]["spec"]
    wrong = {"predictor": {"model": {"modelFormat": {"name": "vLLM"}, "storageUris": [{"uri": "hf://a/b"}]}}}

    assert [fault.split(" does")[0] for fault in faults(known, wrong)] == [".predictor.model.storageUris"]
