"""Kubernetes manifests: the servers in them, with the arguments that each gets."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specdec_exporter.doctor.manifest import Server, read_manifest
from specdec_exporter.errors import ConfigError

FIXTURES = Path(__file__).parents[1] / "fixtures" / "manifests"


def servers(name: str) -> tuple[Server, ...]:
    return read_manifest((FIXTURES / name).read_bytes(), name)


def test_a_script_in_an_inference_service_is_read() -> None:
    (server,) = servers("ngram.yaml")
    found = server.command.deployment()
    assert (server.name, found.model) == ("InferenceService qwen-ngram", "${MODEL_PATH}")
    assert (found.method, found.num_speculative_tokens) == ("ngram", 5)
    assert server.command.unread == ("model", "dtype", "gpu_memory_utilization")
    (server,) = servers("eagle3.yaml")
    found = server.command.deployment()
    assert (found.method, found.draft_model) == ("eagle3", "/mnt/models/EAGLE3-LLaMA3.1-Instruct-8B")
    assert (found.max_num_seqs, found.max_model_len) == (8, 4096)


def test_a_model_is_known_by_the_uri_it_is_fetched_from_unless_an_argument_names_it() -> None:
    (server,) = servers("storage-uris.yaml")
    assert server.command.deployment().model == "/mnt/models/target"
    text = (FIXTURES / "modelcar.yaml").read_bytes().replace(b"        - --model=/mnt/models/target\n", b"")
    (server,) = read_manifest(text, "m.yaml")
    found = server.command.deployment()
    assert (found.model, found.speculative) == ("oci://registry.example.com/llama-eagle3:1", True)


def test_an_llm_inference_service_adds_arguments_to_its_template() -> None:
    (server,) = servers("llm.yaml")
    found = server.command.deployment()
    assert (found.tensor_parallel_size, found.max_num_seqs, found.method) == (4, 64, "eagle3")
    assert found.model == "hf://Qwen/Qwen3-32B"


def test_main_is_vllm_and_prefill_counts_if_it_has_arguments() -> None:
    text = b"""
kind: LLMInferenceService
metadata: {name: agent}
spec:
  model: {uri: "hf://org/model"}
  template:
    containers:
      - {name: main, args: [--speculative-config.method, ngram]}
      - {name: specdec-exporter, image: registry.example.com/specdec-exporter:0.1.0}
  prefill: {template: {containers: [{name: main, resources: {}}]}}
"""
    (server,) = read_manifest(text, "llm")
    assert server.command.deployment().method == "ngram"

    both = read_manifest(text.replace(b"main, resources: {}", b"main, args: [--max-num-seqs, '8']"), "llm")
    assert [one.command.deployment().max_num_seqs for one in both] == [None, 8]
    with pytest.raises(ConfigError, match="found none"):
        read_manifest(text.replace(b"main, args", b"main, image: lmsysorg/sglang, args"), "llm")


def test_a_deployment_is_found_among_other_documents_and_containers() -> None:
    (server,) = servers("deployment.yaml")
    found = server.command.deployment()
    assert server.name == "Deployment vllm, container vllm"
    assert (found.release, found.engine_generation) == ((0, 19, 1), "v1")
    assert (found.model, found.method, found.num_speculative_tokens) == ("deepseek-ai/DeepSeek-V3", "mtp", 1)
    assert found.enable_chunked_prefill is False


def told(server: Server) -> tuple[str, str | None, str | None, int | None]:
    found = server.command.deployment()
    return server.name, found.model, found.method, found.num_speculative_tokens


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        (
            "dynamo.yaml",
            [
                (
                    "DynamoGraphDeployment chat, spec.services.VllmDecodeWorker.extraPodSpec.mainContainer",
                    *("Qwen/Qwen3-8B", "ngram", 4),
                ),
                ("DynamoGraphDeployment glm, container main", "zai-org/GLM-4.7-FP8", "mtp", 1),
            ],
        ),
        (
            "ray.yaml",
            [
                (
                    "RayService chat, spec.serveConfigV2.applications.args.llm_configs.engine_kwargs",
                    *("Qwen/Qwen3-8B", "ngram", 4),
                )
            ],
        ),
        ("kaito.yaml", [("ConfigMap chat-params, data.inference_config.yaml.vllm", None, "mtp", 2)]),
        ("helm.yaml", [("servingEngineSpec.modelSpec.vllmConfig", "Qwen/Qwen3-8B", "eagle3", 3)]),
        (
            "compose.yaml",
            [("services.chat", "Qwen/Qwen3-8B", "ngram", 4), ("services.code", "m", "suffix", 8)],
        ),
        (
            "speculator.yaml",
            [("LLMInferenceService llama, container main", "hf://meta-llama/Llama-3.1-8B-Instruct", "eagle3", 3)],
        ),
    ],
)
def test_a_command_line_is_found_in_any_kind(name: str, expected: list[tuple[str, str, str, int]]) -> None:
    assert [told(server) for server in servers(name)] == expected


def test_values_of_helm_are_read_by_vllms_names() -> None:
    (server,) = servers("helm.yaml")
    found = server.command.deployment()
    assert (found.release, found.tensor_parallel_size, found.max_num_seqs) == ((0, 25, 1), 2, 64)
    assert found.enable_chunked_prefill is False


SERVICE = b"""
kind: LLMInferenceService
metadata: {name: s}
spec:
  model: {uri: "hf://org/model"}
"""
IN_POD = b"kind: Pod\nmetadata: {name: p}\nspec: {containers: [{name: v, image: vllm/vllm-openai:v0.25.1, "
CONFIG_MAP = b"""
---
kind: ConfigMap
metadata: {name: c}
data:
  serve.yaml: |
    speculative-config: {method: ngram, num_speculative_tokens: 4}
"""
EXTRA = b"  template: {containers: [{name: main, env: [{name: VLLM_ADDITIONAL_ARGS, "


@pytest.mark.parametrize(
    ("text", "speculative"),
    [
        (SERVICE, False),
        (SERVICE + b"  speculator: {config: {method: mtp, num_speculative_tokens: '1'}}\n", True),
        (SERVICE + b"  baseRefs: [{name: preset}]\n", None),
        (SERVICE + EXTRA + b"valueFrom: {configMapKeyRef: {name: c, key: k}}}]}]}\n", None),
        (SERVICE + EXTRA + b"value: '--spec-method ngram --spec-tokens 4'}]}]}\n", True),
        (IN_POD + b'args: ["--model", "m"]}]}', False),
        (IN_POD + b'args: ["--model", "m", "$(MORE)"]}]}', None),
        (IN_POD + b'args: ["--model", "m", "--config", "/etc/vllm/serve.yaml"]}]}', None),
        (IN_POD + b'args: ["--model", "m", "--config", "/etc/vllm/serve.yaml"]}]}' + CONFIG_MAP, True),
        (b"kind: InferenceService\nspec: {predictor: {model: {runtime: r, args: [--dtype=auto]}}}", None),
        (b"kind: RayJob\nspec: {entrypoint: 'vllm serve m --spec-method ngram --spec-tokens 4'}", True),
        (b"vllm: {max-model-len: 8192}", False),
    ],
)
def test_what_a_manifest_does_not_show_is_not_known(text: bytes, speculative: bool | None) -> None:
    (server,) = read_manifest(text, "m.yaml")
    assert server.command.deployment().speculative is speculative


@pytest.mark.parametrize(
    "text",
    [
        b"kind: Pod\nmetadata: {annotations: {last: 'vllm serve m'}}",
        b"kind: Pod\nspec: {initContainers: [{image: 'vllm/vllm-openai:v0.25.1', args: [--help]}]}",
        b"image: vllm/vllm-openai:v0.25.1",  # of a chart, whose arguments stand elsewhere
        b"vllm: {enabled: true}",
    ],
)
def test_what_starts_no_server_is_none(text: bytes) -> None:
    with pytest.raises(ConfigError, match="found none"):
        read_manifest(text, "m.yaml")


def test_a_prefill_half_gets_no_speculator() -> None:
    config = b"  speculator: {config: {method: mtp, num_speculative_tokens: '1'}}\n"
    halves = (
        b"  template: {containers: [{name: main}]}\n  prefill: {template: {containers: [{name: main, args: [-tp=2]}]}}"
    )
    decode, prefill = read_manifest(SERVICE + config + halves, "m.yaml")
    assert (decode.command.deployment().speculative, prefill.command.deployment().speculative) == (True, False)


POD = b"""
kind: Pod
metadata: {name: p}
spec:
  containers:
    - name: vllm
      image: vllm/vllm-openai:v0.32.0
      args: ["--model", "m"]
"""


def test_every_server_of_a_list_counts() -> None:
    items = b"kind: List\nitems:\n" + b"".join(
        b"  -" + b"\n    ".join(POD.splitlines()).lstrip(b"\n").replace(b"    kind", b" kind", 1) + b"\n"
        for _ in range(2)
    )
    assert len(read_manifest(items, "list")) == 2


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "m.yaml: expected a container that starts vLLM"),
        (b"a: 1\n---\nb: [\n", "m.yaml, line 4: is not YAML"),
        (b"[" * 300_000, "expected at most 40 levels"),
        (b"x" * 1_100_000, "expected at most 1048576 bytes"),
        (b"---\n" * 30_000, "expected at most 100 documents"),
        (b"a: 1\na: 2\n", "expected every key once"),
        (
            POD.replace(b'"m"]', b'"$(A)$(A)"]\n      env: [{name: A, value: ' + b"x" * 70_000 + b"}]"),
            "its variables stand for more than 131072 characters",
        ),
        (POD.replace(b'"m"]', b'"\'m"]\n      command: [sh, -c, "vllm serve \'m"]'), "No closing quotation"),
    ],
)
def test_what_is_no_manifest_is_one_clear_error(content: bytes, words: str) -> None:
    with pytest.raises(ConfigError) as refused:
        read_manifest(content, "m.yaml")
    assert words in str(refused.value)
    assert str(refused.value).isprintable()


SCRAPS = st.sampled_from(
    [path.read_text() for path in sorted(FIXTURES.glob("*.yaml"))]
    + [*("kind: List\n", "items:\n", "containers:\n", "args: ", "command: [sh, -c, ", "env:\n", "model:\n")]
    + [*("image: vllm/vllm-openai:v1", "predictor:\n", "&a ", "*a", "<<: *a\n", "null", "---\n")]
    + [*("- ", "  ", "]", "\n", "'")]
)


@settings(max_examples=50)  # PyYAML takes its time
@given(st.lists(SCRAPS | st.text(max_size=3), max_size=12).map("".join))
def test_any_text_is_servers_or_an_error_of_ours(text: str) -> None:
    try:
        found = read_manifest(text.encode("utf-8", "replace"), "m.yaml")
    except ConfigError:
        return
    for server in found:
        server.command.deployment()
