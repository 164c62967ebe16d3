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
from specdec_exporter.predictor.arguments import ServerCommand, read_words
from specdec_exporter.predictor.facts.deployment import ARGUMENT_TYPES, KEPT_ARGUMENTS
from specdec_exporter.predictor.servercommand import read_command
from specdec_exporter.predictor.versions import canonical_method
from support.builders import FIXTURES

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


RECIPES = [json.loads(line) for line in (FIXTURES / "commands.jsonl").read_text().splitlines()]


@pytest.mark.parametrize("recipe", RECIPES, ids=lambda recipe: recipe["source"])
def test_commands_of_vllms_recipes_and_pages_are_read(recipe: dict[str, Any]) -> None:
    command = read_command(recipe["command"])
    found = command.deployment()
    method = canonical_method(found.method) if found.method else None
    assert (method, found.draft_model, found.num_speculative_tokens) == tuple(
        recipe[key] for key in ("method", "draft_model", "k")
    )
    assert found.speculative is (method != "extract_hidden_states")
    assert (command.problems, command.ignored, command.unread) == ((), (), ())


@pytest.mark.parametrize(
    ("words", "speculative", "method", "k"),
    [
        ("--spec-method dspark --spec-model D --spec-tokens 7", True, "dspark", 7),
        ("--spec_method=ngram --spec-tok 3", True, "ngram", 3),
        ("--spec-tokens 3", True, None, 3),
        ("""--spec-method ngram -sc '{"num_speculative_tokens": "2"}'""", True, "ngram", 2),
        ("""--speculative '{"method": "mtp", "num-speculative-tokens": 2}'""", True, "mtp", 2),
        ("""--speculative-config '{"method": "$METHOD", "num_speculative_tokens": 2}'""", True, None, 2),
        ("--spec-method extract_hidden_states --spec-tokens 1", False, "extract_hidden_states", 1),
        ("--max-num-seqs 8", False, None, None),
        ("-sc nonsense", None, None, None),
        ("-sc $CONFIG", None, None, None),
        ("--spec-m ngram", None, None, None),  # begins two names: vLLM refuses it
        ("--spec-decoder x", None, None, None),
        ("$MORE", None, None, None),
        ('"$@"', None, None, None),
        ("{{ .Values.arguments }}", None, None, None),
        ("--config more.yaml", None, None, None),
        ("--config more.yaml --spec-method mtp --spec-tokens 1", True, "mtp", 1),
        ("--config=more.yaml", False, None, None),
    ],
)
def test_speculation_is_on_or_off_or_not_known(
    words: str, speculative: bool | None, method: str | None, k: int | None
) -> None:
    found = read_command(f"vllm serve m {words}").deployment()
    assert (found.speculative, found.method, found.num_speculative_tokens) == (speculative, method, k)


@pytest.mark.parametrize(
    "command", ["vllm serve org/llama-speculator.eagle3", "vllm serve $ARGUMENTS", "python3 start.py --model m"]
)
def test_a_command_that_may_speculate_without_saying_so_is_not_known(command: str) -> None:
    assert read_command(command).deployment().speculative is None


@pytest.mark.parametrize(
    ("flag", "key"), [("method", "method"), ("model", "model"), ("tokens", "num_speculative_tokens")]
)
def test_both_spellings_of_a_key_are_refused_in_vllms_words(flag: str, key: str) -> None:
    problem, *_ = read_command(f"""vllm serve m --spec-{flag} 3 -sc '{{"{key}": 3}}'""").problems
    assert problem == f"--spec-{flag} and --speculative-config['{key}'] are mutually exclusive"


@pytest.mark.parametrize(
    ("words", "problems"),
    [
        ("--spec-tokens 3", 1),
        ("""-sc '{"num_speculative_tokens": 3}'""", 1),
        ("--spec-tokens 3 --spec-model d", 0),
        ("--spec-tokens 3 --spec-method mtp", 0),
        ("--spec-tokens 3 -sc $CONFIG", 0),
        ("--spec-tokens 3 --config unread.yaml", 0),
        ("--spec-method mtp", 0),
    ],
)
def test_a_length_without_a_method_or_a_draft_model_is_refused(words: str, problems: int) -> None:
    assert len(read_command(f"vllm serve m {words}").problems) == problems


@pytest.mark.parametrize(
    ("words", "ignored"),
    [
        ("--config=more.yaml", "vLLM never reads the file of --config=FILE: write --config FILE, as two words"),
        (
            """--speculative-config '{"method": "mtp"}' --speculative-config.num_speculative_tokens 2""",
            "--speculative-config.num_speculative_tokens replaces all that --speculative-config itself gives",
        ),
    ],
)
def test_what_vllm_passes_over_in_silence_is_said(words: str, ignored: str) -> None:
    assert read_command(f"vllm serve m {words}").ignored == (ignored,)


CONFIG_FILE = {
    "model": "of-file",
    "speculative_config": {"method": "mtp", "num_speculative_tokens": 1},
    "enforce-eager": True,
    "enable-lora": False,
    "served_model_name": ["a", "b"],
    "max_num_seqs": 8,
    "dtype": None,
}


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ("vllm serve --config c.yaml", ("of-file", "mtp", 1, 8)),
        ("vllm serve m --config c.yaml --max-num-seqs 4", ("m", "mtp", 1, 4)),
        ("vllm serve --config c.yaml m", ("m", "mtp", 1, 8)),
        ("""vllm serve m --config c.yml -sc '{"method": "ngram"}'""", ("m", "ngram", None, 8)),
        ("vllm serve m --config c.yaml --speculative-config.method ngram", ("m", "ngram", None, 8)),
    ],
)
def test_a_config_files_arguments_come_before_those_of_the_command(
    command: str, expected: tuple[str, str, int | None, int]
) -> None:
    found = read_command(command, lambda _: CONFIG_FILE)
    deployment = found.deployment()
    assert (
        deployment.model,
        deployment.method,
        deployment.num_speculative_tokens,
        deployment.max_num_seqs,
    ) == expected
    assert (deployment.enforce_eager, deployment.enable_lora, found.unread) == (True, False, ())


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        ("--config a.yaml --config b.yaml", "--config is given twice: vLLM reads one file"),
        ("--config a.json", "--config: vLLM reads only a file whose name ends in .yaml or .yml"),
    ],
)
def test_a_config_file_that_vllm_refuses_is_a_problem(words: str, problem: str) -> None:
    assert read_command(f"vllm serve m {words}").problems == (problem,)


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
    assert found.unread == ("config", "tensor_parallel_size", "speculative_config")


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
        ("ls -la", "expected `vllm serve MODEL ...`"),
        ("vllm bench serve --model m", "expected `vllm serve MODEL ...`"),
        ("python3 -m sglang.launch_server --model m --tp 8", "expected `vllm serve MODEL ...`"),
        ("sglang serve --model m", "expected `vllm serve MODEL ...`"),
        ("llama-server --model m", "expected `vllm serve MODEL ...`"),
        ("docker compose up -d", "expected `vllm serve MODEL ...`"),
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
