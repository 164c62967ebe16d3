"""The manifests are what kustomize, KServe and the Prometheus operator take, and fit the exporter and each other."""

from __future__ import annotations

import functools
import json
import logging
import logging.config
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from deploy.kustomize import built, variables
from deploy.manifests import KUBERNETES, read
from specdec_exporter import __version__
from specdec_exporter.predictor.sources.kubelog import DEFAULT_CONTAINER
from support.crd import refused
from support.fieldtools import ROOT
from support.processes import exporter_ran
from support.rulelint import seconds

LARGEST_CONFIG_MAP_BYTES = 262_144  # `kubectl apply` keeps a copy in an annotation, and refuses a larger one
MEASURED_MIB = 44  # docs/evidence/benchmarks.md: the budget, and what was measured
PROBE_MIB = 26  # `specdec-exporter healthcheck`, which an exec probe runs in the same container
Objects = dict[str, Any]

pytestmark = pytest.mark.field


@functools.cache
def _predictor() -> Objects:
    return {one["kind"]: one for one in built(KUBERNETES / "predictor")}


@pytest.fixture
def predictor() -> Objects:
    """What the predictor's folder gives, by kind."""
    return _predictor()


@pytest.fixture(params=["predictor", "with_files"])
def objects(request: pytest.FixtureRequest) -> Objects:
    """The one, then the other: what holds of both."""
    found: Objects = request.getfixturevalue(request.param)
    return found


@pytest.fixture
def with_files(tmp_path: Path) -> Objects:
    """The same with the parts that the kustomization has commented out."""
    shutil.copytree(KUBERNETES, tmp_path / "kubernetes")
    file = tmp_path / "kubernetes/predictor/kustomization.yaml"
    text = file.read_text(encoding="utf-8").replace("  - ../sidecar\n", "")
    file.write_text(re.sub(r"(?m)^#(  - )", r"\1", text), encoding="utf-8")
    return {one["kind"]: one for one in built(file.parent)}


@pytest.fixture(scope="module")
def monitoring() -> list[Any]:
    return built(KUBERNETES / "monitoring", "--load-restrictor=LoadRestrictionsNone")


def containers_of(objects: Objects) -> tuple[Any, Any]:
    vllm, sidecar = objects["InferenceService"]["spec"]["predictor"]["containers"]
    return vllm, sidecar


# --- The predictor ---------------------------------------------------------------------------------------------------


def test_kserve_allows_it(objects: Objects) -> None:
    assert refused(objects["InferenceService"]) == []


def test_kserve_leads_requests_to_the_predictor(objects: Objects) -> None:
    vllm, sidecar = containers_of(objects)

    assert vllm["name"] == DEFAULT_CONTAINER
    assert vllm["ports"][0]["containerPort"] == 8080
    assert f"--port={vllm['ports'][0]['containerPort']}" in vllm["args"]
    assert variables(sidecar)["SPECDEC_PREDICTOR_URL"] == "http://127.0.0.1:8080"


def test_the_sidecar_cannot_take_the_predictor_out_of_service(objects: Objects) -> None:
    _, sidecar = containers_of(objects)

    assert "readinessProbe" not in sidecar
    assert "startupProbe" not in sidecar
    assert sidecar["livenessProbe"]["httpGet"] == {"path": "/-/healthy", "port": sidecar["ports"][0]["name"]}
    assert int(sidecar["resources"]["requests"]["memory"].removesuffix("Mi")) > MEASURED_MIB
    assert int(sidecar["resources"]["limits"]["memory"].removesuffix("Mi")) > MEASURED_MIB + PROBE_MIB


def test_the_sidecar_may_do_nothing_that_it_does_not_need(objects: Objects) -> None:
    _, sidecar = containers_of(objects)
    allowed = sidecar["securityContext"]

    assert allowed["runAsNonRoot"]
    assert allowed["readOnlyRootFilesystem"]
    assert not allowed["allowPrivilegeEscalation"]
    assert allowed["capabilities"] == {"drop": ["ALL"]}
    assert all(mount["readOnly"] for mount in sidecar["volumeMounts"])


def test_the_image_is_the_one_that_the_kustomization_names(predictor: Objects) -> None:
    vllm, sidecar = containers_of(predictor)

    assert sidecar["image"] == f"registry.example.com/specdec-exporter:{__version__}"
    assert re.fullmatch(r"vllm/vllm-openai:v\d+\.\d+\.\d+", vllm["image"])


def test_the_exporter_alone_gets_what_reading_the_log_takes(predictor: Objects) -> None:
    vllm, sidecar = containers_of(predictor)
    spec = predictor["InferenceService"]["spec"]["predictor"]
    (volume,) = spec["volumes"]
    (mount,) = sidecar["volumeMounts"]
    given = variables(sidecar)

    assert (given["SPECDEC_PREDICTOR_LOG_SOURCE"], given["POD_NAME"]) == ("kubernetes", "metadata.name")
    assert mount["mountPath"] == "/var/run/secrets/kubernetes.io/serviceaccount"
    assert "volumeMounts" not in vllm
    assert spec["automountServiceAccountToken"] is False
    sources = {name: source for one in volume["projected"]["sources"] for name, source in one.items()}
    assert sources["serviceAccountToken"]["path"] == "token"
    assert sources["configMap"]["items"] == [{"key": "ca.crt", "path": "ca.crt"}]
    assert [item["path"] for item in sources["downwardAPI"]["items"]] == ["namespace"]


def test_the_role_is_the_one_that_the_documentation_names(predictor: Objects) -> None:
    text = (ROOT / "docs/configuration.md").read_text(encoding="utf-8")
    (documented,) = re.findall(r"(?ms)^kind: Role\n.*?^rules:\n(.*?)^```", text)

    assert predictor["Role"]["rules"] == yaml.safe_load(documented)


# --- The log through files -------------------------------------------------------------------------------------------


def test_with_files_nobody_needs_a_token(with_files: Objects) -> None:
    assert with_files.keys() == {"InferenceService", "ConfigMap"}
    assert "serviceAccountName" not in with_files["InferenceService"]["spec"]["predictor"]


def test_with_files_both_containers_see_the_same_log(with_files: Objects) -> None:
    vllm, sidecar = containers_of(with_files)
    (log,) = sidecar["volumeMounts"]
    writable = {mount["mountPath"]: mount["name"] for mount in vllm["volumeMounts"] if not mount.get("readOnly")}
    given = variables(vllm)["VLLM_LOGGING_CONFIG_PATH"]

    assert writable == {log["mountPath"]: log["name"]}
    assert Path(variables(sidecar)["SPECDEC_PREDICTOR_LOG_PATH"]).parent == Path(log["mountPath"])
    config = with_files["ConfigMap"]["metadata"]["name"]
    (volume,) = (
        one
        for one in with_files["InferenceService"]["spec"]["predictor"]["volumes"]
        if one.get("configMap") == {"name": config}
    )
    assert {mount["name"]: mount["mountPath"] for mount in vllm["volumeMounts"]}[volume["name"]] == str(
        Path(given).parent
    )
    assert Path(given).name in with_files["ConfigMap"]["data"]


def handlers() -> dict[str, Any]:
    """Those of the logging configuration that write files."""
    config = json.loads((KUBERNETES / "sidecar/log-file/logging.json").read_text(encoding="utf-8"))
    return {name: handler for name, handler in config["handlers"].items() if "filename" in handler}


def test_the_files_cannot_fill_their_volume(with_files: Objects) -> None:
    most = sum(handler["maxBytes"] * (1 + handler["backupCount"]) for handler in handlers().values())
    (limit,) = (
        volume["emptyDir"]["sizeLimit"]
        for volume in with_files["InferenceService"]["spec"]["predictor"]["volumes"]
        if "emptyDir" in volume
    )

    assert all(handler["maxBytes"] > 0 for handler in handlers().values())
    assert most < int(limit.removesuffix("Mi")) << 20


@pytest.fixture
def logging_to(tmp_path: Path) -> Iterator[Path]:
    """Logging as the configuration has it, into a folder of the test; afterwards as if nothing had been."""
    text = (KUBERNETES / "sidecar/log-file/logging.json").read_text(encoding="utf-8")
    config = json.loads(text.replace("/var/log/vllm/", f"{tmp_path}/"))
    logging.config.dictConfig(config)
    yield tmp_path
    for name in config["loggers"]:
        logger = logging.getLogger(name)
        for handler in tuple(logger.handlers):
            logger.removeHandler(handler)
            handler.close()
        logger.setLevel(logging.NOTSET)
        logger.propagate = True


def log(logger: str, message: str) -> None:
    """Log as the module of this name does: the exporter looks at the file that a line names."""
    file = f"/{logger.replace('.', '/')}.py"
    logging.getLogger(logger).handle(logging.LogRecord(logger, logging.INFO, file, 1, message, None, None))


def test_what_vllm_logs_about_speculation_is_in_the_files(logging_to: Path) -> None:
    # Loggers and lines of 0.32.0.
    log(
        "vllm.v1.engine.core",
        "Initializing a V1 LLM engine (v0.32.0) with config: model='Qwen/Qwen3-8B', speculative_config="
        "SpeculativeConfig(method='ngram', model=None, num_spec_tokens=4), tokenizer='Qwen/Qwen3-8B'",
    )
    log(
        "vllm.v1.metrics.loggers",
        "Engine 000: Avg prompt throughput: 10.0 tokens/s, Avg generation throughput: 50.0 tokens/s, Running: 1 reqs, "
        "Waiting: 0 reqs, GPU KV cache usage: 1.0%, Prefix cache hit rate: 0.0%",
    )
    log(
        "vllm.v1.spec_decode.metrics",
        "SpecDecoding metrics: Mean acceptance length: 2.60, Accepted throughput: 16.00 tokens/s, Drafted throughput: "
        "40.00 tokens/s, Accepted: 160 tokens, Drafted: 400 tokens, Per-position acceptance rate: 0.700, 0.500, 0.300, "
        "0.100, Avg Draft acceptance rate: 40.0%",
    )
    log("vllm.entrypoints.launcher", "Route: /metrics, Methods: GET")

    files = sorted(logging_to.glob("*.log"))
    answer = exporter_ran("analyze", "--output", "jsonl", *map(str, files))

    assert answer.returncode == 2, answer.stderr  # one window tells too little
    events = [json.loads(line) for line in answer.stdout.splitlines()]
    assert sorted(event["kind"] for event in events) == ["engine_config", "engine_stats", "spec_decoding"]
    assert "Route:" not in "".join(file.read_text(encoding="utf-8") for file in files)


# --- Monitoring ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["PodMonitor", "PrometheusRule"])
def test_the_operator_allows_it(kind: str, monitoring: list[Any]) -> None:
    found = [one for one in monitoring if one["kind"] == kind]

    assert found
    assert refused(*found) == []


def test_the_podmonitors_scrape_the_sidecars_port(monitoring: list[Any], predictor: Objects) -> None:
    monitors = {one["metadata"]["name"]: one["spec"] for one in monitoring if one["kind"] == "PodMonitor"}
    _, sidecar = containers_of(predictor)
    selectors = {name: spec["selector"] for name, spec in monitors.items()}

    # No pod is in both, or it would count twice. The labels are KServe's (0.20).
    assert selectors == {
        "specdec-exporter": {"matchExpressions": [{"key": "serving.kserve.io/inferenceservice", "operator": "Exists"}]},
        "specdec-exporter-llm": {"matchLabels": {"app.kubernetes.io/part-of": "llminferenceservice"}},
    }
    for spec in monitors.values():
        (endpoint,) = spec["podMetricsEndpoints"]
        assert endpoint["port"] == sidecar["ports"][0]["name"]
        assert seconds(endpoint["scrapeTimeout"]) < seconds(endpoint["interval"]) <= 60


def test_rules_and_dashboards_are_the_rendered_ones(monitoring: list[Any]) -> None:
    rules = read(ROOT / "rules/rendered/specdec.prometheusrule.yaml")
    maps = [one for one in monitoring if one["kind"] == "ConfigMap"]

    assert [one["spec"] for one in monitoring if one["kind"] == "PrometheusRule"] == [rules["spec"]]
    assert {name: json.loads(text) for one in maps for name, text in one["data"].items()} == {
        file.name: json.loads(file.read_text(encoding="utf-8"))
        for file in (ROOT / "dashboards/rendered").glob("*.json")
    }
    assert all(len(json.dumps(one)) < LARGEST_CONFIG_MAP_BYTES for one in maps)


def test_one_label_makes_the_operator_see_all(monitoring: list[Any]) -> None:
    seen = [one["metadata"]["labels"].get("release") for one in monitoring]

    assert seen == ["kube-prometheus-stack"] * len(monitoring)
    assert {one["metadata"]["namespace"] for one in monitoring} == {"monitoring"}
