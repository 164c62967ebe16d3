"""A command that starts vLLM becomes its arguments, as vLLM's own parser reads them."""

from __future__ import annotations

import contextlib
import json
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specdec_exporter import bounds
from specdec_exporter.errors import ConfigError
from specdec_exporter.predictor.arguments import ServerCommand, read_command, read_words
from specdec_exporter.predictor.facts.deployment import ARGUMENT_TYPES, KEPT_ARGUMENTS

EAGLE = {"method": "eagle3", "model": "d", "num_speculative_tokens": 3}
SPELLINGS = [
    f"""vllm serve m --speculative-config '{json.dumps(EAGLE)}'""",
    f"""vllm serve m --speculative_config='{json.dumps(EAGLE)}'""",
    f"""vllm serve m -sc '{json.dumps(EAGLE)}'""",
    """vllm serve m --speculative-config.method eagle3 --speculative-config.model=d
       --speculative_config.num_speculative_tokens 3""".replace("\n", " "),
    """vllm serve m -sc '{"method": "mtp"}' -sc.method eagle3 -sc.model d -sc.num_speculative_tokens 3""",
    """VLLM_X=1 exec /opt/bin/vllm serve m --port 80 -sc "{\\"method\\": \\"eagle3\\", \\"model\\": \\"d\\",
       \\"num_speculative_tokens\\": 3}" 2>&1 | tee log""",
    f"""docker run --gpus all vllm/vllm-openai:v0.19.1 --model m -sc '{json.dumps(EAGLE)}'""",
    f"""python3 -m vllm.entrypoints.openai.api_server --model m --speculative-config '{json.dumps(EAGLE)}'""",
]


@pytest.mark.parametrize("command", SPELLINGS)
def test_a_speculative_config_is_read_in_every_spelling(command: str) -> None:
    found = read_command(command)
    assert found.arguments["speculative_config"] == EAGLE
    assert found.problems == ()
    assert found.deployment().speculative is True


@pytest.mark.parametrize(
    ("words", "name", "value"),
    [
        ("-tp 8", "tensor_parallel_size", 8),
        ("--tensor_parallel_size 8", "tensor_parallel_size", 8),
        ("-pp 2 -dp 4", "data_parallel_size", 4),
        ("--no-enable-chunked-prefill", "enable_chunked_prefill", False),
        ("--enable-chunked-prefill --port 1", "enable_chunked_prefill", True),
        ("--enable-chunked-prefill False", "enable_chunked_prefill", False),
        ("--enforce-eager m", "model", "m"),
        ("--served-model-name a b --model m", "model", "m"),
        ("--max-num-seqs 1k", "max_num_seqs", 1000),
        ("--max-model-len 25.6k", "max_model_len", 25600),
        ("--max-model-len 32K", "max_model_len", 32768),
        ("--max-model-len auto", "max_model_len", None),
        ("--gpu-memory-utilization .8", "gpu_memory_utilization", 0.8),
        ("-q fp8", "quantization", "fp8"),
        ("""--kv-transfer-config '{"kv_role": "kv_producer"}'""", "kv_transfer_config", {"kv_role": "kv_producer"}),
        ("-ac.backend FLASH_ATTN", "attention_config", {"backend": "FLASH_ATTN"}),
        ("-sc.a.b+ 1,2 -sc.a.b+ 3", "speculative_config", {"a": {"b": ["1", "2", "3"]}}),
        ("-sc.k 1 --speculative-config.j 2", "speculative_config", {"j": 2}),  # as vLLM does
        ("--speculative-config", "speculative_config", None),
    ],
)
def test_an_argument_has_vllms_name_and_type(words: str, name: str, value: Any) -> None:
    assert read_command(words).arguments[name] == value


def test_a_secret_is_not_kept() -> None:
    found = read_command("vllm serve m --api-key s3cret --hf-token=s3cret --served-model-name s3cret s3cret")
    assert {"api_key", "hf_token", "served_model_name"} <= found.arguments.keys()
    assert "s3cret" not in str(found)
    assert "s3cret" not in str(read_command("TOKEN=s3cret vllm serve m"))


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ('{"method": "ngram" "k": 3}', "Expecting ',' delimiter: line 1 column 20"),
        ("[1]", "expected {...}"),
        ("[" * 100_000, "too long"),
    ],
)
def test_bad_json_is_named_with_its_place(value: str, words: str) -> None:
    (problem,) = read_words(["m", "--speculative-config", value]).problems
    assert problem.startswith("--speculative-config is not a JSON object: ")
    assert words in problem
    assert len(problem) < 200


def test_the_command_of_a_script_is_found() -> None:
    script = """
    set -ex   # as others don't
    export VLLM_USE_V1=0 OTHER=x; cd /tmp && ls
    exec vllm serve /models/m \\
      --dtype ${DTYPE:-auto} --max-num-seqs '8' "" \\
      --speculative-config "{\\"method\\": \\"ngram\\"}" 2>&1 | tee log
    """
    found = read_command(script)
    assert found.arguments == {
        "model": "/models/m",
        "dtype": "${DTYPE:-auto}",
        "max_num_seqs": 8,
        "speculative_config": {"method": "ngram"},
    }
    assert (found.environment, found.unread) == ({"VLLM_USE_V1": "0"}, ("dtype",))
    assert found.deployment().engine_generation == "v0"


def test_a_value_that_depends_on_something_unknown_is_no_fault() -> None:
    found = read_command("""vllm serve m -tp $N -sc '{"num_speculative_tokens": {{ .k }}}' --config more.yaml""")
    assert found.problems == ()
    assert found.unread == ("tensor_parallel_size", "speculative_config", "config")


def test_the_environment_and_the_image_tell_more() -> None:
    assert read_command("VLLM_USE_V2_MODEL_RUNNER=1 vllm serve m").deployment().second_runner is True
    image = "docker run -e A=b docker.io/vllm/vllm-openai:v0.19.1-cu130@sha256:abc --model m"
    assert read_command(image).deployment().release == (0, 19, 1)
    assert read_command("docker run example.com/my-vllm:v2.1 vllm serve m").image_release is None


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ("vllm serve 'm", "No closing quotation"),
        ("", "expected `vllm serve MODEL ...`"),
        ("python3 train.py", "expected `vllm serve MODEL ...`"),
        ("x" * (bounds.COMMAND_CHARACTERS + 1), "expected at most 131072 characters"),
    ],
)
def test_what_is_no_command_is_one_clear_error(command: str, words: str) -> None:
    with pytest.raises(ConfigError) as refused:
        read_command(command)
    assert words in str(refused.value)
    assert len(str(refused.value)) < 200


PIECES = st.sampled_from(
    [*("'", '"', "\\", "$", "${", "}", "$(", ")", "{{", "}}", "#", ";", "\n", " ", "=", "--", "-", ".", "+", "if ")]
    + [*("fi", "eval ", "A=", "$A", "${A:-", "vllm serve ", "-sc", "-sc.a", "-tp ", '{"a": ', "[", "1e9", "\0", "é")]
    + [f"--{name} " for name in sorted(KEPT_ARGUMENTS)]
)


@settings(max_examples=50)
@given(st.lists(PIECES | st.text(max_size=4), max_size=25).map("".join))
def test_any_text_is_arguments_or_an_error_of_ours(text: str) -> None:
    with contextlib.suppress(ConfigError):
        require_sound(read_command(text))


def require_sound(found: ServerCommand) -> None:
    for name, value in found.arguments.items():
        assert value is None or isinstance(value, ARGUMENT_TYPES.get(name, ())), name
    found.deployment()
    assert msgspec.convert(msgspec.to_builtins(found), ServerCommand) == found
